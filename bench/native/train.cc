// SPDX-License-Identifier: Apache-2.0
// Training steps of nn::Transformer, for bench/train.py, which mirrors
// TrainCase.
#include <cstdint>
#include <string>

#include "adam_steps.h"
#include "bench.h"
#include "regard/nn/transformer.h"

namespace regard::bench {

// Sentences of one length on each side, tokens [sentences, length].
struct TrainCase {
  std::int64_t vocab, dim, heads, layers, feed_forward;
  std::int64_t sentences, source_length, target_length;
  const std::int32_t *source, *target, *target_out;
  float dropout, smoothing;
  std::int32_t threads;
};

namespace {

// What a training run keeps from step to step.
struct Training {
  nn::Transformer model;
  nn::TranslationBatch batch;
  AdamSteps adam{model.parameters()};
  double loss = 0;  // of the last step, the sum over the tokens
};

nn::TransformerConfig config_of(const TrainCase& c) {
  nn::TransformerConfig config;
  config.source_vocab = config.target_vocab = c.vocab;
  config.model_dim = c.dim;
  config.heads = c.heads;
  config.encoder_layers = config.decoder_layers = c.layers;
  config.feed_forward_dim = c.feed_forward;
  config.shared_embeddings = config.tied_output = true;
  config.dropout = c.dropout;
  config.label_smoothing = c.smoothing;
  return config;
}

nn::PackedTokens packed(const std::int32_t* tokens, std::int64_t sentences,
                        std::int64_t length) {
  nn::PackedTokens p;
  p.tokens.assign(tokens, tokens + sentences * length);
  for (std::int64_t s = 1; s <= sentences; ++s) {
    p.offsets.push_back(s * length);
  }
  return p;
}

Training make_training(const TrainCase& c) {
  Training t{nn::Transformer(config_of(c), std::uint64_t{1}), {}};
  t.model.set_threads({.count = c.threads});
  t.batch.source = packed(c.source, c.sentences, c.source_length);
  t.batch.target = packed(c.target, c.sentences, c.target_length);
  t.batch.target_out.assign(c.target_out,
                            c.target_out + c.sentences * c.target_length);
  return t;
}

// Loss, gradients and a step of Adam.
void step(Training& t) {
  const std::uint64_t number = t.adam.begin();
  t.loss = t.model.loss_and_gradients(t.batch, number, t.adam.gradients).loss;
  t.adam.finish(t.model.parameters(), t.batch.target.size());
}

}  // namespace
}  // namespace regard::bench

using regard::bench::TrainCase;
using regard::bench::Training;

extern "C" void* regard_bench_make_training(const TrainCase* c) {
  return regard::bench::made(
      [&] { return new Training(regard::bench::make_training(*c)); });
}

extern "C" void regard_bench_release_training(void* training) {
  delete static_cast<Training*>(training);
}

// Where the values of a parameter stand; null where none has the name.
extern "C" float* regard_bench_training_parameter(void* training,
                                                  const char* name) {
  auto& parameters = static_cast<Training*>(training)->model.parameters();
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr
                                   : found->second.values<float>().data();
}

// Of the last step, a token.
extern "C" double regard_bench_training_loss(void* training) {
  const Training& t = *static_cast<Training*>(training);
  return t.loss / static_cast<double>(t.batch.target.size());
}

extern "C" double regard_bench_train(void* training, std::int64_t calls) {
  using regard::bench::timed;
  return regard::bench::guarded([&] {
    return timed(
        calls, [&] { regard::bench::step(*static_cast<Training*>(training)); });
  });
}
