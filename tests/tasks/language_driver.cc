// SPDX-License-Identifier: Apache-2.0
// Language models and GGUF files for tests in Python.
//   model=PATH: "tokens" [n] int64 -> "logits" [n, vocab], read one token at a
//   time, and "whole" [vocab], those of the last token read with all others.
//   weights=as-stored, int8 or int4: computed with those; else float32.
//   gguf=PATH: every tensor of the file in float32.
//   template=JINJA, begin, end, messages=[[role, text], ...]: "chat", the bytes
//   of the chat up to the answer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/io/gguf.h"
#include "regard/tasks/chat.h"
#include "regard/tasks/language_model.h"
#include "support/driver.h"

namespace regard {
namespace {

tasks::LanguageModel load(const std::filesystem::path& path,
                          ops::WeightStorage weights) {
  return std::filesystem::is_directory(path)
             ? tasks::LanguageModel::from_folder(path, weights)
             : tasks::LanguageModel::from_gguf(GgufFile::open(path), weights);
}

ops::WeightStorage weights_of(const SafetensorsFile& in) {
  const std::string word = test::text_of(in, "weights", "float32");
  return word == "int8"        ? ops::WeightStorage::kInt8
         : word == "int4"      ? ops::WeightStorage::kInt4
         : word == "as-stored" ? ops::WeightStorage::kAsStored
                               : ops::WeightStorage::kFloat32;
}

StateDict score(const SafetensorsFile& in) {
  const tasks::LanguageModel model =
      load(test::text_of(in, "model"), weights_of(in));
  const auto given = in.view<std::int64_t, 1>("tokens");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < given.extent(0); ++i) {
    tokens.push_back(static_cast<std::int32_t>(given(i)));
  }
  const std::int64_t vocab = model.config().vocab;
  Tensor logits({std::ssize(tokens), vocab});
  tasks::LanguageState state(model);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const tasks::LanguageState::Reading one{0, {&tokens[i], 1}};
    state.read({&one, 1});
    std::copy_n(state.logits().at(0), vocab,
                logits.view<float, 2>().at(static_cast<std::int64_t>(i)));
  }
  tasks::LanguageState at_once(model);
  const tasks::LanguageState::Reading all{0, tokens};
  at_once.read({&all, 1});
  Tensor whole({vocab});
  std::copy_n(at_once.logits().at(0), vocab, whole.values<float>().data());
  StateDict out;
  out["logits"] = std::move(logits);
  out["whole"] = std::move(whole);
  return out;
}

StateDict render(const SafetensorsFile& in) {
  const tasks::ChatTemplate format(test::text_of(in, "template"),
                                   test::text_of(in, "begin"),
                                   test::text_of(in, "end"));
  std::vector<tasks::ChatMessage> messages;
  for (const auto& message :
       nlohmann::json::parse(test::text_of(in, "messages"))) {
    using Role = tasks::ChatMessage::Role;
    const std::string role = message.at(0);
    messages.push_back({role == "system" ? Role::kSystem
                        : role == "user" ? Role::kUser
                                         : Role::kAssistant,
                        message.at(1)});
  }
  const std::string chat = format.render(messages);
  Tensor bytes(DType::kUInt8, Shape{std::ssize(chat)});
  std::copy(chat.begin(), chat.end(), bytes.values<std::uint8_t>().begin());
  StateDict out;
  out["chat"] = std::move(bytes);
  return out;
}

StateDict run(const SafetensorsFile& in) {
  if (!test::text_of(in, "template").empty()) return render(in);
  const std::string path = test::text_of(in, "gguf");
  if (path.empty()) return score(in);
  const GgufFile file = GgufFile::open(path);
  StateDict out;
  for (const std::string& name : file.names()) out[name] = file.tensor(name);
  return out;
}

}  // namespace
}  // namespace regard

int main(int argc, char** argv) {
  return regard::test::drive(argc, argv, "language_driver", regard::run);
}
