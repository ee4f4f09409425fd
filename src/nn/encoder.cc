// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/encoder.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "regard/attention/weights.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

constexpr const char* kWhere = "Encoder";

// The tables of positions know a model by its sizes.
TransformerConfig sizes_of(const EncoderConfig& c) {
  TransformerConfig t;
  t.model_dim = c.model_dim;
  t.heads = c.heads;
  t.positions = c.positions;
  return t;
}

const EncoderConfig& checked(const EncoderConfig& c) {
  require(c.vocab > 0, kWhere, "vocab must be positive; it is ", c.vocab);
  require(c.model_dim > 0 && c.heads > 0 && c.model_dim % c.heads == 0, kWhere,
          "heads must divide model_dim; they are ", c.heads, " and ",
          c.model_dim);
  require(c.layers > 0 && c.feed_forward_dim > 0 && c.max_length > 0, kWhere,
          "layers, feed_forward_dim and max_length must be positive; they are ",
          c.layers, ", ", c.feed_forward_dim, " and ", c.max_length);
  require(c.norm_epsilon >= 0, kWhere,
          "norm_epsilon must not be negative; it is ", c.norm_epsilon);
  require(std::isfinite(c.embedding_scale), kWhere,
          "embedding_scale must be finite; it is ", c.embedding_scale);
  require(c.positions != Positions::kRotary || c.model_dim / c.heads % 2 == 0,
          kWhere,
          "rotary positions need an even number of elements per head; there "
          "are ",
          c.model_dim / c.heads);
  for (const float rate :
       {c.dropout, c.attention_dropout, c.activation_dropout}) {
    require(rate >= 0 && rate < 1, kWhere,
            "dropout rates must be in [0, 1); one is ", rate);
  }
  return c;
}

PackedAttention pooling_attention(const EncoderConfig& c) {
  return {"pooling.attn", c.layer()};
}

// 0, 1, ..., n
std::vector<std::int64_t> single_rows(std::int64_t n) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(n) + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

Sentences sentences_of(const PositionTables& tables,
                       const PackedTokens& texts) {
  const RotaryTable* const rotary = tables.rotary();
  if (rotary == nullptr) return {.offsets = texts.offsets};
  return {texts.offsets, rotary->cos.view<float, 2>(),
          rotary->sin.view<float, 2>()};
}

NormLayer norm_of(const EncoderConfig& c, const std::string& name) {
  return {name, c.norm, c.model_dim, c.norm_epsilon};
}

// The heads in columns [first, first + model_dim) of a matrix.
TensorView<const float, 4> heads_of(const EncoderConfig& c, const Variable& x,
                                    std::int64_t first) {
  const std::int64_t dim = c.model_dim / c.heads;
  return {x.data() + first,
          {1, c.heads, x.rows(), dim},
          {x.rows() * x.columns(), dim, x.columns(), 1}};
}

