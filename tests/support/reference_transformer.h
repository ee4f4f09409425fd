// SPDX-License-Identifier: Apache-2.0
// The Transformer of "Attention Is All You Need" in double, one element at a
// time, sharing nothing with the library: post-norm, relu, sinusoidal places,
// shared embeddings. It keeps the weights of every head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "regard/nn/transformer.h"

namespace regard::test {

using Rows = std::vector<std::vector<double>>;  // [tokens][model_dim]

struct ReferenceWeights {
  // [layers][heads], each [queries][keys]
  std::vector<std::vector<Rows>> encoder, decoder, cross;
};

class ReferenceTransformer {
 public:
  ReferenceTransformer(const nn::TransformerConfig& config,
                       const StateDict& parameters)
      : c_(config), p_(parameters) {}

  ReferenceWeights run(const std::vector<std::int32_t>& source,
                       const std::vector<std::int32_t>& target) {
    ReferenceWeights seen;
    Rows memory = embedded(source);
    for (std::int64_t i = 0; i < c_.encoder_layers; ++i) {
      const std::string name = "encoder.layers." + std::to_string(i);
      attend(name + ".self_attn", name + ".norm1", memory, memory, false,
             seen.encoder);
      feed_forward(name, name + ".norm2", memory);
    }
    if (c_.final_norm) normalize("encoder.norm", memory);
    Rows x = embedded(target);
    for (std::int64_t i = 0; i < c_.decoder_layers; ++i) {
      const std::string name = "decoder.layers." + std::to_string(i);
      attend(name + ".self_attn", name + ".norm1", x, x, true, seen.decoder);
      attend(name + ".multihead_attn", name + ".norm2", x, memory, false,
             seen.cross);
      feed_forward(name, name + ".norm3", x);
    }
    return seen;
  }

 private:
  double at(const std::string& name, std::int64_t i) const {
    return p_.at(name).values<float>()[static_cast<std::size_t>(i)];
  }

  Rows embedded(const std::vector<std::int32_t>& tokens) const {
    const std::int64_t d = c_.model_dim;
    Rows x;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      std::vector<double> row;
      for (std::int64_t j = 0; j < d; ++j) {
        const double rate = std::pow(
            10000.0, -static_cast<double>(j - j % 2) / static_cast<double>(d));
        const double angle = static_cast<double>(t) * rate;
        row.push_back(at("embedding.weight", tokens[t] * d + j) *
                          std::sqrt(static_cast<double>(d)) +
                      (j % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
      x.push_back(std::move(row));
    }
    return x;
  }

  // Rows [first, first + count) of a weight [out, in], and of its bias.
  Rows linear(const std::string& weight, const std::string& bias,
              std::int64_t first, std::int64_t count, const Rows& x) const {
    const auto in = static_cast<std::int64_t>(x.front().size());
    Rows y;
    for (const std::vector<double>& row : x) {
      std::vector<double> out;
      for (std::int64_t o = first; o < first + count; ++o) {
        double sum = at(bias, o);
        for (std::int64_t j = 0; j < in; ++j) {
          sum += row[static_cast<std::size_t>(j)] * at(weight, o * in + j);
        }
        out.push_back(sum);
      }
      y.push_back(std::move(out));
    }
    return y;
  }

  // x = norm(x + attention(x, memory)); the weights go behind `seen`.
  void attend(const std::string& name, const std::string& norm, Rows& x,
              const Rows& memory, bool causal,
              std::vector<std::vector<Rows>>& seen) const {
    const std::int64_t d = c_.model_dim;
    const auto dim = static_cast<std::size_t>(d / c_.heads);
    const std::string weight = name + ".in_proj_weight";
    const std::string bias = name + ".in_proj_bias";
    const Rows q = linear(weight, bias, 0, d, x);
    const Rows k = linear(weight, bias, d, d, memory);
    const Rows v = linear(weight, bias, 2 * d, d, memory);
    Rows joined(x.size(), std::vector<double>(static_cast<std::size_t>(d)));
    std::vector<Rows> heads;
    for (std::size_t h = 0; h < static_cast<std::size_t>(c_.heads); ++h) {
      Rows weights;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t visible = causal ? i + 1 : memory.size();
        weights.push_back(
            softmax(q[i], k, h * dim, dim, visible, memory.size()));
        for (std::size_t j = 0; j < visible; ++j) {
          for (std::size_t e = h * dim; e < (h + 1) * dim; ++e) {
            joined[i][e] += weights[i][j] * v[j][e];
          }
        }
      }
      heads.push_back(std::move(weights));
    }
    seen.push_back(std::move(heads));
    add(linear(name + ".out_proj.weight", name + ".out_proj.bias", 0, d,
               joined),
        x);
    normalize(norm, x);
  }

  static std::vector<double> softmax(const std::vector<double>& q,
                                     const Rows& k, std::size_t first,
                                     std::size_t dim, std::size_t visible,
                                     std::size_t keys) {
    std::vector<double> scores;
    for (std::size_t j = 0; j < visible; ++j) {
      double score = 0;
      for (std::size_t e = first; e < first + dim; ++e) score += q[e] * k[j][e];
      scores.push_back(score / std::sqrt(static_cast<double>(dim)));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (double& score : scores) score /= sum;
    scores.resize(keys);
    return scores;
  }

  void feed_forward(const std::string& name, const std::string& norm,
                    Rows& x) const {
    Rows inner = linear(name + ".linear1.weight", name + ".linear1.bias", 0,
                        c_.feed_forward_dim, x);
    for (auto& row : inner) {
      for (double& value : row) value = std::max(value, 0.0);
    }
    add(linear(name + ".linear2.weight", name + ".linear2.bias", 0,
               c_.model_dim, inner),
        x);
    normalize(norm, x);
  }

  static void add(const Rows& branch, Rows& x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x[i].size(); ++j) x[i][j] += branch[i][j];
    }
  }

  void normalize(const std::string& name, Rows& x) const {
    for (auto& row : x) {
      const auto n = static_cast<double>(row.size());
      double mean = 0;
      for (const double value : row) mean += value / n;
      double variance = 0;
      for (const double value : row) {
        variance += (value - mean) * (value - mean) / n;
      }
      for (std::size_t j = 0; j < row.size(); ++j) {
        const auto place = static_cast<std::int64_t>(j);
        row[j] = (row[j] - mean) / std::sqrt(variance + c_.norm_epsilon) *
                     at(name + ".weight", place) +
                 at(name + ".bias", place);
      }
    }
  }

  const nn::TransformerConfig& c_;
  const StateDict& p_;
};

}  // namespace regard::test
