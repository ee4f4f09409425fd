// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/answerer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/train/batches.h"
#include "tasks/model_folder.h"

namespace regard::tasks {
namespace {

constexpr const char* kKind = "regard answerer";
constexpr const char* kLoad = "Answerer::load";

nn::NormLayer sentence_norm(const AnswererConfig& config) {
  return {"sentence_norm", nn::Norm::kLayerNorm, config.encoder.model_dim};
}
nn::Linear head_of(const AnswererConfig& config) {
  return {"head", config.encoder.model_dim, std::ssize(config.answers)};
}

nn::ParameterSpecs specs_of(const AnswererConfig& config,
                            const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  const std::int64_t width = config.encoder.model_dim;
  specs["places.weight"] = {
      {config.max_words, width}, nn::ParameterSpec::Start::kConstant, 1.0f};
  nn::Embedding{"kinds", 2, width}.declare(specs);
  sentence_norm(config).declare(specs);
  head_of(config).declare(specs);
  return specs;
}

const AnswererConfig& checked(const AnswererConfig& c) {
  require(c.answers.size() >= 2, "Answerer",
          "there must be at least two answers; there are ", c.answers.size());
  require(
      std::set(c.answers.begin(), c.answers.end()).size() == c.answers.size(),
      "Answerer", "no answer may be there twice");
  require(c.max_words > 0, "Answerer", "max_words must be positive; it is ",
          c.max_words);
  require(c.encoder.pooling == nn::Pooling::kFirst, "Answerer",
          "pooling must be that of the first token, the question");
  require(c.label_smoothing >= 0 && c.label_smoothing < 1, "Answerer",
          "label_smoothing must be in [0, 1); it is ", c.label_smoothing);
  return c;
}

struct EncodedAndCut {
  EncodedStory story;
  bool cut = false;
};

EncodedAndCut encode_story(const Story& story, const text::Tokenizer& tokenizer,
                           const AnswererConfig& config) {
  EncodedAndCut out;
  const auto add = [&](const std::string& sentence) {
    // A text of strangers: "</s>" in it is no special token.
    std::vector<std::int32_t> ids =
        tokenizer
            .encode(sentence,
                    {.add_special_tokens = false, .find_special_tokens = false})
            .ids;
    if (ids.empty()) ids.push_back(text::kEnd);
    if (std::ssize(ids) > config.max_words) {
      out.cut = true;
      ids.resize(static_cast<std::size_t>(config.max_words));
    }
    out.story.words.insert(out.story.words.end(), ids.begin(), ids.end());
    out.story.lengths.push_back(static_cast<std::int32_t>(ids.size()));
  };
  add(story.question);
  for (auto at = story.sentences.rbegin(); at != story.sentences.rend(); ++at) {
    if (std::ssize(out.story.lengths) == config.encoder.max_length) {
      out.cut = true;
      break;
    }
    add(*at);
  }
  return out;
}

struct PackedStories {
  nn::PackedTokens words;            // by sentence
  std::vector<std::int32_t> places;  // of each word in its sentence
  nn::PackedTokens sentences;        // by story: 0 for a question, or 1
};

PackedStories pack_stories(std::span<const EncodedStory> stories,
                           std::span<const std::int64_t> examples) {
  PackedStories out;
  for (const std::int64_t example : examples) {
    const EncodedStory& story = stories[static_cast<std::size_t>(example)];
    out.words.tokens.insert(out.words.tokens.end(), story.words.begin(),
                            story.words.end());
    for (const std::int32_t length : story.lengths) {
      for (std::int32_t i = 0; i < length; ++i) out.places.push_back(i);
      out.words.offsets.push_back(std::ssize(out.places));
      out.sentences.tokens.push_back(1);
    }
    out.sentences
        .tokens[static_cast<std::size_t>(out.sentences.offsets.back())] = 0;
    out.sentences.offsets.push_back(std::ssize(out.sentences.tokens));
  }
  return out;
}

std::vector<std::int64_t> lengths_of(std::span<const EncodedStory> stories) {
  std::vector<std::int64_t> lengths;
  for (const EncodedStory& story : stories) {
    lengths.push_back(std::ssize(story.lengths));
  }
  return lengths;
}

// What the layers read: a row for each question and sentence.
nn::Variable embedded(nn::Pass& pass, const nn::Encoder& encoder,
                      const AnswererConfig& config,
                      const PackedStories& stories) {
  autograd::Tape& tape = pass.tape();
  const nn::Variable words =
      nn::Embedding{"embedding"}(pass, stories.words.tokens);
  const nn::Variable places = autograd::gather_rows(
      tape, pass.parameter("places.weight"), stories.places);
  const nn::Variable sentences = sentence_norm(config)(
      pass, autograd::mean_rows(tape, autograd::multiply(tape, words, places),
                                stories.words.offsets));
  return autograd::add(
      tape,
      nn::Embedding{"kinds"}(pass, stories.sentences.tokens,
                             encoder.positions(pass, stories.sentences)),
      sentences, pass.dropout(config.encoder.dropout));
}

nn::Variable vectors(nn::Pass& pass, const nn::Encoder& encoder,
                     const AnswererConfig& config,
                     const PackedStories& stories) {
  const nn::Variable x = embedded(pass, encoder, config, stories);
  return encoder.pool(pass, encoder.encode(pass, x, stories.sentences),
                      stories.sentences);
}

}  // namespace

AnswerData encode_stories(std::span<const Story> stories,
                          const text::Tokenizer& tokenizer,
                          const AnswererConfig& config) {
  std::map<std::string, std::int32_t, std::less<>> numbers;
  for (std::size_t a = 0; a < config.answers.size(); ++a) {
    numbers.emplace(config.answers[a], static_cast<std::int32_t>(a));
  }
  AnswerData data;
  for (const Story& story : stories) {
    const auto answer = numbers.find(story.answer);
    require(answer != numbers.end(), "encode_stories", "the answer '",
            story.answer, "' of line ", story.line, " is none of the ",
            numbers.size(), " that the training stories have");
    EncodedAndCut encoded = encode_story(story, tokenizer, config);
    if (encoded.cut) ++data.cut;
    data.stories.push_back(std::move(encoded.story));
    data.answers.push_back(answer->second);
  }
  return data;
}

ExampleTask make_answer_task(const AnswererConfig& config,
                             const AnswerData& training,
                             const AnswerData& held_out, std::uint64_t seed,
                             Threads threads) {
  const nn::Encoder encoder(checked(config).encoder);
  ExampleTaskParts parts;
  parts.parameters = specs_of(config, encoder);
  parts.lengths = lengths_of(training.stories);
  parts.held_out_lengths = lengths_of(held_out.stories);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t) -> nn::LossSum {
    const AnswerData& data = part == Part::kTraining ? training : held_out;
    std::vector<std::int32_t> targets;
    for (const std::int64_t example : examples) {
      targets.push_back(data.answers[static_cast<std::size_t>(example)]);
    }
    const PackedStories stories = pack_stories(data.stories, examples);
    const autograd::CrossEntropySum loss = autograd::cross_entropy(
        pass.tape(), vectors(pass, encoder, config, stories),
        pass.parameter("head.weight"), pass.parameter("head.bias"), targets,
        config.label_smoothing);
    return {loss.loss, loss.likelihood, std::ssize(targets)};
  };
  return {std::move(parts), seed, threads};
}

