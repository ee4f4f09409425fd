// SPDX-License-Identifier: Apache-2.0
#include "cli/alignment.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "cli/heat_map.h"

namespace regard::cli {

std::string piece_label(const std::string& piece) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  if (!piece.starts_with(kMark)) return piece;
  std::string text(1, '_');
  text.append(piece, kMark.size());
  return text;
}

std::string draw_alignment(const tasks::Translation& translation,
                           const Screen& screen) {
  HeatMaps::Sizes sizes;
  sizes.heads = 1;
  sizes.q_len = static_cast<std::int64_t>(translation.target_pieces.size());
  sizes.kv_len = static_cast<std::int64_t>(translation.source_pieces.size());
  if (sizes.q_len == 0 || sizes.kv_len == 0) return {};
  HeatMaps::Labels labels;
  for (const std::string& piece : translation.target_pieces) {
    labels.queries.push_back(piece_label(piece));
  }
  for (const std::string& piece : translation.source_pieces) {
    labels.keys.push_back(piece_label(piece));
  }
  // A mean over heads: none has a name.
  HeatMaps map(sizes, std::move(labels), screen, {.titled = false});
  for (std::int64_t row = 0; row < sizes.q_len; ++row) {
    map.add_row(0, row,
                translation.alignment[static_cast<std::size_t>(row)].data());
  }
  return map.draw();
}

}  // namespace regard::cli
