// SPDX-License-Identifier: Apache-2.0
// The multi-head attention layer, transcribed from regard/nn/
// multi_head_attention.h one element at a time and sharing nothing with the
// library. In double it is the truth; in float it is the yardstick. Here the
// appended keys are truly appended, as PyTorch does it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "regard/nn/multi_head_attention.h"
#include "support/mask_spec.h"
#include "support/philox_reference.h"

namespace regard::test {

struct LayerCase {
  nn::MultiHeadAttentionConfig config;  // every size given
  StateDict parameters;
  std::int64_t batch = 1, q_len = 1, kv_len = 1;
  std::vector<float> query, key, value;  // contiguous
  MaskSpec mask;
  std::vector<float> bias;  // [batch, heads, q_len, kv_len], or empty
  std::vector<float> alibi_slopes;
  float softcap = 0;
  bool training = false;
  std::uint64_t dropout_seed = 0;

  std::int64_t all_keys() const {
    return kv_len + (config.bias_kv ? 1 : 0) + (config.add_zero_attn ? 1 : 0);
  }
  PairSizes sizes() const { return {batch, config.heads, q_len, kv_len}; }
};

inline std::vector<float> normal_floats(Rng& rng, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

// Random inputs, and random parameters where a new layer has zeros.
inline LayerCase random_layer_case(const nn::MultiHeadAttentionConfig& config,
                                   std::int64_t batch, std::int64_t q_len,
                                   std::int64_t kv_len) {
  Rng rng(5);
  LayerCase c;
  const nn::MultiHeadAttention layer(config, 1);
  c.config = layer.config();
  c.parameters = layer.parameters();
  for (auto& [name, tensor] : c.parameters) {
    if (name.find("bias") == std::string::npos) continue;
    const std::vector<float> values = normal_floats(rng, tensor.size());
    std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  }
  c.batch = batch;
  c.q_len = q_len;
  c.kv_len = kv_len;
  c.query = normal_floats(rng, batch * q_len * c.config.model_dim);
  c.key = normal_floats(rng, batch * kv_len * c.config.key_dim);
  c.value = normal_floats(rng, batch * kv_len * c.config.value_dim);
  return c;
}

// The forward pass of a layer with the options of the case, and those that
// `options` has besides.
inline std::vector<float> run_layer(
    const nn::MultiHeadAttention& layer, const LayerCase& c,
    nn::MultiHeadAttentionOptions options = {}) {
  const auto& g = c.config;
  options.mask = c.mask.build();
  if (!c.bias.empty()) {
    options.bias = {c.bias.data(), {c.batch, g.heads, c.q_len, c.kv_len}};
  }
  options.alibi_slopes = c.alibi_slopes;
  options.softcap = c.softcap;
  options.mode = c.training ? nn::Mode::kTraining : nn::Mode::kInference;
  options.dropout_seed = c.dropout_seed;
  std::vector<float> out(
      static_cast<std::size_t>(c.batch * c.q_len * g.model_dim));
  layer.forward(
      {c.query.data(), {c.batch, c.q_len, g.model_dim}},
      {c.key.data(), {c.batch, c.kv_len, g.key_dim}},
      {c.value.data(), {c.batch, c.kv_len, g.value_dim}},
      TensorView<float, 3>{out.data(), {c.batch, c.q_len, g.model_dim}},
      options);
  return out;
}

template <typename Real>
struct LayerResult {
  std::vector<Real> out;      // [batch, q_len, model_dim]
  std::vector<Real> weights;  // [batch, heads, q_len, all_keys]
  std::vector<Real> average;  // [batch, q_len, all_keys]
};

template <typename Real>
class ReferenceLayer {
 public:
  explicit ReferenceLayer(const LayerCase& layer_case) : c_(layer_case) {}

  LayerResult<Real> run() {
    const auto& g = c_.config;
    const std::int64_t q_width = g.heads * g.head_dim;
    const std::int64_t k_width = g.kv_heads * g.head_dim;
    const std::int64_t v_width = g.kv_heads * g.value_head_dim;
    q_ = project("q_proj_weight", 0, q_width, c_.query, c_.q_len, g.model_dim);
    k_ = project("k_proj_weight", q_width, k_width, c_.key, c_.kv_len,
                 g.key_dim);
    v_ = project("v_proj_weight", q_width + k_width, v_width, c_.value,
                 c_.kv_len, g.value_dim);
    append(k_, "bias_k", k_width);
    append(v_, "bias_v", v_width);
    LayerResult<Real> result;
    const std::int64_t width = g.heads * g.value_head_dim;
    std::vector<Real> attended(size(c_.batch * c_.q_len * width));
    result.average.resize(size(c_.batch * c_.q_len * c_.all_keys()));
    for (std::int64_t b = 0; b < c_.batch; ++b) {
      for (std::int64_t h = 0; h < g.heads; ++h) {
        for (std::int64_t i = 0; i < c_.q_len; ++i) {
          const std::vector<Real> w = weights(b, h, i);
          result.weights.insert(result.weights.end(), w.begin(), w.end());
          for (std::int64_t j = 0; j < c_.all_keys(); ++j) {
            result.average[size((b * c_.q_len + i) * c_.all_keys() + j)] +=
                w[size(j)] / static_cast<Real>(g.heads);
          }
          attend(b, h, i, w,
                 &attended[size((b * c_.q_len + i) * width +
                                h * g.value_head_dim)]);
        }
      }
    }
    result.out =
        multiply(attended, c_.batch * c_.q_len, width,
                 c_.parameters.at("out_proj.weight").template values<float>(),
                 g.model_dim, parameter("out_proj.bias"));
    return result;
  }

 private:
  static std::size_t size(std::int64_t n) {
    return static_cast<std::size_t>(n);
  }

  std::span<const float> parameter(const std::string& name) const {
    const auto found = c_.parameters.find(name);
    if (found == c_.parameters.end()) return {};
    return found->second.template values<float>();
  }

  // rows [count, in] times weight^T [in, out], plus bias.
  template <typename From>
  static std::vector<Real> multiply(const std::vector<From>& rows,
                                    std::int64_t count, std::int64_t in,
                                    std::span<const float> weight,
                                    std::int64_t out,
                                    std::span<const float> bias) {
    std::vector<Real> result(size(count * out));
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        Real sum = 0;
        for (std::int64_t i = 0; i < in; ++i) {
          sum += static_cast<Real>(rows[size(r * in + i)]) *
                 static_cast<Real>(weight[size(o * in + i)]);
        }
        if (!bias.empty()) sum += static_cast<Real>(bias[size(o)]);
        result[size(r * out + o)] = sum;
      }
    }
    return result;
  }

