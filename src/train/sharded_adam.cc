// SPDX-License-Identifier: Apache-2.0
#include "train/sharded_adam.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/gradient_blocks.h"

namespace regard::train {
namespace {

using dist::Incoming;
using dist::Outgoing;

std::span<float> part(Tensor& tensor, const Slice& slice) {
  return tensor.values<float>().subspan(static_cast<std::size_t>(slice.begin),
                                        static_cast<std::size_t>(slice.count));
}

// Zeros in the shape of a shard.
StateDict make_slices(const Shard& shard) {
  StateDict slices;
  for (const Slice& slice : shard) {
    slices.emplace(slice.name, Tensor(Shape{slice.count}));
  }
  return slices;
}

// Messages from or to a rank for each slice: of `whole`, or of a StateDict that
// holds slices.
void send_parts(StateDict& whole, const Shard& shard, int to,
                std::vector<Outgoing>& sends) {
  for (const Slice& slice : shard) {
    sends.push_back({to, std::as_bytes(part(whole.at(slice.name), slice))});
  }
}
void receive_parts(StateDict& whole, const Shard& shard, int from,
                   std::vector<Incoming>& receives) {
  for (const Slice& slice : shard) {
    receives.push_back(
        {from, std::as_writable_bytes(part(whole.at(slice.name), slice))});
  }
}
void send_all(const StateDict& slices, int to, std::vector<Outgoing>& sends) {
  for (const auto& [name, tensor] : slices) {
    sends.push_back({to, std::as_bytes(tensor.values<float>())});
  }
}
void receive_all(StateDict& slices, int from, std::vector<Incoming>& receives) {
  for (auto& [name, tensor] : slices) {
    receives.push_back({from, std::as_writable_bytes(tensor.values<float>())});
  }
}

void copy_part(StateDict& whole, const Slice& slice, StateDict& slices) {
  const auto from = part(whole.at(slice.name), slice);
  std::copy(from.begin(), from.end(),
            slices.at(slice.name).values<float>().begin());
}

void add_to(std::span<float> sum, std::span<const float> more,
            Threads threads) {
  const std::int64_t size = std::ssize(sum);
  parallel_for(threads, (size + kGradientBlock - 1) / kGradientBlock,
               [&](std::int64_t block) {
                 const std::int64_t begin = block * kGradientBlock;
                 const std::int64_t end =
                     std::min(size, begin + kGradientBlock);
                 float* to = sum.data();
                 const float* from = more.data();
                 for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
               });
}

std::int64_t block_count(const Shard& shard) {
  std::int64_t count = 0;
  for (const Slice& slice : shard) {
    count += (slice.count + kGradientBlock - 1) / kGradientBlock;
  }
  return count;
}

}  // namespace

std::vector<Shard> make_shards(const StateDict& parameters, int ranks) {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : parameters) total += tensor.size();
  std::vector<Shard> shards(static_cast<std::size_t>(ranks));
  std::int64_t before = 0;
  for (const auto& [name, tensor] : parameters) {
    for (std::int64_t at = 0; at < tensor.size(); at += kGradientBlock) {
      const std::int64_t count = std::min(kGradientBlock, tensor.size() - at);
      // The rank in whose share the block's middle lies.
      const std::int64_t owner = (2 * before + count) * ranks / (2 * total);
      Shard& shard = shards[static_cast<std::size_t>(owner)];
      if (!shard.empty() && shard.back().name == name) {
        shard.back().count += count;
      } else {
        shard.push_back({name, at, count});
      }
      before += count;
    }
  }
  return shards;
}

ShardedAdam::ShardedAdam(const AdamOptions& options, StateDict& parameters,
                         dist::Communicator& ranks)
    : options_(options),
      parameters_(parameters),
      ranks_(ranks),
      shards_(make_shards(parameters, ranks.size())),
      own_values_(alone() ? StateDict{} : make_slices(own())),
      adam_(options, values()) {
  if (alone()) return;
  for (const Slice& slice : own()) copy_part(parameters_, slice, own_values_);
  sum_ = make_slices(own());
  received_.resize(static_cast<std::size_t>(ranks.size()));
  for (int i = 0; i < ranks.size(); ++i) {
    if (i != ranks.rank()) received_[static_cast<std::size_t>(i)] = sum_;
  }
}

StateDict& ShardedAdam::batch_gradients() {
  // Alone, the first batch is the sum so far.
  StateDict& gradients = alone() && !has_sum_ ? sum_ : gradients_;
  for (auto& [name, gradient] : gradients) {
    std::fill_n(gradient.bytes(), gradient.byte_count(), std::byte{0});
  }
  return gradients;
}

