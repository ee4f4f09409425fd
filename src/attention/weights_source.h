// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"
#include "kernels/attention_forward.h"

namespace regard::detail {

// Rows of weights in memory, `stride` apart.
template <typename Real>
struct WeightRows {
  Real* data = nullptr;
  std::int64_t stride = 0;

  Real* operator[](std::int64_t row) const { return data + row * stride; }
};

// Some queries of one head of an entry, counted from the entry's first; at most
// kMaxWeightRows.
struct RowsOfHead {
  std::int64_t index = 0;
  std::int64_t head = 0;
  std::span<const std::int64_t> queries;
};
inline constexpr int kMaxWeightRows = kernels::kGroupRows;

// Computes rows of weights, on the fused kernels where there are some and by
// plain loops otherwise. One may be used by many threads.
template <typename Real>
class WeightsSource {
 public:
  // `out`: where attention_forward's result of the rows goes, too, in the same
  // pass. Null, or the fused kernels must be there.
  WeightsSource(const Problem<Real>& problem, const EntryMasks<Real>& masks,
                const Elements& out);

  // to[i][0, kv_len) <- the weights of rows.queries[i].
  void write(const RowsOfHead& rows, WeightRows<Real> to) const;
  // The mean over the heads of the same; rows.head does not matter.
  void write_mean(const RowsOfHead& rows, WeightRows<Real> to) const;

 private:
  void write_plain(const RowsOfHead& rows, WeightRows<Real> to) const;

  const Problem<Real>& problem_;
  const EntryMasks<Real>& masks_;
  const Elements out_;
  const bool fused_;
};

}  // namespace regard::detail
