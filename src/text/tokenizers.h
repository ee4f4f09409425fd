// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "regard/text/tokenizer.h"

namespace regard::text {

inline constexpr const char* kWordFile = "vocabulary.txt";
inline constexpr const char* kSentencePieceFile = "tokenizer.model";

std::unique_ptr<Tokenizer> load_words(const std::filesystem::path& path);
std::unique_ptr<Tokenizer> load_sentencepiece(
    const std::filesystem::path& path);

}  // namespace regard::text
