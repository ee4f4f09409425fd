// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/span_answerer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/train/batches.h"
#include "tasks/answer_kind.h"
#include "tasks/model_folder.h"
#include "tasks/pointer.h"
#include "tasks/span_windows.h"

namespace regard::tasks {
namespace {

constexpr const char* kLoad = "SpanAnswerer::load";
constexpr std::int64_t kKinds = 3;

nn::Embedding kinds_of(const SpanAnswererConfig& config) {
  return {"kinds", kKinds, config.encoder.model_dim};
}
Pointer begin_of(const SpanAnswererConfig& config) {
  return {"begin", config.encoder.model_dim};
}
Pointer end_of(const SpanAnswererConfig& config) {
  return {"end", config.encoder.model_dim};
}

nn::ParameterSpecs specs_of(const SpanAnswererConfig& config,
                            const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  kinds_of(config).declare(specs);
  begin_of(config).declare(specs);
  end_of(config).declare(specs);
  return specs;
}

const SpanAnswererConfig& checked(const SpanAnswererConfig& c) {
  require(c.encoder.pooling == nn::Pooling::kFirst, "SpanAnswerer",
          "pooling must be that of the first token");
  require(c.encoder.max_length >= 8, "SpanAnswerer",
          "max_length must be at least 8; it is ", c.encoder.max_length);
  require(c.token_dropout >= 0 && c.token_dropout < 1, "SpanAnswerer",
          "token_dropout must be in [0, 1); it is ", c.token_dropout);
  constexpr std::int64_t kMost = 1 << 17;
  require(c.overlap >= 0 && c.overlap <= kMost, "SpanAnswerer",
          "overlap must be in 0 .. ", kMost, "; it is ", c.overlap);
  require(c.max_answer > 0 && c.max_answer <= kMost, "SpanAnswerer",
          "max_answer must be in 1 .. ", kMost, "; it is ", c.max_answer);
  return c;
}

std::vector<std::int64_t> lengths_of(std::span<const SpanWindow> windows) {
  std::vector<std::int64_t> lengths;
  for (const SpanWindow& w : windows) lengths.push_back(std::ssize(w.tokens));
  return lengths;
}

struct PackedWindows {
  nn::PackedTokens tokens;
  std::vector<std::int32_t> kinds;
};

PackedWindows pack_windows(std::span<const SpanWindow> windows,
                           std::span<const std::int64_t> examples) {
  PackedWindows out;
  for (const std::int64_t example : examples) {
    const SpanWindow& window = windows[static_cast<std::size_t>(example)];
    out.tokens.append(window.tokens);
    out.kinds.insert(out.kinds.end(), window.kinds.begin(), window.kinds.end());
  }
  return out;
}

// A row of the table has a length of about one, as one of the tokens has before
// it is scaled.
autograd::EmbeddingOptions as_strong_as_tokens(
    const SpanAnswererConfig& config) {
  return {.scale = static_cast<float>(
              std::sqrt(static_cast<double>(config.encoder.model_dim)))};
}

struct Encoded {
  nn::Variable tokens;   // a row each
  nn::Variable windows;  // the row of <s>
};
Encoded encoded(nn::Pass& pass, const nn::Encoder& encoder,
                const SpanAnswererConfig& config,
                const PackedWindows& windows) {
  const nn::Variable x = autograd::add(
      pass.tape(), encoder.embed(pass, windows.tokens),
      kinds_of(config)(pass, windows.kinds, as_strong_as_tokens(config)));
  const nn::Variable rows = encoder.encode(pass, x, windows.tokens);
  return {rows, encoder.pool(pass, rows, windows.tokens)};
}

}  // namespace

ExampleTask make_span_task(const SpanAnswererConfig& config,
                           const SpanData& training, const SpanData& held_out,
                           std::uint64_t seed, Threads threads) {
  const nn::Encoder encoder(checked(config).encoder);
  ExampleTaskParts parts;
  parts.parameters = specs_of(config, encoder);
  parts.lengths = lengths_of(training.windows);
  parts.held_out_lengths = lengths_of(held_out.windows);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t draw) -> nn::LossSum {
    const SpanData& data = part == Part::kTraining ? training : held_out;
    PackedWindows windows = pack_windows(data.windows, examples);
    if (part == Part::kTraining) {
      drop_tokens(windows.tokens, config.token_dropout, draw);
    }
    const std::vector<std::int64_t>& offsets = windows.tokens.offsets;
    std::vector<std::int64_t> begins, ends;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const SpanWindow& window =
          data.windows[static_cast<std::size_t>(examples[i])];
      begins.push_back(offsets[i] + window.begin);
      ends.push_back(offsets[i] + window.end);
    }
    const Encoded rows = encoded(pass, encoder, config, windows);
    const double loss =
        begin_of(config).loss(pass, rows.windows, rows.tokens, offsets,
                              begins) +
        end_of(config).loss(pass, rows.windows, rows.tokens, offsets, ends);
    return {loss, loss, std::ssize(examples)};
  };
  return {std::move(parts), seed, threads};
}

