// SPDX-License-Identifier: Apache-2.0
// What no model can write: characters that its pieces do not know, addresses
// of the web and of mail. They are copied from the source.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/tokenizer.h"

namespace regard::tasks {

// Pieces [begin, end) of a source stand for this text.
struct CopiedPart {
  std::string text;
  std::int64_t begin = 0, end = 0;
};

struct SourceText {
  // Symbols that the pieces do not know at both ends: they are not translated,
  // and stand at the same end of the translation. All of it, where there is no
  // word.
  std::string head{}, tail{};
  std::vector<std::int32_t> pieces{};  // without special ones around them
  std::vector<CopiedPart> parts{};     // in order
};

// An address is one piece of its own, which the model does not know. Where an
// accent is a character without a piece (NFD), the sentence is read in NFC; an
// accent that no letter has then is left out.
SourceText read_source(const text::Tokenizer& tokenizer,
                       std::string_view sentence);

// The text of what was said, with all copied parts. An unknown piece stands for
// the part that it looked at most; a part that none stands for comes behind the
// piece that looked at it most. weights[t][i] is what piece t gave to piece i
// of the source.
std::string with_copied_parts(const SourceText& source,
                              const text::Tokenizer& tokenizer,
                              std::span<const std::int32_t> said,
                              const std::vector<std::vector<float>>& weights);

// The addresses in a text: "https://...", "www....", "name@host.org".
std::vector<text::ByteRange> find_addresses(std::string_view text);

}  // namespace regard::tasks
