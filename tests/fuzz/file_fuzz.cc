// SPDX-License-Identifier: Apache-2.0
// One file for readers that take paths: refused with ParseError or IoError, or
// read. The first byte says what it is: w weights for the viewer, i a log of
// interactions with a header, n one without, l the log of a training, c a clip,
// m a model of llama2.c or GGUF.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/folder.h"
#include "regard/core/error.h"
#include "regard/tasks/clips.h"
#include "regard/tasks/interactions.h"
#include "regard/tasks/language_model.h"
#include "regard/train/log.h"
#include "regard/view/imported_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

using namespace regard;

void read_weights(const std::filesystem::path& path) {
  float sum = 0;
  for (const auto& section : view::open_weights(path)) {
    for (std::int64_t layer = 0; layer < section.layers; ++layer) {
      const auto weights = section.layer(layer);
      if (weights.extent(0) != section.heads) std::abort();
      for (std::int64_t i = 0; i < weights.size(); ++i) {
        sum += weights.data()[i];
      }
    }
  }
  volatile float used = sum;
  static_cast<void>(used);
}

// A file of llama2.c has no tokenizer, without which it is not loaded.
tasks::LanguageModel model_of(const std::filesystem::path& path,
                              std::string_view bytes) {
  return bytes.starts_with("GGUF")
             ? tasks::load_language_model(path).model
             : tasks::LanguageModel::from_llama2c(Llama2cFile::open(path));
}

void read_model(const std::filesystem::path& path, std::string_view bytes) {
  const tasks::LanguageModel model = model_of(path, bytes);
  tasks::LanguageState state(model, {.threads = {.count = 1}});
  const std::int32_t token = 0;
  const tasks::LanguageState::Reading reading{0, {&token, 1}};
  state.read({&reading, 1});
}

void read_clip(const std::filesystem::path& path) {
  try {
    tasks::format_of(tasks::load_clip(path), "clip");
  } catch (const InvalidArgument&) {  // an array that is no clip
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  try {
    switch (data[0]) {
      case 'w':
        read_weights(folder.write("w.safetensors", bytes));
        break;
      case 'i':
        tasks::read_interactions(folder.write("i.tsv", bytes),
                                 {.user = "user", .item = "item"});
        break;
      case 'n':
        tasks::read_interactions(folder.write("n.tsv", bytes),
                                 {.has_header = false});
        break;
      case 'l':
        train::read_log(folder.write("l.jsonl", bytes));
        break;
      case 'c':
        read_clip(folder.write("c.npy", bytes));
        break;
      case 'm':
        read_model(folder.write("m", bytes), bytes);
        break;
      default:
        break;
    }
  } catch (const ParseError&) {
  } catch (const IoError&) {
  }
  return 0;
}
