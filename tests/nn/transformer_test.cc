// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/every_path.h"
#include "support/random_sentences.h"
#include "support/refusal.h"
#include "support/same_bits.h"

namespace regard::nn {
namespace {

using test::refusal;
using test::same_bits;

TransformerConfig small_config() {
  TransformerConfig c;
  c.source_vocab = c.target_vocab = 83;
  c.model_dim = 32;
  c.heads = 4;
  c.encoder_layers = 2;
  c.decoder_layers = 2;
  c.feed_forward_dim = 64;
  c.shared_embeddings = c.tied_output = true;
  c.dropout = 0.3f;
  c.attention_dropout = 0.1f;
  c.activation_dropout = 0.1f;
  c.label_smoothing = 0.1f;
  return c;
}

PackedTokens sentences(const std::vector<std::int64_t>& lengths,
                       std::uint64_t seed) {
  return test::random_sentences(lengths, 83, seed);
}

// About 500 tokens, so that products are cut for threads.
TranslationBatch some_batch() {
  std::vector<std::int64_t> source, target;
  for (std::int64_t i = 0; i < 40; ++i) {
    source.push_back(3 + i % 19);
    target.push_back(1 + i % 23);
  }
  TranslationBatch batch{sentences(source, 1), sentences(target, 2), {}};
  batch.target_out = sentences({batch.target.size()}, 3).tokens;
  return batch;
}

TEST(TransformerBits, DoNotDependOnThreads) {
  const TranslationBatch batch = some_batch();
  for (const bool norm_first : {false, true}) {
    TransformerConfig c = small_config();
    c.norm_first = c.copy = norm_first;
    Transformer model(c, 1);
    StateDict first;
    double loss = 0;
    for (const int threads : {1, 2, 3, 5}) {
      model.set_threads({.count = threads});
      StateDict gradients;
      const LossSum sum = model.loss_and_gradients(batch, 7, gradients);
      if (threads == 1) {
        loss = sum.loss;
        first = gradients;
        continue;
      }
      EXPECT_EQ(sum.loss, loss) << threads;
      EXPECT_TRUE(same_bits(gradients, first)) << threads;
    }
  }
}

TEST(TransformerBits, DoNotDependOnTheVectorWidth) {
  const TranslationBatch batch = some_batch();
  TransformerConfig c = small_config();
  c.activation = Activation::kGelu;
  c.copy = true;
  Transformer model(c, 1);
  test::expect_same_bits_on_every_simd_target([&] {
    StateDict gradients;
    model.loss_and_gradients(batch, 7, gradients);
    return gradients;
  });
}

TEST(TransformerBits, AreTheSameForTheSameSeedAndOthersForAnother) {
  const TranslationBatch batch = some_batch();
  Transformer model(small_config(), 1), twin(small_config(), 1),
      other(small_config(), 2);
  EXPECT_TRUE(same_bits(model.parameters(), twin.parameters()));
  EXPECT_FALSE(same_bits(model.parameters(), other.parameters()));
  StateDict once, again, another;
  model.loss_and_gradients(batch, 7, once);
  twin.loss_and_gradients(batch, 7, again);
  model.loss_and_gradients(batch, 8, another);
  EXPECT_TRUE(same_bits(once, again));
  EXPECT_FALSE(same_bits(once, another));
}

// What dropout does not touch: a sentence's loss alone, and in company.
TEST(TransformerLoss, OfABatchIsTheSumOfItsSentences) {
  const TranslationBatch batch = some_batch();
  TransformerConfig c = small_config();
  c.copy = true;
  Transformer model(c, 1);
  const LossSum all = model.loss(batch);
  LossSum sum;
  for (std::size_t s = 0; s + 1 < batch.source.offsets.size(); ++s) {
    const auto cut = [s](const PackedTokens& from) {
      PackedTokens one;
      one.tokens.assign(from.tokens.begin() + from.offsets[s],
                        from.tokens.begin() + from.offsets[s + 1]);
      one.offsets.push_back(one.size());
      return one;
    };
    TranslationBatch one{cut(batch.source), cut(batch.target), {}};
    one.target_out.assign(
        batch.target_out.begin() + batch.target.offsets[s],
        batch.target_out.begin() + batch.target.offsets[s + 1]);
    sum += model.loss(one);
  }
  EXPECT_EQ(sum.tokens, all.tokens);
  // Each row's loss has the same bits; only their sum is taken in two orders.
  EXPECT_NEAR(sum.loss, all.loss, 1e-9 * all.loss);
  EXPECT_NEAR(sum.likelihood, all.likelihood, 1e-9 * all.likelihood);
}

TEST(TransformerLoss, OfAFreshModelIsNearThatOfAGuess) {
  Transformer model(small_config(), 1);
  const LossSum sum = model.loss(some_batch());
  const double a_token = sum.likelihood / static_cast<double>(sum.tokens);
  EXPECT_NEAR(a_token, std::log(83.0), 1.0);
}

TEST(TransformerLoss, FallsAlongTheGradient) {
  const TranslationBatch batch = some_batch();
  TransformerConfig c = small_config();
  c.dropout = c.attention_dropout = c.activation_dropout = 0.0f;
  for (const Positions positions : {Positions::kSinusoidal, Positions::kLearned,
                                    Positions::kRotary, Positions::kNone}) {
    c.positions = positions;
    c.copy = positions == Positions::kRotary || positions == Positions::kNone;
    Transformer model(c, 1);
    StateDict gradients;
    const double before = model.loss_and_gradients(batch, 1, gradients).loss;
    double square = 0;
    constexpr float kStep = 1e-6f;
    for (auto& [name, tensor] : model.parameters()) {
      const auto gradient = gradients[name].values<float>();
      const auto values = tensor.values<float>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] -= kStep * gradient[i];
        square += static_cast<double>(gradient[i]) * gradient[i];
      }
    }
    const double fall = before - model.loss(batch).loss;
    EXPECT_NEAR(fall, kStep * square, 0.1 * kStep * square);
  }
}

