// SPDX-License-Identifier: Apache-2.0
#include "regard/text/byte_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "support/model_files.h"

namespace regard::text {
namespace {

using regard::testing::bytes_of;
using regard::testing::text_of;
using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = BytePairVocabulary::Kind;
using Pieces = std::vector<std::pair<std::string, float>>;

// Unknown, begin, end, all bytes, then these.
Pieces with_bytes(const Pieces& more) {
  Pieces pieces = {{"<unk>", 0.0f}, {"\n<s>\n", 0.0f}, {"\n</s>\n", 0.0f}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    pieces.push_back({text, 0.0f});
  }
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

BytePairTokenizer tokenizer_of(const Pieces& pieces) {
  const std::string bytes = test::llama2c_pieces(pieces);
  return BytePairTokenizer::parse_llama2c(bytes_of(bytes));
}

std::vector<std::string> pieces_of(const BytePairTokenizer& tokenizer,
                                   std::string_view text) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : tokenizer.encode(text)) {
    pieces.push_back(
        tokenizer.vocabulary().pieces[static_cast<std::size_t>(id)]);
  }
  return pieces;
}

// The definition: of all neighbours, join the best, again and again.
std::vector<std::int32_t> plain_encode(const BytePairTokenizer& tokenizer,
                                       std::string_view text) {
  const BytePairVocabulary& v = tokenizer.vocabulary();
  const auto find = [&](const std::string& piece) -> std::int32_t {
    for (std::size_t i = 0; i < v.pieces.size(); ++i) {
      if (v.kinds[i] == Kind::kNormal && v.pieces[i] == piece) {
        return static_cast<std::int32_t>(i);
      }
    }
    return -1;
  };
  std::vector<std::int32_t> tokens;
  std::string all = " ";
  all += text;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t length = 1;
    while (i + length < all.size() && (all[i + length] & 0xc0) == 0x80) {
      ++length;
    }
    const std::int32_t id = find(all.substr(i, length));
    if (id >= 0) tokens.push_back(id);
    for (std::size_t j = 0; id < 0 && j < length; ++j) {
      tokens.push_back(3 + static_cast<unsigned char>(all[i + j]));
    }
    i += length;
  }
  for (;;) {
    float best = -std::numeric_limits<float>::infinity();
    std::size_t at = tokens.size();
    std::int32_t joined = -1;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto a = static_cast<std::size_t>(tokens[i]);
      const auto b = static_cast<std::size_t>(tokens[i + 1]);
      const std::int32_t id = find(v.pieces[a] + v.pieces[b]);
      if (id >= 0 && v.scores[static_cast<std::size_t>(id)] > best) {
        best = v.scores[static_cast<std::size_t>(id)];
        at = i;
        joined = id;
      }
    }
    if (joined < 0) return tokens;
    tokens[at] = joined;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BytePair, JoinsTheHighestScoreFirstAndTheLeftmostOfEquals) {
  const auto tokenizer = tokenizer_of(with_bytes({{" ", -9},
                                                  {"a", -9},
                                                  {"b", -9},
                                                  {"ab", -2},
                                                  {"ba", -1},
                                                  {"aa", -3},
                                                  {" a", -8}}));
  EXPECT_THAT(pieces_of(tokenizer, "aba"), ElementsAre(" a", "ba"));
  EXPECT_THAT(pieces_of(tokenizer, "aaa"), ElementsAre(" ", "aa", "a"));
  EXPECT_THAT(pieces_of(tokenizer, ""), ElementsAre());
}

TEST(BytePair, WhatIsNoPieceBecomesItsBytes) {
  const auto tokenizer = tokenizer_of(with_bytes({{" ", -1}, {"a", -2}}));
  EXPECT_THAT(pieces_of(tokenizer, "a\xc3\xa9"),
              ElementsAre(" ", "a", "<0xC3>", "<0xA9>"));
  // Not UTF-8, a zero, and a character cut short.
  const std::string_view odd("\xff\0\xe2\x82", 4);
  EXPECT_THAT(pieces_of(tokenizer, odd),
              ElementsAre(" ", "<0xFF>", "<0x00>", "<0xE2>", "<0x82>"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(odd)), odd);
}

TEST(BytePair, TextDoesNotBecomeControlPiecesOrBytes) {
  const auto tokenizer = tokenizer_of(with_bytes({{" ", -1}, {"<", -1}}));
  EXPECT_EQ(pieces_of(tokenizer, "<0x41>").size(), 7u);
  EXPECT_THAT(pieces_of(tokenizer, "<s>"),
              ElementsAre(" ", "<", "<0x73>", "<0x3E>"));
}

