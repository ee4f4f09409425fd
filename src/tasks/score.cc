// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/score.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "tasks/score_text.h"

namespace regard::tasks {
namespace {

constexpr int kWordOrder = 4;
constexpr int kCharacterOrder = 6;

void check(const char* where, std::size_t hypotheses, std::size_t references) {
  require(hypotheses == references && hypotheses > 0, where,
          "there must be as many references as hypotheses, at least one; got ",
          references, " and ", hypotheses);
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
void smooth(BleuScore& result,
            const std::array<std::int64_t, kWordOrder>& correct,
            const std::array<std::int64_t, kWordOrder>& total) {
  // No order has a match where the words have none.
  if (correct[0] == 0) return;
  double smoothing = 1;
  double logs = 0;
  for (std::size_t n = 0; n < kWordOrder; ++n) {
    if (total[n] == 0) return;
    if (correct[n] == 0) {
      smoothing *= 2;
      result.precisions[n] =
          100.0 / (smoothing * static_cast<double>(total[n]));
    } else {
      result.precisions[n] = 100.0 * static_cast<double>(correct[n]) /
                             static_cast<double>(total[n]);
    }
    logs += std::log(result.precisions[n]);
    result.up_to_order[n] =
        result.brevity_penalty * std::exp(logs / static_cast<double>(n + 1));
  }
  result.score = result.up_to_order[kWordOrder - 1];
}

// How often each n-gram comes in the reference that has it most often.
WordCounts count_most(const std::vector<std::vector<std::string_view>>& texts,
                      int order) {
  WordCounts most;
  for (const auto& words : texts) {
    for (const auto& [gram, count] : count_words(words, order)) {
      std::int64_t& known = most[gram];
      known = std::max(known, count);
    }
  }
  return most;
}

// The length that is nearest to `length`; of two, the shorter.
std::int64_t nearest_length(
    const std::vector<std::vector<std::string_view>>& texts,
    std::int64_t length) {
  std::int64_t nearest = std::ssize(texts.front());
  for (const auto& words : texts) {
    const auto off =
        std::pair(std::abs(std::ssize(words) - length), std::ssize(words));
    if (off < std::pair(std::abs(nearest - length), nearest)) {
      nearest = std::ssize(words);
    }
  }
  return nearest;
}

std::int64_t longest_common_subsequence(
    const std::vector<std::string_view>& a,
    const std::vector<std::string_view>& b) {
  // length[j] is that of the words of a so far and the first j of b.
  std::vector<std::int64_t> length(b.size() + 1, 0);
  for (const std::string_view word : a) {
    std::int64_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t above = length[j + 1];
      length[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, length[j]);
      diagonal = above;
    }
  }
  return length.back();
}

void add_overlap(std::int64_t common, std::int64_t said, std::int64_t wanted,
                 RougeScore::Part& sum) {
  if (common == 0) return;
  const double precision =
      static_cast<double>(common) / static_cast<double>(said);
  const double recall =
      static_cast<double>(common) / static_cast<double>(wanted);
  sum.precision += precision;
  sum.recall += recall;
  sum.f1 += 2 * precision * recall / (precision + recall);
}

}  // namespace

BleuScore bleu(std::span<const std::string> hypotheses,
               std::span<const std::string> references,
               const ScoreOptions& options) {
  std::vector<std::vector<std::string>> single;
  for (const std::string& reference : references) single.push_back({reference});
  return bleu(hypotheses, single, options);
}

BleuScore bleu(std::span<const std::string> hypotheses,
               std::span<const std::vector<std::string>> references,
               const ScoreOptions& options) {
  check("bleu", hypotheses.size(), references.size());
  BleuScore result;
  std::array<std::int64_t, kWordOrder> correct{};
  std::array<std::int64_t, kWordOrder> total{};
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = score_words(hypotheses[i], options);
    require(!references[i].empty(), "bleu", "hypothesis ", i,
            " has no reference");
    std::vector<std::string> texts;  // what the words point into
    for (const std::string& reference : references[i]) {
      texts.push_back(score_words(reference, options));
    }
    const auto said = split(hypothesis);
    std::vector<std::vector<std::string_view>> wanted;
    for (const std::string& text : texts) wanted.push_back(split(text));
    result.hypothesis_length += std::ssize(said);
    result.reference_length += nearest_length(wanted, std::ssize(said));
    for (int order = 1; order <= kWordOrder; ++order) {
      const auto n = static_cast<std::size_t>(order - 1);
      correct[n] +=
          matches(count_words(said, order), count_most(wanted, order));
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
  smooth(result, correct, total);
  return result;
}

double chrf(std::span<const std::string> hypotheses,
            std::span<const std::string> references,
            const ScoreOptions& options) {
  check("chrf", hypotheses.size(), references.size());
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

RougeScore rouge(std::span<const std::string> hypotheses,
                 std::span<const std::string> references,
                 const ScoreOptions& options) {
  check("rouge", hypotheses.size(), references.size());
  RougeScore result;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = score_words(hypotheses[i], options);
    const std::string reference = score_words(references[i], options);
    const auto said = split(hypothesis);
    const auto wanted = split(reference);
    for (int order = 1; order <= 2; ++order) {
      add_overlap(matches(count_words(said, order), count_words(wanted, order)),
                  std::ssize(said) - order + 1, std::ssize(wanted) - order + 1,
                  order == 1 ? result.rouge1 : result.rouge2);
    }
    add_overlap(longest_common_subsequence(said, wanted), std::ssize(said),
                std::ssize(wanted), result.rougeL);
  }
  for (RougeScore::Part* part :
       {&result.rouge1, &result.rouge2, &result.rougeL}) {
    for (double* value : {&part->precision, &part->recall, &part->f1}) {
      *value *= 100.0 / static_cast<double>(hypotheses.size());
    }
  }
  return result;
}

}  // namespace regard::tasks
