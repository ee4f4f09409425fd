// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/packed_weights.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {

// linear() with a weight that was packed before, for tapes that do not record.
// options.first counts in bias alone: the weight is the part that begins there,
// and options.count, where it is given, is its rows.
Variable linear(Tape& tape, const Variable& x, const ops::PackedWeights& weight,
                const Variable& bias, const LinearOptions& options = {});

}  // namespace regard::autograd