TEST(BytePair, DecodesWithoutTheBlankInFront) {
  const auto tokenizer = tokenizer_of(with_bytes({{" ", -9}, {" a", -1}}));
  const std::int32_t a = 260, begin = 1, end = 2;
  EXPECT_EQ(tokenizer.decode(begin, a), "a");
  EXPECT_EQ(tokenizer.decode(a, a), " a");
  EXPECT_EQ(tokenizer.decode(a, end), "");
  EXPECT_EQ(tokenizer.decode(a, begin), "");
  EXPECT_EQ(tokenizer.decode(a, 0), "<unk>");
  EXPECT_EQ(tokenizer.decode(a, 3 + 'x'), "x");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{a, a, end}), "a a");
  EXPECT_EQ(text_of<InvalidArgument>([&] { tokenizer.decode(a, 261); }),
            "BytePairTokenizer::decode: tokens are 0 to 260; got 261");
  EXPECT_EQ(text_of<InvalidArgument>([&] { tokenizer.decode(a, -1); }),
            "BytePairTokenizer::decode: tokens are 0 to 260; got -1");
}

class RealVocabulary : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(REGARD_SOURCE_DIR) /
              "../shared/models/stories260K";
    if (!std::filesystem::exists(folder_ / "tok512.bin")) {
      GTEST_SKIP() << folder_ << " is not there";
    }
  }
  std::filesystem::path folder_;
};

TEST_F(RealVocabulary, EncodesAsTheDefinitionDoes) {
  const auto tokenizer =
      BytePairTokenizer::load_llama2c(folder_ / "tok512.bin");
  EXPECT_EQ(tokenizer.size(), 512);
  const std::string letters =
      "  eeetaoinshrdlu.,!'\"ABCDTL\n\t\xe2\x84\xa2\xc3\xa9\xf0\x9f\x98\x80";
  Random random(5);
  for (int i = 0; i < 50; ++i) {
    std::string text;
    const std::int64_t length = random.below(60) + 1;
    while (std::ssize(text) < length) {
      std::size_t at = static_cast<std::size_t>(random.below(35));
      while (at > 0 && (letters[at] & 0xc0) == 0x80) --at;
      std::size_t end = at + 1;
      while (end < letters.size() && (letters[end] & 0xc0) == 0x80) ++end;
      text += letters.substr(at, end - at);
    }
    const auto tokens = tokenizer.encode(text);
    EXPECT_EQ(tokens, plain_encode(tokenizer, text)) << text;
    EXPECT_EQ(tokenizer.decode(tokens), text);
  }
  EXPECT_EQ(pieces_of(tokenizer, "Once upon a time").back(), " time");
}

TEST_F(RealVocabulary, IsTheSameInsideTheModelOfGguf) {
  const auto tokenizer =
      BytePairTokenizer::load_llama2c(folder_ / "tok512.bin");
  const auto inside = BytePairTokenizer::from_gguf(
      GgufFile::open(folder_ / "stories260K.f32.gguf"));
  EXPECT_EQ(inside.size(), 512);
  for (std::size_t i = 3; i < 512; ++i) {
    EXPECT_EQ(inside.vocabulary().pieces[i], tokenizer.vocabulary().pieces[i]);
  }
  EXPECT_EQ(inside.vocabulary().scores, tokenizer.vocabulary().scores);
  EXPECT_EQ(inside.vocabulary().kinds, tokenizer.vocabulary().kinds);
}

TEST_F(RealVocabulary, LongTextsTakeNoSquareOfTime) {
  const auto tokenizer =
      BytePairTokenizer::load_llama2c(folder_ / "tok512.bin");
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "Once upon a time. ";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(BytePair, RefusesBrokenFiles) {
  const auto refused = [](const std::string& bytes) {
    return text_of<ParseError>(
        [&] { BytePairTokenizer::parse_llama2c(bytes_of(bytes)); });
  };
  const std::string good =
      test::llama2c_pieces({{"a", 0}, {"b", 0}, {"cd", 0}});
  EXPECT_EQ(refused(good), "nothing was thrown");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(refused(good.substr(0, size)), "nothing was thrown") << size;
  }
  const std::string where = "BytePairTokenizer::parse_llama2c: ";
  EXPECT_EQ(refused(good.substr(0, 2)),
            where +
                "the file ends within the length of the longest piece at "
                "byte 0");
  EXPECT_EQ(refused(good.substr(0, 6)),
            where + "the file ends within a score at byte 4");
  EXPECT_EQ(refused(good.substr(0, 13)),
            where + "a vocabulary has at least three pieces; this has 1");
  EXPECT_EQ(refused(good.substr(0, good.size() - 1)),
            where + "piece 2 says that it has 2 bytes; 1 are left");
  EXPECT_EQ(refused(test::llama2c_pieces({{"a", 0}}, -1)),
            where +
                "the longest piece must have a length; it is -1 (is it "
                "llama2.c's tokenizer.bin?)");
  std::string negative = good;
  negative.replace(8, 4, test::bytes_of_number<std::int32_t>(-5));
  EXPECT_EQ(refused(negative),
            where + "piece 0 says that it has -5 bytes; 20 are left");
  EXPECT_EQ(refused(test::llama2c_pieces(
                {{"a", std::numeric_limits<float>::quiet_NaN()}})),
            where + "the score of piece 0 is no number");
  EXPECT_EQ(text_of<IoError>(
                [] { BytePairTokenizer::load_llama2c("/no/such/file"); }),
            "BytePairTokenizer::load_llama2c: cannot read '/no/such/file': No "
            "such file or directory");
  EXPECT_EQ(text_of<IoError>([] { BytePairTokenizer::load_llama2c("/"); }),
            "BytePairTokenizer::load_llama2c: cannot read '/': it is a folder");
}

