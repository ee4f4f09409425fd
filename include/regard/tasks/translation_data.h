// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/nn/batch.h"
#include "regard/text/lines.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// Which languages a translator knows. With both directions, a source begins
// with a tag that names the language to translate into.
struct Languages {
  std::string source = "source";
  std::string target = "target";
  bool both_directions = false;

  // The tags of the vocabulary: none where there is only one direction.
  std::vector<std::string> tags() const;
};

std::string tag_of(const std::string& language);  // "de" -> "<2de>"

// The language to translate a sentence into where nobody says it. Where one of
// two languages is zh, the script of the sentence tells. Empty where there is
// only one direction, or nothing tells. Throws InvalidArgument unless the
// sentence is UTF-8.
std::string language_to(const Languages& languages, std::string_view sentence);

// Pairs as a Transformer reads them: four bytes a piece and eight a sentence.
struct TranslationData {
  nn::PackedTokens sources;  // [tag,] pieces, kEnd
  nn::PackedTokens targets;  // pieces
  // What was left out, so that it can be told.
  std::int64_t empty = 0;     // pairs with a blank side
  std::int64_t overlong = 0;  // pairs with a side of more than max_length
  std::int64_t unknown = 0;   // pieces that the vocabulary does not have

  std::int64_t size() const { return sources.sequences(); }
};

// Pairs of two columns of a table; targets are on one line: their line ends
// become blanks. Throws what text::read_table() throws.
text::Pairs read_pair_table(const std::filesystem::path& path,
                            const std::string& source_column,
                            const std::string& target_column);

// Are the first pieces <unk>, <s> and </s>, as in every vocabulary that is made
// here?
bool has_first_pieces(const text::Tokenizer& tokenizer);

// The pieces of a text. Where it has several lines, kEnd parts them; blank ones
// are left out.
std::vector<std::int32_t> encode_lines(const text::Tokenizer& tokenizer,
                                       std::string_view text);

// Which directions of a model for both learn from pairs. Where a machine wrote
// one side, it may be the better one to read, or the better one to write.
enum class PairDirections { kAll, kBackOnly };

// Pairs become pieces, sources line by line; each twice, the second time
// reversed, for both directions. kBackOnly leaves the first out.
TranslationData encode_pairs(const text::Pairs& pairs,
                             const text::Tokenizer& tokenizer,
                             const Languages& languages,
                             std::int64_t max_length,
                             PairDirections directions = PairDirections::kAll);

// Adds the examples of `more`, and what was left out of it.
void append(TranslationData& data, const TranslationData& more);

nn::TranslationBatch make_translation_batch(
    const TranslationData& data, std::span<const std::int64_t> examples);

// Holds out a share of the sources, by a hash of the sentence: all pairs of a
// source fall on the same side, on every machine, in every order. What is held
// out comes second.
std::pair<text::Pairs, text::Pairs> split_pairs(const text::Pairs& pairs,
                                                double share);

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view text);

}  // namespace regard::tasks
