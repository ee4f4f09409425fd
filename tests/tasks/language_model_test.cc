// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/language_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/core/random.h"
#include "regard/kernels/targets.h"
#include "support/model_files.h"
#include "support/reference_language_model.h"

namespace regard::tasks {
namespace {

using regard::testing::bytes_of;
using regard::testing::text_of;
using test::GgufWriter;
using test::Llama2cSizes;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

constexpr Llama2cSizes kSmall{.dim = 24,
                              .hidden = 20,
                              .layers = 3,
                              .heads = 6,
                              .kv_heads = 2,
                              .vocab = -37,
                              .context = 200};

// The file of a random model, and the model.
struct Small {
  explicit Small(const Llama2cSizes& sizes = kSmall)
      : bytes(test::llama2c_file(
            sizes,
            [random = Random(3)]() mutable { return 0.4f * random.normal(); })),
        file(Llama2cFile::parse(bytes_of(bytes))),
        model(LanguageModel::from_llama2c(file)) {}

  std::string bytes;
  Llama2cFile file;
  LanguageModel model;
};

Tokens random_tokens(std::int64_t count, std::int64_t vocab,
                     std::uint64_t seed) {
  Random random(seed);
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(vocab)));
  }
  return tokens;
}

std::vector<float> row_of(const LanguageState& state, std::int64_t row) {
  const auto logits = state.logits();
  return {logits.at(row), logits.at(row) + logits.extent(1)};
}

// Reads a text, `step` tokens at a time, and returns the last scores.
std::vector<float> read_alone(const LanguageModel& model, const Tokens& tokens,
                              std::size_t step,
                              LanguageStateOptions options = {}) {
  LanguageState state(model, options);
  for (std::size_t i = 0; i < tokens.size(); i += step) {
    const std::span<const std::int32_t> rest(tokens.begin() + i, tokens.end());
    const LanguageState::Reading reading{
        0, rest.first(std::min(step, rest.size()))};
    state.read({&reading, 1});
  }
  EXPECT_EQ(state.length(0), std::ssize(tokens));
  return row_of(state, 0);
}

TEST(LanguageModel, TracesWhatItsHeadsLookAt) {
  const Small small;
  const LanguageModelConfig& c = small.model.config();
  const test::ReferenceLanguageModel<double> exact(c, small.file.parameters());
  for (const std::int64_t count : {1, 2, 90}) {
    const Tokens tokens = random_tokens(count, 37, 5);
    LanguageState state(small.model);
    const LanguageTrace trace = state.trace({0, tokens});
    // It reads as it always does.
    EXPECT_EQ(row_of(state, 0), read_alone(small.model, tokens, 90));
    std::vector<std::vector<double>> rows;
    exact.logits(tokens, &rows);
    const auto weights = trace.weights.view<float, 4>();
    const auto q = trace.queries.view<float, 4>();
    const auto k = trace.keys.view<float, 4>();
    std::size_t row = 0;
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t head = 0; head < c.heads; ++head, ++row) {
          double sum = 0;
          std::vector<double> made;  // of the queries and keys
          for (std::int64_t s = 0; s < count; ++s) {
            const double truth =
                s <= t ? rows[row][static_cast<std::size_t>(s)] : 0;
            EXPECT_NEAR(weights.at(layer, head, t)[s], truth, 1e-5);
            if (s > t) continue;
            double dot = 0;
            for (std::int64_t i = 0; i < c.head_dim; ++i) {
              dot += static_cast<double>(q.at(layer, head, t)[i]) *
                     static_cast<double>(k.at(layer, head, s)[i]);
            }
            made.push_back(std::exp(trace.scale * dot));
            sum += made.back();
          }
          for (std::size_t s = 0; s < made.size(); ++s) {
            EXPECT_NEAR(made[s] / sum, rows[row][s], 1e-5);
          }
        }
      }
    }
    EXPECT_EQ(row, rows.size());
    // Only a text from its beginning has all its keys at hand.
    EXPECT_THAT(
        [&] {
          state.trace({0, tokens});
        },
        ::testing::ThrowsMessage<InvalidArgument>(
            HasSubstr("a sequence must have read nothing before; it "
                      "has " +
                      std::to_string(count) + " tokens")));
  }
}

