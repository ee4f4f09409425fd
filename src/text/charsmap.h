// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regard::text {

// SentencePiece's table of characters and what they are replaced by: a double
// array (darts-clone) whose values are places in a block of texts.
class CharsMap {
 public:
  // Throws InvalidArgument where the sizes do not fit. What the table leads to
  // is checked at each step, as no walk over it would find every place.
  explicit CharsMap(std::string_view bytes);
  CharsMap() = default;

  struct Found {
    std::size_t length = 0;  // 0: nothing is replaced
    std::string_view by;
  };
  // Of the texts in the table that start `text`, the longest or the shortest.
  Found longest(std::string_view text) const { return find(text, true); }
  Found shortest(std::string_view text) const { return find(text, false); }

 private:
  Found find(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero
};

}  // namespace regard::text
