// SPDX-License-Identifier: Apache-2.0
#include "cli/learning_flags.h"

#include <gtest/gtest.h>

#include <vector>

#include "cli/usage_error.h"

namespace regard::cli {
namespace {

// What a training with these options and defaults ends with.
train::TrainingOptions options_for(std::vector<const char*> arguments,
                                   LearningFlags defaults = {}) {
  App app("train", "");
  LearningFlags flags = defaults;
  add_learning_flags(app, flags);
  arguments.insert(arguments.begin(), "train");
  app.parse(static_cast<int>(arguments.size()), arguments.data());
  check(flags);
  const std::vector<std::int64_t> lengths(10, 1);
  return training_options(flags, lengths);
}

TEST(LearningFlags, ADefaultDoesNotCutShortWhatWasAskedFor) {
  LearningFlags flags;
  flags.updates = 5000;
  flags.epochs = 0;
  EXPECT_EQ(options_for({}, flags).max_updates, 5000);
  EXPECT_EQ(options_for({"--epochs", "20"}, flags).max_updates, 0);
  EXPECT_EQ(options_for({"--epochs", "20"}, flags).max_epochs, 20);
  flags.updates = 0;
  flags.epochs = 30;
  EXPECT_EQ(options_for({}, flags).max_epochs, 30);
  EXPECT_EQ(options_for({"--updates", "9"}, flags).max_epochs, 0);
  EXPECT_EQ(options_for({"--updates", "9"}, flags).max_updates, 9);
}

TEST(LearningFlags, OfTwoLimitsTheFirstEnds) {
  const auto both = options_for({"--updates", "9", "--epochs", "4"});
  EXPECT_EQ(both.max_updates, 9);
  EXPECT_EQ(both.max_epochs, 4);
}

// A schedule that ends does so with the last epoch.
TEST(LearningFlags, AScheduleEndsWithTheEpochs) {
  const auto options = options_for({"--epochs", "4", "--schedule", "cosine",
                                    "--warmup", "1", "--batch-tokens", "1"});
  EXPECT_EQ(options.schedule.total, 40);
}

TEST(LearningFlags, OneLimitThereMustBe) {
  EXPECT_THROW(options_for({"--epochs", "0"}), UsageError);
  EXPECT_THROW(options_for({"--updates", "0"}), UsageError);
}

}  // namespace
}  // namespace regard::cli
