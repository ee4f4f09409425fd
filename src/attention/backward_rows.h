// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/backward.h"
#include "attention/entry_masks.h"
#include "attention/row_blocks.h"
#include "core/memory_layout.h"
#include "kernels/attention_backward.h"

namespace regard::detail {

// What a pass takes gradients of; rows have dq, slopes and scales.
enum class BackwardParts { kRowsAndKeys, kKeys };

// The rows of some queries that read one key-value head of an entry, as the
// kernels of the backward pass want to be told of them.
class BackwardRows {
 public:
  // All queries of the entry.
  BackwardRows(const BackwardProblem<float>& problem,
               const EntryMasks<float>& masks, std::int64_t index,
               std::int64_t kv_head)
      : BackwardRows(problem, masks, index, kv_head, 0,
                     problem.forward.entry(index).q_len) {}
  // The queries [first, last).
  BackwardRows(const BackwardProblem<float>& problem,
               const EntryMasks<float>& masks, std::int64_t index,
               std::int64_t kv_head, std::int64_t first, std::int64_t last)
      : b_(problem),
        p_(problem.forward),
        masks_(masks),
        index_(index),
        kv_head_(kv_head),
        first_(first),
        count_((last - first) * problem.forward.group),
        entry_(problem.forward.entry(index)) {}

  const Entry& entry() const { return entry_; }
  std::int64_t count() const { return count_; }
  std::int64_t groups() const {
    return (count_ + kernels::kGroupRows - 1) / kernels::kGroupRows;
  }
  const kernels::AttentionRow& row(std::int64_t i) const { return rows_[i]; }

  void lay_out(MemoryLayout& memory) {
    const auto parts = static_cast<std::int64_t>(masks_.dense_parts());
    memory.take(rows_, count());
    memory.take(backward_rows_, count());
    memory.take(dense_, parts);
    memory.take(dense_rows_, count() * parts);
  }

  // What the fused passes keep of the rows.
  void lay_out(MemoryLayout& memory, kernels::BackwardHead& head,
               BackwardParts parts) const {
    const std::int64_t padded = groups() * kernels::kGroupRows;
    const auto columns = [](std::int64_t n) { return (n + 15) / 16 * 16; };
    memory.take(head.queries, padded * p_.d_k);
    memory.take(head.d_outs, padded * p_.d_v);
    memory.take(head.query_rows, padded * columns(p_.d_k));
    memory.take(head.d_out_rows, padded * columns(p_.d_v));
    if (parts != BackwardParts::kKeys) {
      memory.take(head.d_query_rows, padded * columns(p_.d_k));
    }
    memory.take(head.log2_sums, padded);
    memory.take(head.deltas, padded);
    memory.take(head.d_slopes, padded);
    memory.take(head.d_row_biases, padded);
    if (!b_.gradients.head_scales.empty()) memory.take(head.d_scales, padded);
    memory.take(head.finite, groups());
  }

  // What all rows have in common. `Head` is kernels::BackwardHead or
  // kernels::Bf16BackwardHead.
  template <typename Head>
  void describe_head(Head& head) const {
    head.block = describe_call(p_, index_, kv_head_);
    head.block.rows = rows_;
    head.block.dense = dense_;
    head.block.dense_count = static_cast<int>(masks_.dense_parts());
    with_mask([&](const BoundMask& mask) {
      head.block.same_keys = mask.ranges_are_full();
      for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
        dense_[part] = {dense_rows(part), mask.dense()[part].visible_when};
      }
    });
    head.row_count = count();
    head.backward_rows = backward_rows_;
    head.kv_len = entry_.kv_len;
    const GradientViews<float>& g = b_.gradients;
    head.d_k = g.k.is_null() ? nullptr
                             : g.k.at(entry_.batch, kv_head_, entry_.kv_begin);
    head.d_v = g.v.is_null() ? nullptr
                             : g.v.at(entry_.batch, kv_head_, entry_.kv_begin);
    head.d_k_stride = g.k.stride(2);
    head.d_v_stride = g.v.stride(2);
  }

  // Rows [first, last).
  void describe_rows(std::int64_t first, std::int64_t last) const {
    with_mask([&](const BoundMask& mask) {
      for (std::int64_t i = first; i < last; ++i) describe(mask, i);
    });
  }

  // Adds up what there is one of a head, from what the kernels left in `head`.
  template <typename Head>
  void sum(const Head& head, HeadSums& sums) const {
    sums.add_rows(b_, index_, kv_head_, head);
  }

 private:
  template <typename Body>
  void with_mask(const Body& body) const {
    masks_.with(index_, body);
  }
  const bool** dense_rows(std::size_t part) const {
    return dense_rows_ + static_cast<std::int64_t>(part) * count();
  }

  void describe(const BoundMask& mask, std::int64_t i) const {
    const GradientViews<float>& g = b_.gradients;
    const auto& d_lse = b_.inputs.d_log_sum_exp;
    const std::int64_t batch = entry_.batch;
    const std::int64_t query = first_ + i / p_.group;
    const std::int64_t head = kv_head_ * p_.group + i % p_.group;
    const std::int64_t at = entry_.q_begin + query;
    rows_[i] = describe_row(p_, mask, index_, head, query, nullptr);
    backward_rows_[i] = {
        .out = b_.inputs.out.at(batch, head, at),
        .d_out = b_.inputs.d_out.at(batch, head, at),
        .d_lse = d_lse.is_null() ? nullptr : d_lse.at(batch, head, at),
        .d_q = g.q.is_null() ? nullptr : g.q.at(batch, head, at),
        .d_bias = b_.d_bias_row(index_, head, query),
    };
    for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
      dense_rows(part)[i] = mask.dense()[part].row(index_, head, query);
    }
  }

  const BackwardProblem<float>& b_;
  const Problem<float>& p_;
  const EntryMasks<float>& masks_;
  const std::int64_t index_, kv_head_;
  const std::int64_t first_, count_;
  const Entry entry_;
  kernels::AttentionRow* rows_ = nullptr;
  kernels::BackwardRow* backward_rows_ = nullptr;
  kernels::AttentionDense* dense_ = nullptr;
  const bool** dense_rows_ = nullptr;
};

}  // namespace regard::detail
