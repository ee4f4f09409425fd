// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/copying.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {

// The copies of one loss: the attention weights of each row over its source,
// [rows of a sequence, its source] for each sequence, and their gradients in
// the same memory.
class Copies {
 public:
  // Computes the weights.
  Copies(Tape& tape, const CopyAttention& copy);

  // The loss of row r, whose scores are given. Rows may be taken in any order,
  // by any threads, each once.
  kernels::CrossEntropyRow row(std::int64_t r, std::span<float> scores,
                               std::int32_t target, float smoothing,
                               kernels::WithGradient gradient) const;

  // Once all rows are done: the gradients of q and k.
  void add_gradients() const;

 private:
  // body(sequence, threads): side by side, or with all threads where there is
  // only one.
  void over_sequences(
      FunctionRef<void(std::size_t s, Threads threads)> body) const;
  ops::Rows weights_of(std::size_t s) const;

  Tape& tape_;
  const CopyAttention& copy_;
  std::vector<ops::CopySource> sources_;
  std::vector<std::int32_t> sequence_of_;  // [rows]
  std::vector<std::int64_t> starts_;       // of each sequence in weights_
  std::shared_ptr<float> weights_;
  Tape::Target d_gate_;
};

// Throws InvalidArgument for shapes that do not go with x [rows, ...] and a
// vocabulary.
void check(const CopyAttention& copy, std::int64_t rows, std::int64_t vocab);

}  // namespace regard::autograd