struct Answerer::Parts {
  AnswererConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  StateDict weights;
  nn::Encoder encoder;
};

Answerer::Answerer(AnswererConfig config,
                   std::unique_ptr<text::Tokenizer> tokenizer,
                   StateDict weights) {
  require(tokenizer != nullptr && tokenizer->size() == config.encoder.vocab,
          "Answerer", "the model has ", config.encoder.vocab,
          " pieces, the tokenizer ", tokenizer ? tokenizer->size() : 0);
  nn::Encoder encoder(checked(config).encoder);
  nn::check_parameters(specs_of(config, encoder), weights, "Answerer");
  parts_ =
      std::make_unique<Parts>(Parts{std::move(config), std::move(tokenizer),
                                    std::move(weights), std::move(encoder)});
}

Answerer::~Answerer() = default;
Answerer::Answerer(Answerer&&) noexcept = default;
Answerer& Answerer::operator=(Answerer&&) noexcept = default;

const AnswererConfig& Answerer::config() const { return parts_->config; }

std::vector<Answer> Answerer::answer(std::span<const Story> stories,
                                     Threads threads) const {
  const AnswererConfig& config = parts_->config;
  std::vector<EncodedStory> encoded;
  for (const Story& story : stories) {
    encoded.push_back(encode_story(story, *parts_->tokenizer, config).story);
  }
  constexpr std::int64_t kSentences = 4096;  // at once
  std::vector<Answer> answers(stories.size());
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch :
       train::make_batches(lengths_of(encoded), {.tokens = kSentences}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, parts_->weights);
    const nn::Variable scores = head_of(config)(
        pass,
        vectors(pass, parts_->encoder, config, pack_stories(encoded, batch)));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float* const row = scores.value().at(static_cast<std::int64_t>(i));
      const float* const best =
          std::max_element(row, row + config.answers.size());
      double sum = 0;
      for (std::size_t a = 0; a < config.answers.size(); ++a) {
        sum +=
            std::exp(static_cast<double>(row[a]) - static_cast<double>(*best));
      }
      answers[static_cast<std::size_t>(batch[i])] = {
          config.answers[static_cast<std::size_t>(best - row)],
          static_cast<float>(1 / sum)};
    }
  }
  return answers;
}

