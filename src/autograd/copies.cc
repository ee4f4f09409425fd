// SPDX-License-Identifier: Apache-2.0
#include "autograd/copies.h"

#include <cmath>

#include "ops/product.h"
#include "regard/attention/weights.h"
#include "regard/core/error.h"

namespace regard::autograd {
namespace {

constexpr const char* kWhere = "autograd::cross_entropy";

void check_offsets(std::span<const std::int64_t> offsets, std::int64_t size,
                   const char* name) {
  require(!offsets.empty() && offsets.front() == 0 && offsets.back() == size,
          kWhere, "copy.", name, " must go from 0 to ", size, "; they are ",
          ShapeText{offsets});
}

}  // namespace

void check(const CopyAttention& c, std::int64_t rows, std::int64_t vocab) {
  const auto places = std::ssize(c.source);
  require(c.q.rows() == rows && c.gate.rows() == rows && c.gate.columns() == 1,
          kWhere, "copy.q and copy.gate must be [", rows, ", d] and [", rows,
          ", 1]; they are [", c.q.rows(), ", ", c.q.columns(), "] and [",
          c.gate.rows(), ", ", c.gate.columns(), "]");
  require(c.k.rows() == places && c.k.columns() == c.q.columns(), kWhere,
          "copy.k must be [", places, ", ", c.q.columns(), "]; it is [",
          c.k.rows(), ", ", c.k.columns(), "]");
  check_offsets(c.q_offsets, rows, "q_offsets");
  check_offsets(c.kv_offsets, places, "kv_offsets");
  require(c.q_offsets.size() == c.kv_offsets.size(), kWhere,
          "there must be as many sources as sentences; there are ",
          c.kv_offsets.size() - 1, " and ", c.q_offsets.size() - 1);
  for (std::size_t s = 1; s < c.kv_offsets.size(); ++s) {
    require(c.kv_offsets[s] > c.kv_offsets[s - 1] &&
                c.q_offsets[s] >= c.q_offsets[s - 1],
            kWhere, "a source must have a token; source ", s - 1, " has ",
            c.kv_offsets[s] - c.kv_offsets[s - 1]);
  }
  for (const std::int32_t token : c.source) {
    require(token >= 0 && token < vocab, kWhere,
            "a token of a source must lie in 0 .. ", vocab - 1, "; got ",
            token);
  }
}

Copies::Copies(Tape& tape, const CopyAttention& copy)
    : tape_(tape), copy_(copy) {
  std::int64_t floats = 0;
  for (std::size_t s = 1; s < copy.q_offsets.size(); ++s) {
    const std::int64_t rows = copy.q_offsets[s] - copy.q_offsets[s - 1];
    const std::int64_t places = copy.kv_offsets[s] - copy.kv_offsets[s - 1];
    sources_.emplace_back(
        copy.source.subspan(static_cast<std::size_t>(copy.kv_offsets[s - 1]),
                            static_cast<std::size_t>(places)));
    sequence_of_.insert(sequence_of_.end(), static_cast<std::size_t>(rows),
                        static_cast<std::int32_t>(s - 1));
    starts_.push_back(floats);
    floats += rows * places;
  }
  weights_ = tape.memory(floats);
  d_gate_ = tape.gradient_target(copy.gate);
  const std::int64_t d = copy.q.columns();
  over_sequences([&](std::size_t s, Threads threads) {
    const ops::Rows weights = weights_of(s);
    const auto one_head = [d](const Variable& of, std::int64_t first,
                              std::int64_t rows) {
      return TensorView<const float, 4>(of.data() + first * d, {1, 1, rows, d});
    };
    AttentionOptions options;
    options.threads = threads;
    attention_weights(
        one_head(copy_.q, copy_.q_offsets[s], weights.extent(0)),
        one_head(copy_.k, copy_.kv_offsets[s], weights.extent(1)),
        TensorView<float, 4>(weights.data(),
                             {1, 1, weights.extent(0), weights.extent(1)}),
        options);
  });
}

void Copies::over_sequences(
    FunctionRef<void(std::size_t s, Threads threads)> body) const {
  const auto run = [&](std::size_t s, Threads threads) {
    if (copy_.q_offsets[s + 1] > copy_.q_offsets[s]) body(s, threads);
  };
  if (sources_.size() == 1) return run(0, tape_.threads());
  parallel_for(tape_.threads(), std::ssize(sources_), [&](std::int64_t s) {
    run(static_cast<std::size_t>(s), {.count = 1});
  });
}

ops::Rows Copies::weights_of(std::size_t s) const {
  return {weights_.get() + starts_[s],
          {copy_.q_offsets[s + 1] - copy_.q_offsets[s],
           copy_.kv_offsets[s + 1] - copy_.kv_offsets[s]}};
}

kernels::CrossEntropyRow Copies::row(std::int64_t r, std::span<float> scores,
                                     std::int32_t target, float smoothing,
                                     kernels::WithGradient gradient) const {
  const auto s =
      static_cast<std::size_t>(sequence_of_[static_cast<std::size_t>(r)]);
  const ops::CopyRow row{&sources_[s], weights_of(s).at(r - copy_.q_offsets[s]),
                         copy_.gate.data()[r], scores};
  float d_gate = 0;
  const kernels::CrossEntropyRow loss =
      ops::copy_cross_entropy_row(row, target, smoothing, gradient, d_gate);
  if (d_gate_.data != nullptr && gradient == kernels::WithGradient::kYes) {
    d_gate_.data[r] = d_gate_.add ? d_gate_.data[r] + d_gate : d_gate;
  }
  return loss;
}

// With e = q k^T / sqrt(d), whose gradient d_e stands in weights_:
//   d_q = d_e k / sqrt(d),  d_k = d_e^T q / sqrt(d)
void Copies::add_gradients() const {
  const Tape::Target d_q = tape_.gradient_target(copy_.q);
  float* const d_k = tape_.gradient_sum(copy_.k);
  const std::int64_t d = copy_.q.columns();
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  over_sequences([&](std::size_t s, Threads threads) {
    const ops::Rows d_e = weights_of(s);
    const std::int64_t rows = d_e.extent(0), places = d_e.extent(1);
    float* const values = d_e.data();
    for (std::int64_t i = 0; i < rows * places; ++i) values[i] *= scale;
    const std::int64_t q_first = copy_.q_offsets[s] * d;
    const std::int64_t k_first = copy_.kv_offsets[s] * d;
    if (d_q.data != nullptr) {
      const auto keys = ops::PackedWeights::transposed_for(
          rows, {copy_.k.data() + k_first, {places, d}},
          {.pool = &tape_.pool(), .threads = threads});
      ops::multiply({.x = d_e,
                     .weight = &keys,
                     .y = {d_q.data + q_first, {rows, d}},
                     .add = d_q.add},
                    threads);
    }
    if (d_k != nullptr) {
      ops::add_weight_gradient({.d_y = d_e,
                                .x = {copy_.q.data() + q_first, {rows, d}},
                                .d_weight = {d_k + k_first, {places, d}}},
                               tape_.pool(), threads);
    }
  });
}

}  // namespace regard::autograd