TEST(LanguageModel, ScoresAsTheDefinitionDoes) {
  const Small small;
  const LanguageModelConfig& c = small.model.config();
  const test::ReferenceLanguageModel<double> exact(c, small.file.parameters());
  const test::ReferenceLanguageModel<float> plain(c, small.file.parameters());
  for (const std::int64_t count : {1, 2, 17, 90}) {
    const Tokens tokens = random_tokens(count, 37, 5);
    const auto got = read_alone(small.model, tokens, 1000);
    const auto truth = exact.logits(tokens);
    const auto yardstick = plain.logits(tokens);
    double worst = 0, allowed = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - truth[i]));
      allowed = std::max(
          allowed, std::abs(static_cast<double>(yardstick[i]) - truth[i]));
    }
    EXPECT_LE(worst, 2 * allowed + 1e-6) << count;
  }
}

TEST(LanguageModel, AnyCutOfATextGivesTheSameBits) {
  const Small small;
  const Tokens tokens = random_tokens(150, 37, 6);
  const auto whole = read_alone(small.model, tokens, 1000);
  for (const std::size_t step : {1, 2, 16, 17, 63, 64, 65, 149}) {
    EXPECT_EQ(read_alone(small.model, tokens, step), whole) << step;
  }
}

TEST(LanguageModel, TheCacheAndTheThreadsChangeNoBit) {
  const Small small;
  const Tokens tokens = random_tokens(130, 37, 7);
  const auto alone =
      read_alone(small.model, tokens, 40, {.threads = {.count = 1}});
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t page : {16, 48}) {
      EXPECT_EQ(read_alone(small.model, tokens, 40,
                           {.cache = KVCacheKind::kPaged,
                            .page_tokens = page,
                            .threads = {.count = threads}}),
                alone);
    }
    EXPECT_EQ(
        read_alone(small.model, tokens, 40, {.threads = {.count = threads}}),
        alone);
  }
}

TEST(LanguageModel, HasTheSameBitsOnEveryTargetWithFusedMultiplyAdd) {
  const Small small;
  const Tokens tokens = random_tokens(80, 37, 12);
  const auto best = read_alone(small.model, tokens, 30);
  for (const std::string& target : simd_targets()) {
    if (target == "EMU128" || target == "SCALAR") continue;
    set_simd_target(target);
    EXPECT_EQ(read_alone(small.model, tokens, 30), best) << target;
  }
  set_simd_target("");
}

TEST(LanguageModel, ABatchOfDifferentLengthsGivesEachTextItsOwnBits) {
  const Small small;
  for (const KVCacheKind cache :
       {KVCacheKind::kContiguous, KVCacheKind::kPaged}) {
    const std::vector<std::int64_t> lengths = {1, 70, 3, 129, 64};
    LanguageState state(small.model,
                        {.sequences = std::ssize(lengths), .cache = cache});
    std::vector<Tokens> texts;
    std::vector<LanguageState::Reading> readings;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      texts.push_back(random_tokens(lengths[i] + 8, 37, 20 + i));
    }
    // The prompts, in an order of their own.
    for (const std::size_t i : {3, 0, 4, 1, 2}) {
      readings.push_back(
          {static_cast<std::int64_t>(i),
           std::span(texts[i]).first(static_cast<std::size_t>(lengths[i]))});
    }
    state.read(readings);
    for (int step = 0; step < 8; ++step) {
      std::vector<LanguageState::Reading> next;
      for (const LanguageState::Reading& r : readings) {
        // One text reads two tokens at a time, and is done sooner.
        const std::size_t count = r.sequence == 2 ? 2 : 1;
        const auto at = static_cast<std::size_t>(state.length(r.sequence));
        const std::span<const std::int32_t> all =
            texts[static_cast<std::size_t>(r.sequence)];
        if (at < all.size())
          next.push_back({r.sequence, all.subspan(at, count)});
      }
      state.read(next);
      readings = next;
      for (std::size_t row = 0; row < next.size(); ++row) {
        const std::int64_t i = next[row].sequence;
        const Tokens& all = texts[static_cast<std::size_t>(i)];
        const Tokens so_far(all.begin(), all.begin() + state.length(i));
        ASSERT_EQ(row_of(state, static_cast<std::int64_t>(row)),
                  read_alone(small.model, so_far, 1000))
            << "text " << i << " after " << state.length(i);
      }
    }
  }
}

