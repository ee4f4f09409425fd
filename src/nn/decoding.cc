// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/decoding.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "nn/decoder_weights.h"
#include "nn/said_tokens.h"
#include "regard/attention/attention.h"
#include "regard/attention/weights.h"

namespace regard::nn {
namespace {

using detail::Residual;

// [1, heads, rows, dim] in columns of rows `stride` floats apart.
template <typename T>
TensorView<T, 4> heads_in(T* data, std::int64_t rows, std::int64_t stride,
                          const TransformerConfig& c) {
  const std::int64_t dim = c.model_dim / c.heads;
  return {data, {1, c.heads, rows, dim}, {rows * stride, dim, stride, 1}};
}

void rotate(float* x, std::int64_t heads, std::int64_t dim,
            const Sentences& rotary, std::int64_t place) {
  kernels::rope({.heads = heads,
                 .dim = dim,
                 .half = rotary.rotary_cos.extent(1),
                 .x = x,
                 .x_stride = dim,
                 .cos = rotary.rotary_cos.at(place),
                 .sin = rotary.rotary_sin.at(place),
                 .y = x,
                 .y_stride = dim});
}

}  // namespace

// Where a state leaves the weights of its only source and hypothesis. The cache
// has keys in an order of its own, so they are kept here once more.
struct TransformerDecoder::Watch {
  AttentionTrace seen;
  std::vector<Tensor> said_keys;  // [layers]: [target, model_dim]

  Watch(const TransformerConfig& c, std::int64_t source, std::int64_t target) {
    seen.encoder = Tensor({c.encoder_layers, c.heads, source, source});
    seen.decoder = Tensor({c.decoder_layers, c.heads, target, target});
    seen.cross = Tensor({c.decoder_layers, c.heads, target, source});
    const auto vectors = [&c](std::int64_t layers, std::int64_t q,
                              std::int64_t k) {
      const std::int64_t dim = c.model_dim / c.heads;
      return HeadVectors{Tensor({layers, c.heads, q, dim}),
                         Tensor({layers, c.heads, k, dim})};
    };
    seen.encoder_vectors = vectors(c.encoder_layers, source, source);
    seen.decoder_vectors = vectors(c.decoder_layers, target, target);
    seen.cross_vectors = vectors(c.decoder_layers, target, source);
    for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
      said_keys.emplace_back(Shape{target, c.model_dim});
    }
  }

  // Rows [first, first + from's rows) of one layer.
  static void keep(Tensor& all, std::int64_t layer, std::int64_t first,
                   TensorView<const float, 4> from) {
    const auto to = all.view<float, 4>();
    for (std::int64_t head = 0; head < from.extent(1); ++head) {
      for (std::int64_t row = 0; row < from.extent(2); ++row) {
        std::copy_n(from.at(0, head, row), from.extent(3),
                    to.at(layer, head, first + row));
      }
    }
  }

  // The weights of rows [first, first + q's rows) of one layer.
  static void note(Tensor& all, HeadVectors& vectors, std::int64_t layer,
                   std::int64_t first, TensorView<const float, 4> q,
                   TensorView<const float, 4> k, Threads threads) {
    keep(vectors.q, layer, first, q);
    keep(vectors.k, layer, 0, k);
    const auto to = all.view<float, 4>();
    AttentionOptions options;
    options.threads = threads;
    attention_weights(
        q, k,
        TensorView<float, 4>(to.at(layer, 0, first),
                             {1, to.extent(1), q.extent(2), k.extent(2)},
                             {to.stride(0), to.stride(1), to.stride(2), 1}),
        options);
  }
};

struct DecoderState::Memory {
  Memory(const TransformerDecoder::Weights& weights, std::int64_t hypotheses)
      : w(&weights),
        rooms(weights.workspaces.take()),
        said(weights.config.decoder_layers, weights.config.heads,
             weights.config.model_dim / weights.config.heads, hypotheses) {}
  ~Memory() { w->workspaces.give(std::move(rooms)); }

  const TransformerDecoder::Weights* w;
  std::unique_ptr<detail::Workspace> rooms;
  Threads threads;
  TransformerDecoder::Watch* watch = nullptr;  // null: nobody looks

  // Of the sources: where each begins, and for each layer the keys and values
  // [tokens, 2 * model_dim].
  std::vector<std::int64_t> source_offsets;
  std::vector<Tensor> memory_kv;

  // Of the hypotheses.
  std::vector<std::int64_t> source;     // [hypotheses]
  std::vector<std::int64_t> q_offsets;  // [sources + 1], of hypotheses
  std::int64_t length = 0;
  // The logits and queries of the last step are still those of `source`.
  bool scored = false;
  detail::SaidTokens said;