Answer Answerer::explain(const Story& story, Threads threads) const {
  Answer out = answer(std::span(&story, 1), threads)[0];
  const std::vector<EncodedStory> encoded = {
      encode_story(story, *parts_->tokenizer, parts_->config).story};
  const std::vector<std::int64_t> first = {0};
  const PackedStories packed = pack_stories(encoded, first);
  autograd::Tape tape(autograd::Record::kNo, threads);
  nn::Pass pass(tape, parts_->weights);
  const std::vector<double> shares =
      parts_->encoder
          .attention(pass,
                     embedded(pass, parts_->encoder, parts_->config, packed),
                     packed.sentences)
          .rollout();
  // The question first, and then from the last sentence back.
  out.looked_at.assign(story.sentences.size(), 0.0f);
  for (std::size_t i = 1; i < shares.size(); ++i) {
    out.looked_at[story.sentences.size() - i] = static_cast<float>(shares[i]);
  }
  return out;
}

Answerer Answerer::load(const std::filesystem::path& folder) {
  ModelFolder model = load_model_folder(folder, kKind, kLoad);
  AnswererConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  constexpr std::int64_t kMost = 1 << 17;
  config.max_words = model.field()["max_words"].count();
  if (config.max_words > kMost) {
    model.field()["max_words"].fail("must be at most ", kMost, "; it is ",
                                    config.max_words);
  }
  model.field()["answers"].for_each([&](const text::Field& answer) {
    config.answers.push_back(answer.text());
  });
  return fitted(folder, kLoad, [&] {
    return Answerer(std::move(config), std::move(model.tokenizer),
                    std::move(model.weights));
  });
}

std::string config_to_json(const AnswererConfig& config) {
  return Json{{"kind", kKind},
              {"answers", config.answers},
              {"max_words", config.max_words},
              {"encoder", to_json(config.encoder)}}
      .dump();
}

void save_answerer(const std::filesystem::path& folder,
                   const AnswererConfig& config,
                   const text::Tokenizer& tokenizer, const StateDict& weights,
                   DType stored) {
  save_model_folder(folder, Json::parse(config_to_json(config)), tokenizer,
                    weights, stored);
}

}  // namespace regard::tasks
