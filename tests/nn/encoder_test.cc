// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gradients.h"
#include "regard/core/random.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using ::testing::StartsWith;

EncoderConfig small_config(Pooling pooling, Positions positions) {
  EncoderConfig c;
  c.vocab = 11;
  c.model_dim = 16;
  c.heads = 2;
  c.layers = 3;
  c.feed_forward_dim = 24;
  c.max_length = 40;
  c.pooling = pooling;
  c.positions = positions;
  return c;
}

StateDict parameters_of(const Encoder& encoder) {
  ParameterSpecs specs;
  encoder.declare(specs);
  StateDict parameters = initial_parameters(specs, 5);
  // Biases that are not zero, or a forgotten one would not be missed.
  Random random(6);
  for (auto& [name, tensor] : parameters) {
    for (float& value : tensor.values<float>()) value += 0.1f * random.normal();
  }
  return parameters;
}

PackedTokens texts_of(const std::vector<std::int64_t>& lengths) {
  PackedTokens packed;
  Random random(7);
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) {
      packed.tokens.push_back(static_cast<std::int32_t>(random.below(11)));
    }
    packed.offsets.push_back(packed.size());
  }
  return packed;
}

std::vector<float> copy_of(const Variable& x) {
  return {x.data(), x.data() + x.rows() * x.columns()};
}

// Of a StateDict, or of PackedParameters.
template <typename Parameters>
std::vector<float> vectors_of(const Encoder& encoder,
                              const Parameters& parameters,
                              const PackedTokens& texts, int threads) {
  autograd::Tape tape(autograd::Record::kNo, {.count = threads});
  Pass pass(tape, parameters);
  return copy_of(encoder(pass, texts));
}

// As BERT and its kin are.
EncoderConfig bert_config(Pooling pooling) {
  EncoderConfig c = small_config(pooling, Positions::kLearned);
  c.norm_first = false;
  c.norm_epsilon = 1e-12f;
  c.embedding_scale = 1;
  c.token_type = true;
  c.embedding_norm = true;
  return c;
}

struct Kind {
  Pooling pooling;
  Positions positions;
  bool bert = false;

  EncoderConfig config() const {
    return bert ? bert_config(pooling) : small_config(pooling, positions);
  }
};
class EncoderKinds : public ::testing::TestWithParam<Kind> {};

TEST_P(EncoderKinds, ATextHasItsBitsAloneAndAmongOthers) {
  const Encoder encoder(GetParam().config());
  const StateDict parameters = parameters_of(encoder);
  const PackedTokens all = texts_of({7, 1, 40, 13});
  const std::vector<float> together = vectors_of(encoder, parameters, all, 1);
  EXPECT_EQ(together, vectors_of(encoder, parameters, all, 3));
  for (std::size_t s = 0; s < 4; ++s) {
    const PackedTokens one{{all.tokens.begin() + all.offsets[s],
                            all.tokens.begin() + all.offsets[s + 1]},
                           {0, all.offsets[s + 1] - all.offsets[s]}};
    const std::vector<float> alone = vectors_of(encoder, parameters, one, 1);
    EXPECT_EQ(0, std::memcmp(alone.data(), together.data() + s * 16,
                             16 * sizeof(float)))
        << s;
  }
}

TEST_P(EncoderKinds, TrainingWithoutDropoutAndInferenceHaveTheSameBits) {
  const Encoder encoder(GetParam().config());
  const StateDict parameters = parameters_of(encoder);
  const PackedTokens texts = texts_of({5, 9});
  StateDict gradients;
  prepare_gradients(parameters, gradients);
  autograd::Tape tape;
  Pass pass(tape, parameters, &gradients, Mode::kTraining, 3);
  EXPECT_EQ(copy_of(encoder(pass, texts)),
            vectors_of(encoder, parameters, texts, 1));
}

