// SPDX-License-Identifier: Apache-2.0
// The layer of inference against its definition in double: every part that a
// checkpoint may bring.
#include "nn/transformer_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/core/random.h"
#include "support/reference_operations.h"

namespace regard::nn::detail {
namespace {

using ops::Activation;
using ops::Norm;
using testing::Matrix;

constexpr std::int64_t kRows = 9, kDim = 12, kInner = 20, kMemory = 5;

struct Kind {
  const char* name;
  bool norm_first = true;
  Norm norm = Norm::kRmsNorm;
  bool result_norms = false;
  bool biases = false;
  std::int64_t heads = 4, kv_heads = 2, head_dim = 6;
  bool qk_norm = false;
  bool rotary = true;
  RotaryPairing pairing = RotaryPairing::kHalfSplit;
  bool cross = false;
  Activation activation = Activation::kSwiglu;
  double (*function)(double) = testing::reference_silu;
};

class Weights {
 public:
  explicit Weights(std::uint64_t seed) : random_(seed) {}
  Matrix matrix(std::int64_t rows, std::int64_t columns, double mean = 0) {
    Matrix m(rows, columns);
    for (double& v : m.values) {
      v = static_cast<float>(mean + 0.4 * random_.normal());
    }
    return m;
  }

 private:
  Random random_;
};

std::vector<float> floats(const Matrix& m) {
  return {m.values.begin(), m.values.end()};
}

struct Linear {
  Matrix weight, bias;
  Linear() = default;
  Linear(Weights& w, std::int64_t out, std::int64_t in, bool has_bias)
      : weight(w.matrix(out, in)) {
    if (has_bias) bias = w.matrix(1, out);
  }
  PackedLinear packed() const {
    const std::vector<float> values = floats(weight), b = floats(bias);
    return PackedLinear(
        ops::ConstRows(values.data(), {weight.rows, weight.columns}), b);
  }
  Matrix operator()(const Matrix& x) const {
    return testing::reference_linear(x, weight, bias);
  }
};

struct NormOf {
  Matrix weight, bias;
  Norm kind = Norm::kRmsNorm;
  NormOf() = default;
  NormOf(Weights& w, Norm kind_, std::int64_t width)
      : weight(w.matrix(1, width, 1)), kind(kind_) {
    if (kind == Norm::kLayerNorm) bias = w.matrix(1, width);
  }
  ops::NormWeights packed() const {
    return {.kind = kind,
            .epsilon = 1e-6f,
            .weight = floats(weight),
            .bias = floats(bias)};
  }
  bool is_null() const { return weight.values.empty(); }
  Matrix operator()(const Matrix& x) const {
    return testing::reference_norm(x, weight, bias, double{1e-6f});
  }
};

// The definition.
class ReferenceLayer {
 public:
  explicit ReferenceLayer(const Kind& k) : kind(k) {
    Weights w(7);
    const std::int64_t width = k.heads * k.head_dim;
    const std::int64_t kv = k.kv_heads * k.head_dim;
    in = Linear(w, width + 2 * kv, kDim, k.biases);
    out = Linear(w, kDim, width, k.biases);
    if (k.cross) {
      cross_q = Linear(w, width, kDim, k.biases);
      cross_k = Linear(w, width, kDim, k.biases);
      cross_v = Linear(w, width, kDim, k.biases);
      cross_out = Linear(w, kDim, width, k.biases);
    }
    if (is_gated(k.activation)) gate = Linear(w, kInner, kDim, k.biases);
    up = Linear(w, kInner, kDim, k.biases);
    down = Linear(w, kDim, kInner, k.biases);
    for (NormOf& norm : norms) norm = NormOf(w, k.norm, kDim);
    if (k.result_norms) {
      for (NormOf& norm : result_norms) norm = NormOf(w, k.norm, kDim);
    }
    if (k.qk_norm) {
      q_norm = NormOf(w, Norm::kRmsNorm, k.head_dim);
      k_norm = NormOf(w, Norm::kRmsNorm, k.head_dim);
    }
  }