  std::int64_t hypotheses() const {
    return static_cast<std::int64_t>(source.size());
  }
  std::int64_t token_floats() const { return 2 * w->config.model_dim; }

  void encode(const PackedTokens& sources);
  void embed(const Tensor& table, const Tensor& places,
             const std::int32_t* tokens, const std::int64_t* place,
             std::int64_t rows, float* x);
  void encoder_layer(const detail::EncoderLayerWeights& layer,
                     const Sentences& sentences, std::int64_t rows, float* x);
  void decoder_layer(std::size_t index, const Sentences& rotary, float* x);
  void attend_to_said(std::size_t index, const Sentences& rotary,
                      const float* input);
  void count_hypotheses();
  void check_scored(const char* where) const {
    require(scored || source.empty(), where,
            "a step must have been taken, and no reorder since");
  }
};

void DecoderState::Memory::embed(const Tensor& table, const Tensor& places,
                                 const std::int32_t* tokens,
                                 const std::int64_t* place, std::int64_t rows,
                                 float* x) {
  const TransformerConfig& c = w->config;
  const std::int64_t d = c.model_dim;
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(d)));
  const float* at = nullptr;
  if (c.positions == Positions::kLearned) {
    at = places.values<float>().data();
  } else if (c.positions == Positions::kSinusoidal) {
    const std::int64_t most = *std::max_element(place, place + rows);
    at = rooms->tables.sinusoidal(c, most + 1).data();
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    kernels::scale_add(table.values<float>().data() + tokens[r] * d, scale,
                       at == nullptr ? nullptr : at + place[r] * d, d,
                       x + r * d);
  }
}

void DecoderState::Memory::encoder_layer(
    const detail::EncoderLayerWeights& layer, const Sentences& sentences,
    std::int64_t rows, float* x) {
  const TransformerConfig& c = w->config;
  const std::int64_t d = c.model_dim;
  const Residual residual{c.norm_first};
  float* const normed = rooms->normed.of(rows * d);
  float* const branch = rooms->branch.of(rows * d);
  float* const qkv = rooms->projected.of(rows * 3 * d);
  float* const attended = rooms->attended.of(rows * d);
  layer.qkv(residual.input(layer.norm1, x, rows, normed, threads), rows, qkv,
            threads);
  if (!sentences.rotary_cos.is_null()) {
    for (std::size_t s = 1; s < sentences.offsets.size(); ++s) {
      const std::int64_t begin = sentences.offsets[s - 1];
      for (std::int64_t r = begin; r < sentences.offsets[s]; ++r) {
        rotate(qkv + r * 3 * d, 2 * c.heads, d / c.heads, sentences, r - begin);
      }
    }
  }
  AttentionOptions options;
  options.sequences = {sentences.offsets, sentences.offsets};
  options.threads = threads;
  const float* const read = qkv;
  attention_forward(heads_in(read, rows, 3 * d, c),
                    heads_in(read + d, rows, 3 * d, c),
                    heads_in(read + 2 * d, rows, 3 * d, c),
                    heads_in(attended, rows, d, c), options);
  if (watch != nullptr) {
    watch->note(watch->seen.encoder, watch->seen.encoder_vectors,
                &layer - w->encoder.data(), 0, heads_in(read, rows, 3 * d, c),
                heads_in(read + d, rows, 3 * d, c), threads);
  }
  layer.out(attended, rows, branch, threads);
  residual.add(layer.norm1, branch, rows, x, threads);
  float* const inner =
      rooms->inner.of(2 * rows * layer.feed_forward.linear1.out());
  detail::feed_forward(layer.feed_forward, c.activation,
                       residual.input(layer.norm2, x, rows, normed, threads),
                       rows, inner, branch, threads);
  residual.add(layer.norm2, branch, rows, x, threads);
}

void DecoderState::Memory::encode(const PackedTokens& sources) {
  const TransformerConfig& c = w->config;
  const std::int64_t rows = sources.size();
  std::vector<std::int64_t> place;
  for (std::size_t s = 1; s < sources.offsets.size(); ++s) {
    for (std::int64_t i = sources.offsets[s - 1]; i < sources.offsets[s]; ++i) {
      place.push_back(i - sources.offsets[s - 1]);
    }
  }
  float* const x = rooms->x.of(rows * c.model_dim);
  embed(w->source_table, w->source_places, sources.tokens.data(), place.data(),
        rows, x);
  const Sentences sentences = rooms->tables.sentences(c, sources);
  for (const auto& layer : w->encoder) encoder_layer(layer, sentences, rows, x);
  if (c.final_norm && !w->encoder.empty()) w->encoder_norm(x, rows, x, threads);
  source_offsets = sources.offsets;
  for (const auto& layer : w->decoder) {
    Tensor kv({rows, token_floats()});
    layer.kv(x, rows, kv.values<float>().data(), threads);
    memory_kv.push_back(std::move(kv));
  }
}

