// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or a vocabulary that cuts text
// and joins it again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "regard/core/error.h"
#include "regard/text/byte_pair.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using regard::text::BytePairTokenizer;
  try {
    const auto tokenizer =
        BytePairTokenizer::parse_llama2c(std::as_bytes(std::span(data, size)));
    // The vocabulary's own bytes are as good a text as any.
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const std::int32_t token : tokenizer.encode(text)) {
      if (token < 0 || token >= tokenizer.size()) std::abort();
      tokenizer.decode(tokenizer.vocabulary().begin, token);
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