TEST(TransformerParameters, HaveTheNamesOfPyTorch) {
  TransformerConfig c = small_config();
  c.encoder_layers = c.decoder_layers = 1;
  Transformer model(c, 1);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters()) names.push_back(name);
  EXPECT_THAT(
      names,
      ::testing::ElementsAre(
          "decoder.layers.0.linear1.bias", "decoder.layers.0.linear1.weight",
          "decoder.layers.0.linear2.bias", "decoder.layers.0.linear2.weight",
          "decoder.layers.0.multihead_attn.in_proj_bias",
          "decoder.layers.0.multihead_attn.in_proj_weight",
          "decoder.layers.0.multihead_attn.out_proj.bias",
          "decoder.layers.0.multihead_attn.out_proj.weight",
          "decoder.layers.0.norm1.bias", "decoder.layers.0.norm1.weight",
          "decoder.layers.0.norm2.bias", "decoder.layers.0.norm2.weight",
          "decoder.layers.0.norm3.bias", "decoder.layers.0.norm3.weight",
          "decoder.layers.0.self_attn.in_proj_bias",
          "decoder.layers.0.self_attn.in_proj_weight",
          "decoder.layers.0.self_attn.out_proj.bias",
          "decoder.layers.0.self_attn.out_proj.weight", "decoder.norm.bias",
          "decoder.norm.weight", "embedding.weight",
          "encoder.layers.0.linear1.bias", "encoder.layers.0.linear1.weight",
          "encoder.layers.0.linear2.bias", "encoder.layers.0.linear2.weight",
          "encoder.layers.0.norm1.bias", "encoder.layers.0.norm1.weight",
          "encoder.layers.0.norm2.bias", "encoder.layers.0.norm2.weight",
          "encoder.layers.0.self_attn.in_proj_bias",
          "encoder.layers.0.self_attn.in_proj_weight",
          "encoder.layers.0.self_attn.out_proj.bias",
          "encoder.layers.0.self_attn.out_proj.weight", "encoder.norm.bias",
          "encoder.norm.weight"));
}

std::string refused_config(void (*change)(TransformerConfig&)) {
  TransformerConfig c = small_config();
  change(c);
  return refusal([&] { Transformer(c, std::uint64_t{1}); });
}

