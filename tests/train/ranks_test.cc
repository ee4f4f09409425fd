// SPDX-License-Identifier: Apache-2.0
// Training with several ranks: the bits of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "regard/train/log.h"
#include "regard/train/training.h"
#include "support/local_ranks.h"
#include "train/gradient_blocks.h"
#include "train/sharded_adam.h"
#include "train/small_task.h"

namespace regard::train {
namespace {

namespace fs = std::filesystem;
using regard::testing::flat;
using regard::testing::LocalRanks;
using regard::testing::SmallTask;
using regard::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrainingOptions small_options() {
  TrainingOptions options;
  options.max_updates = 30;
  options.batch_tokens = 20;
  options.accumulate = 5;
  options.clip = 0.5;
  options.schedule.peak = 0.05;
  options.schedule.warmup = 10;
  options.average = 3;
  options.threads = {.count = 1};
  return options;
}

struct Stopper : Observer {
  std::int64_t stop_after = 0;  // 0: never
  std::int64_t updates = 0;
  void on_update(const UpdateReport&) override { ++updates; }
  bool wants_to_stop() override {
    return stop_after > 0 && updates == stop_after;
  }
};

// A task whose tensors are cut: some blocks, a rest, and none at all. Its
// gradients are drawn from the seed.
class WideTask : public TrainingTask {
 public:
  WideTask() {
    Random random(3);
    for (const auto& [name, size] :
         {std::pair("a", 3 * kGradientBlock + 17), std::pair("b", 5L),
          std::pair("c", 2 * kGradientBlock), std::pair("none", 0L),
          std::pair("z", kGradientBlock + 1)}) {
      Tensor tensor(Shape{size});
      for (float& value : tensor.values<float>()) value = random.normal();
      parameters_.emplace(name, std::move(tensor));
    }
  }
  StateDict& parameters() override { return parameters_; }
  std::span<const std::int64_t> lengths() const override { return lengths_; }
  nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                 std::uint64_t seed,
                                 StateDict& gradients) override {
    Random random(seed);
    for (const auto& [name, tensor] : parameters_) {
      Tensor& gradient = gradients[name];
      if (gradient.size() != tensor.size()) gradient = Tensor(tensor.shape());
      const auto values = tensor.values<float>();
      // In two additions, as where a parameter is used twice.
      for (int use = 0; use < 2; ++use) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          gradient.values<float>()[i] += values[i] + random.normal();
        }
      }
    }
    const auto tokens = std::ssize(examples);
    return {0.1 * static_cast<double>(tokens), 0.1, tokens};
  }
  nn::LossSum validate() override { return {}; }

 private:
  StateDict parameters_;
  std::vector<std::int64_t> lengths_ = std::vector<std::int64_t>(24, 1);
};

template <typename Task>
std::vector<float> train_with(int ranks, TrainingOptions options,
                              const fs::path& folder, Start start = Start::kNew,
                              std::int64_t stop_after = 0) {
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
  LocalRanks::run(ranks, [&](dist::Communicator& communicator) {
    TrainingOptions own = options;
    own.ranks = &communicator;
    Task task;
    Stopper observer;
    // The last rank wishes to stop, and all do.
    if (communicator.rank() == ranks - 1) observer.stop_after = stop_after;
    weights[static_cast<std::size_t>(communicator.rank())] =
        flat(train(task, own, folder, start, observer).weights);
  });
  for (const auto& one : weights) EXPECT_EQ(one, weights[0]);
  return weights[0];
}

TEST(TrainingRanks, GiveTheBitsOfOneProcess) {
  const TemporaryFolder folder;
  SmallTask task;
  Stopper observer;
  const auto alone =
      flat(train(task, small_options(), folder / "alone", Start::kNew, observer)
               .weights);
  for (const int ranks : {1, 2, 3, 4, 7}) {
    EXPECT_EQ(train_with<SmallTask>(ranks, small_options(),
                                    folder / std::to_string(ranks)),
              alone)
        << ranks;
  }
}

TEST(TrainingRanks, GiveTheBitsOfOneProcessWhereTensorsAreCut) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.max_updates = 6;
  options.batch_tokens = 2;
  options.average = 1;
  const auto alone = train_with<WideTask>(1, options, folder / "1");
  for (const int ranks : {2, 4, 5}) {
    EXPECT_EQ(
        train_with<WideTask>(ranks, options, folder / std::to_string(ranks)),
        alone)
        << ranks;
  }
}

