// SPDX-License-Identifier: Apache-2.0
// A Llama in plain loops, as its definition reads: all tokens of one text at
// once, in Real. Shares nothing with the library but the way to name weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/tasks/language_model.h"

namespace regard::test {

template <typename Real>
class ReferenceLanguageModel {
 public:
  ReferenceLanguageModel(const tasks::LanguageModelConfig& config,
                         const tasks::ParameterViews& parameters)
      : c_(config), parameters_(parameters) {}

  // The scores after the last token. `seen` gets the weights of each layer,
  // token and head, in this order: one for every token up to this one.
  std::vector<Real> logits(
      const std::vector<std::int32_t>& tokens,
      std::vector<std::vector<Real>>* seen = nullptr) const {
    std::vector<std::vector<Real>> x;
    const auto& embedding = parameters_.at("token_embd.weight");
    for (const std::int32_t token : tokens) {
      const float* row = embedding.at(std::int64_t{token});
      x.emplace_back(row, row + c_.model_dim);
    }
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      const std::string name = "blk." + std::to_string(layer) + ".";
      attend(name, x, seen);
      for (auto& row : x) {
        const auto h = normed(row, name + "ffn_norm.weight");
        auto gate = times(name + "ffn_gate.weight", h);
        const auto up = times(name + "ffn_up.weight", h);
        for (std::size_t i = 0; i < gate.size(); ++i) {
          gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        }
        add(row, times(name + "ffn_down.weight", gate));
      }
    }
    const bool tied = !parameters_.contains("output.weight");
    return times(tied ? "token_embd.weight" : "output.weight",
                 normed(x.back(), "output_norm.weight"));
  }

 private:
  using Row = std::vector<Real>;

  static void add(Row& x, const Row& more) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += more[i];
  }

  Row normed(const Row& x, const std::string& name) const {
    Real sum = 0;
    for (const Real value : x) sum += value * value;
    const Real size = static_cast<Real>(x.size());
    const Real scale =
        1 / std::sqrt(sum / size + static_cast<Real>(c_.norm_epsilon));
    const float* weight = parameters_.at(name).data();
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(x[i] * scale * static_cast<Real>(weight[i]));
    }
    return y;
  }

  Row times(const std::string& name, const Row& x) const {
    const auto& weight = parameters_.at(name);
    Row y;
    for (std::int64_t r = 0; r < weight.extent(0); ++r) {
      Real sum = 0;
      for (std::int64_t i = 0; i < weight.extent(1); ++i) {
        sum += static_cast<Real>(weight(r, i)) * x[static_cast<std::size_t>(i)];
      }
      y.push_back(sum);
    }
    return y;
  }

  // Neighbours (2 i, 2 i + 1) of each head turn by position / base^(2 i / dim).
  void turn(Row& row, std::size_t position) const {
    const auto dim = static_cast<std::size_t>(c_.head_dim);
    for (std::size_t i = 0; i < row.size(); i += 2) {
      const double angle =
          static_cast<double>(position) *
          std::pow(c_.rotary.base,
                   -static_cast<double>(i % dim) / static_cast<double>(dim));
      const Real cos = static_cast<Real>(std::cos(angle));
      const Real sin = static_cast<Real>(std::sin(angle));
      const Real a = row[i], b = row[i + 1];
      row[i] = a * cos - b * sin;
      row[i + 1] = b * cos + a * sin;
    }
  }

  void attend(const std::string& name, std::vector<Row>& x,
              std::vector<Row>* seen) const {
    std::vector<Row> q, k, v;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row h = normed(x[t], name + "attn_norm.weight");
      q.push_back(times(name + "attn_q.weight", h));
      k.push_back(times(name + "attn_k.weight", h));
      v.push_back(times(name + "attn_v.weight", h));
      turn(q.back(), t);
      turn(k.back(), t);
    }
    const auto dim = static_cast<std::size_t>(c_.head_dim);
    const auto heads = static_cast<std::size_t>(c_.heads);
    const auto group = heads / static_cast<std::size_t>(c_.kv_heads);
    for (std::size_t t = 0; t < x.size(); ++t) {
      Row all(heads * dim);
      for (std::size_t h = 0; h < heads; ++h) {
        Row weights;
        Real sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          Real dot = 0;
          for (std::size_t i = 0; i < dim; ++i) {
            dot += q[t][h * dim + i] * k[s][h / group * dim + i];
          }
          weights.push_back(std::exp(dot / std::sqrt(static_cast<Real>(dim))));
          sum += weights.back();
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < dim; ++i) {
            all[h * dim + i] += weights[s] / sum * v[s][h / group * dim + i];
          }
        }
        if (seen == nullptr) continue;
        for (Real& weight : weights) weight /= sum;
        seen->push_back(weights);
      }
      add(x[t], times(name + "attn_output.weight", all));
    }
  }

  tasks::LanguageModelConfig c_;
  const tasks::ParameterViews& parameters_;
};

}  // namespace regard::test
