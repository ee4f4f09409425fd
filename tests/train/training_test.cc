// SPDX-License-Identifier: Apache-2.0
#include "regard/train/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/train/log.h"
#include "train/small_task.h"

namespace regard::train {
namespace {

namespace fs = std::filesystem;
using regard::testing::flat;
using regard::testing::SmallTask;
using regard::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

TrainingOptions small_options() {
  TrainingOptions options;
  options.max_updates = 60;
  options.batch_tokens = 40;
  options.schedule.peak = 0.05;
  options.schedule.warmup = 10;
  options.average = 3;
  options.threads = {.count = 1};
  return options;
}

// Stops after some updates, and writes down what it saw.
struct Watcher : Observer {
  std::int64_t stop_after = 0;
  std::vector<UpdateReport> updates;
  std::vector<MilestoneReport> milestones;
  void on_update(const UpdateReport& report) override {
    updates.push_back(report);
  }
  void on_milestone(const MilestoneReport& report) override {
    milestones.push_back(report);
  }
  bool wants_to_stop() override {
    return stop_after > 0 &&
           static_cast<std::int64_t>(updates.size()) == stop_after;
  }
};

std::vector<float> train_once(const TrainingOptions& options,
                              const fs::path& folder) {
  SmallTask task;
  Watcher watcher;
  return flat(train(task, options, folder, Start::kNew, watcher).weights);
}

TEST(Training, MakesTheLossFall) {
  const TemporaryFolder folder;
  SmallTask task;
  Watcher watcher;
  const TrainingResult result =
      train(task, small_options(), folder / "run", Start::kNew, watcher);
  EXPECT_EQ(result.ending, Ending::kUpdates);
  EXPECT_EQ(result.updates, 60);
  ASSERT_EQ(watcher.updates.size(), 60u);
  EXPECT_GT(watcher.updates.front().loss, 1.0);
  EXPECT_LT(watcher.milestones.back().likelihood, 0.5);
}

TEST(Training, GivesTheSameBitsForTheSameSeedAndAnyThreads) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  const auto first = train_once(options, folder / "a");
  options.threads = {.count = 3};
  EXPECT_EQ(train_once(options, folder / "b"), first);
  options.seed = 2;
  EXPECT_NE(train_once(options, folder / "c"), first);
}

TEST(Training, AccumulatedBatchesAreOneUpdate) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.accumulate = 4;
  SmallTask task;
  Watcher watcher;
  train(task, options, folder / "run", Start::kNew, watcher);
  // Four batches each but for the last update of an epoch.
  std::int64_t tokens = 0;
  for (const auto& update : watcher.updates) {
    if (update.epoch == 1) tokens += update.tokens;
  }
  EXPECT_EQ(tokens, 120);
  EXPECT_GT(task.calls, 180);
}

