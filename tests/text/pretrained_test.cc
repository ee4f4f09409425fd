// SPDX-License-Identifier: Apache-2.0
// What tokenizers_test.py cannot ask for: errors, options, and texts that are
// long. The pieces themselves are compared with other systems there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/text/byte_pair.h"
#include "regard/text/tokenizer.h"
#include "support/model_files.h"

namespace regard::text {
namespace {

using regard::testing::bytes_of;
using regard::testing::TemporaryFolder;
using regard::testing::text_of;
using regard::testing::write_text;
using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// WordPiece: play ##ing ##ed, [CLS] [SEP] [UNK] [MASK], and a little more.
constexpr const char* kVocab =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n##ed\nthe\ngame\n.\n";

// Byte-level BPE in which "ab" and "aab" are joined, with a template.
std::string byte_level(const std::string& more = "") {
  return R"({"added_tokens":[
      {"id":5,"content":"<end>","special":true,"normalized":false},
      {"id":6,"content":"word","special":false,"single_word":true,
       "normalized":false},
      {"id":7,"content":"<mask>","special":true,"lstrip":true,"rstrip":true,
       "normalized":false}],
    "normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
    "post_processor":{"type":"TemplateProcessing",
      "single":[{"Sequence":{"id":"A","type_id":0}},
                {"SpecialToken":{"id":"<end>","type_id":0}}],
      "pair":[{"Sequence":{"id":"A","type_id":0}},
              {"SpecialToken":{"id":"<end>","type_id":0}},
              {"Sequence":{"id":"B","type_id":1}},
              {"SpecialToken":{"id":"<end>","type_id":1}}],
      "special_tokens":{"<end>":{"id":"<end>","ids":[5],"tokens":["<end>"]}}},
    "decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"\u0120":2,"ab":3,"aab":4},
             "merges":["a b",["a","ab"]])" +
         more + "}}";
}

class Pretrained : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const std::string& name,
                                  const std::string& text) {
    write_text(folder_ / name, text);
    return load_tokenizer(folder_ / name);
  }
  std::string refused(const std::string& name, const std::string& text) {
    write_text(folder_ / name, text);
    return text_of<ParseError>([&] { load_tokenizer(folder_ / name); });
  }
  TemporaryFolder folder_;
};

TEST_F(Pretrained, WordsArePiecesByTheLongestMatch) {
  write_text(folder_ / "vocab.txt", kVocab);
  const auto tokenizer = load_tokenizer(folder_.path());
  const Encoding found =
      tokenizer->encode("Playing the  GAME.", {.offsets = true});
  EXPECT_THAT(found.ids, ElementsAre(2, 5, 6, 8, 9, 10, 3));
  EXPECT_THAT(found.words, ElementsAre(-1, 0, 0, 1, 2, 3, -1));
  EXPECT_THAT(found.offsets,
              ElementsAre(ByteRange{0, 0}, ByteRange{0, 4}, ByteRange{4, 7},
                          ByteRange{8, 11}, ByteRange{13, 17},
                          ByteRange{17, 18}, ByteRange{0, 0}));
  EXPECT_EQ(tokenizer->decode(found.ids), "playing the game.");
  EXPECT_THAT(tokenizer->encode("plays"), ElementsAre(1));
  EXPECT_EQ(tokenizer->special(), (SpecialIds{.unknown = 1,
                                              .padding = 0,
                                              .mask = 4,
                                              .classify = 2,
                                              .separator = 3}));
  const Encoding pair = tokenizer->encode_pair("play", "game", {});
  EXPECT_THAT(pair.ids, ElementsAre(2, 5, 3, 9, 3));
  EXPECT_THAT(pair.types, ElementsAre(0, 0, 0, 1, 1));
}

