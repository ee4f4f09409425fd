// SPDX-License-Identifier: Apache-2.0
// Any files (tests/fuzz/folder.h) are either refused with ParseError or
// IoError, or are the folder of a model that does its work: Hugging Face's
// encoders, decoders and encoder-decoders, CTranslate2's, and ours.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/folder.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/captioner.h"
#include "regard/tasks/chat.h"
#include "regard/tasks/choice_answerer.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/language_model.h"
#include "regard/tasks/model_kind.h"
#include "regard/tasks/recommender.h"
#include "regard/tasks/span_answerer.h"
#include "regard/tasks/text_encoder.h"
#include "regard/tasks/translator.h"
#include "regard/tasks/video_classifier.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

using namespace regard;
namespace fs = std::filesystem;

constexpr Threads kOne = {.count = 1};

template <typename Read>
void allow_refusal(const Read& read) {
  try {
    read();
  } catch (const ParseError&) {
  } catch (const IoError&) {
  }
}

// A good model may still refuse a text: it is too long, or the weights are NaN.
template <typename Work>
void allow_invalid(const Work& work) {
  try {
    work();
  } catch (const InvalidArgument&) {
  }
}

void use_text_encoder(const fs::path& folder) {
  const auto encoder = tasks::TextEncoder::load(folder, kOne);
  const std::array<std::string, 3> texts = {"the cat sat on the mats.", "",
                                            "a"};
  allow_invalid([&] {
    const Tensor vectors = encoder.encode(texts, {.threads = kOne});
    if (vectors.shape()[0] != 3) std::abort();
    encoder.trace(texts[0], {.threads = kOne});
  });
}

void use_language_model(const fs::path& folder) {
  const auto loaded = tasks::load_language_model(folder);
  const std::int32_t token = 0;
  tasks::LanguageState state(loaded.model, {.threads = kOne});
  const tasks::LanguageState::Reading reading{0, {&token, 1}};
  state.read({&reading, 1});
  if (state.logits().extent(1) != loaded.model.config().vocab) std::abort();
  allow_refusal([&] {
    tasks::Chat chat(loaded, {.max_tokens = 2, .threads = kOne});
    allow_invalid([&] { chat.say("cat", [](std::string_view) {}); });
  });
}

void use_translator(const fs::path& folder) {
  const auto translator = tasks::Translator::load(folder);
  const std::array<std::string, 2> texts = {"a cat", ""};
  allow_invalid([&] {
    translator.translate(texts, {.beam = 2, .max_length = 3, .threads = kOne});
  });
}

void use(const fs::path& folder) {
  switch (tasks::find_model_kind(folder)) {
    case tasks::ModelKind::kTextEncoder:
      return use_text_encoder(folder);
    case tasks::ModelKind::kLanguageModel:
      return use_language_model(folder);
    case tasks::ModelKind::kTranslator:
      return use_translator(folder);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  if (!folder.fill({reinterpret_cast<const char*>(data), size})) return 0;
  const fs::path& path = folder.path();
  allow_refusal([&] { use(path); });
  allow_refusal([&] { tasks::Answerer::load(path); });
  allow_refusal([&] { tasks::SpanAnswerer::load(path); });
  allow_refusal([&] { tasks::ChoiceAnswerer::load(path); });
  allow_refusal([&] { tasks::find_answer_kind(path); });
  allow_refusal([&] { tasks::Captioner::load(path); });
  allow_refusal([&] { tasks::Classifier::load(path); });
  allow_refusal([&] { tasks::VideoClassifier::load(path); });
  allow_refusal([&] {
    const auto model = tasks::Recommender::load(path);
    tasks::load_interactions(path, model);
  });
  return 0;
}
