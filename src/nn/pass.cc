// SPDX-License-Identifier: Apache-2.0
#include "autograd/packed_linear.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/nn/layers.h"

namespace regard::nn {

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

Pass::Pass(autograd::Tape& tape, const PackedParameters& parameters)
    : tape_(tape),
      parameters_(parameters.values()),
      packed_(&parameters),
      gradients_(nullptr),
      mode_(Mode::kInference),
      seed_(0) {
  require(!tape.records(), "Pass",
          "weights that are packed learn nothing; the tape must not record");
}

Variable Pass::linear(const Variable& x, const std::string& weight,
                      const std::string& bias,
                      const autograd::LinearOptions& options) {
  const Variable added = bias.empty() ? Variable() : parameter(bias);
  const ops::PackedWeights* const part =
      packed_ == nullptr ? nullptr : packed_->part(weight, options.first);
  return part == nullptr
             ? autograd::linear(tape_, x, parameter(weight), added, options)
             : autograd::linear(tape_, x, *part, added, options);
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
