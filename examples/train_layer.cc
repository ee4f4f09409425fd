// SPDX-License-Identifier: Apache-2.0
// Two attention layers learn to copy from scratch, in seconds: the model reads
// a row of random symbols, a separator, and the same row once more, and is
// asked for the next symbol of the second row. It must learn where to look: six
// places back.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "regard/nn/multi_head_attention.h"
#include "regard/regard.h"

namespace {

using regard::StateDict;
using regard::Tensor;
using regard::TensorView;
using regard::nn::MultiHeadAttention;
using regard::nn::MultiHeadAttentionContext;

constexpr std::int64_t kSymbols = 8, kLength = 6, kBatch = 64;
constexpr std::int64_t kTokens = 2 * kLength + 1;  // row, separator, row
constexpr std::int64_t kWidth = 48;
constexpr int kSteps = 100;

// Adam over every parameter of a StateDict.
class Adam {
 public:
  void step(StateDict& values, const StateDict& gradients, float rate) {
    ++steps_;
    for (auto& [name, value] : values) {
      const auto d = gradients.at(name).values<float>();
      const auto x = value.values<float>();
      auto& m = first_[name];
      auto& v = second_[name];
      m.resize(x.size());
      v.resize(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        m[i] = 0.9f * m[i] + 0.1f * d[i];
        v[i] = 0.98f * v[i] + 0.02f * d[i] * d[i];
        const float m_hat = m[i] / (1 - std::pow(0.9f, steps_));
        const float v_hat = v[i] / (1 - std::pow(0.98f, steps_));
        x[i] -= rate * m_hat / (std::sqrt(v_hat) + 1e-8f);
      }
    }
  }

 private:
  float steps_ = 0;
  std::map<std::string, std::vector<float>> first_, second_;
};

// Embeddings of symbols and places, and the matrix from the last layer's rows
// to scores of symbols.
StateDict make_ends(regard::Random& random) {
  StateDict ends;
  ends.emplace("symbol", Tensor({kSymbols + 1, kWidth}));
  ends.emplace("place", Tensor({kTokens, kWidth}));
  ends.emplace("read_out", Tensor({kSymbols, kWidth}));
  for (auto& [name, tensor] : ends) {
    for (float& x : tensor.values<float>()) x = 0.3f * random.normal();
  }
  return ends;
}

using Rows = TensorView<float, 3>;

struct Model {
  regard::Random random{1};
  StateDict ends = make_ends(random);
  MultiHeadAttention layers[2] = {
      MultiHeadAttention({.model_dim = kWidth, .heads = 4}, 2),
      MultiHeadAttention({.model_dim = kWidth, .heads = 4}, 3)};
  Adam adam[3];

  // One update; returns the mean loss of the copied symbols.
  float train(const std::vector<std::int64_t>& symbols, float rate);
};

float Model::train(const std::vector<std::int64_t>& symbols, float rate) {
  Tensor x[3] = {Tensor({kBatch, kTokens, kWidth}),
                 Tensor({kBatch, kTokens, kWidth}),
                 Tensor({kBatch, kTokens, kWidth})};
  // 1. Embed, then two causal layers, each added to what it read.
  const auto symbol = ends.at("symbol").view<float, 2>();
  const auto place = ends.at("place").view<float, 2>();
  const Rows first = x[0].view<float, 3>();
  for (std::int64_t t = 0; t < kBatch * kTokens; ++t) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      *first.at(0, t, c) = symbol(symbols[t], c) + place(t % kTokens, c);
    }
  }
  MultiHeadAttentionContext contexts[2];
  for (int i = 0; i < 2; ++i) {
    const Rows in = x[i].view<float, 3>(), out = x[i + 1].view<float, 3>();
    layers[i].forward(
        in, out, {.mask = regard::mask::causal(), .context = &contexts[i]});
    for (std::int64_t n = 0; n < in.size(); ++n) out.data()[n] += in.data()[n];
  }

  // 2. Cross entropy of the symbols of the second row, and its gradient.
  StateDict d_ends;
  for (const auto& [name, tensor] : ends) {
    d_ends.emplace(name, Tensor(tensor.shape()));
  }
  Tensor gradient({kBatch, kTokens, kWidth});
  const Rows last = x[2].view<float, 3>(), d_last = gradient.view<float, 3>();
  const auto read_out = ends.at("read_out").view<float, 2>();
  const auto d_read_out = d_ends.at("read_out").view<float, 2>();
  float loss = 0;
  const float share = 1.0f / static_cast<float>(kBatch * kLength);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = kLength; t + 1 < kTokens; ++t) {
      const std::int64_t wanted = symbols[b * kTokens + t + 1];
      float scores[kSymbols], sum = 0;
      for (std::int64_t s = 0; s < kSymbols; ++s) {
        scores[s] = 0;
        for (std::int64_t c = 0; c < kWidth; ++c) {
          scores[s] += read_out(s, c) * last(b, t, c);
        }
        sum += scores[s] = std::exp(scores[s]);
      }
      loss -= share * std::log(scores[wanted] / sum);
      for (std::int64_t s = 0; s < kSymbols; ++s) {
        const float d = share * (scores[s] / sum - (s == wanted ? 1.0f : 0.0f));
        for (std::int64_t c = 0; c < kWidth; ++c) {
          d_read_out(s, c) += d * last(b, t, c);
          d_last(b, t, c) += d * read_out(s, c);
        }
      }
    }
  }

  // 3. Back through the layers, and a step for everybody.
  for (int i = 1; i >= 0; --i) {
    Tensor through({kBatch, kTokens, kWidth});
    const Rows d_in = through.view<float, 3>();
    StateDict parameters = layers[i].parameters();
    adam[i].step(
        parameters,
        layers[i].backward(contexts[i], d_last,
                           {.query = d_in, .key = d_in, .value = d_in}),
        rate);
    for (std::int64_t n = 0; n < d_in.size(); ++n) {
      d_last.data()[n] += d_in.data()[n];  // the part that went past the layer
    }
    layers[i].set_parameters(std::move(parameters));
  }
  const auto d_symbol = d_ends.at("symbol").view<float, 2>();
  const auto d_place = d_ends.at("place").view<float, 2>();
  for (std::int64_t t = 0; t < kBatch * kTokens; ++t) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      d_symbol(symbols[t], c) += *d_last.at(0, t, c);
      d_place(t % kTokens, c) += *d_last.at(0, t, c);
    }
  }
  adam[2].step(ends, d_ends, rate);
  return loss;
}

}  // namespace

int main() {
  Model model;
  regard::Random random(7);
  std::vector<std::int64_t> symbols(kBatch * kTokens);
  float loss = 0;
  std::printf("guessing has a loss of %.3f\n",
              std::log(static_cast<float>(kSymbols)));
  for (int step = 0; step <= kSteps; ++step) {
    for (std::int64_t b = 0; b < kBatch; ++b) {
      std::int64_t* const row = &symbols[b * kTokens];
      row[kLength] = kSymbols;  // the separator
      for (std::int64_t i = 0; i < kLength; ++i) {
        row[i] = row[kLength + 1 + i] = random.below(kSymbols);
      }
    }
    loss = model.train(symbols, 0.004f);
    if (step % 10 == 0) std::printf("step %3d  loss %.3f\n", step, loss);
  }
  std::printf(loss < 0.1f ? "learned to copy\n" : "did not learn to copy\n");
  return loss < 0.1f ? 0 : 1;
}
