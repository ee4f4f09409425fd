// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/choice_answerer.h"

#include <cmath>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/train/batches.h"
#include "tasks/answer_kind.h"
#include "tasks/choice_kinds.h"
#include "tasks/model_folder.h"
#include "tasks/pointer.h"

namespace regard::tasks {
namespace {

constexpr const char* kLoad = "ChoiceAnswerer::load";

nn::Embedding kinds_of(const ChoiceAnswererConfig& config) {
  return {"kinds", kChoiceKinds, config.encoder.model_dim};
}
Pointer pointer_of(const ChoiceAnswererConfig& config) {
  return {"choice", config.encoder.model_dim};
}

nn::ParameterSpecs specs_of(const ChoiceAnswererConfig& config,
                            const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  kinds_of(config).declare(specs);
  pointer_of(config).declare(specs);
  return specs;
}

const ChoiceAnswererConfig& checked(const ChoiceAnswererConfig& c) {
  require(c.encoder.max_length >= 16, "ChoiceAnswerer",
          "max_length must be at least 16; it is ", c.encoder.max_length);
  require(c.token_dropout >= 0 && c.token_dropout < 1, "ChoiceAnswerer",
          "token_dropout must be in [0, 1); it is ", c.token_dropout);
  return c;
}

std::vector<std::int64_t> lengths_of(const ChoiceData& data) {
  std::vector<std::int64_t> lengths;
  for (const auto& choices : data.questions) {
    lengths.push_back(0);
    for (const EncodedChoice& c : choices) {
      lengths.back() += std::ssize(c.tokens);
    }
  }
  return lengths;
}

struct PackedChoices {
  nn::PackedTokens tokens;  // by choice
  std::vector<std::int32_t> kinds;
  std::vector<std::int64_t> offsets{0};  // of the choices of each question
};

PackedChoices pack_choices(const ChoiceData& data,
                           std::span<const std::int64_t> examples) {
  PackedChoices out;
  for (const std::int64_t example : examples) {
    for (const EncodedChoice& choice :
         data.questions[static_cast<std::size_t>(example)]) {
      out.tokens.append(choice.tokens);
      out.kinds.insert(out.kinds.end(), choice.kinds.begin(),
                       choice.kinds.end());
    }
    out.offsets.push_back(out.tokens.sequences());
  }
  return out;
}

// A row of the table has a length of about one, as one of the tokens has before
// it is scaled.
autograd::EmbeddingOptions as_strong_as_tokens(
    const ChoiceAnswererConfig& config) {
  return {.scale = static_cast<float>(
              std::sqrt(static_cast<double>(config.encoder.model_dim)))};
}

struct Encoded {
  nn::Variable choices;    // a row each
  nn::Variable questions;  // the mean of a question's choices
};
Encoded encoded(nn::Pass& pass, const nn::Encoder& encoder,
                const ChoiceAnswererConfig& config,
                const PackedChoices& choices) {
  const nn::Variable x = autograd::add(
      pass.tape(), encoder.embed(pass, choices.tokens),
      kinds_of(config)(pass, choices.kinds, as_strong_as_tokens(config)));
  const nn::Variable rows = encoder.pool(
      pass, encoder.encode(pass, x, choices.tokens), choices.tokens);
  return {rows, autograd::mean_rows(pass.tape(), rows, choices.offsets)};
}

}  // namespace

ExampleTask make_choice_task(const ChoiceAnswererConfig& config,
                             const ChoiceData& training,
                             const ChoiceData& held_out, std::uint64_t seed,
                             Threads threads) {
  const nn::Encoder encoder(checked(config).encoder);
  ExampleTaskParts parts;
  parts.parameters = specs_of(config, encoder);
  parts.lengths = lengths_of(training);
  parts.held_out_lengths = lengths_of(held_out);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t draw) -> nn::LossSum {
    const ChoiceData& data = part == Part::kTraining ? training : held_out;
    PackedChoices choices = pack_choices(data, examples);
    if (part == Part::kTraining) {
      drop_tokens(choices.tokens, config.token_dropout, draw);
    }
    std::vector<std::int64_t> right;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const std::int32_t answer =
          data.answers[static_cast<std::size_t>(examples[i])];
      require(answer >= 0, "make_choice_task",
              "every question must have an answer; one has none");
      right.push_back(choices.offsets[i] + answer);
    }
    const Encoded rows = encoded(pass, encoder, config, choices);
    const double loss = pointer_of(config).loss(
        pass, rows.questions, rows.choices, choices.offsets, right);
    return {loss, loss, std::ssize(examples)};
  };
  return {std::move(parts), seed, threads};
}