void ShardedAdam::add(int batches, Threads threads) {
  if (alone()) {
    if (has_sum_) {
      for (auto& [name, sum] : sum_) {
        add_to(sum.values<float>(), gradients_.at(name).values<float>(),
               threads);
      }
    }
    has_sum_ = true;
    return;
  }
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int i = 0; i < ranks_.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i == ranks_.rank()) continue;
    if (ranks_.rank() < batches) {
      send_parts(gradients_, shards_[at], i, sends);
    }
    if (i < batches) receive_all(received_[at], i, receives);
  }
  ranks_.start(sends, receives);
  ranks_.finish();
  for (int i = 0; i < batches; ++i) {
    for (const Slice& slice : own()) {
      const std::span<float> batch =
          i == ranks_.rank() ? part(gradients_.at(slice.name), slice)
                             : received_[static_cast<std::size_t>(i)]
                                   .at(slice.name)
                                   .values<float>();
      const std::span<float> sum = sum_.at(slice.name).values<float>();
      if (has_sum_) {
        add_to(sum, batch, threads);
      } else {
        std::copy(batch.begin(), batch.end(), sum.begin());
      }
    }
    has_sum_ = true;
  }
}

double ShardedAdam::gradient_norm(Threads threads) {
  if (alone()) return train::gradient_norm(sum_, threads);
  const std::vector<double> own_squares = squares_by_block(sum_, threads);
  std::vector<std::vector<double>> squares;
  std::vector<std::span<std::byte>> parts;
  for (const Shard& shard : shards_) {
    squares.emplace_back(static_cast<std::size_t>(block_count(shard)));
  }
  squares[static_cast<std::size_t>(ranks_.rank())] = own_squares;
  for (std::vector<double>& some : squares) {
    parts.push_back(std::as_writable_bytes(std::span(some)));
  }
  dist::all_gather(ranks_, parts);
  double total = 0;
  for (const std::vector<double>& some : squares) {
    for (const double one : some) total += one;
  }
  return std::sqrt(total);
}

void ShardedAdam::step(const Adam::Step& step) {
  adam_.step(sum_, values(), step);
  has_sum_ = false;
  if (alone()) return;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int i = 0; i < ranks_.size(); ++i) {
    if (i == ranks_.rank()) continue;
    send_all(own_values_, i, sends);
    receive_parts(parameters_, shards_[static_cast<std::size_t>(i)], i,
                  receives);
  }
  ranks_.start(sends, receives);
  for (const Slice& slice : own()) {
    const auto from = own_values_.at(slice.name).values<float>();
    std::copy(from.begin(), from.end(),
              part(parameters_.at(slice.name), slice).begin());
  }
  ranks_.finish();
}

void ShardedAdam::with_whole(FunctionRef<void(const Adam&)> use) {
  if (alone()) return use(adam_);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (ranks_.rank() != 0) {
    send_all(adam_.first_moments(), 0, sends);
    send_all(adam_.second_moments(), 0, sends);
    ranks_.start(sends, receives);
    return ranks_.finish();
  }
  StateDict first, second;
  for (const auto& [name, tensor] : parameters_) {
    first.emplace(name, Tensor(tensor.shape()));
    second.emplace(name, Tensor(tensor.shape()));
  }
  for (int i = 1; i < ranks_.size(); ++i) {
    const Shard& shard = shards_[static_cast<std::size_t>(i)];
    receive_parts(first, shard, i, receives);
    receive_parts(second, shard, i, receives);
  }
  ranks_.start(sends, receives);
  ranks_.finish();
  for (const Slice& slice : own()) {
    for (auto [whole, slices] : {std::pair(&first, &adam_.first_moments()),
                                 std::pair(&second, &adam_.second_moments())}) {
      const auto from = slices->at(slice.name).values<float>();
      std::copy(from.begin(), from.end(),
                part(whole->at(slice.name), slice).begin());
    }
  }
  Adam all(options_, parameters_);
  all.restore(adam_.steps(), std::move(first), std::move(second));
  use(all);
}

void ShardedAdam::restore(FunctionRef<void(Adam&)> load) {
  if (alone()) return load(adam_);
  StateDict first = make_slices(own());
  StateDict second = first;
  std::int64_t steps = 0;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (ranks_.rank() == 0) {
    Adam whole(options_, parameters_);
    load(whole);
    steps = whole.steps();
    StateDict all_first = whole.first_moments();
    StateDict all_second = whole.second_moments();
    for (int i = 1; i < ranks_.size(); ++i) {
      const Shard& shard = shards_[static_cast<std::size_t>(i)];
      send_parts(all_first, shard, i, sends);
      send_parts(all_second, shard, i, sends);
    }
    ranks_.start(sends, receives);
    for (const Slice& slice : own()) {
      copy_part(all_first, slice, first);
      copy_part(all_second, slice, second);
    }
    ranks_.finish();
  } else {
    receive_all(first, 0, receives);
    receive_all(second, 0, receives);
    ranks_.start(sends, receives);
    ranks_.finish();
  }
  steps = dist::broadcast_value(ranks_, 0, steps);
  adam_.restore(steps, std::move(first), std::move(second));
  for (auto& [name, tensor] : parameters_) {
    dist::broadcast(ranks_, 0, {tensor.bytes(), tensor.byte_count()});
  }
  for (const Slice& slice : own()) copy_part(parameters_, slice, own_values_);
}

}  // namespace regard::train
