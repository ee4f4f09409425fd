// SPDX-License-Identifier: Apache-2.0
#include "attention/plain.h"

#include <algorithm>

#include "attention/entry_masks.h"
#include "attention/plain_row.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {

template <typename Real>
void plain_forward(const Problem<Real>& p, const Elements& out) {
  const auto run_row = [&](const PlainRow<Real>& row) {
    const Entry& e = row.entry;
    auto* weights = reinterpret_cast<Real*>(thread_scratch(
        static_cast<std::size_t>(e.kv_len + p.d_v) * sizeof(Real)));
    Real* sums = weights + e.kv_len;
    const Real lse = row.weights(weights);
    if (!p.options.log_sum_exp.is_null()) {
      p.options.log_sum_exp(e.batch, row.head, e.q_begin + row.query) = lse;
    }
    if (p.options.dropout.rate > 0) row.drop(weights);
    std::fill(sums, sums + p.d_v, Real{0});
    for (std::int64_t key = 0; key < e.kv_len; ++key) {
      if (weights[key] == 0) continue;  // a hidden Inf must not make a NaN
      const Numbers<Real> v = row.v(key);
      for (std::int64_t c = 0; c < p.d_v; ++c) sums[c] += weights[key] * v[c];
    }
    write_numbers(sums, p.d_v, out,
                  out.at(e.batch, row.head, e.q_begin + row.query));
  };
  if (p.entries == 0) return;
  const EntryMasks<Real> masks(p);  // refuses before anything is written
  for (std::int64_t index = 0; index < p.entries; ++index) {
    const Entry entry = p.entry(index);
    masks.with(index, [&](const BoundMask& mask) {
      parallel_for(p.options.threads, p.heads * entry.q_len,
                   [&](std::int64_t task) {
                     run_row({p, mask, entry, index, task / entry.q_len,
                              task % entry.q_len});
                   });
    });
  }
}

template void plain_forward(const Problem<double>&, const Elements&);
template void plain_forward(const Problem<float>&, const Elements&);

}  // namespace regard::detail
