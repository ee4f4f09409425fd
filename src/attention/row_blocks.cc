// SPDX-License-Identifier: Apache-2.0
#include "attention/row_blocks.h"

#include <algorithm>
#include <cstddef>

#include "core/memory_layout.h"
#include "kernels/visible_run.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::AttentionBlock;
using kernels::AttentionDense;
using kernels::AttentionRow;
using kernels::kGroupRows;

// Groups of rows that share one pass over the keys. More of them read the keys
// less often, which pays once keys and values outgrow the nearer caches.
int groups_for(std::int64_t kv_bytes) {
  constexpr std::int64_t kBytesAGroup = 128 << 10;
  return static_cast<int>(std::clamp<std::int64_t>(
      kv_bytes / kBytesAGroup, 2, kernels::kMaxRows / kGroupRows));
}

}  // namespace

RowBlocks::RowBlocks(const Problem<float>& p, int threads)
    : group_(p.group), kv_heads_(p.kv_heads) {
  std::int64_t kv_len = 0, total_rows = 0;
  for (std::int64_t i = 0; i < (p.packed ? p.entries : 1); ++i) {
    const Entry entry = i < p.entries ? p.entry(i) : Entry{};
    kv_len = std::max(kv_len, entry.kv_len);
    total_rows += entry.q_len * p.group * p.kv_heads;
  }
  if (!p.packed) total_rows *= p.entries;
  int groups = groups_for(kv_len * (p.d_k + p.d_v) * 4);
  // Every thread gets several blocks, or the last ones would be waited for.
  constexpr std::int64_t kBlocksAThread = 8;
  while (threads > 1 && groups > 1 &&
         total_rows < kBlocksAThread * threads * groups * kGroupRows) {
    groups /= 2;
  }
  rows_ = groups * kGroupRows;
  if (p.packed) {
    starts_.push_back(0);
    for (std::int64_t i = 0; i < p.entries; ++i) {
      q_lens_.push_back(p.entry(i).q_len);
      starts_.push_back(starts_.back() + blocks_of(q_lens_.back()) * kv_heads_);
    }
    total_ = starts_.back();
  } else {
    q_len_ = p.q.extent(2);
    total_ = blocks_of(q_len_) * kv_heads_ * p.entries;
  }
}

RowBlock RowBlocks::operator[](std::int64_t number) const {
  RowBlock block{};
  std::int64_t q_len = q_len_, blocks = blocks_of(q_len_), within = 0;
  if (starts_.empty()) {
    // Entries and heads inside, so that long blocks come before short ones.
    const std::int64_t others = total_ / blocks;
    within = number / others;
    block.index = number % others / kv_heads_;
    block.kv_head = number % others % kv_heads_;
  } else {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), number);
    block.index = after - starts_.begin() - 1;
    q_len = q_lens_[static_cast<std::size_t>(block.index)];
    blocks = blocks_of(q_len);
    const std::int64_t local =
        number - starts_[static_cast<std::size_t>(block.index)];
    within = local / kv_heads_;
    block.kv_head = local % kv_heads_;
  }
  block.first = (blocks - 1 - within) * rows_;
  block.count = static_cast<int>(
      std::min<std::int64_t>(rows_, q_len * group_ - block.first));
  return block;
}

BlockMemory::BlockMemory(const Problem<float>& p, int rows,
                         std::size_t dense_parts)
    : BlockMemory(p, rows, dense_parts,
                  sizeof(float) *
                      kernels::attention_scratch_floats(rows, p.d_k, p.d_v)) {}

std::size_t BlockMemory::lay_out(std::byte* base, Parts& parts) const {
  MemoryLayout memory(base);
  memory.take(parts.scratch, kernel_bytes_);
  memory.take(parts.rows, rows_);
  memory.take(parts.dense, dense_parts_);
  memory.take(parts.dense_rows, dense_parts_ * rows_);
  return memory.used();
}

AttentionBlock describe_call(const Problem<float>& p, std::int64_t index,
                             std::int64_t kv_head) {
  const auto& o = p.options;
  const Entry e = p.entry(index);
  return {
      .keys = {.k = p.k.at(e.batch, kv_head, e.kv_begin),
               .v = p.v.data() == nullptr
                        ? nullptr
                        : p.v.at(e.batch, kv_head, e.kv_begin),
               .k_stride = p.k.stride(2),
               .v_stride = p.v.stride(2),
               .d_k = p.d_k,
               .d_v = p.d_v,
               .storage = p.q.storage()},
      .rows = nullptr,
      .row_count = 0,
      .first_row = 0,
      .same_keys = false,
      .dense = nullptr,
      .dense_count = 0,
      .score = score_options(o),
      .has_sink = !o.sinks.empty(),
      .dropout_threshold = dropout_threshold(o.dropout.rate),
      .dropout_seed = o.dropout.seed,
      .keep_scale = 1.0f / (1.0f - o.dropout.rate),
      .scratch = nullptr,
  };
}

