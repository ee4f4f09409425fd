// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "regard/nn/parameters.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"

namespace regard::ops {
class PackedWeights;
}

namespace regard::nn {

// The parameters of a model that learns no more. Matrices that are only
// multiplied (ParameterSpec::use) stand here once, in the order that products
// read them and as the type that was asked for; tables, norms and biases are
// float32. nn::Pass takes it in the place of a StateDict. Copies share the
// values.
class PackedParameters {
 public:
  // Every matrix of `parameters` is dropped as soon as it is packed. In
  // float32 a model gives the bits that it gives with the StateDict. There are
  // no stored integers here: kAsStored is kFloat32. Throws what
  // check_parameters() throws, in the name of `where`.
  PackedParameters(const ParameterSpecs& specs, StateDict parameters,
                   ops::WeightStorage weights, const char* where);

  // Those that are not packed.
  const StateDict& values() const;
  // Of all parameters, in memory.
  std::size_t bytes() const;

  // For nn::Pass: the part of a matrix that begins at row `first`; null if
  // there is none.
  const ops::PackedWeights* part(const std::string& name,
                                 std::int64_t first) const;

 private:
  struct Packed;
  std::shared_ptr<const Packed> packed_;
};

}  // namespace regard::nn
