// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attention/problem.h"

namespace regard::detail {

// The mask of one entry: bound once for all entries of a batch, anew for each
// packed sequence, which has sizes of its own. Refuses, in the name of the
// call, a mask that does not fit: to be made before anything is written.
template <typename Real>
class EntryMasks {
 public:
  explicit EntryMasks(const Problem<Real>& p) : p_(p) {
    if (!p.packed && p.entries > 0) {
      bound_.emplace(p.options.mask, p.mask_sizes(0), p.where);
    }
    for (std::int64_t i = 0; p.packed && i < p.entries; ++i) {
      BoundMask(p.options.mask, p.mask_sizes(i), p.where);
    }
  }
  // Packed sequences have none.
  std::size_t dense_parts() const {
    return bound_ ? bound_->dense().size() : 0;
  }
  template <typename Body>
  void with(std::int64_t index, const Body& body) const {
    if (bound_) return body(*bound_);
    body(BoundMask(p_.options.mask, p_.mask_sizes(index), p_.where));
  }

 private:
  const Problem<Real>& p_;
  std::optional<BoundMask> bound_;
};

}  // namespace regard::detail