TEST(LanguageModel, ForgetsAndReadsAgain) {
  const Small small;
  const Tokens tokens = random_tokens(90, 37, 8);
  LanguageState state(small.model, {.cache = KVCacheKind::kPaged});
  const LanguageState::Reading all{0, tokens};
  state.read({&all, 1});
  const auto whole = row_of(state, 0);
  state.truncate(0, 50);
  EXPECT_EQ(state.length(0), 50);
  const LanguageState::Reading rest{0, std::span(tokens).subspan(50)};
  state.read({&rest, 1});
  EXPECT_EQ(row_of(state, 0), whole);
  state.release(0);
  EXPECT_EQ(state.length(0), 0);
  state.read({&all, 1});
  EXPECT_EQ(row_of(state, 0), whole);
}

TEST(LanguageModel, APoolWithoutPagesLeavesAllAsItWas) {
  const Small small;
  const Tokens tokens = random_tokens(100, 37, 9);
  LanguageState state(
      small.model, {.sequences = 8, .cache = KVCacheKind::kPaged, .pages = 15});
  const LanguageState::Reading first{0, std::span(tokens).first(60)};
  state.read({&first, 1});
  const auto scores = row_of(state, 0);
  // 60 tokens take four of the fifteen pages, and the other texts one each.
  // Eight texts are read 64 tokens at a time: the first 64 of the long one find
  // four more, and the rest of it does not find three.
  std::vector<LanguageState::Reading> all = {{1, tokens},
                                             {0, std::span(tokens).first(1)}};
  for (std::int64_t i = 2; i < 8; ++i) {
    all.push_back({i, std::span(tokens).first(1)});
  }
  EXPECT_THROW(state.read(all), OutOfPages);
  EXPECT_EQ(state.length(0), 60);
  EXPECT_EQ(state.length(1), 0);
  EXPECT_EQ(row_of(state, 0), scores);
  const LanguageState::Reading rest{0, std::span(tokens).subspan(60, 30)};
  state.read({&rest, 1});
  EXPECT_EQ(row_of(state, 0),
            read_alone(small.model, {tokens.begin(), tokens.begin() + 90}, 90));
}

TEST(LanguageModel, HalfPrecisionOfTheCacheIsTheSameInAnyCut) {
  const Small small;
  const Tokens tokens = random_tokens(100, 37, 10);
  const auto exact = read_alone(small.model, tokens, 100);
  for (const DType storage : {DType::kBFloat16, DType::kFloat16}) {
    const auto whole =
        read_alone(small.model, tokens, 100, {.storage = storage});
    EXPECT_NE(whole, exact);
    EXPECT_EQ(read_alone(small.model, tokens, 7, {.storage = storage}), whole);
  }
}

TEST(LanguageState, SaysWhatItRefuses) {
  const Small small;
  LanguageState state(small.model, {.sequences = 2});
  const Tokens tokens = random_tokens(201, 37, 1);
  const auto refused = [&](std::vector<LanguageState::Reading> readings) {
    return text_of<InvalidArgument>([&] { state.read(readings); });
  };
  const std::string where = "LanguageState::read: ";
  const Tokens one = {5}, outside = {5, 37}, below = {-1};
  EXPECT_EQ(refused({{2, one}}), where + "sequences are 0 to 1; got 2");
  EXPECT_EQ(refused({{-1, one}}), where + "sequences are 0 to 1; got -1");
  EXPECT_EQ(refused({{0, one}, {0, one}}), where + "sequence 0 comes twice");
  EXPECT_EQ(refused({{1, {}}}), where + "sequence 1 gets no tokens");
  EXPECT_EQ(refused({{1, tokens}}),
            where + "a text has at most 200 tokens; sequence 1 would have 201");
  EXPECT_EQ(refused({{0, one}, {1, outside}}),
            where + "tokens are 0 to 36; got 37");
  EXPECT_EQ(refused({{1, below}}), where + "tokens are 0 to 36; got -1");
  EXPECT_EQ(state.length(0), 0);
  EXPECT_TRUE(state.logits().is_null());

  const auto made = [&](const LanguageStateOptions& options) {
    return text_of<InvalidArgument>(
        [&] { LanguageState other(small.model, options); });
  };
  EXPECT_EQ(made({.cache = KVCacheKind::kRing}),
            "LanguageState: the cache must be contiguous or paged: a ring "
            "forgets");
  EXPECT_EQ(made({.sequences = -1}),
            "LanguageState: sequences must not be negative; got -1");
  EXPECT_EQ(made({.page_tokens = 0}),
            "LanguageState: page_tokens must be positive; got 0");
}

