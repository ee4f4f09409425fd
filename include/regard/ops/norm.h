// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::ops {

enum class Norm {
  kLayerNorm,  // weight and bias
  kRmsNorm,    // weight
};

}  // namespace regard::ops
