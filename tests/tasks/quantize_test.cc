// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/random.h"
#include "regard/io/gguf.h"
#include "support/model_files.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

using regard::testing::bytes_of;
using regard::testing::TemporaryFolder;
using test::GgufWriter;
using test::refusal;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

std::vector<float> some(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(0.3f * random.normal());
  }
  return values;
}

GgufWriter some_file() {
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .integer("general.file_type", 0)
      .texts("tokenizer.ggml.tokens", {"a", "", "\xe4\xbd\xa0"})
      .real("some.number", 0.125f)
      .numbers<std::int32_t>("some.list", 5, {1, -2, 3});
  writer.tensor("blk.0.attn_q.weight", {64, 3}, some(192, 1))
      .tensor("blk.0.attn_norm.weight", {64}, some(64, 2))
      .tensor("blk.0.ffn_down.weight", {20, 3}, some(60, 3))
      .tensor("token_embd.weight", {32, 5}, some(160, 4));
  return writer;
}

class Quantize : public ::testing::Test {
 protected:
  Quantize() : from_(folder_.path() / "from.gguf") {
    testing::write_text(from_, some_file().bytes());
  }
  std::filesystem::path made(ops::WeightStorage to) {
    const auto path = folder_.path() / "to.gguf";
    report_ = quantize_gguf(from_, path, {.to = to});
    return path;
  }

  TemporaryFolder folder_;
  std::filesystem::path from_;
  std::vector<QuantizedTensor> report_;
};

// Each weight is as near as the steps of its group allow: between -127 and 127
// times the largest of 32 over 127, or 0 to 15 between the least and the
// largest. Scales are half floats, with 11 bits.
void expect_near(const GgufFile& old, const GgufFile& now,
                 const std::string& name, bool int8) {
  const Tensor a = old.tensor(name), b = now.tensor(name);
  const auto before = a.values<float>(), after = b.values<float>();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t g = 0; g < before.size(); g += 32) {
    const auto group = before.subspan(g, 32);
    const auto [least, most] = std::minmax_element(group.begin(), group.end());
    const double largest = std::max(std::abs(*least), std::abs(*most));
    const double step = int8 ? largest / 127 : (*most - *least) / 15.0;
    // Rounding the scale moves code c by c steps / 2048; the minimum, too.
    const double slack = int8 ? largest / 1024 : (15 * step + largest) / 1024;
    for (std::size_t i = g; i < g + 32; ++i) {
      EXPECT_NEAR(after[i], before[i], step / 2 + slack) << name << " " << i;
    }
  }
}

TEST_F(Quantize, RoundsMatricesAndLeavesAllElse) {
  for (const bool int8 : {true, false}) {
    const auto path =
        made(int8 ? ops::WeightStorage::kInt8 : ops::WeightStorage::kInt4);
    const GgufFile old = GgufFile::open(from_), now = GgufFile::open(path);
    EXPECT_EQ(now.names(), old.names());
    EXPECT_EQ(now.type("blk.0.attn_q.weight"), int8 ? "Q8_0" : "Q4_1");
    EXPECT_EQ(now.type("token_embd.weight"), "Q8_0");
    expect_near(old, now, "blk.0.attn_q.weight", int8);
    expect_near(old, now, "token_embd.weight", true);
    // A vector, and rows of 20.
    for (const char* name :
         {"blk.0.attn_norm.weight", "blk.0.ffn_down.weight"}) {
      EXPECT_EQ(now.type(name), "F32");
      EXPECT_EQ(now.shape(name), old.shape(name));
      EXPECT_TRUE(std::ranges::equal(now.data(name), old.data(name)));
    }
    EXPECT_EQ(now.text("general.architecture"), "llama");
    EXPECT_EQ(now.texts("tokenizer.ggml.tokens"),
              old.texts("tokenizer.ggml.tokens"));
    EXPECT_EQ(now.real("some.number"), 0.125);
    EXPECT_EQ(now.integers("some.list"), old.integers("some.list"));
    EXPECT_EQ(now.integer("general.file_type"), int8 ? 7 : 3);
    EXPECT_EQ(now.integer("general.quantization_version"), 2);
  }
}

TEST_F(Quantize, ReportsHowFarTheWeightsMoved) {
  const auto path = made(ops::WeightStorage::kInt4);
  const GgufFile old = GgufFile::open(from_), now = GgufFile::open(path);
  ASSERT_EQ(report_.size(), 4u);
  for (const QuantizedTensor& one : report_) {
    const Tensor a = old.tensor(one.name), b = now.tensor(one.name);
    double change = 0, power = 0;
    for (std::size_t i = 0; i < a.values<float>().size(); ++i) {
      const double x = a.values<float>()[i];
      change += std::pow(b.values<float>()[i] - x, 2);
      power += x * x;
    }
    const auto count = static_cast<double>(a.size());
    EXPECT_EQ(one.from, "F32");
    EXPECT_EQ(one.to, now.type(one.name));
    EXPECT_NEAR(one.error, std::sqrt(change / count), 1e-9) << one.name;
    if (one.from != one.to) {
      EXPECT_NEAR(one.size, std::sqrt(power / count), 1e-9);
    }
    EXPECT_EQ(one.bytes_before, std::ssize(old.data(one.name)));
    EXPECT_EQ(one.bytes_after, std::ssize(now.data(one.name)));
  }
}

