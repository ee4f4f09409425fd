// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::ops {

// The type that the weights of a model's products have in memory. Products with
// fewer bits round their input, too.
enum class WeightStorage {
  kFloat32,
  kBFloat16,  // products round their input to bf16 and sum in float
  // Products round their input, too, and sum integers
  // (docs/adr/0027-integer-sums-by-groups.md):
  kInt8,  // a scale per 64 elements of a row; the input has 16 bits
  kInt4,  // a scale and a minimum for each 32; the input has 8 bits
  // As the file has them: integers where it has integers, else float32.
  kAsStored,
};

}  // namespace regard::ops
