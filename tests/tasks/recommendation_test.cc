// SPDX-License-Identifier: Apache-2.0
// Logs of who took what, the measures by hand, and series that are learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tasks/recommendation_score.h"
#include "regard/tasks/recommender.h"
#include "regard/tasks/samples.h"
#include "regard/text/table.h"
#include "regard/train/training.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Log : public ::testing::Test {
 protected:
  Interactions read(const std::string& name, const std::string& text,
                    const InteractionFormat& format = {}) {
    write_text(folder_ / name, text);
    return read_interactions(folder_ / name, format);
  }
  // Items of a user, by their names.
  static std::vector<std::string> taken(const Interactions& data,
                                        std::size_t user) {
    std::vector<std::string> names;
    for (const std::int32_t item : data.histories[user]) {
      names.push_back(data.items[static_cast<std::size_t>(item)]);
    }
    return names;
  }
  TemporaryFolder folder_;
};

TEST_F(Log, IsSortedByTimeAndEqualTimesStayInTheirOrder) {
  const Interactions data = read("log.tsv",
                                 "time\tuser\titem\n"
                                 "10\tann\tc\n"
                                 "9.5\tann\tb\n"
                                 "10\tann\td\n"
                                 "-1\tann\ta\n"
                                 "3\tbob\ta\n");
  EXPECT_THAT(data.users, ElementsAre("ann", "bob"));
  EXPECT_THAT(taken(data, 0), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(taken(data, 1), ElementsAre("a"));
}

TEST_F(Log, MayHaveDatesForTimes) {
  const Interactions data = read("log.csv",
                                 "user,item,time\n"
                                 "ann,\"tea, green\",2024-05-31T08:00:00Z\n"
                                 "ann,milk,2023-12-01\n");
  EXPECT_THAT(taken(data, 0), ElementsAre("milk", "tea, green"));
}

TEST_F(Log, MayBeInOrderWithoutTimes) {
  const InteractionFormat in_order{.time = ""};
  EXPECT_THAT(taken(read("log.jsonl",
                         "{\"user\": \"u\", \"item\": 7}\n"
                         "{\"user\": \"u\", \"item\": 3}\n",
                         in_order),
                    0),
              ElementsAre("7", "3"));
  // As SASRec's files are.
  const InteractionFormat bare{.has_header = false};
  EXPECT_THAT(taken(read("Video.txt", "1 30\n1 10\n2 5\n1\t20\n", bare), 0),
              ElementsAre("30", "10", "20"));
  EXPECT_THAT(taken(read("log.txt", "u b 2\nu a 1\n", bare), 0),
              ElementsAre("a", "b"));
}

TEST_F(Log, NamesTheLineThatIsWrong) {
  const auto refused = [&](const std::string& name, const std::string& text,
                           const InteractionFormat& format,
                           const std::string& words) {
    EXPECT_THAT([&] { read(name, text, format); },
                ThrowsMessage<ParseError>(HasSubstr(words)));
  };
  refused("a.tsv", "user\titem\ttime\nu\ta\t1\nu\tb\tsoon\n", {},
          "line 3: a time must be a number, or a date as in 2024-05-31 or "
          "2024-05-31T08:15:00Z, the same in all lines; got 'soon'");
  refused("b.tsv", "user\titem\ttime\nu\ta\t1\nu\tb\t2024-01-01\n", {},
          "line 3: a time must be");
  refused("c.tsv", "user\titem\nu\ta\n", {},
          "the header must name the column 'time'");
  const InteractionFormat bare{.has_header = false};
  refused("d.txt", "1 2\n1\n", bare,
          "line 2: there must be 2 fields, as in the first line; got 1");
  refused("e.txt", "1 2 3 4\n", bare,
          "line 1: there must be a user and an item, and a time or none; there "
          "are 4 fields");
  refused("f.jsonl", "{}\n", bare, "the fields of JSON Lines have names");
}

TEST_F(Log, LeavesOutUsersWithTooFewAndItemsThatNobodyElseTook) {
  const Interactions data = read("log.txt",
                                 "u a\nu b\nu c\n"
                                 "v rare\nv a\n",
                                 {.has_header = false, .min_interactions = 3});
  EXPECT_THAT(data.users, ElementsAre("u"));
  EXPECT_EQ(data.users_left_out, 1);
  EXPECT_THAT(data.items, ElementsAre("a", "b", "c"));
}

// u: a b | c | a;  v: b b | a | c;  w: b c, too short for anything held out.
constexpr const char* kThree =
    "u a\nu b\nu c\nu a\nv b\nv b\nv a\nv c\nw b\nw c\n";

TEST_F(Log, HoldsOutTheLastTwoOfEachUserAndCountsTheRest) {
  const Interactions data = read("log.txt", kThree, {.has_header = false});
  // What is learnt from: a b, b b, b c.
  EXPECT_THAT(data.items, ElementsAre("b", "a", "c"));
  EXPECT_THAT(data.counts, ElementsAre(4, 1, 1));
  const auto test = held_out_items(data, HeldOut::kTest);
  ASSERT_EQ(test.size(), 2u);
  EXPECT_THAT(test[0].history, ElementsAre(1, 0, 2));
  EXPECT_EQ(test[0].item, 1);
  EXPECT_EQ(test[1].item, 2);
  const auto valid = held_out_items(data, HeldOut::kValidation);
  ASSERT_EQ(valid.size(), 2u);
  EXPECT_THAT(valid[1].history, ElementsAre(0, 0));
  EXPECT_EQ(valid[1].item, 1);
}

TEST_F(Log, IsTheSameAfterItWasWrittenAndReadAgain) {
  const Interactions data = read("log.txt", kThree, {.has_header = false});
  std::string text;
  const auto keep = [&](std::string_view part) { text += part; };
  write_interactions(data, keep);
  const Interactions again = read("again.tsv", text, {.time = ""});
  EXPECT_EQ(again.users, data.users);
  EXPECT_EQ(again.items, data.items);
  EXPECT_EQ(again.histories, data.histories);
  Interactions tab = data;
  tab.items[0] = "a\tb";
  EXPECT_THAT(test::refusal([&] { write_interactions(tab, keep); }),
              HasSubstr("must hold no tab and no line end"));
}

// 24,000 lines, which are sorted group by group from the file.
TEST_F(Log, IsTheSameFromAFileAsInMemory) {
  std::string log;
  for (const SampleFile& file : make_sample("recommend", 3)) {
    if (file.name == "log.tsv") log = file.text;
  }
  const Interactions memory = read("log.tsv", log);
  const Interactions file = read("log.tsv", log, {.scratch = folder_.path()});
  EXPECT_EQ(file.users, memory.users);
  EXPECT_EQ(file.items, memory.items);
  EXPECT_EQ(file.counts, memory.counts);
  EXPECT_EQ(file.histories, memory.histories);
  EXPECT_EQ(summary_of(file.histories), summary_of(memory.histories));
  // Copies read the same file, which has no name.
  const Interactions copy = file;
  EXPECT_EQ(copy.histories, memory.histories);
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().filename(), "log.tsv");
  }
  EXPECT_THAT([&] { read("log.tsv", log, {.scratch = folder_ / "nowhere"}); },
              ThrowsMessage<IoError>(HasSubstr("cannot make a file in '")));
}

