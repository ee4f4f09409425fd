// SPDX-License-Identifier: Apache-2.0
// What the backward pass keeps of queries of which only some are in memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/backward_rows.h"
#include "dist/block.h"
#include "dist/stream.h"
#include "regard/core/aligned_buffer.h"

namespace regard::dist {

// Queries that lie in one row group of the kernel lie in 48 queries, for any
// number of heads that share keys.
inline constexpr std::int64_t kQueryUnit = kernels::kGroupRows;

// A call about the whole sequence, of which only some queries and keys are in
// memory. Stays where it is: the problem refers to what is before it.
struct PartialProblem {
  AttentionOptions options;
  detail::BackwardViews<float> inputs;
  detail::GradientViews<float> gradients;
  detail::BackwardProblem<float> backward{inputs, gradients, options};
  detail::EntryMasks<float> masks{backward.forward};
};

// Some rows that read one key-value head, and what the passes keep of them.
class HeadRows {
 public:
  HeadRows(const PartialProblem& problem, std::int64_t index,
           std::int64_t kv_head, Part queries, detail::BackwardParts parts)
      : index_(index),
        kv_head_(kv_head),
        first_(queries.begin),
        rows_(problem.backward, problem.masks, index, kv_head, queries.begin,
              queries.end) {
    const auto lay_out = [&](std::byte* base) {
      MemoryLayout memory(base);
      rows_.lay_out(memory);
      rows_.lay_out(memory, head_, parts);
      return memory.used();
    };
    memory_ = AlignedBuffer(lay_out(nullptr));
    lay_out(memory_.data());
    rows_.describe_head(head_);
    const detail::Problem<float>& p = problem.backward.forward;
    head_.key_run = kernels::backward_key_run(p.d_k, p.d_v);
    // Rows and keys are each one task's: nobody waits for a turn.
    static constexpr auto kNothing = [](std::int64_t) {};
    static const FunctionRef<void(std::int64_t)> no_turn(kNothing);
    head_.begin_turn = head_.end_turn = &no_turn;
    // Rows are told from their masks at once: which keys are wanted.
    rows_.describe_rows(0, rows_.count());
    for (std::int64_t i = 0; i < rows_.count(); ++i) {
      seen_ = joined(seen_, {rows_.row(i).begin,
                             std::max(rows_.row(i).begin, rows_.row(i).end)});
    }
  }

  std::int64_t index() const { return index_; }
  std::int64_t kv_head() const { return kv_head_; }
  std::int64_t groups() const { return rows_.groups(); }
  std::int64_t count() const { return rows_.count(); }
  // Number i of the queries.
  std::int64_t query(std::int64_t i) const { return first_ + i; }
  Part seen() const { return seen_; }  // keys that some row sees
  float& delta(std::int64_t i) { return head_.deltas[i]; }

  void prepare(std::int64_t group) { kernels::backward_prepare(head_, group); }
  // A run of the keys that `keys` has, which count from the first of all; dk
  // and dv are added to the sums, if there are some, and dq if it is wanted.
  void add_keys(const kernels::AttentionKeys& keys, Part run, float* key_sums,
                float* value_sums, bool wants_rows) const {
    kernels::BackwardHead head = head_;
    if (!wants_rows) head.d_query_rows = nullptr;
    head.block.keys = keys;
    head.d_key_sums = key_sums;
    head.d_value_sums = value_sums;
    kernels::backward_keys(head, run.begin, run.end,
                           scratch(keys.d_k, keys.d_v));
  }
  void finish() {
    for (std::int64_t g = 0; g < groups(); ++g) {
      kernels::backward_finish(head_, g);
    }
  }
  void sum(detail::HeadSums& sums) const { rows_.sum(head_, sums); }

  static float* scratch(std::int64_t d_k, std::int64_t d_v) {
    return reinterpret_cast<float*>(thread_scratch(
        sizeof(float) * kernels::backward_scratch_floats(
                            kernels::backward_key_run(d_k, d_v), d_k, d_v)));
  }

 private:
  std::int64_t index_, kv_head_, first_;
  detail::BackwardRows rows_;
  kernels::BackwardHead head_{};
  AlignedBuffer memory_;
  Part seen_{0, 0};
};

// The keys of a head that are in memory from `begin` on.
inline kernels::AttentionKeys keys_of(const PartialProblem& problem, Block& k,
                                      Block& v, std::int64_t begin,
                                      std::int64_t batch,
                                      std::int64_t kv_head) {
  const detail::Problem<float>& p = problem.backward.forward;
  kernels::AttentionKeys keys = detail::describe_call(p, batch, kv_head).keys;
  const auto at = [&](Block& block) {
    return whole_view(block.const_view(), begin, p.k.extent(2))
        .at(batch, kv_head, 0);
  };
  keys.k = at(k);
  keys.v = at(v);
  keys.k_stride = k.view().strides[2];
  keys.v_stride = v.view().strides[2];
  return keys;
}

}  // namespace regard::dist
