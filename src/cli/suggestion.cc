// SPDX-License-Identifier: Apache-2.0
#include "cli/suggestion.h"

#include <algorithm>
#include <cstddef>

namespace regard::cli {
namespace {

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// Damerau and Levenshtein's distance, where no part is changed twice.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(
      a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      edits[i][j] =
          std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                    edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 40;  // no name is near that
  word = without_dashes(word);
  if (word.empty() || word.size() > kLongest) return "";
  const std::string* best = nullptr;
  // A third of the letters may be wrong; of two letters, none.
  std::size_t least = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const std::size_t edits = edits_between(word, without_dashes(name));
    if (edits < least) {
      least = edits;
      best = &name;
    }
  }
  if (best == nullptr) {
    const auto begins = [word](const std::string& name) {
      return without_dashes(name).starts_with(word);
    };
    if (std::count_if(names.begin(), names.end(), begins) == 1) {
      best = &*std::find_if(names.begin(), names.end(), begins);
    }
  }
  return best == nullptr ? "" : "; did you mean " + *best + "?";
}

}  // namespace regard::cli