Variable dropped(Pass& pass, const Variable& x,
                 const autograd::ElementDropout& dropout) {
  if (dropout.rate == 0) return x;
  std::vector<std::int32_t> rows(static_cast<std::size_t>(x.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return autograd::gather_rows(pass.tape(), x, rows, dropout);
}

}  // namespace

struct Encoder::Tables {
  std::once_flag once;
  std::optional<PositionTables> made;
};

Encoder::Encoder(const EncoderConfig& config)
    : config_(checked(config)), tables_(std::make_shared<Tables>()) {}

const PositionTables& Encoder::tables() const {
  std::call_once(tables_->once, [this] {
    tables_->made.emplace(sizes_of(config_), config_.max_length);
  });
  return *tables_->made;
}

TransformerEncoderLayer Encoder::layer(std::int64_t i) const {
  return {"layers." + std::to_string(config_.shared_layers ? 0 : i),
          config_.layer()};
}

void Encoder::declare(ParameterSpecs& specs) const {
  const EncoderConfig& c = config_;
  Embedding{"embedding", c.vocab, c.model_dim}.declare(specs);
  if (c.positions == Positions::kLearned) {
    Embedding{"positions", c.max_length, c.model_dim}.declare(specs);
  }
  if (c.token_type) Embedding{"token_type", 1, c.model_dim}.declare(specs);
  if (c.embedding_norm) norm_of(c, "embedding_norm").declare(specs);
  for (std::int64_t i = 0; i < c.layers; ++i) layer(i).declare(specs);
  if (c.norm_first) {
    norm_of(c, "norm").declare(specs);
  }
  if (c.pooling == Pooling::kAttention) {
    specs["pooling.query"] = {{1, c.model_dim},
                              ParameterSpec::Start::kXavierUniform};
    pooling_attention(c).declare_cross(specs);
  }
}

autograd::EmbeddingOptions Encoder::positions(Pass& pass,
                                              const PackedTokens& texts) const {
  const EncoderConfig& c = config_;
  const auto& offsets = texts.offsets;
  require(!offsets.empty() && offsets.front() == 0 &&
              offsets.back() == texts.size(),
          kWhere, "offsets must start at 0 and end at the ", texts.size(),
          " tokens; they are ", ShapeText{offsets});
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    const std::int64_t length = offsets[s] - offsets[s - 1];
    require(length > 0 && length <= c.max_length, kWhere,
            "a text must have 1 to ", c.max_length, " tokens; text ", s - 1,
            " has ", length);
  }
  autograd::EmbeddingOptions options;
  options.offsets = offsets;
  if (c.positions == Positions::kLearned) {
    options.positions = pass.parameter("positions.weight");
  } else if (c.positions == Positions::kSinusoidal) {
    options.positions = pass.tape().constant(tables().sinusoidal());
  }
  return options;
}

Variable Encoder::embed(Pass& pass, const PackedTokens& texts) const {
  const EncoderConfig& c = config_;
  autograd::EmbeddingOptions options = positions(pass, texts);
  options.scale =
      c.embedding_scale != 0
          ? c.embedding_scale
          : static_cast<float>(std::sqrt(static_cast<double>(c.model_dim)));
  const autograd::ElementDropout dropout = pass.dropout(c.dropout);
  const bool more = c.token_type || c.embedding_norm;
  if (!more) options.dropout = dropout;
  Variable x = Embedding{"embedding"}(pass, texts.tokens, options);
  if (c.token_type) {
    const std::vector<std::int32_t> first(texts.tokens.size());
    x = autograd::add(pass.tape(), x, Embedding{"token_type"}(pass, first));
  }
  if (c.embedding_norm) x = norm_of(c, "embedding_norm")(pass, x);
  return more ? dropped(pass, x, dropout) : x;
}

Variable Encoder::encode(Pass& pass, Variable x, const PackedTokens& texts,
                         const Mask& mask) const {
  const EncoderConfig& c = config_;
  const Sentences sentences = sentences_of(tables(), texts);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    x = layer(i)(pass, x, sentences, mask);
  }
  if (!c.norm_first) return x;
  return norm_of(c, "norm")(pass, x);
}

Variable Encoder::pool(Pass& pass, const Variable& x,
                       const PackedTokens& texts) const {
  const EncoderConfig& c = config_;
  const std::int64_t count = texts.sequences();
  const autograd::ElementDropout dropout = pass.dropout(c.dropout);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  if (c.pooling == Pooling::kFirst || c.pooling == Pooling::kLast) {
    for (std::size_t s = 0; s < rows.size(); ++s) {
      rows[s] = static_cast<std::int32_t>(c.pooling == Pooling::kFirst
                                              ? texts.offsets[s]
                                              : texts.offsets[s + 1] - 1);
    }
    return autograd::gather_rows(pass.tape(), x, rows, dropout);
  }
  Variable pooled;
  if (c.pooling == Pooling::kMean) {
    pooled = autograd::mean_rows(pass.tape(), x, texts.offsets);
  } else {
    const std::vector<std::int64_t> queries = single_rows(count);
    pooled = pooling_attention(c)(
        pass,
        autograd::gather_rows(pass.tape(), pass.parameter("pooling.query"),
                              rows),
        {.offsets = queries}, x, {.offsets = texts.offsets}, {});
  }
  return dropped(pass, pooled, dropout);
}