TEST(LanguageModel, SaysWhatItRefuses) {
  const Small small;
  const ParameterViews& good = small.file.parameters();
  const auto refused = [](const LanguageModelConfig& config,
                          const ParameterViews& parameters) {
    return text_of<InvalidArgument>(
        [&] { LanguageModel model(config, parameters); });
  };
  const LanguageModelConfig& c = small.model.config();
  auto wrong = c;
  wrong.layers = 0;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: every size must be positive; layers is 0");
  wrong = c;
  wrong.kv_heads = 4;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: kv_heads must divide heads; 4 and 6 came");
  wrong = c;
  wrong.head_dim = std::int64_t{1} << 60;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: a layer must be at most 1099511627776 wide; there "
            "are 6 heads of 1152921504606846976, feed_forward_dim is 20");
  wrong = c;
  wrong.windowed = {true};
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: windowed must name every layer; it has 1 elements "
            "for 3 layers");
  wrong = c;
  wrong.output_softcap = -1;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: output_softcap must be finite and not negative; it "
            "is -1");
  wrong = c;
  wrong.qkv_bias = true;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: the parameter blk.0.attn_q.bias is missing");
  wrong = c;
  wrong.rotary.rotary_dim = 6;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: rotary_dim must be at most head_dim; they are 6 "
            "and 4");
  wrong = c;
  wrong.norm_epsilon = -1;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: norm_epsilon must be finite and not negative; it "
            "is -1");
  wrong = c;
  wrong.layers = std::int64_t{1} << 40;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: there are fewer parameters (30) than layers "
            "(1099511627776)");
  wrong = c;
  wrong.layers = 4;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: the parameter blk.3.attn_norm.weight is missing");
  wrong = c;
  wrong.layers = 2;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: 'blk.2.attn_k.weight' is not a parameter of this "
            "model");
  wrong = c;
  wrong.feed_forward_dim = 21;
  EXPECT_EQ(refused(wrong, good),
            "LanguageModel: blk.0.ffn_gate.weight must be [21, 24]; it is [20, "
            "24]");
}

// A small llama as GGUF, with settings that can be overruled.
GgufWriter small_gguf(const ParameterViews& parameters,
                      const std::map<std::string, std::uint32_t>& settings,
                      const std::string& architecture = "llama") {
  GgufWriter writer;
  writer.text("general.architecture", architecture);
  std::map<std::string, std::uint32_t> all = {
      {"llama.context_length", 200},     {"llama.embedding_length", 24},
      {"llama.block_count", 3},          {"llama.feed_forward_length", 20},
      {"llama.attention.head_count", 6}, {"llama.attention.head_count_kv", 2}};
  for (const auto& [key, value] : settings) all[key] = value;
  for (const auto& [key, value] : all) {
    if (value != 12345) writer.integer(key, value);  // 12345: left out
  }
  for (const auto& [name, view] : parameters) {
    const auto rows = static_cast<std::uint64_t>(view.extent(0));
    const auto columns = static_cast<std::uint64_t>(view.extent(1));
    const std::vector<float> values(view.data(), view.data() + view.size());
    const bool vector = name.find("norm") != std::string::npos;
    writer.tensor(name,
                  vector ? std::vector{columns} : std::vector{columns, rows},
                  values);
  }
  return writer;
}

TEST(LanguageModel, IsTheSameFromBothKindsOfFile) {
  const Small small;
  const std::string bytes = small_gguf(small.file.parameters(), {}).bytes();
  const LanguageModel model =
      LanguageModel::from_gguf(GgufFile::parse(bytes_of(bytes)));
  const Tokens tokens = random_tokens(30, 37, 2);
  EXPECT_EQ(read_alone(model, tokens, 30), read_alone(small.model, tokens, 30));
}

