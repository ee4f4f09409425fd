// SPDX-License-Identifier: Apache-2.0
#include "attention/weights_source.h"

#include <array>
#include <type_traits>

#include "attention/engine.h"
#include "attention/plain_row.h"
#include "kernels/attention_weights.h"

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
    const auto count = static_cast<int>(rows.queries.size());
    std::array<RowBlock::Row, kMaxWeightRows> list;
    for (int i = 0; i < count; ++i) {
      list[i] = {rows.head, rows.queries[i]};
    }
    const RowBlock block{.index = rows.index,
                         .kv_head = rows.head / problem_.group,
                         .first = 0,
                         .count = count,
                         .rows = list.data()};
    const BlockMemory<T> memory(problem_, count, masks_.dense_parts());
    const std::int64_t keys = problem_.entry(rows.index).kv_len;
    masks_.with(rows.index, [&](const BoundMask& mask) {
      kernels::attention_weights_block(
          memory.describe(block, mask, {}),
          {to.data, to.stride, keys, sums.data, sums.stride, share});
    });
  }
}

template class WeightsSource<float>;
template class WeightsSource<double>;
template class WeightsSource<BFloat16>;
template class WeightsSource<Float16>;

}  // namespace regard::detail