AttentionRow describe_row(const Problem<float>& p, const BoundMask& mask,
                          std::int64_t index, std::int64_t head,
                          std::int64_t query, void* out) {
  const auto& o = p.options;
  const Entry e = p.entry(index);
  const std::int64_t at = e.q_begin + query;
  const auto h = static_cast<std::size_t>(head);
  const KeyRange seen = mask.range(index, head, query);
  return {
      .q = p.q.at(e.batch, head, at),
      .out = out,
      .lse = o.log_sum_exp.is_null() ? nullptr
                                     : o.log_sum_exp.at(e.batch, head, at),
      .bias = p.bias_row(index, head, query),
      .begin = seen.begin,
      .end = seen.end,
      .scale = p.head_scale(head),
      .alibi_slope = o.alibi_slopes.empty() ? 0.0f : o.alibi_slopes[h],
      .alibi_position = static_cast<float>(query + e.kv_len - e.q_len),
      .sink = o.sinks.empty() ? 0.0f : o.sinks[h],
      .dropout_counter = {static_cast<std::uint32_t>(query),
                          static_cast<std::uint32_t>(head),
                          static_cast<std::uint32_t>(index)},
  };
}

namespace {

// The row of the query after `row`'s, but for the keys it sees.
AttentionRow next_row(const Problem<float>& p, AttentionRow row,
                      const Elements& out) {
  const auto& o = p.options;
  row.q = p.q.after(row.q, 1);
  if (row.out != nullptr) row.out = out.after(row.out, 1);
  if (row.lse != nullptr) row.lse += o.log_sum_exp.stride(2);
  if (row.bias != nullptr && o.bias.extent(2) != 1) {
    row.bias += o.bias.stride(2);
  }
  row.alibi_position += 1;
  row.dropout_counter[0] += 1;
  return row;
}

}  // namespace

AttentionBlock BlockMemory::describe(const RowBlock& block,
                                     const BoundMask& mask,
                                     const Elements& out) const {
  const Problem<float>& p = problem_;
  const Entry e = p.entry(block.index);
  Parts parts{};
  lay_out(thread_scratch(bytes_), parts);
  AttentionRow* const rows = parts.rows;
  AttentionBlock result = describe_call(p, block.index, block.kv_head);
  result.scratch = reinterpret_cast<float*>(parts.scratch);

  const auto query_of = [&](int i) { return (block.first + i) / p.group; };
  const auto head_of = [&](int i) {
    return block.kv_head * p.group + (block.first + i) % p.group;
  };
  const bool see_all = mask.ranges_are_full();
  for (int i = 0; i < block.count; ++i) {
    // From the second query of a head on, a row is the one before, moved: short
    // sequences have no time to look everything up again.
    if (i >= p.group) {
      rows[i] = next_row(p, rows[i - p.group], out);
      if (!see_all) {
        const KeyRange seen = mask.range(block.index, head_of(i), query_of(i));
        rows[i].begin = seen.begin;
        rows[i].end = seen.end;
      }
      continue;
    }
    void* const to = out.data() == nullptr
                         ? nullptr
                         : out.at(e.batch, head_of(i), e.q_begin + query_of(i));
    rows[i] = describe_row(p, mask, block.index, head_of(i), query_of(i), to);
  }
  // What a dense part hides before and after the keys that it shows is no work
  // at all; where it hides nothing between them, the range says everything.
  bool ranges_say_all = true;
  for (std::size_t part = 0; part < mask.dense().size(); ++part) {
    const DensePart& pairs = mask.dense()[part];
    const bool** const at = parts.dense_rows + part * rows_;
    for (int i = 0; i < block.count; ++i) {
      at[i] = pairs.row(block.index, head_of(i), query_of(i));
      const kernels::VisibleRun run = kernels::visible_run(
          at[i], rows[i].begin, rows[i].end, pairs.visible_when);
      rows[i].begin = run.begin;
      rows[i].end = run.end;
      ranges_say_all = ranges_say_all && run.whole;
    }
    parts.dense[part] = {at, pairs.visible_when};
  }
  result.rows = rows;
  result.row_count = block.count;
  result.same_keys = see_all && mask.dense().empty();
  result.dense = parts.dense;
  result.dense_count =
      ranges_say_all ? 0 : static_cast<int>(mask.dense().size());
  return result;
}

}  // namespace regard::detail
