// SPDX-License-Identifier: Apache-2.0
// The tokenizers inside GGUF files. They are written as the pieces of
// tokenizer.json would be, so that both go the same way.
#include <utility>

#include "io/quote.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "text/pipeline.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

using Type = SentencePieceModel::Type;
constexpr std::string_view kBlank = "\xE2\x96\x81";

// What tokenizer.ggml.pre names, as the models' own tokenizer.json have it.
struct ByteLevelKind {
  std::vector<std::string_view> names;
  const char* pattern;  // null: GPT-2's
  bool digits_alone = false;
  bool compose = false;  // NFC first
  bool ignore_merges = false;
};

const std::vector<ByteLevelKind>& byte_level_kinds() {
  static const std::vector<ByteLevelKind> kinds = {
      {{"gpt-2", "gpt2", "phi-2", "roberta-bpe", "jina-es", "jina-de", "mpt",
        "olmo"},
       nullptr},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell"},
       nullptr,
       true},
      {{"llama-bpe", "llama3", "llama-v3"},
       "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
       "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
       "\\s+(?!\\S)|\\s+",
       false,
       false,
       true},
      {{"qwen2", "deepseek-r1-qwen"},
       "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
       "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
       false,
       true},
      {{"gpt-4o", "llama4"},
       "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
       "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
       "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
       "\\s+(?!\\S)|\\s+",
       false,
       false,
       true},
  };
  return kinds;
}

