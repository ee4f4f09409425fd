// SPDX-License-Identifier: Apache-2.0
#include "regard/train/training.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/train/batches.h"
#include "regard/train/log.h"
#include "train/checkpoint.h"

namespace regard::train {
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check(const TrainingOptions& options) {
  const char* where = "train";
  require(options.max_updates >= 0 && options.max_epochs >= 0 &&
              options.max_updates + options.max_epochs > 0,
          where, "max_updates or max_epochs must be set; got ",
          options.max_updates, " and ", options.max_epochs);
  require(options.batch_tokens > 0 && options.accumulate > 0, where,
          "batch_tokens and accumulate must be positive; got ",
          options.batch_tokens, " and ", options.accumulate);
  require(options.clip >= 0 && options.checkpoint_seconds >= 0, where,
          "clip and checkpoint_seconds must not be negative; got ",
          options.clip, " and ", options.checkpoint_seconds);
  require(options.milestone >= 0 && options.patience >= 0, where,
          "milestone and patience must not be negative; got ",
          options.milestone, " and ", options.patience);
  require(options.average > 0, where,
          "at least one milestone must be averaged; got ", options.average);
  options.schedule.check();
}

// Everything that the bits of the weights depend on, but for the limits: a run
// may be made longer.
Settings settings_of(const TrainingOptions& o) {
  Settings settings = o.settings;
  const auto set = [&settings](const char* name, auto value) {
    // The shortest that is read as the same number.
    std::array<char, 40> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    settings[name] = std::string(text.data(), end);
  };
  constexpr std::array<const char*, 3> kSchedules = {"constant", "inverse-sqrt",
                                                     "cosine"};
  settings["schedule"] =
      kSchedules.at(static_cast<std::size_t>(o.schedule.kind));
  set("seed", o.seed);
  set("tokens of a batch", o.batch_tokens);
  set("batches of an update", o.accumulate);
  set("beta1 of Adam", o.adam.beta1);
  set("beta2 of Adam", o.adam.beta2);
  set("epsilon of Adam", o.adam.epsilon);
  set("weight decay", o.adam.weight_decay);
  set("learning rate", o.schedule.peak);
  set("first learning rate", o.schedule.start);
  set("lowest learning rate", o.schedule.floor);
  set("warm-up", o.schedule.warmup);
  set("updates of the schedule", o.schedule.total);
  set("clipping", o.clip);
  set("updates between milestones", o.milestone);
  set("milestones averaged", o.average);
  return settings;
}

// What dropout draws from in one batch of one update.
std::uint64_t seed_of_batch(std::uint64_t seed, std::int64_t update,
                            std::int64_t part) {
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(update),
              static_cast<std::uint32_t>(update >> 32), 0x64726F70,
              static_cast<std::uint32_t>(part)},
             seed);
  return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
}

class Run {
 public:
  Run(TrainingTask& task, const TrainingOptions& options,
      const fs::path& folder, Observer& observer)
      : task_(task),
        options_(options),
        folder_(folder),
        observer_(observer),
        settings_(settings_of(options)),
        adam_(options.adam, task.parameters()) {}

  TrainingResult operator()(Start start) {
    prepare(start);
    observer_.on_start(position_.update);
    for (;;) {
      if (const std::optional<Ending> ending = limit()) {
        return finish(*ending);
      }
      update();
      if (observer_.wants_to_stop()) {
        save();
        return finish(Ending::kStopped);
      }
    }
  }