TEST_F(Pretrained, TextsAreCutOnlyWhereThatIsAsked) {
  const auto tokenizer = load("vocab.txt", kVocab);
  const auto ids = [&](std::int64_t most) {
    return tokenizer->encode("the game the game", {.max_length = most}).ids;
  };
  EXPECT_THAT(ids(0), ElementsAre(2, 8, 9, 8, 9, 3));
  EXPECT_THAT(ids(6), ElementsAre(2, 8, 9, 8, 9, 3));
  EXPECT_THAT(ids(4), ElementsAre(2, 8, 9, 3));
  EXPECT_THAT(
      tokenizer->encode_pair("the", "game game game", {.max_length = 6}).ids,
      ElementsAre(2, 8, 3, 9, 9, 3));
  EXPECT_EQ(text_of<InvalidArgument>([&] { ids(2); }),
            "Tokenizer::encode: max_length must leave room beside 2 special "
            "tokens; it is 2");
}

TEST_F(Pretrained, AddedTokensAreFoundByTheirFlags) {
  const auto tokenizer = load("tokenizer.json", byte_level());
  EXPECT_THAT(tokenizer->encode("aab<end>ab"), ElementsAre(4, 5, 3));
  EXPECT_THAT(tokenizer->encode("a \n<mask>\t b"), ElementsAre(0, 7, 1));
  // No letter may touch the one, and what is unknown is left out.
  EXPECT_THAT(tokenizer->encode("word,words"), ElementsAre(6));
  EXPECT_THAT(tokenizer
                  ->encode("ab<end>", {.add_special_tokens = false,
                                       .find_special_tokens = false})
                  .ids,
              ElementsAre(3));
  const Encoding found = tokenizer->encode("ab", {});
  EXPECT_THAT(found.ids, ElementsAre(3, 5));
  EXPECT_EQ(tokenizer->decode(found.ids), "ab");
  EXPECT_EQ(tokenizer->decode(found.ids, SpecialTokens::kKeep), "ab<end>");
  EXPECT_EQ(tokenizer->piece(7), "<mask>");
  EXPECT_EQ(tokenizer->id_of("word"), 6);
  EXPECT_EQ(tokenizer->size(), 8);
  EXPECT_EQ(text_of<InvalidArgument>([&] { tokenizer->piece(8); }),
            "Tokenizer::piece: pieces have numbers from 0 to 7; got 8");
}

TEST_F(Pretrained, BytesThatAreNotUtf8CountAsTheReplacementCharacter) {
  const auto tokenizer = load("vocab.txt", kVocab);
  EXPECT_EQ(tokenizer->encode("the\xFFgame"),
            tokenizer->encode("the\xEF\xBF\xBDgame"));
  const auto ranges =
      tokenizer
          ->encode("\xFF the \xE2\x82 game",
                   {.add_special_tokens = false, .offsets = true})
          .offsets;
  EXPECT_THAT(ranges, ElementsAre(ByteRange{2, 5}, ByteRange{9, 13}));
}

// Quadratic time would be hours here.
TEST_F(Pretrained, LongTextsTakeNoLongerThanTheyMust) {
  const std::string many(1 << 20, 'a');
  const auto bpe = load("tokenizer.json", byte_level());
  EXPECT_EQ(bpe->encode(many).size(), many.size());
  std::string pairs;
  for (int i = 0; i < 1 << 19; ++i) pairs += "ab";
  EXPECT_EQ(bpe->encode(pairs).size(), pairs.size() / 2);
  const auto word_piece = load("vocab.txt", kVocab);
  EXPECT_THAT(word_piece->encode(many), ElementsAre(1));
  std::string marks;  // in the wrong order, one after the other
  for (int i = 0; i < 1 << 18; ++i) marks += "\xCC\x81\xCC\xA3";
  EXPECT_THAT(word_piece->encode("play" + marks), ElementsAre(5));
  std::string blanks(1 << 20, ' ');
  EXPECT_THAT(word_piece->encode(blanks + "the"), ElementsAre(8));
  EXPECT_EQ(bpe->encode(blanks).size(), blanks.size());
}

TEST_F(Pretrained, APatternThatNeverEndsIsGivenUp) {
  std::string json = byte_level();
  const std::string old = R"({"type":"ByteLevel","add_prefix_space":false})";
  json.replace(json.find(old), old.size(),
               R"({"type":"Sequence","pretokenizers":[{"type":"Split",
                 "pattern":{"Regex":"(a+)+[^ab]"},"behavior":"Isolated"},)" +
                   old + "]}");
  const auto tokenizer = load("tokenizer.json", json);
  EXPECT_THAT(text_of<InvalidArgument>(
                  [&] { tokenizer->encode(std::string(5000, 'a') + "b"); }),
              HasSubstr("the search for a pattern of the tokenizer was given "
                        "up: match limit exceeded"));
}

