// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "regard/attention/backward.h"

namespace regard::detail {

// BackwardInputs and Gradients whose elements are of any type.
template <typename Real>
struct BackwardViews {
  ConstElements q{}, k{}, v{}, out{}, d_out{};
  TensorView<const Real, 3> d_log_sum_exp{};
};
template <typename Real>
struct GradientViews {
  Elements q{}, k{}, v{};
  TensorView<Real, 4> bias{};
  std::span<Real> alibi_slopes{}, sinks{}, head_scales{};
};

// The arguments of attention_backward, checked.
template <typename Real>
struct BackwardProblem {
  Problem<Real> forward;
  const BackwardViews<Real>& inputs;
  const GradientViews<Real>& gradients;

  BackwardProblem(const BackwardViews<Real>& inputs,
                  const GradientViews<Real>& gradients,
                  const BasicAttentionOptions<Real>& options);

  // The gradient of the bias of a row's first key, or null.
  Real* d_bias_row(std::int64_t index, std::int64_t head,
                   std::int64_t query) const {
    const auto& d = gradients.bias;
    if (d.is_null()) return nullptr;
    return d.at(d.extent(0) == 1 ? 0 : index, d.extent(1) == 1 ? 0 : head,
                d.extent(2) == 1 ? 0 : query);
  }

  // Whether each element of the gradient of the bias belongs to one pair: it
  // need not be summed, and starts from nothing.
  bool bias_of_pairs() const {
    const auto& d = gradients.bias;
    if (d.is_null() || forward.packed || d.extent(3) == 1) return false;
    const std::array pairs{forward.entries, forward.heads, forward.q.extent(2),
                           forward.k.extent(2)};
    return d.shape() == pairs && d.stride(0) != 0 && d.stride(1) != 0 &&
           d.stride(2) != 0;
  }
};

// Sums of the gradients that there is one of a head, [entries][heads]: each
// entry and head has its own until the end, so that no order is left to chance.
struct HeadSums {
  HeadSums(std::int64_t entries, std::int64_t heads)
      : slopes(entries * heads), sinks(slopes), scales(slopes) {}

  // Adds the rows that a kernel did of a head and its group, in index order.
  // `Head` is kernels::BackwardHead or kernels::Bf16BackwardHead.
  template <typename Head>
  void add_rows(const BackwardProblem<float>& b, std::int64_t index,
                std::int64_t kv_head, const Head& head) {
    const Problem<float>& p = b.forward;
    const bool row_bias =
        !b.gradients.bias.is_null() && head.block.score.bias_key_stride == 0;
    for (std::int64_t i = 0; i < head.row_count; ++i) {
      const auto& row = head.block.rows[i];
      const auto at = static_cast<std::size_t>(index * p.heads +
                                               kv_head * p.group + i % p.group);
      if (row_bias) *head.backward_rows[i].d_bias += head.d_row_biases[i];
      slopes[at] += head.d_slopes[i];
      if (head.d_scales != nullptr) {
        scales[at] += static_cast<double>(head.d_scales[i]) * p.scale;
      }
      // A sink is a score without a value: dS = P (0 - delta). One of -inf is
      // none.
      if (head.block.has_sink && std::isfinite(row.sink)) {
        const double weight =
            std::exp(static_cast<double>(row.sink) - *row.lse);
        sinks[at] -= weight * head.deltas[i];
      }
    }
  }

  template <typename Real>
  void write(const GradientViews<Real>& to) const {
    const auto sum = [](const std::vector<double>& from, auto out) {
      for (std::size_t head = 0; head < out.size(); ++head) {
        double total = 0;
        for (std::size_t i = head; i < from.size(); i += out.size()) {
          total += from[i];
        }
        out[head] = static_cast<Real>(total);
      }
    };
    sum(slopes, to.alibi_slopes);
    sum(sinks, to.sinks);
    sum(scales, to.head_scales);
  }

  std::vector<double> slopes, sinks, scales;
};

// On the fused kernels: see kernels/attention_backward.h.
void engine_backward(const BackwardProblem<float>& problem,
                     const EntryMasks<float>& masks);

// With products of bf16 numbers: see kernels/bf16/backward.h. A task is a head.
void bf16_backward(const BackwardProblem<float>& problem,
                   const EntryMasks<float>& masks);

// By plain loops: double, and machines without kernels. O(kv_len) memory.
template <typename Real>
void plain_backward(const BackwardProblem<Real>& problem,
                    const EntryMasks<Real>& masks);

}  // namespace regard::detail