void DecoderState::Memory::count_hypotheses() {
  q_offsets.assign(source_offsets.size(), 0);
  for (const std::int64_t s : source)
    ++q_offsets[static_cast<std::size_t>(s) + 1];
  for (std::size_t s = 1; s < q_offsets.size(); ++s) {
    q_offsets[s] += q_offsets[s - 1];
  }
}

void DecoderState::Memory::attend_to_said(std::size_t index,
                                          const Sentences& rotary,
                                          const float* input) {
  const TransformerConfig& c = w->config;
  const std::int64_t d = c.model_dim;
  const std::int64_t dim = d / c.heads;
  const std::int64_t rows = hypotheses();
  const auto& layer = w->decoder[index];
  float* const qkv = rooms->projected.of(rows * 3 * d);
  layer.qkv(input, rows, qkv, threads);
  if (!rotary.rotary_cos.is_null()) {
    for (std::int64_t h = 0; h < rows; ++h) {
      rotate(qkv + h * 3 * d, 2 * c.heads, dim, rotary, length);
    }
  }
  const auto number = static_cast<std::int64_t>(index);
  said.keep(number, qkv + d, qkv + 2 * d, 3 * d);
  said.attend(number, qkv, 3 * d, rooms->attended.of(rows * d), threads);
  if (watch != nullptr) {
    float* const keys = watch->said_keys[index].values<float>().data();
    std::copy_n(qkv + d, d, keys + length * d);
    watch->note(watch->seen.decoder, watch->seen.decoder_vectors, number,
                length, heads_in(qkv, 1, 3 * d, c),
                heads_in(keys, length + 1, d, c), threads);
  }
}

void DecoderState::Memory::decoder_layer(std::size_t index,
                                         const Sentences& rotary, float* x) {
  const TransformerConfig& c = w->config;
  const auto& layer = w->decoder[index];
  const std::int64_t d = c.model_dim;
  const std::int64_t rows = hypotheses();
  const Residual residual{c.norm_first};
  float* const normed = rooms->normed.of(rows * d);
  float* const branch = rooms->branch.of(rows * d);
  float* const attended = rooms->attended.of(rows * d);
  // 1. What was said so far.
  attend_to_said(index, rotary,
                 residual.input(layer.norm1, x, rows, normed, threads));
  layer.self_out(attended, rows, branch, threads);
  residual.add(layer.norm1, branch, rows, x, threads);
  // 2. The source: the hypotheses of one are the queries of one sequence.
  float* const q = rooms->cross_q[index].of(rows * d);
  layer.q(residual.input(layer.norm2, x, rows, normed, threads), rows, q,
          threads);
  const Tensor& kv = memory_kv[index];
  const float* const keys = kv.values<float>().data();
  const std::int64_t tokens = kv.shape()[0];
  AttentionOptions options;
  options.sequences = {q_offsets, source_offsets};
  options.threads = threads;
  attention_forward(heads_in(static_cast<const float*>(q), rows, d, c),
                    heads_in(keys, tokens, 2 * d, c),
                    heads_in(keys + d, tokens, 2 * d, c),
                    heads_in(attended, rows, d, c), options);
  if (watch != nullptr) {
    watch->note(watch->seen.cross, watch->seen.cross_vectors,
                static_cast<std::int64_t>(index), length,
                heads_in(static_cast<const float*>(q), rows, d, c),
                heads_in(keys, tokens, 2 * d, c), threads);
  }
  layer.cross_out(attended, rows, branch, threads);
  residual.add(layer.norm2, branch, rows, x, threads);
  // 3. Feed-forward.
  float* const inner =
      rooms->inner.of(2 * rows * layer.feed_forward.linear1.out());
  detail::feed_forward(layer.feed_forward, c.activation,
                       residual.input(layer.norm3, x, rows, normed, threads),
                       rows, inner, branch, threads);
  residual.add(layer.norm3, branch, rows, x, threads);
}

TransformerDecoder::TransformerDecoder(const Transformer& model)
    : weights_(std::make_unique<Weights>(model)) {}
TransformerDecoder::~TransformerDecoder() = default;
TransformerDecoder::TransformerDecoder(TransformerDecoder&&) noexcept = default;
TransformerDecoder& TransformerDecoder::operator=(
    TransformerDecoder&&) noexcept = default;

