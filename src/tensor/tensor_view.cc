// SPDX-License-Identifier: Apache-2.0
#include "regard/tensor/tensor_view.h"

#include <limits>
#include <ostream>

namespace regard {

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const ShapeText& text) {
  return out << to_string(text.shape);
}

std::int64_t element_count(std::span<const std::int64_t> shape) {
  // Elements have at most 8 bytes. Strides multiply the extents without the
  // empty ones, so that product must fit even where the count is 0.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    require(extent >= 0, "element_count",
            "no extent may be negative; shape is ", ShapeText{shape});
    if (extent == 0) {
      empty = true;
      continue;
    }
    require(extent <= kMost / product, "element_count",
            "the elements must fit in 63 bits of bytes; shape is ",
            ShapeText{shape});
    product *= extent;
  }
  return empty ? 0 : product;
}

}  // namespace regard
