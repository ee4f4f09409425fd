// SPDX-License-Identifier: Apache-2.0
// What is taken of a row of weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/engine.h"
#include "kernels/attention_weights.h"

namespace regard::detail {

template <typename Real>
Real row_entropy(const Real* weights, std::int64_t count) {
  if constexpr (std::is_same_v<Real, float>) {
    if (engine_available()) {
      return static_cast<float>(kernels::weights_entropy(weights, count));
    }
  }
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double w = weights[i];
    if (w != 0) sum -= w * std::log(w);
  }
  return static_cast<Real>(sum);
}

// The n largest of a row of weights that are above 0: a heap whose top is the
// least of them.
template <typename Real>
class TopWeights {
 public:
  struct Item {
    Real weight;
    std::int64_t key;
  };

  // Largest first, ties to the lower key. keys and weights are [n], either may
  // be null.
  void write(const Real* row, std::int64_t count, std::int64_t n,
             std::int64_t* keys, Real* weights) {
    const bool is_number = collect(row, count, static_cast<std::size_t>(n));
    std::sort_heap(heap_.begin(), heap_.end(), before);
    for (std::int64_t i = 0; i < n; ++i) {
      const bool there = i < std::ssize(heap_);
      const auto at = static_cast<std::size_t>(i);
      if (keys != nullptr) keys[i] = there ? heap_[at].key : -1;
      if (weights == nullptr) continue;
      weights[i] = there       ? heap_[at].weight
                   : is_number ? Real{0}
                               : std::numeric_limits<Real>::quiet_NaN();
    }
  }

 private:
  static bool before(const Item& a, const Item& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.key < b.key);
  }

  // The first key from `key` on whose weight is above `least` or NaN.
  static std::int64_t next(const Real* row, std::int64_t key,
                           std::int64_t count, Real least) {
    if constexpr (std::is_same_v<Real, float>) {
      if (engine_available()) {
        return kernels::weights_above(row, key, count, least);
      }
    }
    while (key < count && row[key] <= least) ++key;
    return key;
  }

  // False, and nothing collected, where a weight is NaN.
  bool collect(const Real* row, std::int64_t count, std::size_t n) {
    heap_.clear();
    if (n == 0) return true;
    Real least = 0;  // keys come in order, so an equal weight loses
    for (std::int64_t key = next(row, 0, count, least); key < count;
         key = next(row, key + 1, count, least)) {
      if (std::isnan(row[key])) {
        heap_.clear();
        return false;
      }
      if (heap_.size() == n) {
        std::pop_heap(heap_.begin(), heap_.end(), before);
        heap_.back() = {row[key], key};
      } else {
        heap_.push_back({row[key], key});
      }
      std::push_heap(heap_.begin(), heap_.end(), before);
      if (heap_.size() == n) least = heap_.front().weight;
    }
    return true;
  }

  std::vector<Item> heap_;
};

}  // namespace regard::detail
