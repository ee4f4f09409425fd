// SPDX-License-Identifier: Apache-2.0
#include "text/charsmap.h"

#include <cstring>

#include "regard/core/error.h"

namespace regard::text {

CharsMap::CharsMap(std::string_view bytes) {
  std::uint32_t size = 0;
  require(bytes.size() >= sizeof(size), "CharsMap",
          "a charsmap has at least 4 bytes; this has ", bytes.size());
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  require(size % sizeof(std::uint32_t) == 0 && size <= bytes.size() && size > 0,
          "CharsMap", "the table must be whole units of 4 bytes within the ",
          bytes.size(), " that follow; it says ", size);
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data(), size);
  texts_ = bytes.substr(size);
  require(texts_.ends_with('\0'), "CharsMap",
          "the texts of a charsmap must end with a zero");
}

CharsMap::Found CharsMap::find(std::string_view text, bool longest) const {
  Found found;
  if (units_.empty()) return found;
  // The format of darts-clone: bits 0-7 label, 8 has a value, 9 and 10-31 how
  // far the children are; a value is a unit of its own.
  const auto offset = [](std::uint32_t unit) {
    return unit >> 10 << ((unit & 1u << 9) >> 6);
  };
  std::uint32_t at = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) break;
    const std::uint32_t unit = units_[at];
    if ((unit & (1u << 31 | 0xFF)) != byte) break;
    at ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (at >= units_.size()) break;
    const std::uint32_t place = units_[at] & 0x7FFFFFFF;
    if (place >= texts_.size()) break;
    found = {i + 1, texts_.data() + place};
    if (!longest) break;
  }
  return found;
}

}  // namespace regard::text
