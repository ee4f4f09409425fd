// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/decoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "nn/transformer_pass.h"
#include "regard/core/random.h"
#include "regard/nn/transformer.h"
#include "support/random_sentences.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::refusal;
using ::testing::HasSubstr;

TransformerConfig small_config() {
  TransformerConfig c;
  c.source_vocab = c.target_vocab = 61;
  c.model_dim = 24;
  c.heads = 3;
  c.encoder_layers = 2;
  c.decoder_layers = 2;
  c.feed_forward_dim = 40;
  c.shared_embeddings = true;
  c.tied_output = true;
  return c;
}

PackedTokens sentences(const std::vector<std::int64_t>& lengths,
                       std::uint64_t seed) {
  return test::random_sentences(lengths, 61, seed);
}

// The scores after each token of each target, [target tokens, vocab], by the
// layers that training uses.
Tensor full_pass(Transformer& model, const PackedTokens& source,
                 const PackedTokens& target) {
  autograd::Tape tape(autograd::Record::kNo);
  Pass pass(tape, model.parameters());
  const PositionTables tables(model.config(),
                              std::max(source.longest(), target.longest()));
  const Variable memory = encode(pass, model.config(), tables, source);
  const Variable x = decode(pass, model.config(), tables, target, memory,
                            {.offsets = source.offsets});
  const Variable scores = autograd::linear(
      tape, x, pass.parameter(detail::output_name(model.config())),
      model.config().output_bias ? pass.parameter("output.bias") : Variable());
  Tensor out({scores.rows(), scores.columns()});
  std::copy_n(scores.data(), out.size(), out.values<float>().data());
  return out;
}

bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

struct Kind {
  const char* name;
  Positions positions;
  Activation activation;
  Norm norm;
  bool norm_first;
};

class Decoding : public ::testing::TestWithParam<Kind> {};

// Three sources with two hypotheses each, which say given words.
TEST_P(Decoding, GivesTheBitsOfAPassOverTheWholeSentence) {
  TransformerConfig c = small_config();
  c.positions = GetParam().positions;
  c.activation = GetParam().activation;
  c.norm = GetParam().norm;
  c.norm_first = GetParam().norm_first;
  c.final_norm = GetParam().norm_first;
  Transformer model(c, 5);
  const PackedTokens source = sentences({4, 1, 9}, 1);
  constexpr std::int64_t kSteps = 20;
  const PackedTokens target =
      sentences(std::vector<std::int64_t>(6, kSteps), 2);
  PackedTokens twice;
  for (std::size_t s = 0; s < 3; ++s) {
    for (int b = 0; b < 2; ++b) {
      twice.tokens.insert(twice.tokens.end(),
                          source.tokens.begin() + source.offsets[s],
                          source.tokens.begin() + source.offsets[s + 1]);
      twice.offsets.push_back(twice.size());
    }
  }
  const Tensor truth = full_pass(model, twice, target);

  const TransformerDecoder decoder(model);
  for (const int threads : {1, 3}) {
    DecoderState state = decoder.start(source, 2, {.count = threads});
    ASSERT_EQ(state.hypotheses(), 6);
    for (std::int64_t i = 0; i < kSteps; ++i) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t h = 0; h < 6; ++h) {
        tokens.push_back(
            target.tokens[static_cast<std::size_t>(h * kSteps + i)]);
      }
      state.step(tokens);
      for (std::int64_t h = 0; h < 6; ++h) {
        ASSERT_TRUE(same_bits(state.logits().at(h),
                              truth.view<float, 2>().at(h * kSteps + i), 61))
            << "hypothesis " << h << ", step " << i << ", threads " << threads;
      }
    }
    EXPECT_EQ(state.length(), kSteps);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Decoding,
    ::testing::Values(Kind{"PlacesBySinusNormsAfter", Positions::kSinusoidal,
                           Activation::kRelu, Norm::kLayerNorm, false},
                      Kind{"LearnedPlacesNormsBefore", Positions::kLearned,
                           Activation::kGelu, Norm::kLayerNorm, true},
                      Kind{"RotaryWithSwiglu", Positions::kRotary,
                           Activation::kSwiglu, Norm::kRmsNorm, true},
                      Kind{"NoPlacesGeluByTanh", Positions::kNone,
                           Activation::kGeluTanh, Norm::kRmsNorm, false}),
    [](const auto& kind) { return std::string(kind.param.name); });