TEST_F(Log, SortsNumbersAndDatesAsTimes) {
  EXPECT_THAT(taken(read("a.tsv",
                         "user\titem\ttime\n"
                         "u\td\t1e3\nu\tc\t0\nu\tb\t-1\nu\ta\t-1e9\n"
                         "u\te\t-0\n"),
                    0),
              ElementsAre("a", "b", "c", "e", "d"));
  EXPECT_THAT(taken(read("b.tsv",
                         "user\titem\ttime\n"
                         "u\td\t2024-05-31T08:15:00.5Z\n"
                         "u\tb\t2024-05-31\n"
                         "u\tc\t2024-05-31T08:15:00Z\n"
                         "u\ta\t2023-12-31 23:59\n"),
                    0),
              ElementsAre("a", "b", "c", "d"));
  // 03:59, 04:00 and 04:00:00.25 of 1 June, and 5 June, in UTC.
  EXPECT_THAT(taken(read("c.tsv",
                         "user\titem\ttime\n"
                         "u\td\t2024-06-05\n"
                         "u\tb\t2024-05-31T23:00:00-05:00\n"
                         "u\tc\t2024-06-01T06:00:00.25+0200\n"
                         "u\ta\t2024-06-01 03:59 UTC\n"),
                    0),
              ElementsAre("a", "b", "c", "d"));
}