  TransformerLayerWeights packed() const {
    TransformerLayerWeights w;
    w.heads = kind.heads;
    w.kv_heads = kind.kv_heads;
    w.head_dim = kind.head_dim;
    w.norm_first = kind.norm_first;
    w.self.norms = {norms[0].packed(), result_norms[0].packed()};
    w.self.in = in.packed();
    w.self.out = out.packed();
    w.self.q_norm = q_norm.packed();
    w.self.k_norm = k_norm.packed();
    if (kind.cross) {
      w.cross.norms = {norms[1].packed(), result_norms[1].packed()};
      w.cross.in = cross_q.packed();
      w.cross.out = cross_out.packed();
    }
    w.feed_forward.norms = {norms[2].packed(), result_norms[2].packed()};
    w.feed_forward.activation = kind.activation;
    if (is_gated(kind.activation)) w.feed_forward.gate = gate.packed();
    w.feed_forward.up = up.packed();
    w.feed_forward.down = down.packed();
    return w;
  }

  Matrix operator()(const Matrix& input, const Matrix& memory) const {
    Matrix x = input;
    block(0, x, [&](const Matrix& y) { return self_attention(y); });
    if (kind.cross) {
      block(1, x, [&](const Matrix& y) {
        return cross_out(attend(cross_q(y), cross_k(memory), cross_v(memory),
                                kind.heads, false));
      });
    }
    block(2, x, [&](const Matrix& y) {
      Matrix inner = up(y);
      if (is_gated(kind.activation)) {
        const Matrix open = testing::map(gate(y), kind.function);
        for (std::size_t i = 0; i < inner.values.size(); ++i) {
          inner.values[i] *= open.values[i];
        }
      } else {
        inner = testing::map(inner, kind.function);
      }
      return down(inner);
    });
    return x;
  }

  Kind kind;
  Linear in, out, cross_q, cross_k, cross_v, cross_out, gate, up, down;
  NormOf norms[3], result_norms[3], q_norm, k_norm;

 private:
  template <typename F>
  void block(int i, Matrix& x, const F& f) const {
    Matrix y = f(kind.norm_first ? norms[i](x) : x);
    if (!result_norms[i].is_null()) y = result_norms[i](y);
    x = testing::reference_add(x, y);
    if (!kind.norm_first) x = norms[i](x);
  }

  static Matrix columns(const Matrix& x, std::int64_t first,
                        std::int64_t count) {
    Matrix y(x.rows, count);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      for (std::int64_t c = 0; c < count; ++c) y(r, c) = x(r, first + c);
    }
    return y;
  }

  // QK-norm, then the angle of the row's number.
  Matrix finished(const Matrix& x, const NormOf& norm) const {
    const std::int64_t d = kind.head_dim, half = d / 2;
    Matrix y = x;
    for (std::int64_t first = 0; first < x.columns; first += d) {
      Matrix head = columns(x, first, d);
      if (!norm.is_null()) head = norm(head);
      for (std::int64_t r = 0; r < x.rows; ++r) {
        for (std::int64_t i = 0; i < d; ++i) y(r, first + i) = head(r, i);
        if (!kind.rotary) continue;
        for (std::int64_t i = 0; i < half; ++i) {
          const bool split = kind.pairing == RotaryPairing::kHalfSplit;
          const std::int64_t a = split ? i : 2 * i;
          const std::int64_t b = split ? i + half : 2 * i + 1;
          const double angle = static_cast<double>(r) *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) /
                                                     static_cast<double>(d));
          y(r, first + a) =
              head(r, a) * std::cos(angle) - head(r, b) * std::sin(angle);
          y(r, first + b) =
              head(r, b) * std::cos(angle) + head(r, a) * std::sin(angle);
        }
      }
    }
    return y;
  }

  Matrix self_attention(const Matrix& y) const {
    const std::int64_t width = kind.heads * kind.head_dim;
    const std::int64_t kv = kind.kv_heads * kind.head_dim;
    const Matrix all = in(y);
    return out(attend(finished(columns(all, 0, width), q_norm),
                      finished(columns(all, width, kv), k_norm),
                      columns(all, width + kv, kv), kind.kv_heads, true));
  }

  Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v,
                std::int64_t kv_heads, bool causal) const {
    const std::int64_t d = kind.head_dim;
    Matrix result(q.rows, q.columns);
    for (std::int64_t h = 0; h < kind.heads; ++h) {
      const std::int64_t at = h * d;
      const std::int64_t from = h / (kind.heads / kv_heads) * d;
      for (std::int64_t r = 0; r < q.rows; ++r) {
        const std::int64_t keys = causal ? r + 1 : k.rows;
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            score += q(r, at + i) * k(j, from + i);
          }
          weights.push_back(
              std::exp(score / std::sqrt(static_cast<double>(d))));
          sum += weights.back();
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          for (std::int64_t i = 0; i < d; ++i) {
            result(r, at + i) +=
                weights[static_cast<std::size_t>(j)] / sum * v(j, from + i);
          }
        }
      }
    }
    return result;
  }
};