class Reader {
 public:
  explicit Reader(const GgufFile& file)
      : file_(file), where_(file.where()), tokens_(read_tokens()) {
    types_.assign(tokens_.size(), Type::kNormal);
    if (const auto types = file_.integers("tokenizer.ggml.token_type")) {
      check_count("tokenizer.ggml.token_type", types->size());
      for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const std::int64_t type = (*types)[i];
        if (type < 1 || type > 6) {
          fail("tokenizer.ggml.token_type must be 1 to 6; that of token ", i,
               " is ", type);
        }
        types_[i] = static_cast<Type>(type);
      }
    }
  }

  std::unique_ptr<Tokenizer> read() const {
    const std::string_view model = *file_.text("tokenizer.ggml.model");
    PipelineParts parts =
        model == "gpt2"    ? byte_level()
        : model == "llama" ? sentencepiece(true)
        : model == "t5"    ? sentencepiece(false)
        : model == "bert"
            ? word_piece()
            : throw ParseError(detail::compose(
                  where_.c_str(), {"tokenizer.ggml.model must be gpt2, "
                                   "llama, bert or t5; it is ",
                                   io::in_quotes(model)}));
    const std::string where = where_;
    parts.save = [where](const std::filesystem::path&) {
      throw InvalidArgument(detail::compose(
          "Tokenizer::save", {"a tokenizer that came inside a model's file is "
                              "saved with it; this came from ",
                              where}));
    };
    return make_pipeline(std::move(parts));
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_parse_error(where_.c_str(), parts...);
  }

  std::vector<std::string> read_tokens() const {
    if (!file_.text("tokenizer.ggml.model")) {
      fail("the file has no tokenizer: tokenizer.ggml.model is missing");
    }
    const auto tokens = file_.texts("tokenizer.ggml.tokens");
    if (!tokens || tokens->empty()) {
      fail("the tokenizer needs tokenizer.ggml.tokens");
    }
    return {tokens->begin(), tokens->end()};
  }

  void check_count(const char* key, std::size_t count) const {
    if (count == tokens_.size()) return;
    fail(key, " must have one element for each of the ", tokens_.size(),
         " tokens; it has ", count);
  }

  std::int32_t id(const char* key, std::int32_t otherwise = kNone) const {
    const auto value = file_.integer(key);
    if (!value) return otherwise;
    // Some files say -1 for "none".
    if (*value == -1 || *value == 0xFFFFFFFF) return kNone;
    if (*value < 0 || *value >= std::ssize(tokens_)) {
      fail(key, " must be one of the ", tokens_.size(), " tokens; it is ",
           *value);
    }
    return static_cast<std::int32_t>(*value);
  }

  SpecialIds special() const {
    SpecialIds ids;
    ids.unknown = id("tokenizer.ggml.unknown_token_id");
    ids.begin = id("tokenizer.ggml.bos_token_id");
    ids.end = id("tokenizer.ggml.eos_token_id");
    ids.padding = id("tokenizer.ggml.padding_token_id");
    ids.mask = id("tokenizer.ggml.mask_token_id");
    ids.classify = id("tokenizer.ggml.cls_token_id");
    ids.separator = id("tokenizer.ggml.seperator_token_id");
    return ids;
  }

  // Control tokens and those that a user named are found in any text.
  AddedTokens added() const {
    std::vector<AddedToken> tokens;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool special =
          types_[i] == Type::kControl || types_[i] == Type::kUnk;
      if (!special && types_[i] != Type::kUserDefined) continue;
      AddedToken token;
      token.id = static_cast<std::int32_t>(i);
      token.content = tokens_[i];
      token.special = special;
      if (!token.content.empty()) tokens.push_back(std::move(token));
    }
    return {std::move(tokens), nullptr};
  }

  PostProcessor begin_and_end(const SpecialIds& ids, bool begin,
                              bool end) const {
    using Part = PostProcessor::Part;
    begin = file_.flag("tokenizer.ggml.add_bos_token").value_or(begin) &&
            ids.begin != kNone;
    end = file_.flag("tokenizer.ggml.add_eos_token").value_or(end) &&
          ids.end != kNone;
    std::vector<Part> single, pair;
    for (const bool second : {false, true}) {
      const std::int32_t type = second ? 1 : 0;
      if (begin) pair.push_back({Part::kToken, ids.begin, type});
      pair.push_back({second ? Part::kSecond : Part::kFirst, 0, type});
      if (end) pair.push_back({Part::kToken, ids.end, type});
      if (!second) single = pair;
    }
    return {std::move(single), std::move(pair)};
  }

  PipelineParts byte_level() const {
    const std::string_view pre =
        file_.text("tokenizer.ggml.pre").value_or("gpt-2");
    const ByteLevelKind* kind = nullptr;
    for (const ByteLevelKind& known : byte_level_kinds()) {
      for (const std::string_view name : known.names) {
        if (name == pre) kind = &known;
      }
    }
    if (kind == nullptr) {
      fail("tokenizer.ggml.pre names a pre-tokenizer that is not known: ",
           io::in_quotes(pre));
    }
    Json steps = Json::array();
    if (kind->digits_alone) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    }
    if (kind->pattern != nullptr) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", kind->pattern}}},
                       {"behavior", "Isolated"}});
    }
    steps.push_back(
        {{"type", "ByteLevel"},
         {"add_prefix_space",
          file_.flag("tokenizer.ggml.add_space_prefix").value_or(false)},
         {"use_regex", kind->pattern == nullptr}});
    const Json pre_tokenizer = {{"type", "Sequence"},
                                {"pretokenizers", std::move(steps)}};
    const Json compose = {{"type", "NFC"}}, decoder = {{"type", "ByteLevel"}};
    PipelineParts parts;
    parts.special = special();
    if (kind->compose) {
      parts.normalizer = make_normalizer(Field(compose, where_));
    }
    bool bytes = true;
    parts.pre_tokenizer =
        make_pre_tokenizer(Field(pre_tokenizer, where_), bytes);
    parts.vocabulary = std::make_unique<Vocabulary>(tokens_);
    BpeOptions options;
    options.byte_level = bytes;
    options.ignore_merges = kind->ignore_merges;
    parts.model =
        make_bpe(*parts.vocabulary, merges(*parts.vocabulary), options);
    parts.decoder = make_decoder(Field(decoder, where_));
    parts.added = added();
    parts.post_processor = begin_and_end(parts.special, false, false);
    return parts;
  }

  std::vector<MergeRule> merges(const Vocabulary& vocabulary) const {
    const auto lines = file_.texts("tokenizer.ggml.merges");
    if (!lines) fail("the tokenizer needs tokenizer.ggml.merges");
    std::vector<MergeRule> rules;
    std::string joined;
    for (const std::string_view line : *lines) {
      // The first blank that stands alone: a piece may be one.
      const std::size_t blank = line.find(' ', 1);
      const auto left = line.substr(0, std::min(blank, line.size()));
      const auto right = blank == std::string_view::npos
                             ? std::string_view()
                             : line.substr(blank + 1);
      joined.assign(left).append(right);
      const std::int32_t ids[] = {vocabulary.find(left), vocabulary.find(right),
                                  vocabulary.find(joined)};
      for (const std::int32_t found : ids) {
        if (found == kNone) {
          fail("tokenizer.ggml.merges must join tokens into a token; number ",
               rules.size(), " is ", io::in_quotes(line));
        }
      }
      rules.push_back(
          {ids[0], ids[1], {static_cast<std::uint32_t>(rules.size()), ids[2]}});
    }
    return rules;
  }

  // llama: BPE by scores, text as it is; t5: unigram, normalized.
  PipelineParts sentencepiece(bool bpe) const {
    SentencePieceModel model;
    model.kind = bpe ? SentencePieceModel::Kind::kBpe
                     : SentencePieceModel::Kind::kUnigram;
    model.pieces = tokens_;
    model.types = types_;
    const auto scores = file_.reals("tokenizer.ggml.scores");
    if (!scores) fail("the tokenizer needs tokenizer.ggml.scores");
    check_count("tokenizer.ggml.scores", scores->size());
    model.scores = *scores;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      model.byte_fallback = model.byte_fallback || types_[i] == Type::kByte;
      // User-defined ones are added tokens, and those with a bad length or no
      // use are never met.
      if (types_[i] == Type::kUserDefined || types_[i] == Type::kUnused ||
          tokens_[i].empty()) {
        model.types[i] = Type::kControl;
        if (tokens_[i].empty()) {
          model.pieces[i] = "<empty" + std::to_string(i) + ">";
        }
      }
    }
    model.special = special();
    if (model.special.unknown == kNone) {
      model.special.unknown = 0;
    }
    model.unknown_text = "";
    SentencePieceNormalizerOptions& normalizer = model.normalizer;
    normalizer.add_dummy_prefix =
        file_.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    normalizer.remove_extra_whitespaces =
        file_.flag("tokenizer.ggml.remove_extra_whitespaces").value_or(!bpe);
    if (const auto map =
            file_.integers("tokenizer.ggml.precompiled_charsmap")) {
      for (const std::int64_t byte : *map) {
        normalizer.charsmap.push_back(static_cast<char>(byte));
      }
    }
    PipelineParts parts = sentencepiece_parts(std::move(model), where_);
    parts.control.clear();
    parts.added = added();
    parts.post_processor = begin_and_end(parts.special, bpe, !bpe);
    return parts;
  }

  // The pieces that start a word begin with U+2581 here, and the others with
  // nothing.
  PipelineParts word_piece() const {
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string& token = tokens_[i];
      if (types_[i] != Type::kNormal) {
        pieces.push_back(token);
      } else if (token.starts_with(kBlank)) {
        pieces.push_back(token.substr(kBlank.size()));
      } else {
        pieces.push_back("##" + token);
      }
    }
    PipelineParts parts;
    parts.special = special();
    const auto known = [&](std::int32_t& id, const char* piece) {
      if (id == kNone) id = parts.vocabulary->find(piece);
      if (id == kNone) {
        fail("a tokenizer of the kind bert needs the token ", piece);
      }
    };
    parts.vocabulary = std::make_unique<Vocabulary>(std::move(pieces));
    known(parts.special.unknown, "[UNK]");
    known(parts.special.classify, "[CLS]");
    known(parts.special.separator, "[SEP]");
    const Json normalizer = {{"type", "BertNormalizer"}},
               pre_tokenizer = {{"type", "BertPreTokenizer"}},
               decoder = {{"type", "WordPiece"}};
    parts.normalizer = make_normalizer(Field(normalizer, where_));
    bool bytes = false;
    parts.pre_tokenizer =
        make_pre_tokenizer(Field(pre_tokenizer, where_), bytes);
    parts.model =
        make_word_piece(*parts.vocabulary, {.unknown = parts.special.unknown});
    parts.decoder = make_decoder(Field(decoder, where_));
    parts.added = added();
    const Json post = {
        {"type", "BertProcessing"},
        {"cls", Json::array({"[CLS]", parts.special.classify})},
        {"sep", Json::array({"[SEP]", parts.special.separator})}};
    parts.post_processor =
        PostProcessor(Field(post, where_), parts.vocabulary->size());
    return parts;
  }

  const GgufFile& file_;
  std::string where_;
  std::vector<std::string> tokens_;
  std::vector<Type> types_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file) {
  return Reader(file).read();
}

}  // namespace regard::text