TEST(Training, GoesOnAfterAStopAsIfThereHadBeenNone) {
  const TemporaryFolder folder;
  const auto whole = train_once(small_options(), folder / "whole");
  TrainingResult result;
  for (int starts = 0;; ++starts) {
    ASSERT_LT(starts, 20);
    SmallTask task;
    Watcher watcher;
    watcher.stop_after = 7;
    result =
        train(task, small_options(), folder / "parts", Start::kResume, watcher);
    if (result.ending != Ending::kStopped) break;
  }
  EXPECT_EQ(flat(result.weights), whole);
  // The log is that of one run, too.
  const RunHistory log = read_log(folder / "parts/log.jsonl");
  ASSERT_EQ(log.updates.size(), 60u);
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(log.updates[i].update, static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(log.milestones.size(),
            read_log(folder / "whole/log.jsonl").milestones.size());
}

// A child process trains and is killed at a random moment, again and again.
// Returns how many of the kills came before the end.
int train_under_fire(const TrainingOptions& options, const fs::path& folder,
                     Random& random) {
  for (int kills = 0;; ++kills) {
    const pid_t child = ::fork();
    if (child == 0) {
      SmallTask task;
      Observer nobody;
      train(task, options, folder, Start::kResume, nobody);
      ::_exit(0);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(500 + random.below(40000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return kills;
    }
  }
}

void survive_kills(int wanted) {
  const TemporaryFolder folder;
  Random random(2024);
  TrainingOptions options = small_options();
  options.checkpoint_seconds = 0;
  options.milestone = 4;
  options.max_updates = 200;
  int kills = 0;
  for (int run = 0; kills < wanted; ++run) {
    options.seed = static_cast<std::uint64_t>(run + 1);
    const fs::path calm = folder / ("calm" + std::to_string(run));
    const fs::path fire = folder / ("fire" + std::to_string(run));
    const auto whole = train_once(options, calm);
    kills += train_under_fire(options, fire, random);
    SmallTask task;
    Observer nobody;
    const TrainingResult result =
        train(task, options, fire, Start::kResume, nobody);
    ASSERT_EQ(flat(result.weights), whole) << "run " << run;
    ASSERT_EQ(read_log(fire / "log.jsonl").updates.size(), 200u);
    for (const auto& file : fs::directory_iterator(fire)) {
      ASSERT_NE(file.path().extension(), ".tmp") << "left by a kill";
    }
  }
}

TEST(Training, EndsWithTheSameBitsAfterTwentyKills) { survive_kills(20); }

// ./test kills
TEST(Training, EndsWithTheSameBitsAfterAsManyKillsAsAreAskedFor) {
  const char* wanted = std::getenv("REGARD_KILLS");
  if (wanted == nullptr) GTEST_SKIP() << "REGARD_KILLS says how many";
  survive_kills(std::atoi(wanted));
}

TEST(Training, AveragesTheLastMilestones) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.milestone = 10;
  const auto mean = train_once(options, folder / "run");
  std::vector<double> sum(mean.size());
  for (const char* update : {"040", "050", "060"}) {
    const auto weights =
        flat(SafetensorsFile::open(
                 folder / "run" /
                 ("milestone-000000" + std::string(update) + ".safetensors"))
                 .state_dict());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(mean[i], static_cast<float>(sum[i] / 3));
  }
  EXPECT_FALSE(fs::exists(folder / "run/milestone-000000030.safetensors"));
}

TEST(Training, EndsWherePatienceDoes) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.milestone = 5;
  options.patience = 3;
  SmallTask task;
  task.getting_worse = true;
  Watcher watcher;
  const TrainingResult result =
      train(task, options, folder / "run", Start::kNew, watcher);
  EXPECT_EQ(result.ending, Ending::kPatience);
  EXPECT_EQ(result.updates, 20);  // the first is the best, three more
}

TEST(Training, RefusesPatienceWhereNothingIsHeldOut) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.patience = 2;
  SmallTask task;
  task.held_out = false;
  Watcher watcher;
  EXPECT_THAT(
      [&] { train(task, options, folder / "run", Start::kNew, watcher); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "patience needs examples that are held out; there are none, and "
          "patience is 2")));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

// The milestone at the old limit is none of a run that is as long from the
// start.
TEST(Training, MadeLongerEndsAsIfItHadBeenAsLongFromTheStart) {
  for (const std::int64_t milestone : {0, 7}) {
    const TemporaryFolder folder;
    TrainingOptions options = small_options();
    options.milestone = milestone;
    options.max_updates = 40;
    const auto whole = train_once(options, folder / "whole");
    for (const std::int64_t updates : {33, 34}) {
      options.max_updates = updates;
      SmallTask task;
      Watcher watcher;
      train(task, options, folder / "parts", Start::kResume, watcher);
      EXPECT_EQ(watcher.milestones.back().update, updates);
    }
    options.max_updates = 40;
    SmallTask task;
    Watcher watcher;
    const TrainingResult result =
        train(task, options, folder / "parts", Start::kResume, watcher);
    EXPECT_EQ(result.averaged, 3);
    EXPECT_EQ(flat(result.weights), whole);
  }
}

TEST(Training, AMilestoneAtALimitCountsForNoPatience) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.milestone = 5;
  options.patience = 3;
  for (const std::int64_t updates : {12, 14, 60}) {
    options.max_updates = updates;
    SmallTask task;
    task.getting_worse = true;
    task.calls = 10 * updates;  // worse than before
    Watcher watcher;
    const TrainingResult result =
        train(task, options, folder / "run", Start::kResume, watcher);
    EXPECT_EQ(result.updates, std::min<std::int64_t>(updates, 20));
  }
}

