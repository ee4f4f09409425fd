// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused with ParseError, or are a translator's config, which
// then comes back from its own text; or they are lines of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "regard/core/error.h"
#include "regard/tasks/score.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto config = tasks::config_from_json(text, "input");
    const std::string written = tasks::config_to_json(config);
    const auto again = tasks::config_from_json(written, "input");
    if (tasks::config_to_json(again) != written) std::abort();
  } catch (const ParseError&) {
  }
  try {
    std::istringstream in(text);
    for (const std::string& line : text::read_lines(in, "input")) {
      for (const auto tokens :
           {tasks::ScoreTokens::k13a, tasks::ScoreTokens::kNone,
            tasks::ScoreTokens::kZh}) {
        (void)tasks::score_words(line, {.tokens = tokens, .lowercase = true});
      }
    }
  } catch (const ParseError&) {
  }
  return 0;
}