const TransformerConfig& TransformerDecoder::config() const {
  return weights_->config;
}

DecoderState TransformerDecoder::start(const PackedTokens& sources,
                                       std::int64_t beams,
                                       Threads threads) const {
  return start_watched(sources, beams, threads, nullptr);
}

AttentionTrace TransformerDecoder::trace(std::span<const std::int32_t> source,
                                         std::span<const std::int32_t> target,
                                         Threads threads) const {
  PackedTokens packed;
  packed.tokens.assign(source.begin(), source.end());
  packed.offsets.push_back(packed.size());
  Watch watch(weights_->config, packed.size(),
              static_cast<std::int64_t>(target.size()));
  DecoderState state = start_watched(packed, 1, threads, &watch);
  for (const std::int32_t token : target) state.step({&token, 1});
  return std::move(watch.seen);
}

DecoderState TransformerDecoder::start_watched(const PackedTokens& sources,
                                               std::int64_t beams,
                                               Threads threads,
                                               Watch* watch) const {
  constexpr const char* kWhere = "TransformerDecoder::start";
  require(beams >= 1, kWhere, "beams must be positive; got ", beams);
  detail::check_source(weights_->config, sources, kWhere);
  auto memory = std::make_unique<DecoderState::Memory>(
      *weights_, sources.sequences() * beams);
  memory->threads = threads;
  memory->watch = watch;
  if (sources.size() > 0) memory->encode(sources);
  memory->source_offsets = sources.offsets;
  for (std::int64_t s = 0; s < sources.sequences(); ++s) {
    for (std::int64_t b = 0; b < beams; ++b) memory->source.push_back(s);
  }
  memory->count_hypotheses();
  memory->rooms->cross_q.resize(weights_->decoder.size());
  return DecoderState(std::move(memory));
}

DecoderState::DecoderState(std::unique_ptr<Memory> memory)
    : memory_(std::move(memory)) {}
DecoderState::~DecoderState() = default;
DecoderState::DecoderState(DecoderState&&) noexcept = default;
DecoderState& DecoderState::operator=(DecoderState&&) noexcept = default;

std::int64_t DecoderState::hypotheses() const { return memory_->hypotheses(); }
std::int64_t DecoderState::length() const { return memory_->length; }

std::int64_t DecoderState::source_of(std::int64_t hypothesis) const {
  require(hypothesis >= 0 && hypothesis < hypotheses(),
          "DecoderState::source_of", "a hypothesis must lie in 0 .. ",
          hypotheses() - 1, "; got ", hypothesis);
  return memory_->source[static_cast<std::size_t>(hypothesis)];
}

std::int64_t DecoderState::source_length(std::int64_t source) const {
  const auto& offsets = memory_->source_offsets;
  const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
  require(source >= 0 && source < count, "DecoderState::source_length",
          "a source must lie in 0 .. ", count - 1, "; got ", source);
  const auto s = static_cast<std::size_t>(source);
  return offsets[s + 1] - offsets[s];
}

void DecoderState::step(std::span<const std::int32_t> tokens) {
  constexpr const char* kWhere = "DecoderState::step";
  Memory& m = *memory_;
  const TransformerConfig& c = m.w->config;
  const std::int64_t rows = hypotheses();
  require(static_cast<std::int64_t>(tokens.size()) == rows, kWhere,
          "there must be one token a hypothesis; hypotheses are ", rows,
          ", tokens are ", tokens.size());
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < c.target_vocab, kWhere,
            "a token must lie in 0 .. ", c.target_vocab - 1, "; got ", token);
  }
  require(c.positions != Positions::kLearned || m.length < c.max_length, kWhere,
          "a sentence must have at most ", c.max_length,
          " tokens, as there are positions");
  if (rows == 0) return;
  m.scored = false;
  m.said.make_room(m.length, m.threads);
  float* const x = m.rooms->x.of(rows * c.model_dim);
  const std::vector<std::int64_t> place(tokens.size(), m.length);
  m.embed(m.w->target_table, m.w->target_places, tokens.data(), place.data(),
          rows, x);
  const Sentences rotary = m.rooms->tables.rotary(c, m.length + 1);
  for (std::size_t i = 0; i < m.w->decoder.size(); ++i) {
    m.decoder_layer(i, rotary, x);
  }
  if (c.final_norm) m.w->decoder_norm(x, rows, x, m.threads);
  m.w->output(x, rows, m.rooms->logits.of(rows * c.target_vocab), m.threads);
  ++m.length;
  m.scored = true;
}