TEST(Training, EndsAfterSoManyEpochs) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.max_updates = 0;
  options.max_epochs = 2;
  SmallTask task;
  task.held_out = false;
  Watcher watcher;
  const TrainingResult result =
      train(task, options, folder / "run", Start::kNew, watcher);
  EXPECT_EQ(result.ending, Ending::kEpochs);
  EXPECT_EQ(watcher.updates.back().epoch, 2);
  EXPECT_TRUE(std::isnan(watcher.milestones.back().likelihood));
}

TEST(Training, ClipsTheGradient) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.max_updates = 1;
  const auto free = train_once(options, folder / "free");
  options.clip = 1e-12;  // far below epsilon, so that Adam barely moves
  const auto clipped = train_once(options, folder / "clipped");
  SmallTask fresh;
  const auto start = flat(fresh.parameters());
  for (std::size_t i = 0; i < start.size(); ++i) {
    EXPECT_NEAR(clipped[i], start[i], 1e-4);
    EXPECT_GT(std::abs(free[i] - start[i]), 1e-3);
  }
}

TEST(Training, RefusesAFolderThatHoldsATraining) {
  const TemporaryFolder folder;
  train_once(small_options(), folder / "run");
  EXPECT_THAT([&] { train_once(small_options(), folder / "run"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("' holds a training already; resume it")));
}

TEST(Training, RefusesToGoOnUnderOtherSettings) {
  const TemporaryFolder folder;
  train_once(small_options(), folder / "run");
  TrainingOptions other = small_options();
  other.schedule.peak = 0.06;
  SmallTask task;
  Watcher watcher;
  EXPECT_THAT(
      [&] { train(task, other, folder / "run", Start::kResume, watcher); },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("goes on with the settings that it began with; learning "
                    "rate was 0.05, now 0.06")));
  other = small_options();
  other.seed += 1;
  other.settings["data"] = "3 pairs";
  EXPECT_THAT(
      [&] { train(task, other, folder / "run", Start::kResume, watcher); },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("; data was not set, now 3 pairs; seed was " +
                    std::to_string(other.seed - 1) + ", now " +
                    std::to_string(other.seed))));
}

TEST(Training, RefusesBf16WhereTheTaskKnowsFloatAlone) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.compute = Compute::kBFloat16;
  EXPECT_THAT(
      [&] { train_once(options, folder / "run"); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "this task computes in float32 alone; bfloat16 was asked for")));
}

TEST(Training, RefusesToGoOnWithOtherProducts) {
  struct AnyCompute : testing::SmallTask {
    void set_compute(Compute) override {}
  };
  const TemporaryFolder folder;
  AnyCompute task;
  Watcher watcher;
  TrainingOptions options = small_options();
  options.compute = Compute::kBFloat16;
  train(task, options, folder / "run", Start::kNew, watcher);
  EXPECT_THAT(
      [&] {
        train(task, small_options(), folder / "run", Start::kResume, watcher);
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("products was bfloat16, now not set")));
}

TEST(Training, RefusesAFolderWhereAnotherIsAtWork) {
  const TemporaryFolder folder;
  class Intruder : public Observer {
   public:
    explicit Intruder(std::filesystem::path folder)
        : folder_(std::move(folder)) {}
    void on_update(const UpdateReport&) override {
      SmallTask task;
      Watcher watcher;
      EXPECT_THAT(
          [&] {
            train(task, small_options(), folder_, Start::kResume, watcher);
          },
          ThrowsMessage<IoError>(HasSubstr("another training is at work in '" +
                                           folder_.string() + "'")));
      came_ = true;
    }
    bool wants_to_stop() override { return came_; }

   private:
    std::filesystem::path folder_;
    bool came_ = false;
  };
  SmallTask task;
  Intruder intruder(folder / "run");
  train(task, small_options(), folder / "run", Start::kNew, intruder);
  // And leaves it free.
  Watcher watcher;
  train(task, small_options(), folder / "run", Start::kResume, watcher);
}

