// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "nn/transformer_pass.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

using detail::source_embedding_name;
using detail::target_embedding_name;

constexpr const char* kWhere = "Transformer";

bool is_rate(float rate) { return rate >= 0 && rate < 1; }

const TransformerConfig& checked(const TransformerConfig& c) {
  require(c.source_vocab >= 0 && c.target_vocab > 0, kWhere,
          "vocabularies must not be empty; source_vocab is ", c.source_vocab,
          ", target_vocab is ", c.target_vocab);
  require(c.source_vocab > 0 || (c.positions != Positions::kRotary &&
                                 !c.embedding_norm && c.relative_buckets == 0),
          kWhere,
          "sources that are rows tell their places themselves: positions must "
          "be sinusoidal, learned or none, without embedding_norm");
  require(c.model_dim > 0 && c.heads > 0 && c.head_dim >= 0 &&
              (c.head_dim > 0 || c.model_dim % c.heads == 0),
          kWhere, "heads must divide model_dim; they are ", c.heads, " and ",
          c.model_dim);
  require(c.feed_forward_dim > 0, kWhere,
          "feed_forward_dim must be positive; it is ", c.feed_forward_dim);
  require(c.encoder_layers >= 0 && c.decoder_layers > 0, kWhere,
          "there must be a layer in the decoder, and none or more in the "
          "encoder; they have ",
          c.decoder_layers, " and ", c.encoder_layers);
  require(!c.shared_embeddings || c.source_vocab == c.target_vocab, kWhere,
          "shared embeddings need one vocabulary; source_vocab is ",
          c.source_vocab, ", target_vocab is ", c.target_vocab);
  require(!c.copy || (c.source_vocab == c.target_vocab), kWhere,
          "what is copied needs one vocabulary; source_vocab is ",
          c.source_vocab, ", target_vocab is ", c.target_vocab);
  require(c.max_length > 0, kWhere, "max_length must be positive; it is ",
          c.max_length);
  require(c.norm_epsilon >= 0, kWhere,
          "norm_epsilon must not be negative; it is ", c.norm_epsilon);
  require(std::isfinite(c.embedding_scale), kWhere,
          "embedding_scale must be finite; it is ", c.embedding_scale);
  require(c.positions != Positions::kRotary || c.dim_of_head() % 2 == 0, kWhere,
          "rotary positions need an even number of elements a head; "
          "there are ",
          c.dim_of_head());
  require(std::isfinite(c.attention_scale) && c.relative_buckets >= 0, kWhere,
          "attention_scale must be finite and relative_buckets not negative; "
          "they are ",
          c.attention_scale, " and ", c.relative_buckets);
  // A distance needs two buckets on each side, and the last of them a range.
  require(c.relative_buckets == 0 ||
              (c.relative_buckets >= 4 && c.relative_buckets % 2 == 0 &&
               c.relative_max_distance > c.relative_buckets / 2),
          kWhere,
          "relative_buckets must be even, at least 4 and less than twice "
          "relative_max_distance; they are ",
          c.relative_buckets, " and ", c.relative_max_distance);
  require(is_rate(c.dropout) && is_rate(c.attention_dropout) &&
              is_rate(c.activation_dropout) && is_rate(c.label_smoothing),
          kWhere,
          "dropout rates and label_smoothing must be in [0, 1); they are ",
          c.dropout, ", ", c.attention_dropout, ", ", c.activation_dropout,
          " and ", c.label_smoothing);
  return c;
}

const TransformerConfig& checked_with_source(const TransformerConfig& c) {
  require(c.source_vocab > 0, kWhere,
          "vocabularies must not be empty; source_vocab is ", c.source_vocab,
          ", target_vocab is ", c.target_vocab);
  return c;
}

const TransformerConfig& checked_for_training(const TransformerConfig& c) {
  checked(c);
  require(c.dim_of_head() * c.heads == c.model_dim && c.attention_scale == 0 &&
              c.linear_bias && !c.embedding_norm && c.relative_buckets == 0,
          kWhere,
          "head_dim, attention_scale, linear_bias, embedding_norm and relative "
          "positions are for TransformerDecoder alone");
  return c;
}

void check_sentences(const TransformerConfig& c, const PackedTokens& packed,
                     std::int64_t vocab, const char* where, const char* name) {
  const auto& offsets = packed.offsets;
  require(!offsets.empty() && offsets.front() == 0 &&
              offsets.back() == packed.size(),
          where, name, ".offsets must start at 0 and end at the ",
          packed.size(), " tokens; they are ", ShapeText{offsets});
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    require(offsets[s] > offsets[s - 1], where, name,
            " must have no empty sentence; sentence ", s - 1, " is");
    require(c.positions != Positions::kLearned ||
                offsets[s] - offsets[s - 1] <= c.max_length,
            where, name, " must have no sentence of more than ", c.max_length,
            " tokens, as there are positions; sentence ", s - 1, " has ",
            offsets[s] - offsets[s - 1]);
  }
  for (const std::int32_t token : packed.tokens) {
    require(token >= 0 && token < vocab, where, name,
            " must hold tokens in 0 .. ", vocab - 1, "; got ", token);
  }
}

