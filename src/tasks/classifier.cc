// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/classifier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/text/table.h"
#include "regard/train/batches.h"
#include "tasks/classifier_parts.h"
#include "tasks/model_folder.h"

namespace regard::tasks {
namespace {

constexpr const char* kKind = "regard classifier";
constexpr const char* kLoad = "Classifier::load";

// In the order of the enumerators.
constexpr std::array kTruncations = {"end", "start", "middle"};

nn::Linear head_of(const ClassifierConfig& config) {
  return {"head", config.encoder.model_dim, std::ssize(config.labels)};
}

nn::ParameterSpecs specs_of(const ClassifierConfig& config,
                            const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  head_of(config).declare(specs);
  return specs;
}

// The tables of pretrained encoders may be longer than their vocabularies.
void check_tokenizer(const ClassifierConfig& config,
                     const text::Tokenizer* tokenizer) {
  require(
      tokenizer != nullptr &&
          (config.special_tokens ? tokenizer->size() <= config.encoder.vocab
                                 : tokenizer->size() == config.encoder.vocab),
      "Classifier", "the model has ", config.encoder.vocab,
      " pieces, the tokenizer ", tokenizer != nullptr ? tokenizer->size() : 0);
}

const ClassifierConfig& checked(const ClassifierConfig& c) {
  check_labels(c.labels, "Classifier");
  for (const float rate : {c.label_smoothing, c.token_dropout}) {
    require(rate >= 0 && rate < 1, "Classifier",
            "label_smoothing and token_dropout must be in [0, 1); one is ",
            rate);
  }
  require(!c.special_tokens || c.token_dropout == 0, "Classifier",
          "token_dropout does not go with special_tokens; it is ",
          c.token_dropout);
  return c;
}

}  // namespace

LabelledTexts read_labelled_texts(const std::filesystem::path& path,
                                  const std::string& text,
                                  const std::string& label) {
  text::Table table = text::read_table(path, std::vector{text, label});
  return {std::move(table.columns[0]), std::move(table.columns[1]),
          std::move(table.lines)};
}

EncodedText encode_text(std::string_view text, const text::Tokenizer& tokenizer,
                        const ClassifierConfig& config, bool offsets) {
  // A text of strangers: "</s>" in it is no special token.
  EncodedText out{
      tokenizer.encode(text, {.add_special_tokens = config.special_tokens,
                              .find_special_tokens = false,
                              .offsets = offsets})};
  auto& [ids, words, types, bytes] = out.encoding;
  if (!config.special_tokens) {
    ids.insert(ids.begin(), text::kBegin);
    words.insert(words.begin(), -1);
    if (offsets) bytes.insert(bytes.begin(), {0, 0});
  }
  const auto most = static_cast<std::size_t>(config.encoder.max_length);
  if (ids.size() <= most) return out;
  out.cut = true;
  // Special tokens around the text stay.
  const auto is_word = [](std::int32_t w) { return w >= 0; };
  const std::ptrdiff_t first =
      std::find_if(words.begin(), words.end(), is_word) - words.begin();
  const std::ptrdiff_t last =
      words.rend() - std::find_if(words.rbegin(), words.rend(), is_word);
  const std::ptrdiff_t left_out =
      std::min(last, std::ssize(ids) - config.encoder.max_length);
  const std::ptrdiff_t kept =
      std::max<std::ptrdiff_t>(0, last - first - left_out);  // of the text
  std::ptrdiff_t begin = last - left_out;
  if (config.truncation == Truncation::kStart) begin -= kept;
  if (config.truncation == Truncation::kMiddle) begin -= kept - kept / 4;
  const std::ptrdiff_t end = begin + left_out;
  const auto cut = [begin, end](auto& list) {
    list.erase(list.begin() + begin, list.begin() + end);
  };
  cut(ids);
  cut(words);
  if (offsets) cut(bytes);
  return out;
}

void check_labels(std::span<const std::string> labels, const char* where) {
  require(labels.size() >= 2, where,
          "there must be at least two labels; there are ", labels.size());
  require(std::set(labels.begin(), labels.end()).size() == labels.size(), where,
          "no label may be there twice");
}

std::vector<std::int32_t> label_numbers(const LabelledTexts& texts,
                                        std::span<const std::string> known,
                                        const char* where) {
  std::map<std::string, std::int32_t, std::less<>> numbers;
  for (const std::string& label : known) {
    numbers.emplace(label, static_cast<std::int32_t>(numbers.size()));
  }
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < texts.labels.size(); ++i) {
    const auto label = numbers.find(texts.labels[i]);
    require(
        label != numbers.end(), where, "the label '", texts.labels[i],
        "' of line ",
        texts.lines.empty() ? static_cast<std::int64_t>(i) + 1 : texts.lines[i],
        " is none of the ", numbers.size(), " that the model knows");
    out.push_back(label->second);
  }
  return out;
}