TEST(Training, RefusesOptionsThatMakeNoSense) {
  const TemporaryFolder folder;
  SmallTask task;
  Watcher watcher;
  const auto refusal = [&](const TrainingOptions& options, const char* text) {
    EXPECT_THAT(
        [&] { train(task, options, folder / "run", Start::kNew, watcher); },
        ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  TrainingOptions options = small_options();
  options.max_updates = 0;
  refusal(options, "max_updates or max_epochs must be set; got 0 and 0");
  options = small_options();
  options.accumulate = 0;
  refusal(options,
          "batch_tokens and accumulate must be positive; got 40 and 0");
  options = small_options();
  options.clip = -1;
  refusal(options, "clip and checkpoint_seconds must not be negative; got -1");
  options = small_options();
  options.patience = -1;
  refusal(options, "milestone and patience must not be negative; got 0 and -1");
  options = small_options();
  options.average = 0;
  refusal(options, "at least one milestone must be averaged; got 0");
  SmallTask empty(0);
  EXPECT_THAT(
      [&] {
        train(empty, small_options(), folder / "run", Start::kNew, watcher);
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("there must be at least one example")));
  EXPECT_FALSE(fs::exists(folder / "run/checkpoint.safetensors"));
}

TEST(Training, NamesALossThatIsNotFiniteAndKeepsTheCheckpoint) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.milestone = 5;
  SmallTask task;
  task.poison_at = 8;
  Watcher watcher;
  EXPECT_THAT(
      [&] { train(task, options, folder / "run", Start::kNew, watcher); },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("must be finite; update 8 has a loss of nan"),
                HasSubstr(". The last checkpoint is whole. A lower learning "
                          "rate, a longer warm-up or clipping may help, in a "
                          "new folder"))));
  SmallTask early;
  early.poison_at = 3;
  EXPECT_THAT(
      [&] { train(early, options, folder / "early", Start::kNew, watcher); },
      ThrowsMessage<InvalidArgument>(Not(HasSubstr("checkpoint"))));
  SmallTask again;
  Watcher second;
  const auto result =
      train(again, options, folder / "run", Start::kResume, second);
  EXPECT_EQ(second.updates.front().update, 6);
  EXPECT_EQ(flat(result.weights), train_once(options, folder / "calm"));
}

TEST(Training, NamesABrokenCheckpoint) {
  const TemporaryFolder folder;
  train_once(small_options(), folder / "run");
  const fs::path path = folder / "run/checkpoint.safetensors";
  const auto resume = [&] {
    SmallTask task;
    Watcher watcher;
    train(task, small_options(), folder / "run", Start::kResume, watcher);
  };
  {  // one bit of the data
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-3, std::ios::end);
    const int byte = file.get();
    file.seekp(-3, std::ios::end);
    file.put(static_cast<char>(byte ^ 16));
  }
  EXPECT_THAT(resume, ThrowsMessage<ParseError>(
                          HasSubstr("do not match their checksum")));
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_THAT(resume,
              ThrowsMessage<ParseError>(HasSubstr("checkpoint.safetensors")));
  save_safetensors(path, {});
  EXPECT_THAT(resume, ThrowsMessage<ParseError>(
                          HasSubstr("it is no checkpoint of a training")));
}

// Of tensors alone, as checkpoints had it before.
std::string checksum_of(const StateDict& state) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0x100000001B3u;
    hash ^= hash >> 32;
  };
  for (const auto& [name, tensor] : state) {
    for (const char c : name) mix(static_cast<unsigned char>(c));
    for (std::size_t at = 0; at < tensor.byte_count(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, tensor.bytes() + at,
                  std::min<std::size_t>(8, tensor.byte_count() - at));
      mix(word);
    }
  }
  return std::to_string(hash);
}

