// SPDX-License-Identifier: Apache-2.0
// regard sample recommend, regard train recommend and regard recommend, as
// users call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_program.h"
#include "io/files.h"

namespace regard::test {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

class RecommendCommand : public ::testing::Test {
 protected:
  Ended train(const std::string& model, const Arguments& more) {
    Arguments all = {"train",          "recommend",
                     "--interactions", folder_ / "series/log.tsv",
                     "--out",          folder_ / model,
                     "--dim",          "32",
                     "--ffn",          "32",
                     "--layers",       "1",
                     "--lr",           "0.01",
                     "--warmup",       "10"};
    all.insert(all.end(), more.begin(), more.end());
    return run_regard(all);
  }
  TemporaryFolder folder_;
};

TEST_F(RecommendCommand, LearnsItsSampleAndSaysWhatComesNextAndWhy) {
  const Ended sample =
      run_regard({"sample", "recommend", "--out", folder_ / "series"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  const Ended trained = train("model", {"--epochs", "6"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("2000 users (0 left out), 102 items; "));
  EXPECT_THAT(trained.out, HasSubstr("Validation (2000 users): HR@10 "));
  EXPECT_THAT(read_text(folder_ / "model/README.md"), HasSubstr("HR@10"));

  const Ended score = run_regard(
      {"recommend", "--model", folder_ / "model", "--score", "--json"});
  ASSERT_EQ(score.code, 0) << score.err;
  const auto json = nlohmann::json::parse(score.out);
  EXPECT_EQ(json.at("users"), 2000);
  const auto hits = [&](const char* who) {
    return json.at(who).at("full").at("hr@10").get<double>();
  };
  EXPECT_GT(hits("model"), 2 * hits("popularity"));

  // The next volumes of the two series that the reader is in.
  const Ended next =
      run_regard({"recommend", "--model", folder_ / "model", "--history",
                  "Harbour 1, Tide 1,Tide 2", "--top", "5"});
  ASSERT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.out, AllOf(HasSubstr("Harbour 2\t"), HasSubstr("Tide 3\t")));
  const Ended why =
      run_regard({"recommend", "--model", folder_ / "model", "--user",
                  "reader-0007", "--top", "1", "--why"});
  EXPECT_THAT(why.out, AllOf(HasSubstr("occlusion "), HasSubstr("rollout ")));
}

TEST_F(RecommendCommand, EndsWithTheSameBitsWhereItWasStoppedBetween) {
  ASSERT_EQ(
      run_regard({"sample", "recommend", "--out", folder_ / "series"}).code, 0);
  const Arguments binary = {"--loss", "binary",    "--dropout",
                            "0.2",    "--average", "1"};
  const auto with = [&](const Arguments& more) {
    Arguments all = binary;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(train("once", with({"--updates", "12"})).code, 0);
  ASSERT_EQ(train("twice", with({"--updates", "7"})).code, 0);
  const Ended again = train("twice", with({"--updates", "12"}));
  EXPECT_THAT(again.err, HasSubstr("already holds a training"));
  ASSERT_EQ(train("twice", with({"--updates", "12", "--resume"})).code, 0);
  EXPECT_EQ(read_text(folder_ / "once/model.safetensors"),
            read_text(folder_ / "twice/model.safetensors"));
  const Ended other =
      train("twice", {"--loss", "softmax", "--dropout", "0.2", "--average", "1",
                      "--updates", "12", "--resume"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("--loss"));
}

TEST_F(RecommendCommand, RefusesWhatItCannotDo) {
  write_text(folder_ / "log.txt", "u a\nu b\nu c\nu\n");
  const Ended wrong =
      run_regard({"train", "recommend", "--interactions", folder_ / "log.txt",
                  "--no-header", "--out", folder_ / "model"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("line 4: there must be 2 fields"));
  write_text(folder_ / "log.txt", "u a\nu b\nu c\n");
  const Ended few =
      run_regard({"train", "recommend", "--interactions", folder_ / "log.txt",
                  "--no-header", "--out", folder_ / "model"});
  EXPECT_EQ(few.code, 1);
  EXPECT_THAT(few.err, HasSubstr("there must be at least two items to choose "
                                 "from"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model"));
  const Ended both = run_regard(
      {"recommend", "--model", "m", "--user", "u", "--history", "a"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give one of --history, --user and --score"));
}

TEST_F(RecommendCommand, HasATinyModelThatSaysWhatItIs) {
  const Ended next = run_regard(
      {"recommend", "--history", "Harbour 1, Harbour 2", "--top", "1"});
  ASSERT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.out, StartsWith("Harbour 3\t"));
  EXPECT_THAT(
      next.err,
      HasSubstr("the tiny bundled model, trained on generated readers"));
  const Ended unknown = run_regard({"recommend", "--history", "Nowhere 1"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("it does not know 'Nowhere 1'"));
  // It came without the histories of its readers.
  const Ended user = run_regard({"recommend", "--user", "reader-0007"});
  EXPECT_EQ(user.code, 1);
  EXPECT_THAT(user.err, HasSubstr("came without interactions.tsv, which "
                                  "holds its users' histories"));
}

}  // namespace
}  // namespace regard::test
