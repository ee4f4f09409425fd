// SPDX-License-Identifier: Apache-2.0
// regard quantize on models that were trained here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "io/files.h"
#include "regard/io/safetensors.h"
#include "view/small_translator.h"

namespace regard::test {
namespace {

namespace fs = std::filesystem;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::HasSubstr;

const fs::path kModels = fs::path(REGARD_SOURCE_DIR) / "models";

// Two that a recommender knows.
std::string first_items() {
  std::ifstream items(kModels / "series" / "items.txt");
  std::string first, second;
  std::getline(items, first);
  std::getline(items, second);
  return first + "," + second;
}

class QuantizeTrained : public ::testing::Test {
 protected:
  Ended quantize(const std::string& model, const std::string& to,
                 const std::string& measure = {}) {
    std::vector<std::string> all = {
        "quantize", kModels / model, "--to", to, "--out", out_, "--json"};
    if (!measure.empty()) {
      write_text(folder_ / "measure.tsv", measure);
      all.insert(all.end(), {"--measure", folder_ / "measure.tsv"});
    }
    return run_regard(all);
  }
  std::string translated(const std::string& model, const std::string& weights) {
    const Ended ended = run_regard({"translate", "--model", model, "--to", "zh",
                                    "--weights", weights, "Good morning."});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out";
};

TEST_F(QuantizeTrained, ATranslatorComputesWithWhatItsFileHas) {
  for (const char* to : {"int8", "int4"}) {
    fs::remove_all(out_);
    const Ended ended = quantize(
        "en-zh", to,
        "Good morning.\t\xe6\x97\xa9\xe4\xb8\x8a\xe5\xa5\xbd\xe3\x80\x82\nI "
        "know.\t\xe6\x88\x91\xe7\x9f\xa5\xe9\x81\x93\xe3\x80\x82\n");
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto report = nlohmann::json::parse(ended.out);
    EXPECT_GT(report["bleu_before"], 20);
    EXPECT_GT(report["bleu_after"], 20);
    EXPECT_GT(report["layers"]["decoder.layers.2"], 0.001);
    EXPECT_LT(report["bytes_after"], 0.8 * double(report["bytes_before"]));
    EXPECT_EQ(translated(out_, "as-stored"), translated(out_, to));
    EXPECT_FALSE(translated(out_, "float32").empty());
  }
}

TEST_F(QuantizeTrained, AClassifierIsMeasuredByItsAccuracy) {
  const Ended ended =
      quantize("reviews", "int8",
               "text\tlabel\nThe film was wonderful.\tpositive\n"
               "The film was wonderful.\tnegative\n"
               "The film was wonderful.\tpositive\n"
               "The film was wonderful.\tpositive\n");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto report = nlohmann::json::parse(ended.out);
  EXPECT_EQ(report["accuracy_before"], 75);
  EXPECT_EQ(report["accuracy_after"], 75);
  EXPECT_EQ(SafetensorsFile::open(fs::path(out_) / "model.safetensors")
                .dtype("layers.0.linear1.weight"),
            DType::kInt8);
  const Ended said =
      run_regard({"classify", "--model", out_, "The film was wonderful."});
  EXPECT_THAT(said.out, HasSubstr("positive")) << said.err;
}

// The commands of all other tasks, without --model and --weights.
struct TaskCommand {
  std::string model;  // that comes with the program
  std::vector<std::string> words;
};
std::vector<TaskCommand> task_commands() {
  const fs::path examples = fs::path(REGARD_SOURCE_DIR) / "examples";
  return {{"reviews", {"classify", "The soup was cold.", "--json"}},
          {"stories",
           {"answer", "--context", examples / "story.txt", "Where is Ada?",
            "--json"}},
          {"shapes", {"caption", examples / "shapes.png", "--json"}},
          {"series", {"recommend", "--history", first_items(), "--json"}},
          {"clips", {"video", examples / "shapes" / "left.npy", "--json"}}};
}

TEST_F(QuantizeTrained, EveryTaskComputesWithWhatItsFileHas) {
  for (const TaskCommand& task : task_commands()) {
    SCOPED_TRACE(task.words[0]);
    fs::remove_all(out_);
    ASSERT_EQ(quantize(task.model, "int4").code, 0);
    const auto said = [&](const std::string& model, const char* weights) {
      std::vector<std::string> words = task.words;
      words.insert(words.end(), {"--model", model, "--weights", weights});
      const Ended ended = run_regard(words);
      EXPECT_EQ(ended.code, 0) << ended.err;
      return ended.out;
    };
    const std::string model = kModels / task.model;
    EXPECT_EQ(said(out_, "as-stored"), said(model, "int4"));
    EXPECT_NE(said(out_, "as-stored"), said(model, "float32"));
    EXPECT_NE(said(out_, "float32"), said(model, "float32"));
  }
}

TEST_F(QuantizeTrained, EveryTaskKnowsTheTypesOfWeights) {
  for (const TaskCommand& task : task_commands()) {
    std::vector<std::string> words = task.words;
    words.insert(words.end(), {"--weights", "half"});
    const Ended wrong = run_regard(words);
    EXPECT_NE(wrong.code, 0);
    EXPECT_THAT(wrong.err,
                HasSubstr("--weights: must be one of float32, bfloat16, int8, "
                          "int4, as-stored; got 'half'"));
    words.back() = "as-stored";
    const Ended unfit = run_regard(words);
    EXPECT_NE(unfit.code, 0);
    EXPECT_THAT(
        unfit.err,
        HasSubstr("as-stored is for folders that regard quantize wrote"));
  }
}

TEST_F(QuantizeTrained, ASummarizerComputesWithWhatItsFileHas) {
  ASSERT_EQ(quantize("dialogues", "int4").code, 0);
  // Some dialogues of which the types write different summaries.
  const std::string sample = folder_ / "sample";
  ASSERT_EQ(run_regard({"sample", "summarize", "--out", sample}).code, 0);
  std::ifstream all(fs::path(sample) / "test.jsonl");
  std::string some;
  std::string line;
  for (int i = 1; i <= 46 && std::getline(all, line); ++i) {
    if (i > 42) some += line + "\n";
  }
  write_text(folder_ / "some.jsonl", some);
  const auto said = [&](std::vector<std::string> weights) {
    std::vector<std::string> words = {
        "summarize", "--model", out_, "--input", folder_ / "some.jsonl",
        "--beam",    "1"};
    words.insert(words.end(), weights.begin(), weights.end());
    const Ended ended = run_regard(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const std::string stored = said({"--weights", "as-stored"});
  EXPECT_EQ(stored, said({"--weights", "int4"}));
  EXPECT_EQ(stored, said({}));
  EXPECT_NE(stored, said({"--weights", "float32"}));
}

// What captioners and recommenders have beside their weights is copied, too.
TEST_F(QuantizeTrained, TakesAllFilesOfTheModel) {
  const fs::path from = folder_ / "from";
  fs::copy(kModels / "series", from);
  write_text(from / "interactions.tsv", "user\titem\n");
  write_text(from / "features.safetensors", "pictures");
  write_text(from / "training.log", "not this");
  ASSERT_EQ(run_regard({"quantize", from, "--to", "int8", "--out", out_}).code,
            0);
  for (const char* name : {"config.json", "items.txt", "README.md",
                           "interactions.tsv", "features.safetensors"}) {
    EXPECT_TRUE(fs::exists(fs::path(out_) / name)) << name;
  }
  EXPECT_FALSE(fs::exists(fs::path(out_) / "training.log"));
}

// Rows of 24 and of 40 numbers.
TEST_F(QuantizeTrained, SaysThatNothingWasRounded) {
  const SmallTranslator small;
  const fs::path from = folder_ / "from";
  fs::create_directory(from);
  tasks::save_translator(from, small.config, *small.vocabulary,
                         small.parameters);
  const Ended ended =
      run_regard({"quantize", from, "--to", "int8", "--out", out_});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("no matrix was rounded"));
  const Ended rounded = run_regard(
      {"quantize", kModels / "reviews", "--out", folder_ / "rounded"});
  EXPECT_EQ(rounded.code, 0);
  EXPECT_THAT(rounded.err, ::testing::Not(HasSubstr("no matrix was rounded")));
}

TEST_F(QuantizeTrained, SaysWhatItRefuses) {
  EXPECT_THAT(quantize("stories", "int8", "a\tb\n").err,
              HasSubstr("--measure is for translators and classifiers"));
  EXPECT_THAT(quantize("en-zh", "int8", "no pair\n").err, HasSubstr("tab"));
  EXPECT_FALSE(fs::exists(out_));
  ASSERT_EQ(quantize("reviews", "int8").code, 0);
  EXPECT_THAT(quantize("reviews", "int8").err,
              HasSubstr("the new folder must not be there yet"));
  const Ended as_stored =
      run_regard({"translate", "--model", kModels / "en-zh", "--weights",
                  "as-stored", "Good morning."});
  EXPECT_NE(as_stored.code, 0);
  EXPECT_THAT(as_stored.err,
              HasSubstr("as-stored is for folders that regard quantize wrote"));
  // Scales that do not fit.
  const fs::path file = fs::path(out_) / "model.safetensors";
  StateDict state = SafetensorsFile::open(file).state_dict();
  state["layers.0.linear1.weight.scales"] = Tensor({128, 3});
  save_safetensors(file, state);
  EXPECT_THAT(run_regard({"classify", "--model", out_, "Good."}).err,
              HasSubstr("the scales of 'layers.0.linear1.weight', int8 "
                        "[128, 64], do not fit it: they are float32 [128, 3]"));
}

}  // namespace
}  // namespace regard::test
