// SPDX-License-Identifier: Apache-2.0
#include "attention/weights_source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "attention/engine.h"
#include "attention/plain_row.h"
#include "kernels/attention_weights.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

// Some rows, told to the kernel head after head. Memory in the thread's
// scratch.
template <typename T>
class KernelCall {
 public:
  // `for_mean`: heads add up.
  KernelCall(const Problem<T>& problem, const BoundMask& mask,
             const TensorView<T, 4>& out, const RowsOfHead& rows, bool for_mean,
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
      T* const out =
          out_.is_null() ? nullptr : out_.at(e.batch, head, e.q_begin + query);
      list_[i] = describe_row<T>(p_, mask_, rows_.index, head, query, out);
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
    std::byte* memory = nullptr;  // at first, what it takes is only counted
    std::size_t used = 0;
    const auto take = [&]<typename E>(E*& part, std::size_t count) {
      if (memory != nullptr && count > 0) {
        part = reinterpret_cast<E*>(memory + used);
      }
      used += line_up(sizeof(E) * count);
    };
    const auto take_all = [&] {
      used = 0;
      take(block_.scratch,
           kernels::attention_scratch_floats(block_.row_count, p_.d_k, p_.d_v));
      take(weights_.tile, tile);
      take(weights_.sums, for_mean ? tile : 0);
      take(weights_.kept, out_.is_null()
                              ? 0
                              : static_cast<std::size_t>(
                                    kernels::kept_keys_count(weights_.keys)));
      take(dense, parts);
      take(dense_rows_, parts * kMaxWeightRows);
    };
    take_all();
    memory = thread_scratch(used);
    take_all();
    for (std::size_t part = 0; part < parts; ++part) {
      dense[part] = {dense_rows_ + part * kMaxWeightRows,
                     mask_.dense()[part].visible_when};
    }
    block_.dense = dense;
    block_.dense_count = static_cast<int>(parts);
  }

  const Problem<T>& p_;
  const BoundMask& mask_;
  const TensorView<T, 4>& out_;
  const RowsOfHead& rows_;
  std::array<kernels::AttentionRow, kMaxWeightRows> list_;
  kernels::AttentionBlock block_;
  kernels::AttentionWeights weights_{};
  const bool** dense_rows_ = nullptr;
};

}  // namespace

template <typename T>
WeightsSource<T>::WeightsSource(const Problem<T>& problem,
                                const EntryMasks<T>& masks,
                                const TensorView<T, 4>& out)
    : problem_(problem),
      masks_(masks),
      out_(out),
      fused_(!std::is_same_v<T, double> && engine_available()) {}

template <typename T>
void WeightsSource<T>::write(const RowsOfHead& rows,
                             WeightRows<Real> to) const {
  if constexpr (!std::is_same_v<T, double>) {
    if (fused_) {
      return masks_.with(rows.index, [&](const BoundMask& mask) {
        KernelCall<T>(problem_, mask, out_, rows, false, to).run(rows.head);
      });
    }
  }
  write_plain(rows, to);
}

template <typename T>
void WeightsSource<T>::write_mean(const RowsOfHead& rows,
                                  WeightRows<Real> to) const {
  if constexpr (!std::is_same_v<T, double>) {
    if (fused_) {
      return masks_.with(rows.index, [&](const BoundMask& mask) {
        KernelCall<T> call(problem_, mask, out_, rows, true, to);
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

template <typename T>
void WeightsSource<T>::write_plain(const RowsOfHead& rows,
                                   WeightRows<Real> to) const {
  masks_.with(rows.index, [&](const BoundMask& mask) {
    for (std::size_t i = 0; i < rows.queries.size(); ++i) {
      const PlainRow<T> row{problem_,   mask,      problem_.entry(rows.index),
                            rows.index, rows.head, rows.queries[i]};
      row.weights(to[static_cast<std::int64_t>(i)]);
    }
  });
}

template class WeightsSource<float>;
template class WeightsSource<double>;
template class WeightsSource<BFloat16>;
template class WeightsSource<Float16>;

}  // namespace regard::detail
