// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "regard/autograd/tape.h"
#include "regard/mask/mask.h"
#include "regard/ops/activation.h"
#include "regard/ops/norm.h"
#include "regard/tensor/tensor_view.h"

// The operations of a Transformer, each with its gradient. Rows are tokens:
// sentences laid one after the other. Every function throws InvalidArgument if
// shapes disagree, before anything is computed.
namespace regard::autograd {

// Drops elements and divides the remaining ones by 1 - rate. Whether one is
// dropped is a pure function of (seed, site, row, column).
struct ElementDropout {
  float rate = 0.0f;  // in [0, 1)
  std::uint64_t seed = 0;
  std::uint32_t site = 0;  // tells the matrices of a model apart
};

// A gated one takes the first half of the columns for its gate.
using ops::Activation;
using ops::Norm;

struct LinearOptions {
  // Only these rows of weight and bias: one part of a fused projection.
  std::int64_t first = 0;
  std::int64_t count = -1;  // all
  Activation activation = Activation::kNone;
  ElementDropout dropout{};  // after the activation
};

// dropout(activation(x weight^T + bias)): x [rows, in], weight [out, in], bias
// [1, out] or null.
Variable linear(Tape& tape, const Variable& x, const Variable& weight,
                const Variable& bias, const LinearOptions& options = {});

struct NormParameters {
  Variable weight;  // [1, width]
  Variable bias;    // [1, width]; null for RMS norm
  float epsilon = 1e-5f;
  Norm kind = Norm::kLayerNorm;
};

// (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row; RMS norm:
// x / sqrt(mean(x^2) + epsilon) * weight.
Variable norm(Tape& tape, const Variable& x, const NormParameters& parameters);

// residual + dropout(branch)
Variable add(Tape& tape, const Variable& residual, const Variable& branch,
             const ElementDropout& dropout = {});

// Element by element.
Variable multiply(Tape& tape, const Variable& a, const Variable& b);

// Both at once: the sum, and its norm.
struct SumAndNorm {
  Variable sum;
  Variable normed;
};
SumAndNorm add_norm(Tape& tape, const Variable& residual,
                    const Variable& branch, const ElementDropout& dropout,
                    const NormParameters& norm);

struct EmbeddingOptions {
  float scale = 1.0f;
  // A row for each place of a sentence: [max_length, width], or null. Place i
  // of a sentence that starts at offsets[s] is i - offsets[s].
  Variable positions{};
  std::span<const std::int64_t> offsets{};
  ElementDropout dropout{};
};

// dropout(scale * table[token] + positions[place]), for each token.
Variable embedding(Tape& tape, const Variable& table,
                   std::span<const std::int32_t> tokens,
                   const EmbeddingOptions& options = {});

// Some rows of x, in this order; a row may come more than once:
// dropout(x[rows[i]]).
Variable gather_rows(Tape& tape, const Variable& x,
                     std::span<const std::int32_t> rows,
                     const ElementDropout& dropout = {});

// The mean of the rows of each sentence, [sentences, width]: sums in blocks
// of 64 rows, added in index order, times 1 / length. No sentence may be empty.
Variable mean_rows(Tape& tape, const Variable& x,
                   std::span<const std::int64_t> offsets);

// The heads that stand side by side in columns [first, first + heads * d) of a
// matrix.
struct HeadColumns {
  Variable matrix;
  std::int64_t first = 0;
};

struct PackedAttentionOptions {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  // As in regard::Sequences; without any, all rows are one sentence.
  std::span<const std::int64_t> q_offsets{};
  std::span<const std::int64_t> kv_offsets{};
  // Counts batch and positions by sentence, as regard::Sequences says.
  Mask mask{};
  float dropout = 0.0f;  // of the weights
  std::uint64_t dropout_seed = 0;
  // Queries and keys rotate with their place before they meet: [places,
  // head_dim / 2] each, rotated in halves as Llama does. Null: not. The
  // matrices are rotated in place.
  TensorView<const float, 2> rotary_cos{};
  TensorView<const float, 2> rotary_sin{};
};

// Attention of each sentence's queries to its keys: [rows, heads * head_dim].
// Reads the columns of fused projections where they are; q, k and v share none.
Variable attention(Tape& tape, const HeadColumns& q, const HeadColumns& k,
                   const HeadColumns& v, const PackedAttentionOptions& options);

struct CrossEntropySum {
  double loss = 0;        // with label smoothing
  double likelihood = 0;  // -log p(target)
};

// A token may be copied from the row's source, as in a pointer-generator (See
// et al., 2017):
//
//   p(w) = g softmax(scores)[w] + (1 - g) sum of a[s] where source[s] = w
//   g = 1 / (1 + exp(-gate)),  a = softmax(q k^T / sqrt(d))
//
// The weights a are kept for one call: [rows, source] floats in all.
struct CopyAttention {
  Variable gate{};                         // [rows, 1]
  Variable q{};                            // [rows, d]; null: no copies
  Variable k{};                            // [tokens of all sources, d]
  std::span<const std::int32_t> source{};  // the tokens
  std::span<const std::int64_t> q_offsets{};
  std::span<const std::int64_t> kv_offsets{};
};

// The sum over rows of the cross entropy of softmax(x weight^T + bias) and the
// targets, with label smoothing as PyTorch defines it. The scores are made for
// a few rows at a time and never kept: if the tape records, the gradients of
// the sum are taken on the way, and backward() goes on from there. With copies
// it is the same of their p.
CrossEntropySum cross_entropy(Tape& tape, const Variable& x,
                              const Variable& weight, const Variable& bias,
                              std::span<const std::int32_t> targets,
                              float label_smoothing,
                              const CopyAttention& copy = {});

// The sum over rows of the binary cross entropy of one target and some
// negatives, as SASRec learns (Kang and McAuley, 2018):
//   -log s(x . weight[target]) - sum of log(1 - s(x . weight[negative]))
// where s is the logistic function. negatives holds as many for each row, row
// after row; weight is [vocab, in]. Gradients are taken on the way, as above.
double sampled_binary_cross_entropy(Tape& tape, const Variable& x,
                                    const Variable& weight,
                                    std::span<const std::int32_t> targets,
                                    std::span<const std::int32_t> negatives);

}  // namespace regard::autograd