class TransformerLayer : public ::testing::TestWithParam<Kind> {};

TEST_P(TransformerLayer, IsItsDefinition) {
  const Kind& kind = GetParam();
  const ReferenceLayer layer(kind);
  const TransformerLayerWeights weights = layer.packed();
  Weights random(11);
  const Matrix x = random.matrix(kRows, kDim), m = random.matrix(kMemory, kDim);
  const Matrix truth = layer(x, m);
  const std::vector<float> input = floats(x);
  const std::int64_t width = kind.heads * kind.head_dim;
  std::vector<float> keys, values;
  if (kind.cross) {
    keys = floats(layer.cross_k(m));
    values = floats(layer.cross_v(m));
  }
  const RotaryTable table = rotary_table({.rotary_dim = kind.head_dim}, kRows);
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < kRows; ++r) positions.push_back(r);
  const auto self = [](const LayerHeads& h) {
    attention_forward(h.q, h.k, h.v, h.out, {.mask = mask::causal()});
  };
  const auto cross = [&](const LayerHeads& h) {
    EXPECT_TRUE(h.k.is_null());
    const auto memory = [&](const std::vector<float>& of) {
      return heads_in(of.data(), kMemory, width, kind.heads, kind.head_dim);
    };
    attention_forward(h.q, memory(keys), memory(values), h.out);
  };
  ops::Arena arena;
  for (int again = 0; again < 2; ++again) {
    arena.reset();
    ResidualStream stream(kRows, kDim, arena);
    std::copy(input.begin(), input.end(), stream.x.data());
    run_layer(weights,
              {.self = self,
               .cross = cross,
               .rotary = kind.rotary ? &table : nullptr,
               .pairing = kind.pairing,
               .positions = positions},
              stream, arena);
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kDim; ++i) {
        ASSERT_NEAR(stream.x(r, i), truth(r, i),
                    2e-5 * (1 + std::abs(truth(r, i))))
            << r << ", " << i;
      }
    }
  }
}

double relu(double x) { return x > 0 ? x : 0; }

INSTANTIATE_TEST_SUITE_P(
    Kinds, TransformerLayer,
    ::testing::Values(Kind{.name = "Llama",
                           .pairing = RotaryPairing::kInterleaved},
                      Kind{.name = "Qwen3", .biases = true, .qk_norm = true},
                      Kind{.name = "Gemma",
                           .result_norms = true,
                           .kv_heads = 1,
                           .qk_norm = true,
                           .activation = Activation::kGeglu,
                           .function = testing::reference_gelu_tanh},
                      Kind{.name = "Bert",
                           .norm_first = false,
                           .norm = Norm::kLayerNorm,
                           .biases = true,
                           .kv_heads = 4,
                           .rotary = false,
                           .activation = Activation::kGelu,
                           .function = testing::reference_gelu},
                      Kind{.name = "Gpt2",
                           .norm = Norm::kLayerNorm,
                           .biases = true,
                           .kv_heads = 4,
                           .rotary = false,
                           .activation = Activation::kGeluTanh,
                           .function = testing::reference_gelu_tanh},
                      Kind{.name = "MarianDecoder",
                           .norm_first = false,
                           .norm = Norm::kLayerNorm,
                           .biases = true,
                           .kv_heads = 4,
                           .rotary = false,
                           .cross = true,
                           .activation = Activation::kSilu},
                      Kind{.name = "T5Decoder",
                           .kv_heads = 4,
                           .rotary = false,
                           .cross = true,
                           .activation = Activation::kRelu,
                           .function = relu}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace regard::nn::detail
