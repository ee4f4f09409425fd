// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bind.h"
#include "options.h"

namespace regard::python {

// Whether two arrays share memory between their first and their last byte:
// columns of one packed buffer do, whose elements lie between each other's.
inline bool overlap(const Array& a, const Array& b) {
  const auto range = [](const Array& array) {
    const auto size = static_cast<std::int64_t>(size_of(array.dtype()));
    const auto* first = static_cast<const char*>(array.data());
    const char* last = first;
    for (int i = 0; i < array.rank(); ++i) {
      if (array.extent(i) == 0) return std::pair(first, first);
      const std::int64_t way = (array.extent(i) - 1) * array.stride(i) * size;
      (way < 0 ? first : last) += way;
    }
    return std::pair(first, last + size);
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

// The three inputs of attention and what is like it.
struct Inputs {
  Array q, k, v;
  bool batched;

  Inputs(nb::handle q_object, nb::handle k_object, nb::handle v_object,
         Layout layout, const char* where)
      : q(input_array(q_object, where, "q")),
        k(read_heads(k_object, layout, where, "k")),
        v(read_heads(v_object, layout, where, "v")),
        batched(q.rank() == 4) {
    to_heads(q, layout, where, "q");
    check_same_dtype(q, k, where, "k");
    check_same_dtype(q, v, where, "v");
  }

  // The shape of an array with these two last extents, as the caller sees it.
  std::vector<std::int64_t> caller_shape(std::int64_t heads, std::int64_t len,
                                         std::int64_t dim,
                                         Layout layout) const {
    std::vector<std::int64_t> shape{q.extent(0), heads, len, dim};
    if (layout == Layout::kBlhd) std::swap(shape[1], shape[2]);
    if (!batched) shape.erase(shape.begin());
    return shape;
  }

  bool overlap(const Array& out) const {
    return python::overlap(out, q) || python::overlap(out, k) ||
           python::overlap(out, v);
  }
};

}  // namespace regard::python
