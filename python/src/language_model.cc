// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/language_model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models.h"
#include "options.h"
#include "regard/core/error.h"
#include "regard/core/interrupt.h"
#include "regard/tasks/chat.h"
#include "regard/tasks/generate.h"
#include "regard/tasks/model_kind.h"

namespace regard::python {
namespace {

using tasks::ChatMessage;
using tasks::LoadedModel;

std::string model_kind(const std::string& path) {
  switch (tasks::find_model_kind(path)) {
    case tasks::ModelKind::kTextEncoder:
      return "encoder";
    case tasks::ModelKind::kLanguageModel:
      return "language model";
    case tasks::ModelKind::kTranslator:
      return "translator";
  }
  return "";
}

LoadedModel load(const std::string& path,
                 const std::optional<std::string>& tokenizer,
                 const std::string& weights) {
  const ops::WeightStorage storage = weight_storage(weights);
  const nb::gil_scoped_release released;
  return tasks::load_language_model(path, tokenizer, storage);
}

std::vector<std::string> generate(const LoadedModel& loaded,
                                  const std::vector<std::string>& prompts,
                                  std::int64_t max_tokens,
                                  const tasks::Sampling& sampling,
                                  int threads) {
  std::vector<std::string> texts;
  run_released([&] {
    for (tasks::Continuation& written :
         tasks::generate(loaded, prompts,
                         {.max_tokens = max_tokens,
                         .sampling = sampling,
                         .threads = {.count = threads}},
                         [](std::int64_t, std::string_view) {})) {
      texts.push_back(std::move(written.text));
    }
  });
  return texts;
}

ChatMessage::Role role_of(const std::string& name) {
  if (name == "system") return ChatMessage::Role::kSystem;
  if (name == "user") return ChatMessage::Role::kUser;
  require(name == "assistant", "chat",
          "a role must be 'system', 'user' or 'assistant'; got '", name, "'");
  return ChatMessage::Role::kAssistant;
}

// Messages are pairs of role and content.
std::string chat(const LoadedModel& loaded,
                 const std::vector<std::pair<std::string, std::string>>& all,
                 std::int64_t max_tokens, const tasks::Sampling& sampling,
                 int threads) {
  std::vector<ChatMessage> messages;
  for (const auto& [role, content] : all) {
    messages.push_back({role_of(role), content});
  }
  require(!messages.empty() && messages.back().role == ChatMessage::Role::kUser,
          "chat", "the last message must be the user's");
  tasks::Chat::Answer answer;
  run_released([&] {
    tasks::Chat talk(loaded, {.max_tokens = max_tokens,
                              .sampling = sampling,
                              .threads = {.count = threads}});
    std::string question = std::move(messages.back().text);
    messages.pop_back();
    talk.reset(std::move(messages));
    answer = talk.say(std::move(question), [](std::string_view) {});
    if (answer.interrupted) throw Interrupted{};
  });
  return answer.text;
}

nb::dict config(const LoadedModel& loaded) {
  const tasks::LanguageModelConfig& c = loaded.model.config();
  nb::dict all;
  all["vocab"] = c.vocab;
  all["model_dim"] = c.model_dim;
  all["layers"] = c.layers;
  all["heads"] = c.heads;
  all["kv_heads"] = c.kv_heads;
  all["head_dim"] = c.head_dim;
  all["context"] = c.context;
  return all;
}

}  // namespace

void bind_language_model(nb::module_& m) {
  m.def("model_kind", &model_kind, nb::arg("path"),
        "'encoder', 'language model' or 'translator'.");
  nb::class_<tasks::Sampling>(m, "Sampling", "How the next token is chosen.")
      .def(
          "__init__",
          [](tasks::Sampling* sampling, float temperature, std::int64_t top_k,
             float top_p, std::uint64_t seed) {
            new (sampling) tasks::Sampling{temperature, top_k, top_p, seed};
          },
          nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
          nb::arg("seed"));
  nb::class_<LoadedModel>(m, "LanguageModel",
                          "A pretrained language model; see regard.load.")
      .def_static("load", &load, nb::arg("path"), nb::arg("tokenizer").none(),
                  nb::arg("weights"))
      .def("config", &config)
      .def("generate", &generate, nb::arg("prompts"), nb::arg("max_tokens"),
           nb::arg("sampling"), nb::arg("threads"))
      .def("chat", &chat, nb::arg("messages"), nb::arg("max_tokens"),
           nb::arg("sampling"), nb::arg("threads"));
}

}  // namespace regard::python