std::vector<float> softmax_of(std::span<const float> scores) {
  const float most = *std::max_element(scores.begin(), scores.end());
  std::vector<double> shares;
  for (const float score : scores) {
    shares.push_back(std::exp(static_cast<double>(score) - most));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<float> out;
  for (const double share : shares) {
    out.push_back(static_cast<float>(share / sum));
  }
  return out;
}

ClassificationData encode_texts(const LabelledTexts& texts,
                                const text::Tokenizer& tokenizer,
                                const ClassifierConfig& config) {
  require(texts.texts.size() == texts.labels.size(), "encode_texts",
          "there must be as many labels as texts; got ", texts.labels.size(),
          " and ", texts.texts.size());
  ClassificationData data;
  data.labels = label_numbers(texts, config.labels, "encode_texts");
  const std::int32_t unknown = tokenizer.special().unknown;
  for (const std::string& text : texts.texts) {
    EncodedText encoded = encode_text(text, tokenizer, config);
    std::vector<std::int32_t>& tokens = encoded.encoding.ids;
    data.cut += encoded.cut;
    data.unknown += std::count(tokens.begin(), tokens.end(), unknown);
    data.texts.push_back(std::move(tokens));
  }
  return data;
}

ExampleTask make_classification_task(const ClassifierConfig& config,
                                     const ClassificationData& training,
                                     const ClassificationData& held_out,
                                     std::uint64_t seed, Threads threads) {
  const nn::Encoder encoder(checked(config).encoder);
  ExampleTaskParts parts;
  parts.parameters = specs_of(config, encoder);
  parts.lengths = lengths_of(training.texts);
  parts.held_out_lengths = lengths_of(held_out.texts);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t draw) -> nn::LossSum {
    const ClassificationData& data =
        part == Part::kTraining ? training : held_out;
    nn::PackedTokens texts = pack(data.texts, examples);
    if (part == Part::kTraining) {
      drop_tokens(texts, config.token_dropout, draw);
    }
    std::vector<std::int32_t> targets;
    for (const std::int64_t example : examples) {
      targets.push_back(data.labels[static_cast<std::size_t>(example)]);
    }
    const autograd::CrossEntropySum loss = autograd::cross_entropy(
        pass.tape(), encoder(pass, texts), pass.parameter("head.weight"),
        pass.parameter("head.bias"), targets, config.label_smoothing);
    return {loss.loss, loss.likelihood, std::ssize(targets)};
  };
  return {std::move(parts), seed, threads};
}

std::vector<LabelProbability> ranked(std::span<const float> probabilities) {
  std::vector<LabelProbability> labels;
  for (std::size_t l = 0; l < probabilities.size(); ++l) {
    labels.push_back({static_cast<std::int32_t>(l), probabilities[l]});
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const LabelProbability& a, const LabelProbability& b) {
                     return a.probability > b.probability;
                   });
  return labels;
}

std::vector<std::vector<float>> Classifier::Parts::probabilities(
    std::span<const std::vector<std::int32_t>> texts, Threads threads) const {
  constexpr std::int64_t kTokens = 4096;  // at once
  std::vector<std::vector<float>> out(texts.size());
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch :
       train::make_batches(lengths_of(texts), {.tokens = kTokens}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, weights);
    const nn::Variable scores =
        head_of(config)(pass, encoder(pass, pack(texts, batch)));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float* const row = scores.value().at(static_cast<std::int64_t>(i));
      const std::span<const float> row_scores(row, config.labels.size());
      out[static_cast<std::size_t>(batch[i])] = softmax_of(row_scores);
    }
  }
  return out;
}