// A text is one word where there is no pre-tokenizer.
std::string word_level(const std::string& steps, const std::string& words) {
  return "{" + steps + R"(,"model":{"type":"WordLevel","unk_token":"?",
      "vocab":{"?":0)" +
         words + "}}}";
}

TEST_F(Pretrained, PatternsHaveOnigurumasWordsAndWhitespaceHasRusts) {
  const auto count = [&](const std::string& pre_tokenizer,
                         const std::string& text) {
    return load("tokenizer.json",
                word_level("\"pre_tokenizer\":" + pre_tokenizer, ""))
        ->encode(text)
        .size();
  };
  const auto matches = [&](const std::string& pattern,
                           const std::string& text) {
    return count(R"({"type":"Split","behavior":"Removed","invert":true,
                     "pattern":{"Regex":")" +
                     pattern + "\"}}",
                 text);
  };
  const std::string whitespace = R"({"type":"Whitespace"})";
  // Joiners between letters, as Persian has them; x squared.
  for (const char* joined :
       {"\xD9\x85\xE2\x80\x8C\xD8\xAE", "x\xE2\x80\x8Dy"}) {
    EXPECT_EQ(matches(R"(\\w+)", joined), 2u);
    EXPECT_EQ(matches(R"([\\w]+)", joined), 2u);
    EXPECT_EQ(count(whitespace, joined), 1u);
  }
  EXPECT_EQ(matches(R"(\\w+)", "x\xC2\xB2"), 1u);
  EXPECT_EQ(count(whitespace, "x\xC2\xB2"), 2u);
  EXPECT_EQ(matches(R"(\\w)", "\xC2\xB2"), 1u);
  EXPECT_EQ(matches(R"([\\w])", "\xC2\xB2"), 0u);
  // A mark that encloses a letter is of its word.
  EXPECT_EQ(matches(R"(\\b\\w)", "x\xE2\x83\x9Dy z"), 2u);
  EXPECT_EQ(matches(R"(\\B\\w)", "x\xE2\x83\x9Dy z"), 2u);
}

TEST_F(Pretrained, AccentsAreAllMarksAndInBertThoseWithoutAWidth) {
  const std::string tamil =
      "\xE0\xAE\xA4\xE0\xAE\xAE\xE0\xAE\xBF"
      "\xE0\xAE\xB4\xE0\xAF\x8D";
  const std::string words = R"(,"xy":1,"\u0ba4\u0bae\u0bb4":2,
                               "\u0ba4\u0bae\u0bbf\u0bb4":3)";
  const auto all =
      load("tokenizer.json",
           word_level(R"("normalizer":{"type":"StripAccents"})", words));
  EXPECT_THAT(all->encode("x\xE2\x83\x9Dy"), ElementsAre(1));
  EXPECT_THAT(all->encode(tamil), ElementsAre(2));
  const auto some = load("tokenizer.json",
                         word_level(R"("normalizer":{"type":"BertNormalizer",
                            "lowercase":false,"strip_accents":true})",
                                    words));
  EXPECT_THAT(some->encode(tamil), ElementsAre(3));
}

TEST_F(Pretrained, ThreadsMayShareOne) {
  const auto tokenizer = load("tokenizer.json", byte_level());
  std::vector<std::jthread> threads;
  std::vector<std::vector<std::int32_t>> found(4);
  for (auto& ids : found) {
    threads.emplace_back([&tokenizer, &ids] {
      for (int i = 0; i < 200; ++i) ids = tokenizer->encode("aab ab ba aab");
    });
  }
  threads.clear();
  for (const auto& ids : found) EXPECT_EQ(ids, found[0]);
  EXPECT_THAT(found[0], ElementsAre(4, 2, 3, 2, 1, 0, 2, 4));
}