// Sources of one sentence and of a batch, two hypotheses each: the sum of what
// the tokens of a target have is the loss that training sees.
TEST(DecodingModels, ThatCopyGiveTheProbabilitiesOfTraining) {
  TransformerConfig c = small_config();
  c.copy = true;
  Transformer model(c, 5);
  const PackedTokens source = sentences({4, 1, 19}, 1);
  TranslationBatch batch{source, sentences({7, 7, 7}, 2), {}};
  batch.target_out = sentences({batch.target.size()}, 3).tokens;
  // Two targets are copied.
  batch.target_out[1] = source.tokens[1];
  batch.target_out[20] = source.tokens[23];
  const LossSum truth = model.loss(batch);
  const TransformerDecoder decoder(model);
  for (const int threads : {1, 3}) {
    DecoderState state = decoder.start(source, 2, {.count = threads});
    double likelihood = 0;
    for (std::int64_t i = 0; i < 7; ++i) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t h = 0; h < 6; ++h) {
        tokens.push_back(
            batch.target.tokens[static_cast<std::size_t>(h / 2 * 7 + i)]);
      }
      state.step(tokens);
      for (std::int64_t h = 0; h < 6; ++h) {
        const float* const row = state.logits().at(h);
        double sum = 0;
        for (int w = 0; w < 61; ++w) sum += std::exp(double{row[w]});
        EXPECT_NEAR(sum, 1, 1e-5);
        likelihood -=
            row[batch.target_out[static_cast<std::size_t>(h / 2 * 7 + i)]];
      }
    }
    EXPECT_NEAR(likelihood / 2, truth.likelihood, 1e-4);
  }
}

TEST(DecodingModels, MayBeginWithZerosInThePlaceOfAToken) {
  Transformer model(small_config(), 5);
  float* const table =
      model.parameters().at("embedding.weight").view<float, 2>().at(7);
  std::fill_n(table, 24, 0.0f);
  const TransformerDecoder decoder(model.config(), model.parameters());
  const PackedTokens source = sentences({4}, 1);
  DecoderState zeros = decoder.start(source, 1);
  DecoderState row = decoder.start(source, 1);
  const std::int32_t nothing = kZeroEmbedding, seven = 7;
  zeros.step({&nothing, 1});
  row.step({&seven, 1});
  EXPECT_TRUE(same_bits(zeros.logits().at(0), row.logits().at(0), 61));
}

TEST(DecodingModels, OfOthersAreCheckedAndNotTrained) {
  TransformerConfig c = small_config();
  const Transformer model(c, 5);
  StateDict parameters = model.parameters();
  parameters.erase("decoder.norm.weight");
  EXPECT_THAT(refusal([&] { TransformerDecoder(c, parameters); }),
              HasSubstr("decoder.norm.weight is missing"));
  c.relative_buckets = 32;
  EXPECT_THAT(
      refusal([&] { TransformerDecoder(c, model.parameters()); }),
      HasSubstr("decoder.relative_bias is missing; it must be [32, 3]"));
  EXPECT_THAT(refusal([&] { Transformer(c, 1); }),
              HasSubstr("are for TransformerDecoder alone"));
  c.relative_buckets = 3;
  EXPECT_THAT(refusal([&] { TransformerDecoder(c, model.parameters()); }),
              HasSubstr("relative_buckets must be even"));
  c = small_config();
  c.linear_bias = false;
  c.head_dim = 5;
  EXPECT_THAT(refusal([&] { TransformerDecoder(c, model.parameters()); }),
              HasSubstr("must be float32 [45, 24]"));
}

TEST(DecodingModels, MayHaveTwoVocabulariesUntiedTablesAndAnOutputBias) {
  TransformerConfig c = small_config();
  c.target_vocab = 45;
  c.shared_embeddings = c.tied_output = false;
  c.output_bias = true;
  c.embedding_scale = 1.5f;
  Transformer model(c, 5);
  float next = -1;
  for (float& b : model.parameters().at("output.bias").values<float>()) {
    b = next += 0.0625f;
  }
  const PackedTokens source = sentences({4}, 1);
  const PackedTokens target = test::random_sentences({7}, 45, 2);
  const Tensor truth = full_pass(model, source, target);
  const TransformerDecoder decoder(model);
  DecoderState state = decoder.start(source, 1);
  for (std::int64_t i = 0; i < 7; ++i) {
    state.step({&target.tokens[static_cast<std::size_t>(i)], 1});
    ASSERT_EQ(state.logits().extent(1), 45);
    EXPECT_TRUE(same_bits(state.logits().at(std::int64_t{0}),
                          truth.view<float, 2>().at(i), 45))
        << i;
  }
  // The bias is what is added to the scores.
  for (float& b : model.parameters().at("output.bias").values<float>()) b = 0;
  const Tensor plain = full_pass(model, source, target);
  const auto got = truth.values<float>(), without = plain.values<float>();
  next = -1;
  for (std::size_t i = 0; i < 45; ++i) {
    EXPECT_NEAR(got[i] - without[i], next += 0.0625f, 1e-5);
  }
}

