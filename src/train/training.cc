// SPDX-License-Identifier: Apache-2.0
#include "regard/train/training.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/core/version.h"
#include "regard/train/batches.h"
#include "regard/train/log.h"
#include "train/checkpoint.h"
#include "train/sharded_adam.h"

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
  constexpr std::array<const char*, 4> kSchedules = {"constant", "inverse-sqrt",
                                                     "cosine", "linear"};
  settings["schedule"] =
      kSchedules.at(static_cast<std::size_t>(o.schedule.kind));
  set("seed", o.seed);
  set("tokens of a batch", o.batch_tokens);
  set("batches of an update", o.accumulate);
  // Before, batches were added onto each other: such a run cannot go on.
  if (o.accumulate > 1) settings["sums of gradients"] = "batch by batch";
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
  if (o.compute == Compute::kBFloat16) settings["products"] = "bfloat16";
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
        ranks_(*options.ranks),
        settings_(settings_of(options)),
        adam_(options.adam, task.parameters(), ranks_) {}

  TrainingResult operator()(Start start) {
    prepare(start);
    observer_.on_start(position_.update);
    for (;;) {
      if (const std::optional<Ending> ending = limit()) {
        return finish(*ending);
      }
      update();
      if (any(observer_.wants_to_stop())) {
        save();
        return finish(Ending::kStopped);
      }
    }
  }

 private:
  bool first() const { return ranks_.rank() == 0; }
  bool any(bool mine) {
    const std::vector<char> all =
        dist::gather_values(ranks_, static_cast<char>(mine));
    return std::find(all.begin(), all.end(), 1) != all.end();
  }

  void prepare(Start start) {
    require(!task_.lengths().empty(), "train",
            "there must be at least one example");
    task_.set_compute(options_.compute);
    check_agreement();
    check_patience();
    if (first()) open_folder(start);
    has_checkpoint_ = dist::broadcast_value(ranks_, 0, has_checkpoint_);
    if (has_checkpoint_) {
      adam_.restore([this](Adam& adam) {
        position_ =
            load_checkpoint(folder_, settings_, task_.parameters(), adam);
      });
      position_ = dist::broadcast_value(ranks_, 0, position_);
    }
    if (first()) clean_folder();
    last_save_ = Clock::now();
    load_epoch();
  }

  // All ranks must be at the same training: what one of them has differently,
  // it tells.
  void check_agreement() {
    Settings mine = settings_;
    mine["version"] = version();
    mine["updates at most"] = std::to_string(options_.max_updates);
    mine["epochs at most"] = std::to_string(options_.max_epochs);
    mine["patience"] = std::to_string(options_.patience);
    mine["examples"] = std::to_string(task_.lengths().size());
    for (const auto& [name, tensor] : task_.parameters()) {
      std::string shape;
      for (const std::int64_t extent : tensor.shape()) {
        shape += (shape.empty() ? "" : " x ") + std::to_string(extent);
      }
      mine["shape of " + name] = shape;
    }
    std::string text;
    for (const auto& [name, value] : mine) {
      text += name + '\0' + value + '\0';
    }
    text.resize(dist::broadcast_value(ranks_, 0, text.size()));
    dist::broadcast(ranks_, 0, std::as_writable_bytes(std::span(text)));
    if (first()) return;
    Settings of_first;
    for (std::size_t at = 0; at < text.size();) {
      const std::string name = text.c_str() + at;
      const std::string value = text.c_str() + at + name.size() + 1;
      at += name.size() + value.size() + 2;
      of_first[name] = value;
    }
    const std::string different = differences(of_first, mine, "is", "and here");
    require(different.empty(), "train",
            "all ranks must train the same; on rank 0",
            different.substr(std::min<std::size_t>(1, different.size())));
  }

  // Otherwise it would never end, and nobody would know why.
  void check_patience() {
    const bool holds_out =
        dist::broadcast_value(ranks_, 0, first() && task_.holds_out());
    require(options_.patience == 0 || holds_out, "train",
            "patience needs examples that are held out; there are none, and "
            "patience is ",
            options_.patience);
  }

  void open_folder(Start start) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) {
      throw_io_error("train", "cannot make the folder '", folder_.string(),
                     "': ", error.message());
    }
    lock_.emplace(folder_);
    has_checkpoint_ = fs::exists(checkpoint_path(folder_));
    require(start == Start::kResume || !has_checkpoint_, "train", "'",
            folder_.string(),
            "' holds a training already; resume it, or choose another folder");
  }

  void clean_folder() {
    remove_unfinished_files(folder_);
    // A crash may have left some that belong to updates after the checkpoint.
    for (const std::int64_t update : list_milestones(folder_)) {
      if (update > position_.update) remove_milestone(folder_, update);
    }
    // What stood only at the limit of a shorter run is not one of this run's.
    if (!limit() && !at_milestone()) {
      remove_milestone(folder_, position_.update);
    }
    remove_old_milestones();
    log_.emplace(folder_ / "log.jsonl", position_.update);
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

  // Whatever the limits are.
  bool at_milestone() const {
    return options_.milestone == 0 ? position_.batch == 0
                                   : position_.update % options_.milestone == 0;
  }

  void update() {
    const Clock::time_point begin = Clock::now();
    ++position_.update;
    const std::int64_t sent = ranks_.bytes_sent();
    const double waited = ranks_.seconds_waited();
    nn::LossSum sum;
    UpdateReport report;
    report.update = position_.update;
    report.epoch = position_.epoch + 1;
    const auto count = static_cast<std::int64_t>(batches_.size());
    const std::int64_t parts =
        std::min(options_.accumulate, count - position_.batch);
    // A batch for each rank at a time.
    for (std::int64_t part = 0; part < parts; part += ranks_.size()) {
      sum += add_batches(part, parts);
    }
    position_.batch += parts;
    learn(sum, report);
    report.seconds = seconds_since(begin);
    report.seconds_waited = ranks_.seconds_waited() - waited;
    report.bytes_sent = ranks_.bytes_sent() - sent;
    if (first()) log_->write(report);
    observer_.on_update(report);
    if (position_.batch == count) {
      ++position_.epoch;
      position_.batch = 0;
      load_epoch();
    }
    if (at_milestone() || limit()) {
      reach_milestone(report.epoch);
    } else if (dist::broadcast_value(
                   ranks_, 0,
                   seconds_since(last_save_) >= options_.checkpoint_seconds)) {
      save();
    }
  }

  // The batches [part, part + ranks) of an update, as far as there are any.
  nn::LossSum add_batches(std::int64_t part, std::int64_t parts) {
    const auto batches =
        static_cast<int>(std::min<std::int64_t>(ranks_.size(), parts - part));
    nn::LossSum own;
    if (ranks_.rank() < batches) {
      const std::int64_t mine = part + ranks_.rank();
      own = task_.loss_and_gradients(
          batches_[static_cast<std::size_t>(position_.batch + mine)],
          seed_of_batch(options_.seed, position_.update, mine),
          adam_.batch_gradients());
    }
    adam_.add(batches, options_.threads);
    nn::LossSum sum;
    for (const nn::LossSum& one : dist::gather_values(ranks_, own)) sum += one;
    return sum;
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
    report.gradient_norm = adam_.gradient_norm(options_.threads) / tokens;
    require(std::isfinite(report.loss) && std::isfinite(report.gradient_norm),
            "train", "the loss and its gradient must be finite; update ",
            report.update, " has a loss of ", report.loss, ", a norm of ",
            report.gradient_norm, ". ",
            has_checkpoint_ ? "The last checkpoint is whole. " : "",
            "A lower learning rate, a longer warm-up or clipping may help, in "
            "a new folder");
    double scale = 1 / tokens;
    if (options_.clip > 0 && report.gradient_norm > options_.clip) {
      scale *= options_.clip / report.gradient_norm;
    }
    adam_.step({.rate = report.rate,
                .gradient_scale = scale,
                .threads = options_.threads});
  }

  void reach_milestone(std::int64_t epoch) {
    const nn::LossSum sum = dist::broadcast_value(
        ranks_, 0, first() ? task_.validate() : nn::LossSum{});
    MilestoneReport report;
    report.update = position_.update;
    report.epoch = epoch;
    report.likelihood = sum.tokens > 0
                            ? sum.likelihood / static_cast<double>(sum.tokens)
                            : std::numeric_limits<double>::quiet_NaN();
    report.best = report.likelihood < position_.best;
    if (at_milestone()) {
      if (report.best) {
        position_.best = report.likelihood;
        position_.worse = 0;
      } else if (sum.tokens > 0) {
        ++position_.worse;
      }
    }
    if (first()) {
      if (options_.average > 1) {
        save_milestone(folder_, position_.update, task_.parameters());
      }
      log_->write(report);
    }
    save();
    if (first()) remove_old_milestones();
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
    adam_.with_whole([this](const Adam& adam) {
      save_checkpoint(folder_, position_, task_.parameters(), adam, settings_);
    });
    has_checkpoint_ = true;
    last_save_ = Clock::now();
  }

  TrainingResult finish(Ending ending) {
    TrainingResult result;
    result.ending = ending;
    result.updates = position_.update;
    std::vector<std::int64_t> milestones;
    if (first() && options_.average > 1) milestones = list_milestones(folder_);
    const std::int64_t averaged =
        dist::broadcast_value(ranks_, 0, std::ssize(milestones));
    if (first() && averaged > 0) {
      result.weights = average_milestones(folder_, milestones);
    } else {
      result.weights = task_.parameters();
    }
    if (averaged > 0) {
      result.averaged = averaged;
      for (auto& [name, tensor] : result.weights) {
        dist::broadcast(ranks_, 0, {tensor.bytes(), tensor.byte_count()});
      }
    }
    return result;
  }

  TrainingTask& task_;
  const TrainingOptions& options_;
  fs::path folder_;
  std::optional<FolderLock> lock_;
  Observer& observer_;
  dist::Communicator& ranks_;
  Settings settings_;
  ShardedAdam adam_;
  bool has_checkpoint_ = false;
  Position position_;
  std::vector<std::vector<std::int64_t>> batches_;  // of this epoch
  std::optional<Log> log_;
  Clock::time_point last_save_;
};

}  // namespace

void TrainingTask::set_compute(Compute compute) {
  require(compute == Compute::kFloat32, "train",
          "this task computes in float32 alone; bfloat16 was asked for");
}

TrainingResult train(TrainingTask& task, const TrainingOptions& options,
                     const fs::path& folder, Start start, Observer& observer) {
  check(options);
  return Run(task, options, folder, observer)(start);
}

}  // namespace regard::train
