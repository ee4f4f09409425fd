// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused with ParseError, or are one of the JSON files of a
// pretrained encoder whose settings keep their promises.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "regard/core/error.h"
#include "tasks/encoder_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto check = [](bool promise) {
    if (!promise) std::abort();
  };
  const auto attempt = [](const auto& parse) {
    try {
      parse();
    } catch (const ParseError&) {
    }
  };
  attempt([&] {
    const tasks::EncoderSettings s = tasks::parse_encoder_config(text, "input");
    const tasks::TextEncoderConfig& c = s.config;
    check(c.heads > 0 && c.model_dim % c.heads == 0 && c.layers >= 1);
    check(c.max_length >= 1 && s.first_position >= 0);
    check(c.max_length + s.first_position <= s.positions);
    check(s.groups >= 1 && s.groups * s.inner_layers <= c.layers);
    check(s.norm_epsilon > 0 && s.norm_epsilon < 1);
  });
  attempt([&] {
    const tasks::SentenceModules m = tasks::parse_modules(text, "input");
    check(m.transformer.find("..") == std::string::npos ||
          !m.transformer.starts_with(".."));
  });
  attempt([&] { check(!tasks::parse_pooling(text, "input").empty()); });
  tasks::TextEncoderConfig config;
  config.max_length = 512;
  attempt([&] {
    tasks::parse_sentence_config(text, "input", config);
    check(config.max_length >= 1 && config.max_length <= 512);
  });
  attempt([&] {
    tasks::parse_prompts(text, "input", config);
    check(config.default_prompt.empty() ||
          config.prompts.contains(config.default_prompt));
  });
  return 0;
}
