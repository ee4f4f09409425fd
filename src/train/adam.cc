// SPDX-License-Identifier: Apache-2.0
#include "regard/train/adam.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/adam.h"
#include "regard/core/error.h"
#include "train/gradient_blocks.h"

namespace regard::train {
namespace {

void check_same(const StateDict& wanted, const StateDict& given,
                const char* what) {
  require(wanted.size() == given.size(), "Adam", "there must be as many ", what,
          " as parameters, ", wanted.size(), "; got ", given.size());
  for (const auto& [name, tensor] : wanted) {
    const auto found = given.find(name);
    require(found != given.end(), "Adam", "the ", what, " have no ", name);
    require(found->second.shape() == tensor.shape() &&
                found->second.dtype() == DType::kFloat32,
            "Adam", "the ", what, " of ", name, " must be float32 ",
            ShapeText{tensor.shape()}, "; got ",
            to_string(found->second.dtype()), " ",
            ShapeText{found->second.shape()});
  }
}

// A block of one tensor; all blocks of a StateDict in order.
struct Block {
  const Tensor* tensor;
  std::int64_t begin, count;
};

std::vector<Block> blocks_of(const StateDict& state) {
  std::vector<Block> blocks;
  for (const auto& [name, tensor] : state) {
    for (std::int64_t at = 0; at < tensor.size(); at += kGradientBlock) {
      blocks.push_back(
          {&tensor, at, std::min(kGradientBlock, tensor.size() - at)});
    }
  }
  return blocks;
}

}  // namespace

Adam::Adam(const AdamOptions& options, const StateDict& parameters)
    : options_(options) {
  const auto is_share = [](float beta) { return beta >= 0 && beta < 1; };
  require(is_share(options.beta1) && is_share(options.beta2), "Adam",
          "beta1 and beta2 must be in [0, 1); got ", options.beta1, " and ",
          options.beta2);
  require(options.epsilon > 0 && options.weight_decay >= 0, "Adam",
          "epsilon must be positive and weight_decay not negative; got ",
          options.epsilon, " and ", options.weight_decay);
  for (const auto& [name, tensor] : parameters) {
    require(tensor.dtype() == DType::kFloat32, "Adam",
            "parameters must be float32; ", name, " is ",
            to_string(tensor.dtype()));
    first_.emplace(name, Tensor(tensor.shape()));
    second_.emplace(name, Tensor(tensor.shape()));
  }
}

void Adam::step(const StateDict& gradients, StateDict& parameters,
                const Step& step) {
  check_same(first_, gradients, "gradients");
  check_same(first_, parameters, "parameters");
  ++steps_;
  const auto t = static_cast<double>(steps_);
  kernels::AdamStep factors;
  factors.beta1 = options_.beta1;
  factors.beta2 = options_.beta2;
  factors.epsilon = options_.epsilon;
  factors.step_size = static_cast<float>(
      step.rate / (1 - std::pow(static_cast<double>(options_.beta1), t)));
  factors.root_scale = static_cast<float>(
      1 / std::sqrt(1 - std::pow(static_cast<double>(options_.beta2), t)));
  factors.gradient_scale = static_cast<float>(step.gradient_scale);
  factors.value_scale =
      static_cast<float>(1 - step.rate * options_.weight_decay);
  struct Part {
    const float* gradient;
    float *parameter, *first, *second;
    std::int64_t count;
  };
  std::vector<Part> parts;
  for (auto& [name, first] : first_) {
    const float* g = gradients.at(name).values<float>().data();
    float* p = parameters.at(name).values<float>().data();
    float* m = first.values<float>().data();
    float* v = second_.at(name).values<float>().data();
    for (std::int64_t at = 0; at < first.size(); at += kGradientBlock) {
      parts.push_back({g + at, p + at, m + at, v + at,
                       std::min(kGradientBlock, first.size() - at)});
    }
  }
  parallel_for(step.threads, static_cast<std::int64_t>(parts.size()),
               [&parts, &factors](std::int64_t i) {
                 const Part& part = parts[static_cast<std::size_t>(i)];
                 kernels::adam_step(factors, part.gradient, part.count,
                                    part.parameter, part.first, part.second);
               });
}

void Adam::restore(std::int64_t steps, StateDict first, StateDict second) {
  require(steps >= 0, "Adam", "steps must not be negative; got ", steps);
  check_same(first_, first, "first moments");
  check_same(first_, second, "second moments");
  steps_ = steps;
  first_ = std::move(first);
  second_ = std::move(second);
}

std::vector<double> squares_by_block(const StateDict& gradients,
                                     Threads threads) {
  const std::vector<Block> blocks = blocks_of(gradients);
  std::vector<double> sums(blocks.size());
  parallel_for(
      threads, static_cast<std::int64_t>(blocks.size()), [&](std::int64_t i) {
        const Block& block = blocks[static_cast<std::size_t>(i)];
        sums[static_cast<std::size_t>(i)] = kernels::sum_of_squares(
            block.tensor->values<float>().data() + block.begin, block.count);
      });
  return sums;
}

double gradient_norm(const StateDict& gradients, Threads threads) {
  double total = 0;
  for (const double sum : squares_by_block(gradients, threads)) total += sum;
  return std::sqrt(total);
}

}  // namespace regard::train
