// SPDX-License-Identifier: Apache-2.0
// regard sample answer, train answer and answer, as users call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run_program.h"
#include "io/files.h"

namespace regard::test {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// A story may come from anybody.
TEST(AnswerCommand, LetsNoTextCommandTheTerminal) {
  const TemporaryFolder folder;
  write_text(folder / "story.txt",
             "Ada went to the \x1b]0;owned\x07 garden.\n"
             "Ben went to the \u009b31m kitchen.\n");
  const Ended ended = run_on_terminal(
      {"answer", "--context", folder / "story.txt", "Where is Ada?"}, 80,
      {{"LANG", "C.UTF-8"}});
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("?]0;owned?"), HasSubstr("?31m")));
  for (const char* control : {"\x1b", "\x07", "\u009b"}) {
    EXPECT_THAT(ended.out, ::testing::Not(HasSubstr(control)));
  }
}

TEST(AnswerCommand, LearnsTheSampleAndScoresIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_regard({"sample", "answer", "--out", folder / "stories"}).code,
            0);
  const Ended trained = run_regard({"train",     "answer",
                                    "--train",   folder / "stories/train.tsv",
                                    "--out",     folder / "model",
                                    "--dim",     "16",
                                    "--ffn",     "32",
                                    "--heads",   "2",
                                    "--layers",  "1",
                                    "--updates", "100",
                                    "--warmup",  "20",
                                    "--lr",      "0.01",
                                    "--threads", "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out,
              AllOf(HasSubstr("loss over updates"), HasSubstr("questions): ")));
  const Ended scored =
      run_regard({"answer", "--model", folder / "model", "--input",
                  folder / "stories/test.tsv", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  EXPECT_EQ(score.at("questions"), 500);
  // Who knows which answers go with which question, and no story, has 20 %.
  EXPECT_GE(score.at("accuracy").get<double>(), 0.5);
  write_text(folder / "story.txt", "Ada went to the park. Ben took the key.\n");
  const Ended asked =
      run_regard({"answer", "--model", folder / "model", "--context",
                  folder / "story.txt", "Where is Ada?", "Who has the key?"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, AllOf(HasSubstr("  Ada went to the park.\n"),
                               HasSubstr("  Ben took the key.\n")));
}

TEST(AnswerCommand, LearnsToQuoteFromTheSampleOfRegisters) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_regard({"sample", "spans", "--out", folder / "reg"}).code, 0);
  const Ended trained = run_regard({"train",          "answer",
                                    "--answers",      "spans",
                                    "--train",        folder / "reg/train.tsv",
                                    "--valid-share",  "0",
                                    "--out",          folder / "model",
                                    "--max-length",   "96",
                                    "--overlap",      "24",
                                    "--layers",       "2",
                                    "--dim",          "32",
                                    "--ffn",          "64",
                                    "--batch-tokens", "2048",
                                    "--lr",           "0.005",
                                    "--warmup",       "30",
                                    "--updates",      "250",
                                    "--threads",      "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ended scored =
      run_regard({"answer", "--model", folder / "model", "--input",
                  folder / "reg/test.tsv", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  EXPECT_EQ(score.at("questions"), 250);
  // Who knows what is asked for, and of nobody, has a sixth.
  EXPECT_GE(score.at("exact_match").get<double>(), 0.6);
  EXPECT_GE(score.at("f1"), score.at("exact_match"));
  write_text(folder / "text.txt",
             "Ada Holt works as a baker these days. Ben Dahl works as a judge "
             "these days.\n");
  const Ended asked =
      run_regard({"answer", "--model", folder / "model", "--context",
                  folder / "text.txt", "What does Ben Dahl work as?"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, AllOf(HasSubstr("\t0."), HasSubstr("\n  at "),
                               HasSubstr("["), HasSubstr("]")));
  const Ended choice = run_regard({"answer", "--model", folder / "model",
                                   "--context", folder / "text.txt", "--choice",
                                   "a", "--choice", "b", "Who?"});
  EXPECT_EQ(choice.code, 2);
  EXPECT_THAT(choice.err, HasSubstr("--choice needs a model that was trained "
                                    "with choices"));
}

TEST(AnswerCommand, LearnsToChooseFromTheSampleOfRegisters) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_regard({"sample", "choices", "--out", folder / "reg"}).code, 0);
  const Ended trained =
      run_regard({"train",          "answer",
                  "--answers",      "choices",
                  "--train",        folder / "reg/train.jsonl",
                  "--valid-share",  "0",
                  "--out",          folder / "model",
                  "--max-length",   "64",
                  "--layers",       "2",
                  "--dim",          "32",
                  "--ffn",          "64",
                  "--batch-tokens", "3072",
                  "--lr",           "0.005",
                  "--warmup",       "30",
                  "--updates",      "250",
                  "--threads",      "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ended scored =
      run_regard({"answer", "--model", folder / "model", "--input",
                  folder / "reg/test.jsonl", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  EXPECT_EQ(score.at("questions"), 250);
  // By chance: a quarter.
  EXPECT_GE(score.at("accuracy").get<double>(), 0.6);
  write_text(folder / "text.txt", "Ada Holt works as a baker these days.\n");
  const Ended asked =
      run_regard({"answer", "--model", folder / "model", "--context",
                  folder / "text.txt", "--choice", "baker", "--choice", "judge",
                  "What does Ada Holt work as?"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, AllOf(HasSubstr("  baker\n"), HasSubstr("  judge\n")));
  const Ended one =
      run_regard({"answer", "--model", folder / "model", "--context",
                  folder / "text.txt", "--choice", "baker", "What?"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("give at least two --choice"));
}

TEST(BundledAnswerer, AnswersAtOnceAndSaysWhatItIs) {
  const TemporaryFolder folder;
  write_text(folder / "story.txt",
             "Ada went to the park. Ben took the key. Ada ran to the library.\n"
             "Ben gave the key to Emma.\n");
  const Ended asked =
      run_regard({"answer", "--json", "--context", folder / "story.txt",
                  "Where is Ada?", "Who has the key?"});
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.err,
              HasSubstr("the tiny bundled model, trained on generated"));
  std::istringstream lines(asked.out);
  for (const char* answer : {"library", "Emma"}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const auto said = nlohmann::json::parse(line);
    EXPECT_EQ(said.at("answer"), answer);
    EXPECT_EQ(said.at("sentences").at(3).at("text"),
              "Ben gave the key to Emma.");
  }
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           REGARD_SOURCE_DIR "/models/stories")) {
    bytes += entry.file_size();
  }
  EXPECT_LE(bytes, 300000u);
  write_text(folder / "blank.txt", "\n");
  const Ended blank =
      run_regard({"answer", "--context", folder / "blank.txt", "Where?"});
  EXPECT_EQ(blank.code, 1);
  EXPECT_THAT(blank.err, HasSubstr("blank.txt' is blank"));
}

TEST(AnswerCommand, RefusesCommandLinesThatMakeNoSense) {
  for (const Arguments& arguments :
       {Arguments{"answer", "Where?"}, Arguments{"answer", "--context", "a"},
        Arguments{"answer", "--input", "a", "--context", "b", "Where?"}}) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err,
                HasSubstr("give --context and questions, or --input"));
  }
  const Ended other =
      run_regard({"train", "answer", "--answers", "spans", "--train", "a.tsv",
                  "--out", "m", "--max-words", "3"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("--max-words does not go with --answers spans"));
  const TemporaryFolder folder;
  write_text(folder / "b.txt",
             "1 Sun.\n2 What?\tsun\n1 Moon.\n2 What?\tmoon\n");
  const Ended support =
      run_regard({"train", "answer", "--train", folder / "b.txt", "--support",
                  "--valid-share", "0", "--out", folder / "m"});
  EXPECT_EQ(support.code, 1);
  EXPECT_THAT(support.err, HasSubstr("--support needs the numbers of "
                                     "supporting lines"));
  write_text(folder / "a.txt", "1 Sun.\nMoon.\n");
  const Ended ended = run_regard(
      {"train", "answer", "--train", folder / "a.txt", "--out", folder / "m"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("a.txt', line 2: a line must begin with"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
}

}  // namespace
}  // namespace regard::test
