// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or a tokenizer that cuts text
// and joins it again. The first byte says what file the others are: j
// tokenizer.json, v vocab.txt, m vocab.json and merges.txt with a zero between
// them, s a model of SentencePiece, g GGUF.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/text/tokenizer.h"
#include "text/side_files.h"
#include "text/tokenizers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

using namespace regard;

void use(const text::Tokenizer& tokenizer, std::string_view bytes) {
  const std::string known =
      "Once upon a time, \xE4\xBD\xA0\xE5\xA5\xBD caf\x65\xCC\x81 <s>\xFF 12";
  for (const std::string_view text : {std::string_view(known), bytes}) {
    try {
      const text::Encoding found = tokenizer.encode(text, {.offsets = true});
      if (found.words.size() != found.ids.size() ||
          found.types.size() != found.ids.size() ||
          found.offsets.size() != found.ids.size()) {
        std::abort();
      }
      for (const text::ByteRange range : found.offsets) {
        if (range.begin < 0 || range.begin > range.end ||
            range.end > std::ssize(text)) {
          std::abort();
        }
      }
      tokenizer.decode(found.ids);
      tokenizer.encode_pair(known, text, {.max_length = 16});
    } catch (const InvalidArgument&) {  // a pattern that never ends
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  const auto nothing = [](const std::filesystem::path&) {};
  try {
    std::unique_ptr<text::Tokenizer> tokenizer;
    if (data[0] == 'j') {
      tokenizer = text::parse_tokenizer_json(bytes, "fuzz", {}, nothing);
    } else if (data[0] == 'v') {
      tokenizer = text::parse_vocab_txt(bytes, "fuzz", {}, nothing);
    } else if (data[0] == 'm') {
      const std::size_t zero = std::min(bytes.find('\0'), bytes.size());
      tokenizer = text::parse_vocab_and_merges(
          bytes.substr(0, zero), bytes.substr(zero), "fuzz", {}, nothing);
    } else if (data[0] == 's') {
      tokenizer = text::parse_sentencepiece(bytes, "fuzz", nothing);
    } else if (data[0] == 'g') {
      AlignedBuffer copy(bytes.size());
      if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
      const GgufFile file = GgufFile::parse({copy.data(), bytes.size()});
      tokenizer = text::load_tokenizer(file);
    } else {
      return 0;
    }
    use(*tokenizer, bytes);
  } catch (const ParseError&) {
  }
  return 0;
}
