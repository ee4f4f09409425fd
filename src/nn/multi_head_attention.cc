// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/multi_head_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "nn/appended_key.h"
#include "nn/intermediates.h"
#include "nn/multi_head_attention_config.h"
#include "ops/product.h"
#include "regard/attention/weights.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

using detail::Inputs;
using detail::Intermediates;

constexpr const char* kWhere = "MultiHeadAttention";
constexpr const char* kForward = "MultiHeadAttention::forward";

void check_inputs(const MultiHeadAttentionConfig& c, const Inputs& in) {
  require(in.query.extent(2) == c.model_dim, kForward,
          "query must be [batch, q_len, ", c.model_dim, "]; it is ",
          to_string(in.query.shape()));
  require(in.key.extent(2) == c.key_dim && in.key.extent(0) == in.batch(),
          kForward, "key must be [", in.batch(), ", kv_len, ", c.key_dim,
          "], with the query's batch; it is ", to_string(in.key.shape()));
  require(in.value.extent(2) == c.value_dim &&
              in.value.extent(0) == in.batch() &&
              in.value.extent(1) == in.kv_len(),
          kForward, "value must be [", in.batch(), ", ", in.kv_len(), ", ",
          c.value_dim, "], with the key's batch and length; it is ",
          to_string(in.value.shape()));
}

void check_outputs(const MultiHeadAttentionConfig& c, const Inputs& in,
                   std::int64_t all_keys, const TensorView<float, 3>& out,
                   const MultiHeadAttentionOptions& options) {
  require(out.shape() == in.query.shape(), kForward,
          "out must have the query's shape; out is ", to_string(out.shape()),
          ", query is ", to_string(in.query.shape()));
  const std::array per_head{in.batch(), c.heads, in.q_len(), all_keys};
  require(options.weights.is_null() || options.weights.shape() == per_head,
          kForward, "weights must be ", to_string(per_head),
          ", [batch, heads, q_len, all_keys]; they are ",
          to_string(options.weights.shape()));
  const std::array average{in.batch(), in.q_len(), all_keys};
  require(options.average_weights.is_null() ||
              options.average_weights.shape() == average,
          kForward, "average_weights must be ", to_string(average),
          ", [batch, q_len, all_keys]; they are ",
          to_string(options.average_weights.shape()));
}

// The key of bias_k and bias_v joins the attention over the keys passed in.
void merge_appended_key(const MultiHeadAttentionConfig& c,
                        const StateDict& parameters, const Intermediates& acts,
                        const AttentionOptions& attention) {
  detail::append_key(detail::appended_key(c, parameters, acts, attention),
                     acts.attended.heads(c.heads), acts.log_sum_exp.rows(),
                     acts.appended_weight.rows(), attention.threads);
}

// The weight of the zero key: its score is 0.
float zero_key_weight(float log_sum_exp) {
  return static_cast<float>(std::exp(-double{log_sum_exp}));
}

// The first columns of each row: those of the keys passed in.
TensorView<float, 4> of_keys(const TensorView<float, 4>& weights,
                             std::int64_t kv_len) {
  return {weights.data(),
          {weights.extent(0), weights.extent(1), weights.extent(2), kv_len},
          weights.strides()};
}

// The weights that a call asks for. Attention gives those of the keys passed
// in; finish() adds the appended keys.
class ReturnedWeights {
 public:
  ReturnedWeights(const MultiHeadAttentionConfig& c,
                  const MultiHeadAttentionOptions& options, std::int64_t kv_len)
      : config_(c),
        kv_len_(kv_len),
        heads_(options.weights),
        mean_(options.average_weights) {
    // With bias_kv each head gives another share to the keys passed in: the
    // mean is then taken of what they all come to.
    if (!mean_.is_null() && heads_.is_null() && c.bias_kv) {
      const std::array shape{mean_.extent(0), c.heads, mean_.extent(1),
                             mean_.extent(2)};
      memory_ = AlignedBuffer(static_cast<std::size_t>(element_count(shape)) *
                              sizeof(float));
      heads_ = {reinterpret_cast<float*>(memory_.data()), shape};
    }
  }

  bool wanted() const { return !heads_.is_null() || !mean_.is_null(); }

  WeightsRequest request() const {
    if (!heads_.is_null()) return {.weights = of_keys(heads_, kv_len_)};
    const TensorView<float, 4> mean{
        mean_.data(),
        {mean_.extent(0), 1, mean_.extent(1), mean_.extent(2)},
        {mean_.stride(0), 0, mean_.stride(1), 1}};
    return {.heads = OverHeads::kMean, .weights = of_keys(mean, kv_len_)};
  }

