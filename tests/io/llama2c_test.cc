// SPDX-License-Identifier: Apache-2.0
#include "regard/io/llama2c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "io/files.h"
#include "regard/core/error.h"
#include "support/model_files.h"

namespace regard {
namespace {

using test::bytes_of_number;
using test::llama2c_file;
using test::Llama2cSizes;
using testing::bytes_of;
using testing::text_of;

std::string file_of(const Llama2cSizes& sizes) {
  return llama2c_file(sizes, [n = 0]() mutable { return ++n; });
}

std::string refused(const std::string& file) {
  const std::string text =
      text_of<ParseError>([&file] { Llama2cFile::parse(bytes_of(file)); });
  const std::string start = "Llama2cFile::parse: ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

// The sizes alone, and `floats` zeros.
std::string header(const Llama2cSizes& s, std::size_t floats = 100) {
  std::string file;
  for (const std::int32_t size :
       {s.dim, s.hidden, s.layers, s.heads, s.kv_heads, s.vocab, s.context}) {
    file += bytes_of_number(size);
  }
  return file + std::string(floats * sizeof(float), '\0');
}

TEST(Llama2c, FindsEveryWeightInItsPlace) {
  // The weights count 1, 2, 3..., so each shows where it was read.
  const std::string bytes = file_of({});
  const Llama2cFile file = Llama2cFile::parse(bytes_of(bytes));
  EXPECT_EQ(file.sizes().model_dim, 8);
  EXPECT_EQ(file.sizes().head_dim(), 4);
  EXPECT_TRUE(file.sizes().tied_output);
  const auto first = [&](const std::string& name) {
    return *file.parameters().at(name).data();
  };
  const auto shape = [&](const std::string& name) {
    return to_string(file.parameters().at(name).shape());
  };
  EXPECT_EQ(file.parameters().size(), 2u + 2 * 9);
  EXPECT_EQ(first("token_embd.weight"), 1);
  EXPECT_EQ(shape("token_embd.weight"), "[5, 8]");
  int at = 1 + 5 * 8;
  const auto both = [&](const std::string& name, int rows, int columns) {
    const std::string wanted =
        to_string(std::array<std::int64_t, 2>{rows, columns});
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      EXPECT_EQ(first(layer + name), static_cast<float>(at)) << layer << name;
      EXPECT_EQ(shape(layer + name), wanted);
      at += rows * columns;
    }
  };
  both("attn_norm.weight", 1, 8);
  both("attn_q.weight", 8, 8);
  both("attn_k.weight", 4, 8);
  both("attn_v.weight", 4, 8);
  both("attn_output.weight", 8, 8);
  both("ffn_norm.weight", 1, 8);
  both("ffn_gate.weight", 6, 8);
  both("ffn_down.weight", 8, 6);
  both("ffn_up.weight", 6, 8);
  EXPECT_EQ(first("output_norm.weight"), static_cast<float>(at));
}

TEST(Llama2c, AnOutputOfItsOwnFollowsTheTables) {
  const std::string bytes = file_of({.vocab = -5});
  const Llama2cFile file = Llama2cFile::parse(bytes_of(bytes));
  EXPECT_FALSE(file.sizes().tied_output);
  EXPECT_EQ(file.sizes().vocab, 5);
  const auto& output = file.parameters().at("output.weight");
  EXPECT_EQ(to_string(output.shape()), "[5, 8]");
  EXPECT_EQ(output(4, 7),
            static_cast<float>(test::llama2c_floats({.vocab = -5})));
}

TEST(Llama2c, ReadsTheModelOfOthers) {
  const std::filesystem::path path =
      std::filesystem::path(REGARD_SOURCE_DIR) /
      "../shared/models/stories260K/stories260K.bin";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Llama2cFile file = Llama2cFile::open(path);
  EXPECT_EQ(file.sizes().layers, 5);
  EXPECT_EQ(file.sizes().kv_heads, 4);
  EXPECT_EQ(file.sizes().vocab, 512);
}

TEST(Llama2c, RefusesFilesTooShortOrTooLong) {
  const std::string bytes = file_of({});
  for (std::size_t size = 0; size < bytes.size(); size += 3) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_NE(refused(cut), "nothing was thrown") << size;
  }
  EXPECT_EQ(refused(std::string()),
            "a llama2.c model begins with 28 bytes of sizes; this has 0");
  EXPECT_EQ(refused(bytes.substr(0, 28)),
            "the file ends within token_embd.weight: 1 times [5, 8] are "
            "wanted, 0 floats are left");
  EXPECT_EQ(refused(bytes.substr(0, bytes.size() - 1)),
            "the file ends within the rotary tables: 2 times [16, 2] are "
            "wanted, 63 floats are left");
  EXPECT_EQ(refused(bytes + "abc"),
            "the file is longer than its sizes say: 3 bytes follow the weights "
            "(is it a llama2.c model?)");
}

TEST(Llama2c, RefusesSizesThatMakeNoModel) {
  EXPECT_EQ(refused(header({.dim = 0})),
            "every size must be positive; model_dim is 0 (is it a llama2.c "
            "model?)");
  EXPECT_EQ(refused(header({.layers = -3})),
            "every size must be positive; layers is -3 (is it a llama2.c "
            "model?)");
  EXPECT_EQ(
      refused(header({.vocab = 0})),
      "every size must be positive; vocab is 0 (is it a llama2.c model?)");
  EXPECT_EQ(refused(header({.heads = 3})),
            "heads must divide model_dim into even parts; 8 and 3 heads came");
  EXPECT_EQ(refused(header({.heads = 8})),
            "heads must divide model_dim into even parts; 8 and 8 heads came");
  EXPECT_EQ(refused(header({.dim = 16, .heads = 8, .kv_heads = 3})),
            "kv_heads must divide heads; 3 and 8 came");
}

TEST(Llama2c, RefusesAbsurdSizesBeforeItUsesThem) {
  constexpr std::int32_t kMost = 0x7fffffff;
  EXPECT_EQ(refused(header({.vocab = kMost})),
            "the file ends within token_embd.weight: 1 times [2147483647, 8] "
            "are wanted, 100 floats are left");
  EXPECT_EQ(refused(header({.layers = kMost})),
            "the file ends within attn_norm.weight: 2147483647 times [1, 8] "
            "are wanted, 60 floats are left");
  EXPECT_EQ(refused(header({.dim = kMost - 1,
                            .hidden = kMost,
                            .layers = kMost,
                            .heads = 1,
                            .vocab = kMost,
                            .context = kMost})),
            "the file ends within token_embd.weight: 1 times [2147483647, "
            "2147483646] are wanted, 100 floats are left");
  // The most negative number has no positive.
  EXPECT_EQ(refused(header({.vocab = -kMost - 1})),
            "the file ends within token_embd.weight: 1 times [2147483648, 8] "
            "are wanted, 100 floats are left");
}

TEST(Llama2c, RefusesLaterVersionsByName) {
  EXPECT_EQ(refused(header({.dim = 0x616b3432, .hidden = 2})),
            "only version 0 of llama2.c's format is read; this is version 2");
}

TEST(Llama2c, NamesTheFileThatCannotBeRead) {
  EXPECT_EQ(text_of<IoError>([] { Llama2cFile::open("/no/such/file"); }),
            "Llama2cFile::open: cannot read '/no/such/file': No such file or "
            "directory");
}

TEST(Llama2c, WantsAlignedBytes) {
  std::string bytes = "x";
  bytes += file_of({});
  const std::string_view shifted = std::string_view(bytes).substr(1);
  EXPECT_EQ(
      text_of<InvalidArgument>([&] { Llama2cFile::parse(bytes_of(shifted)); }),
      "Llama2cFile::parse: the bytes must be aligned for float");
}

}  // namespace
}  // namespace regard
