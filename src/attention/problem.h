// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "attention/elements.h"
#include "mask/bound_mask.h"
#include "regard/attention/attention.h"

namespace regard::detail {

// The queries and keys of one batch entry, or of one packed sequence.
struct Entry {
  std::int64_t batch = 0;    // index into the views: 0 for packed sequences
  std::int64_t q_begin = 0;  // first row in the views
  std::int64_t kv_begin = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};

// The arguments of one call, checked, in the form that every path works from:
// computed in Real, float or double, whatever the elements are stored as.
// Borrows everything.
template <typename Real>
struct Problem {
  ConstElements q, k, v;  // v is null when only weights are wanted
  const BasicAttentionOptions<Real>& options;
  const char* where;  // the public function, for messages

  std::int64_t entries = 0;  // batch entries or packed sequences
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  // heads / kv_heads
  std::int64_t d_k = 0;
  std::int64_t d_v = 0;
  bool packed = false;
  Real scale = 0;

  // Checks everything but what is written.
  Problem(ConstElements q, ConstElements k, ConstElements v,
          const BasicAttentionOptions<Real>& options, const char* where);
  // Checks that, too: out, and options.log_sum_exp.
  void check_out(const Elements& out) const;

  Entry entry(std::int64_t index) const;
  MaskSizes mask_sizes(std::int64_t index) const {
    const Entry e = entry(index);
    return {entries, heads, e.q_len, e.kv_len, packed ? index : -1};
  }
  Real head_scale(std::int64_t head) const {
    return options.head_scales.empty() ? scale
                                       : scale * options.head_scales[head];
  }
  // The bias of the first key of a row, or null without bias.
  const Real* bias_row(std::int64_t index, std::int64_t head,
                       std::int64_t query) const {
    const auto& bias = options.bias;
    if (bias.is_null()) return nullptr;
    return bias.at(bias.extent(0) == 1 ? 0 : index,
                   bias.extent(1) == 1 ? 0 : head,
                   bias.extent(2) == 1 ? 0 : query);
  }
  // 0 when one bias serves all keys of a row.
  std::int64_t bias_key_stride() const {
    return options.bias.extent(3) == 1 ? 0 : 1;
  }

 private:
  // The longest lengths of an entry.
  struct Longest {
    std::int64_t q, kv;
  };
  void check_shapes() const;
  Longest check_sequences();
  void check_bias(const Longest& longest) const;
};

// A view of these extents whose elements are never read.
ConstElements hollow_view(DType dtype,
                          const std::array<std::int64_t, 4>& extents);

// Below this much work a second thread costs more than it brings.
inline constexpr double kSerialFlops = 1e6;

// How many threads a call is worth that does so many operations a pair.
template <typename Real>
int threads_for(const Problem<Real>& problem, std::int64_t flops_per_pair);

// A weight is dropped when its random word is below this.
std::uint32_t dropout_threshold(float rate);

extern template struct Problem<float>;
extern template struct Problem<double>;

}  // namespace regard::detail
