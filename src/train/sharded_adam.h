// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/dist/communicator.h"
#include "regard/tensor/tensor.h"
#include "regard/train/adam.h"

namespace regard::train {

// Elements [begin, begin + count) of a parameter.
struct Slice {
  std::string name;
  std::int64_t begin = 0, count = 0;
};
using Shard = std::vector<Slice>;

// Who updates what: a shard for each rank, at most one slice of a parameter in
// each, in the order of the names. Slices begin where a block of gradient_norm
// does, and those of rank i + 1 come after those of rank i. A shard may be
// empty.
std::vector<Shard> make_shards(const StateDict& parameters, int ranks);

// Adam with its moments spread over ranks: each adds up the gradients of its
// shard, in the order of the batches, updates it and sends it to the others.
// The bits are those of one process. All ranks make the same calls.
class ShardedAdam {
 public:
  // `parameters` must stay; step() writes to them.
  ShardedAdam(const AdamOptions& options, StateDict& parameters,
              dist::Communicator& ranks);

  // Where the gradients of this rank's next batch go: zeros, or empty.
  StateDict& batch_gradients();
  // Adds a batch of each of the first `batches` ranks to the sum of this
  // update, in the order of the ranks.
  void add(int batches, Threads threads);
  // The norm of the sum.
  double gradient_norm(Threads threads);
  // One step by the sum. After it the next update begins.
  void step(const Adam::Step& step);

  // Calls `use` with the moments of all shards, on rank 0 alone.
  void with_whole(FunctionRef<void(const Adam&)> use);
  // Calls `load` on rank 0 alone, which may write to the parameters and restore
  // the moments; then all ranks have both.
  void restore(FunctionRef<void(Adam&)> load);

 private:
  bool alone() const { return ranks_.size() == 1; }
  const Shard& own() const {
    return shards_[static_cast<std::size_t>(ranks_.rank())];
  }
  // Parameters, or what is updated of them.
  StateDict& values() { return alone() ? parameters_ : own_values_; }

  AdamOptions options_;
  StateDict& parameters_;
  dist::Communicator& ranks_;
  std::vector<Shard> shards_;
  StateDict own_values_;             // the own shard; of no use alone
  Adam adam_;                        // of values()
  StateDict gradients_;              // of a batch
  std::vector<StateDict> received_;  // the own shard of them, by rank
  StateDict sum_;                    // as values()
  bool has_sum_ = false;
};

}  // namespace regard::train