// The sum is of the batches' own sums, in order: told by adding up by hand.
TEST(TrainingRanks, AnUpdateIsTheSumOfItsBatchesInOrder) {
  const TemporaryFolder folder;
  TrainingOptions options;
  options.max_updates = 1;
  options.batch_tokens = 1;
  options.accumulate = 3;
  options.schedule.kind = ScheduleKind::kConstant;
  options.schedule.peak = 1;
  options.adam.beta1 = 0;
  options.threads = {.count = 1};
  struct Task : SmallTask {
    Task() : SmallTask(3) {}
    std::vector<std::vector<float>> batches;
    nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                   std::uint64_t seed,
                                   StateDict& gradients) override {
      StateDict own;
      const nn::LossSum sum =
          SmallTask::loss_and_gradients(examples, seed, own);
      batches.push_back(flat(own));
      SmallTask::loss_and_gradients(examples, seed, gradients);
      return sum;
    }
  } task;
  Stopper observer;
  train(task, options, folder / "run", Start::kNew, observer);
  ASSERT_EQ(task.batches.size(), 3u);
  // With beta1 = 0 the first moment is the gradient of the mean.
  const auto file =
      SafetensorsFile::open(folder / "run" / "checkpoint.safetensors")
          .state_dict();
  std::vector<float> moments;
  for (const char* name : {"adam.first/bias", "adam.first/weight"}) {
    const auto values = file.at(name).values<float>();
    moments.insert(moments.end(), values.begin(), values.end());
  }
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const float sum =
        (task.batches[0][i] + task.batches[1][i]) + task.batches[2][i];
    EXPECT_EQ(moments[i], sum * static_cast<float>(1.0 / 3)) << i;
  }
}

TEST(TrainingRanks, GoOnWithAnyOtherNumberOfRanks) {
  const TemporaryFolder folder;
  const auto whole =
      train_with<SmallTask>(1, small_options(), folder / "whole");
  train_with<SmallTask>(3, small_options(), folder / "parts", Start::kNew, 7);
  train_with<SmallTask>(1, small_options(), folder / "parts", Start::kResume,
                        6);
  train_with<SmallTask>(4, small_options(), folder / "parts", Start::kResume,
                        9);
  EXPECT_EQ(train_with<SmallTask>(2, small_options(), folder / "parts",
                                  Start::kResume),
            whole);
  EXPECT_EQ(read_log(folder / "parts" / "log.jsonl").updates.size(), 30u);
}

TEST(TrainingRanks, WriteTheCheckpointOfOneProcess) {
  const TemporaryFolder folder;
  TrainingOptions options = small_options();
  options.max_updates = 3;
  options.batch_tokens = 2;
  const auto checkpoint = [&](int ranks) {
    const fs::path path = folder / std::to_string(ranks);
    train_with<WideTask>(ranks, options, path);
    return SafetensorsFile::open(path / "checkpoint.safetensors");
  };
  const SafetensorsFile one = checkpoint(1), four = checkpoint(4);
  EXPECT_EQ(flat(one.state_dict()), flat(four.state_dict()));
  EXPECT_EQ(one.metadata(), four.metadata());
}

TEST(TrainingRanks, TellWhatOneHasDifferently) {
  const TemporaryFolder folder;
  const auto run = [&folder](auto change) {
    LocalRanks::run(2, [&](dist::Communicator& communicator) {
      TrainingOptions options = small_options();
      options.ranks = &communicator;
      if (communicator.rank() == 1) change(options);
      SmallTask task;
      Stopper observer;
      train(task, options, folder / "run", Start::kNew, observer);
    });
  };
  EXPECT_THAT([&] { run([](TrainingOptions& o) { o.seed = 2; }); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("on rank 0 seed is 1, and here 2")));
  EXPECT_THAT(
      [&] { run([](TrainingOptions& o) { o.settings["data"] = "other"; }); },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("on rank 0 data is not set, and here other")));
  EXPECT_THAT([&] { run([](TrainingOptions& o) { o.max_updates = 5; }); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("updates at most is 30, and here 5")));
}

TEST(TrainingRanks, EndTogetherWhereRankZeroCannotBegin) {
  const TemporaryFolder folder;
  train_with<SmallTask>(1, small_options(), folder / "run");
  EXPECT_THAT(
      [&] { train_with<SmallTask>(3, small_options(), folder / "run"); },
      ThrowsMessage<InvalidArgument>(HasSubstr("holds a training already")));
}

TEST(Shards, CoverEveryElementOnceAndAreAboutEqual) {
  StateDict parameters;
  parameters = WideTask().parameters();
  std::int64_t total = 0;
  for (const auto& [name, tensor] : parameters) total += tensor.size();
  for (const int ranks : {1, 2, 3, 8, 40}) {
    std::map<std::string, std::int64_t> next;
    for (const Shard& shard : make_shards(parameters, ranks)) {
      std::int64_t size = 0;
      for (const Slice& slice : shard) {
        EXPECT_EQ(slice.begin, next[slice.name]);
        EXPECT_EQ(slice.begin % kGradientBlock, 0);
        EXPECT_GT(slice.count, 0);
        next[slice.name] = slice.begin + slice.count;
        size += slice.count;
      }
      EXPECT_LE(size, total / ranks + kGradientBlock);
    }
    for (const auto& [name, tensor] : parameters) {
      EXPECT_EQ(next[name], tensor.size()) << name;
    }
  }
}

}  // namespace
}  // namespace regard::train
