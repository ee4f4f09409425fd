// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/packed_weights.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {

// How the products of a tape round their sides.
inline ops::WeightStorage products_of(const Tape& tape) {
  return tape.compute() == Compute::kBFloat16 ? ops::WeightStorage::kBFloat16
                                              : ops::WeightStorage::kFloat32;
}
inline ops::PackOptions pack_options(Tape& tape) {
  return {.storage = products_of(tape),
          .pool = &tape.pool(),
          .threads = tape.threads()};
}

// linear() with a weight that was packed before, for tapes that do not record.
// options.first counts in bias alone: the weight is the part that begins there,
// and options.count, where it is given, is its rows.
Variable linear(Tape& tape, const Variable& x, const ops::PackedWeights& weight,
                const Variable& bias, const LinearOptions& options = {});

}  // namespace regard::autograd