Encoder::Attention Encoder::attention(Pass& pass, Variable x,
                                      const PackedTokens& text,
                                      const Mask& mask, OverHeads over) const {
  const EncoderConfig& c = config_;
  require(text.sequences() == 1, kWhere,
          "attention is shown for one text; there are ", text.sequences());
  const std::int64_t n = text.size();
  const std::int64_t d = c.model_dim;
  const std::int64_t heads = over == OverHeads::kMean ? 1 : c.heads;
  Attention out{Tensor({c.layers, heads, n, n}), Tensor({heads, n})};
  const Sentences sentences = sentences_of(tables(), text);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const TransformerEncoderLayer at = layer(i);
    const Variable in =
        c.norm_first ? norm_of(c, at.name + ".norm1")(pass, x) : x;
    const Variable qkv = pass.linear(in, at.name + ".self_attn.in_proj_weight",
                                     at.name + ".self_attn.in_proj_bias");
    if (!sentences.rotary_cos.is_null()) {
      // It turns queries and keys where they stand.
      autograd::PackedAttentionOptions turn;
      turn.heads = turn.kv_heads = c.heads;
      turn.head_dim = d / c.heads;
      turn.q_offsets = turn.kv_offsets = text.offsets;
      turn.rotary_cos = sentences.rotary_cos;
      turn.rotary_sin = sentences.rotary_sin;
      autograd::attention(pass.tape(), {qkv, 0}, {qkv, d}, {qkv, 2 * d}, turn);
    }
    attention_weights(
        heads_of(c, qkv, 0), heads_of(c, qkv, d),
        WeightsRequest{
            .heads = over,
            .weights = {out.layers.view<float, 4>().at(i), {1, heads, n, n}}},
        {.mask = mask});
    x = at(pass, x, sentences, mask);
  }
  if (c.norm_first) {
    x = norm_of(c, "norm")(pass, x);
  }
  const auto pooling = out.pooling.values<float>();
  const std::int64_t only = c.pooling == Pooling::kFirst ? 0 : n - 1;
  if (c.pooling == Pooling::kFirst || c.pooling == Pooling::kLast) {
    for (std::int64_t h = 0; h < heads; ++h) {
      pooling[static_cast<std::size_t>(h * n + only)] = 1;
    }
  } else if (c.pooling == Pooling::kMean) {
    std::fill(pooling.begin(), pooling.end(), 1.0f / static_cast<float>(n));
  } else {
    const std::string weight = "pooling.attn.in_proj_weight";
    const std::string bias = "pooling.attn.in_proj_bias";
    const Variable q = pass.linear(pass.parameter("pooling.query"), weight,
                                   bias, {.count = d});
    const Variable kv =
        pass.linear(x, weight, bias, {.first = d, .count = 2 * d});
    attention_weights(
        heads_of(c, q, 0), heads_of(c, kv, 0),
        WeightsRequest{.heads = over,
                       .weights = {pooling.data(), {1, heads, 1, n}}});
  }
  return out;
}

std::vector<double> Encoder::Attention::rollout() const {
  const auto weights = layers.view<float, 4>();
  const std::int64_t heads = weights.extent(1);
  const std::int64_t n = weights.extent(2);
  std::vector<double> share(static_cast<std::size_t>(n));
  std::vector<double> next(share.size());
  const auto part = 1.0 / static_cast<double>(heads);
  for (std::int64_t h = 0; h < heads; ++h) {
    const float* const row = pooling.view<float, 2>().at(h);
    for (std::size_t t = 0; t < share.size(); ++t) share[t] += part * row[t];
  }
  for (std::int64_t l = weights.extent(0) - 1; l >= 0; --l) {
    for (std::size_t t = 0; t < share.size(); ++t) next[t] = 0.5 * share[t];
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t q = 0; q < n; ++q) {
        const double of = 0.5 * part * share[static_cast<std::size_t>(q)];
        const float* const row = weights.at(l, h, q);
        for (std::int64_t k = 0; k < n; ++k) {
          next[static_cast<std::size_t>(k)] += of * static_cast<double>(row[k]);
        }
      }
    }
    share.swap(next);
  }
  return share;
}

}  // namespace regard::nn
