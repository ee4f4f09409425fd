// SPDX-License-Identifier: Apache-2.0
// A translator with random weights: it says nonsense, always the same.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "regard/nn/transformer.h"
#include "regard/tasks/translator.h"
#include "regard/text/tokenizer.h"

namespace regard::test {

struct SmallTranslator {
  explicit SmallTranslator(tasks::Languages languages = {"en", "de", false}) {
    const std::vector<std::string> lines = {
        "the cat sees a dog in the house and the dog sees no cat",
        "die Katze sieht einen Hund im Haus"};
    auto tokenizer = text::make_word_tokenizer(
        lines, {.min_count = 1, .tags = languages.tags()});
    config.languages = std::move(languages);
    config.model.source_vocab = config.model.target_vocab = tokenizer->size();
    config.model.model_dim = 24;
    config.model.heads = 3;
    config.model.encoder_layers = 2;
    config.model.decoder_layers = 3;
    config.model.feed_forward_dim = 40;
    config.model.shared_embeddings = true;
    config.model.tied_output = true;
    const nn::Transformer model(config.model, 7);
    parameters = model.parameters();
    // Weights this large make heads that prefer something.
    for (auto& [name, tensor] : parameters) {
      if (name.ends_with("in_proj_weight")) {
        for (float& value : tensor.values<float>()) value *= 4;
      }
    }
    vocabulary = tokenizer.get();
    translator = std::make_unique<tasks::Translator>(
        config, std::move(tokenizer), parameters);
  }

  tasks::TranslatorConfig config;
  StateDict parameters;
  const text::Tokenizer* vocabulary = nullptr;
  std::unique_ptr<tasks::Translator> translator;
};

}  // namespace regard::test
