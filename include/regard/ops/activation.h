// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::ops {

// What stands between the two products of a feed-forward block. A gated one
// takes two projections of its input, the gate first: f(gate) * up.
enum class Activation {
  kNone,
  kRelu,
  kGelu,      // x Phi(x), by the error function
  kGeluTanh,  // its approximation by tanh
  kSilu,      // x / (1 + exp(-x)), also called swish
  kSwiglu,    // gated: kSilu
  kGeglu,     // gated: kGeluTanh
};

constexpr bool is_gated(Activation f) {
  return f == Activation::kSwiglu || f == Activation::kGeglu;
}

}  // namespace regard::ops
