// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <span>

#include "nn/appended_key.h"
#include "nn/multi_head_attention_config.h"
#include "ops/rows.h"
#include "regard/attention/attention.h"
#include "regard/nn/multi_head_attention.h"
#include "regard/ops/memory_pool.h"

namespace regard::nn {
namespace detail {

// [batch, len, width] of the thread's pool, not initialised, rows at a padded
// stride.
class PooledRows {
 public:
  PooledRows(std::int64_t batch, std::int64_t len, std::int64_t width) {
    const std::int64_t stride = ops::padded_stride(width);
    // An empty view still needs data, or it would mean "not passed".
    memory_ = ops::thread_memory_pool().take(
        element_count(std::array{batch, len, stride}));
    view_ = {memory_.get(), {batch, len, width}, {len * stride, stride, 1}};
  }

  TensorView<float, 3> rows() const { return view_; }
  // The same as [batch, heads, len, width / heads].
  TensorView<float, 4> heads(std::int64_t heads) const {
    const std::int64_t dim = view_.extent(2) / heads;
    return {view_.data(),
            {view_.extent(0), heads, view_.extent(1), dim},
            {view_.stride(0), dim, view_.stride(1), 1}};
  }

 private:
  std::shared_ptr<float> memory_;
  TensorView<float, 3> view_;
};

struct Inputs {
  TensorView<const float, 3> query, key, value;

  std::int64_t batch() const { return query.extent(0); }
  std::int64_t q_len() const { return query.extent(1); }
  std::int64_t kv_len() const { return key.extent(1); }
};

// What forward makes on its way, and what a backward pass needs of it.
struct Intermediates {
  Intermediates(const Inputs& in, const detail::Widths& widths,
                std::int64_t heads)
      : q(in.batch(), in.q_len(), widths.q),
        k(in.batch(), in.kv_len(), widths.k),
        v(in.batch(), in.kv_len(), widths.v),
        attended(in.batch(), in.q_len(), widths.attended),
        log_sum_exp(in.batch(), heads, in.q_len()),
        appended_weight(in.batch(), heads, in.q_len()) {}

  PooledRows q, k, v;
  PooledRows attended;
  PooledRows log_sum_exp;      // [batch, heads, q_len]
  PooledRows appended_weight;  // [batch, heads, q_len], of bias_k
};

// A parameter's values, empty if the layer has none of this name.
std::span<const float> values_of(const StateDict& parameters, const char* name);

// A weight that has its own tensor, or some rows of the fused one.
TensorView<const float, 2> weight_rows(const StateDict& parameters,
                                       const char* name, std::int64_t begin,
                                       std::int64_t rows);

// The options of the attention inside a call. `zeros` holds a 0 for each head.
AttentionOptions attention_options(const MultiHeadAttentionConfig& config,
                                   const StateDict& parameters,
                                   std::span<const float> zeros,
                                   const MultiHeadAttentionOptions& options);

// The key of bias_k and bias_v.
AppendedKey appended_key(const MultiHeadAttentionConfig& config,
                         const StateDict& parameters, const Intermediates& acts,
                         const AttentionOptions& attention);

}  // namespace detail

struct MultiHeadAttentionContext::Saved {
  detail::Inputs inputs;
  MultiHeadAttentionOptions options;
  detail::Intermediates acts;
};

}  // namespace regard::nn
