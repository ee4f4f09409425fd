// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "regard/tensor/tensor.h"

namespace regard::nn {

// What a parameter is before training.
struct ParameterSpec {
  enum class Start {
    kConstant,       // value
    kUniform,        // in +-value
    kXavierUniform,  // in +-sqrt(6 / (rows + columns))
    kNormal,         // with the deviation value
  };
  // Who reads it.
  enum class Use {
    kAny,
    // Inference multiplies with it and reads it in no other way, so that it can
    // be packed:
    kProduct,    // with all rows at once
    kQueryKeys,  // with the first third of them, and with the others
  };
  Shape shape;
  Start start = Start::kConstant;
  float value = 0.0f;
  Use use = Use::kAny;
};
using ParameterSpecs = std::map<std::string, ParameterSpec>;

// Random values by the specs, from one seed, in the order of the names.
StateDict initial_parameters(const ParameterSpecs& specs, std::uint64_t seed);

// Throws InvalidArgument, in the name of `where`, if a parameter is missing,
// has another shape or type than float32, or is not one of those.
void check_parameters(const ParameterSpecs& specs, const StateDict& parameters,
                      const char* where);

}  // namespace regard::nn
