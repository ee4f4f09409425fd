// SPDX-License-Identifier: Apache-2.0
#include "attention/row_blocks.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/visible_run.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::AttentionBlock;
using kernels::AttentionDense;
using kernels::AttentionRow;
using kernels::kGroupRows;
using kernels::Storage;

template <typename T>
constexpr Storage storage_of() {
  if constexpr (std::is_same_v<T, BFloat16>) return Storage::kBFloat16;
  if constexpr (std::is_same_v<T, Float16>) return Storage::kFloat16;
  return Storage::kFloat32;
}

// Groups of rows that share one pass over the keys. More of them read the keys
// less often, which pays once keys and values outgrow the nearer caches.
int groups_for(std::int64_t kv_bytes) {
  constexpr std::int64_t kBytesAGroup = 128 << 10;
  return static_cast<int>(std::clamp<std::int64_t>(
      kv_bytes / kBytesAGroup, 2, kernels::kMaxRows / kGroupRows));
}

}  // namespace

template <typename T>
RowBlocks::RowBlocks(const Problem<T>& p, int threads)
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

template <typename T>
BlockMemory<T>::BlockMemory(const Problem<T>& p, int rows,
                            std::size_t dense_parts)
    : problem_(p),
      kernel_floats_(kernels::attention_scratch_floats(rows, p.d_k, p.d_v)),
      row_bytes_(line_up(sizeof(AttentionRow) * rows)),
      dense_bytes_(line_up(sizeof(AttentionDense) * dense_parts)),
      pointer_bytes_(line_up(sizeof(bool*) * rows)) {}

template <typename T>
std::size_t BlockMemory<T>::bytes(std::size_t dense_parts) const {
  return line_up(kernel_floats_ * sizeof(float)) + row_bytes_ + dense_bytes_ +
         pointer_bytes_ * dense_parts;
}

template <typename T>
AttentionBlock describe_call(const Problem<T>& p, std::int64_t index,
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
               .storage = storage_of<T>()},
      .rows = nullptr,
      .row_count = 0,
      .first_row = 0,
      .same_keys = false,
      .dense = nullptr,
      .dense_count = 0,
      .bias_key_stride =
          o.bias.is_null() ? 0 : static_cast<int>(p.bias_key_stride()),
      .cosine = o.score == Score::kCosine,
      .has_bias = !o.bias.is_null(),
      .has_alibi = !o.alibi_slopes.empty(),
      .has_sink = !o.sinks.empty(),
      .softcap = o.softcap,
      .dropout_threshold = dropout_threshold(o.dropout.rate),
      .dropout_seed = o.dropout.seed,
      .keep_scale = 1.0f / (1.0f - o.dropout.rate),
      .scratch = nullptr,
  };
}

template <typename T>
AttentionRow describe_row(const Problem<T>& p, const BoundMask& mask,
                          std::int64_t index, std::int64_t head,
                          std::int64_t query, T* out) {
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
template <typename T>
AttentionRow next_row(const Problem<T>& p, AttentionRow row,
                      const TensorView<T, 4>& out) {
  const auto& o = p.options;
  row.q = static_cast<const T*>(row.q) + p.q.stride(2);
  if (row.out != nullptr) row.out = static_cast<T*>(row.out) + out.stride(2);
  if (row.lse != nullptr) row.lse += o.log_sum_exp.stride(2);
  if (row.bias != nullptr && o.bias.extent(2) != 1) {
    row.bias += o.bias.stride(2);
  }
  row.alibi_position += 1;
  row.dropout_counter[0] += 1;
  return row;
}

}  // namespace

template <typename T>
AttentionBlock BlockMemory<T>::describe(const RowBlock& block,
                                        const BoundMask& mask,
                                        const TensorView<T, 4>& out) const {
  const Problem<T>& p = problem_;
  const Entry e = p.entry(block.index);
  const std::size_t kernel_bytes = line_up(kernel_floats_ * sizeof(float));
  std::byte* memory = thread_scratch(bytes(mask.dense().size()));
  AttentionBlock result = describe_call(p, block.index, block.kv_head);
  result.scratch = reinterpret_cast<float*>(memory);
  auto* const rows = reinterpret_cast<AttentionRow*>(memory + kernel_bytes);
  memory += kernel_bytes + row_bytes_;
  auto* const dense = reinterpret_cast<AttentionDense*>(memory);
  memory += dense_bytes_;

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
    T* const to = out.data() == nullptr
                      ? nullptr
                      : out.at(e.batch, head_of(i), e.q_begin + query_of(i));
    rows[i] = describe_row(p, mask, block.index, head_of(i), query_of(i), to);
  }
  // What a dense part hides before and after the keys that it shows is no work
  // at all; where it hides nothing between them, the range says everything.
  bool ranges_say_all = true;
  for (std::size_t part = 0; part < mask.dense().size(); ++part) {
    const DensePart& pairs = mask.dense()[part];
    auto* const at = reinterpret_cast<const bool**>(memory);
    memory += pointer_bytes_;
    for (int i = 0; i < block.count; ++i) {
      at[i] = pairs.row(block.index, head_of(i), query_of(i));
      const kernels::VisibleRun run = kernels::visible_run(
          at[i], rows[i].begin, rows[i].end, pairs.visible_when);
      rows[i].begin = run.begin;
      rows[i].end = run.end;
      ranges_say_all = ranges_say_all && run.whole;
    }
    dense[part] = {at, pairs.visible_when};
  }
  result.rows = rows;
  result.row_count = block.count;
  result.same_keys = see_all && mask.dense().empty();
  result.dense = dense;
  result.dense_count =
      ranges_say_all ? 0 : static_cast<int>(mask.dense().size());
  return result;
}

template RowBlocks::RowBlocks(const Problem<float>&, int);
template RowBlocks::RowBlocks(const Problem<BFloat16>&, int);
template RowBlocks::RowBlocks(const Problem<Float16>&, int);
template AttentionBlock describe_call(const Problem<float>&, std::int64_t,
                                      std::int64_t);
template AttentionBlock describe_call(const Problem<BFloat16>&, std::int64_t,
                                      std::int64_t);
template AttentionBlock describe_call(const Problem<Float16>&, std::int64_t,
                                      std::int64_t);
template AttentionRow describe_row(const Problem<float>&, const BoundMask&,
                                   std::int64_t, std::int64_t, std::int64_t,
                                   float*);
template AttentionRow describe_row(const Problem<BFloat16>&, const BoundMask&,
                                   std::int64_t, std::int64_t, std::int64_t,
                                   BFloat16*);
template AttentionRow describe_row(const Problem<Float16>&, const BoundMask&,
                                   std::int64_t, std::int64_t, std::int64_t,
                                   Float16*);
template class BlockMemory<float>;
template class BlockMemory<BFloat16>;
template class BlockMemory<Float16>;

}  // namespace regard::detail