TransformerEncoderLayer encoder_layer(const TransformerConfig& c,
                                      std::int64_t i) {
  return {"encoder.layers." + std::to_string(i), c.layer()};
}
TransformerDecoderLayer decoder_layer(const TransformerConfig& c,
                                      std::int64_t i) {
  return {"decoder.layers." + std::to_string(i), c.layer()};
}
NormLayer final_norm(const TransformerConfig& c, const std::string& name) {
  return {name, c.norm, c.model_dim, c.norm_epsilon};
}

// The head that copies, and how much of a token it makes.
Linear copy_query(const TransformerConfig& c) {
  return {"copy.query", c.model_dim, c.model_dim, false};
}
Linear copy_key(const TransformerConfig& c) {
  return {"copy.key", c.model_dim, c.model_dim, false};
}
Linear copy_gate(const TransformerConfig& c) {
  return {"copy.gate", c.model_dim, 1};
}

ParameterSpecs specs_of(const TransformerConfig& c) {
  ParameterSpecs specs;
  if (c.source_vocab > 0) {
    Embedding{source_embedding_name(c), c.source_vocab, c.model_dim}.declare(
        specs);
  }
  Embedding{target_embedding_name(c), c.target_vocab, c.model_dim}.declare(
      specs);
  if (!c.tied_output) {
    Linear{"output", c.model_dim, c.target_vocab, false}.declare(specs);
  }
  if (c.output_bias) specs["output.bias"] = {{c.target_vocab}};
  if (c.copy) {
    copy_query(c).declare(specs);
    copy_key(c).declare(specs);
    copy_gate(c).declare(specs);
  }
  if (c.positions == Positions::kLearned) {
    if (c.source_vocab > 0) {
      Embedding{"source_positions", c.max_length, c.model_dim}.declare(specs);
    }
    Embedding{"target_positions", c.max_length, c.model_dim}.declare(specs);
  }
  for (std::int64_t i = 0; i < c.encoder_layers; ++i) {
    encoder_layer(c, i).declare(specs);
  }
  for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
    decoder_layer(c, i).declare(specs);
  }
  if (c.final_norm) {
    if (c.encoder_layers > 0) final_norm(c, "encoder.norm").declare(specs);
    final_norm(c, "decoder.norm").declare(specs);
  }
  return specs;
}

// The layers as they are, with what models of others have or have not.
ParameterSpecs specs_of_decoder(const TransformerConfig& c) {
  ParameterSpecs specs = specs_of(c);
  const std::int64_t inner = c.heads * c.dim_of_head();
  for (auto& [name, spec] : specs) {
    if (name.ends_with(".in_proj_weight")) spec.shape[0] = 3 * inner;
    if (name.ends_with(".in_proj_bias")) spec.shape[0] = 3 * inner;
    if (name.ends_with(".out_proj.weight")) spec.shape[1] = inner;
  }
  if (!c.linear_bias) {
    std::erase_if(specs, [](const auto& entry) {
      const std::string& name = entry.first;
      return name.ends_with("_proj_bias") || name.ends_with("_proj.bias") ||
             name.ends_with(".linear1.bias") || name.ends_with(".linear2.bias");
    });
  }
  for (const std::string side : {"encoder", "decoder"}) {
    if (c.embedding_norm)
      final_norm(c, side + ".embedding_norm").declare(specs);
    if (c.relative_buckets > 0) {
      specs[side + ".relative_bias"] = {{c.relative_buckets, c.heads}};
    }
  }
  return specs;
}

Sentences sentences_of(const PositionTables& tables,
                       std::span<const std::int64_t> offsets) {
  const RotaryTable* const rotary = tables.rotary();
  if (rotary == nullptr) return {.offsets = offsets};
  return {offsets, rotary->cos.view<float, 2>(), rotary->sin.view<float, 2>()};
}

Variable embed(Pass& pass, const TransformerConfig& c,
               const PositionTables& tables, const PackedTokens& packed,
               const char* side) {
  const bool source = std::string_view(side) == "source";
  const Embedding embedding{source ? source_embedding_name(c)
                                   : target_embedding_name(c)};
  autograd::EmbeddingOptions options;
  options.scale = detail::embedding_scale(c);
  options.offsets = packed.offsets;
  options.dropout = pass.dropout(c.dropout);
  if (c.positions == Positions::kLearned) {
    options.positions = pass.parameter(std::string(side) + "_positions.weight");
  } else if (c.positions == Positions::kSinusoidal) {
    options.positions = pass.tape().constant(tables.sinusoidal());
  }
  return embedding(pass, packed.tokens, options);
}

}  // namespace

void detail::check_source(const TransformerConfig& c,
                          const PackedTokens& source, const char* where) {
  check_sentences(c, source, c.source_vocab, where, "source");
}

