// SPDX-License-Identifier: Apache-2.0
#include "attention/weights_source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "attention/engine.h"
#include "attention/plain_row.h"
#include "core/memory_layout.h"
#include "kernels/attention_weights.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

// Some rows, told to the kernel head after head. Memory in the thread's
// scratch.
class KernelCall {
 public:
  // `for_mean`: heads add up.
  KernelCall(const Problem<float>& problem, const BoundMask& mask,
             const Elements& out, const RowsOfHead& rows, bool for_mean,
             WeightRows<float> to)
      : p_(problem),
        mask_(mask),
        out_(out),
        rows_(rows),
        block_(describe_call(problem, rows.index, 0)) {
    block_.row_count = static_cast<int>(rows.queries.size());
    block_.rows = list_.data();
    weights_.keys = problem.entry(rows.index).kv_len;
    weights_.rows = to.data;
    weights_.stride = to.stride;
    weights_.share = 1.0f / static_cast<float>(problem.heads);
    take_memory(for_mean);
    if (for_mean) {
      std::fill_n(weights_.sums, weights_.keys * kMaxWeightRows, 0.0f);
    }
  }

  void run(std::int64_t head) {
    block_.keys = describe_call(p_, rows_.index, head / p_.group).keys;
    const Entry e = p_.entry(rows_.index);
    for (int i = 0; i < block_.row_count; ++i) {
      const std::int64_t query = rows_.queries[i];
      void* const out =
          out_.is_null() ? nullptr : out_.at(e.batch, head, e.q_begin + query);
      list_[i] = describe_row(p_, mask_, rows_.index, head, query, out);
    }
    const bool** dense_row = dense_rows_;
    for (const auto& part : mask_.dense()) {
      for (int i = 0; i < block_.row_count; ++i) {
        dense_row[i] = part.row(rows_.index, head, rows_.queries[i]);
      }
      dense_row += kMaxWeightRows;
    }
    if (out_.is_null()) {
      kernels::attention_weights_block(block_, weights_);
    } else {
      kernels::attention_forward_weights(block_, weights_);
    }
  }

  void write_sums() const {
    kernels::attention_sums_to_rows(weights_, block_.row_count);
  }

 private:
  void take_memory(bool for_mean) {
    const std::size_t parts = mask_.dense().size();
    const auto tile = static_cast<std::size_t>(weights_.keys * kMaxWeightRows);
    kernels::AttentionDense* dense = nullptr;
    const auto lay_out = [&](std::byte* base) {
      MemoryLayout memory(base);
      memory.take(block_.scratch, kernels::attention_scratch_floats(
                                      block_.row_count, p_.d_k, p_.d_v));
      memory.take(weights_.tile, tile);
      if (for_mean) memory.take(weights_.sums, tile);
      if (!out_.is_null()) {
        memory.take(weights_.kept, kernels::kept_keys_count(weights_.keys));
      }
      memory.take(dense, parts);
      memory.take(dense_rows_, parts * kMaxWeightRows);
      return memory.used();
    };
    lay_out(thread_scratch(lay_out(nullptr)));
    for (std::size_t part = 0; part < parts; ++part) {
      dense[part] = {dense_rows_ + part * kMaxWeightRows,
                     mask_.dense()[part].visible_when};
    }
    block_.dense = dense;
    block_.dense_count = static_cast<int>(parts);
  }

  const Problem<float>& p_;
  const BoundMask& mask_;
  const Elements& out_;
  const RowsOfHead& rows_;
  std::array<kernels::AttentionRow, kMaxWeightRows> list_;
  kernels::AttentionBlock block_;
  kernels::AttentionWeights weights_{};
  const bool** dense_rows_ = nullptr;
};

}  // namespace

template <typename Real>
WeightsSource<Real>::WeightsSource(const Problem<Real>& problem,
                                   const EntryMasks<Real>& masks,
                                   const Elements& out)
    : problem_(problem),
      masks_(masks),
      out_(out),
      fused_(std::is_same_v<Real, float> && engine_available()) {}

template <typename Real>
void WeightsSource<Real>::write(const RowsOfHead& rows,
                                WeightRows<Real> to) const {
  if constexpr (std::is_same_v<Real, float>) {
    if (fused_) {
      return masks_.with(rows.index, [&](const BoundMask& mask) {
        KernelCall(problem_, mask, out_, rows, false, to).run(rows.head);
      });
    }
  }
  write_plain(rows, to);
}

template <typename Real>
void WeightsSource<Real>::write_mean(const RowsOfHead& rows,
                                     WeightRows<Real> to) const {
  if constexpr (std::is_same_v<Real, float>) {
    if (fused_) {
      return masks_.with(rows.index, [&](const BoundMask& mask) {
        KernelCall call(problem_, mask, out_, rows, true, to);
        for (std::int64_t h = 0; h < problem_.heads; ++h) call.run(h);
        call.write_sums();
      });
    }
  }
  const std::int64_t keys = problem_.entry(rows.index).kv_len;
  const auto count = static_cast<std::int64_t>(rows.queries.size());
  const auto share = Real{1} / static_cast<Real>(problem_.heads);
  std::vector<Real> memory(static_cast<std::size_t>(count * keys));
  const WeightRows<Real> one{memory.data(), keys};
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(to[i], keys, Real{0});
  for (std::int64_t h = 0; h < problem_.heads; ++h) {
    write_plain({rows.index, h, rows.queries}, one);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t key = 0; key < keys; ++key) {
        to[i][key] += share * one[i][key];
      }
    }
  }
}

template <typename Real>
void WeightsSource<Real>::write_plain(const RowsOfHead& rows,
                                      WeightRows<Real> to) const {
  masks_.with(rows.index, [&](const BoundMask& mask) {
    for (std::size_t i = 0; i < rows.queries.size(); ++i) {
      const PlainRow<Real> row{
          problem_,   mask,      problem_.entry(rows.index),
          rows.index, rows.head, rows.queries[i]};
      row.weights(to[static_cast<std::int64_t>(i)]);
    }
  });
}

template class WeightsSource<float>;
template class WeightsSource<double>;

}  // namespace regard::detail