TEST_F(Pretrained, ATextStreamWaitsForWholeCharacters) {
  // U+4F60 is three bytes, each a piece.
  const auto tokenizer = load(
      "tokenizer.json",
      R"({"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},
      "model":{"type":"BPE","vocab":{"\u00e4":0,"\u00bd":1,"\u0142":2,"a":3},
      "merges":[]}})");
  TextStream stream(*tokenizer);
  std::vector<std::string> parts;
  for (const std::int32_t id : {3, 0, 1, 2, 3})
    parts.push_back(stream.next(id));
  EXPECT_THAT(parts, ElementsAre("a", "", "", "\xE4\xBD\xA0", "a"));
}

TEST_F(Pretrained, PiecesMayHaveOtherNumbers) {
  auto tokenizer = renumbered(load("tokenizer.json", byte_level()),
                              {"</s>", "<unk>", "ab"}, "<unk>");
  EXPECT_THAT(tokenizer->encode("ab a", {}).ids, ElementsAre(2, 1, 1, 0));
  EXPECT_EQ(tokenizer->special().end, 0);
  EXPECT_EQ(tokenizer->size(), 3);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 0}), "ab");
  EXPECT_THAT(text_of<InvalidArgument>([&] {
                renumbered(load("tokenizer.json", byte_level()), {"a"},
                           "<unk>");
              }),
              HasSubstr("the list must have the unknown piece '<unk>'"));
}

TEST_F(Pretrained, SavedTokenizersComeBack) {
  const auto tokenizer = load("tokenizer.json", byte_level());
  const TemporaryFolder other;
  tokenizer->save(other.path());
  EXPECT_EQ(load_tokenizer(other.path())->encode("aab ab"),
            tokenizer->encode("aab ab"));
}

TEST_F(Pretrained, ErrorsNameTheFileTheFieldAndWhatWasExpected) {
  const auto replaced = [](std::string text, const std::string& what,
                           const std::string& by) {
    return text.replace(text.find(what), what.size(), by);
  };
  const auto json = [&](const std::string& what, const std::string& by) {
    return refused("tokenizer.json", replaced(byte_level(), what, by));
  };
  const std::string where =
      "load_tokenizer: '" + (folder_ / "tokenizer.json").string() + "': ";
  EXPECT_EQ(json("\"BPE\"", "\"Magic\""),
            where + "model.type is a kind of model that is not known: 'Magic'");
  EXPECT_EQ(json("{\"type\":\"ByteLevel\",\"add_prefix", "{\"type\":\"X\",\"a"),
            where +
                "pre_tokenizer.type is a kind of pre-tokenizer that is not "
                "known: 'X'");
  EXPECT_EQ(
      json("\"a b\"", "\"a c\""),
      where + "model.merges[0] must join pieces into a piece; 'c' is none");
  EXPECT_EQ(json("\"a b\"", "\"a\""),
            where +
                "model.merges[0] must be two pieces with a blank between them; "
                "it is \"a\"");
  EXPECT_EQ(json("\"aab\":4", "\"aab\":-4"),
            where +
                "model.vocab must number its pieces from 0 on; 'aab' has "
                "-4");
  EXPECT_EQ(json("\"aab\":4", "\"aab\":4000000000"),
            where +
                "model.vocab must number its pieces from 0 on; 'aab' has "
                "4000000000");
  EXPECT_EQ(json("\"ids\":[5]", "\"ids\":[55]"),
            where +
                "post_processor.special_tokens.<end>.ids[0] must be the number "
                "of a piece; it is 55");
  EXPECT_EQ(json("\"normalizer\":null", "\"normalizer\":{\"type\":\"Q\"}"),
            where +
                "normalizer.type is a kind of normalizer that is not "
                "known: 'Q'");
  EXPECT_EQ(json("\"decoder\":{\"type\":\"ByteLevel\"}",
                 "\"decoder\":{\"type\":\"CTC\"}"),
            where +
                "decoder.type is a kind of decoder that is not known: "
                "'CTC'");
  EXPECT_EQ(json("\"single_word\":true", "\"single_word\":1"),
            where +
                "added_tokens[1].single_word must be true or false; it is "
                "1");
  EXPECT_THAT(refused("tokenizer.json", "{"),
              HasSubstr(where + "the file must be JSON"));
  EXPECT_EQ(refused("tokenizer.json", "{}"),
            where + "the file has no field 'model'");
  EXPECT_EQ(refused("tokenizer.json", std::string(100000, '[')),
            where + "the file may be nested 64 deep at most");
  EXPECT_THAT(json("\"normalizer\":null",
                   R"("normalizer":{"type":"Replace","content":"",
                      "pattern":{"Regex":"[a&&b]"}})"),
              HasSubstr("normalizer.pattern cannot be used: Regex: a set "
                        "within a set is not supported"));
  EXPECT_THAT(refused("vocab.txt", "a\nb\n"),
              HasSubstr("the vocabulary must have the piece '[CLS]'"));
  EXPECT_THAT(refused("x.model", "not a model"),
              HasSubstr("x.model': this is no model of SentencePiece"));
  EXPECT_THAT(refused("x.what", "?"),
              HasSubstr("is none of the files that hold a tokenizer"));
  EXPECT_THAT(text_of<IoError>([&] { load_tokenizer(folder_ / "nothing"); }),
              HasSubstr("cannot read"));
}

