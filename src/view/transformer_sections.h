// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "regard/nn/decoding.h"
#include "regard/view/trace.h"

namespace regard::view {

// The axes of a model that reads a source and writes a target.
struct TransformerAxes {
  std::size_t source = 0;
  std::size_t target = 0;  // what each step wrote
  std::size_t read = 0;    // what each step read
};

// Adds the sections encoder, decoder and cross, with queries and keys; the
// first is left out where the encoder has no layers.
void add_sections(Trace& trace, const TransformerAxes& axes,
                  const nn::AttentionTrace& seen);

}  // namespace regard::view
