// SPDX-License-Identifier: Apache-2.0
// Pictures of coloured shapes, whose words and places are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "regard/pictures/picture.h"

namespace regard::tasks {

inline constexpr std::int64_t kShapesGrid = 4;   // cells each way
inline constexpr std::int64_t kShapesSide = 96;  // pixels each way

// Shapes of one colour and kind: "two blue squares".
struct ShapeGroup {
  int colour = 0;
  int kind = 0;
  std::vector<std::int64_t> cells;  // row by row

  std::string text() const;
};

// One group, or two: the first above the second, or left of it.
struct ShapesPicture {
  std::vector<ShapeGroup> groups;
  std::string caption;
  pictures::Picture picture;
};
ShapesPicture draw_shapes(Random& random);

}  // namespace regard::tasks
