// SPDX-License-Identifier: Apache-2.0
// regard train classify --from, as users call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_program.h"
#include "io/files.h"
#include "support/encoder_folder.h"

namespace regard::test {
namespace {

namespace fs = std::filesystem;
using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_encoder_folder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class FineTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    write_encoder_folder(folder_ / "bert");
    // Whose text it is: that of the first animal.
    const char* animals[] = {"cat", "dog"};
    std::string lines = "text\tlabel\n";
    for (int i = 0; i < 240; ++i) {
      const int first = i % 2;
      lines += std::string(i % 3 == 0 ? "the " : "a ") + animals[first] +
               (i % 5 < 2 ? " sat on a mat" : "s sat on the ") +
               (i % 7 < 3 ? " " : " mat ") + animals[i % 4 < 2 ? 1 : 0] +
               ".\t" + animals[first] + "\n";
    }
    write_text(folder_ / "train.tsv", lines);
  }

  Ended train(const std::string& out, const Arguments& more) {
    Arguments all = {
        "train",  "classify",       "--train", folder_ / "train.tsv",
        "--from", folder_ / "bert", "--out",   folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  }

  TemporaryFolder folder_;
};

TEST_F(FineTuning, LearnsWithTheEncodersOwnTokenizerAndSizes) {
  const Ended trained = train(
      "model", {"--lr", "0.01", "--epochs", "12", "--batch-tokens", "64"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("14 pieces, 2 labels"));
  const auto config =
      nlohmann::json::parse(read_text(folder_ / "model/config.json"));
  EXPECT_EQ(config.at("special_tokens"), true);
  EXPECT_EQ(config.at("encoder").at("max_length"), 20);
  EXPECT_EQ(config.at("encoder").at("norm_first"), false);
  EXPECT_THAT(read_text(folder_ / "model/README.md"), HasSubstr("bert"));
  const Ended scored =
      run_regard({"classify", "--model", folder_ / "model", "--input",
                  folder_ / "train.tsv", "--score", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  EXPECT_GE(nlohmann::json::parse(scored.out).at("accuracy").get<double>(),
            0.9);
  // [CLS] and [SEP] are no words.
  const Ended explained = run_regard({"classify", "--model", folder_ / "model",
                                      "--explain", "--json", "A cats sat."});
  const auto line = nlohmann::json::parse(explained.out);
  ASSERT_EQ(line.at("words").size(), 4u) << explained.out;
  EXPECT_EQ(line.at("words").at(0).at("word"), "A");
  EXPECT_EQ(line.at("words").at(1).at("word"), "cats");
  EXPECT_EQ(line.at("words").at(3).at("word"), ".");
}

TEST_F(FineTuning, AStoppedTrainingGoesOnToTheSameBits) {
  const Arguments constant = {"--schedule", "constant", "--batch-tokens", "64"};
  const auto with = [&constant](Arguments more) {
    more.insert(more.end(), constant.begin(), constant.end());
    return more;
  };
  const auto run = [&](const char* out, Arguments more) {
    const Ended ended = train(out, with(std::move(more)));
    EXPECT_EQ(ended.code, 0) << ended.err;
  };
  run("parts", {"--updates", "6", "--warmup", "2", "--threads", "1"});
  run("parts", {"--updates", "12", "--warmup", "2", "--resume"});
  run("whole", {"--updates", "12", "--warmup", "2", "--threads", "2"});
  EXPECT_EQ(read_text(folder_ / "parts/model.safetensors"),
            read_text(folder_ / "whole/model.safetensors"));
  // Other weights are another training.
  StateDict weights = regard::testing::bert_weights();
  weights.begin()->second.values<float>()[0] += 1;
  save_safetensors(folder_ / "bert/model.safetensors", weights);
  const Ended other =
      train("parts", with({"--updates", "18", "--warmup", "2", "--resume"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("weights of --from"));
}

TEST_F(FineTuning, RefusesWhatTheEncoderSaysItself) {
  for (const char* option : {"--dim", "--layers", "--vocab"}) {
    const Ended ended = train("model", {option, "16"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("--from"), HasSubstr(option)));
  }
  const Ended longer = train("model", {"--max-length", "21"});
  EXPECT_EQ(longer.code, 1);
  EXPECT_THAT(longer.err, HasSubstr("max_length must be from 1 to the 20 "));
  EXPECT_THAT(train("model", {"--max-length", "2"}).err,
              HasSubstr("leave no room beside the 2 special ones"));
  fs::remove(folder_ / "bert/model.safetensors");
  EXPECT_THAT(train("model", {}).err, HasSubstr("no model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "model"));
}

}  // namespace
}  // namespace regard::test
