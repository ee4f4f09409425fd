// SPDX-License-Identifier: Apache-2.0
// Any text is either refused with ParseError or the config.json of a model
// whose every layer has a description.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "regard/core/error.h"
#include "tasks/language_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto config = tasks::parse_hugging_face_config(text, "config.json");
    const bool described =
        config.windowed.empty() || std::ssize(config.windowed) == config.layers;
    if (config.layers < 1 || config.heads < 1 || !described) std::abort();
  } catch (const ParseError&) {
  }
  return 0;
}