  void finish(const Intermediates& acts, Threads threads) const {
    if (heads_.is_null()) {
      if (!mean_.is_null() && config_.add_zero_attn) add_mean_of_zero_key(acts);
      return;
    }
    if (config_.bias_kv || config_.add_zero_attn) {
      append_to_heads(acts, threads);
    }
    if (!mean_.is_null()) take_mean(threads);
  }

 private:
  void append_to_heads(const Intermediates& acts, Threads threads) const {
    const TensorView<float, 3> lse = acts.log_sum_exp.rows();
    const TensorView<float, 3> appended = acts.appended_weight.rows();
    const std::int64_t tasks = heads_.extent(0) * config_.heads;
    parallel_for(threads, tasks, [&](std::int64_t task) {
      const std::int64_t b = task / config_.heads;
      const std::int64_t h = task % config_.heads;
      for (std::int64_t i = 0; i < heads_.extent(2); ++i) {
        float* row = heads_.at(b, h, i);
        if (config_.bias_kv) {
          const float rest = 1.0f - appended(b, h, i);
          for (std::int64_t j = 0; j < kv_len_; ++j) row[j] *= rest;
          row[kv_len_] = appended(b, h, i);
        }
        if (config_.add_zero_attn) {
          row[heads_.extent(3) - 1] = zero_key_weight(lse(b, h, i));
        }
      }
    });
  }

  void add_mean_of_zero_key(const Intermediates& acts) const {
    const TensorView<float, 3> lse = acts.log_sum_exp.rows();
    for (std::int64_t b = 0; b < mean_.extent(0); ++b) {
      for (std::int64_t i = 0; i < mean_.extent(1); ++i) {
        float sum = 0.0f;
        for (std::int64_t h = 0; h < config_.heads; ++h) {
          sum += zero_key_weight(lse(b, h, i));
        }
        mean_(b, i, kv_len_) = sum / static_cast<float>(config_.heads);
      }
    }
  }

  void take_mean(Threads threads) const {
    const std::int64_t q_len = heads_.extent(2);
    parallel_for(threads, heads_.extent(0) * q_len, [&](std::int64_t task) {
      const std::int64_t b = task / q_len;
      const std::int64_t i = task % q_len;
      float* const mean = mean_.at(b, i);
      std::fill_n(mean, mean_.extent(2), 0.0f);
      for (std::int64_t h = 0; h < config_.heads; ++h) {
        const float* const row = heads_.at(b, h, i);
        for (std::int64_t j = 0; j < mean_.extent(2); ++j) mean[j] += row[j];
      }
      for (std::int64_t j = 0; j < mean_.extent(2); ++j) {
        mean[j] /= static_cast<float>(config_.heads);
      }
    });
  }

  const MultiHeadAttentionConfig& config_;
  const std::int64_t kv_len_;
  TensorView<float, 4> heads_;
  const TensorView<float, 3> mean_;
  AlignedBuffer memory_;
};

// y = x weight^T + bias, for every row of every batch entry.
void add_products(TensorView<const float, 3> x,
                  const ops::PackedWeights& weight, const float* bias,
                  TensorView<float, 3> y, std::vector<ops::Product>& products) {
  const std::int64_t count = ops::matrices(x, y);
  for (std::int64_t i = 0; i < count; ++i) {
    products.push_back({.x = ops::matrix(x, i, count),
                        .weight = &weight,
                        .bias = bias,
                        .y = ops::matrix(y, i, count)});
  }
}

TensorView<const float, 3> batched(TensorView<const float, 2> view) {
  return {
      view.data(), {1, view.extent(0), view.extent(1)}, {0, view.stride(0), 1}};
}

}  // namespace

MultiHeadAttentionContext::MultiHeadAttentionContext() = default;
MultiHeadAttentionContext::~MultiHeadAttentionContext() = default;
MultiHeadAttentionContext::MultiHeadAttentionContext(
    MultiHeadAttentionContext&&) noexcept = default;
MultiHeadAttentionContext& MultiHeadAttentionContext::operator=(
    MultiHeadAttentionContext&&) noexcept = default;

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionConfig& config,
                                       std::uint64_t seed)
    : config_(detail::resolved(config)),
      parameters_(initial_parameters(detail::parameter_specs(config_), seed)) {
  pack();
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionConfig& config,
                                       StateDict parameters)
    : config_(detail::resolved(config)), parameters_(std::move(parameters)) {
  check_parameters(detail::parameter_specs(config_), parameters_, kWhere);
  pack();
}

struct MultiHeadAttention::Packed {
  struct Projections {
    ops::PackedWeights q, k, v, out;
  };
  Projections float32;
  // From the first call that wants them.
  std::once_flag has_bf16;
  Projections bf16;

