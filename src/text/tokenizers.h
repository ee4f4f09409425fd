// SPDX-License-Identifier: Apache-2.0
// The readers of each kind of file. `name` stands in the texts of errors.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "regard/text/tokenizer.h"
#include "text/field.h"

namespace regard::text {

inline constexpr const char* kWordFile = "vocabulary.txt";
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
inline constexpr const char* kJsonFile = "tokenizer.json";

// Writes the one file of a tokenizer that was made here, and removes those of
// other kinds: a folder has one tokenizer.
void save_only(const std::filesystem::path& folder, const char* file,
               std::string_view bytes);

using Save = std::function<void(const std::filesystem::path& folder)>;

struct SideFiles;  // side_files.h

// Throws ParseError for text that is no JSON, or nested too deeply.
Json parse_json(std::string_view text, const std::string& where);

std::unique_ptr<Tokenizer> load_words(const std::filesystem::path& path);
// Words between blanks, by their numbers in a list.
std::unique_ptr<Tokenizer> make_list_tokenizer(std::vector<std::string> pieces,
                                               const SpecialIds& special);
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text,
                                                const std::string& where,
                                                const SideFiles& side,
                                                Save save);
std::unique_ptr<Tokenizer> parse_vocab_txt(std::string_view text,
                                           const std::string& where,
                                           const SideFiles& side, Save save);
std::unique_ptr<Tokenizer> parse_vocab_and_merges(std::string_view vocab,
                                                  std::string_view merges,
                                                  const std::string& where,
                                                  const SideFiles& side,
                                                  Save save);
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes,
                                               const std::string& where,
                                               Save save);
// One that save() writes as tokenizer.model.
std::unique_ptr<Tokenizer> own_sentencepiece(std::string bytes,
                                             const std::string& where);

}  // namespace regard::text
