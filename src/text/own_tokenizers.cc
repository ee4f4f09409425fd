// SPDX-License-Identifier: Apache-2.0
// Tokenizers that are made here and written as tokenizer.json.
#include <algorithm>
#include <map>
#include <utility>

#include "io/atomic_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/text/utf8.h"
#include "text/field.h"
#include "text/models.h"
#include "text/normalizers.h"
#include "text/pre_tokenizers.h"
#include "text/side_files.h"
#include "text/tokenizers.h"
#include "text/unicode.h"

namespace regard::text {
namespace {

// The special pieces and tags, with their numbers.
std::vector<std::string> first_pieces(const std::vector<std::string>& tags) {
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  pieces.insert(pieces.end(), tags.begin(), tags.end());
  return pieces;
}

// A tokenizer.json with these parts. The first `controls` pieces are those that
// no text contains.
std::unique_ptr<Tokenizer> made_of(const std::vector<std::string>& pieces,
                                   std::size_t controls, Json model,
                                   Json parts) {
  Json vocab = Json::object();
  for (std::size_t i = 0; i < pieces.size(); ++i) vocab[pieces[i]] = i;
  Json added = Json::array();
  for (std::size_t i = 0; i < controls; ++i) {
    added.push_back({{"id", i},
                     {"content", pieces[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  model["vocab"] = std::move(vocab);
  parts["version"] = "1.0";
  parts["added_tokens"] = std::move(added);
  parts["model"] = std::move(model);
  parts["post_processor"] = nullptr;
  const std::string bytes = parts.dump(1) + "\n";
  return parse_tokenizer_json(bytes, "tokenizer", {},
                              [bytes](const std::filesystem::path& folder) {
                                save_only(folder, kJsonFile, bytes);
                              });
}

}  // namespace

void save_only(const std::filesystem::path& folder, const char* file,
               std::string_view bytes) {
  io::AtomicFile out(folder / file, "Tokenizer::save");
  out.write(bytes);
  out.commit();
  for (const char* other : {kWordFile, kSentencePieceFile, kJsonFile}) {
    if (std::string_view(other) != file) {
      std::filesystem::remove(folder / other);
    }
  }
}

std::unique_ptr<Tokenizer> make_running_word_tokenizer(
    std::span<const std::string> texts, const RunningWordOptions& options) {
  std::vector<std::string> pieces = first_pieces(options.tags);
  const std::size_t controls = pieces.size();
  require(options.size > std::ssize(pieces), "make_running_word_tokenizer",
          "a vocabulary must have more than its ", controls,
          " special pieces; got ", options.size);
  const Json normalizer = {{"type", "BertNormalizer"},
                           {"clean_text", true},
                           {"handle_chinese_chars", true},
                           {"strip_accents", false},
                           {"lowercase", options.lowercase}};
  const Json cutter = {{"type", "BertPreTokenizer"}};
  const auto normalize = make_normalizer(Field(normalizer, "normalizer"));
  bool byte_level = false;
  const auto cut =
      make_pre_tokenizer(Field(cutter, "pre_tokenizer"), byte_level);
  std::map<std::string, std::int64_t, std::less<>> counts;
  Chars chars;
  std::string text;
  Words words;
  for (const std::string& line : texts) {
    decode_utf8(line, 0, chars);
    normalize->apply(chars);
    encode_utf8(chars, text);
    words.start(text, 0, {}, false);
    cut->apply(words);
    for (std::size_t i = 0; i < words.words().size(); ++i) {
      const auto found = counts.find(words.word(i));
      if (found == counts.end()) {
        counts.emplace(words.word(i), 1);
      } else {
        ++found->second;
      }
    }
  }
  std::vector<std::pair<std::int64_t, std::string>> ranked;
  for (const auto& [word, count] : counts) {
    const bool taken =
        std::find(pieces.begin(), pieces.end(), word) != pieces.end();
    if (count >= options.min_count && !taken) ranked.emplace_back(-count, word);
  }
  std::sort(ranked.begin(), ranked.end());
  for (auto& [count, word] : ranked) {
    if (std::ssize(pieces) == options.size) break;
    pieces.push_back(std::move(word));
  }
  return made_of(pieces, controls,
                 {{"type", "WordLevel"}, {"unk_token", "<unk>"}},
                 {{"normalizer", normalizer},
                  {"pre_tokenizer", cutter},
                  {"decoder", nullptr}});
}

std::unique_ptr<Tokenizer> make_byte_tokenizer(
    const std::vector<std::string>& tags) {
  std::vector<std::string> pieces = first_pieces(tags);
  const std::size_t controls = pieces.size();
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    append_utf8(piece, byte_level_char(static_cast<unsigned char>(byte)));
    pieces.push_back(std::move(piece));
  }
  return made_of(
      pieces, controls, {{"type", "BPE"}, {"merges", Json::array()}},
      {{"normalizer", nullptr},
       {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
       {"decoder", {{"type", "ByteLevel"}}}});
}

}  // namespace regard::text
