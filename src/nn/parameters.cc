// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "regard/core/error.h"
#include "regard/core/random.h"

namespace regard::nn {
namespace {

void fill(Random& random, const ParameterSpec& spec, std::span<float> values) {
  switch (spec.start) {
    case ParameterSpec::Start::kConstant:
      std::fill(values.begin(), values.end(), spec.value);
      return;
    case ParameterSpec::Start::kUniform:
      for (float& value : values)
        value = random.uniform(-spec.value, spec.value);
      return;
    case ParameterSpec::Start::kXavierUniform: {
      const auto sides = static_cast<double>(spec.shape[0] + spec.shape[1]);
      const auto bound = static_cast<float>(std::sqrt(6.0 / sides));
      for (float& value : values) value = random.uniform(-bound, bound);
      return;
    }
    case ParameterSpec::Start::kNormal:
      for (float& value : values) value = spec.value * random.normal();
      return;
  }
}

}  // namespace

StateDict initial_parameters(const ParameterSpecs& specs, std::uint64_t seed) {
  StateDict parameters;
  Random random(seed);
  for (const auto& [name, spec] : specs) {
    Tensor tensor(spec.shape);
    fill(random, spec, tensor.values<float>());
    parameters.emplace(name, std::move(tensor));
  }
  return parameters;
}

void check_parameters(const ParameterSpecs& specs, const StateDict& parameters,
                      const char* where) {
  for (const auto& [name, spec] : specs) {
    const auto found = parameters.find(name);
    require(found != parameters.end(), where, "the parameter ", name,
            " is missing; it must be ", ShapeText{spec.shape});
    const Tensor& tensor = found->second;
    require(tensor.dtype() == DType::kFloat32 && tensor.shape() == spec.shape,
            where, "the parameter ", name, " must be float32 ",
            ShapeText{spec.shape}, "; it is ", to_string(tensor.dtype()), " ",
            ShapeText{tensor.shape()});
  }
  for (const auto& [name, tensor] : parameters) {
    require(specs.contains(name), where, "there must be no parameter ", name,
            "; it is ", ShapeText{tensor.shape()});
  }
}

}  // namespace regard::nn
