// SPDX-License-Identifier: Apache-2.0
// regard generate, as a shell sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "support/encoder_folder.h"
#include "support/model_files.h"

namespace regard::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class Generate : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder())) {
      GTEST_SKIP() << folder() << " is not there";
    }
  }
  static std::filesystem::path folder() {
    return std::filesystem::path(REGARD_SOURCE_DIR) /
           "../shared/models/stories260K";
  }
  static Arguments with(const Arguments& more, bool gguf = false) {
    Arguments all = {
        "generate", "--model",
        folder() / (gguf ? "stories260K.f32.gguf" : "stories260K.bin")};
    if (!gguf) {
      all.insert(all.end(), {"--tokenizer", folder() / "tok512.bin"});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Generate, WritesTheKnownStoryAndNothingElse) {
  const std::string expected =
      testing::read_text(folder() / "expected_greedy_n200.txt");
  const Arguments more = {"--max-tokens", "200", "--temperature", "0"};
  for (const bool gguf : {false, true}) {
    const Ended ended = run_regard(with(more, gguf));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, expected);
    EXPECT_THAT(ended.err,
                MatchesRegex("regard: 200 tokens, [0-9]+ tokens/s; prompts: 1 "
                             "tokens, [0-9]+ tokens/s\n"));
  }
}

TEST_F(Generate, SeveralTextsAreThoseOfEachAlone) {
  const Arguments flags = {"--max-tokens", "40",  "--temperature", "0.8",
                           "--top-p",      "0.9", "--top-k",       "50",
                           "--seed",       "7"};
  const auto alone = [&](const std::string& prompt) {
    Arguments more = flags;
    more.insert(more.end(), {"--prompt", prompt});
    const Ended ended = run_regard(with(more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out.substr(0, prompt.size()), prompt);
    return ended.out;
  };
  const std::string expected =
      alone("One day") + "\n" + alone("The cat") + "\n" + alone("");
  for (const std::string cache : {"contiguous", "paged"}) {
    for (const std::string threads : {"1", "2"}) {
      Arguments more = flags;
      more.insert(more.end(),
                  {"--prompt", "One day", "--prompt", "The cat", "--prompt", "",
                   "--cache", cache, "--threads", threads});
      EXPECT_EQ(run_regard(with(more)).out, expected);
    }
  }
}

TEST_F(Generate, StreamsToATerminal) {
  const Ended ended = run_on_terminal(
      with({"--max-tokens", "10", "--prompt", "One\x1b[2J day"}), 80, {});
  EXPECT_EQ(ended.code, 0);
  // What would move the cursor does not reach the terminal.
  EXPECT_THAT(ended.out, HasSubstr("One?[2J day"));
  EXPECT_THAT(ended.out, Not(HasSubstr("\x1b")));
}

TEST_F(Generate, NamesTheInputThatIsAtFault) {
  const testing::TemporaryFolder temporary;
  const auto refused = [](const Arguments& arguments) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_THAT(ended.out, IsEmpty());
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    return ended.err;
  };
  EXPECT_EQ(refused({"generate", "--model", "/no/such/file"}),
            "regard: cannot read '/no/such/file': No such file or directory\n");
  EXPECT_THAT(refused({"generate", "--model", folder() / "stories260K.bin"}),
              HasSubstr("has no tokenizer inside; a file for it is needed"));
  const std::string none =
      "' is no language model: it is neither GGUF nor a model of llama2.c\n";
  testing::write_text(temporary / "a.txt", std::string(500, 'a'));
  testing::write_text(temporary / "empty", "");
  testing::write_text(
      temporary / "a.png",
      std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) + std::string(50, '\0'));
  for (const std::filesystem::path& path :
       {folder() / "tok512.bin", temporary / "a.txt", temporary / "empty",
        temporary / "a.png"}) {
    EXPECT_EQ(refused({"generate", "--model", path}),
              "regard: '" + path.string() + none);
  }
  EXPECT_THAT(refused({"generate", "--model", temporary.path()}),
              HasSubstr("cannot read '" +
                        (temporary.path() / "config.json").string() + "'"));
  EXPECT_THAT(refused({"generate", "--model", folder() / "stories260K.bin",
                       "--tokenizer", temporary / "a.png"}),
              HasSubstr("a.png' is none of the files that hold a tokenizer"));
  EXPECT_THAT(refused({"generate", "--model", folder() / "stories260K.bin",
                       "--tokenizer", "/no/such/file"}),
              HasSubstr("cannot read '/no/such/file'"));
  const std::string whole =
      testing::read_text(folder() / "stories260K.f32.gguf");
  testing::write_text(temporary / "cut.gguf", whole.substr(0, 500000));
  EXPECT_THAT(refused({"generate", "--model", temporary / "cut.gguf"}),
              HasSubstr("the file may have been cut off"));
  testing::write_text(
      temporary / "quantized.gguf",
      GgufWriter().description("blk.0.attn_q.weight", {256}, 10, 0).bytes());
  EXPECT_THAT(refused({"generate", "--model", temporary / "quantized.gguf"}),
              HasSubstr("Q5_K and Q6_K are read; 'blk.0.attn_q.weight' is "
                        "Q2_K"));
  EXPECT_THAT(refused(with({"--prompt", std::string(5000, 'x')})),
              HasSubstr("the model reads at most 512 tokens; prompt 0 has "));
}

