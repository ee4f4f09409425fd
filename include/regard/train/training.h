// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "regard/attention/attention.h"
#include "regard/core/threads.h"
#include "regard/dist/communicator.h"
#include "regard/nn/batch.h"
#include "regard/tensor/tensor.h"
#include "regard/train/adam.h"
#include "regard/train/schedule.h"

namespace regard::train {

// A model and the examples that it learns from, as the loop sees them: examples
// are numbers, and how long each is.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  // The values to learn, by name. An optimizer writes to them between calls;
  // names and shapes stay.
  virtual StateDict& parameters() = 0;
  // One for each training example; what a batch's budget is counted in.
  virtual std::span<const std::int64_t> lengths() const = 0;
  // The loss of a training batch, with dropout drawn from `seed`. Adds the
  // gradients of the sum of the losses to `gradients`, which holds a tensor for
  // each parameter, or is empty and then filled. The bits depend on the
  // parameters, the examples and the seed, not on the number of threads.
  virtual nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                         std::uint64_t seed,
                                         StateDict& gradients) = 0;
  // The loss over the examples that are held out; 0 tokens where there are
  // none. Of several ranks, rank 0 alone is asked.
  virtual nn::LossSum validate() = 0;
  // Whether there are such examples. Rank 0 alone is asked, too.
  virtual bool holds_out() const { return true; }
  // How loss_and_gradients() multiplies from here on; validate() stays in
  // float. Throws InvalidArgument where the task knows no other way.
  virtual void set_compute(Compute compute);
};

struct TrainingOptions {
  std::uint64_t seed = 1;
  std::int64_t max_updates = 0;  // 0 means no limit; one of the two must be set
  std::int64_t max_epochs = 0;
  std::int64_t batch_tokens = 4096;  // at most, at once
  // Batches of an update. Each batch's gradients are summed by themselves, and
  // then in the order of the batches, so that ranks can share them.
  std::int64_t accumulate = 1;
  AdamOptions adam;
  Schedule schedule;
  double clip = 0;  // the largest norm of a gradient; 0 leaves it alone
  // A milestone is a validation and, where weights are averaged, a copy of
  // them. Every so many updates; 0 means after each epoch.
  std::int64_t milestone = 0;
  // Milestones without a better loss before the end; 0: no end. Needs examples
  // that are held out.
  std::int64_t patience = 0;
  std::int64_t average = 1;  // the result is the mean of so many milestones
  double checkpoint_seconds = 300;  // 0 saves after each update
  Threads threads = {};
  // kBFloat16: matrix products, and attention to long sentences, round what
  // they multiply to bf16. Weights, sums, gradients and Adam stay in float. The
  // bits depend on how the machine multiplies bf16 then (Compute).
  Compute compute = Compute::kFloat32;
  // Who trains together. Ranks share the batches of an update and the moments
  // of Adam; each has the whole task. Must outlive the training.
  dist::Communicator* ranks = &dist::single_process();
  // What else the result depends on, such as data and model: names in plain
  // words, and values. A checkpoint is resumed only if all are the same.
  std::map<std::string, std::string> settings = {};
};

struct UpdateReport {
  std::int64_t update = 0;  // from 1
  std::int64_t epoch = 0;   // from 1
  double loss = 0;          // per token, with smoothing
  double likelihood = 0;    // per token: -log p
  double gradient_norm = 0;
  double rate = 0;
  std::int64_t tokens = 0;
  double seconds = 0;  // that this update took
  // Of them, and how much this rank sent to others.
  double seconds_waited = 0;
  std::int64_t bytes_sent = 0;
};

struct MilestoneReport {
  std::int64_t update = 0;
  std::int64_t epoch = 0;
  double likelihood = 0;  // a held-out token: -log p; NaN without any
  bool best = false;
};

// Whoever watches. The loop itself prints nothing. Every rank has its own.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(std::int64_t /*updates done*/) {}
  virtual void on_update(const UpdateReport&) {}
  virtual void on_milestone(const MilestoneReport&) {}
  // Asked after every update: true saves and ends, to resume later. The wish of
  // one rank ends all.
  virtual bool wants_to_stop() { return false; }
};

enum class Ending { kUpdates, kEpochs, kPatience, kStopped };

struct TrainingResult {
  Ending ending = Ending::kStopped;
  std::int64_t updates = 0;
  std::int64_t averaged = 1;
  // The mean of the last milestones; where none was kept, the last weights.
  StateDict weights;
};

enum class Start { kNew, kResume };

// Learns until a limit, the end of patience, or a wish to stop. In `folder`,
// which is made where it is not there:
//
//   checkpoint.safetensors   all that --resume needs; replaced atomically
//   milestone-*.safetensors  the last weights to average
//   log.jsonl                a line of JSON an update and a milestone
//
// The weights are a function of the task and the options. Threads, ranks,
// stops, crashes and resumes change no bit. The limits and the patience may be
// others when a run is resumed: one that is made longer ends as if it had been
// as long from the start. There is a milestone at a limit, too; a longer run
// neither averages it nor counts it for its patience. Rank 0 alone uses the
// folder, and all ranks have the result. kResume without a checkpoint starts
// anew; kNew refuses a folder that has one. Throws InvalidArgument for options
// that make no sense or are not those of the checkpoint (it names each that
// differs, what it was and what it is), or not those of rank 0, IoError where
// another training is at work in the folder, ParseError for a broken
// checkpoint, IoError where the disk refuses (the last checkpoint stays), and
// InvalidArgument where the loss is not finite.
TrainingResult train(TrainingTask& task, const TrainingOptions& options,
                     const std::filesystem::path& folder, Start start,
                     Observer& observer);

}  // namespace regard::train