TEST_P(EncoderKinds, AttentionIsShares) {
  const Encoder encoder(GetParam().config());
  const StateDict parameters = parameters_of(encoder);
  autograd::Tape tape(autograd::Record::kNo);
  Pass pass(tape, parameters);
  const PackedTokens text = texts_of({9});
  const Variable x = encoder.embed(pass, text);
  const auto mean = encoder.attention(pass, x, text);
  const auto each = encoder.attention(pass, x, text, {}, OverHeads::kEach);
  const std::int64_t heads = encoder.config().heads;
  EXPECT_THAT(mean.layers.shape(), ::testing::ElementsAre(3, 1, 9, 9));
  EXPECT_THAT(each.layers.shape(), ::testing::ElementsAre(3, heads, 9, 9));
  // Rows [heads, tokens], each of which adds up to 1, and whose mean is `row`.
  const auto expect_shares = [&](const float* first, std::int64_t stride,
                                 const float* row) {
    std::vector<double> sum(9);
    for (std::int64_t h = 0; h < heads; ++h) {
      double total = 0;
      for (std::int64_t k = 0; k < 9; ++k) {
        const double weight = first[h * stride + k];
        EXPECT_GE(weight, 0);
        total += weight;
        sum[static_cast<std::size_t>(k)] += weight / static_cast<double>(heads);
      }
      EXPECT_NEAR(total, 1, 1e-5);
    }
    for (std::size_t k = 0; k < 9; ++k) EXPECT_NEAR(sum[k], row[k], 1e-6);
  };
  for (std::int64_t l = 0; l < 3; ++l) {
    for (std::int64_t q = 0; q < 9; ++q) {
      expect_shares(each.layers.view<float, 4>().at(l, 0, q), 81,
                    mean.layers.view<float, 4>().at(l, 0, q));
    }
  }
  expect_shares(each.pooling.values<float>().data(), 9,
                mean.pooling.values<float>().data());
  EXPECT_THAT(each.rollout(), ::testing::Pointwise(::testing::DoubleNear(1e-6),
                                                   mean.rollout()));
}

PackedParameters packed_of(const Encoder& encoder, const StateDict& parameters,
                           ops::WeightStorage storage) {
  ParameterSpecs specs;
  encoder.declare(specs);
  return {specs, parameters, storage, "test"};
}

TEST_P(EncoderKinds, PackedWeightsOfFloat32GiveTheSameBits) {
  const Encoder encoder(GetParam().config());
  const StateDict parameters = parameters_of(encoder);
  const PackedParameters packed =
      packed_of(encoder, parameters, ops::WeightStorage::kFloat32);
  EXPECT_FALSE(packed.values().contains("layers.0.linear1.weight"));
  // One row and many, which products read in other ways.
  for (const auto& lengths :
       {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{7, 40, 13}}) {
    const PackedTokens texts = texts_of(lengths);
    EXPECT_EQ(vectors_of(encoder, packed, texts, 2),
              vectors_of(encoder, parameters, texts, 1));
  }
  const PackedTokens one = texts_of({9});
  const auto looked = [&](const auto& values) {
    autograd::Tape tape(autograd::Record::kNo);
    Pass pass(tape, values);
    return encoder.attention(pass, encoder.embed(pass, one), one).rollout();
  };
  EXPECT_EQ(looked(packed), looked(parameters));
}

TEST_P(EncoderKinds, WeightsOfFewerBitsGiveNearVectorsWhateverTheBatch) {
  const Encoder encoder(GetParam().config());
  const StateDict parameters = parameters_of(encoder);
  const PackedTokens all = texts_of({7, 1, 40, 13});
  const std::vector<float> exact = vectors_of(encoder, parameters, all, 1);
  const auto [least, most] = std::minmax_element(exact.begin(), exact.end());
  for (const auto& [storage, share] :
       {std::pair{ops::WeightStorage::kBFloat16, 0.02f},
        std::pair{ops::WeightStorage::kInt8, 0.02f},
        std::pair{ops::WeightStorage::kInt4, 0.2f}}) {
    const PackedParameters packed = packed_of(encoder, parameters, storage);
    const std::vector<float> near = vectors_of(encoder, packed, all, 1);
    EXPECT_NE(near, exact);
    EXPECT_THAT(near,
                ::testing::Pointwise(
                    ::testing::FloatNear(share * (*most - *least)), exact));
    EXPECT_EQ(near, vectors_of(encoder, packed, all, 3));
    const PackedTokens last{{all.tokens.begin() + all.offsets[3],
                             all.tokens.begin() + all.offsets[4]},
                            {0, 13}};
    EXPECT_EQ(vectors_of(encoder, packed, last, 1),
              std::vector<float>(near.begin() + 3 * 16, near.end()));
  }
}

