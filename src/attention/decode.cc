// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/decode.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "attention/decode_call.h"
#include "attention/row_blocks.h"
#include "kernels/attention_decode.h"

namespace regard {
namespace detail {
namespace {

using kernels::DecodeBlock;
using kernels::DecodeRow;
using kernels::DecodeSplit;
using kernels::kBlockKeys;
using kernels::kSplitBlocks;
using kernels::kSplitKeys;

// Queries of one pass. More would keep too many states at once.
constexpr std::int64_t kPassQueries = 16;
// Below so many bytes of keys a second thread costs more than it brings.
constexpr double kSerialBytes = 256 << 10;

// A range that holds both; an empty one adds nothing.
KeyRange hull(KeyRange a, KeyRange b) {
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

bool meets(KeyRange a, std::int64_t begin, std::int64_t end) {
  return a.begin < end && begin < a.end && a.begin < a.end;
}

// Queries [first, first + count) of every entry: the rows, and the splits that
// they see, which run side by side.
class DecodePass {
 public:
  DecodePass(const DecodeCall& call, std::int64_t first, std::int64_t count)
      : call_(call),
        first_(first),
        count_(count),
        rows_per_head_(static_cast<int>(count * call.group)) {
    for (std::int64_t entry = 0; entry < call.entries; ++entry) {
      find_splits(entry);
      for (std::int64_t head = 0; head < call.kv_heads; ++head) {
        describe_rows(entry, head);
      }
    }
  }

  void run() {
    // [kv_heads][splits] tasks of each entry, in this order.
    std::vector<Task> tasks;
    std::vector<std::int64_t> starts;
    double keys = 0;
    for (std::int64_t entry = 0; entry < call_.entries; ++entry) {
      const Seen& seen = seen_[static_cast<std::size_t>(entry)];
      keys += static_cast<double>(seen.keys);
      for (std::int64_t head = 0; head < call_.kv_heads; ++head) {
        starts.push_back(static_cast<std::int64_t>(tasks.size()));
        for (const std::int64_t split : seen.splits) {
          tasks.push_back({entry, head, split});
        }
      }
    }
    const auto& layout = call_.store.layout();
    const std::size_t state = state_floats();
    auto* const states = reinterpret_cast<float*>(
        thread_scratch(tasks.size() * state * sizeof(float), Scratch::kCall));
    // Splits of each head that are not done yet: the last one merges.
    const std::size_t groups = starts.size();
    const auto left = std::make_unique<std::atomic<std::int64_t>[]>(groups);
    for (std::size_t i = 0; i < groups; ++i) {
      const auto next = i + 1 < groups
                            ? starts[i + 1]
                            : static_cast<std::int64_t>(tasks.size());
      left[i].store(next - starts[i], std::memory_order_relaxed);
    }
    const double bytes =
        keys *
        static_cast<double>(call_.kv_heads *
                            (layout.k_bytes() + layout.v_bytes())) /
        kBlockKeys;
    const Threads threads{
        bytes < kSerialBytes ? 1 : call_.options.threads.count,
        call_.options.threads.pool};
    parallel_for(
        threads, static_cast<std::int64_t>(tasks.size()),
        [&](std::int64_t number) {
          const Task& task = tasks[static_cast<std::size_t>(number)];
          DecodeBlock blocks[kSplitBlocks];
          DecodeSplit split = describe(task, blocks);
          kernels::decode_split(
              split, states + static_cast<std::size_t>(number) * state);
          const auto group = static_cast<std::size_t>(
              task.entry * call_.kv_heads + task.kv_head);
          if (left[group].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
          const std::int64_t count = static_cast<std::int64_t>(
              seen_[static_cast<std::size_t>(task.entry)].splits.size());
          kernels::decode_merge(
              split, !call_.options.sinks.empty(), count,
              states + static_cast<std::size_t>(starts[group]) * state);
        });
  }

 private:
  struct Task {
    std::int64_t entry, kv_head, split;
  };
  // What the queries of an entry see.
  struct Seen {
    KeyRange late, early;
    std::vector<std::int64_t> splits;
    std::int64_t keys = 0;
  };

  std::size_t state_floats() const {
    return kernels::decode_state_floats(call_.store.layout(), rows_per_head_);
  }

  void find_splits(std::int64_t entry) {
    Seen seen;
    for (std::int64_t i = 0; i < count_; ++i) {
      const RowKeys& row = call_.row_keys(entry, first_ + i);
      seen.late = hull(seen.late, row.late);
      seen.early = hull(seen.early, row.early);
    }
    const std::int64_t end = std::max(seen.late.end, seen.early.end);
    for (std::int64_t key = 0; key < end; key += kSplitKeys) {
      if (meets(seen.late, key, key + kSplitKeys) ||
          meets(seen.early, key, key + kSplitKeys)) {
        seen.splits.push_back(key / kSplitKeys);
      }
    }
    // One that sees nothing has a state too, which says so.
    if (seen.splits.empty()) seen.splits.push_back(0);
    seen.keys =
        seen.late.end - seen.late.begin + seen.early.end - seen.early.begin;
    seen_.push_back(std::move(seen));
  }

  // Row r is query r / group of head kv_head * group + r % group.
  void describe_rows(std::int64_t entry, std::int64_t kv_head) {
    const AttentionOptions& o = call_.options;
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t query = first_ + i;
      const RowKeys& keys = call_.row_keys(entry, query);
      for (std::int64_t member = 0; member < call_.group; ++member) {
        const std::int64_t head = kv_head * call_.group + member;
        const auto h = static_cast<std::size_t>(head);
        const auto& b = o.bias;
        rows_.push_back(
            {.q = call_.q.at(entry, head, query),
             .out = call_.out.at(entry, head, query),
             .lse = o.log_sum_exp.is_null()
                        ? nullptr
                        : o.log_sum_exp.at(entry, head, query),
             .bias = b.is_null() ? nullptr
                                 : b.at(b.extent(0) == 1 ? 0 : entry,
                                        b.extent(1) == 1 ? 0 : head,
                                        b.extent(2) == 1 ? 0 : query),
             .begin = keys.late.begin,
             .end = keys.late.end,
             .early_begin = keys.early.begin,
             .early_end = keys.early.end,
             .position = query + call_.sequence(entry).length - call_.q_len,
             .scale = call_.head_scale(head),
             .alibi_slope = o.alibi_slopes.empty() ? 0.0f : o.alibi_slopes[h],
             .sink = o.sinks.empty() ? 0.0f : o.sinks[h]});
      }
    }
  }

  // The blocks of a split that some row sees.
  int find_blocks(const Task& task, DecodeBlock* blocks) const {
    const Seen& seen = seen_[static_cast<std::size_t>(task.entry)];
    const KVSequence& sequence = call_.sequence(task.entry);
    int count = 0;
    for (std::int64_t i = 0; i < kSplitBlocks; ++i) {
      const std::int64_t key = task.split * kSplitKeys + i * kBlockKeys;
      if (!meets(seen.late, key, key + kBlockKeys) &&
          !meets(seen.early, key, key + kBlockKeys)) {
        continue;
      }
      blocks[count++] =
          call_.store.block(sequence, task.kv_head, key / kBlockKeys);
    }
    return count;
  }

  // What it points to lives in the calling thread's scratch and in `blocks`.
  DecodeSplit describe(const Task& task, DecodeBlock* blocks) const {
    const AttentionOptions& o = call_.options;
    const auto& layout = call_.store.layout();
    const std::int64_t first_row =
        (task.entry * call_.kv_heads + task.kv_head) * rows_per_head_;
    return {.layout = layout,
            .rows = rows_.data() + first_row,
            .row_count = rows_per_head_,
            .blocks = blocks,
            .block_count = find_blocks(task, blocks),
            .score = score_options(o),
            .scratch = reinterpret_cast<float*>(thread_scratch(
                kernels::decode_scratch_floats(layout) * sizeof(float)))};
  }

  const DecodeCall& call_;
  const std::int64_t first_, count_;
  const int rows_per_head_;
  std::vector<Seen> seen_;
  std::vector<DecodeRow> rows_;  // [entries][kv_heads][rows_per_head]
};

void decode(TensorView<const float, 4> q, const KVStore& store,
            std::span<const std::int64_t> sequences, TensorView<float, 4> out,
            const AttentionOptions& options) {
  const DecodeCall call(q, store, sequences, out, options);
  if (call.entries == 0 || call.heads == 0) return;
  if (!kernels::attention_has_kernel()) return decode_plainly(call);
  for (std::int64_t i = 0; i < call.q_len; i += kPassQueries) {
    DecodePass(call, i, std::min(kPassQueries, call.q_len - i)).run();
  }
}

}  // namespace
}  // namespace detail

void attention_decode(TensorView<const float, 4> q, const KVCache& cache,
                      std::span<const std::int64_t> sequences,
                      TensorView<float, 4> out,
                      const AttentionOptions& options) {
  detail::decode(q, cache.store(), sequences, out, options);
}

void attention_decode(TensorView<const float, 4> q, const KVCache& cache,
                      TensorView<float, 4> out,
                      const AttentionOptions& options) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(cache.sequences()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  detail::decode(q, cache.store(), all, out, options);
}

}  // namespace regard