TEST(TransformerRefusals, OfAConfigNameTheRule) {
  using C = TransformerConfig;
  EXPECT_EQ(refused_config([](C& c) { c.source_vocab = 0; }),
            "Transformer: vocabularies must not be empty; source_vocab is 0, "
            "target_vocab is 83");
  EXPECT_EQ(refused_config([](C& c) { c.heads = 5; }),
            "Transformer: heads must divide model_dim; they are 5 and 32");
  EXPECT_EQ(refused_config([](C& c) { c.feed_forward_dim = 0; }),
            "Transformer: feed_forward_dim must be positive; it is 0");
  EXPECT_EQ(refused_config([](C& c) { c.decoder_layers = 0; }),
            "Transformer: there must be a layer in the decoder, and none or "
            "more in the encoder; they have 0 and 2");
  EXPECT_EQ(refused_config([](C& c) { c.target_vocab = 84; }),
            "Transformer: shared embeddings need one vocabulary; source_vocab "
            "is 83, target_vocab is 84");
  EXPECT_EQ(refused_config([](C& c) { c.max_length = 0; }),
            "Transformer: max_length must be positive; it is 0");
  EXPECT_EQ(refused_config([](C& c) { c.norm_epsilon = -1; }),
            "Transformer: norm_epsilon must not be negative; it is -1");
  EXPECT_EQ(refused_config([](C& c) {
              c.heads = 32;
              c.positions = Positions::kRotary;
            }),
            "Transformer: rotary positions need an even number of elements a "
            "head; there are 1");
  EXPECT_EQ(refused_config([](C& c) { c.dropout = 1; }),
            "Transformer: dropout rates and label_smoothing must be in [0, 1); "
            "they are 1, 0.1, 0.1 and 0.1");
}

TEST(TransformerRefusals, OfParametersNameThem) {
  Transformer model(small_config(), 1);
  StateDict parameters = model.parameters();
  parameters.erase("embedding.weight");
  EXPECT_EQ(refusal([&] { Transformer(small_config(), parameters); }),
            "Transformer: the parameter embedding.weight is missing; it must "
            "be [83, 32]");
  parameters["embedding.weight"] = Tensor(DType::kFloat64, {83, 32});
  EXPECT_EQ(refusal([&] { Transformer(small_config(), parameters); }),
            "Transformer: the parameter embedding.weight must be float32 [83, "
            "32]; it is float64 [83, 32]");
  parameters["embedding.weight"] = Tensor({83, 32});
  parameters["stranger"] = Tensor({2});
  EXPECT_EQ(refusal([&] { Transformer(small_config(), parameters); }),
            "Transformer: there must be no parameter stranger; it is [2]");
  StateDict gradients;
  gradients["embedding.weight"] = Tensor({3});
  EXPECT_EQ(
      refusal([&] { model.loss_and_gradients(some_batch(), 1, gradients); }),
      "prepare_gradients: the gradient of embedding.weight must be "
      "float32 [83, 32]; it is float32 [3]");
}

TEST(TransformerRefusals, OfABatchNameTheRule) {
  using ::testing::HasSubstr;
  Transformer model(small_config(), 1);
  const TranslationBatch good = some_batch();
  TranslationBatch bad = good;
  bad.source.tokens[0] = 83;
  EXPECT_EQ(refusal([&] { model.loss(bad); }),
            "Transformer::loss: source must hold tokens in 0 .. 82; got 83");
  bad = good;
  bad.target.offsets[1] = 0;
  StateDict gradients;
  EXPECT_EQ(refusal([&] { model.loss_and_gradients(bad, 1, gradients); }),
            "Transformer::loss_and_gradients: target must have no empty "
            "sentence; sentence 0 is");
  bad = good;
  bad.target.offsets.back() += 1;
  EXPECT_THAT(refusal([&] { model.loss(bad); }),
              HasSubstr("target.offsets must start at 0 and end at the"));
  bad = good;
  bad.target_out.pop_back();
  EXPECT_THAT(refusal([&] { model.loss(bad); }),
              HasSubstr("target_out must be as long as target"));
  bad = good;
  bad.source = sentences({4}, 1);
  EXPECT_THAT(refusal([&] { model.loss(bad); }),
              HasSubstr("source and target must have equally many sentences; "
                        "they have 1 and 40"));
}

}  // namespace
}  // namespace regard::nn
