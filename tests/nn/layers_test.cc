// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/layers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "regard/core/random.h"

namespace regard::nn {
namespace {

constexpr std::int64_t kDim = 8;

LayerConfig small_config(bool norm_first) {
  LayerConfig c;
  c.model_dim = kDim;
  c.heads = 2;
  c.feed_forward_dim = 12;
  c.norm_first = norm_first;
  return c;
}

Tensor random_rows(std::int64_t rows, std::uint64_t seed) {
  Tensor tensor({rows, kDim});
  Random random(seed);
  for (float& value : tensor.values<float>()) value = random.normal();
  return tensor;
}

// Parameters of a layer, biases and norms among them, none of them 0 or 1.
template <typename Layer>
StateDict parameters_of(const Layer& layer) {
  ParameterSpecs specs;
  layer.declare(specs);
  for (auto& [name, spec] : specs) {
    spec.start = ParameterSpec::Start::kNormal;
    spec.value = 0.5f;
  }
  return initial_parameters(specs, 3);
}

std::vector<float> values_of(const Variable& v) {
  return {v.data(), v.data() + v.rows() * v.columns()};
}

std::vector<float> rows_of(const std::vector<float>& all, std::int64_t first,
                           std::int64_t count) {
  return {all.begin() + first * kDim, all.begin() + (first + count) * kDim};
}

// Which elements dropout takes is part of a training's bits, so the sites have
// one order, whatever the compiler evaluates first.
TEST(EncoderLayer, NumbersItsSitesOfDropoutInOneOrder) {
  LayerConfig c = small_config(true);
  c.dropout = 0.5f;
  c.activation_dropout = 0.25f;
  const TransformerEncoderLayer layer{"layer", c};
  const StateDict parameters = parameters_of(layer);
  const Tensor x = random_rows(6, 1);
  const std::vector<std::int64_t> offsets{0, 6};
  constexpr std::uint64_t kSeed = 9;
  autograd::Tape tape(autograd::Record::kNo);
  Pass pass(tape, parameters, nullptr, Mode::kTraining, kSeed);
  const Variable out =
      layer(pass, tape.constant(x.view<float, 2>()), {.offsets = offsets});

  Pass plain(tape, parameters);
  const auto parameter = [&](const char* name) {
    return plain.parameter(std::string("layer.") + name);
  };
  const auto norm = [&](const char* name) {
    const std::string full(name);
    return autograd::NormParameters{parameter((full + ".weight").c_str()),
                                    parameter((full + ".bias").c_str()), 1e-5f,
                                    Norm::kLayerNorm};
  };
  // Attention takes two sites: one for its rate, one for its seed.
  const Variable in = tape.constant(x.view<float, 2>());
  const Variable attended = PackedAttention{"layer.self_attn", c}(
      plain, autograd::norm(tape, in, norm("norm1")), {.offsets = offsets}, {});
  const auto [sum, normed] =
      autograd::add_norm(tape, in, attended, {0.5f, kSeed, 2}, norm("norm2"));
  const Variable inner = autograd::linear(
      tape, normed, parameter("linear1.weight"), parameter("linear1.bias"),
      {.activation = Activation::kRelu, .dropout = {0.25f, kSeed, 4}});
  const Variable branch = autograd::linear(
      tape, inner, parameter("linear2.weight"), parameter("linear2.bias"));
  const Variable expected = autograd::add(tape, sum, branch, {0.5f, kSeed, 3});
  EXPECT_EQ(values_of(out), values_of(expected));
}

// A padded batch is sentences of one length and mask::lengths: what stands in
// the padding changes no bit of the others, which are those of no padding.
TEST(EncoderLayer, TakesPaddedBatchesByLengths) {
  for (const bool norm_first : {false, true}) {
    const TransformerEncoderLayer layer{"layer", small_config(norm_first)};
    const StateDict parameters = parameters_of(layer);
    const Tensor x = random_rows(10, 1);
    const auto run = [&](const Tensor& rows,
                         const std::vector<std::int64_t>& offsets,
                         const Mask& mask) {
      autograd::Tape tape(autograd::Record::kNo);
      Pass pass(tape, parameters);
      return values_of(layer(pass, tape.constant(rows.view<float, 2>()),
                             {.offsets = offsets}, mask));
    };
    Tensor packed({7, kDim});
    const float* const from = x.values<float>().data();
    float* const to = packed.values<float>().data();
    std::copy_n(from, 5 * kDim, to);
    std::copy_n(from + 5 * kDim, 2 * kDim, to + 5 * kDim);
    const auto padded = run(x, {0, 5, 10}, mask::lengths({5, 2}));
    const auto exact = run(packed, {0, 5, 7}, {});
    EXPECT_EQ(rows_of(padded, 0, 7), exact);
    EXPECT_NE(rows_of(run(x, {0, 5, 10}, {}), 5, 2), rows_of(exact, 5, 2));
  }
}

TEST(DecoderLayer, IsCausalUnlessToldOtherwise) {
  const TransformerDecoderLayer layer{"layer", small_config(true)};
  const StateDict parameters = parameters_of(layer);
  const Tensor memory = random_rows(3, 2);
  const std::vector<std::int64_t> offsets{0, 4}, memory_offsets{0, 3};
  const auto first_row = [&](const Tensor& x, const DecoderMasks& masks) {
    autograd::Tape tape(autograd::Record::kNo);
    Pass pass(tape, parameters);
    return rows_of(values_of(layer(pass, tape.constant(x.view<float, 2>()),
                                   {.offsets = offsets},
                                   tape.constant(memory.view<float, 2>()),
                                   {.offsets = memory_offsets}, masks)),
                   0, 1);
  };
  const Tensor x = random_rows(4, 1);
  Tensor other = x;
  other.values<float>().back() += 1;
  EXPECT_EQ(first_row(x, {}), first_row(other, {}));
  EXPECT_NE(first_row(x, {.self = {}}), first_row(other, {.self = {}}));
  EXPECT_NE(first_row(x, {.cross = mask::lengths({2})}), first_row(x, {}));
}

}  // namespace
}  // namespace regard::nn
