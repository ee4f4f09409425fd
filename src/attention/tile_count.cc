// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_count.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include "kernels/attention_forward.h"
#include "kernels/visible_run.h"
#include "mask/parts.h"

namespace regard::detail {
namespace {

using kernels::kGroupRows;
using kernels::kKeyBlock;
using kernels::kSplitKeys;

bool is_empty(KeyRange range) { return range.begin >= range.end; }

std::int64_t length(KeyRange range) { return range.end - range.begin; }

KeyRange join(KeyRange a, KeyRange b) {
  if (is_empty(a)) return b;
  if (is_empty(b)) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

KeyRange meet(KeyRange a, KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::int64_t divided_up(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

bool starts_tile(std::int64_t key) { return key % kKeyBlock == 0; }

// Counts the tiles of one block of rows after the other.
class BlockCounter {
 public:
  BlockCounter(const Problem<float>& problem, const BoundMask& mask)
      : p_(problem), mask_(mask) {}

  TileCount operator()(const RowBlock& block) {
    measure(block);
    const std::int64_t kv_len = p_.entry(block.index).kv_len;
    TileCount count;
    for (const Group& group : groups_) {
      count += ranges_say_all_ ? count_ranges(group)
                               : count_dense(group, block.index);
    }
    count.skipped = std::ssize(groups_) * divided_up(kv_len, kKeyBlock) -
                    (count.full + count.mixed);
    return count;
  }

 private:
  struct Row {
    std::int64_t head, query;
    KeyRange seen;
  };
  struct Group {
    std::int64_t first, count;  // of rows_
    KeyRange any, all;          // seen by some row, and by every row
  };

  void measure(const RowBlock& block) {
    rows_.clear();
    groups_.clear();
    ranges_say_all_ = true;
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t at = block.first + i;
      Row row{block.kv_head * p_.group + at % p_.group, at / p_.group, {}};
      row.seen = mask_.range(block.index, row.head, row.query);
      for (const DensePart& part : mask_.dense()) {
        const kernels::VisibleRun run = kernels::visible_run(
            part.row(block.index, row.head, row.query), row.seen.begin,
            row.seen.end, part.visible_when);
        row.seen = {run.begin, run.end};
        ranges_say_all_ = ranges_say_all_ && run.whole;
      }
      rows_.push_back(row);
      if (i % kGroupRows == 0) groups_.push_back({i, 0, {}, row.seen});
      Group& group = groups_.back();
      group.any = join(group.any, row.seen);
      group.all = meet(group.all, row.seen);
      ++group.count;
    }
  }

  // Where a row sees all of its range: every tile that meets the range of some
  // row is visited, and those within the range of every row are full.
  static TileCount count_ranges(const Group& group) {
    const auto [any, all] = std::pair(group.any, group.all);
    if (is_empty(any)) return {};
    const std::int64_t first = any.begin / kKeyBlock;
    const std::int64_t last = (any.end - 1) / kKeyBlock;
    std::int64_t full = 0;
    if (!is_empty(all)) {
      // A tile that reaches past `any` is cut there, and is whole for that.
      const bool whole_begin = all.begin == any.begin || starts_tile(all.begin);
      const bool whole_end = all.end == any.end || starts_tile(all.end);
      const std::int64_t from = all.begin / kKeyBlock + (whole_begin ? 0 : 1);
      const std::int64_t to = (all.end - 1) / kKeyBlock - (whole_end ? 0 : 1);
      full = std::max<std::int64_t>(0, to - from + 1);
    }
    return {full, last - first + 1 - full, 0, group.count * length(any)};
  }

  TileCount count_dense(const Group& group, std::int64_t index) const {
    TileCount count;
    for (std::int64_t key = group.any.begin; key < group.any.end;
         key = kernels::key_block_end(key)) {
      const KeyRange keys{key,
                          std::min(kernels::key_block_end(key), group.any.end)};
      const auto [any_shown, any_hidden] = look_at(group, index, keys);
      if (!any_shown) continue;
      const bool in_range =
          group.all.begin <= keys.begin && keys.end <= group.all.end;
      ++(in_range && !any_hidden ? count.full : count.mixed);
      count.visited_pairs += group.count * length(keys);
    }
    return count;
  }

  struct Looked {
    bool any_shown, any_hidden;
  };
  Looked look_at(const Group& group, std::int64_t index, KeyRange keys) const {
    // Of several parts together it is not looked for.
    Looked seen{mask_.dense().size() != 1, false};
    for (const DensePart& part : mask_.dense()) {
      for (std::int64_t i = group.first; i < group.first + group.count; ++i) {
        if (seen.any_shown && seen.any_hidden) return seen;
        const Row& row = rows_[static_cast<std::size_t>(i)];
        const bool* pairs = part.row(index, row.head, row.query);
        const auto shown =
            std::count(pairs + keys.begin, pairs + keys.end, part.visible_when);
        seen.any_shown = seen.any_shown || shown > 0;
        seen.any_hidden = seen.any_hidden || shown < length(keys);
      }
    }
    return seen;
  }

  const Problem<float>& p_;
  const BoundMask& mask_;
  std::vector<Row> rows_;
  std::vector<Group> groups_;
  bool ranges_say_all_ = true;  // of rows_: the dense parts hide nothing else
};

template <typename Part>
const Part* part_of(const Mask& mask) {
  for (const auto& part : mask.parts()) {
    if (const auto* found = std::get_if<Part>(&part->what)) return found;
  }
  return nullptr;
}

// What a mask without dense parts looks like from one head of one entry:
// stretches of queries along which each end of a row's range stands still or
// moves on with the query.
struct Stretch {
  std::int64_t begin, end;  // of the queries
};

class Stretches {
 public:
  Stretches(const Mask& mask, const BoundMask& bound, std::int64_t index)
      : bound_(bound), index_(index) {
    const std::int64_t q_len = bound.sizes().q_len;
    // Between these, ends never fall and never rise faster than the query.
    std::vector<std::int64_t> cuts = {0, q_len};
    for (const auto& part : mask.parts()) {
      if (const auto* lengths = std::get_if<LengthsPart>(&part->what);
          lengths != nullptr && lengths->query_lengths) {
        cuts.push_back(
            (*lengths->query_lengths)[static_cast<std::size_t>(index)]);
      }
      if (const auto* documents = std::get_if<DocumentsPart>(&part->what)) {
        for (std::size_t q = 1; q < documents->ranges.size(); ++q) {
          if (documents->ranges[q] != documents->ranges[q - 1]) {
            cuts.push_back(static_cast<std::int64_t>(q));
          }
        }
      }
    }
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      may_merge_ = false;
      if (cuts[i - 1] < cuts[i]) add(cuts[i - 1], cuts[i]);
    }
  }

  const std::vector<Stretch>& all() const { return all_; }

  std::int64_t visible_pairs() const {
    std::int64_t pairs = 0;
    for (const auto& [begin, end] : all_) {
      // An arithmetic series: of an odd number of terms, first and last have an
      // even sum.
      const std::int64_t count = end - begin;
      const std::int64_t sum = length(seen(begin)) + length(seen(end - 1));
      pairs += count % 2 == 0 ? count / 2 * sum : sum / 2 * count;
    }
    return pairs;
  }

 private:
  KeyRange seen(std::int64_t query) const {
    return bound_.range(index_, 0, query);
  }

  bool is_even(std::int64_t begin, std::int64_t end) const {
    const std::int64_t steps = end - 1 - begin;
    const KeyRange first = seen(begin), last = seen(end - 1);
    const auto even = [steps](std::int64_t a, std::int64_t b) {
      return b == a || b == a + steps;
    };
    return even(first.begin, last.begin) && even(first.end, last.end);
  }

  void add(std::int64_t begin, std::int64_t end) {
    if (!is_even(begin, end)) {
      const std::int64_t middle = begin + (end - begin) / 2;
      add(begin, middle);
      return add(middle, end);
    }
    if (may_merge_ && is_even(all_.back().begin, end)) {
      all_.back().end = end;
    } else {
      all_.push_back({begin, end});
    }
    may_merge_ = true;
  }

  const BoundMask& bound_;
  std::int64_t index_;
  std::vector<Stretch> all_;
  bool may_merge_ = false;
};

// The blocks of one key-value head of an entry, for a mask without dense parts.
class HeadCounter {
 public:
  HeadCounter(const Problem<float>& p, const BoundMask& mask,
              std::int64_t index, int rows_per_block)
      : count_block_(p, mask),
        index_(index),
        group_(p.group),
        block_rows_(rows_per_block),
        rows_(p.entry(index).q_len * p.group),
        // Moved by so many blocks, a range is moved by whole splits, and its
        // tiles with it.
        period_(std::lcm<std::int64_t>(rows_per_block, kSplitKeys * group_) /
                rows_per_block),
        stretches_(p.options.mask, mask, index) {}

  TileCount operator()() {
    TileCount total;
    std::int64_t done = 0;
    for (const Stretch& stretch : stretches_.all()) {
      // Near its ends a range may be shorter than a split, and rows of two
      // stretches may share a block.
      constexpr std::int64_t kMargin = 2 * kSplitKeys;
      const std::int64_t from =
          divided_up((stretch.begin + kMargin) * group_, block_rows_);
      const std::int64_t to = (stretch.end - kMargin) * group_ / block_rows_;
      if (to - from <= 3 * period_) continue;
      total += one_by_one(done, from);
      total += by_periods(from, to);
      done = to;
    }
    total += one_by_one(done, divided_up(rows_, block_rows_));
    return total;
  }

 private:
  TileCount count(std::int64_t block) {
    const std::int64_t first = block * block_rows_;
    return count_block_(
        {.index = index_,
         .kv_head = 0,
         .first = first,
         .count = static_cast<int>(std::min(block_rows_, rows_ - first))});
  }

  TileCount one_by_one(std::int64_t from, std::int64_t to) {
    TileCount total;
    while (from < to) {
      // Blocks of one query only, as large groups have them, are alike.
      const std::int64_t query = from * block_rows_ / group_;
      const std::int64_t same =
          std::min(to, (query + 1) * group_ / block_rows_) - from;
      const std::int64_t times = std::max<std::int64_t>(1, same);
      total += times * count(from);
      from += times;
    }
    return total;
  }

  // Each period has a fixed number of tiles more than the one before, or fewer.
  TileCount by_periods(std::int64_t from, std::int64_t to) {
    const std::int64_t periods = (to - from) / period_;
    const TileCount first = one_by_one(from, from + period_);
    const TileCount second = one_by_one(from + period_, from + 2 * period_);
    TileCount total = periods * first;
    // The sum of 0 .. periods - 1, times the step: the even factor is halved.
    const std::int64_t a = periods % 2 == 0 ? periods / 2 : periods;
    const std::int64_t b = periods % 2 == 0 ? periods - 1 : (periods - 1) / 2;
    total += a * (b * (second - first));
    total += one_by_one(from + periods * period_, to);
    return total;
  }

  BlockCounter count_block_;
  std::int64_t index_, group_, block_rows_, rows_, period_;
  Stretches stretches_;
};

// Calls body(index, times) for entries that stand for so many alike.
template <typename Body>
void for_different_entries(const Problem<float>& p, const Body& body) {
  if (p.packed) {
    for (std::int64_t i = 0; i < p.entries; ++i) body(i, std::int64_t{1});
    return;
  }
  const auto* lengths = part_of<LengthsPart>(p.options.mask);
  if (lengths == nullptr) return body(std::int64_t{0}, p.entries);
  // By the lengths that all parts give it.
  std::map<std::vector<std::int64_t>, std::pair<std::int64_t, std::int64_t>>
      alike;
  for (std::int64_t i = 0; i < p.entries; ++i) {
    std::vector<std::int64_t> key;
    for (const auto& part : p.options.mask.parts()) {
      const auto* each = std::get_if<LengthsPart>(&part->what);
      if (each == nullptr) continue;
      key.push_back(each->kv_lengths[static_cast<std::size_t>(i)]);
      if (each->query_lengths) {
        key.push_back((*each->query_lengths)[static_cast<std::size_t>(i)]);
      }
    }
    ++alike.try_emplace(std::move(key), i, 0).first->second.second;
  }
  for (const auto& [key, entry] : alike) body(entry.first, entry.second);
}

std::int64_t visible_in_row(const BoundMask& mask, std::int64_t index,
                            std::int64_t head, std::int64_t query) {
  const KeyRange seen = mask.range(index, head, query);
  std::int64_t visible = length(seen);
  for (std::int64_t key = seen.begin; key < seen.end && !mask.dense().empty();
       ++key) {
    visible -= !std::all_of(
        mask.dense().begin(), mask.dense().end(), [&](const DensePart& part) {
          return part.row(index, head, query)[key] == part.visible_when;
        });
  }
  return visible;
}

}  // namespace

TileCount& TileCount::operator+=(const TileCount& other) {
  full += other.full;
  mixed += other.mixed;
  skipped += other.skipped;
  visited_pairs += other.visited_pairs;
  return *this;
}

TileCount operator*(std::int64_t times, const TileCount& c) {
  return {times * c.full, times * c.mixed, times * c.skipped,
          times * c.visited_pairs};
}

TileCount operator-(const TileCount& a, const TileCount& b) {
  TileCount difference = a;
  difference += -1 * b;
  return difference;
}

TileCount count_tiles(const Problem<float>& p, const EntryMasks<float>& masks,
                      const RowBlocks& blocks) {
  TileCount total;
  if (part_of<DensePart>(p.options.mask) != nullptr) {
    for (std::int64_t i = 0; i < blocks.size(); ++i) {
      masks.with(blocks[i].index, [&](const BoundMask& mask) {
        total += BlockCounter(p, mask)(blocks[i]);
      });
    }
    return total;
  }
  for_different_entries(p, [&](std::int64_t index, std::int64_t times) {
    masks.with(index, [&](const BoundMask& mask) {
      HeadCounter count(p, mask, index, blocks.rows());
      total += times * p.kv_heads * count();
    });
  });
  return total;
}

std::int64_t count_visible_pairs(const Problem<float>& p,
                                 const EntryMasks<float>& masks) {
  std::int64_t total = 0;
  if (part_of<DensePart>(p.options.mask) != nullptr) {
    for (std::int64_t i = 0; i < p.entries; ++i) {
      masks.with(i, [&](const BoundMask& mask) {
        for (std::int64_t row = 0; row < p.heads * p.entry(i).q_len; ++row) {
          total += visible_in_row(mask, i, row % p.heads, row / p.heads);
        }
      });
    }
    return total;
  }
  for_different_entries(p, [&](std::int64_t index, std::int64_t times) {
    masks.with(index, [&](const BoundMask& mask) {
      total += times * p.heads *
               Stretches(p.options.mask, mask, index).visible_pairs();
    });
  });
  return total;
}

}  // namespace regard::detail
