// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/decoding.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/rows.h"
#include "nn/beam_kv_cache.h"
#include "nn/decoder_copies.h"
#include "nn/decoder_weights.h"
#include "nn/relative_bias.h"
#include "nn/trace_recorder.h"
#include "ops/rows.h"
#include "regard/attention/attention.h"
#include "regard/attention/weights.h"

namespace regard::nn {
namespace {

using detail::LayerHeads;
using detail::ResidualStream;
using ops::Rows;

constexpr const char* kStart = "TransformerDecoder::start";
constexpr const char* kTrace = "TransformerDecoder::trace";

std::optional<float> score_scale(const TransformerConfig& c) {
  if (c.attention_scale == 0) return std::nullopt;
  return c.attention_scale;
}

}  // namespace

struct TransformerDecoder::Sources {
  const PackedTokens* tokens = nullptr;  // null: rows
  TensorView<const float, 2> rows{};
  std::span<const std::int64_t> offsets;

  std::int64_t size() const { return offsets.back(); }
  std::int64_t sequences() const { return std::ssize(offsets) - 1; }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::size_t s = 1; s < offsets.size(); ++s) {
      most = std::max(most, offsets[s] - offsets[s - 1]);
    }
    return most;
  }

  // Throws InvalidArgument for sources that the model does not read.
  static Sources of(const TransformerConfig& c, const PackedTokens& packed,
                    const char* where) {
    require(c.source_vocab > 0, where, "the model reads rows, and no tokens");
    detail::check_source(c, packed, where);
    return {&packed, {}, packed.offsets};
  }
  static Sources of(const TransformerConfig& c, const SourceRows& sources,
                    const char* where) {
    const auto& [rows, offsets] = sources;
    require(c.source_vocab == 0, where, "the model reads tokens, and no rows");
    require(rows.extent(1) == c.model_dim && rows.stride(0) == c.model_dim,
            where, "rows must be [all, ", c.model_dim,
            "] and contiguous; they are ", ShapeText{rows.shape()});
    require(!offsets.empty() && offsets.front() == 0 &&
                offsets.back() == rows.extent(0) &&
                std::adjacent_find(offsets.begin(), offsets.end(),
                                   std::greater_equal<>()) == offsets.end(),
            where, "offsets must rise from 0 to the ", rows.extent(0),
            " rows; they are ", ShapeText{offsets});
    return {nullptr, rows, offsets};
  }
};

struct DecoderState::Memory {
  using Weights = TransformerDecoder::Weights;

  Memory(const Weights& weights, std::int64_t hypotheses, Threads threads_)
      : w(&weights),
        threads(threads_),
        results(weights.pool),
        work(weights.pool),
        cache(weights.config.decoder_layers, weights.config.heads,
              weights.config.dim_of_head(), hypotheses) {}

  const Weights* w;
  Threads threads;
  TransformerDecoder::TraceRecorder* recorder = nullptr;  // null: no trace
  ops::Arena results;  // of a step, until the next one
  ops::Arena work;
  std::shared_ptr<const PositionTables> tables;
  Tensor relative;  // of the decoder, [heads, 2 * places - 1]; or empty

  // Of the sources: where each begins, and for each layer the keys and values
  // [tokens, 2 * inner].
  std::vector<std::int64_t> source_offsets;
  std::vector<std::shared_ptr<float>> memory_kv;
  std::optional<detail::DecoderCopies> copies;  // of a model that copies

  // Of the hypotheses.
  std::vector<std::int64_t> source;     // [hypotheses]
  std::vector<std::int64_t> q_offsets;  // [sources + 1], of hypotheses
  std::int64_t length = 0;
  detail::BeamKVCache cache;
  // Of the last step, as long as they are still those of `source`.
  bool scored = false;
  const float* logits = nullptr;
  std::vector<Rows> cross_q;  // [layers]

  std::int64_t hypotheses() const {
    return static_cast<std::int64_t>(source.size());
  }
  // The width of all heads side by side.
  std::int64_t inner() const {
    return w->config.heads * w->config.dim_of_head();
  }
  // The queries [hypotheses, inner] of some layer, or a source's keys.
  TensorView<const float, 4> heads(const float* data, std::int64_t rows,
                                   std::int64_t stride) const {
    const TransformerConfig& c = w->config;
    return detail::heads_in(data, rows, stride, c.heads, c.dim_of_head());
  }
  TensorView<const float, 4> memory_heads(std::size_t layer,
                                          std::int64_t part) const {
    const std::int64_t width = inner();
    const float* const kv = memory_kv[layer].get();
    return heads(kv + part * width, source_offsets.back(), 2 * width);
  }

