// SPDX-License-Identifier: Apache-2.0
// regard sample summarize, train summarize and summarize, as users call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "io/files.h"

namespace regard::test {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;

// A file of lines that all say the same kind of thing.
void write_plans(const std::string& path, int count) {
  const std::vector<std::string> who = {"Ada", "Ben", "Eva", "Tom"};
  const std::vector<std::string> what = {"tea", "soup", "rice"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string& name = who[static_cast<std::size_t>(i % 4)];
    const std::string& food = what[static_cast<std::size_t>(i / 4 % 3)];
    const std::string day = std::to_string(i / 12);
    text += "{\"text\": \"" + name + ": hello " + day + "\\n" + name +
            ": I want " + food + "\", \"summary\": \"" + name + " wants " +
            food + ".\"}\n";
  }
  write_text(path, text);
}

Arguments training(const TemporaryFolder& folder, const Arguments& more,
                   const std::string& pieces = "bytes") {
  Arguments all = {"train",
                   "summarize",
                   "--train",
                   folder / "plans.jsonl",
                   "--pieces",
                   pieces,
                   "--dim",
                   "32",
                   "--heads",
                   "2",
                   "--ffn",
                   "64",
                   "--layers",
                   "1",
                   "--dropout",
                   "0",
                   "--decoder-layers",
                   "1",
                   "--lr",
                   "0.01",
                   "--threads",
                   "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

double rouge1(const std::string& json) {
  return nlohmann::json::parse(json).at("rouge1").at("f1").get<double>();
}

TEST(SummarizeCommand, LearnsTheSampleAndScoresIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(
      run_regard({"sample", "summarize", "--out", folder / "dialogues"}).code,
      0);
  const Ended trained = run_regard({"train",
                                    "summarize",
                                    "--train",
                                    folder / "dialogues/train.jsonl",
                                    "--valid",
                                    folder / "dialogues/valid.jsonl",
                                    "--out",
                                    folder / "model",
                                    "--pieces",
                                    "words",
                                    "--dim",
                                    "48",
                                    "--heads",
                                    "4",
                                    "--ffn",
                                    "96",
                                    "--layers",
                                    "1",
                                    "--decoder-layers",
                                    "1",
                                    "--dropout",
                                    "0",
                                    "--updates",
                                    "100",
                                    "--warmup",
                                    "20",
                                    "--lr",
                                    "0.01",
                                    "--smoothing",
                                    "0",
                                    "--threads",
                                    "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out,
              AllOf(HasSubstr("loss over updates"),
                    HasSubstr("Held out (300 texts, greedy): ROUGE-1 ")));
  const Ended scored =
      run_regard({"summarize", "--model", folder / "model", "--input",
                  folder / "dialogues/test.jsonl", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  EXPECT_GE(rouge1(scored.out), 40);
}

TEST(SummarizeCommand, ResumesToTheSameBits) {
  const TemporaryFolder folder;
  write_plans(folder / "plans.jsonl", 120);
  const Arguments end = {"--warmup", "5", "--schedule", "constant"};
  const auto run = [&](const std::string& out, const std::string& updates,
                       bool resume) {
    Arguments all = training(folder, end);
    all.insert(all.end(), {"--out", folder / out, "--updates", updates});
    if (resume) all.push_back("--resume");
    const Ended ended = run_regard(all);
    ASSERT_EQ(ended.code, 0) << ended.err;
  };
  run("once", "12", false);
  run("twice", "7", false);
  run("twice", "12", true);
  EXPECT_EQ(read_text(folder / "once/model.safetensors"),
            read_text(folder / "twice/model.safetensors"));
  EXPECT_THAT(read_text(folder / "once/config.json"),
              AllOf(HasSubstr("regard summarizer"), HasSubstr("copy")));
  EXPECT_THAT(read_text(folder / "once/README.md"),
              HasSubstr("one more head that copies"));
}

TEST(SummarizeCommand, ReadsFilesAndTables) {
  const TemporaryFolder folder;
  write_plans(folder / "plans.jsonl", 48);
  const Ended trained =
      run_regard(training(folder,
                          {"--out", folder / "model", "--updates", "2",
                           "--warmup", "1", "--no-copy"},
                          "words"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(read_text(folder / "model/config.json"), Not(HasSubstr("copy")));
  write_text(folder / "one.txt", "Ada: hello\nAda: I want tea\n");
  write_text(folder / "two.txt", "Ben: hello\n");
  const auto run = [&](const Arguments& more) {
    Arguments command = {"summarize", "--model", folder / "model",
                         "--max-tokens", "20"};
    command.insert(command.end(), more.begin(), more.end());
    return run_regard(command);
  };
  const Ended both = run({folder / "one.txt", folder / "two.txt"});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.out, AllOf(HasSubstr("one.txt\t"), HasSubstr("two.txt\t")));
  EXPECT_THAT(both.err, IsEmpty());
  const Ended json = run({"--json", folder / "one.txt"});
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out).at("file").get<std::string>(),
            (folder / "one.txt").string());
  const Ended table = run({"--input", folder / "plans.jsonl"});
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 48);
}

TEST(SummarizeCommand, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  write_plans(folder / "plans.jsonl", 24);
  write_text(folder / "blank.txt", "\n \n");
  write_text(folder / "long.txt", std::string(200, 'a') + "\n");
  ASSERT_EQ(
      run_regard(training(folder, {"--out", folder / "model", "--updates", "1",
                                   "--warmup", "0", "--max-length", "80"}))
          .code,
      0);
  const auto refused = [&](int code, const Arguments& more) {
    Arguments command = {"summarize"};
    command.insert(command.end(), more.begin(), more.end());
    const Ended ended = run_regard(command);
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_THAT(ended.out, IsEmpty());
    return ended.err;
  };
  const std::string model = folder / "model";
  EXPECT_THAT(refused(2, {"--model", model}),
              HasSubstr("give files or --input"));
  EXPECT_THAT(refused(2, {"--model", model, "--score", folder / "blank.txt"}),
              HasSubstr("--score goes with --input"));
  EXPECT_THAT(refused(2, {"--model", model, "--instruction", "Be short.",
                          folder / "long.txt"}),
              HasSubstr("go with a language model"));
  EXPECT_THAT(refused(1, {"--model", model, folder / "blank.txt"}),
              HasSubstr("blank.txt' is blank"));
  EXPECT_THAT(refused(1, {"--model", model, folder / "long.txt"}),
              HasSubstr("may have at most 81 pieces; sentence 1 has 201"));
  write_text(folder / "bad.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(refused(1, {"--model", model, "--input", folder / "bad.jsonl",
                          "--score"}),
              HasSubstr("line 1"));
}

TEST(BundledSummarizer, SummarizesAtOnceAndSaysWhatItIs) {
  const Ended said =
      run_regard({"summarize", REGARD_SOURCE_DIR "/examples/dialogue.txt"});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.err,
              HasSubstr("the tiny bundled model, trained on generated"));
  EXPECT_EQ(said.out,
            "Haris and Habedor will go to the market on Wednesday, and Haris "
            "will bring the dog.\n");
  // Twice "Haris", twice "will": not where that is forbidden.
  const Ended unique = run_regard({"summarize", "--no-repeat-ngram", "1",
                                   REGARD_SOURCE_DIR "/examples/dialogue.txt"});
  ASSERT_EQ(unique.code, 0) << unique.err;
  EXPECT_THAT(unique.out, HasSubstr("will"));
  EXPECT_EQ(unique.out.find("will"), unique.out.rfind("will")) << unique.out;
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           REGARD_SOURCE_DIR "/models/dialogues")) {
    bytes += entry.file_size();
  }
  EXPECT_LE(bytes, 300u * 1024);
}

}  // namespace
}  // namespace regard::test