TEST(LanguageModel, RefusesSettingsOfGgufThatMakeNoModel) {
  const Small small;
  const auto refused_file = [](const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(bytes_of(bytes));
    const std::string text =
        text_of<ParseError>([&] { LanguageModel::from_gguf(file); });
    const std::string start = "GgufFile::parse: ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const auto refused = [&](const std::map<std::string, std::uint32_t>& settings,
                           const std::string& architecture = "llama") {
    return refused_file(
        small_gguf(small.file.parameters(), settings, architecture));
  };
  EXPECT_EQ(refused({}), "nothing was thrown");
  EXPECT_EQ(refused({{"llama.expert_count", 0},
                     {"llama.attention.sliding_window", 0},
                     {"split.count", 1}}),
            "nothing was thrown");
  EXPECT_EQ(refused_file(GgufWriter()),
            "the setting general.architecture is missing");
  EXPECT_EQ(refused({}, "mamba"),
            "the architectures llama, qwen2, qwen3, gemma, gemma2, gemma3, "
            "phi3 and gpt2 are read; this is 'mamba'");
  EXPECT_EQ(refused({{"llama.expert_count", 8}}),
            "models with experts are not read; this has 8");
  EXPECT_EQ(refused({{"split.count", 3}}),
            "this is one of 3 parts of a model; llama-gguf-split --merge joins "
            "them");
  // All but the first part have no other setting.
  EXPECT_EQ(refused_file(GgufWriter().integer("split.count", 3)),
            "this is one of 3 parts of a model; llama-gguf-split --merge joins "
            "them");
  EXPECT_EQ(refused({{"llama.block_count", 12345}}),
            "the setting llama.block_count is missing");
  EXPECT_EQ(refused({{"llama.embedding_length", 0}}),
            "llama.embedding_length must be 1 to 2147483648; it is 0");
  EXPECT_EQ(refused({{"llama.attention.head_count", 5}}),
            "heads must divide model_dim; 5 and 24 came");
  EXPECT_EQ(refused({{"llama.attention.value_length", 8}}),
            "keys and values must be of one length; they are 4 and 8");
  EXPECT_EQ(refused({{"llama.attention.head_count_kv", 4}}),
            "LanguageModel: kv_heads must divide heads; 4 and 6 came");
  EXPECT_EQ(refused({{"llama.block_count", 2}}),
            "LanguageModel: 'blk.2.attn_k.weight' is not a parameter of this "
            "model");
  EXPECT_EQ(refused({{"llama.vocab_size", 38}}),
            "LanguageModel: token_embd.weight must be [38, 24]; it is [37, "
            "24]");
  EXPECT_EQ(refused_file(small_gguf(small.file.parameters(), {})
                             .text("llama.rope.scaling.type", "longrope")),
            "llama.rope.scaling.type must be none, linear or yarn; it is "
            "'longrope'");
  EXPECT_EQ(refused_file(small_gguf(small.file.parameters(), {})
                             .text("llama.rope.scaling.type", "linear")
                             .real("llama.rope.scaling.factor", 0.5f)),
            "rotary_table: factor must be finite and at least 1; it is 0.5");
  EXPECT_EQ(
      refused_file(small_gguf(small.file.parameters(), {})
                       .tensor("odd", {1, 2, 3}, std::vector<float>(6, 0.0f))),
      "'odd' must be a vector or a matrix; its shape is [3, 2, 1]");
}

TEST(LanguageModel, AContextFarLongerThanTheTextCostsNothing) {
  const Small small;
  const std::string bytes = small_gguf(small.file.parameters(),
                                       {{"llama.context_length", 0x7fffffff}})
                                .bytes();
  const LanguageModel model =
      LanguageModel::from_gguf(GgufFile::parse(bytes_of(bytes)));
  const Tokens tokens = random_tokens(150, 37, 2);
  EXPECT_EQ(read_alone(model, tokens, 40), read_alone(small.model, tokens, 40));
}

TEST(LanguageModel, ScalesPositionsAsGgufSays) {
  const Small small;
  const Tokens tokens = random_tokens(30, 37, 2);
  const auto plain = read_alone(small.model, tokens, 30);
  const auto with = [&](GgufWriter writer) {
    const std::string bytes = writer.bytes();
    return read_alone(
        LanguageModel::from_gguf(GgufFile::parse(bytes_of(bytes))), tokens, 30);
  };
  const auto& parameters = small.file.parameters();
  EXPECT_NE(with(small_gguf(parameters, {}).real("llama.rope.freq_base", 500)),
            plain);
  const auto linear = with(small_gguf(parameters, {})
                               .text("llama.rope.scaling.type", "linear")
                               .real("llama.rope.scaling.factor", 4));
  EXPECT_NE(linear, plain);
  // Linear is what a file means that names no type, and one of 2023.
  EXPECT_EQ(
      with(small_gguf(parameters, {}).real("llama.rope.scaling.factor", 4)),
      linear);
  EXPECT_EQ(with(small_gguf(parameters, {}).real("llama.rope.scale_linear", 4)),
            linear);
  EXPECT_EQ(
      with(small_gguf(parameters, {}).real("llama.rope.scaling.factor", 0)),
      plain);
  EXPECT_EQ(with(small_gguf(parameters, {})
                     .text("llama.rope.scaling.type", "none")
                     .real("llama.rope.scaling.factor", 4)),
            plain);
  EXPECT_NE(
      with(small_gguf(parameters,
                      {{"llama.rope.scaling.original_context_length", 50}})
               .text("llama.rope.scaling.type", "yarn")
               .real("llama.rope.scaling.factor", 4)),
      plain);
}

