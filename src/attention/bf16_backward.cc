// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16_backward.h"

#include <algorithm>

#include "attention/backward.h"
#include "attention/entry_masks.h"
#include "attention/row_blocks.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::AttentionDense;
using kernels::AttentionRow;
using kernels::BackwardRow;
using kernels::Bf16BackwardHead;

// One key-value head of one entry: its rows described, run, and what there is
// one of a head summed.
template <typename T>
class Bf16HeadWork {
 public:
  Bf16HeadWork(const BackwardProblem<T>& problem, const EntryMasks<T>& masks,
               std::int64_t index, std::int64_t kv_head)
      : b_(problem),
        p_(problem.forward),
        masks_(masks),
        index_(index),
        kv_head_(kv_head),
        entry_(problem.forward.entry(index)) {}

  void run(HeadSums& sums) {
    const std::int64_t rows = entry_.q_len * p_.group;
    const std::size_t own = lay_out(nullptr, rows);
    std::byte* const memory =
        thread_scratch(own + kernels::bf16_backward_bytes(rows, entry_.kv_len,
                                                          p_.d_k, p_.d_v));
    lay_out(memory, rows);
    describe(rows);
    if (rows == 0) clear_keys();
    if (rows > 0) kernels::bf16_backward_head(head_, memory + own);
    sums.add_rows(b_, index_, kv_head_, head_);
  }

 private:
  std::size_t lay_out(std::byte* base, std::int64_t rows) {
    std::size_t used = 0;
    const auto take = [&]<typename U>(U*& to, std::int64_t count) {
      to = reinterpret_cast<U*>(base + (base == nullptr ? 0 : used));
      used += line_up(sizeof(U) * static_cast<std::size_t>(count));
    };
    const auto parts = static_cast<std::int64_t>(masks_.dense_parts());
    take(rows_, rows);
    take(backward_rows_, rows);
    take(dense_, parts);
    take(dense_rows_, rows * parts);
    take(head_.deltas, rows);
    take(head_.d_slopes, rows);
    take(head_.d_row_biases, rows);
    take(head_.d_scales, rows);
    if (b_.gradients.head_scales.empty()) head_.d_scales = nullptr;
    return used;
  }

  void describe(std::int64_t rows) {
    const Gradients<T>& g = b_.gradients;
    head_.block = describe_call(p_, index_, kv_head_);
    head_.block.rows = rows_;
    head_.block.first_row = 0;
    head_.block.dense = dense_;
    head_.block.dense_count = static_cast<int>(masks_.dense_parts());
    head_.row_count = rows;
    head_.backward_rows = backward_rows_;
    head_.kv_len = entry_.kv_len;
    head_.d_k = g.k.is_null() ? nullptr
                              : g.k.at(entry_.batch, kv_head_, entry_.kv_begin);
    head_.d_v = g.v.is_null() ? nullptr
                              : g.v.at(entry_.batch, kv_head_, entry_.kv_begin);
    head_.d_k_stride = g.k.stride(2);
    head_.d_v_stride = g.v.stride(2);
    masks_.with(index_, [&](const BoundMask& mask) {
      for (std::int64_t i = 0; i < rows; ++i) describe_row_of(mask, i, rows);
      for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
        dense_[part] = {dense_rows_ + static_cast<std::int64_t>(part) * rows,
                        mask.dense()[part].visible_when};
      }
    });
  }

  void describe_row_of(const BoundMask& mask, std::int64_t i,
                       std::int64_t rows) {
    const Gradients<T>& g = b_.gradients;
    const std::int64_t query = i / p_.group;
    const std::int64_t head = kv_head_ * p_.group + i % p_.group;
    const std::int64_t at = entry_.q_begin + query;
    rows_[i] = describe_row<T>(p_, mask, index_, head, query, nullptr);
    backward_rows_[i] = {
        .out = b_.inputs.out.at(entry_.batch, head, at),
        .d_out = b_.inputs.d_out.at(entry_.batch, head, at),
        .d_lse = b_.inputs.d_log_sum_exp.is_null()
                     ? nullptr
                     : b_.inputs.d_log_sum_exp.at(entry_.batch, head, at),
        .d_q = g.q.is_null() ? nullptr : g.q.at(entry_.batch, head, at),
        .d_bias = b_.d_bias_row(index_, head, query),
    };
    for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
      dense_rows_[static_cast<std::int64_t>(part) * rows + i] =
          mask.dense()[part].row(index_, head, query);
    }
  }

  // Keys that no row reads.
  void clear_keys() const {
    const auto clear = [&](const TensorView<T, 4>& gradient, std::int64_t n) {
      for (std::int64_t j = 0; j < entry_.kv_len && !gradient.is_null(); ++j) {
        T* const row = gradient.at(entry_.batch, kv_head_, entry_.kv_begin + j);
        std::fill(row, row + n, T{});
      }
    };
    clear(b_.gradients.k, p_.d_k);
    clear(b_.gradients.v, p_.d_v);
  }

  const BackwardProblem<T>& b_;
  const Problem<T>& p_;
  const EntryMasks<T>& masks_;
  const std::int64_t index_, kv_head_;
  const Entry entry_;
  Bf16BackwardHead head_{};
  AttentionRow* rows_ = nullptr;
  BackwardRow* backward_rows_ = nullptr;
  AttentionDense* dense_ = nullptr;
  const bool** dense_rows_ = nullptr;
};

}  // namespace

template <typename T>
void bf16_backward(const BackwardProblem<T>& b) {
  const Problem<T>& p = b.forward;
  HeadSums sums(p.entries, p.heads);
  if (p.entries > 0 && p.heads > 0) {
    const EntryMasks<T> masks(p);
    // Heads may add to the same bias: then one after the other.
    const int count =
        b.gradients.bias.is_null() ? threads_for(p, 6 * p.d_k + 4 * p.d_v) : 1;
    parallel_for({count, p.options.threads.pool}, p.entries * p.kv_heads,
                 [&](std::int64_t task) {
                   Bf16HeadWork<T>(b, masks, task / p.kv_heads,
                                   task % p.kv_heads)
                       .run(sums);
                 });
  }
  sums.write(b.gradients);
}

template void bf16_backward(const BackwardProblem<float>&);
template void bf16_backward(const BackwardProblem<BFloat16>&);
template void bf16_backward(const BackwardProblem<Float16>&);

}  // namespace regard::detail