Classifier::Classifier(ClassifierConfig config,
                       std::unique_ptr<text::Tokenizer> tokenizer,
                       StateDict weights, ops::WeightStorage storage) {
  check_tokenizer(config, tokenizer.get());
  nn::Encoder encoder(checked(config).encoder);
  nn::PackedParameters packed(specs_of(config, encoder), std::move(weights),
                              storage, "Classifier");
  parts_ =
      std::make_unique<Parts>(Parts{std::move(config), std::move(tokenizer),
                                    std::move(packed), std::move(encoder)});
}

Classifier::~Classifier() = default;
Classifier::Classifier(Classifier&&) noexcept = default;
Classifier& Classifier::operator=(Classifier&&) noexcept = default;

const ClassifierConfig& Classifier::config() const { return parts_->config; }
std::size_t Classifier::weight_bytes() const { return parts_->weights.bytes(); }
const text::Tokenizer& Classifier::tokenizer() const {
  return *parts_->tokenizer;
}

std::vector<std::vector<LabelProbability>> Classifier::classify(
    std::span<const std::string> texts, Threads threads) const {
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::string& text : texts) {
    tokens.push_back(
        encode_text(text, *parts_->tokenizer, parts_->config).encoding.ids);
  }
  std::vector<std::vector<LabelProbability>> out;
  for (const auto& row : parts_->probabilities(tokens, threads)) {
    out.push_back(ranked(row));
  }
  return out;
}

namespace {

ClassifierConfig config_of(const ModelFolder& model) {
  ClassifierConfig config;
  config.encoder = encoder_from(model.field()["encoder"]);
  model.field()["labels"].for_each(
      [&](const text::Field& label) { config.labels.push_back(label.text()); });
  config.special_tokens = model.field().flag("special_tokens", false);
  const std::string truncation =
      model.field().text("truncation", kTruncations[0]);
  const auto found =
      std::find(kTruncations.begin(), kTruncations.end(), truncation);
  if (found == kTruncations.end()) {
    model.field()["truncation"].expect("end, start or middle");
  }
  config.truncation = static_cast<Truncation>(found - kTruncations.begin());
  return config;
}

}  // namespace

Classifier Classifier::load(const std::filesystem::path& folder,
                            ops::WeightStorage weights) {
  ModelFolder model = load_model_folder(folder, kKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  ClassifierConfig config = config_of(model);
  return fitted(folder, kLoad, [&] {
    return Classifier(std::move(config), std::move(model.tokenizer),
                      std::move(model.weights), weights);
  });
}

ClassifierFiles load_classifier_files(const std::filesystem::path& folder) {
  ModelFolder model = load_model_folder(folder, kKind, kLoad);
  ClassifierFiles files{config_of(model), std::move(model.tokenizer),
                        std::move(model.weights)};
  fitted(folder, kLoad, [&] {
    check_tokenizer(files.config, files.tokenizer.get());
    const nn::Encoder encoder(checked(files.config).encoder);
    nn::check_parameters(specs_of(files.config, encoder), files.weights, kLoad);
  });
  return files;
}

std::string config_to_json(const ClassifierConfig& config) {
  Json out = {{"kind", kKind},
              {"labels", config.labels},
              {"encoder", to_json(config.encoder)}};
  if (config.special_tokens) out["special_tokens"] = true;
  if (config.truncation != Truncation::kEnd) {
    out["truncation"] =
        kTruncations[static_cast<std::size_t>(config.truncation)];
  }
  return out.dump();
}

void save_classifier(const std::filesystem::path& folder,
                     const ClassifierConfig& config,
                     const text::Tokenizer& tokenizer, const StateDict& weights,
                     DType stored) {
  save_model_folder(folder, Json::parse(config_to_json(config)), tokenizer,
                    weights, stored);
}

}  // namespace regard::tasks
