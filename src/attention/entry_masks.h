// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attention/problem.h"

namespace regard::detail {

// The mask of one entry: bound once for all entries of a batch, anew for each
// packed sequence, which has sizes of its own. There must be an entry.
template <typename T>
class EntryMasks {
 public:
  explicit EntryMasks(const Problem<T>& p) : p_(p) {
    if (!p.packed) {
      bound_.emplace(p.options.mask, p.mask_sizes(0), p.where);
      return;
    }
    for (std::int64_t i = 0; i < p.entries; ++i) {  // refuse before writing
      const BoundMask mask(p.options.mask, p.mask_sizes(i), p.where);
      require(mask.dense().empty(), p.where,
              "dense masks cannot be used with packed sequences");
    }
  }
  std::size_t dense_parts() const {
    return bound_ ? bound_->dense().size() : 0;
  }
  template <typename Body>
  void with(std::int64_t index, const Body& body) const {
    if (bound_) return body(*bound_);
    body(BoundMask(p_.options.mask, p_.mask_sizes(index), p_.where));
  }

 private:
  const Problem<T>& p_;
  std::optional<BoundMask> bound_;
};

}  // namespace regard::detail