struct SpanAnswerer::Parts {
  SpanAnswererConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::PackedParameters weights;
  nn::Encoder encoder;
};

SpanAnswerer::SpanAnswerer(SpanAnswererConfig config,
                           std::unique_ptr<text::Tokenizer> tokenizer,
                           StateDict weights, ops::WeightStorage storage) {
  require(tokenizer != nullptr && tokenizer->size() == config.encoder.vocab,
          "SpanAnswerer", "the model has ", config.encoder.vocab,
          " pieces, the tokenizer ", tokenizer ? tokenizer->size() : 0);
  nn::Encoder encoder(checked(config).encoder);
  nn::PackedParameters packed(specs_of(config, encoder), std::move(weights),
                              storage, "SpanAnswerer");
  parts_ =
      std::make_unique<Parts>(Parts{std::move(config), std::move(tokenizer),
                                    std::move(packed), std::move(encoder)});
}

SpanAnswerer::~SpanAnswerer() = default;
SpanAnswerer::SpanAnswerer(SpanAnswerer&&) noexcept = default;
SpanAnswerer& SpanAnswerer::operator=(SpanAnswerer&&) noexcept = default;

const SpanAnswererConfig& SpanAnswerer::config() const {
  return parts_->config;
}
std::size_t SpanAnswerer::weight_bytes() const {
  return parts_->weights.bytes();
}

std::vector<Span> SpanAnswerer::answer(std::span<const SpanQuestion> questions,
                                       Threads threads) const {
  const SpanAnswererConfig& config = parts_->config;
  // Question after question, so that memory grows with the longest context.
  constexpr std::int64_t kTokens = 4096;  // at once
  std::vector<Span> spans;
  autograd::MemoryPool pool;
  for (const SpanQuestion& question : questions) {
    const SpanWindows made = make_windows(question, *parts_->tokenizer, config);
    Span best;
    for (const std::vector<std::int64_t>& batch : train::make_batches(
             lengths_of(made.windows), {.tokens = kTokens}, 0)) {
      autograd::Tape tape(autograd::Record::kNo, threads, pool);
      nn::Pass pass(tape, parts_->weights);
      const PackedWindows windows = pack_windows(made.windows, batch);
      const auto& offsets = windows.tokens.offsets;
      const Encoded rows = encoded(pass, parts_->encoder, config, windows);
      const auto begins = begin_of(config).probabilities(pass, rows.windows,
                                                         rows.tokens, offsets);
      const auto ends = end_of(config).probabilities(pass, rows.windows,
                                                     rows.tokens, offsets);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const std::int64_t shift =
            made.first_tokens[static_cast<std::size_t>(batch[i])] - offsets[i] -
            made.first_place;
        for (std::int64_t b = offsets[i] + made.first_place; b < offsets[i + 1];
             ++b) {
          const std::int64_t last =
              std::min(b + config.max_answer, offsets[i + 1]);
          for (std::int64_t e = b; e < last; ++e) {
            const double score = begins[static_cast<std::size_t>(b)] *
                                 ends[static_cast<std::size_t>(e)];
            const Span span = {
                made.offsets[static_cast<std::size_t>(b + shift)].begin,
                made.offsets[static_cast<std::size_t>(e + shift)].end, score};
            // Of equals the first, whatever the order of batches.
            if (score > best.score ||
                (score == best.score && span.begin < best.begin)) {
              best = span;
            }
          }
        }
      }
    }
    const auto blank = [&](std::int64_t at) {
      const char c = question.context[static_cast<std::size_t>(at)];
      return c == ' ' || c == '\t' || c == '\n' || c == '\r';
    };
    while (best.begin < best.end && blank(best.begin)) ++best.begin;
    while (best.end > best.begin && blank(best.end - 1)) --best.end;
    spans.push_back(best);
  }
  return spans;
}

SpanAnswerer SpanAnswerer::load(const std::filesystem::path& folder,
                                ops::WeightStorage weights) {
  ModelFolder model = load_model_folder(folder, kSpanAnswererKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  SpanAnswererConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  config.overlap = model.field()["overlap"].count();
  config.max_answer = model.field()["max_answer"].count();
  return fitted(folder, kLoad, [&] {
    return SpanAnswerer(std::move(config), std::move(model.tokenizer),
                        std::move(model.weights), weights);
  });
}

std::string config_to_json(const SpanAnswererConfig& config) {
  return Json{{"kind", kSpanAnswererKind},
              {"overlap", config.overlap},
              {"max_answer", config.max_answer},
              {"encoder", to_json(config.encoder)}}
      .dump();
}

void save_span_answerer(const std::filesystem::path& folder,
                        const SpanAnswererConfig& config,
                        const text::Tokenizer& tokenizer,
                        const StateDict& weights, DType stored) {
  save_model_folder(folder, Json::parse(config_to_json(config)), tokenizer,
                    weights, stored);
}

}  // namespace regard::tasks