TEST_F(Log, RefusesDatesThatItWouldSortWrongly) {
  for (const std::string date :
       {"2024-05-31 9:15", "2024-05-31T", "2024-05-31T08", "2024-05-31T0815",
        "2024-05-31 08:15 PM", "2024-05-31 08:60", "2024-13-01", "2024-02-30",
        "2024-05-31T08:15:00.", "2024-05-31T08:15+2", "2024-05-311"}) {
    EXPECT_THAT(
        [&] {
          read("a.tsv", "user\titem\ttime\nu\ta\t2024-05-31\nu\tb\t" + date);
        },
        ThrowsMessage<ParseError>(
            HasSubstr("the same in all lines; got '" + date + "'")))
        << date;
  }
}

TEST(RankingScore, IsWhatTheFormulasSay) {
  // Ranks 0, 2, 9 and 10: three hits of four. 1/log2(2) = 1, 1/log2(4) = 0.5,
  // 1/log2(11) = 0.28906483.
  const RankingScore score =
      score_ranks(std::vector<std::int64_t>{0, 2, 9, 10});
  EXPECT_DOUBLE_EQ(score.hit_rate, 0.75);
  EXPECT_NEAR(score.ndcg, (1 + 0.5 + 0.28906483) / 4, 1e-8);
  EXPECT_NEAR(score.mrr, (1 + 1 / 3.0 + 1 / 10.0 + 1 / 11.0) / 4, 1e-12);
}

// One user took items 0, 1 and 2 in this order; the catalogue has `items`.
Interactions one_user(std::size_t items) {
  Interactions data;
  data.users = {"u"};
  data.histories = {{0, 1, 2}};
  for (std::size_t i = 0; i < items; ++i) {
    data.items.push_back("item " + std::to_string(i));
  }
  data.counts.assign(items, 1);
  return data;
}

RecommendationScore score_with(const Interactions& data,
                               const std::vector<float>& scores) {
  return score_recommendations(
      data, HeldOut::kTest,
      [&](std::span<const NextItem> questions, const auto& visit) {
        for (std::size_t i = 0; i < questions.size(); ++i) visit(i, scores);
      },
      1);
}

TEST(RecommendationScore, RanksAmongWhatWasNotTakenBefore) {
  // Item 2 comes next. 0 and 1 score higher but were taken; 3 and 4 are better,
  // 5 is equal and counts against, 6 to 19 are worse: rank 3.
  std::vector<float> scores(20, -1.0f);
  scores[0] = scores[1] = 9;
  scores[2] = 1;
  scores[3] = scores[4] = 2;
  scores[5] = 1;
  const RecommendationScore score = score_with(one_user(20), scores);
  EXPECT_EQ(score.users, 1);
  EXPECT_DOUBLE_EQ(score.full.hit_rate, 1);
  EXPECT_NEAR(score.full.ndcg, 1 / std::log2(5.0), 1e-12);
  EXPECT_DOUBLE_EQ(score.full.mrr, 0.25);
  // Ten of the twenty items are shown.
  EXPECT_DOUBLE_EQ(score.full.coverage, 0.5);
}

TEST(RecommendationScore, SamplesOnlyWhatTheUserNeverTook) {
  // Whatever is drawn is item 3 or 4: all hundred beat item 2, or none does.
  EXPECT_EQ(score_with(one_user(5), {9, 9, 1, 2, 2}).sampled.hit_rate, 0);
  const auto best = score_with(one_user(5), {9, 9, 1, 0, 0}).sampled;
  EXPECT_EQ(best.hit_rate, 1);
  EXPECT_EQ(best.ndcg, 1);
  EXPECT_NEAR(score_with(one_user(5), {9, 9, 1, 2, 2}).sampled.mrr, 1 / 101.0,
              1e-12);
}

TEST(RecommendationScore, DrawsUniformly) {
  // A tenth of the 1000 items beat item 2, so of 100 drawn about 10 do.
  std::vector<float> scores(1000, 0.0f);
  scores[2] = 1;
  for (std::size_t i = 900; i < 1000; ++i) scores[i] = 2;
  Interactions data = one_user(1000);
  data.users.assign(400, "u");
  for (int i = 1; i < 400; ++i) {
    data.histories.push_back(std::vector<std::int32_t>{0, 1, 2});
  }
  const RecommendationScore score = score_with(data, scores);
  // P(fewer than 10 of 100 at 100/997) = 0.4473; deviation 0.025 for 400 users.
  EXPECT_NEAR(score.sampled.hit_rate, 0.4473, 0.1);
}

