// SPDX-License-Identifier: Apache-2.0
#include "attention/weights_source.h"

#include <array>
#include <cstddef>
#include <type_traits>

#include "attention/engine.h"
#include "attention/plain_row.h"
#include "kernels/attention_weights.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {

template <typename T>
WeightsSource<T>::WeightsSource(const Problem<T>& problem,
                                const EntryMasks<T>& masks)
    : problem_(problem),
      masks_(masks),
      fused_(!std::is_same_v<T, double> && engine_available()) {}

template <typename T>
void WeightsSource<T>::write(const RowsOfHead& rows,
                             WeightRows<Real> to) const {
  if (fused_) {
    run_kernel(rows, to, 0, {});
  } else {
    write_plain(rows, to);
  }
}

template <typename T>
void WeightsSource<T>::add(const RowsOfHead& rows, Real share,
                           WeightRows<Real> scratch,
                           WeightRows<Real> sums) const {
  if (fused_) return run_kernel(rows, scratch, share, sums);
  write_plain(rows, scratch);
  const std::int64_t keys = problem_.entry(rows.index).kv_len;
  for (std::size_t i = 0; i < rows.queries.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (std::int64_t key = 0; key < keys; ++key) {
      sums[row][key] += share * scratch[row][key];
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

template <typename T>
void WeightsSource<T>::run_kernel(const RowsOfHead& rows, WeightRows<Real> to,
                                  Real share, WeightRows<Real> sums) const {
  if constexpr (!std::is_same_v<T, double>) {
    masks_.with(rows.index, [&](const BoundMask& mask) {
      std::array<kernels::AttentionRow, kMaxWeightRows> list;
      kernels::AttentionBlock block =
          describe_call(problem_, rows.index, rows.head / problem_.group);
      block.rows = list.data();
      block.row_count = static_cast<int>(rows.queries.size());
      for (int i = 0; i < block.row_count; ++i) {
        list[i] = describe_row<T>(problem_, mask, rows.index, rows.head,
                                  rows.queries[i], nullptr);
      }
      describe_dense(rows, mask, block);
      kernels::attention_weights_block(
          block, {to.data, to.stride, problem_.entry(rows.index).kv_len,
                  sums.data, sums.stride, share});
    });
  }
}

// The dense parts and the kernel's scratch, in the thread's own.
template <typename T>
void WeightsSource<T>::describe_dense(const RowsOfHead& rows,
                                      const BoundMask& mask,
                                      kernels::AttentionBlock& block) const {
  const std::size_t parts = mask.dense().size();
  const std::size_t kernel_bytes =
      line_up(sizeof(float) * kernels::attention_scratch_floats(
                                  block.row_count, problem_.d_k, 0));
  const std::size_t part_bytes =
      line_up(sizeof(kernels::AttentionDense) * parts);
  const std::size_t row_bytes = line_up(sizeof(bool*) * rows.queries.size());
  std::byte* memory =
      thread_scratch(kernel_bytes + part_bytes + parts * row_bytes);
  block.scratch = reinterpret_cast<float*>(memory);
  auto* const dense =
      reinterpret_cast<kernels::AttentionDense*>(memory + kernel_bytes);
  for (std::size_t part = 0; part < parts; ++part) {
    auto* const at = reinterpret_cast<const bool**>(
        memory + kernel_bytes + part_bytes + part * row_bytes);
    for (std::size_t i = 0; i < rows.queries.size(); ++i) {
      at[i] = mask.dense()[part].row(rows.index, rows.head, rows.queries[i]);
    }
    dense[part] = {at, mask.dense()[part].visible_when};
  }
  block.dense = dense;
  block.dense_count = static_cast<int>(parts);
}

template class WeightsSource<float>;
template class WeightsSource<double>;
template class WeightsSource<BFloat16>;
template class WeightsSource<Float16>;

}  // namespace regard::detail