  std::vector<Real> project(const char* name, std::int64_t begin,
                            std::int64_t width, const std::vector<float>& input,
                            std::int64_t len, std::int64_t in) const {
    std::span<const float> weight = parameter(name);
    if (weight.empty()) {
      weight = parameter("in_proj_weight").subspan(size(begin * in));
    }
    std::span<const float> bias = parameter("in_proj_bias");
    if (!bias.empty()) bias = bias.subspan(size(begin));
    return multiply(input, c_.batch * len, in, weight, width, bias);
  }

  // [batch, kv_len, width] to [batch, all_keys, width].
  void append(std::vector<Real>& rows, const char* name, std::int64_t width) {
    std::vector<Real> longer;
    for (std::int64_t b = 0; b < c_.batch; ++b) {
      const auto begin = rows.begin() + b * c_.kv_len * width;
      longer.insert(longer.end(), begin, begin + c_.kv_len * width);
      for (const float x : parameter(name)) {
        longer.push_back(static_cast<Real>(x));
      }
      longer.resize(size((b + 1) * c_.all_keys() * width));  // the zero key
    }
    rows = longer;
  }

  const Real* key(const std::vector<Real>& rows, std::int64_t b, std::int64_t h,
                  std::int64_t j, std::int64_t dim) const {
    const std::int64_t kv_head = h / (c_.config.heads / c_.config.kv_heads);
    return &rows[size(((b * c_.all_keys() + j) * c_.config.kv_heads + kv_head) *
                      dim)];
  }

