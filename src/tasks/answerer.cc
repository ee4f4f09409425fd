// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/answerer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/train/batches.h"
#include "tasks/answer_kind.h"
#include "tasks/model_folder.h"

namespace regard::tasks {
namespace {

constexpr const char* kLoad = "Answerer::load";

nn::NormLayer sentence_norm(const AnswererConfig& config) {
  return {"sentence_norm", nn::Norm::kLayerNorm, config.encoder.model_dim};
}
nn::NormLayer word_norm(const AnswererConfig& config) {
  return {"word_norm", nn::Norm::kLayerNorm, config.encoder.model_dim};
}
nn::TransformerEncoderLayer word_layer(const AnswererConfig& config,
                                       std::int64_t i) {
  return {"words.layers." + std::to_string(i), config.encoder.layer()};
}
nn::Linear head_of(const AnswererConfig& config) {
  return {"head", config.encoder.model_dim, std::ssize(config.answers)};
}
nn::Linear support_of(const AnswererConfig& config) {
  return {"support", config.encoder.model_dim, 2};
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
  for (std::int64_t i = 0; i < config.word_layers; ++i) {
    word_layer(config, i).declare(specs);
  }
  if (config.word_layers > 0) word_norm(config).declare(specs);
  head_of(config).declare(specs);
  if (config.support) support_of(config).declare(specs);
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
  require(c.word_layers >= 0 && c.word_layers <= kMostOwnLayers, "Answerer",
          "word_layers must be in 0 .. ", kMostOwnLayers, "; it is ",
          c.word_layers);
  require(c.label_smoothing >= 0 && c.label_smoothing < 1, "Answerer",
          "label_smoothing must be in [0, 1); it is ", c.label_smoothing);
  require(c.blank_sentences >= 0 && c.blank_sentences < 1, "Answerer",
          "blank_sentences must be in [0, 1); it is ", c.blank_sentences);
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
  if (story.support.empty()) return out;
  out.story.support.resize(out.story.lengths.size());
  for (const std::int64_t sentence : story.support) {
    const std::int64_t row = std::ssize(story.sentences) - sentence;
    if (row < std::ssize(out.story.support)) {
      out.story.support[static_cast<std::size_t>(row)] = 1;
    }
  }
  return out;
}

// Sentences that are there more than once are read once.
struct PackedStories {
  nn::PackedTokens words;             // by sentence, each a different one
  std::vector<std::int32_t> places;   // of each word in its sentence
  nn::PackedTokens sentences;         // by story: 0 for a question, or 1
  std::vector<std::int32_t> which;    // of the different ones, for each
  std::vector<std::int32_t> known;    // those of which support is known,
  std::vector<std::int32_t> support;  // and what it is
};

struct BlankSentences {
  float rate = 0.0f;
  std::uint64_t seed = 0;
  std::int64_t most = 0;  // sentences of a story, the question too
};

PackedStories pack_stories(std::span<const EncodedStory> stories,
                           std::span<const std::int64_t> examples,
                           const BlankSentences& blanks = {}) {
  PackedStories out;
  std::map<std::vector<std::int32_t>, std::int32_t> numbers;
  const auto add = [&](std::vector<std::int32_t> words, std::int32_t kind) {
    const auto next = static_cast<std::int32_t>(numbers.size());
    const auto [at, is_new] = numbers.emplace(std::move(words), next);
    if (is_new) {
      out.words.append(at->first);
      for (std::size_t i = 0; i < at->first.size(); ++i) {
        out.places.push_back(static_cast<std::int32_t>(i));
      }
    }
    out.which.push_back(at->second);
    out.sentences.tokens.push_back(kind);
  };
  for (const std::int64_t example : examples) {
    const EncodedStory& story = stories[static_cast<std::size_t>(example)];
    Random random(blanks.seed + static_cast<std::uint64_t>(example));
    std::int64_t room = blanks.most - std::ssize(story.lengths);
    auto word = story.words.begin();
    for (std::size_t s = 0; s < story.lengths.size(); ++s) {
      if (s > 0 && blanks.rate > 0 && random.uniform() < blanks.rate &&
          room > 0) {
        add({text::kEnd}, 1);
        --room;
      }
      if (!story.support.empty()) {
        out.known.push_back(static_cast<std::int32_t>(out.which.size()));
        out.support.push_back(story.support[s]);
      }
      add({word, word + story.lengths[s]}, s == 0 ? 0 : 1);
      word += story.lengths[s];
    }
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

// A row for each word of the different sentences.
nn::Variable words_of(nn::Pass& pass, const AnswererConfig& config,
                      const PackedStories& stories) {
  if (config.word_layers == 0) {
    return nn::Embedding{"embedding"}(pass, stories.words.tokens);
  }
  const nn::EncoderConfig& c = config.encoder;
  const Tensor table =
      nn::sinusoidal_positions(stories.words.longest(), c.model_dim);
  nn::Variable places =
      pass.tape().result(stories.words.longest(), c.model_dim, false);
  std::copy_n(table.values<float>().begin(), table.values<float>().size(),
              places.mutable_data());
  nn::Variable x = nn::Embedding{"embedding"}(
      pass, stories.words.tokens,
      {.scale = static_cast<float>(std::sqrt(static_cast<double>(c.model_dim))),
       .positions = places,
       .offsets = stories.words.offsets,
       .dropout = pass.dropout(c.dropout)});
  for (std::int64_t i = 0; i < config.word_layers; ++i) {
    x = word_layer(config, i)(pass, x, {.offsets = stories.words.offsets});
  }
  return word_norm(config)(pass, x);
}

// What the layers read: a row for each question and sentence.
nn::Variable embedded(nn::Pass& pass, const nn::Encoder& encoder,
                      const AnswererConfig& config,
                      const PackedStories& stories) {
  autograd::Tape& tape = pass.tape();
  const nn::Variable places = autograd::gather_rows(
      tape, pass.parameter("places.weight"), stories.places);
  const nn::Variable each = sentence_norm(config)(
      pass,
      autograd::mean_rows(
          tape,
          autograd::multiply(tape, words_of(pass, config, stories), places),
          stories.words.offsets));
  const nn::Variable sentences =
      autograd::gather_rows(tape, each, stories.which);
  return autograd::add(
      tape,
      nn::Embedding{"kinds"}(pass, stories.sentences.tokens,
                             encoder.positions(pass, stories.sentences)),
      sentences, pass.dropout(config.encoder.dropout));
}

// What has become of them, and of the questions alone.
struct Encoded {
  nn::Variable sentences;  // a row for each question and sentence
  nn::Variable questions;
};
Encoded encoded(nn::Pass& pass, const nn::Encoder& encoder,
                const AnswererConfig& config, const PackedStories& stories) {
  const nn::Variable x = encoder.encode(
      pass, embedded(pass, encoder, config, stories), stories.sentences);
  return {x, encoder.pool(pass, x, stories.sentences)};
}

// Near one, and different from place to place: what is multiplied with ones
// knows no order.
Tensor initial_places(const AnswererConfig& config, std::uint64_t seed) {
  constexpr float kDeviation = 0.5f;
  Tensor places({config.max_words, config.encoder.model_dim});
  Random random(seed ^ 0x706C61636573u);
  for (float& value : places.values<float>()) {
    value = 1.0f + kDeviation * random.normal();
  }
  return places;
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
                                         std::uint64_t draw) -> nn::LossSum {
    const AnswerData& data = part == Part::kTraining ? training : held_out;
    std::vector<std::int32_t> targets;
    for (const std::int64_t example : examples) {
      targets.push_back(data.answers[static_cast<std::size_t>(example)]);
    }
    BlankSentences blanks;
    if (part == Part::kTraining) {
      blanks = {config.blank_sentences, draw, config.encoder.max_length};
    }
    const PackedStories stories = pack_stories(data.stories, examples, blanks);
    const Encoded rows = encoded(pass, encoder, config, stories);
    autograd::Tape& tape = pass.tape();
    const autograd::CrossEntropySum loss = autograd::cross_entropy(
        tape, rows.questions, pass.parameter("head.weight"),
        pass.parameter("head.bias"), targets, config.label_smoothing);
    nn::LossSum sum = {loss.loss, loss.likelihood, std::ssize(targets)};
    if (config.support && !stories.known.empty()) {
      sum.loss +=
          autograd::cross_entropy(
              tape, autograd::gather_rows(tape, rows.sentences, stories.known),
              pass.parameter("support.weight"), pass.parameter("support.bias"),
              stories.support, 0.0f)
              .loss;
    }
    return sum;
  };
  ExampleTask task(std::move(parts), seed, threads);
  StateDict values;
  values["places.weight"] = initial_places(config, seed);
  task.begin_with(std::move(values));
  return task;
}

struct Answerer::Parts {
  AnswererConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::PackedParameters weights;
  nn::Encoder encoder;
};

Answerer::Answerer(AnswererConfig config,
                   std::unique_ptr<text::Tokenizer> tokenizer,
                   StateDict weights, ops::WeightStorage storage) {
  require(tokenizer != nullptr && tokenizer->size() == config.encoder.vocab,
          "Answerer", "the model has ", config.encoder.vocab,
          " pieces, the tokenizer ", tokenizer ? tokenizer->size() : 0);
  nn::Encoder encoder(checked(config).encoder);
  nn::PackedParameters packed(specs_of(config, encoder), std::move(weights),
                              storage, "Answerer");
  parts_ =
      std::make_unique<Parts>(Parts{std::move(config), std::move(tokenizer),
                                    std::move(packed), std::move(encoder)});
}

Answerer::~Answerer() = default;
Answerer::Answerer(Answerer&&) noexcept = default;
Answerer& Answerer::operator=(Answerer&&) noexcept = default;

const AnswererConfig& Answerer::config() const { return parts_->config; }
std::size_t Answerer::weight_bytes() const { return parts_->weights.bytes(); }

std::vector<Answer> Answerer::answer(std::span<const Story> stories,
                                     Threads threads) const {
  const AnswererConfig& config = parts_->config;
  std::vector<EncodedStory> read;
  for (const Story& story : stories) {
    read.push_back(encode_story(story, *parts_->tokenizer, config).story);
  }
  constexpr std::int64_t kSentences = 4096;  // at once
  std::vector<Answer> answers(stories.size());
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch :
       train::make_batches(lengths_of(read), {.tokens = kSentences}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, parts_->weights);
    const nn::Variable scores = head_of(config)(
        pass, encoded(pass, parts_->encoder, config, pack_stories(read, batch))
                  .questions);
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
  const std::vector<EncodedStory> read = {
      encode_story(story, *parts_->tokenizer, parts_->config).story};
  const std::vector<std::int64_t> first = {0};
  const PackedStories packed = pack_stories(read, first);
  autograd::Tape tape(autograd::Record::kNo, threads);
  nn::Pass pass(tape, parts_->weights);
  const nn::Variable x =
      embedded(pass, parts_->encoder, parts_->config, packed);
  const std::vector<double> shares =
      parts_->encoder.attention(pass, x, packed.sentences).rollout();
  // The question first, and then from the last sentence back.
  out.looked_at.assign(story.sentences.size(), 0.0f);
  for (std::size_t i = 1; i < shares.size(); ++i) {
    out.looked_at[story.sentences.size() - i] = static_cast<float>(shares[i]);
  }
  if (!parts_->config.support) return out;
  const nn::Variable scores = support_of(parts_->config)(
      pass, parts_->encoder.encode(pass, x, packed.sentences));
  out.support.assign(story.sentences.size(), 0.0f);
  for (std::size_t i = 1; i < shares.size(); ++i) {
    const float* const row = scores.value().at(static_cast<std::int64_t>(i));
    out.support[story.sentences.size() - i] =
        static_cast<float>(1 / (1 + std::exp(static_cast<double>(row[0]) -
                                             static_cast<double>(row[1]))));
  }
  return out;
}

Answerer Answerer::load(const std::filesystem::path& folder,
                        ops::WeightStorage weights) {
  ModelFolder model = load_model_folder(folder, kAnswererKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  AnswererConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  constexpr std::int64_t kMost = 1 << 17;
  config.max_words = model.field()["max_words"].count();
  if (config.max_words > kMost) {
    model.field()["max_words"].fail("must be at most ", kMost, "; it is ",
                                    config.max_words);
  }
  // Folders of an earlier release do not have these.
  if (model.field().has("word_layers")) {
    const text::Field layers = model.field()["word_layers"];
    config.word_layers = layers.count();
    if (config.word_layers > kMostOwnLayers) {
      layers.fail("must be at most ", kMostOwnLayers, "; it is ",
                  config.word_layers);
    }
  }
  config.support = model.field().flag("support", false);
  model.field()["answers"].for_each([&](const text::Field& answer) {
    config.answers.push_back(answer.text());
  });
  return fitted(folder, kLoad, [&] {
    return Answerer(std::move(config), std::move(model.tokenizer),
                    std::move(model.weights), weights);
  });
}

std::string config_to_json(const AnswererConfig& config) {
  return Json{
      {"kind", kAnswererKind},         {"answers", config.answers},
      {"max_words", config.max_words}, {"word_layers", config.word_layers},
      {"support", config.support},     {"encoder", to_json(config.encoder)}}
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