TEST(BestItems, AreTheHighestThatWereNotSeen) {
  const std::vector<float> scores = {1, 5, 3, 5, 2};
  std::vector<std::int32_t> items;
  for (const Recommendation& one :
       best_items(scores, std::vector<std::int32_t>{2}, 3)) {
    items.push_back(one.item);
  }
  EXPECT_THAT(items, ElementsAre(1, 3, 4));
  EXPECT_EQ(best_items(scores, {}, 10).size(), 5u);
}

TEST(BestItems, OfManyAreThoseOfASort) {
  Random random(7);
  for (const std::int64_t count : {63, 64, 65, 200, 1000}) {
    std::vector<float> scores;  // many are equal
    std::vector<std::int32_t> expected;
    std::vector<std::int32_t> seen;
    for (std::int32_t i = 0; i < count; ++i) {
      scores.push_back(static_cast<float>(random.below(count / 4)));
      (i % 5 == 0 ? seen : expected).push_back(i);
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return scores[static_cast<std::size_t>(a)] >
                              scores[static_cast<std::size_t>(b)];
                     });
    for (const std::int64_t top : {64, 10, 1}) {
      std::vector<std::int32_t> items;
      for (const Recommendation& one : best_items(scores, seen, top)) {
        items.push_back(one.item);
      }
      expected.resize(std::min(expected.size(), static_cast<std::size_t>(top)));
      EXPECT_EQ(items, expected) << count << ", top " << top;
    }
  }
}

// A small model, trained on the sample as the program would.
class Series : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    for (const SampleFile& file : make_sample("recommend", 1)) {
      write_text(*folder_ / file.name, file.text);
    }
    data_ = new Interactions(read_interactions(*folder_ / "log.tsv"));
  }
  static void TearDownTestSuite() {
    delete data_;
    delete folder_;
  }
  static RecommenderConfig config(RecommendationLoss loss) {
    RecommenderConfig config;
    nn::EncoderConfig& e = config.encoder;
    e.vocab = std::ssize(data_->items);
    e.model_dim = e.feed_forward_dim = 32;
    e.heads = 1;
    e.layers = 1;
    e.max_length = 20;
    e.activation = nn::Activation::kRelu;
    e.positions = nn::Positions::kLearned;
    e.pooling = nn::Pooling::kLast;
    config.loss = loss;
    return config;
  }
  static StateDict trained(const RecommenderConfig& config,
                           std::int64_t updates, int threads) {
    const TemporaryFolder work;
    ExampleTask task =
        make_recommendation_task(config, *data_, 1, {.count = threads});
    train::TrainingOptions options;
    options.max_updates = updates;
    options.batch_tokens = 1024;
    options.schedule.kind = train::ScheduleKind::kConstant;
    options.schedule.peak = 0.01;
    options.schedule.warmup = 10;
    options.threads = {.count = threads};
    train::Observer nobody;
    return train::train(task, options, work / "training", train::Start::kNew,
                        nobody)
        .weights;
  }
  static TemporaryFolder* folder_;
  static Interactions* data_;
};
TemporaryFolder* Series::folder_ = nullptr;
Interactions* Series::data_ = nullptr;

TEST_F(Series, AreLearntByEitherLossAndBeatWhatIsPopular) {
  const RecommendationScore floor = score_popularity(*data_, HeldOut::kTest, 1);
  EXPECT_LT(floor.full.hit_rate, 0.3);
  for (const auto loss :
       {RecommendationLoss::kSoftmax, RecommendationLoss::kBinary}) {
    const Recommender model(config(loss), data_->items,
                            trained(config(loss), 120, 0));
    const RecommendationScore score =
        score_recommender(model, *data_, HeldOut::kTest, 1);
    EXPECT_GT(score.full.hit_rate, 2 * floor.full.hit_rate);
    EXPECT_GT(score.full.ndcg, 2 * floor.full.ndcg);
    EXPECT_GT(score.sampled.hit_rate, floor.sampled.hit_rate + 0.2);
  }
}