// Every product of the model takes part, so fewer bits change every score, and
// by no more than they must.
TEST(DecodingModels, MayHaveWeightsOfFewerBits) {
  TransformerConfig c = small_config();
  c.model_dim = 48;
  c.feed_forward_dim = 96;
  const Transformer model(c, 5);
  const PackedTokens source = sentences({4, 1, 9}, 1);
  const auto scores = [&](ops::WeightStorage storage) {
    const TransformerDecoder decoder(model, storage);
    DecoderState state = decoder.start(source, 1);
    for (const std::int32_t token : {3, 14, 27}) {
      state.step(std::vector<std::int32_t>(3, token));
    }
    const auto all = state.logits();
    return std::vector<float>(all.data(), all.data() + 3 * 61);
  };
  const std::vector<float> exact = scores(ops::WeightStorage::kFloat32);
  EXPECT_EQ(scores(ops::WeightStorage::kAsStored), exact);
  double power = 0;
  for (const float x : exact) power += static_cast<double>(x) * x;
  const auto error = [&](ops::WeightStorage storage) {
    const std::vector<float> rounded = scores(storage);
    double sum = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      sum += std::pow(static_cast<double>(rounded[i]) - exact[i], 2);
    }
    return std::sqrt(sum / power);
  };
  const double bf16 = error(ops::WeightStorage::kBFloat16);
  const double int8 = error(ops::WeightStorage::kInt8);
  const double int4 = error(ops::WeightStorage::kInt4);
  EXPECT_TRUE(0 < bf16 && bf16 < 0.02) << bf16;
  EXPECT_TRUE(0 < int8 && int8 < 0.03) << int8;
  EXPECT_TRUE(int8 < int4 && int4 < 0.3) << int4;
}

// Sources that are rows, as those of pictures.
struct RowSources {
  TransformerConfig config = small_config();
  StateDict parameters;
  Tensor rows;
  std::vector<std::int64_t> offsets{0, 9, 14};

  explicit RowSources(Positions positions) {
    config.source_vocab = 0;
    config.shared_embeddings = false;
    config.positions = positions;
    parameters = initial_parameters(transformer_parameters(config), 3);
    rows = Tensor({14, config.model_dim});
    Random random(5);
    for (float& value : rows.values<float>()) value = random.normal();
  }
  SourceRows view() const {
    return {TensorView<const float, 2>(rows.view<float, 2>()), offsets};
  }

  // The scores of a pass over whole targets, of which words[s] to words[s + 1]
  // look at source s.
  Tensor pass_over(const PackedTokens& target,
                   const std::vector<std::int64_t>& words) const {
    autograd::Tape tape(autograd::Record::kNo);
    Pass pass(tape, parameters);
    const PositionTables tables(config, 20);
    const Variable memory =
        encode_rows(pass, config, tables, tape.constant(view().rows), offsets);
    const Variable x = decode(pass, config, tables, target, memory,
                              {.offsets = offsets, .queries = words});
    const Variable scores = autograd::linear(
        tape, x, pass.parameter(detail::output_name(config)), Variable());
    Tensor out({scores.rows(), scores.columns()});
    std::copy_n(scores.data(), out.size(), out.values<float>().data());
    return out;
  }
};

TEST(DecodingRows, GivesTheBitsOfAPassOverWholeTargetsThatShareASource) {
  for (const Positions positions :
       {Positions::kSinusoidal, Positions::kLearned, Positions::kNone}) {
    const RowSources sources(positions);
    // Two targets of the first source, one of the second.
    const PackedTokens target = sentences({6, 6, 6}, 7);
    const Tensor whole = sources.pass_over(target, {0, 12, 18});
    const TransformerDecoder decoder(sources.config, sources.parameters);
    DecoderState state = decoder.start(sources.view(), 1);
    state.reorder(std::vector<std::int64_t>{0, 0, 1});
    const std::int64_t vocab = sources.config.target_vocab;
    for (std::int64_t t = 0; t < 6; ++t) {
      std::vector<std::int32_t> tokens;
      for (const std::int64_t start : {0, 6, 12}) {
        tokens.push_back(target.tokens[static_cast<std::size_t>(start + t)]);
      }
      state.step(tokens);
      for (std::int64_t h = 0; h < 3; ++h) {
        EXPECT_TRUE(same_bits(state.logits().at(h),
                              whole.view<float, 2>().at(6 * h + t), vocab))
            << "target " << h << ", token " << t;
      }
    }
  }
}

