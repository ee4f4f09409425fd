// SPDX-License-Identifier: Apache-2.0
#include "nn/activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/kept_memory.h"

namespace regard::nn::detail {
namespace {

TensorView<const float, 2> per_kv_head(std::span<const float> values,
                                       std::int64_t kv_heads) {
  return {values.data(),
          {kv_heads, static_cast<std::int64_t>(values.size()) / kv_heads}};
}

// What the activations of this thread have left.
class Shelf {
 public:
  Shelf() {
    regard::detail::release_with_scratch([]() noexcept {
      if (Shelf* const shelf = of_this_thread()) shelf->clear();
    });
  }
  ~Shelf() { open_ = false; }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // Null once the thread ends: who is destroyed even later keeps to himself.
  static Shelf* of_this_thread() {
    thread_local Shelf shelf;
    return open_ ? &shelf : nullptr;
  }

  // The smallest that fits, if it is not too large; else an empty one.
  AlignedBuffer take(std::size_t bytes) {
    AlignedBuffer* best = nullptr;
    for (AlignedBuffer& b : buffers_) {
      const bool fits = b.size() >= bytes && b.size() <= 2 * bytes;
      if (fits && (best == nullptr || b.size() < best->size())) best = &b;
    }
    if (best == nullptr) return {};
    bytes_ -= best->size();
    return std::move(*best);
  }

  void give(AlignedBuffer buffer) {
    const auto is_free = [](const AlignedBuffer& b) { return b.size() == 0; };
    auto place = std::find_if(buffers_.begin(), buffers_.end(), is_free);
    if (place == buffers_.end() ||
        bytes_ + buffer.size() > ReusedBuffer::kMostKept) {
      clear();  // these sizes are no longer asked for
      place = buffers_.begin();
      if (buffer.size() > ReusedBuffer::kMostKept) return;
    }
    bytes_ += buffer.size();
    *place = std::move(buffer);
  }

  void clear() {
    for (AlignedBuffer& b : buffers_) b = {};
    bytes_ = 0;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static thread_local bool open_;
  std::array<AlignedBuffer, 16> buffers_;
  std::size_t bytes_ = 0;
};

thread_local bool Shelf::open_ = true;

}  // namespace

ReusedBuffer::ReusedBuffer(std::size_t bytes) {
  if (Shelf* const shelf = Shelf::of_this_thread()) {
    buffer_ = shelf->take(bytes);
  }
  if (buffer_.size() == 0) buffer_ = AlignedBuffer(bytes);
}

ReusedBuffer::~ReusedBuffer() {
  if (buffer_.size() == 0) return;
  if (Shelf* const shelf = Shelf::of_this_thread()) {
    shelf->give(std::move(buffer_));
  }
}

std::size_t ReusedBuffer::kept() {
  const Shelf* const shelf = Shelf::of_this_thread();
  return shelf == nullptr ? 0 : shelf->bytes();
}

std::span<const float> values_of(const StateDict& parameters,
                                 const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return {};
  return found->second.values<float>();
}

TensorView<const float, 2> weight_rows(const StateDict& parameters,
                                       const char* name, std::int64_t begin,
                                       std::int64_t rows) {
  const auto found = parameters.find(name);
  if (found != parameters.end()) return found->second.view<float, 2>();
  const auto fused = parameters.at("in_proj_weight").view<float, 2>();
  return {fused.at(begin), {rows, fused.extent(1)}};
}

AttentionOptions attention_options(const MultiHeadAttentionConfig& c,
                                   const StateDict& parameters,
                                   std::span<const float> zeros,
                                   const MultiHeadAttentionOptions& options) {
  AttentionOptions o;
  o.mask = options.mask;
  o.score = c.score;
  o.scale = c.scale;
  o.head_scales = values_of(parameters, "cosine_scale");
  o.bias = options.bias;
  o.alibi_slopes = options.alibi_slopes;
  o.softcap = options.softcap;
  // A key of zeros has score 0 and adds nothing to the output: a sink of 0.
  if (c.add_zero_attn) o.sinks = zeros;
  if (options.mode == Mode::kTraining) {
    o.dropout = {c.dropout, options.dropout_seed};
  }
  o.threads = options.threads;
  o.compute = options.compute;
  return o;
}

AppendedKey appended_key(const MultiHeadAttentionConfig& c,
                         const StateDict& parameters, const Activations& acts,
                         const AttentionOptions& attention) {
  const float usual_scale =
      c.score == Score::kCosine
          ? 1.0f
          : 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  return {.q = acts.q.heads(c.heads),
          .key = per_kv_head(values_of(parameters, "bias_k"), c.kv_heads),
          .value = per_kv_head(values_of(parameters, "bias_v"), c.kv_heads),
          .index = acts.k.rows().extent(1),
          .score = c.score,
          .scale = c.scale.value_or(usual_scale),
          .head_scales = attention.head_scales,
          .softcap = attention.softcap,
          .dropout = attention.dropout};
}

}  // namespace regard::nn::detail
