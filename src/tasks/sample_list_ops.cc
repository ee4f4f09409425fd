// SPDX-License-Identifier: Apache-2.0
// ListOps: nested lists of digits, and what they come to.
#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "regard/core/error.h"
#include "tasks/samples.h"

namespace regard::tasks {
namespace {

constexpr std::int64_t kMostDepth = 10;
constexpr std::int64_t kMostArguments = 10;
constexpr float kOperatorShare = 0.25f;  // of what is drawn below kMostDepth

constexpr std::array<std::string_view, 4> kOperators = {"MIN", "MAX", "MED",
                                                        "SM"};

std::int64_t value_of(std::size_t operation, std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  switch (operation) {
    case 0:
      return values.front();
    case 1:
      return values.back();
    case 2:  // of an even number, the mean of the two in the middle, rounded
             // down
      return (values[(n - 1) / 2] + values[n / 2]) / 2;
    default:
      return std::accumulate(values.begin(), values.end(), std::int64_t{0}) %
             10;
  }
}

// One expression, drawn from its root on.
class Expression {
 public:
  Expression(Random& random, const ListOpsOptions& options)
      : random_(random), options_(options) {
    value_ = draw(1);
  }

  bool fits() const {
    return value_ && length_ >= options_.min_length &&
           length_ <= options_.max_length;
  }
  const std::string& text() const { return text_; }
  std::int64_t value() const { return *value_; }

 private:
  void write(std::string_view token) {
    if (!text_.empty()) text_ += ' ';
    text_ += token;
  }

  // Nothing where it becomes too long: then it is thrown away.
  std::optional<std::int64_t> draw(std::int64_t depth) {
    if (depth >= kMostDepth || random_.uniform() >= kOperatorShare) {
      ++length_;
      const std::int64_t digit = random_.below(10);
      write(std::to_string(digit));
      return digit;
    }
    length_ += 2;
    const auto operation =
        static_cast<std::size_t>(random_.below(std::ssize(kOperators)));
    write(kOperators[operation]);
    std::vector<std::int64_t> values;
    for (std::int64_t left = 2 + random_.below(kMostArguments - 1); left > 0;
         --left) {
      const auto value = draw(depth + 1);
      if (!value || length_ > options_.max_length) return std::nullopt;
      values.push_back(*value);
    }
    if (options_.brackets) write("]");
    return value_of(operation, std::move(values));
  }

  Random& random_;
  const ListOpsOptions& options_;
  std::string text_;
  std::int64_t length_ = 0;  // tokens, brackets among them
  std::optional<std::int64_t> value_;
};

constexpr const char* kReadme =
    R"(# ListOps: nested lists of digits, a sample for `regard train classify`

Made up by the rules of `regard sample listops`, after ListOps (Nangia and
Bowman, 2018) as Long Range Arena has it (Tay et al., 2021): an expression is a
digit or, a quarter of the time and at most ten levels deep, an operator with
two to ten expressions behind it and a closing bracket. MIN, MAX and MED
(the median, rounded down) are what they say, SM is the sum modulo 10. Those
with a number of tokens in the asked-for range are kept. The label is what the
expression comes to. Free to use for anything.

    MAX 4 3 MIN 2 3 ] 1 0 MED 1 5 8 9 2 ] ]        5

The opening brackets of the original stand always right before an operator and
are left out; with --no-brackets the closing ones are, too, and an expression no
longer says where its lists end.

    regard train classify --train train.tsv --valid valid.tsv --out model \
        --max-length 2048 --batch-tokens 16384
    regard classify --model model --input test.tsv --score
)";

}  // namespace

std::vector<SampleFile> make_list_ops(const ListOpsOptions& options) {
  require(options.min_length >= 1 && options.max_length >= options.min_length,
          "make_list_ops", "lengths must be positive, the smallest first; got ",
          options.min_length, " and ", options.max_length);
  require(options.train > 0 && options.others > 0, "make_list_ops",
          "there must be examples; got ", options.train, " and ",
          options.others);
  Random random(options.seed);
  std::unordered_set<std::string> seen;
  const auto file = [&](const char* name, std::int64_t count) {
    std::string text = "text\tlabel\n";
    while (count > 0) {
      const Expression next(random, options);
      if (!next.fits() || !seen.insert(next.text()).second) continue;
      text += next.text() + "\t" + std::to_string(next.value()) + "\n";
      --count;
    }
    return SampleFile{name, std::move(text)};
  };
  std::vector<SampleFile> files;
  files.push_back(file("train.tsv", options.train));
  files.push_back(file("valid.tsv", options.others));
  files.push_back(file("test.tsv", options.others));
  files.push_back({"README.md", kReadme});
  return files;
}

std::vector<SampleFile> sample_list_ops(std::uint64_t seed) {
  return make_list_ops({.seed = seed});
}

}  // namespace regard::tasks