TEST(DecodingRows, AreTracedLikeTokens) {
  const RowSources sources(Positions::kSinusoidal);
  const TransformerDecoder decoder(sources.config, sources.parameters);
  const std::vector<std::int64_t> one{0, 9};
  const TensorView<const float, 2> rows(sources.view().rows.data(),
                                        {9, sources.config.model_dim});
  const std::vector<std::int32_t> target{1, 5, 8};
  const AttentionTrace trace = decoder.trace(SourceRows{rows, one}, target);
  EXPECT_EQ(trace.cross.shape(), (Shape{2, 3, 3, 9}));
  double sum = 0;
  for (const float weight : trace.cross.values<float>()) sum += weight;
  EXPECT_NEAR(sum, 2 * 3 * 3, 1e-4);
}

TEST(DecodingRows, RefusesWhatTheModelDoesNotRead) {
  const RowSources sources(Positions::kSinusoidal);
  const TransformerDecoder decoder(sources.config, sources.parameters);
  EXPECT_THROW(decoder.start(sentences({3}, 1), 1), InvalidArgument);
  const std::vector<std::int64_t> wrong{0, 9, 9, 14};
  EXPECT_THROW(decoder.start({sources.view().rows, wrong}, 1), InvalidArgument);
  const Transformer model(small_config(), 1);
  EXPECT_THROW(TransformerDecoder(model).start(sources.view(), 1),
               InvalidArgument);
  EXPECT_THROW(Transformer(sources.config, 1), InvalidArgument);
  TransformerConfig rotary = sources.config;
  rotary.positions = Positions::kRotary;
  EXPECT_THROW(transformer_parameters(rotary), InvalidArgument);
}

TEST(Encoding, GivesTheBitsOfTheLayersAloneAndInCompany) {
  Transformer model(small_config(), 6);
  const TransformerDecoder decoder(model);
  const PackedTokens source = sentences({3, 1, 9}, 3);
  const Tensor all = decoder.encode(source, {.count = 3});
  ASSERT_EQ(all.shape(), (Shape{13, 24}));
  autograd::Tape tape(autograd::Record::kNo);
  Pass pass(tape, model.parameters());
  const PositionTables tables(model.config(), source.longest());
  const Variable truth = encode(pass, model.config(), tables, source);
  EXPECT_TRUE(same_bits(all.values<float>().data(), truth.data(), all.size()));
  const PackedTokens last{{source.tokens.begin() + 4, source.tokens.end()},
                          {0, 9}};
  const Tensor alone = decoder.encode(last);
  EXPECT_TRUE(same_bits(alone.values<float>().data(),
                        all.values<float>().data() + 4 * 24, 9 * 24));
  EXPECT_EQ(decoder.encode({}).shape(), (Shape{0, 24}));
  EXPECT_EQ(refusal([&] {
              decoder.encode({{61}, {0, 1}});
            }),
            "TransformerDecoder::encode: source must hold tokens in 0 .. 60; "
            "got 61");
}

TEST(DecodingOrder, AHypothesisGoesOnFromItsParent) {
  Transformer model(small_config(), 6);
  const TransformerDecoder decoder(model);
  const PackedTokens source = sentences({3, 5}, 3);
  // Hypotheses say 1 2 3 4, each a word of its own, then change places.
  DecoderState state = decoder.start(source, 2);
  state.step(std::vector<std::int32_t>{1, 2, 3, 4});
  state.reorder(std::vector<std::int64_t>{1, 1, 0, 3});
  EXPECT_EQ(state.source_of(2), 0);
  EXPECT_EQ(state.source_of(3), 1);
  state.step(std::vector<std::int32_t>{5, 6, 7, 8});

  PackedTokens said;
  said.tokens = {2, 5, 2, 6, 1, 7, 4, 8};
  said.offsets = {0, 2, 4, 6, 8};
  PackedTokens sources;
  for (const std::size_t s : {0, 0, 0, 1}) {
    sources.tokens.insert(sources.tokens.end(),
                          source.tokens.begin() + source.offsets[s],
                          source.tokens.begin() + source.offsets[s + 1]);
    sources.offsets.push_back(sources.size());
  }
  const Tensor truth = full_pass(model, sources, said);
  for (std::int64_t h = 0; h < 4; ++h) {
    EXPECT_TRUE(same_bits(state.logits().at(h),
                          truth.view<float, 2>().at(2 * h + 1), 61));
  }
}

