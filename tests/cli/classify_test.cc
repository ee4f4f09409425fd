// SPDX-License-Identifier: Apache-2.0
// regard sample, train classify and classify, as users call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run_program.h"
#include "io/files.h"

namespace regard::test {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class ClassifyCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const Ended ended =
        run_regard({"sample", "classify", "--out", folder_ / "reviews"});
    ASSERT_EQ(ended.code, 0) << ended.err;
  }

  Arguments training(const std::string& out, const std::string& updates,
                     const Arguments& more = {}) {
    Arguments all = {"train",     "classify",
                     "--train",   folder_ / "reviews/train.tsv",
                     "--out",     folder_ / out,
                     "--dim",     "16",
                     "--ffn",     "32",
                     "--heads",   "2",
                     "--layers",  "1",
                     "--updates", updates,
                     "--warmup",  "10",
                     "--lr",      "0.01",
                     "--threads", "1"};
    // An option is given once: a later value takes the place of an earlier one.
    for (std::size_t i = 0; i < more.size(); ++i) {
      const auto old = std::find(all.begin(), all.end(), more[i]);
      if (old != all.end() && more[i].starts_with("--")) {
        old[1] = more[++i];
      } else {
        all.push_back(more[i]);
      }
    }
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(ClassifyCommand, LearnsTheSampleAndScoresIt) {
  const Ended trained = run_regard(
      training("model", "200", {"--valid", folder_ / "reviews/valid.tsv"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("training: 4000 texts"),
                                 HasSubstr("held out: 500 texts")));
  EXPECT_THAT(trained.out, AllOf(HasSubstr("loss over updates"),
                                 HasSubstr("Held out (500 texts): accuracy")));
  EXPECT_THAT(read_text(folder_ / "model/README.md"),
              AllOf(HasSubstr("mixed, negative, positive"),
                    HasSubstr("Held out (500 texts)")));
  const Ended scored =
      run_regard({"classify", "--model", folder_ / "model", "--input",
                  folder_ / "reviews/test.tsv", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  // Who always says the most frequent label has 44 %.
  EXPECT_GE(score.at("accuracy").get<double>(), 0.6);
  std::int64_t counted = 0;
  for (const auto& row : score.at("confusion")) {
    for (const std::int64_t count : row) counted += count;
  }
  EXPECT_EQ(counted, 500);
}

TEST_F(ClassifyCommand, AStoppedTrainingGoesOnToTheSameBits) {
  const Arguments half = training("parts", "6", {"--schedule", "constant"});
  ASSERT_EQ(run_regard(half).code, 0);
  Arguments rest = training("parts", "12", {"--schedule", "constant"});
  EXPECT_EQ(run_regard(rest).code, 1);
  rest.push_back("--resume");
  const Ended resumed = run_regard(rest);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after update 6"));
  ASSERT_EQ(run_regard(training("other", "12",
                                {"--schedule", "constant", "--threads", "2"}))
                .code,
            0);
  EXPECT_EQ(read_text(folder_ / "parts/model.safetensors"),
            read_text(folder_ / "other/model.safetensors"));
  const Arguments changed = training(
      "parts", "12",
      {"--schedule", "constant", "--token-dropout", "0.5", "--resume"});
  EXPECT_THAT(run_regard(changed).err, HasSubstr("--token-dropout"));
}

// A rate that changes no weight leaves the model as it was, whatever the texts:
// so it began with these weights, pieces and labels.
TEST_F(ClassifyCommand, TrainsAClassifierFurtherOnOtherTexts) {
  ASSERT_EQ(
      run_regard(training("model", "20",
                          {"--pooling", "attention", "--max-length", "40"}))
          .code,
      0);
  const fs::path model = folder_ / "model";
  write_text(folder_ / "more.tsv",
             "text\tlabel\nnever seen words\tpositive\nnor these\tmixed\n");
  const auto further = [&](const Arguments& more) {
    Arguments all = {
        "train",         "classify", "--train",   folder_ / "more.tsv",
        "--valid-share", "0",        "--out",     folder_ / "on",
        "--updates",     "3",        "--lr",      "1e-30",
        "--warmup",      "0",        "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  };
  const Ended ended = further({"--begin-with", model, "--dropout", "0.5"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* name : {"model.safetensors", "vocabulary.txt"}) {
    EXPECT_TRUE(read_text(folder_ / "on" / name) == read_text(model / name))
        << name;
  }
  const auto config =
      nlohmann::json::parse(read_text(folder_ / "on/config.json"));
  const auto old = nlohmann::json::parse(read_text(model / "config.json"));
  EXPECT_EQ(config.at("labels"), old.at("labels"));  // all three of them
  EXPECT_EQ(config.at("encoder").at("max_length"), 40);
  EXPECT_EQ(config.at("encoder").at("pooling"), "attention");
  EXPECT_THAT(
      read_text(folder_ / "on/README.md"),
      AllOf(HasSubstr("pieces (of model)"), HasSubstr("pooling attention")));

  // To go on means to have begun with the same.
  const Arguments same = {"--begin-with", model, "--dropout", "0.5",
                          "--resume"};
  EXPECT_EQ(further(same).code, 0);
  fs::remove_all(model);
  ASSERT_EQ(run_regard(training("model", "20",
                                {"--pooling", "attention", "--max-length", "40",
                                 "--seed", "9"}))
                .code,
            0);
  EXPECT_THAT(further(same).err, HasSubstr("--begin-with"));

  write_text(folder_ / "more.tsv", "text\tlabel\na\tmixed\nb\tstrange\n");
  fs::remove_all(folder_ / "on");
  EXPECT_THAT(further({"--begin-with", model}).err,
              HasSubstr("the label 'strange' of line 3 is none of the 3"));
  EXPECT_FALSE(fs::exists(folder_ / "on"));
  // Weights of another size are refused, and not drawn anew.
  auto wider = nlohmann::json::parse(read_text(model / "config.json"));
  wider["encoder"]["layers"] = 2;
  write_text(model / "config.json", wider.dump());
  EXPECT_THAT(further({"--begin-with", model}).err,
              HasSubstr("model' do not fit each other"));
  for (const char* option : {"--dim", "--vocab", "--from", "--pooling"}) {
    const std::string value =
        std::string(option) == "--pooling" ? "mean" : "16";
    const Ended refused = further({"--begin-with", model, option, value});
    EXPECT_EQ(refused.code, 2) << option;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("--begin-with"), HasSubstr(option)));
  }
}

TEST_F(ClassifyCommand, NamesTheLineThatIsWrongAndTrainsNothing) {
  write_text(folder_ / "bad.tsv", "text\tlabel\na\tx\nb\n");
  const Ended ended =
      run_regard({"train", "classify", "--train", folder_ / "bad.tsv", "--out",
                  folder_ / "model"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("bad.tsv', line 3: there must be 2 fields"));
  EXPECT_FALSE(fs::exists(folder_ / "model"));
  write_text(folder_ / "one.csv", "text,label\na,x\nb,x\n");
  EXPECT_THAT(run_regard({"train", "classify", "--train", folder_ / "one.csv",
                          "--out", folder_ / "model"})
                  .err,
              HasSubstr("there must be at least two labels to tell apart"));
  write_text(folder_ / "valid.tsv", "text\tlabel\na\tpositive\nb\tstrange\n");
  EXPECT_THAT(
      run_regard(training("model", "50", {"--valid", folder_ / "valid.tsv"}))
          .err,
      HasSubstr("the label 'strange' of line 3 is none of the 3"));
  EXPECT_FALSE(fs::exists(folder_ / "model"));
}

TEST_F(ClassifyCommand, RefusesCommandLinesThatMakeNoSense) {
  const auto usage = [](const Arguments& arguments, const char* message) {
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
  };
  usage(training("m", "50", {"--heads", "3"}), "--heads must divide --dim");
  usage(training("m", "50", {"--pieces", "bytes", "--vocab", "99"}),
        "--vocab does not go with --pieces bytes");
  usage(training("m", "50", {"--pieces", "bpe", "--keep-case"}),
        "--min-count and --keep-case go with --pieces words");
  usage(training("m", "50", {"--coverage", "0.99"}),
        "--coverage goes with --pieces unigram and bpe");
  usage(training("m", "10"), "a cosine must end after its --warmup; --updates");
  usage(training("m", "0", {"--schedule", "constant"}),
        "--updates or --epochs must set an end");
  usage({"classify", "--input", "a", "b"}, "give texts or --input, not both");
  usage({"classify", "--score", "a"}, "--score goes with --input");
  usage({"sample", "juggle", "--out", folder_ / "x"}, "classify");
  const Ended again =
      run_regard({"sample", "classify", "--out", folder_ / "reviews"});
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("is there already"));
}

TEST(SampleCommand, WritesListOpsOfTheLengthsAskedFor) {
  const TemporaryFolder folder;
  const Ended ended = run_regard({"sample", "listops", "--out", folder / "l",
                                  "--examples", "30", "--min-length", "20",
                                  "--max-length", "40", "--no-brackets"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::string text = read_text(folder / "l/train.tsv");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 31);
  EXPECT_THAT(text, Not(HasSubstr("]")));
  const Ended other = run_regard(
      {"sample", "classify", "--out", folder / "r", "--no-brackets"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("--no-brackets goes with listops; the task is "
                        "classify"));
  EXPECT_FALSE(fs::exists(folder / "r"));
}

TEST(BundledClassifier, AnswersAtOnceAndSaysWhatItIs) {
  const Ended good = run_regard({"classify", "The food was wonderful."});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, ::testing::StartsWith("positive\t"));
  EXPECT_THAT(good.err,
              HasSubstr("the tiny bundled model, trained on generated"));
  EXPECT_THAT(run_regard({"classify", "The food was not wonderful."}).out,
              ::testing::StartsWith("negative\t"));
  EXPECT_THAT(run_regard({"classify",
                          "I loved the view, but the bed was "
                          "terrible."})
                  .out,
              ::testing::StartsWith("mixed\t"));
  std::uintmax_t bytes = 0;
  for (const auto& entry :
       fs::directory_iterator(REGARD_SOURCE_DIR "/models/reviews")) {
    bytes += entry.file_size();
  }
  EXPECT_LE(bytes, 300000u);
}

TEST(BundledClassifier, ExplainsInATableAndInJson) {
  const Ended table =
      run_regard({"classify", "--explain", "The soup was far from bad."});
  EXPECT_THAT(table.out, AllOf(HasSubstr("occlusion"), HasSubstr("rollout"),
                               HasSubstr("  far")));
  const Ended json = run_regard({"classify", "--json", "--top", "2",
                                 "--explain", "The soup was far from bad."});
  const auto line = nlohmann::json::parse(json.out);
  EXPECT_EQ(line.at("labels").size(), 2u);
  EXPECT_EQ(line.at("words").at(3).at("word"), "far");
}

TEST(BundledClassifier, TakesEveryTextAsItIsTyped) {
  const Arguments texts = {"[a,b]", "++", "[]", "[a].[b]"};
  Arguments all = {"classify", "--json"};
  all.insert(all.end(), texts.begin(), texts.end());
  std::istringstream lines(run_regard(all).out);
  Arguments read;
  for (std::string line; std::getline(lines, line);) {
    read.push_back(nlohmann::json::parse(line).at("text"));
  }
  EXPECT_EQ(read, texts);
}

TEST(BundledClassifier, RefusesWhatIsNoText) {
  const Ended blank = run_regard({"classify", ""});
  EXPECT_EQ(blank.code, 1);
  EXPECT_EQ(blank.err, "regard: classify: a text must not be blank; got ''\n");
  const Ended folder = run_regard({"classify"}, {}, "/");
  EXPECT_EQ(folder.code, 1);
  EXPECT_THAT(folder.err, HasSubstr("cannot read 'standard input'"));
  EXPECT_THAT(folder.out, IsEmpty());
}

TEST(BundledClassifier, ReadsLinesAndTables) {
  const TemporaryFolder folder;
  write_text(folder / "a.txt", "The food was great.\nI hated the film.\n");
  write_text(folder / "a.csv",
             "id,text\n1,The food was great.\n2,\"I hated "
             "the film.\"\n");
  const Ended lines = run_regard({"classify", "--input", folder / "a.txt"});
  const Ended table = run_regard({"classify", "--input", folder / "a.csv"});
  EXPECT_EQ(lines.code, 0);
  EXPECT_EQ(lines.out, table.out);
  EXPECT_THAT(lines.out, HasSubstr("\nnegative\t"));
}

}  // namespace
}  // namespace regard::test