  void embed(const Tensor& table, const Tensor& positions,
             const ops::NormWeights& norm, std::span<const std::int32_t> tokens,
             std::span<const std::int64_t> places, Rows x) const;
  // The relative bias of the newest token, [heads, length + 1]; or null.
  TensorView<const float, 2> newest_bias();
  // Reads the sources; the memory is stream.x.
  void encode(const TransformerDecoder::Sources& sources,
              ResidualStream& stream);
  void make_memory_kv(const Rows& memory);
  void decoder_layer(std::size_t index, std::span<const std::int64_t> places,
                     ResidualStream& stream);
  void count_hypotheses();
  void check_scored(const char* where) const {
    require(scored || source.empty(), where,
            "a step must have been taken, and no reorder since");
  }
};

void DecoderState::Memory::embed(const Tensor& table, const Tensor& positions,
                                 const ops::NormWeights& norm,
                                 std::span<const std::int32_t> tokens,
                                 std::span<const std::int64_t> places,
                                 Rows x) const {
  const TransformerConfig& c = w->config;
  const std::int64_t d = c.model_dim;
  const float* added = tables->sinusoidal().data();
  if (c.positions == Positions::kLearned) {
    added = positions.values<float>().data();
  }
  const std::vector<float> zeros(static_cast<std::size_t>(d));
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    kernels::scale_add(tokens[r] == kZeroEmbedding
                           ? zeros.data()
                           : table.values<float>().data() + tokens[r] * d,
                       detail::embedding_scale(c),
                       added == nullptr ? nullptr : added + places[r] * d, d,
                       x.at(static_cast<std::int64_t>(r)));
  }
  if (!norm.is_null()) norm(x, x, threads);
}

TensorView<const float, 2> DecoderState::Memory::newest_bias() {
  const TransformerConfig& c = w->config;
  if (c.relative_buckets == 0) return {};
  if (relative.size() == 0 || relative.shape()[1] < 2 * length + 1) {
    relative = detail::relative_table(
        w->decoder_bias, {c.relative_buckets, c.relative_max_distance, false},
        2 * std::max<std::int64_t>(length + 1, 32));
  }
  // The newest token is at distance 0, in the middle of the table.
  const auto all = relative.view<float, 2>();
  return {all.data() + all.extent(1) / 2 - length,
          {c.heads, length + 1},
          {all.stride(0), 1}};
}

void DecoderState::Memory::encode(const TransformerDecoder::Sources& sources,
                                  ResidualStream& stream) {
  const TransformerConfig& c = w->config;
  tables = w->tables.for_places(c, sources.longest());
  const std::vector<std::int64_t> places = ops::places_of(sources.offsets);
  if (sources.tokens == nullptr) {
    std::copy_n(sources.rows.data(), sources.size() * c.model_dim,
                stream.x.data());
  } else {
    embed(w->source_table(), w->source_positions, w->source_norm,
          sources.tokens->tokens, places, stream.x);
  }
  AttentionOptions options;
  options.scale = score_scale(c);
  options.sequences = {sources.offsets, sources.offsets};
  options.threads = threads;
  Tensor bias;
  if (c.relative_buckets > 0) {
    const std::int64_t longest = sources.longest();
    bias = detail::relative_table(
        w->encoder_bias, {c.relative_buckets, c.relative_max_distance, true},
        longest);
    options.bias = relative_bias(
        TensorView<const float, 2>(bias.view<float, 2>()), longest, longest);
  }
  for (std::size_t i = 0; i < w->encoder.size(); ++i) {
    const auto attend = [&](const LayerHeads& h) {
      attention_forward(h.q, h.k, h.v, h.out, options);
      if (recorder == nullptr) return;
      recorder->record(recorder->trace.encoder, recorder->trace.encoder_vectors,
                       i, 0, h.q, h.k, threads);
    };
    detail::run_layer(w->encoder[i],
                      {.self = attend,
                       .cross = attend,
                       .rotary = tables->rotary(),
                       .positions = places,
                       .threads = threads},
                      stream, work);
  }
  if (!w->encoder_norm.is_null()) {
    w->encoder_norm(stream.x, stream.x, threads);
  }
}

void DecoderState::Memory::make_memory_kv(const Rows& memory) {
  const std::int64_t rows = memory.extent(0);
  std::vector<ops::Product> products;
  for (const detail::PackedLinear& linear : w->memory_kv) {
    memory_kv.push_back(w->pool.take(rows * linear.weight.out()));
    products.push_back(linear(
        memory, Rows(memory_kv.back().get(), {rows, linear.weight.out()})));
  }
  ops::multiply(products, threads);
}