TEST(DecodingOrder, SourcesMayBeLeftAndHypothesesMayGrowInNumber) {
  Transformer model(small_config(), 7);
  const TransformerDecoder decoder(model);
  const PackedTokens source = sentences({3, 5, 2}, 4);
  DecoderState state = decoder.start(source, 1);
  state.step(std::vector<std::int32_t>{1, 2, 3});
  state.reorder(std::vector<std::int64_t>{0, 0, 0, 2, 2, 2});
  for (int i = 0; i < 40; ++i) {  // past the first room for tokens
    state.step(std::vector<std::int32_t>{4, 4, 4, 4, 4, 4});
  }
  EXPECT_TRUE(same_bits(state.logits().at(0), state.logits().at(2), 61));
  EXPECT_TRUE(same_bits(state.logits().at(3), state.logits().at(5), 61));
  EXPECT_FALSE(same_bits(state.logits().at(0), state.logits().at(3), 61));
  state.reorder(std::vector<std::int64_t>{});
  EXPECT_EQ(state.hypotheses(), 0);
  state.step({});
}

TEST(DecodingBest, AreTheLargestLogProbabilitiesInOrder) {
  Transformer model(small_config(), 8);
  const TransformerDecoder decoder(model);
  DecoderState state = decoder.start(sentences({3, 5}, 5), 1);
  state.step(std::vector<std::int32_t>{1, 2});
  constexpr std::int64_t kBest = 7;
  Tensor tokens(DType::kInt32, {2, kBest});
  Tensor values({2, kBest});
  state.best(kBest, tokens.view<std::int32_t, 2>(), values.view<float, 2>());
  for (std::int64_t h = 0; h < 2; ++h) {
    const float* const row = state.logits().at(h);
    double sum = 0;
    for (int i = 0; i < 61; ++i) sum += std::exp(double{row[i]});
    std::vector<int> order(61);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return row[a] > row[b]; });
    for (std::int64_t i = 0; i < kBest; ++i) {
      const int token = order[static_cast<std::size_t>(i)];
      EXPECT_EQ((tokens.view<std::int32_t, 2>()(h, i)), token);
      EXPECT_NEAR((values.view<float, 2>()(h, i)), row[token] - std::log(sum),
                  1e-5);
    }
  }
}

