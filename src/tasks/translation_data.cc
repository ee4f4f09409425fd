// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translation_data.h"

#include <algorithm>

#include "regard/core/error.h"
#include "regard/text/table.h"
#include "regard/text/utf8.h"

namespace regard::tasks {
namespace {

using Pieces = std::vector<std::int32_t>;

void add(TranslationData& data, const Pieces& source, const Pieces& target,
         std::int32_t tag) {
  Pieces tagged;
  if (tag != text::kUnknown) tagged.push_back(tag);
  tagged.insert(tagged.end(), source.begin(), source.end());
  tagged.push_back(text::kEnd);
  data.sources.append(tagged);
  data.targets.append(target);
}

std::int32_t tag_id(const text::Tokenizer& tokenizer,
                    const std::string& language) {
  const std::int32_t id = tokenizer.id_of(tag_of(language));
  require(id != text::kUnknown, "encode_pairs", "the vocabulary has no tag ",
          tag_of(language));
  return id;
}

}  // namespace

std::string tag_of(const std::string& language) {
  return "<2" + language + ">";
}

std::string language_to(const Languages& languages, std::string_view sentence) {
  constexpr const char* kChinese = "zh";
  const bool from_chinese = languages.source == kChinese;
  if (!languages.both_directions ||
      !(from_chinese || languages.target == kChinese)) {
    return "";
  }
  const std::u32string points = text::code_points(sentence);
  const bool chinese =
      std::any_of(points.begin(), points.end(), [](char32_t c) {
        return (c >= 0x3400 && c <= 0x9FFF) || (c >= 0x20000 && c <= 0x3FFFF);
      });
  return chinese == from_chinese ? languages.target : languages.source;
}

std::vector<std::string> Languages::tags() const {
  if (!both_directions) return {};
  return {tag_of(source), tag_of(target)};
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return hash;
}

text::Pairs read_pair_table(const std::filesystem::path& path,
                            const std::string& source_column,
                            const std::string& target_column) {
  const std::vector<std::string> names = {source_column, target_column};
  text::Table table = text::read_table(path, names);
  for (std::string& target : table.columns[1]) {
    std::replace(target.begin(), target.end(), '\r', ' ');
    std::replace(target.begin(), target.end(), '\n', ' ');
  }
  return {std::move(table.columns[0]), std::move(table.columns[1])};
}

bool has_first_pieces(const text::Tokenizer& tokenizer) {
  const text::SpecialIds special = tokenizer.special();
  // A tokenizer.json need not say what its special pieces mean.
  const auto is = [&](std::int32_t named, const char* piece, std::int32_t id) {
    return (named >= 0 ? named : tokenizer.id_of(piece)) == id;
  };
  return is(special.unknown, "<unk>", text::kUnknown) &&
         is(special.begin, "<s>", text::kBegin) &&
         is(special.end, "</s>", text::kEnd);
}

std::vector<std::int32_t> encode_lines(const text::Tokenizer& tokenizer,
                                       std::string_view text) {
  Pieces pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    // A carriage return is a blank to every tokenizer, and no piece.
    const std::string_view line =
        text.substr(0, end > 0 && text[end - 1] == '\r' ? end - 1 : end);
    const Pieces more = tokenizer.encode(line);
    if (!more.empty() && !pieces.empty()) pieces.push_back(text::kEnd);
    pieces.insert(pieces.end(), more.begin(), more.end());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

TranslationData encode_pairs(const text::Pairs& pairs,
                             const text::Tokenizer& tokenizer,
                             const Languages& languages,
                             std::int64_t max_length,
                             PairDirections directions) {
  require(pairs.sources.size() == pairs.targets.size(), "encode_pairs",
          "there must be as many sources as targets; got ",
          pairs.sources.size(), " and ", pairs.targets.size());
  require(max_length > 0, "encode_pairs", "max_length must be positive; got ",
          max_length);
  const bool back_only = directions == PairDirections::kBackOnly;
  require(!back_only || languages.both_directions, "encode_pairs",
          "pairs for the direction back need a model for both directions");
  const text::SpecialIds special = tokenizer.special();
  require(has_first_pieces(tokenizer), "encode_pairs",
          "the first pieces must be <unk>, <s>, </s>; they have the numbers ",
          special.unknown, ", ", special.begin, ", ", special.end);
  TranslationData data;
  std::int32_t to_target = text::kUnknown;
  std::int32_t to_source = text::kUnknown;
  if (languages.both_directions) {
    to_target = tag_id(tokenizer, languages.target);
    to_source = tag_id(tokenizer, languages.source);
  }
  for (std::size_t i = 0; i < pairs.sources.size(); ++i) {
    const Pieces source = encode_lines(tokenizer, pairs.sources[i]);
    const Pieces target = tokenizer.encode(pairs.targets[i]);
    const auto longer =
        static_cast<std::int64_t>(std::max(source.size(), target.size()));
    if (source.empty() || target.empty()) {
      ++data.empty;
      continue;
    }
    if (longer > max_length) {
      ++data.overlong;
      continue;
    }
    for (const Pieces* side : {&source, &target}) {
      for (const std::int32_t piece : *side) {
        if (piece == text::kUnknown) ++data.unknown;
      }
    }
    if (!back_only) add(data, source, target, to_target);
    if (languages.both_directions) add(data, target, source, to_source);
  }
  return data;
}

void append(TranslationData& data, const TranslationData& more) {
  for (std::int64_t i = 0; i < more.size(); ++i) {
    data.sources.append(more.sources.sequence(i));
    data.targets.append(more.targets.sequence(i));
  }
  data.empty += more.empty;
  data.overlong += more.overlong;
  data.unknown += more.unknown;
}

nn::TranslationBatch make_translation_batch(
    const TranslationData& data, std::span<const std::int64_t> examples) {
  nn::TranslationBatch batch;
  Pieces shifted;
  for (const std::int64_t example : examples) {
    batch.source.append(data.sources.sequence(example));
    const auto target = data.targets.sequence(example);
    shifted.assign(1, text::kBegin);
    shifted.insert(shifted.end(), target.begin(), target.end());
    batch.target.append(shifted);
    batch.target_out.insert(batch.target_out.end(), target.begin(),
                            target.end());
    batch.target_out.push_back(text::kEnd);
  }
  return batch;
}

std::pair<text::Pairs, text::Pairs> split_pairs(const text::Pairs& pairs,
                                                double share) {
  require(share >= 0 && share < 1, "split_pairs",
          "the share must be in [0, 1); got ", share);
  constexpr std::uint64_t kParts = 10000;
  const auto held_out = static_cast<std::uint64_t>(share * kParts);
  std::pair<text::Pairs, text::Pairs> split;
  for (std::size_t i = 0; i < pairs.sources.size(); ++i) {
    text::Pairs& side = hash_of(pairs.sources[i]) % kParts < held_out
                            ? split.second
                            : split.first;
    side.sources.push_back(pairs.sources[i]);
    side.targets.push_back(pairs.targets[i]);
  }
  return split;
}

}  // namespace regard::tasks
