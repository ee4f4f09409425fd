// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn {

// Rotary positions (RoPE): pairs of elements of q and k rotate by an angle that
// grows with the token's position, so that q . k knows how far apart they are.

// Which elements of a vector make pair i, of `half` pairs.
enum class RotaryPairing {
  kHalfSplit,    // (i, i + half): GPT-NeoX, Hugging Face
  kInterleaved,  // (2 i, 2 i + 1): the paper, llama2.c, GGUF's llama
};

// How a model reads texts longer than those that it was trained on. With
// f_i = base^(-2 i / rotary_dim), pair i rotates by f_i per position, and:
enum class RotaryScaling {
  kNone,
  kLinear,  // f_i / factor
  kNtk,     // base * factor^(rotary_dim / (rotary_dim - 2)), fixed: angles
            // that change with the length would belie the keys in a cache
  kYarn,    // slow pairs f_i / factor, fast pairs f_i, a ramp between them;
            // cos and sin are multiplied by attention_factor
  kLlama3,  // the same by wavelength, as Llama 3.1 does
};

struct RotaryConfig {
  std::int64_t rotary_dim = 0;  // even: so many elements of a vector rotate
  double base = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;              // at least 1
  std::int64_t trained_length = 0;  // for kYarn and kLlama3
  // kYarn: pairs that rotate more often than beta_fast within trained_length
  // stay as they are, those below beta_slow are slowed down.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0 means 0.1 ln(factor) + 1
  // kLlama3: waves shorter than trained_length / high_frequency stay, those
  // longer than trained_length / low_frequency are slowed down.
  double low_frequency = 1.0;
  double high_frequency = 4.0;
  // [rotary_dim / 2], or empty: f_i is divided by its own, as GGUF's
  // rope_freqs.weight says it. Only with kNone.
  std::vector<float> divisors{};
};

// cos and sin of positions 0 to positions - 1, [positions, rotary_dim / 2],
// computed in double and then rounded.
struct RotaryTable {
  Tensor cos;
  Tensor sin;
};

// Throws InvalidArgument for a config that makes no sense.
RotaryTable rotary_table(const RotaryConfig& config, std::int64_t positions);

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::kHalfSplit;
  // [batch or 1, len], each a row of the tables. Default: 0, 1, 2...
  TensorView<const std::int64_t, 2> positions{};
  Threads threads{};
};

// With a pair (a, b) of x: out has (a cos - b sin, b cos + a sin).
//
//   x, out   [batch, heads, len, dim]  out may be x, or lie apart from it
//   cos, sin [positions, half]         of rotary_table, or anyone's
//
// The first 2 * half elements rotate, the others are copied. Every operation is
// rounded: the bits are the same on every machine. Throws InvalidArgument if
// the shapes disagree, or for a position without a row.
void rotary_forward(TensorView<const float, 4> x,
                    TensorView<const float, 2> cos,
                    TensorView<const float, 2> sin, TensorView<float, 4> out,
                    const RotaryOptions& options = {});

// The gradient of x: the inverse rotation of out's.
void rotary_backward(TensorView<const float, 4> d_out,
                     TensorView<const float, 2> cos,
                     TensorView<const float, 2> sin, TensorView<float, 4> d_x,
                     const RotaryOptions& options = {});

}  // namespace regard::nn
