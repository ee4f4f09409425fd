// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_count.h"

#include <algorithm>

#include "kernels/attention_forward.h"
#include "kernels/visible_run.h"

namespace regard::detail {
namespace {

using kernels::kGroupRows;
using kernels::kKeyBlock;
using kernels::kSplitKeys;

bool is_empty(KeyRange range) { return range.begin >= range.end; }

KeyRange join(KeyRange a, KeyRange b) {
  if (is_empty(a)) return b;
  if (is_empty(b)) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

KeyRange meet(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::int64_t tiles_of(std::int64_t keys) {
  const std::int64_t whole = (kSplitKeys + kKeyBlock - 1) / kKeyBlock;
  return keys / kSplitKeys * whole +
         (keys % kSplitKeys + kKeyBlock - 1) / kKeyBlock;
}

}  // namespace

template <typename T>
void TileCount::add(const Problem<T>& p, const BoundMask& mask,
                    const RowBlock& block) {
  rows_.clear();
  for (std::int64_t i = block.first; i < block.first + block.count; ++i) {
    rows_.push_back({block.kv_head * p.group + i % p.group, i / p.group, {}});
  }
  measure(mask, block.index);
  KeyRange block_keys{p.entry(block.index).kv_len, 0};
  for (const Group& group : groups_) {
    block_keys.begin = std::min(block_keys.begin, group.any.begin);
    block_keys.end = std::max(block_keys.end, group.any.end);
  }
  block_keys.begin = block_keys.begin / 4 * 4;
  const std::int64_t before = full + mixed;
  for (std::int64_t split = block_keys.begin / kSplitKeys;
       split * kSplitKeys < block_keys.end; ++split) {
    const KeyRange split_keys =
        meet(block_keys, {split * kSplitKeys, (split + 1) * kSplitKeys});
    for (std::int64_t key = split_keys.begin; key < split_keys.end;
         key += kKeyBlock) {
      for (const Group& group : groups_) {
        const KeyRange keys =
            meet({key, std::min(split_keys.end, key + kKeyBlock)}, group.any);
        const Tile tile = classify(mask, block.index, group, keys);
        if (tile == Tile::kSkipped) continue;
        ++(tile == Tile::kFull ? full : mixed);
        visited_pairs += group.count * (keys.end - keys.begin);
      }
    }
  }
  skipped += std::ssize(groups_) * tiles_of(p.entry(block.index).kv_len) -
             (full + mixed - before);
}

void TileCount::measure(const BoundMask& mask, std::int64_t index) {
  groups_.clear();
  ranges_say_all_ = true;
  for (std::int64_t i = 0; i < std::ssize(rows_); ++i) {
    Row& row = rows_[static_cast<std::size_t>(i)];
    row.seen = mask.range(index, row.head, row.query);
    for (const DensePart& part : mask.dense()) {
      const kernels::VisibleRun run =
          kernels::visible_run(part.row(index, row.head, row.query),
                               row.seen.begin, row.seen.end, part.visible_when);
      row.seen = {run.begin, run.end};
      ranges_say_all_ = ranges_say_all_ && run.whole;
    }
    if (i % kGroupRows == 0) groups_.push_back({i, 0, {}, row.seen});
    Group& group = groups_.back();
    group.any = join(group.any, row.seen);
    group.all = meet(group.all, row.seen);
    ++group.count;
  }
}

TileCount::Tile TileCount::classify(const BoundMask& mask, std::int64_t index,
                                    const Group& group, KeyRange keys) const {
  if (is_empty(keys)) return Tile::kSkipped;
  // Of several parts together it is not looked for.
  bool any_shown = ranges_say_all_ || mask.dense().size() != 1;
  bool any_hidden = false;
  for (const DensePart& part : mask.dense()) {
    if (ranges_say_all_) break;
    for (std::int64_t i = group.first; i < group.first + group.count; ++i) {
      if (any_shown && any_hidden) break;
      const Row& row = rows_[static_cast<std::size_t>(i)];
      const bool* pairs = part.row(index, row.head, row.query);
      const auto shown =
          std::count(pairs + keys.begin, pairs + keys.end, part.visible_when);
      any_shown = any_shown || shown > 0;
      any_hidden = any_hidden || shown < keys.end - keys.begin;
    }
  }
  if (!any_shown) return Tile::kSkipped;
  const bool in_range =
      group.all.begin <= keys.begin && keys.end <= group.all.end;
  return in_range && !any_hidden ? Tile::kFull : Tile::kMixed;
}

template void TileCount::add(const Problem<float>&, const BoundMask&,
                             const RowBlock&);
template void TileCount::add(const Problem<BFloat16>&, const BoundMask&,
                             const RowBlock&);
template void TileCount::add(const Problem<Float16>&, const BoundMask&,
                             const RowBlock&);

}  // namespace regard::detail
