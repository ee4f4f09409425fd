// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "regard/tensor/tensor.h"

namespace regard::test {

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The same names, and under each the same shape and bits.
inline bool same_bits(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || tensor.shape() != other->second.shape() ||
        tensor.byte_count() != other->second.byte_count() ||
        !std::equal(tensor.bytes(), tensor.bytes() + tensor.byte_count(),
                    other->second.bytes())) {
      return false;
    }
  }
  return true;
}

}  // namespace regard::test