  static Projections pack(const MultiHeadAttentionConfig& c,
                          const StateDict& parameters,
                          ops::WeightStorage storage) {
    const detail::Widths w(c);
    const auto packed = [&](const char* name, std::int64_t begin,
                            std::int64_t rows) {
      return ops::PackedWeights::pack(
          detail::weight_rows(parameters, name, begin, rows),
          {.storage = storage, .threads = {.count = 1}});
    };
    return {packed("q_proj_weight", 0, w.q), packed("k_proj_weight", w.q, w.k),
            packed("v_proj_weight", w.q + w.k, w.v),
            packed("out_proj.weight", 0, c.model_dim)};
  }
};

void MultiHeadAttention::pack() {
  packed_ = std::make_shared<Packed>();
  packed_->float32 =
      Packed::pack(config_, parameters_, ops::WeightStorage::kFloat32);
}

void MultiHeadAttention::forward(
    TensorView<const float, 3> query, TensorView<const float, 3> key,
    TensorView<const float, 3> value, TensorView<float, 3> out,
    const MultiHeadAttentionOptions& options) const {
  const Inputs in{query, key, value};
  check_inputs(config_, in);
  const std::int64_t all_keys = in.kv_len() + appended_keys();
  check_outputs(config_, in, all_keys, out, options);
  const bool in_bf16 = options.compute == Compute::kBFloat16;
  require(!in_bf16 || options.context == nullptr, kForward,
          "compute in bf16 is for inference; a context for backward came");
  if (in_bf16) {
    std::call_once(packed_->has_bf16, [&] {
      packed_->bf16 =
          Packed::pack(config_, parameters_, ops::WeightStorage::kBFloat16);
    });
  }
  const Packed::Projections& packed =
      in_bf16 ? packed_->bf16 : packed_->float32;
  const detail::Widths w(config_);
  Intermediates acts(in, w, config_.heads);

  // 1. Q, K and V, row by row: the heads are slices of the rows.
  const std::span<const float> in_bias =
      detail::values_of(parameters_, "in_proj_bias");
  const auto bias_at = [&](std::int64_t begin) {
    return in_bias.empty() ? nullptr : in_bias.data() + begin;
  };
  std::vector<ops::Product> products;
  add_products(in.query, packed.q, bias_at(0), acts.q.rows(), products);
  add_products(in.key, packed.k, bias_at(w.q), acts.k.rows(), products);
  add_products(in.value, packed.v, bias_at(w.q + w.k), acts.v.rows(), products);
  ops::multiply(products, options.threads);

  // 2. The heads' attention, back into rows.
  const std::vector<float> zeros(static_cast<std::size_t>(config_.heads));
  AttentionOptions attention =
      detail::attention_options(config_, parameters_, zeros, options);
  if (appended_keys() > 0 || options.context != nullptr) {
    attention.log_sum_exp = acts.log_sum_exp.rows();
  }
  const TensorView<float, 4> q = acts.q.heads(config_.heads);
  const TensorView<float, 4> k = acts.k.heads(config_.kv_heads);
  const TensorView<float, 4> v = acts.v.heads(config_.kv_heads);
  const TensorView<float, 4> attended = acts.attended.heads(config_.heads);
  const ReturnedWeights weights(config_, options, in.kv_len());
  if (weights.wanted()) {
    attention_with_weights(q, k, v, attended, weights.request(), attention);
  } else {
    attention_forward(q, k, v, attended, attention);
  }
  attention.log_sum_exp = {};
  if (config_.bias_kv) {
    merge_appended_key(config_, parameters_, acts, attention);
  }
  weights.finish(acts, options.threads);

  // 3. The output projection.
  const std::span<const float> out_bias =
      detail::values_of(parameters_, "out_proj.bias");
  products.clear();
  add_products(acts.attended.rows(), packed.out, out_bias.data(), out,
               products);
  ops::multiply(products, options.threads);
  if (options.context != nullptr) {
    options.context->saved_ =
        std::make_unique<MultiHeadAttentionContext::Saved>(
            MultiHeadAttentionContext::Saved{in, options, std::move(acts)});
  }
}

void MultiHeadAttention::set_parameters(StateDict parameters) {
  check_parameters(detail::parameter_specs(config_), parameters, kWhere);
  parameters_ = std::move(parameters);
  pack();
}

void MultiHeadAttention::forward(
    TensorView<const float, 2> query, TensorView<const float, 2> key,
    TensorView<const float, 2> value, TensorView<float, 2> out,
    const MultiHeadAttentionOptions& options) const {
  const TensorView<float, 3> batched_out{
      out.data(), {1, out.extent(0), out.extent(1)}, {0, out.stride(0), 1}};
  forward(batched(query), batched(key), batched(value), batched_out, options);
}

}  // namespace regard::nn