void detail::check_decoder(const TransformerConfig& c,
                           const StateDict& parameters) {
  check_parameters(specs_of_decoder(checked(c)), parameters,
                   "TransformerDecoder");
}

ParameterSpecs transformer_parameters(const TransformerConfig& config) {
  return specs_of(checked_for_training(config));
}

Variable encode(Pass& pass, const TransformerConfig& c,
                const PositionTables& tables, const PackedTokens& source,
                const Mask& mask) {
  return encode_rows(pass, c, tables, embed(pass, c, tables, source, "source"),
                     source.offsets, mask);
}

Variable encode_rows(Pass& pass, const TransformerConfig& c,
                     const PositionTables& tables, const Variable& rows,
                     std::span<const std::int64_t> offsets, const Mask& mask) {
  const Sentences sentences = sentences_of(tables, offsets);
  Variable x = rows;
  for (std::int64_t i = 0; i < c.encoder_layers; ++i) {
    x = encoder_layer(c, i)(pass, x, sentences, mask);
  }
  if (!c.final_norm || c.encoder_layers == 0) return x;
  return final_norm(c, "encoder.norm")(pass, x);
}

Variable decode(Pass& pass, const TransformerConfig& c,
                const PositionTables& tables, const PackedTokens& target,
                const Variable& memory, const Sentences& memory_sentences,
                const DecoderMasks& masks) {
  const Sentences sentences = sentences_of(tables, target.offsets);
  Variable x = embed(pass, c, tables, target, "target");
  for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
    x = decoder_layer(c, i)(pass, x, sentences, memory, memory_sentences,
                            masks);
  }
  return c.final_norm ? final_norm(c, "decoder.norm")(pass, x) : x;
}

struct Transformer::Work {
  Threads threads;
  Compute compute = Compute::kFloat32;
  autograd::MemoryPool pool;
  detail::SharedPositionTables tables;
};

Transformer::Transformer(const TransformerConfig& config, std::uint64_t seed)
    : config_(checked_for_training(checked_with_source(config))),
      parameters_(initial_parameters(specs_of(config_), seed)),
      work_(std::make_unique<Work>()) {}

Transformer::Transformer(const TransformerConfig& config, StateDict parameters)
    : config_(checked_for_training(checked_with_source(config))),
      parameters_(std::move(parameters)),
      work_(std::make_unique<Work>()) {
  check_parameters(specs_of(config_), parameters_, kWhere);
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

void Transformer::set_threads(Threads threads) { work_->threads = threads; }
void Transformer::set_compute(Compute compute) { work_->compute = compute; }

LossSum Transformer::run(const TranslationBatch& batch, Mode mode,
                         std::uint64_t seed, StateDict* gradients) {
  const char* const where = gradients == nullptr
                                ? "Transformer::loss"
                                : "Transformer::loss_and_gradients";
  detail::check_source(config_, batch.source, where);
  check_sentences(config_, batch.target, config_.target_vocab, where, "target");
  require(batch.source.sequences() == batch.target.sequences(), where,
          "source and target must have equally many sentences; they have ",
          batch.source.sequences(), " and ", batch.target.sequences());
  require(batch.target_out.size() == batch.target.tokens.size(), where,
          "target_out must be as long as target, which is ",
          batch.target.tokens.size(), "; it is ", batch.target_out.size());
  autograd::Tape tape(
      gradients == nullptr ? autograd::Record::kNo : autograd::Record::kYes,
      work_->threads, work_->pool,
      gradients == nullptr ? Compute::kFloat32 : work_->compute);
  Pass pass(tape, parameters_, gradients, mode, seed);
  const auto tables = work_->tables.for_places(
      config_, std::max(batch.source.longest(), batch.target.longest()));
  LossSum sum;
  {
    const Variable memory = encode(pass, config_, *tables, batch.source);
    const Variable x = decode(pass, config_, *tables, batch.target, memory,
                              {.offsets = batch.source.offsets});
    autograd::CopyAttention copy;
    if (config_.copy) {
      copy = {copy_gate(config_)(pass, x),
              copy_query(config_)(pass, x),
              copy_key(config_)(pass, memory),
              batch.source.tokens,
              batch.target.offsets,
              batch.source.offsets};
    }
    const autograd::CrossEntropySum loss = autograd::cross_entropy(
        tape, x, pass.parameter(detail::output_name(config_)),
        config_.output_bias ? pass.parameter("output.bias") : Variable(),
        batch.target_out, config_.label_smoothing, copy);
    sum = {loss.loss, loss.likelihood, batch.target.size()};
  }
  tape.backward();
  return sum;
}

LossSum Transformer::loss_and_gradients(const TranslationBatch& batch,
                                        std::uint64_t seed,
                                        StateDict& gradients) {
  prepare_gradients(parameters_, gradients);
  return run(batch, Mode::kTraining, seed, &gradients);
}

LossSum Transformer::loss(const TranslationBatch& batch) {
  return run(batch, Mode::kInference, 0, nullptr);
}

}  // namespace regard::nn