TEST(PackedParameters, TakeTheMemoryOfTheirType) {
  EncoderConfig config = small_config(Pooling::kAttention, Positions::kRotary);
  config.model_dim = 128;
  config.feed_forward_dim = 256;
  const Encoder encoder(config);
  const StateDict parameters = parameters_of(encoder);
  // Four matrices of each layer, and two of the pooling.
  constexpr std::size_t kMatrices =
      3 * (4 * 128 * 128 + 2 * 128 * 256) + 4 * 128 * 128;
  std::size_t all = 0;
  for (const auto& [name, tensor] : parameters) all += tensor.byte_count();
  const std::size_t rest = all - 4 * kMatrices;
  const auto bytes = [&](ops::WeightStorage storage) {
    const PackedParameters packed = packed_of(encoder, parameters, storage);
    for (const auto& [name, tensor] : packed.values()) {
      EXPECT_TRUE(tensor.rank() == 1 || name == "embedding.weight" ||
                  name == "pooling.query")
          << name;
    }
    return packed.bytes() - rest;
  };
  EXPECT_EQ(bytes(ops::WeightStorage::kFloat32), 4 * kMatrices);
  EXPECT_EQ(bytes(ops::WeightStorage::kBFloat16), 2 * kMatrices);
  // A scale for 64 codes; a scale and a minimum for 32 codes of half a byte.
  EXPECT_EQ(bytes(ops::WeightStorage::kInt8), kMatrices + kMatrices / 64 * 4);
  EXPECT_EQ(bytes(ops::WeightStorage::kInt4),
            kMatrices / 2 + kMatrices / 32 * 4);
}

TEST(PackedParameters, SayWhatTheyRefuse) {
  const Encoder encoder(small_config(Pooling::kMean, Positions::kNone));
  StateDict parameters = parameters_of(encoder);
  const PackedParameters packed =
      packed_of(encoder, parameters, ops::WeightStorage::kInt8);
  autograd::Tape tape;
  EXPECT_THAT(test::refusal([&] { Pass(tape, packed); }),
              StartsWith("Pass: weights that are packed learn nothing"));
  parameters.erase("layers.0.linear1.weight");
  EXPECT_THAT(test::refusal([&] {
                packed_of(encoder, parameters, ops::WeightStorage::kInt8);
              }),
              StartsWith("test: the parameter layers.0.linear1.weight is"));
}

// Two tokens, two layers, by hand: A = (W + 1) / 2, and pooling A2 A1.
TEST(Rollout, IsTheProductOfTheLayers) {
  Encoder::Attention attention{Tensor({2, 1, 2, 2}), Tensor({1, 2})};
  const float layers[] = {1, 0, 0.5f, 0.5f, 0, 1, 1, 0};
  std::copy_n(layers, 8, attention.layers.values<float>().begin());
  attention.pooling.values<float>()[1] = 1;
  // (0, 1) A2 = (0.5, 0.5); times A1 = {{1, 0}, {0.25, 0.75}}.
  EXPECT_THAT(attention.rollout(), ::testing::ElementsAre(0.625, 0.375));
}

INSTANTIATE_TEST_SUITE_P(
    All, EncoderKinds,
    ::testing::Values(Kind{Pooling::kFirst, Positions::kLearned},
                      Kind{Pooling::kMean, Positions::kSinusoidal},
                      Kind{Pooling::kAttention, Positions::kRotary},
                      Kind{Pooling::kMean, Positions::kNone},
                      Kind{Pooling::kMean, Positions::kLearned, true},
                      Kind{Pooling::kFirst, Positions::kLearned, true}));

// norm(table[token] + positions[place] + token_type), and its gradients beside
// central differences.
TEST(BertEmbeddings, AndTheirGradientsAreThoseOfTheDefinition) {
  using autograd::Matrices;
  const Encoder encoder(bert_config(Pooling::kMean));
  const PackedTokens texts = texts_of({5, 1, 4});
  const std::vector<std::string> names = {
      "embedding.weight", "positions.weight", "token_type.weight",
      "embedding_norm.weight", "embedding_norm.bias"};
  StateDict parameters = parameters_of(encoder);
  Matrices inputs;
  for (const std::string& name : names) {
    Tensor& tensor = parameters.at(name);
    const std::int64_t rows = tensor.rank() == 2 ? tensor.shape()[0] : 1;
    inputs.push_back(autograd::random_matrix(rows, 16, inputs.size() + 1));
    const Tensor values = autograd::as_tensor(inputs.back());
    std::copy_n(values.values<float>().begin(), values.size(),
                tensor.values<float>().begin());
  }
  const auto definition = [&texts](const Matrices& in) {
    testing::Matrix sum(texts.size(), 16);
    for (std::int64_t s = 0; s < texts.sequences(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      for (std::int64_t t = texts.offsets[at]; t < texts.offsets[at + 1]; ++t) {
        for (std::int64_t c = 0; c < 16; ++c) {
          sum(t, c) = in[0](texts.tokens[static_cast<std::size_t>(t)], c) +
                      in[1](t - texts.offsets[at], c) + in[2](0, c);
        }
      }
    }
    return testing::reference_norm(sum, in[3], in[4], 1e-12);
  };
  StateDict gradients;
  prepare_gradients(parameters, gradients);
  autograd::Tape tape;
  Pass pass(tape, parameters, &gradients, Mode::kTraining, 3);
  const Variable x = encoder.embed(pass, texts);
  autograd::expect_near(x.data(), definition(inputs), "embed");
  const testing::Matrix d_out = autograd::random_matrix(texts.size(), 16, 9);
  const Tensor start = autograd::as_tensor(d_out);
  tape.backward(x, start.view<float, 2>());
  for (std::size_t i = 0; i < names.size(); ++i) {
    autograd::expect_near(gradients.at(names[i]).values<float>().data(),
                          autograd::differences(definition, inputs, d_out, i),
                          names[i]);
  }
}

TEST(BertEmbeddings, AreDroppedAfterTheirNorm) {
  EncoderConfig config = bert_config(Pooling::kMean);
  config.dropout = 0.5f;
  const Encoder encoder(config);
  const StateDict parameters = parameters_of(encoder);
  const PackedTokens texts = texts_of({40, 30});
  autograd::Tape tape;
  StateDict gradients;
  prepare_gradients(parameters, gradients);
  Pass training(tape, parameters, &gradients, Mode::kTraining, 3);
  Pass inference(tape, parameters);
  const Variable some = encoder.embed(training, texts);
  const Variable all = encoder.embed(inference, texts);
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < 70 * 16; ++i) {
    dropped += some.data()[i] == 0;
    if (some.data()[i] == 0) continue;
    EXPECT_EQ(some.data()[i], 2 * all.data()[i]);
  }
  EXPECT_NEAR(static_cast<double>(dropped), 560, 90);
}