TEST(DecodingWeights, SumToOneOverTheSourceAndAreZeroBehindIt) {
  Transformer model(small_config(), 9);
  const TransformerDecoder decoder(model);
  const PackedTokens source = sentences({3, 6, 1}, 6);
  DecoderState state = decoder.start(source, 2);
  state.step(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  Tensor weights({6, 6});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    state.cross_attention(layer, weights.view<float, 2>());
    for (std::int64_t h = 0; h < 6; ++h) {
      const std::int64_t length = state.source_length(state.source_of(h));
      double sum = 0;
      for (std::int64_t j = 0; j < 6; ++j) {
        const float w = weights.view<float, 2>()(h, j);
        if (j >= length) {
          EXPECT_EQ(w, 0.0f);
        }
        sum += w;
      }
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
  // Hypotheses of one source that said different words look differently.
  EXPECT_FALSE(same_bits(weights.view<float, 2>().at(2),
                         weights.view<float, 2>().at(3), 6));
}

// There may be more hypotheses than rows were computed for.
TEST(DecodingRefusals, ScoresAreThoseOfAStepAndNotOfAnotherOrder) {
  Transformer model(small_config(), 12);
  const TransformerDecoder decoder(model);
  DecoderState state = decoder.start(sentences({2}, 1), 1);
  Tensor tokens(DType::kInt32, {1, 3}), values({1, 3}), weights({1, 2});
  const auto best = [&] {
    state.best(3, tokens.view<std::int32_t, 2>(), values.view<float, 2>());
  };
  const auto look = [&] { state.cross_attention(0, weights.view<float, 2>()); };
  const auto expect_refusals = [&] {
    const std::string rule =
        ": a step must have been taken, and no reorder since";
    EXPECT_THAT(refusal([&] { state.logits(); }),
                HasSubstr("DecoderState::logits" + rule));
    EXPECT_THAT(refusal(best), HasSubstr("DecoderState::best" + rule));
    EXPECT_THAT(refusal(look),
                HasSubstr("DecoderState::cross_attention" + rule));
  };
  expect_refusals();
  state.step(std::vector<std::int32_t>{1});
  best();
  look();
  state.reorder(std::vector<std::int64_t>(9, 0));
  tokens = Tensor(DType::kInt32, {9, 3});
  values = Tensor({9, 3});
  weights = Tensor({9, 2});
  expect_refusals();
  state.step(std::vector<std::int32_t>(9, 1));
  best();
  look();
  state.reorder({});
  EXPECT_EQ(state.logits().size(), 0);
}

TEST(DecodingRefusals, NameTheRule) {
  Transformer model(small_config(), 10);
  const TransformerDecoder decoder(model);
  EXPECT_THAT(refusal([&] { decoder.start(sentences({2}, 1), 0); }),
              HasSubstr("TransformerDecoder::start: beams must be positive; "
                        "got 0"));
  PackedTokens bad = sentences({2}, 1);
  bad.tokens[1] = 61;
  EXPECT_THAT(refusal([&] { decoder.start(bad, 1); }),
              HasSubstr("source must hold tokens in 0 .. 60; got 61"));
  TransformerConfig learned = small_config();
  learned.positions = Positions::kLearned;
  learned.max_length = 4;
  Transformer other(learned, 11);
  const TransformerDecoder short_of_breath(other);
  EXPECT_THAT(
      refusal([&] {
        short_of_breath.start(sentences({2, 5}, 1), 1);
      }),
      HasSubstr("source must have no sentence of more than 4 tokens, as "
                "there are positions; sentence 1 has 5"));
  DecoderState breath = short_of_breath.start(sentences({2}, 1), 1);
  for (int i = 0; i < 4; ++i) breath.step(std::vector<std::int32_t>{1});
  EXPECT_THAT(refusal([&] { breath.step(std::vector<std::int32_t>{1}); }),
              HasSubstr("DecoderState::step: a sentence must have at most 4 "
                        "tokens, as there are positions"));
  DecoderState state = decoder.start(sentences({2, 3}, 1), 1);
  EXPECT_THAT(refusal([&] { state.step(std::vector<std::int32_t>{1}); }),
              HasSubstr("one token a hypothesis; hypotheses are 2, tokens are "
                        "1"));
  EXPECT_THAT(refusal([&] {
                state.step(std::vector<std::int32_t>{1, -1});
              }),
              HasSubstr("a token must lie in 0 .. 60; got -1"));
  EXPECT_THAT(refusal([&] {
                state.reorder(std::vector<std::int64_t>{0, 2});
              }),
              HasSubstr("a parent must lie in 0 .. 1; got 2"));
  EXPECT_THAT(
      refusal([&] {
        state.reorder(std::vector<std::int64_t>{1, 0});
      }),
      HasSubstr("the sources of the hypotheses must not fall; hypothesis 1 has "
                "source 0, the one before has 1"));
  EXPECT_THAT(refusal([&] { state.source_of(2); }),
              HasSubstr("a hypothesis must lie in 0 .. 1; got 2"));
  EXPECT_THAT(refusal([&] { state.source_length(-1); }),
              HasSubstr("a source must lie in 0 .. 1; got -1"));
  Tensor tokens(DType::kInt32, {2, 3});
  Tensor values({2, 2});
  EXPECT_THAT(refusal([&] {
                state.best(3, tokens.view<std::int32_t, 2>(),
                           values.view<float, 2>());
              }),
              HasSubstr("tokens and log_probabilities must be [2, 3]; they are "
                        "[2, 3] and [2, 2]"));
  EXPECT_THAT(refusal([&] {
                state.best(62, tokens.view<std::int32_t, 2>(),
                           values.view<float, 2>());
              }),
              HasSubstr("k must lie in 1 .. 61; got 62"));
  EXPECT_THAT(
      refusal([&] { state.cross_attention(2, values.view<float, 2>()); }),
      HasSubstr("a layer must lie in 0 .. 1; got 2"));
  EXPECT_THAT(
      refusal([&] { state.cross_attention(1, values.view<float, 2>()); }),
      HasSubstr("weights must be [2, 3]; they are [2, 2]"));
}

}  // namespace
}  // namespace regard::nn