 private:
  void prepare(Start start) {
    require(!task_.lengths().empty(), "train",
            "there must be at least one example");
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) {
      throw_io_error("train", "cannot make the folder '", folder_.string(),
                     "': ", error.message());
    }
    lock_.emplace(folder_);
    const bool has_checkpoint = fs::exists(checkpoint_path(folder_));
    require(start == Start::kResume || !has_checkpoint, "train", "'",
            folder_.string(),
            "' holds a training already; resume it, or choose another folder");
    if (has_checkpoint) {
      position_ =
          load_checkpoint(folder_, settings_, task_.parameters(), adam_);
    }
    remove_unfinished_files(folder_);
    // A crash may have left some that belong to updates after the checkpoint.
    for (const std::int64_t update : list_milestones(folder_)) {
      if (update > position_.update) remove_milestone(folder_, update);
    }
    remove_old_milestones();
    log_.emplace(folder_ / "log.jsonl", position_.update);
    last_save_ = Clock::now();
    load_epoch();
  }

  void load_epoch() {
    batches_ =
        make_batches(task_.lengths(),
                     {.tokens = options_.batch_tokens, .seed = options_.seed},
                     position_.epoch);
  }

  std::optional<Ending> limit() const {
    if (options_.patience > 0 && position_.worse >= options_.patience) {
      return Ending::kPatience;
    }
    if (options_.max_updates > 0 && position_.update >= options_.max_updates) {
      return Ending::kUpdates;
    }
    if (options_.max_epochs > 0 && position_.epoch >= options_.max_epochs) {
      return Ending::kEpochs;
    }
    return std::nullopt;
  }

  void update() {
    const Clock::time_point begin = Clock::now();
    ++position_.update;
    for (auto& [name, gradient] : gradients_) {
      std::memset(gradient.bytes(), 0, gradient.byte_count());
    }
    nn::LossSum sum;
    UpdateReport report;
    report.update = position_.update;
    report.epoch = position_.epoch + 1;
    const auto count = static_cast<std::int64_t>(batches_.size());
    for (std::int64_t part = 0;
         part < options_.accumulate && position_.batch < count; ++part) {
      sum += task_.loss_and_gradients(
          batches_[static_cast<std::size_t>(position_.batch++)],
          seed_of_batch(options_.seed, position_.update, part), gradients_);
    }
    learn(sum, report);
    report.seconds = seconds_since(begin);
    log_->write(report);
    observer_.on_update(report);
    const bool epoch_ends = position_.batch == count;
    if (epoch_ends) {
      ++position_.epoch;
      position_.batch = 0;
      load_epoch();
    }
    const bool milestone = options_.milestone == 0
                               ? epoch_ends
                               : position_.update % options_.milestone == 0;
    if (milestone || limit()) {
      reach_milestone(report.epoch);
    } else if (seconds_since(last_save_) >= options_.checkpoint_seconds) {
      save();
    }
  }

  // Gradients of sums become those of the mean over all tokens of the update.
  void learn(const nn::LossSum& sum, UpdateReport& report) {
    const auto tokens = static_cast<double>(sum.tokens);
    require(sum.tokens > 0, "train", "a batch must hold a target; update ",
            report.update, " has none");
    report.tokens = sum.tokens;
    report.loss = sum.loss / tokens;
    report.likelihood = sum.likelihood / tokens;
    report.rate = options_.schedule.rate(position_.update);
    report.gradient_norm = gradient_norm(gradients_, options_.threads) / tokens;
    require(std::isfinite(report.loss) && std::isfinite(report.gradient_norm),
            "train", "the loss and its gradient must be finite; update ",
            report.update, " has a loss of ", report.loss, ", a norm of ",
            report.gradient_norm,
            ". The last checkpoint is whole; a lower learning rate, a longer "
            "warm-up or clipping may help");
    double scale = 1 / tokens;
    if (options_.clip > 0 && report.gradient_norm > options_.clip) {
      scale *= options_.clip / report.gradient_norm;
    }
    adam_.step(gradients_, task_.parameters(),
               {.rate = report.rate,
                .gradient_scale = scale,
                .threads = options_.threads});
  }

  void reach_milestone(std::int64_t epoch) {
    const nn::LossSum sum = task_.validate();
    MilestoneReport report;
    report.update = position_.update;
    report.epoch = epoch;
    report.likelihood = sum.tokens > 0
                            ? sum.likelihood / static_cast<double>(sum.tokens)
                            : std::numeric_limits<double>::quiet_NaN();
    report.best = report.likelihood < position_.best;
    if (report.best) {
      position_.best = report.likelihood;
      position_.worse = 0;
    } else if (sum.tokens > 0) {
      ++position_.worse;
    }
    if (options_.average > 1) {
      save_milestone(folder_, position_.update, task_.parameters());
    }
    log_->write(report);
    save();
    remove_old_milestones();
    observer_.on_milestone(report);
  }

  // Those that no average needs. A checkpoint that does not need them either
  // must be on the disk.
  void remove_old_milestones() {
    const std::vector<std::int64_t> all = list_milestones(folder_);
    const auto kept = static_cast<std::size_t>(options_.average);
    for (std::size_t i = 0; i + kept < all.size(); ++i) {
      remove_milestone(folder_, all[i]);
    }
  }

  void save() {
    save_checkpoint(folder_, position_, task_.parameters(), adam_, settings_);
    last_save_ = Clock::now();
  }

  TrainingResult finish(Ending ending) {
    TrainingResult result;
    result.ending = ending;
    result.updates = position_.update;
    const std::vector<std::int64_t> milestones = list_milestones(folder_);
    if (options_.average > 1 && !milestones.empty()) {
      result.averaged = static_cast<std::int64_t>(milestones.size());
      result.weights = average_milestones(folder_, milestones);
    } else {
      result.weights = task_.parameters();
    }
    return result;
  }

  TrainingTask& task_;
  const TrainingOptions& options_;
  fs::path folder_;
  std::optional<FolderLock> lock_;
  Observer& observer_;
  Settings settings_;
  Adam adam_;
  Position position_;
  StateDict gradients_;
  std::vector<std::vector<std::int64_t>> batches_;  // of this epoch
  std::optional<Log> log_;
  Clock::time_point last_save_;
};

}  // namespace

TrainingResult train(TrainingTask& task, const TrainingOptions& options,
                     const fs::path& folder, Start start, Observer& observer) {
  check(options);
  return Run(task, options, folder, observer)(start);
}

}  // namespace regard::train
