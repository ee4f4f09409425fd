// SPDX-License-Identifier: Apache-2.0
// In place of sentencepiece.cc where that library is absent.
#include "regard/core/error.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

[[noreturn]] void refuse(const char* where) {
  throw InvalidArgument(detail::compose(
      where, {"regard was built without SentencePiece; install it "
              "(Debian: libsentencepiece-dev) and build again"}));
}

}  // namespace

bool sentencepiece_available() { return false; }

std::unique_ptr<Tokenizer> train_sentencepiece(std::span<const std::string>,
                                               const SentencePieceOptions&) {
  refuse("train_sentencepiece");
}

}  // namespace regard::text