TEST(LanguageModel, DividesFrequenciesAsGgufSays) {
  const Small small;
  const Tokens tokens = random_tokens(30, 37, 2);
  const auto with = [&](GgufWriter writer) {
    const std::string bytes = writer.bytes();
    return read_alone(
        LanguageModel::from_gguf(GgufFile::parse(bytes_of(bytes))), tokens, 30);
  };
  // Both pairs of a head of four by 4: what linear scaling does, too.
  const auto& parameters = small.file.parameters();
  EXPECT_EQ(with(small_gguf(parameters, {})
                     .tensor("rope_freqs.weight", {2}, {4.0f, 4.0f})),
            with(small_gguf(parameters, {})
                     .text("llama.rope.scaling.type", "linear")
                     .real("llama.rope.scaling.factor", 4)));
  EXPECT_THROW(with(small_gguf(parameters, {})
                        .tensor("rope_freqs.weight", {3}, {4.0f, 4.0f, 1.0f})),
               ParseError);
}

TEST(LanguageModel, ReadsWeightsOfEveryType) {
  // Halves that are floats exactly: the model is the same.
  const Small small;
  GgufWriter writer = small_gguf({}, {});
  GgufWriter plain = small_gguf({}, {});
  for (const auto& [name, view] : small.file.parameters()) {
    const auto columns = static_cast<std::uint64_t>(view.extent(1));
    const auto rows = static_cast<std::uint64_t>(view.extent(0));
    std::vector<float> floats;
    std::string halves;
    for (std::int64_t i = 0; i < view.size(); ++i) {
      const BFloat16 half(view.data()[i]);
      floats.push_back(static_cast<float>(half));
      halves += test::bytes_of_number(half.bits);
    }
    const bool vector = name.find("norm") != std::string::npos;
    const auto extents =
        vector ? std::vector{columns} : std::vector{columns, rows};
    writer.blocks(name, extents, 30, halves);
    plain.tensor(name, extents, floats);
  }
  const Tokens tokens = random_tokens(30, 37, 2);
  const auto scores = [&](const GgufWriter& file) {
    const std::string bytes = file.bytes();
    return read_alone(
        LanguageModel::from_gguf(GgufFile::parse(bytes_of(bytes))), tokens, 30);
  };
  EXPECT_EQ(scores(writer), scores(plain));
}

TEST(LoadLanguageModel, SaysWhatIsMissingOrDoesNotFit) {
  const Small small;
  const regard::testing::TemporaryFolder folder;
  const auto model = folder / "model.bin", pieces = folder / "pieces.bin";
  regard::testing::write_text(model, small.bytes);
  regard::testing::write_text(
      pieces, test::llama2c_pieces({{"a", 0}, {"b", 0}, {"c", 0}}));
  EXPECT_EQ(text_of<InvalidArgument>([&] { load_language_model(model); }),
            "load_language_model: '" + model.string() +
                "' has no tokenizer inside; a file for it is needed");
  EXPECT_EQ(text_of<ParseError>([&] { load_language_model(model, pieces); }),
            "load_language_model: the tokenizer has 3 pieces, the model knows "
            "37");
  EXPECT_THAT(text_of<IoError>([&] { load_language_model(folder / "none"); }),
              HasSubstr("none': No such file or directory"));
  regard::testing::write_text(folder / "text", std::string(100, 'a'));
  EXPECT_EQ(text_of<ParseError>([&] { load_language_model(folder / "text"); }),
            "load_language_model: '" + (folder / "text").string() +
                "' is no language model: it is neither GGUF nor a model of "
                "llama2.c");
  // What is cut off is still said to be.
  regard::testing::write_text(model, small.bytes.substr(0, 100));
  EXPECT_THAT(text_of<ParseError>([&] { load_language_model(model, pieces); }),
              HasSubstr("the file ends within "));
}

}  // namespace
}  // namespace regard::tasks