void DecoderState::Memory::count_hypotheses() {
  q_offsets.assign(source_offsets.size(), 0);
  for (const std::int64_t s : source) {
    ++q_offsets[static_cast<std::size_t>(s) + 1];
  }
  for (std::size_t s = 1; s < q_offsets.size(); ++s) {
    q_offsets[s] += q_offsets[s - 1];
  }
}

void DecoderState::Memory::decoder_layer(std::size_t index,
                                         std::span<const std::int64_t> places,
                                         ResidualStream& stream) {
  const std::int64_t d = inner();
  const auto number = static_cast<std::int64_t>(index);
  const auto attend_to_cache = [&](const LayerHeads& h) {
    cache.append(number, h.k.data(), h.v.data(), h.k.stride(2));
    cache.attend(number, h.q.data(), h.q.stride(2), h.out.data(),
                 {.scale = score_scale(w->config),
                  .bias = newest_bias(),
                  .threads = threads});
    if (recorder == nullptr) return;
    float* const keys = recorder->keys[index].values<float>().data();
    std::copy_n(h.k.data(), d, keys + length * d);
    recorder->record(recorder->trace.decoder, recorder->trace.decoder_vectors,
                     index, length, h.q, heads(keys, length + 1, d), threads);
  };
  // The hypotheses of one source are the queries of one sequence.
  const auto attend_to_source = [&](const LayerHeads& h) {
    const TensorView<const float, 4> keys = memory_heads(index, 0);
    AttentionOptions options;
    options.scale = score_scale(w->config);
    options.sequences = {q_offsets, source_offsets};
    options.threads = threads;
    attention_forward(h.q, keys, memory_heads(index, 1), h.out, options);
    if (recorder == nullptr) return;
    recorder->record(recorder->trace.cross, recorder->trace.cross_vectors,
                     index, length, h.q, keys, threads);
  };
  detail::run_layer(w->decoder[index],
                    {.self = attend_to_cache,
                     .cross = attend_to_source,
                     .rotary = tables->rotary(),
                     .positions = places,
                     .cross_q = cross_q[index],
                     .threads = threads},
                    stream, work);
}

TransformerDecoder::TransformerDecoder(const Transformer& model,
                                       ops::WeightStorage weights)
    : weights_(std::make_unique<Weights>(model.config(), model.parameters(),
                                         weights)) {}
TransformerDecoder::TransformerDecoder(const TransformerConfig& config,
                                       const StateDict& parameters,
                                       ops::WeightStorage weights) {
  detail::check_decoder(config, parameters);
  weights_ = std::make_unique<Weights>(config, parameters, weights);
}
TransformerDecoder::~TransformerDecoder() = default;
TransformerDecoder::TransformerDecoder(TransformerDecoder&&) noexcept = default;
TransformerDecoder& TransformerDecoder::operator=(
    TransformerDecoder&&) noexcept = default;

const TransformerConfig& TransformerDecoder::config() const {
  return weights_->config;
}
std::size_t TransformerDecoder::weight_bytes() const {
  return weights_->bytes();
}

Tensor TransformerDecoder::encode(const PackedTokens& sources,
                                  Threads threads) const {
  const Sources read =
      Sources::of(weights_->config, sources, "TransformerDecoder::encode");
  const std::int64_t d = weights_->config.model_dim;
  Tensor out({sources.size(), d});
  if (sources.size() == 0) return out;
  DecoderState::Memory memory(*weights_, 0, threads);
  ResidualStream stream(sources.size(), d, memory.results);
  memory.encode(read, stream);
  std::copy_n(stream.x.data(), out.size(), out.values<float>().data());
  return out;
}

DecoderState TransformerDecoder::start(const PackedTokens& sources,
                                       std::int64_t beams,
                                       Threads threads) const {
  return start_traced(Sources::of(weights_->config, sources, kStart), beams,
                      threads, nullptr);
}

DecoderState TransformerDecoder::start(const SourceRows& sources,
                                       std::int64_t beams,
                                       Threads threads) const {
  return start_traced(Sources::of(weights_->config, sources, kStart), beams,
                      threads, nullptr);
}

AttentionTrace TransformerDecoder::trace(std::span<const std::int32_t> source,
                                         std::span<const std::int32_t> target,
                                         Threads threads) const {
  PackedTokens packed;
  packed.tokens.assign(source.begin(), source.end());
  packed.offsets.push_back(packed.size());
  return trace_of(Sources::of(weights_->config, packed, kTrace), target,
                  threads);
}