  Real score(std::int64_t b, std::int64_t h, std::int64_t i,
             std::int64_t j) const {
    const auto& g = c_.config;
    const Real* q = &q_[size(((b * c_.q_len + i) * g.heads + h) * g.head_dim)];
    const Real* k = key(k_, b, h, j, g.head_dim);
    Real dot = 0, q2 = 0, k2 = 0;
    for (std::int64_t d = 0; d < g.head_dim; ++d) {
      dot += q[d] * k[d];
      q2 += q[d] * q[d];
      k2 += k[d] * k[d];
    }
    Real s = dot;
    if (g.score == Score::kCosine) {
      s = q2 == 0 || k2 == 0 ? 0 : dot / std::sqrt(q2) / std::sqrt(k2);
      s *= static_cast<Real>(parameter("cosine_scale")[size(h)]);
      if (g.scale) s *= static_cast<Real>(*g.scale);
    } else {
      s *= g.scale ? static_cast<Real>(*g.scale)
                   : 1 / std::sqrt(static_cast<Real>(g.head_dim));
    }
    if (c_.softcap > 0) {
      const Real cap = static_cast<Real>(c_.softcap);
      s = cap * std::tanh(s / cap);
    }
    if (j < c_.kv_len && !c_.bias.empty()) {
      s += static_cast<Real>(
          c_.bias[size(((b * g.heads + h) * c_.q_len + i) * c_.kv_len + j)]);
    }
    if (j < c_.kv_len && !c_.alibi_slopes.empty()) {
      const std::int64_t distance = i + c_.kv_len - c_.q_len - j;
      s -= static_cast<Real>(c_.alibi_slopes[size(h)]) *
           static_cast<Real>(distance < 0 ? -distance : distance);
    }
    return s;
  }

  std::vector<Real> weights(std::int64_t b, std::int64_t h,
                            std::int64_t i) const {
    constexpr Real kNothing = -std::numeric_limits<Real>::infinity();
    std::vector<Real> w(size(c_.all_keys()), kNothing);
    Real max = kNothing;
    for (std::int64_t j = 0; j < c_.all_keys(); ++j) {
      if (j < c_.kv_len && !c_.mask.visible(c_.sizes(), b, h, i, j)) continue;
      w[size(j)] = score(b, h, i, j);
      max = std::max(max, w[size(j)]);
    }
    if (max == kNothing) return std::vector<Real>(w.size(), Real{0});
    Real sum = 0;
    for (Real& x : w) sum += x = std::exp(x - max);
    for (Real& x : w) x /= sum;
    return w;
  }

  void attend(std::int64_t b, std::int64_t h, std::int64_t i,
              const std::vector<Real>& w, Real* out) const {
    const auto& g = c_.config;
    const double threshold =
        std::round(static_cast<double>(g.dropout) * 4294967296.0);
    for (std::int64_t j = 0; j < c_.all_keys(); ++j) {
      Real weight = w[size(j)];
      if (c_.training && g.dropout > 0) {
        if (dropout_word(c_.dropout_seed, b, h, i, j) < threshold) continue;
        weight /= 1 - static_cast<Real>(g.dropout);
      }
      const Real* v = key(v_, b, h, j, g.value_head_dim);
      for (std::int64_t d = 0; d < g.value_head_dim; ++d)
        out[d] += weight * v[d];
    }
  }

  const LayerCase& c_;
  std::vector<Real> q_, k_, v_;
};

template <typename Real>
LayerResult<Real> reference_layer(const LayerCase& layer_case) {
  return ReferenceLayer<Real>(layer_case).run();
}

}  // namespace regard::test