TEST_F(Series, GiveTheSameBitsWithAnyNumberOfThreads) {
  for (const auto loss :
       {RecommendationLoss::kSoftmax, RecommendationLoss::kBinary}) {
    const StateDict one = trained(config(loss), 5, 1);
    const StateDict three = trained(config(loss), 5, 3);
    for (const auto& [name, tensor] : one) {
      EXPECT_EQ(std::memcmp(tensor.bytes(), three.at(name).bytes(),
                            tensor.byte_count()),
                0)
          << name;
    }
  }
}

TEST_F(Series, ScoreAHistoryAloneAsAmongOthersAndAfterTheyWereSaved) {
  const RecommenderConfig c = config(RecommendationLoss::kSoftmax);
  const StateDict weights = trained(c, 5, 0);
  const Recommender model(c, data_->items, weights);
  std::vector<ItemList> all;
  for (std::size_t i = 0; i < 50; ++i) all.push_back(data_->histories[i]);
  std::vector<std::vector<float>> among(all.size());
  model.score(all, [&](std::size_t i, std::span<const float> scores) {
    among[i].assign(scores.begin(), scores.end());
  });
  save_recommender(folder_->path(), c, *data_, weights);
  const Recommender loaded = Recommender::load(folder_->path());
  for (std::size_t i = 0; i < all.size(); i += 7) {
    loaded.score(std::span(all).subspan(i, 1),
                 [&](std::size_t, std::span<const float> scores) {
                   EXPECT_TRUE(std::equal(scores.begin(), scores.end(),
                                          among[i].begin(), among[i].end()));
                 },
                 {.count = 1});
  }
  const Interactions again = load_interactions(folder_->path(), loaded);
  EXPECT_EQ(again.histories, data_->histories);
}

TEST_F(Series, ExplainByWhatIsMissedAndWhatIsLookedAt) {
  const RecommenderConfig c = config(RecommendationLoss::kSoftmax);
  const Recommender model(c, data_->items, trained(c, 5, 0));
  const std::vector<std::int32_t> history = {4, 9, 2};
  const std::int32_t item = model.recommend(history, 1).front().item;
  const auto score = [&](const std::vector<std::int32_t>& of) {
    float found = 0;
    model.score(std::vector<ItemList>{of},
                [&](std::size_t, std::span<const float> s) {
                  found = s[static_cast<std::size_t>(item)];
                });
    return found;
  };
  const auto why = model.explain(history, item);
  ASSERT_EQ(why.size(), 3u);
  EXPECT_EQ(why[1].item, 9);
  EXPECT_EQ(why[1].occlusion, score(history) - score({4, 2}));
  EXPECT_NEAR(why[0].rollout + why[1].rollout + why[2].rollout, 1, 1e-5);
  // One layer: half of what is looked at is the last item itself.
  EXPECT_GT(why[2].rollout, 0.5);
  const auto alone = model.explain(std::vector<std::int32_t>{4}, item);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].occlusion, score({4}));
  EXPECT_NEAR(alone[0].rollout, 1, 1e-6);
}

TEST_F(Series, RefuseAModelThatPoolsOtherThanByTheLastItem) {
  RecommenderConfig c = config(RecommendationLoss::kSoftmax);
  c.encoder.pooling = nn::Pooling::kMean;
  EXPECT_THAT(test::refusal([&] { make_recommendation_task(c, *data_, 1); }),
              HasSubstr("pooling must be kLast"));
  c.encoder.pooling = nn::Pooling::kLast;
  c.encoder.vocab = 7;
  EXPECT_THAT(test::refusal([&] { make_recommendation_task(c, *data_, 1); }),
              HasSubstr("vocab must be the number of items, 102; it is 7"));
}

TEST_F(Series, RefuseHistoriesThatCannotBeRead) {
  const RecommenderConfig c = config(RecommendationLoss::kSoftmax);
  const Recommender model(c, data_->items, trained(c, 1, 0));
  EXPECT_THAT(test::refusal([&] { model.recommend({}, 3); }),
              HasSubstr("a history must hold an item"));
  EXPECT_THAT(test::refusal(
                  [&] { model.recommend(std::vector<std::int32_t>{1000}, 3); }),
              HasSubstr("an item must lie in 0 .. "));
  // A history that is longer than the model reads is cut to its end.
  std::vector<std::int32_t> longer(30, 3);
  std::vector<std::int32_t> read(20, 3);
  longer.back() = read.back() = 5;
  EXPECT_EQ(model.recommend(longer, 1).front().score,
            model.recommend(read, 1).front().score);
}

}  // namespace
}  // namespace regard::tasks