TEST_F(Quantize, ASecondTimeChangesNothing) {
  const auto once = made(ops::WeightStorage::kInt8);
  const auto twice = folder_.path() / "twice.gguf";
  quantize_gguf(once, twice, {.to = ops::WeightStorage::kInt8});
  EXPECT_EQ(testing::read_text(once), testing::read_text(twice));
}

TEST_F(Quantize, SaysWhatItRefusesAndLeavesNothing) {
  const auto path = folder_.path() / "to.gguf";
  EXPECT_THAT(refusal([&] {
                quantize_gguf(from_, path,
                              {.to = ops::WeightStorage::kFloat32});
              }),
              HasSubstr("weights become int8 or int4"));
  for (const float bad : {NAN, INFINITY, 65520.0f}) {
    GgufWriter wrong = some_file();
    std::vector<float> values = some(64, 5);
    values[40] = bad;
    wrong.tensor("blk.1.attn_q.weight", {64, 1}, values);
    testing::write_text(from_, wrong.bytes());
    EXPECT_THAT(refusal([&] { made(ops::WeightStorage::kInt8); }),
                HasSubstr("weights must be numbers from -65504 to 65504; some "
                          "of 'blk.1.attn_q.weight' are not"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SaveGguf, SaysWhatItRefuses) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.gguf";
  const std::string bytes = some_file().bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  const auto save = [&](const Shape& shape, const char* type, int count) {
    const GgufTensor tensor{
        "t", shape, type, [count] {
          return std::vector<std::byte>(static_cast<std::size_t>(count));
        }};
    save_gguf(path, file, {}, {&tensor, 1});
  };
  EXPECT_THAT(refusal([&] {
                save({2, 32}, "Q9", 68);
              }),
              HasSubstr("no type of tensors is called 'Q9'"));
  EXPECT_THAT(refusal([&] {
                save({2, 33}, "Q8_0", 68);
              }),
              HasSubstr("whole blocks of 32 elements; 't' is [2, 33]"));
  EXPECT_THAT(refusal([&] {
                save({2, 32}, "Q8_0", 67);
              }),
              HasSubstr("'t' has 68 bytes as Q8_0; got 67"));
  EXPECT_FALSE(std::filesystem::exists(path));
  save({2, 32}, "Q8_0", 68);
  EXPECT_EQ(GgufFile::open(path).shape("t"), (Shape{2, 32}));
}

// By the definition: each part read from its beginning, one token more each
// time.
TEST(Perplexity, IsTheMeanLossOfTokensThatFollow) {
  const test::Llama2cSizes sizes{.dim = 24,
                                 .hidden = 20,
                                 .layers = 2,
                                 .heads = 6,
                                 .kv_heads = 2,
                                 .vocab = -37,
                                 .context = 40};
  const std::string bytes = test::llama2c_file(
      sizes, [random = Random(3)]() mutable { return 0.4f * random.normal(); });
  const Llama2cFile file = Llama2cFile::parse(bytes_of(bytes));
  const LanguageModel model = LanguageModel::from_llama2c(file);
  Random random(9);
  Tokens tokens;
  for (int i = 0; i < 75; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(37)));
  }
  for (const std::int64_t part : {2, 4, 40}) {
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t i = 1; i < std::ssize(tokens); ++i) {
      if (i % part == 0) continue;
      LanguageState state(model);
      const std::int64_t begin = i / part * part;
      const LanguageState::Reading reading{
          0, std::span<const std::int32_t>(tokens).subspan(
                 static_cast<std::size_t>(begin),
                 static_cast<std::size_t>(i - begin))};
      state.read({&reading, 1});
      double weights = 0;
      for (std::int64_t v = 0; v < 37; ++v) {
        weights += std::exp(static_cast<double>(state.logits().at(0)[v]));
      }
      sum += std::log(weights) -
             state.logits().at(0)[tokens[static_cast<std::size_t>(i)]];
      ++count;
    }
    EXPECT_NEAR(perplexity(model, tokens, part),
                std::exp(sum / static_cast<double>(count)), 1e-4);
  }
  EXPECT_THAT(refusal([&] { perplexity(model, Tokens{1}); }),
              HasSubstr("a text has at least two tokens; got 1"));
  EXPECT_THAT(refusal([&] { perplexity(model, tokens, 41); }),
              HasSubstr("from 2 tokens to the context, 40; got 41"));
  EXPECT_THAT(refusal([&] {
                perplexity(model, Tokens{1, 2, 37}, 8);
              }),
              HasSubstr("37"));
}

}  // namespace
}  // namespace regard::tasks