TensorView<const float, 2> DecoderState::logits() const {
  memory_->check_scored("DecoderState::logits");
  return {memory_->rooms->logits.data(),
          {hypotheses(), memory_->w->config.target_vocab}};
}

void DecoderState::best(std::int64_t k, TensorView<std::int32_t, 2> tokens,
                        TensorView<float, 2> log_probabilities) const {
  constexpr const char* kWhere = "DecoderState::best";
  const std::int64_t rows = hypotheses();
  const std::int64_t vocab = memory_->w->config.target_vocab;
  require(k >= 1 && k <= vocab, kWhere, "k must lie in 1 .. ", vocab, "; got ",
          k);
  const std::array<std::int64_t, 2> shape{rows, k};
  require(tokens.shape() == shape && log_probabilities.shape() == shape, kWhere,
          "tokens and log_probabilities must be ", ShapeText{shape},
          "; they are ", ShapeText{tokens.shape()}, " and ",
          ShapeText{log_probabilities.shape()});
  memory_->check_scored(kWhere);
  if (rows == 0) return;
  const float* const scores = memory_->rooms->logits.data();
  Threads threads = memory_->threads;
  if (rows * vocab < (1 << 17)) threads.count = 1;
  parallel_for(threads, rows, [&](std::int64_t r) {
    const float* const row = scores + r * vocab;
    const float sum = kernels::log_sum_exp_row(row, vocab);
    float* const values = log_probabilities.at(r);
    kernels::best_scores(row, vocab, k, tokens.at(r), values);
    for (std::int64_t i = 0; i < k; ++i) values[i] -= sum;
  });
}

void DecoderState::reorder(std::span<const std::int64_t> parents) {
  constexpr const char* kWhere = "DecoderState::reorder";
  Memory& m = *memory_;
  std::int64_t before = 0;
  bool stay = true;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    require(parents[i] >= 0 && parents[i] < hypotheses(), kWhere,
            "a parent must lie in 0 .. ", hypotheses() - 1, "; got ",
            parents[i]);
    const std::int64_t source = m.source[static_cast<std::size_t>(parents[i])];
    require(source >= before, kWhere,
            "the sources of the hypotheses must not fall; hypothesis ", i,
            " has source ", source, ", the one before has ", before);
    before = source;
    stay = stay && parents[i] == static_cast<std::int64_t>(i);
  }
  if (!stay || static_cast<std::int64_t>(parents.size()) != hypotheses()) {
    m.said.reorder(parents);
  }
  std::vector<std::int64_t> source;
  for (const std::int64_t parent : parents) {
    source.push_back(m.source[static_cast<std::size_t>(parent)]);
  }
  m.source = std::move(source);
  m.scored = false;
  m.count_hypotheses();
}

void DecoderState::cross_attention(std::int64_t layer,
                                   TensorView<float, 2> weights) const {
  constexpr const char* kWhere = "DecoderState::cross_attention";
  Memory& m = *memory_;
  const TransformerConfig& c = m.w->config;
  require(layer >= 0 && layer < c.decoder_layers, kWhere,
          "a layer must lie in 0 .. ", c.decoder_layers - 1, "; got ", layer);
  std::int64_t longest = 0;
  for (std::size_t s = 1; s < m.source_offsets.size(); ++s) {
    longest = std::max(longest, m.source_offsets[s] - m.source_offsets[s - 1]);
  }
  const std::array<std::int64_t, 2> shape{hypotheses(), longest};
  require(weights.shape() == shape, kWhere, "weights must be ",
          ShapeText{shape}, "; they are ", ShapeText{weights.shape()});
  m.check_scored(kWhere);
  if (hypotheses() == 0) return;
  const Tensor& kv = m.memory_kv[static_cast<std::size_t>(layer)];
  const float* const q =
      m.rooms->cross_q[static_cast<std::size_t>(layer)].data();
  AttentionOptions options;
  options.sequences = {m.q_offsets, m.source_offsets};
  options.threads = m.threads;
  stream_attention_weights(
      heads_in(q, hypotheses(), c.model_dim, c),
      heads_in(kv.values<float>().data(), kv.shape()[0], 2 * c.model_dim, c),
      [&](const WeightsBlock<float>& block) {
        for (std::size_t r = 0; r < block.queries.size(); ++r) {
          const float* const from =
              block.weights.at(static_cast<std::int64_t>(r));
          float* const to = weights.at(block.queries[r]);
          std::fill_n(to, longest, 0.0f);
          std::copy_n(from, block.weights.extent(1), to);
        }
      },
      {.heads = OverHeads::kMean}, options);
}

}  // namespace regard::nn