TEST(Encoder, PoolsByItsDefinition) {
  for (const Pooling pooling : {Pooling::kFirst, Pooling::kMean}) {
    const Encoder encoder(small_config(pooling, Positions::kSinusoidal));
    const StateDict parameters = parameters_of(encoder);
    const PackedTokens texts = texts_of({3, 5});
    autograd::Tape tape(autograd::Record::kNo);
    Pass pass(tape, parameters);
    const Variable x = encoder.encode(pass, encoder.embed(pass, texts), texts);
    const Variable pooled = encoder.pool(pass, x, texts);
    for (std::int64_t c = 0; c < 16; ++c) {
      double first = 0;
      for (std::int64_t r = 0; r < 3; ++r) {
        first += static_cast<double>(x.value()(r, c)) / 3;
      }
      if (pooling == Pooling::kFirst) {
        EXPECT_EQ(pooled.value()(0, c), x.value()(0, c));
        EXPECT_EQ(pooled.value()(1, c), x.value()(3, c));
      } else {
        EXPECT_NEAR(static_cast<double>(pooled.value()(0, c)), first, 1e-6);
      }
    }
  }
}

TEST(Encoder, SharedLayersHaveOneLayersParameters) {
  EncoderConfig config = small_config(Pooling::kMean, Positions::kNone);
  config.shared_layers = true;
  ParameterSpecs specs;
  Encoder(config).declare(specs);
  EXPECT_TRUE(specs.contains("layers.0.linear1.weight"));
  EXPECT_FALSE(specs.contains("layers.1.linear1.weight"));
}

TEST(Encoder, RefusesWhatMakesNoSense) {
  const auto with = [](auto change) {
    EncoderConfig config = small_config(Pooling::kMean, Positions::kSinusoidal);
    change(config);
    return test::refusal([&] { Encoder{config}; });
  };
  EXPECT_THAT(with([](EncoderConfig& c) { c.vocab = 0; }),
              StartsWith("Encoder: vocab must be positive; it is 0"));
  EXPECT_THAT(with([](EncoderConfig& c) { c.heads = 3; }),
              StartsWith("Encoder: heads must divide model_dim; they are 3 and "
                         "16"));
  EXPECT_THAT(with([](EncoderConfig& c) { c.dropout = 1; }),
              StartsWith("Encoder: dropout rates must be in [0, 1); one is 1"));
  const Encoder encoder(small_config(Pooling::kMean, Positions::kNone));
  const StateDict parameters = parameters_of(encoder);
  autograd::Tape tape(autograd::Record::kNo);
  Pass pass(tape, parameters);
  EXPECT_THAT(test::refusal([&] {
                encoder(pass, texts_of({3, 41}));
              }),
              StartsWith("Encoder: a text must have 1 to 40 tokens; text 1 has "
                         "41"));
  PackedTokens strange = texts_of({3});
  strange.tokens[1] = 11;
  EXPECT_THAT(test::refusal([&] { encoder(pass, strange); }),
              StartsWith("autograd::embedding: a token must lie in 0 .. 10"));
}

}  // namespace
}  // namespace regard::nn
