// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or stories whose sentences,
// questions and answers are not blank.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/text/lines.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    for (const regard::tasks::Story& story : regard::tasks::parse_babi(
             regard::text::read_lines(in, "stories.txt"), "stories.txt")) {
      if (story.question.empty() || story.answer.empty()) std::abort();
      for (const std::string& sentence : story.sentences) {
        if (sentence.empty()) std::abort();
        for (const std::string& part :
             regard::tasks::split_sentences(sentence)) {
          if (part.empty()) std::abort();
        }
      }
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