TEST(BytePair, RefusesAVocabularyThatDoesNotFitTogether) {
  const auto refused = [](BytePairVocabulary v) {
    return text_of<InvalidArgument>(
        [&] { BytePairTokenizer tokenizer(std::move(v)); });
  };
  BytePairVocabulary v{{"a", "b", "c"},
                       {0, 0, 0},
                       {Kind::kControl, Kind::kControl, Kind::kControl}};
  EXPECT_EQ(refused(v), "nothing was thrown");
  auto wrong = v;
  wrong.scores.pop_back();
  EXPECT_EQ(refused(wrong),
            "BytePairTokenizer: each piece has a score and a kind; there are 3 "
            "pieces, 2 scores and 3 kinds");
  wrong = v;
  wrong.end = 3;
  EXPECT_EQ(refused(wrong),
            "BytePairTokenizer: begin, end and unknown must be pieces; there "
            "are 3, got 3");
  wrong = v;
  wrong.kinds[2] = Kind::kByte;
  EXPECT_EQ(refused(wrong),
            "BytePairTokenizer: piece 2 is to be a byte, but is not written as "
            "one");
  wrong = v;
  wrong.scores[1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refused(wrong),
            "BytePairTokenizer: the score of piece 1 is no number");
}

TEST(BytePair, RefusesAGgufWithoutATokenizerThatItKnows) {
  const auto refused = [](const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(bytes_of(bytes));
    return text_of<ParseError>([&] { BytePairTokenizer::from_gguf(file); });
  };
  const std::string where = "GgufFile::parse: ";
  EXPECT_EQ(refused(GgufWriter()), where + "the file has no tokenizer");
  EXPECT_EQ(refused(GgufWriter().text("tokenizer.ggml.model", "gpt2")),
            where +
                "only tokenizers of the kind 'llama' are read; this is "
                "'gpt2'");
  const auto with = [](std::size_t scores, std::int32_t last_type) {
    GgufWriter writer;
    writer.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"})
        .numbers<float>("tokenizer.ggml.scores", 6,
                        std::vector<float>(scores, 0.0f))
        .numbers<std::int32_t>("tokenizer.ggml.token_type", 5,
                               {2, 3, last_type});
    return writer;
  };
  EXPECT_EQ(refused(with(3, 3)), "nothing was thrown");
  EXPECT_EQ(refused(with(2, 3)),
            where +
                "each token has a score and a type; there are 3 tokens, 2 "
                "scores and 3 types");
  EXPECT_EQ(refused(with(3, 6)),
            where + "token 2 is to be a byte, but is not written as one");
  EXPECT_EQ(
      refused(with(3, 3).integer("tokenizer.ggml.bos_token_id", 77)),
      where +
          "tokenizer.ggml.bos_token_id must be one of the 3 tokens; it is "
          "77");
  EXPECT_EQ(refused(GgufWriter()
                        .text("tokenizer.ggml.model", "llama")
                        .texts("tokenizer.ggml.tokens", {"a"})),
            where + "the tokenizer needs tokens, scores and types");
  EXPECT_THAT(refused(GgufWriter()
                          .text("tokenizer.ggml.model", "llama")
                          .texts("tokenizer.ggml.tokens", {"a", "b", "c"})
                          .numbers<float>(
                              "tokenizer.ggml.scores", 6,
                              {0, std::numeric_limits<float>::infinity(), 0})
                          .numbers<std::int32_t>("tokenizer.ggml.token_type", 5,
                                                 {1, 1, 1})),
              HasSubstr("the score of token 1 is no number"));
}

}  // namespace
}  // namespace regard::text
