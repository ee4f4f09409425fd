// SPDX-License-Identifier: Apache-2.0
#include "cli/learning_flags.h"

#include <fmt/format.h>

#include <limits>

#include "cli/checks.h"
#include "cli/usage_error.h"
#include "regard/train/batches.h"

namespace regard::cli {
namespace {

template <typename Files>
void add_held_out(App& app, Files& valid, double& share) {
  app.add_option("--valid", valid, "Validation file")
      ->type_name("FILE")
      ->group("Data");
  app.add_option("--valid-share", share,
                 "Share to hold out if no validation file is given")
      ->capture_default_str()
      ->check(real_between(0, 0.9))
      ->group("Data");
}

bool schedule_ends(const LearningFlags& f) {
  return f.schedule == "cosine" || f.schedule == "linear";
}

}  // namespace

void add_held_out_flags(App& app, std::string& valid, double& share) {
  add_held_out(app, valid, share);
}
void add_held_out_flags(App& app, std::vector<std::string>& valid,
                        double& share) {
  add_held_out(app, valid, share);
}

void add_folder_flags(App& app, LearningFlags& f) {
  app.add_option("--out", f.out, "Folder of the model")
      ->type_name("FOLDER")
      ->required()
      ->group("Data");
  app.add_flag("--resume", f.resume,
               "Resume the training in the folder, if there is one")
      ->group("Data");
}

void add_learning_flags(App& app, LearningFlags& f) {
  const char* group = "Training";
  const auto count = [&](const char* name, std::int64_t& value, int least,
                         const char* what) {
    app.add_option(name, value, what)
        ->check(whole_between(least, 1000000000))
        ->capture_default_str()
        ->group(group);
  };
  const auto real = [&](const char* name, double& value, const char* what) {
    app.add_option(name, value, what)
        ->check(real_between(0, std::numeric_limits<double>::infinity()))
        ->capture_default_str()
        ->group(group);
  };
  const auto beta = [&](const char* name, double& value) {
    app.add_option(name, value, "Parameter of Adam")
        ->check(real_below(0, 1))
        ->capture_default_str()
        ->group(group);
  };
  f.declared_by = &app;
  count("--updates", f.updates, 0,
        "Maximum number of updates; 0: no limit, as with --epochs alone");
  count("--epochs", f.epochs, 0,
        "Maximum number of epochs; 0: no limit, as with --updates alone");
  count("--batch-tokens", f.batch_tokens, 1, "Tokens per batch");
  count("--accumulate", f.accumulate, 1,
        "Batches per update (gradient accumulation)");
  app.add_option("--schedule", f.schedule, "Learning rate schedule")
      ->check(member_of({"inverse-sqrt", "cosine", "linear", "constant"}))
      ->capture_default_str()
      ->group(group);
  real("--lr", f.rate, "Peak learning rate");
  count("--warmup", f.warmup, 0,
        "Warm-up: updates until the peak learning rate");
  beta("--beta1", f.beta1);
  beta("--beta2", f.beta2);
  real("--weight-decay", f.weight_decay, "Decoupled weight decay, as in AdamW");
  real("--clip", f.clip, "Clip gradients to this norm; 0: no clipping");
  count("--validate-every", f.validate_every, 0,
        "Updates between validations (milestones); 0: one epoch");
  count("--patience", f.patience, 0,
        "Stop after N milestones without a better loss; 0: never");
  count("--average", f.average, 1,
        "Average the weights of the last N milestones");
  real("--checkpoint-every", f.checkpoint_every,
       "Seconds between checkpoints; 0: after each update");
  app.add_option("--seed", f.seed, "Random seed")
      ->capture_default_str()
      ->group(group);
  app.add_option("--threads", f.threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--compute", f.compute,
                 "Products of the training: bfloat16 is faster where the "
                 "processor has AMX or AVX512-BF16")
      ->check(member_of({"float32", "bfloat16"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--float16", f.float16,
               "Store the weights in fp16, half the size")
      ->group(group);
}

namespace {

struct Limits {
  std::int64_t updates, epochs;
};

Limits limits_of(const LearningFlags& f) {
  const auto given = [&f](const char* option) {
    return f.declared_by != nullptr && f.declared_by->given(option);
  };
  const bool updates = given("--updates"), epochs = given("--epochs");
  return {epochs && !updates ? 0 : f.updates,
          updates && !epochs ? 0 : f.epochs};
}

}  // namespace

void check(const LearningFlags& f) {
  const Limits limits = limits_of(f);
  if (limits.updates == 0 && limits.epochs == 0) {
    throw UsageError("--updates or --epochs must set an end");
  }
  if (schedule_ends(f) && limits.updates > 0 && limits.updates <= f.warmup) {
    throw UsageError(fmt::format(
        "a {} must end after its --warmup; --updates is {}, --warmup {}",
        f.schedule == "linear" ? "line" : "cosine", limits.updates, f.warmup));
  }
}

std::int64_t update_count(const LearningFlags& f,
                          std::span<const std::int64_t> lengths) {
  const Limits limits = limits_of(f);
  std::int64_t updates = 0;
  for (std::int64_t epoch = 0; epoch < limits.epochs; ++epoch) {
    const auto batches = std::ssize(train::make_batches(
        lengths, {.tokens = f.batch_tokens, .seed = f.seed}, epoch));
    updates += (batches + f.accumulate - 1) / f.accumulate;
    if (limits.updates > 0 && updates >= limits.updates) return limits.updates;
  }
  return limits.epochs > 0 ? updates : limits.updates;
}

train::TrainingOptions training_options(const LearningFlags& f,
                                        std::span<const std::int64_t> lengths) {
  train::TrainingOptions o;
  o.seed = f.seed;
  const Limits limits = limits_of(f);
  o.max_updates = limits.updates;
  o.max_epochs = limits.epochs;
  o.batch_tokens = f.batch_tokens;
  o.accumulate = f.accumulate;
  o.adam.beta1 = static_cast<float>(f.beta1);
  o.adam.beta2 = static_cast<float>(f.beta2);
  o.adam.weight_decay = static_cast<float>(f.weight_decay);
  o.schedule.kind = f.schedule == "cosine"   ? train::ScheduleKind::kCosine
                    : f.schedule == "linear" ? train::ScheduleKind::kLinear
                    : f.schedule == "constant"
                        ? train::ScheduleKind::kConstant
                        : train::ScheduleKind::kInverseSqrt;
  o.schedule.peak = f.rate;
  o.schedule.warmup = f.warmup;
  // It ends with --updates, where they are given, or else with the last epoch.
  if (o.schedule.ends()) {
    o.schedule.total =
        limits.updates > 0 ? limits.updates : update_count(f, lengths);
  }
  o.clip = f.clip;
  o.milestone = f.validate_every;
  o.patience = f.patience;
  o.average = f.average;
  o.checkpoint_seconds = f.checkpoint_every;
  o.threads = {.count = f.threads};
  o.compute = f.compute == "bfloat16" ? Compute::kBFloat16 : Compute::kFloat32;
  return o;
}

}  // namespace regard::cli