AttentionTrace TransformerDecoder::trace(const SourceRows& source,
                                         std::span<const std::int32_t> target,
                                         Threads threads) const {
  const Sources read = Sources::of(weights_->config, source, kTrace);
  require(read.sequences() == 1, kTrace, "there must be one source; there are ",
          read.sequences());
  return trace_of(read, target, threads);
}

AttentionTrace TransformerDecoder::trace_of(
    const Sources& source, std::span<const std::int32_t> target,
    Threads threads) const {
  const TransformerConfig& c = weights_->config;
  require(c.attention_scale == 0 && c.relative_buckets == 0 &&
              c.dim_of_head() * c.heads == c.model_dim,
          kTrace,
          "a model whose scores have a scale of their own or relative "
          "positions cannot be traced");
  TraceRecorder recorder(c, source.size(), std::ssize(target));
  DecoderState state = start_traced(source, 1, threads, &recorder);
  for (const std::int32_t token : target) state.step({&token, 1});
  return std::move(recorder.trace);
}

DecoderState TransformerDecoder::start_traced(const Sources& sources,
                                              std::int64_t beams,
                                              Threads threads,
                                              TraceRecorder* recorder) const {
  require(beams >= 1, kStart, "beams must be positive; got ", beams);
  auto memory = std::make_unique<DecoderState::Memory>(
      *weights_, sources.sequences() * beams, threads);
  memory->recorder = recorder;
  memory->source_offsets.assign(sources.offsets.begin(), sources.offsets.end());
  if (sources.size() > 0) {
    const ops::Arena::Scope scope(memory->work);
    ResidualStream stream(sources.size(), weights_->config.model_dim,
                          memory->work);
    memory->encode(sources, stream);
    memory->make_memory_kv(stream.x);
    if (weights_->config.copy) {
      memory->copies.emplace(weights_->copy, *sources.tokens, stream.x,
                             weights_->pool, threads);
    }
  }
  for (std::int64_t s = 0; s < sources.sequences(); ++s) {
    for (std::int64_t b = 0; b < beams; ++b) memory->source.push_back(s);
  }
  memory->count_hypotheses();
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
    require(token == kZeroEmbedding || (token >= 0 && token < c.target_vocab),
            kWhere, "a token must lie in 0 .. ", c.target_vocab - 1, "; got ",
            token);
  }
  require(c.positions != Positions::kLearned || m.length < c.max_length, kWhere,
          "a sentence must have at most ", c.max_length,
          " tokens, as there are positions");
  if (rows == 0) return;
  m.scored = false;
  m.cache.make_room(m.length, m.threads);
  if (m.tables->places() <= m.length) {
    m.tables = m.w->tables.for_places(c, m.length + 1);
  }
  m.results.reset();
  m.cross_q.clear();
  for (std::size_t i = 0; i < m.w->decoder.size(); ++i) {
    m.cross_q.emplace_back(m.results.take(rows * m.inner()),
                           Rows::Extents{rows, m.inner()});
  }
  const Rows logits(m.results.take(rows * c.target_vocab),
                    {rows, c.target_vocab});
  const ops::Arena::Scope scope(m.work);
  ResidualStream stream(rows, c.model_dim, m.work);
  const std::vector<std::int64_t> places(tokens.size(), m.length);
  m.embed(m.w->target_table, m.w->target_positions, m.w->target_norm, tokens,
          places, stream.x);
  for (std::size_t i = 0; i < m.w->decoder.size(); ++i) {
    m.decoder_layer(i, places, stream);
  }
  if (c.final_norm) m.w->decoder_norm(stream.x, stream.x, m.threads);
  ops::multiply(m.w->output(stream.x, logits), m.threads);
  if (m.copies) {
    m.copies->add(stream.x, m.q_offsets, logits, m.work, m.threads);
  }
  m.logits = logits.data();
  ++m.length;
  m.scored = true;
}

TensorView<const float, 2> DecoderState::logits() const {
  memory_->check_scored("DecoderState::logits");
  return {memory_->logits, {hypotheses(), memory_->w->config.target_vocab}};
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
  const float* const scores = memory_->logits;
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
    m.cache.reorder(parents);
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
  const auto number = static_cast<std::size_t>(layer);
  AttentionOptions options;
  options.scale = score_scale(c);
  options.sequences = {m.q_offsets, m.source_offsets};
  options.threads = m.threads;
  stream_attention_weights(
      m.heads(m.cross_q[number].data(), hypotheses(), m.inner()),
      m.memory_heads(number, 0),
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