// What is there and cannot be read is not as if it were not there.
TEST_F(Pretrained, SideFilesThatAreNoFilesAreRefused) {
  const std::string tokenizer = "[UNK]\n[CLS]\n[SEP]\na\n";
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json",
                           "tokenizer.json", "vocab.txt"}) {
    const auto refusal = [&] {
      return text_of<IoError>([&] { load_tokenizer(folder_.path()); });
    };
    write_text(folder_ / "vocab.txt", tokenizer);
    std::filesystem::remove(folder_ / name);
    const std::string where =
        "load_tokenizer: cannot read '" + (folder_ / name).string() + "': ";
    std::filesystem::create_directory(folder_ / name);
    EXPECT_EQ(refusal(), where + "it is a folder");
    std::filesystem::remove(folder_ / name);
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    EXPECT_EQ(refusal(), where + "it is not a regular file");
    std::filesystem::remove(folder_ / name);
    std::filesystem::create_symlink("nothing", folder_ / name);
    EXPECT_EQ(refusal(), where + "No such file or directory");
    std::filesystem::remove(folder_ / name);
  }
}

TEST_F(Pretrained, GgufWithoutATokenizerThatIsKnownIsRefused) {
  const auto gguf = [](const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(bytes_of(bytes));
    return text_of<ParseError>([&] { load_tokenizer(file); });
  };
  const std::string where = "GgufFile::parse: ";
  const auto with = [](const char* model) {
    GgufWriter writer;
    writer.text("tokenizer.ggml.model", model)
        .texts("tokenizer.ggml.tokens", {"<unk>", "a", "b"});
    return writer;
  };
  EXPECT_EQ(
      gguf(GgufWriter()),
      where + "the file has no tokenizer: tokenizer.ggml.model is missing");
  EXPECT_EQ(gguf(with("rwkv")),
            where +
                "tokenizer.ggml.model must be gpt2, llama, bert or t5; it "
                "is 'rwkv'");
  EXPECT_EQ(gguf(with("gpt2").text("tokenizer.ggml.pre", "odd")),
            where +
                "tokenizer.ggml.pre names a pre-tokenizer that is not "
                "known: 'odd'");
  EXPECT_EQ(gguf(with("gpt2")),
            where + "the tokenizer needs tokenizer.ggml.merges");
  EXPECT_EQ(gguf(with("gpt2").texts("tokenizer.ggml.merges", {"a b"})),
            where +
                "tokenizer.ggml.merges must join tokens into a token; "
                "number 0 is 'a b'");
  EXPECT_EQ(gguf(with("llama")),
            where + "the tokenizer needs tokenizer.ggml.scores");
  EXPECT_EQ(gguf(with("llama").numbers<float>("tokenizer.ggml.scores", 6, {0})),
            where +
                "tokenizer.ggml.scores must have one element for each of "
                "the 3 tokens; it has 1");
  EXPECT_EQ(gguf(with("bert").integer("tokenizer.ggml.bos_token_id", 7)),
            where +
                "tokenizer.ggml.bos_token_id must be one of the 3 tokens; "
                "it is 7");
}

}  // namespace
}  // namespace regard::text
