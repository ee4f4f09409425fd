// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/nn/layers.h"

namespace regard::nn {
namespace {

void fill(Random& random, const ParameterSpec& spec, std::span<float> values) {
  switch (spec.start) {
    case ParameterSpec::Start::kZeros:
      return;
    case ParameterSpec::Start::kOnes:
      std::fill(values.begin(), values.end(), 1.0f);
      return;
    case ParameterSpec::Start::kXavierUniform: {
      const auto sides = static_cast<double>(spec.shape[0] + spec.shape[1]);
      const auto bound = static_cast<float>(std::sqrt(6.0 / sides));
      for (float& value : values) value = random.uniform(-bound, bound);
      return;
    }
    case ParameterSpec::Start::kNormal:
      for (float& value : values) value = spec.deviation * random.normal();
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

void prepare_gradients(const StateDict& parameters, StateDict& gradients) {
  for (const auto& [name, tensor] : parameters) {
    const auto [found, fresh] = gradients.try_emplace(name);
    if (fresh) found->second = Tensor(tensor.shape());
    const Tensor& gradient = found->second;
    require(gradient.dtype() == DType::kFloat32 &&
                gradient.shape() == tensor.shape(),
            "prepare_gradients", "the gradient of ", name, " must be float32 ",
            ShapeText{tensor.shape()}, "; it is ", to_string(gradient.dtype()),
            " ", ShapeText{gradient.shape()});
  }
}

Variable Pass::parameter(const std::string& name) {
  const auto known = known_.find(name);
  if (known != known_.end()) return known->second;
  const auto value = parameters_.find(name);
  require(value != parameters_.end(), "Pass::parameter",
          "there must be a parameter ", name);
  Tensor* gradient = nullptr;
  if (gradients_ != nullptr) {
    const auto found = gradients_->find(name);
    if (found != gradients_->end()) gradient = &found->second;
  }
  return known_[name] = tape_.parameter(value->second, gradient);
}

autograd::ElementDropout Pass::dropout(float rate) {
  const std::uint32_t site = sites_++;
  return {mode_ == Mode::kTraining ? rate : 0.0f, seed_, site};
}

std::uint64_t Pass::attention_seed() {
  // A key of its own for each attention, far from the model's seed.
  const PhiloxCounter words = philox({sites_++, 0, 0, 1}, seed_);
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace regard::nn
