// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "regard/core/threads.h"
#include "regard/pictures/picture.h"
#include "regard/tensor/tensor.h"

namespace regard::pictures {

// The layers of MobileNetV2 (Sandler et al., 2018) that look at pictures, with
// its batch norms folded into the products before them. Never changes; any
// number of threads may use one at a time.
class MobileNetV2 {
 public:
  static constexpr std::int64_t kSide = 224;   // of the pictures it learnt from
  static constexpr std::int64_t kStride = 32;  // pixels of a place, each way
  static constexpr std::int64_t kWidth = 1280;

  // The weights that torchvision gives it, by their names (features.0.0.weight
  // ...), as float32. Others are left out: those of the classifier. Throws
  // InvalidArgument if one is missing or has another shape or type.
  explicit MobileNetV2(const StateDict& weights);
  ~MobileNetV2();
  MobileNetV2(MobileNetV2&&) noexcept;
  MobileNetV2& operator=(MobileNetV2&&) noexcept;

  // The weights as they came, without those left out.
  const StateDict& weights() const;

  // What the last convolution gives at each place, before they are averaged:
  // [places, kWidth], a place for every kStride x kStride pixels, row by row.
  // Colours are normalised as those of ImageNet. The bits depend on no number
  // of threads. Throws InvalidArgument for an empty picture.
  Tensor features(const Picture& picture, Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace regard::pictures
