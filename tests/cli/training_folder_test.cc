// SPDX-License-Identifier: Apache-2.0
// What every training does with its folder: the model card, the settings that
// it goes on with, and patience.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

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
using ::testing::Not;
using Arguments = std::vector<std::string>;

class TrainingFolderOfAModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string texts = "text\tlabel\n", sources, targets;
    const char* words[] = {"sun", "moon", "tree", "fish"};
    for (int i = 0; i < 64; ++i) {
      const std::string a = words[i % 4], b = words[i / 4 % 4];
      const std::string c = words[i / 16];
      const std::string line = a + " " + b + " " + c;
      texts += line + '\t' + (i % 4 < 2 ? "sky" : "earth") + '\n';
      sources += line + '\n';
      targets += c + " " + b + " " + a + '\n';
    }
    write_text(folder_ / "texts.tsv", texts);
    write_text(folder_ / "a", sources);
    write_text(folder_ / "b", targets);
  }

  Ended classify(const std::string& updates, const Arguments& more = {}) {
    return run("classify", {"--train", folder_ / "texts.tsv", "--layers", "1"},
               updates, more);
  }
  Ended translate(const std::string& updates, const Arguments& more = {}) {
    return run("translate",
               {"--src", folder_ / "a", "--tgt", folder_ / "b",
                "--encoder-layers", "1", "--decoder-layers", "1"},
               updates, more);
  }
  Ended run(const char* task, const Arguments& of_task,
            const std::string& updates, const Arguments& more) {
    Arguments all = {"train",      task,       "--dim",     "16",
                     "--ffn",      "32",       "--heads",   "2",
                     "--schedule", "constant", "--warmup",  "2",
                     "--threads",  "1",        "--updates", updates};
    all.insert(all.end(), of_task.begin(), of_task.end());
    all.insert(all.end(), more.begin(), more.end());
    // One --out for all tests but those that name another.
    if (std::find(more.begin(), more.end(), "--out") == more.end()) {
      all.insert(all.end(), {"--out", folder_ / "model"});
    }
    return run_regard(all);
  }
  std::string card() const { return read_text(folder_ / "model/README.md"); }

  TemporaryFolder folder_;
};

TEST_F(TrainingFolderOfAModel, ALongerRunWritesItsOwnCard) {
  ASSERT_EQ(classify("4").code, 0);
  EXPECT_THAT(card(), HasSubstr("Training: 4 updates"));
  const Ended longer = classify("6", {"--resume"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_THAT(card(), AllOf(HasSubstr("Training: 6 updates"),
                            Not(HasSubstr("4 updates"))));
  EXPECT_THAT(longer.err, Not(HasSubstr("README.md")));
}

TEST_F(TrainingFolderOfAModel, ACardThatTheUserChangedStaysAndIsNamed) {
  ASSERT_EQ(classify("4").code, 0);
  const std::string changed = card() + "\nNot for medicine.\n";
  write_text(folder_ / "model/README.md", changed);
  const Ended longer = classify("6", {"--resume"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_EQ(card(), changed);
  EXPECT_THAT(longer.err,
              HasSubstr("README.md' is not as this program wrote it and stays "
                        "as it is; the card of this training is in '"));
  EXPECT_THAT(read_text(folder_ / "model/training/card.md"),
              HasSubstr("Training: 6 updates"));
}

TEST_F(TrainingFolderOfAModel, ATranslatorHasSuchACardToo) {
  ASSERT_EQ(translate("2", {"--pieces", "words"}).code, 0);
  EXPECT_THAT(card(), HasSubstr("Training: 2 updates"));
  ASSERT_EQ(translate("3", {"--pieces", "words", "--resume"}).code, 0);
  EXPECT_THAT(card(), HasSubstr("Training: 3 updates"));
}

TEST_F(TrainingFolderOfAModel, GoesOnWithTheTokenizerThatItBeganWith) {
  ASSERT_EQ(translate("2", {"--pieces", "words"}).code, 0);
  std::string pieces = read_text(folder_ / "model/vocabulary.txt");
  fs::create_directories(folder_ / "same");
  write_text(folder_ / "same/vocabulary.txt", pieces);
  pieces.replace(pieces.find("moon"), 4, "luna");
  fs::create_directories(folder_ / "other");
  write_text(folder_ / "other/vocabulary.txt", pieces);
  const auto train = [&](const char* tokenizer, const char* updates,
                         Arguments more) {
    more.insert(more.end(),
                {"--tokenizer", folder_ / tokenizer, "--out", folder_ / "on"});
    return translate(updates, more);
  };
  ASSERT_EQ(train("same", "2", {}).code, 0);
  const Ended same = train("same", "3", {"--resume"});
  EXPECT_EQ(same.code, 0) << same.err;
  const Ended other = train("other", "4", {"--resume"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("goes on with the tokenizer that it began with; "
                              "--tokenizer '"),
                    HasSubstr("other' is another one")));
}

TEST_F(TrainingFolderOfAModel, PatienceNeedsTextsThatAreHeldOut) {
  const Ended ended = classify(
      "4", {"--valid-share", "0", "--patience", "1", "--validate-every", "1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err,
              HasSubstr("patience needs examples that are held out; there are "
                        "none, and patience is 1"));
}

}  // namespace
}  // namespace regard::test
