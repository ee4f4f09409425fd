// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/score.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "regard/core/error.h"
#include "tasks/score_text.h"

namespace regard::tasks {
namespace {

constexpr int kWordOrder = 4;
constexpr int kCharacterOrder = 6;

void check(const char* where, std::span<const std::string> hypotheses,
           std::span<const std::string> references) {
  require(hypotheses.size() == references.size() && !hypotheses.empty(), where,
          "there must be as many references as hypotheses, at least one; got ",
          references.size(), " and ", hypotheses.size());
}

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> parts;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    parts.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return parts;
}

using WordCounts = std::unordered_map<std::string_view, std::int64_t>;

// The n-grams of one order: a stretch of the text itself, blanks and all.
WordCounts count_words(const std::vector<std::string_view>& words, int order) {
  WordCounts counts;
  for (std::size_t i = 0; i + static_cast<std::size_t>(order) <= words.size();
       ++i) {
    const std::string_view last =
        words[i + static_cast<std::size_t>(order) - 1];
    const char* begin = words[i].data();
    ++counts[{begin,
              static_cast<std::size_t>(last.data() + last.size() - begin)}];
  }
  return counts;
}

template <typename Counts>
std::int64_t matches(const Counts& hypothesis, const Counts& reference) {
  std::int64_t sum = 0;
  for (const auto& [gram, count] : hypothesis) {
    const auto found = reference.find(gram);
    if (found != reference.end()) sum += std::min(count, found->second);
  }
  return sum;
}

// As mteval does: an order without a match counts as half of one, the next
// such order as a quarter, and so on.
double smoothed_score(BleuScore& result,
                      const std::array<std::int64_t, kWordOrder>& correct,
                      const std::array<std::int64_t, kWordOrder>& total) {
  if (std::all_of(correct.begin(), correct.end(),
                  [](std::int64_t n) { return n == 0; })) {
    return 0;
  }
  double smoothing = 1;
  double logs = 0;
  for (std::size_t n = 0; n < kWordOrder; ++n) {
    if (total[n] == 0) return 0;
    if (correct[n] == 0) {
      smoothing *= 2;
      result.precisions[n] =
          100.0 / (smoothing * static_cast<double>(total[n]));
    } else {
      result.precisions[n] = 100.0 * static_cast<double>(correct[n]) /
                             static_cast<double>(total[n]);
    }
    logs += std::log(result.precisions[n]);
  }
  return result.brevity_penalty * std::exp(logs / kWordOrder);
}

}  // namespace

BleuScore bleu(std::span<const std::string> hypotheses,
               std::span<const std::string> references,
               const ScoreOptions& options) {
  check("bleu", hypotheses, references);
  BleuScore result;
  std::array<std::int64_t, kWordOrder> correct{};
  std::array<std::int64_t, kWordOrder> total{};
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = score_words(hypotheses[i], options);
    const std::string reference = score_words(references[i], options);
    const auto said = split(hypothesis);
    const auto wanted = split(reference);
    result.hypothesis_length += static_cast<std::int64_t>(said.size());
    result.reference_length += static_cast<std::int64_t>(wanted.size());
    for (int order = 1; order <= kWordOrder; ++order) {
      const auto n = static_cast<std::size_t>(order - 1);
      correct[n] +=
          matches(count_words(said, order), count_words(wanted, order));
      total[n] += std::max<std::int64_t>(
          0, static_cast<std::int64_t>(said.size()) - order + 1);
    }
  }
  if (result.hypothesis_length < result.reference_length) {
    result.brevity_penalty =
        result.hypothesis_length == 0
            ? 0
            : std::exp(1 - static_cast<double>(result.reference_length) /
                               static_cast<double>(result.hypothesis_length));
  }
  result.score = smoothed_score(result, correct, total);
  return result;
}

double chrf(std::span<const std::string> hypotheses,
            std::span<const std::string> references,
            const ScoreOptions& options) {
  check("chrf", hypotheses, references);
  struct Sums {
    std::int64_t said = 0, wanted = 0, match = 0;
  };
  std::array<Sums, kCharacterOrder> sums{};
  const auto without_blanks = [&options](const std::string& line) {
    std::u32string text = folded(line, options);
    text.erase(std::remove_if(text.begin(), text.end(), is_space), text.end());
    return text;
  };
  const auto count = [](std::u32string_view text, std::size_t order) {
    std::unordered_map<std::u32string_view, std::int64_t> counts;
    for (std::size_t i = 0; i + order <= text.size(); ++i) {
      ++counts[text.substr(i, order)];
    }
    return counts;
  };
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::u32string said = without_blanks(hypotheses[i]);
    const std::u32string wanted = without_blanks(references[i]);
    for (std::size_t order = 1; order <= kCharacterOrder; ++order) {
      Sums& sum = sums[order - 1];
      const auto grams = [order](const std::u32string& text) {
        return text.size() < order
                   ? 0
                   : static_cast<std::int64_t>(text.size() - order + 1);
      };
      // A reference too short for this order asks for nothing.
      if (grams(wanted) == 0) continue;
      sum.said += grams(said);
      sum.wanted += grams(wanted);
      sum.match += matches(count(said, order), count(wanted, order));
    }
  }
  double precision = 0;
  double recall = 0;
  int orders = 0;
  for (const Sums& sum : sums) {
    if (sum.said == 0 || sum.wanted == 0) continue;
    const auto match = static_cast<double>(sum.match);
    precision += match / static_cast<double>(sum.said);
    recall += match / static_cast<double>(sum.wanted);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  constexpr double kBeta2 = 4;  // recall counts twice as much
  return 100 * (1 + kBeta2) * precision * recall /
         (kBeta2 * precision + recall);
}

}  // namespace regard::tasks