class CheckpointMetadata : public ::testing::Test {
 protected:
  CheckpointMetadata() {
    SmallTask task;
    Watcher watcher;
    watcher.stop_after = 20;
    train(task, small_options(), folder_ / "run", Start::kNew, watcher);
    const SafetensorsFile file = SafetensorsFile::open(path());
    tensors_ = file.state_dict();
    metadata_ = file.metadata();
  }
  fs::path path() const { return folder_ / "run/checkpoint.safetensors"; }
  TrainingResult resume_with(
      const std::map<std::string, std::string>& metadata) {
    save_safetensors(path(), tensors_, metadata);
    SmallTask task;
    Watcher watcher;
    return train(task, small_options(), folder_ / "run", Start::kResume,
                 watcher);
  }

  TemporaryFolder folder_;
  StateDict tensors_;
  std::map<std::string, std::string> metadata_;
};

TEST_F(CheckpointMetadata, IsRefusedWhereACharacterHasChanged) {
  EXPECT_GT(metadata_.size(), 20u);
  for (const auto& [key, value] : metadata_) {
    auto changed = metadata_;
    std::string& text = changed.at(key);
    if (text.empty()) {
      text = "1";
    } else {
      text.back() = text.back() == '1' ? '2' : '1';
    }
    EXPECT_THROW(resume_with(changed), ParseError) << key;
  }
  auto lacking = metadata_;
  lacking.erase("setting/seed");
  EXPECT_THAT([&] { resume_with(lacking); },
              ThrowsMessage<ParseError>(HasSubstr("their checksum")));
  EXPECT_EQ(flat(resume_with(metadata_).weights),
            train_once(small_options(), folder_ / "calm"));
}

TEST_F(CheckpointMetadata, OfTheFormatBeforeIsRead) {
  auto before = metadata_;
  before["format"] = "regard training checkpoint 2";
  before["checksum"] = checksum_of(tensors_);
  EXPECT_EQ(flat(resume_with(before).weights),
            train_once(small_options(), folder_ / "calm"));
}

// A limit on the size of files stands in for a full disk.
TEST(Training, NamesAFullDiskAndKeepsTheLastCheckpoint) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  {
    SmallTask task;
    Watcher watcher;
    watcher.stop_after = 20;
    train(task, options, folder / "run", Start::kNew, watcher);
  }
  struct rlimit old = {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit little = old;
  little.rlim_cur = fs::file_size(folder / "run/log.jsonl") + 300;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &little);
  std::string message;
  try {
    SmallTask task;
    Watcher watcher;
    train(task, options, folder / "run", Start::kResume, watcher);
  } catch (const IoError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write '"));
  EXPECT_THAT(message, HasSubstr("File too large"));
  SmallTask task;
  Watcher watcher;
  const auto result =
      train(task, options, folder / "run", Start::kResume, watcher);
  EXPECT_EQ(watcher.updates.front().update, 21);
  EXPECT_EQ(flat(result.weights), train_once(options, folder / "calm"));
}

TEST(Log, LeavesOutALineThatACrashCutOff) {
  const TemporaryFolder folder;
  train_once(small_options(), folder / "run");
  std::ofstream(folder / "run/log.jsonl", std::ios::app) << "{\"update\":6";
  EXPECT_EQ(read_log(folder / "run/log.jsonl").updates.size(), 60u);
}

// As a power failure may leave it.
TEST(Log, DamagedLinesDoNotKeepATrainingFromGoingOn) {
  const TemporaryFolder folder;
  {
    SmallTask task;
    Watcher watcher;
    watcher.stop_after = 20;
    train(task, small_options(), folder / "run", Start::kNew, watcher);
  }
  std::ofstream(folder / "run/log.jsonl", std::ios::app)
      << std::string(4, '\0') << "\n{\"update\":7}\n[]\n";
  SmallTask task;
  Watcher watcher;
  const auto result =
      train(task, small_options(), folder / "run", Start::kResume, watcher);
  EXPECT_EQ(flat(result.weights), train_once(small_options(), folder / "calm"));
  EXPECT_EQ(read_log(folder / "run/log.jsonl").updates.size(), 60u);
}

TEST(Log, NamesALineThatIsNotOne) {
  const TemporaryFolder folder;
  std::ofstream(folder / "log.jsonl") << "hello\n";
  EXPECT_THAT([&] { read_log(folder / "log.jsonl"); },
              ThrowsMessage<ParseError>(HasSubstr("line 1 of '")));
}

}  // namespace
}  // namespace regard::train