TEST(GenerateUsage, IsExplainedWhereItIsWrong) {
  const auto refused = [](const Arguments& more) {
    Arguments arguments = {"generate"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.out, IsEmpty());
    EXPECT_THAT(ended.err, HasSubstr("(see regard generate --help)"));
    return ended.err;
  };
  EXPECT_THAT(refused({}), HasSubstr("--model"));
  for (const Arguments& wrong :
       {Arguments{"--temperature", "-1"}, Arguments{"--top-p", "0"},
        Arguments{"--top-p", "1.5"}, Arguments{"--top-k", "-1"},
        Arguments{"--max-tokens", "-3"}, Arguments{"--cache", "ring"},
        Arguments{"--threads", "0"}, Arguments{"--seed", "x"},
        Arguments{"--seed", "-1"}, Arguments{"--temperature", "nan"},
        Arguments{"--max-tokens", "99999999999999999999"},
        Arguments{"--top-k", "3"}, Arguments{"--top-p", "0.5"}}) {
    Arguments arguments = {"--model", "m"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_THAT(refused(arguments), HasSubstr(wrong[0]));
  }
}

TEST(GenerateUsage, BoundsAreTold) {
  const Ended ended =
      run_regard({"generate", "--model", "m", "--temperature", "nan"});
  EXPECT_EQ(ended.err,
            "regard: --temperature: must be a number from 0 to 1000000; got "
            "'nan' (see regard generate --help)\n");
  EXPECT_THAT(run_regard({"generate", "--model", "m", "--top-k", "3"}).err,
              HasSubstr("--top-k and --top-p choose what a --temperature above "
                        "0 samples from"));
}

TEST(GenerateUsage, HelpTeachesByExample) {
  const Ended ended = run_regard({"generate", "--help"});
  EXPECT_EQ(ended.code, 0);
  for (const char* part :
       {"--model", "--prompt", "--temperature", "--top-p", "--top-k", "--seed",
        "--cache", "--threads", "Examples:", "stories260K.bin"}) {
    EXPECT_THAT(ended.out, HasSubstr(part));
  }
}

class QuantizeCommand : public Generate {};

TEST_F(QuantizeCommand, MakesAFileThatTellsTheSameStory) {
  const testing::TemporaryFolder made;
  const std::string model = folder() / "stories260K.f32.gguf";
  const std::string out = made.path() / "small.gguf";
  const std::string text = made.path() / "text.txt";
  testing::write_text(
      text, testing::read_text(folder() / "expected_greedy_n200.txt"));
  const Ended ended = run_regard(
      {"quantize", model, "--out", out, "--measure", text, "--part", "64"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("\nblk.4 "), HasSubstr("\nall "),
                               HasSubstr("perplexity of ")));
  const auto json = nlohmann::json::parse(
      run_regard({"quantize", model, "--to", "int8", "--out", out, "--measure",
                  text, "--part", "64", "--json"})
          .out);
  EXPECT_GT(json.at("error").get<double>(), 0);
  EXPECT_LT(json.at("error").get<double>(), 0.01);
  EXPECT_LT(json.at("bytes_after"), json.at("bytes_before"));
  EXPECT_NEAR(json.at("perplexity_after").get<double>() /
                  json.at("perplexity_before").get<double>(),
              1, 0.02);
  const Ended story =
      run_regard({"generate", "--model", out, "--weights", "as-stored",
                  "--max-tokens", "20", "--temperature", "0"});
  EXPECT_THAT(testing::read_text(folder() / "expected_greedy_n200.txt"),
              ::testing::StartsWith(story.out.substr(0, 30)));
}

TEST_F(QuantizeCommand, WritesTheFolderOfAnEncoder) {
  const testing::TemporaryFolder made;
  const std::string model = made.path() / "bert";
  const std::string out = made.path() / "small", text = made.path() / "lines";
  testing::write_encoder_folder(model, {.width = 64, .inner = 128});
  testing::write_text(
      text, "\xEF\xBB\xBFthe cat sat.\r\n\r\n \na dog\r\nthe mat\r\n");
  const auto json = nlohmann::json::parse(
      run_regard({"quantize", model, "--out", out, "--json"}).out);
  EXPECT_LT(json.at("bytes_after"), json.at("bytes_before"));
  EXPECT_GT(json.at("layers").at("encoder.layer.1").get<double>(), 0);
  EXPECT_EQ(json.at("layers").at("embeddings"), 0);
  const Ended twice = run_regard({"quantize", model, "--out", out});
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.err, HasSubstr("the new folder must not be there yet"));
  std::filesystem::remove_all(out);
  const Ended ended =
      run_regard({"quantize", model, "--out", out, "--measure", text});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("\nencoder.layer.0 "),
                               HasSubstr("3 lines of "), HasSubstr("0.999")));
  std::filesystem::remove_all(out);
  const auto refused = [&](const std::string& lines) {
    testing::write_text(text, lines);
    const Ended again =
        run_regard({"quantize", model, "--out", out, "--measure", text});
    EXPECT_NE(again.code, 0);
    return again.err;
  };
  EXPECT_THAT(refused("one\r\n\r\n"),
              HasSubstr("at least two lines that are not blank"));
  EXPECT_THAT(refused("one\ntwo \xFF\n"),
              HasSubstr("must be UTF-8; line 2 is not"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(QuantizeCommand, SaysWhatItRefuses) {
  const testing::TemporaryFolder made;
  const std::string out = made.path() / "x.gguf";
  const std::string model = folder() / "stories260K.f32.gguf";
  EXPECT_EQ(run_regard({"quantize", model}).code, 2);
  EXPECT_EQ(run_regard({"quantize", model, "--to", "int3", "--out", out}).code,
            2);
  const Ended other =
      run_regard({"quantize", folder() / "stories260K.bin", "--out", out});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("a GGUF file begins with the letters GGUF"));
  const Ended no_text = run_regard(
      {"quantize", model, "--out", out, "--measure", made.path() / "none"});
  EXPECT_EQ(no_text.code, 1);
  EXPECT_THAT(no_text.err, HasSubstr("none"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace regard::test