struct ChoiceAnswerer::Parts {
  ChoiceAnswererConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::PackedParameters weights;
  nn::Encoder encoder;
};

ChoiceAnswerer::ChoiceAnswerer(ChoiceAnswererConfig config,
                               std::unique_ptr<text::Tokenizer> tokenizer,
                               StateDict weights, ops::WeightStorage storage) {
  require(tokenizer != nullptr && tokenizer->size() == config.encoder.vocab,
          "ChoiceAnswerer", "the model has ", config.encoder.vocab,
          " pieces, the tokenizer ", tokenizer ? tokenizer->size() : 0);
  nn::Encoder encoder(checked(config).encoder);
  nn::PackedParameters packed(specs_of(config, encoder), std::move(weights),
                              storage, "ChoiceAnswerer");
  parts_ =
      std::make_unique<Parts>(Parts{std::move(config), std::move(tokenizer),
                                    std::move(packed), std::move(encoder)});
}

ChoiceAnswerer::~ChoiceAnswerer() = default;
ChoiceAnswerer::ChoiceAnswerer(ChoiceAnswerer&&) noexcept = default;
ChoiceAnswerer& ChoiceAnswerer::operator=(ChoiceAnswerer&&) noexcept = default;

const ChoiceAnswererConfig& ChoiceAnswerer::config() const {
  return parts_->config;
}
std::size_t ChoiceAnswerer::weight_bytes() const {
  return parts_->weights.bytes();
}

std::vector<std::vector<double>> ChoiceAnswerer::answer(
    std::span<const ChoiceQuestion> questions, Threads threads) const {
  const ChoiceAnswererConfig& config = parts_->config;
  for (const ChoiceQuestion& question : questions) {
    require(!question.choices.empty(), "ChoiceAnswerer::answer",
            "a question must have choices; that of line ", question.line,
            " has none");
  }
  const ChoiceData data =
      encode_choice_questions(questions, *parts_->tokenizer, config);
  constexpr std::int64_t kTokens = 4096;  // at once
  std::vector<std::vector<double>> out(questions.size());
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch :
       train::make_batches(lengths_of(data), {.tokens = kTokens}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, parts_->weights);
    const PackedChoices choices = pack_choices(data, batch);
    const Encoded rows = encoded(pass, parts_->encoder, config, choices);
    const std::vector<double> found = pointer_of(config).probabilities(
        pass, rows.questions, rows.choices, choices.offsets);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      out[static_cast<std::size_t>(batch[i])].assign(
          found.begin() + choices.offsets[i],
          found.begin() + choices.offsets[i + 1]);
    }
  }
  return out;
}

ChoiceAnswerer ChoiceAnswerer::load(const std::filesystem::path& folder,
                                    ops::WeightStorage weights) {
  ModelFolder model = load_model_folder(folder, kChoiceAnswererKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  ChoiceAnswererConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  return fitted(folder, kLoad, [&] {
    return ChoiceAnswerer(std::move(config), std::move(model.tokenizer),
                          std::move(model.weights), weights);
  });
}

std::string config_to_json(const ChoiceAnswererConfig& config) {
  return Json{{"kind", kChoiceAnswererKind},
              {"encoder", to_json(config.encoder)}}
      .dump();
}

void save_choice_answerer(const std::filesystem::path& folder,
                          const ChoiceAnswererConfig& config,
                          const text::Tokenizer& tokenizer,
                          const StateDict& weights, DType stored) {
  save_model_folder(folder, Json::parse(config_to_json(config)), tokenizer,
                    weights, stored);
}

}  // namespace regard::tasks
