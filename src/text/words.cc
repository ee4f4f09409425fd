// SPDX-License-Identifier: Apache-2.0
// A vocabulary of words.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

const std::vector<std::string>& special_pieces() {
  static const std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  return pieces;
}

template <typename Visit>
void for_each_word(std::string_view line, const Visit& visit) {
  constexpr const char* kBlanks = " \t";
  std::size_t begin = line.find_first_not_of(kBlanks);
  while (begin != std::string_view::npos) {
    const std::size_t end =
        std::min(line.find_first_of(kBlanks, begin), line.size());
    visit(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlanks, end);
  }
}

class Words : public Tokenizer {
 public:
  // Tags follow the special pieces, so that the file tells them from words.
  Words(std::vector<std::string> pieces, std::size_t tags)
      : Words(std::move(pieces),
              {.unknown = kUnknown, .begin = kBegin, .end = kEnd}) {
    controls_ = special_pieces().size() + tags;
  }
  Words(std::vector<std::string> pieces, const SpecialIds& special)
      : pieces_(std::move(pieces)), special_(special) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      ids_.emplace(pieces_[i], static_cast<std::int32_t>(i));
    }
  }

  std::int64_t size() const override {
    return static_cast<std::int64_t>(pieces_.size());
  }

  SpecialIds special() const override { return special_; }

  Encoding encode(std::string_view line,
                  const EncodeOptions& options) const override {
    const std::size_t bad = find_invalid_utf8(line);
    require(bad == std::string_view::npos, "Tokenizer::encode",
            "the line must be UTF-8; it is not at byte ", bad + 1);
    Encoding encoding;
    const auto add = [&](std::int32_t id, std::int32_t word, ByteRange range) {
      encoding.ids.push_back(id);
      encoding.words.push_back(word);
      encoding.types.push_back(0);
      if (options.offsets) encoding.offsets.push_back(range);
    };
    const std::int64_t around = options.add_special_tokens ? 2 : 0;
    require(options.max_length == 0 || options.max_length > around,
            "Tokenizer::encode", "max_length must leave room beside ", around,
            " special tokens; it is ", options.max_length);
    if (options.add_special_tokens) add(special_.begin, -1, {});
    std::int32_t word = 0;
    std::int64_t count = 0;
    for_each_word(line, [&](std::string_view text) {
      if (options.max_length > 0 && ++count > options.max_length - around) {
        return;
      }
      const std::int32_t id = id_of(text);
      const std::int64_t begin = text.data() - line.data();
      // A word that looks like a tag is not one.
      add(is_control(id) ? special_.unknown : id, word,
          {begin, begin + std::ssize(text)});
      if (!goes_on(text)) ++word;
    });
    if (options.add_special_tokens) add(special_.end, -1, {});
    return encoding;
  }

  std::string decode(std::span<const std::int32_t> ids,
                     SpecialTokens special) const override {
    std::string text;
    bool joined = true;  // no blank before the next piece
    for (const std::int32_t id : ids) {
      std::string word = piece(id);
      if (special == SpecialTokens::kSkip && id != special_.unknown &&
          is_control(id)) {
        continue;
      }
      if (!joined) text += ' ';
      joined = goes_on(word);
      if (joined) word.resize(word.size() - 2);
      text += word;
    }
    return text;
  }

  std::string piece(std::int32_t id) const override {
    require(id >= 0 && id < size(), "Tokenizer::piece",
            "pieces have numbers from 0 to ", size() - 1, "; got ", id);
    return pieces_[static_cast<std::size_t>(id)];
  }

  std::int32_t id_of(std::string_view piece) const override {
    const auto found = ids_.find(std::string(piece));
    return found == ids_.end() ? special_.unknown : found->second;
  }

  void save(const std::filesystem::path& folder) const override {
    require(controls_ > 0, "Tokenizer::save",
            "the pieces of another system's list cannot be written");
    std::string bytes;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      bytes += pieces_[i];
      // A second column marks what no text contains.
      bytes += i < controls_ ? "\tcontrol\n" : "\n";
    }
    save_only(folder, kWordFile, bytes);
  }

 private:
  static bool goes_on(std::string_view word) {
    return word.size() > 2 && word.ends_with("@@");
  }
  bool is_control(std::int32_t id) const {
    return static_cast<std::size_t>(id) < controls_ || id == special_.unknown ||
           id == special_.begin || id == special_.end;
  }

  std::vector<std::string> pieces_;
  SpecialIds special_;
  std::size_t controls_ = 0;  // the first ones that no text contains
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_word_tokenizer(
    std::span<const std::string> lines, const WordOptions& options) {
  std::map<std::string, std::int64_t, std::less<>> counts;
  for (const std::string& line : lines) {
    for_each_word(line, [&counts](std::string_view word) {
      const auto found = counts.find(word);
      if (found == counts.end()) {
        counts.emplace(word, 1);
      } else {
        ++found->second;
      }
    });
  }
  std::vector<std::string> pieces = special_pieces();
  pieces.insert(pieces.end(), options.tags.begin(), options.tags.end());
  std::vector<std::pair<std::int64_t, std::string>> words;
  for (const auto& [word, count] : counts) {
    const bool taken =
        std::find(pieces.begin(), pieces.end(), word) != pieces.end();
    if (count >= options.min_count && !taken) words.emplace_back(-count, word);
  }
  std::sort(words.begin(), words.end());
  for (auto& [count, word] : words) pieces.push_back(std::move(word));
  return std::make_unique<Words>(std::move(pieces), options.tags.size());
}

std::unique_ptr<Tokenizer> make_list_tokenizer(std::vector<std::string> pieces,
                                               const SpecialIds& special) {
  return std::make_unique<Words>(std::move(pieces), special);
}

std::unique_ptr<Tokenizer> load_words(const std::filesystem::path& path) {
  std::vector<std::string> pieces;
  std::size_t controls = 0;
  std::map<std::string, std::size_t> seen;
  for (std::string line : read_lines(path)) {
    const std::size_t number = pieces.size() + 1;
    const std::size_t tab = line.find('\t');
    if (tab != std::string::npos) {
      if (line.substr(tab) != "\tcontrol" || controls + 1 != number) {
        throw_parse_error("load_tokenizer", "'", path.string(), "', line ",
                          number, ": only the first pieces may be marked as ",
                          "control; got ", io::in_quotes(line));
      }
      line.resize(tab);
      ++controls;
    }
    if (line.empty() || !seen.emplace(line, number).second) {
      throw_parse_error("load_tokenizer", "'", path.string(), "', line ",
                        number, ": each line must be a piece of its own; got ",
                        io::in_quotes(line));
    }
    pieces.push_back(std::move(line));
  }
  const std::vector<std::string>& special = special_pieces();
  if (controls < special.size() ||
      !std::equal(special.begin(), special.end(), pieces.begin())) {
    throw_parse_error("load_tokenizer", "'", path.string(),
                      "' must begin with <unk>, <s> and </s>, each marked as ",
                      "control");
  }
  return std::make_unique<Words>(std::move(pieces), controls - special.size());
}

}  // namespace regard::text
