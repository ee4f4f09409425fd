// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "nn/appended_key.h"
#include "nn/parameters.h"
#include "regard/attention/attention.h"
#include "regard/core/aligned_buffer.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::nn {
namespace detail {

// Memory that goes to the thread's next activation of about this size: what is
// computed in fresh pages takes up to a third more time for them. At most
// kMostKept bytes wait for it on a thread, until release_thread_scratch().
class ReusedBuffer {
 public:
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;

  ReusedBuffer() = default;
  explicit ReusedBuffer(std::size_t bytes);
  ~ReusedBuffer();
  ReusedBuffer(ReusedBuffer&&) noexcept = default;
  ReusedBuffer& operator=(ReusedBuffer&&) noexcept = default;

  std::byte* data() { return buffer_.data(); }
  // Bytes that wait on the calling thread.
  static std::size_t kept();

 private:
  AlignedBuffer buffer_;
};

// [batch, len, width] of its own memory, not initialised. Rows start on cache
// lines, an odd number of them apart: at a power of two, the rows of a head
// would share a few sets of the cache.
class Activation {
 public:
  Activation(std::int64_t batch, std::int64_t len, std::int64_t width) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t stride = ((width + kLine - 1) / kLine | 1) * kLine;
    const std::int64_t count = element_count(std::array{batch, len, stride});
    // An empty view still needs data, or it would mean "not passed".
    memory_ = ReusedBuffer(static_cast<std::size_t>(std::max(count, kLine)) *
                           sizeof(float));
    view_ = {reinterpret_cast<float*>(memory_.data()),
             {batch, len, width},
             {len * stride, stride, 1}};
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
  ReusedBuffer memory_;
  TensorView<float, 3> view_;
};

struct Inputs {
  TensorView<const float, 3> query, key, value;

  std::int64_t batch() const { return query.extent(0); }
  std::int64_t q_len() const { return query.extent(1); }
  std::int64_t kv_len() const { return key.extent(1); }
};

// What forward makes on its way, and what a backward pass needs of it.
struct Activations {
  Activations(const Inputs& in, const detail::Widths& widths,
              std::int64_t heads)
      : q(in.batch(), in.q_len(), widths.q),
        k(in.batch(), in.kv_len(), widths.k),
        v(in.batch(), in.kv_len(), widths.v),
        attended(in.batch(), in.q_len(), widths.attended),
        log_sum_exp(in.batch(), heads, in.q_len()),
        appended_weight(in.batch(), heads, in.q_len()) {}

  Activation q, k, v;
  Activation attended;
  Activation log_sum_exp;      // [batch, heads, q_len]
  Activation appended_weight;  // [batch, heads, q_len], of bias_k
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
                         const StateDict& parameters, const Activations& acts,
                         const AttentionOptions& attention);

}  // namespace detail

struct MultiHeadAttentionContext::Saved {
  detail::Inputs inputs;
  MultiHeadAttentionOptions options;
  detail::Activations acts;
};

}  // namespace regard::nn
