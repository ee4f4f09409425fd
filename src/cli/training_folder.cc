// SPDX-License-Identifier: Apache-2.0
#include "cli/training_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "cli/screen.h"
#include "cli/stopped.h"
#include "cli/training_screen.h"
#include "io/atomic_file.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "train/checkpoint.h"

namespace regard::cli {
namespace fs = std::filesystem;

namespace {

const char* reason(train::Ending ending) {
  switch (ending) {
    case train::Ending::kUpdates:
      return "the number of updates is reached";
    case train::Ending::kEpochs:
      return "the number of epochs is reached";
    case train::Ending::kPatience:
      return "the held-out loss no longer falls";
    case train::Ending::kStopped:
      return "stopped";
  }
  return "";
}

double best_loss(const train::RunHistory& history) {
  double best = std::nan("");
  for (const train::MilestoneReport& milestone : history.milestones) {
    best =
        std::fmin(best, milestone.likelihood);  // not NaN, if one is a number
  }
  return best;
}

void show_end(const train::RunHistory& history) {
  std::vector<std::pair<double, double>> training;
  std::vector<std::pair<double, double>> held_out;
  for (const train::UpdateReport& update : history.updates) {
    training.emplace_back(static_cast<double>(update.update),
                          update.likelihood);
  }
  for (const train::MilestoneReport& milestone : history.milestones) {
    if (!std::isfinite(milestone.likelihood)) continue;
    held_out.emplace_back(static_cast<double>(milestone.update),
                          milestone.likelihood);
  }
  print(draw_curve(training, held_out, standard_output(ColorWhen::kNever)));
}

// It may have come to another rank.
int signal_that_stopped() {
  const int signal = StopOnSignal::signal();
  return signal == 0 ? SIGTERM : signal;
}

void tell_ranks(const train::TrainingOptions& options, Ranks& ranks) {
  ranks.check_threads(options.threads);
  const std::int64_t idle = ranks.launched() - options.accumulate;
  if (idle <= 0) return;
  std::fprintf(stderr,
               "an update has %lld batches, so %lld of %d ranks have no work; "
               "--accumulate sets the number of batches\n",
               static_cast<long long>(options.accumulate),
               static_cast<long long>(idle), ranks.launched());
}

std::string mean_of(const train::TrainingResult& result, const char* joint) {
  if (result.averaged == 1) return "";
  return fmt::format("{}the mean of {} milestones", joint, result.averaged);
}

}  // namespace

TrainingFolder::TrainingFolder(const LearningFlags& flags, const char* command,
                               Ranks& ranks)
    : flags_(flags),
      command_(command),
      ranks_(ranks),
      folder_(flags.out),
      work_(folder_ / "training") {
  if (ranks.first()) {
    require(flags.resume || !fs::exists(work_), command, "'", work_.string(),
            "' already holds a training; continue it with --resume, or choose "
            "another --out");
    goes_on_ = flags_.resume && fs::exists(train::checkpoint_path(work_));
  }
  goes_on_ = dist::broadcast_value(ranks.communicator(), 0, goes_on_);
}

void TrainingFolder::create() const {
  if (!ranks_.first()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw_io_error(command_, "cannot make the folder '", folder_.string(),
                   "': ", error.message());
  }
}

void TrainingFolder::create(const text::Tokenizer& tokenizer) const {
  create();
  if (!goes_on_ && ranks_.first()) tokenizer.save(folder_);
}

TrainingFolder::Outcome TrainingFolder::run(
    train::TrainingTask& task,
    const std::map<std::string, std::string>& settings, const char* unit,
    const std::function<void(const StateDict&)>& save) const {
  train::TrainingOptions options = training_options(flags_, task.lengths());
  options.settings = settings;
  options.ranks = &ranks_.communicator();
  tell_ranks(options, ranks_);
  TrainingScreen screen(std::max(options.max_updates, options.schedule.total),
                        unit);
  const StopOnSignal signals;
  Outcome outcome;
  outcome.result = train::train(
      task, options, work_,
      flags_.resume ? train::Start::kResume : train::Start::kNew, screen);
  screen.clear();
  if (!ranks_.first()) {
    if (outcome.result.ending == train::Ending::kStopped) {
      throw Stopped{signal_that_stopped()};
    }
    return outcome;
  }
  outcome.history = train::read_log(work_ / "log.jsonl");
  const auto& [result, history] = outcome;
  const bool stopped = result.ending == train::Ending::kStopped;
  if (!stopped || !history.milestones.empty()) save(result.weights);
  if (stopped) {
    const std::string text = fmt::format(
        "stopped and saved after update {}; the same command with --resume "
        "continues it. {}\n",
        result.updates,
        history.milestones.empty()
            ? "There is no model before the first milestone"
            : "The model so far is in " + flags_.out);
    std::fputs(text.c_str(), stderr);
    throw Stopped{signal_that_stopped()};
  }
  show_end(history);
  print(fmt::format("done after {} updates: {}. The model{} is in {}\n",
                    result.updates, reason(result.ending),
                    mean_of(result, ", "), flags_.out));
  return outcome;
}

void TrainingFolder::finish(const Outcome& outcome, const std::string& score,
                            const Card& card) const {
  print(score);
  write_card(folder_,
             fmt::format("# {}\n\nTrained with `regard {}`.\n\n{}{}{}\n    "
                         "{}\n\n{}\n",
                         card.title, command_, card.facts,
                         learning_lines(flags_, outcome, card.unit),
                         score.empty() ? "" : "- " + score, card.example,
                         card.caution),
             command_);
}

std::string learning_lines(const LearningFlags& f,
                           const TrainingFolder::Outcome& outcome,
                           const char* unit) {
  const double loss = best_loss(outcome.history);
  std::string text = fmt::format(
      "- Training: {} updates of {} x {} tokens, learning rate {} ({}, "
      "{} warm-up), seed {}{}\n",
      outcome.result.updates, f.accumulate, f.batch_tokens, f.rate, f.schedule,
      f.warmup, f.seed, mean_of(outcome.result, "; "));
  if (!std::isnan(loss)) {
    text += fmt::format("- Lowest held-out loss: {:.4f} per {}\n", loss, unit);
  }
  return text;
}

void write_card(const fs::path& folder, const std::string& text,
                const char* command) {
  const fs::path shown = folder / "README.md";
  // As it was written here: where the other differs, the user has added to it.
  const fs::path own = folder / "training" / "card.md";
  const auto content = [command](const fs::path& path) {
    return fs::exists(path) ? io::read_file(path, command) : "";
  };
  const auto write = [&text, command](const fs::path& path) {
    io::AtomicFile file(path, command);
    file.write(text);
    file.commit();
  };
  const std::string before = content(shown);
  const bool is_own = !fs::exists(shown) || before == content(own);
  write(own);
  if (is_own) {
    write(shown);
  } else if (before != text) {
    std::fprintf(stderr,
                 "'%s' is not as this program wrote it and stays as it is; the "
                 "card of this training is in '%s'\n",
                 shown.c_str(), own.c_str());
  }
}

void add_settings(const std::string& json,
                  std::map<std::string, std::string>& settings) {
  const auto members = Json::parse(json);
  for (const auto& [key, value] : members.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    settings[name] =
        value.is_string() ? value.get<std::string>() : value.dump();
  }
}

std::string size_text(const nn::EncoderConfig& c) {
  return fmt::format("{} layers, width {}, {} heads, feed-forward {}", c.layers,
                     c.model_dim, c.heads, c.feed_forward_dim);
}

std::int64_t parameter_count(const StateDict& weights) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : weights) count += tensor.size();
  return count;
}

}  // namespace regard::cli
