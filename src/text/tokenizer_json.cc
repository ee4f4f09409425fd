// SPDX-License-Identifier: Apache-2.0
// Hugging Face's files: tokenizer.json, and what came before it.
#include <algorithm>
#include <utility>

#include "json/json.h"
#include "text/pipeline.h"
#include "text/side_files.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

// Numbers may have gaps, but not so many that a small file takes much memory.
std::vector<std::string> pieces_by_id(const Field& vocab) {
  if (!vocab.json().is_object()) vocab.expect("an object");
  const auto most =
      static_cast<std::int64_t>(4 * vocab.json().size() + (1 << 16));
  std::vector<std::string> pieces;
  for (const auto& [piece, value] : vocab.json().items()) {
    if (!value.is_integer() || value.get<std::int64_t>() < 0 ||
        value.get<std::int64_t>() >= most) {
      vocab.fail("must number its pieces from 0 on; ", io::in_quotes(piece),
                 " has ", value.dump());
    }
    const auto id = value.get<std::size_t>();
    if (id >= pieces.size()) pieces.resize(id + 1);
    pieces[id] = piece;
  }
  return pieces;
}

std::int32_t id_of_piece(const Vocabulary& vocabulary, const Field& field) {
  const std::int32_t id = vocabulary.find(field.text());
  if (id == kNone) {
    field.fail("must be one of the pieces; it is ",
               io::in_quotes(field.text()));
  }
  return id;
}

// "left right", or [left, right].
std::vector<MergeRule> read_merges(const Field& merges,
                                   const Vocabulary& vocabulary,
                                   std::size_t prefix) {
  std::vector<MergeRule> rules;
  std::string joined;
  const auto find = [&](const Field& at, std::string_view piece) {
    const std::int32_t id = vocabulary.find(piece);
    if (id == kNone) {
      at.fail("must join pieces into a piece; ", io::in_quotes(piece),
              " is none");
    }
    return id;
  };
  merges.for_each([&](const Field& merge) {
    std::string_view left, right;
    if (merge.is_text()) {
      const std::string_view both = merge.text();
      const std::size_t blank = both.find(' ');
      if (blank == std::string_view::npos ||
          both.find(' ', blank + 1) != std::string_view::npos) {
        merge.expect("two pieces with a blank between them");
      }
      left = both.substr(0, blank);
      right = both.substr(blank + 1);
    } else {
      if (merge.size() != 2) merge.expect("two pieces");
      left = merge.element(0).text();
      right = merge.element(1).text();
    }
    if (right.size() < prefix) merge.expect("two pieces with the prefix");
    joined.assign(left).append(right.substr(prefix));
    rules.push_back(
        {find(merge, left),
         find(merge, right),
         {static_cast<std::uint32_t>(rules.size()), find(merge, joined)}});
  });
  return rules;
}

// Files of before the field have none; they are told by what they hold.
std::string kind_of_model(const Field& model) {
  if (model.has("type")) return model["type"].text();
  if (model.has("merges")) return "BPE";
  if (model.has("continuing_subword_prefix")) return "WordPiece";
  if (model.has("vocab") && model["vocab"].is_array()) return "Unigram";
  return "WordLevel";
}

void read_bpe(const Field& model, bool byte_level, PipelineParts& parts) {
  parts.vocabulary = std::make_unique<Vocabulary>(pieces_by_id(model["vocab"]));
  BpeOptions options;
  if (model.has("unk_token")) {
    options.unknown = id_of_piece(*parts.vocabulary, model["unk_token"]);
  }
  if (model.has("dropout") && model["dropout"].real() != 0) {
    model["dropout"].fail("must be 0: text is always cut in the same way");
  }
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.byte_fallback = model.flag("byte_fallback", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  options.prefix = model.text("continuing_subword_prefix", "");
  options.suffix = model.text("end_of_word_suffix", "");
  options.byte_level = byte_level;
  const auto rules =
      read_merges(model["merges"], *parts.vocabulary, options.prefix.size());
  parts.special.unknown = options.unknown;
  parts.model = make_bpe(*parts.vocabulary, rules, options);
}

void read_unigram(const Field& model, PipelineParts& parts) {
  std::vector<std::string> pieces;
  std::vector<double> scores;
  model["vocab"].for_each([&](const Field& entry) {
    pieces.push_back(entry.element(0).text());
    scores.push_back(entry.element(1).real());
  });
  UnigramOptions options;
  if (model.has("unk_id")) {
    options.unknown = model["unk_id"].id();
    if (options.unknown >= std::ssize(pieces)) {
      model["unk_id"].expect("the number of a piece");
    }
  }
  options.byte_fallback = model.flag("byte_fallback", false);
  parts.special.unknown = options.unknown;
  parts.vocabulary = std::make_unique<Vocabulary>(std::move(pieces));
  parts.model = make_unigram(*parts.vocabulary, std::move(scores), options);
}

void read_model(const Field& model, bool byte_level, PipelineParts& parts) {
  const std::string kind = kind_of_model(model);
  if (kind == "BPE") return read_bpe(model, byte_level, parts);
  if (kind == "Unigram") return read_unigram(model, parts);
  if (kind != "WordPiece" && kind != "WordLevel") model.unknown_kind("model");
  parts.vocabulary = std::make_unique<Vocabulary>(pieces_by_id(model["vocab"]));
  if (kind == "WordLevel") {
    // It may name a piece that is not there: then unknown words are left out.
    parts.special.unknown = parts.vocabulary->find(model.text("unk_token", ""));
    parts.model = make_word_level(*parts.vocabulary, parts.special.unknown);
    return;
  }
  WordPieceOptions options;
  options.unknown = id_of_piece(*parts.vocabulary, model["unk_token"]);
  options.prefix = model.text("continuing_subword_prefix", "##");
  if (model.has("max_input_chars_per_word")) {
    options.longest_word = model["max_input_chars_per_word"].count();
  }
  parts.special.unknown = options.unknown;
  parts.model = make_word_piece(*parts.vocabulary, options);
}

void read_added(const Field& list, PipelineParts& parts) {
  std::vector<AddedToken> tokens;
  const auto most = parts.vocabulary->size() + (1 << 16) +
                    4 * static_cast<std::int64_t>(list.size());
  list.for_each([&](const Field& field) {
    AddedToken token;
    token.content = field["content"].text();
    if (token.content.empty()) return;
    token.id = parts.vocabulary->find(token.content);
    if (token.id == kNone) token.id = field["id"].id();
    if (token.id >= most) field["id"].expect("a number near the others");
    token.special = field.flag("special", false);
    token.single_word = field.flag("single_word", false);
    token.lstrip = field.flag("lstrip", false);
    token.rstrip = field.flag("rstrip", false);
    token.normalized = field.flag("normalized", !token.special);
    tokens.push_back(std::move(token));
  });
  parts.added = AddedTokens(std::move(tokens), parts.normalizer.get());
}

// A special piece is written as text, or as an object with its flags.
std::string special_text(const SideFiles& side, const char* key) {
  for (const Json* file : {&side.config, &side.special}) {
    const Field field(*file, side.where);
    if (!field.has(key)) continue;
    const Field value = field[key];
    return value.is_object() ? value["content"].text() : value.text();
  }
  return "";
}

void name_special(const SideFiles& side, PipelineParts& parts) {
  const auto name = [&](const char* key, std::int32_t& id) {
    const std::string text = special_text(side, key);
    if (text.empty()) return;
    const std::int32_t known = parts.vocabulary->find(text);
    if (known != kNone) id = known;
    for (const AddedToken& token : parts.added.tokens()) {
      if (token.content == text) id = token.id;
    }
  };
  name("unk_token", parts.special.unknown);
  name("bos_token", parts.special.begin);
  name("eos_token", parts.special.end);
  name("pad_token", parts.special.padding);
  name("mask_token", parts.special.mask);
  name("cls_token", parts.special.classify);
  name("sep_token", parts.special.separator);
}

std::unique_ptr<Tokenizer> from_json(const Json& json, const std::string& where,
                                     const SideFiles& side, Save save) {
  const Field file(json, where);
  const Json null;
  const auto part = [&](const char* key) {
    return file.has(key) ? file[key] : Field(null, where, key);
  };
  PipelineParts parts;
  parts.normalizer = make_normalizer(part("normalizer"));
  // Only BPE without marks of its own can take bytes as they are.
  const Field model = file["model"];
  bool byte_level = kind_of_model(model) == "BPE" &&
                    !model.flag("byte_fallback", false) &&
                    model.text("continuing_subword_prefix", "").empty() &&
                    model.text("end_of_word_suffix", "").empty();
  parts.pre_tokenizer = make_pre_tokenizer(part("pre_tokenizer"), byte_level);
  read_model(model, byte_level, parts);
  if (file.has("added_tokens")) read_added(file["added_tokens"], parts);
  std::int32_t size = parts.vocabulary->size();
  for (const AddedToken& token : parts.added.tokens()) {
    size = std::max(size, token.id + 1);
  }
  parts.post_processor = PostProcessor(part("post_processor"), size);
  parts.decoder = make_decoder(part("decoder"));
  name_special(side, parts);
  parts.save = std::move(save);
  return make_pipeline(std::move(parts));
}

Json added_token(const std::string& content) {
  return {{"content", content}, {"special", true}, {"normalized", false}};
}

// Lines without their ends; \r\n is one.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw_parse_error(where.c_str(), "the file ", error.what());
  }
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text,
                                                const std::string& where,
                                                const SideFiles& side,
                                                Save save) {
  return from_json(parse_json(text, where), where, side, std::move(save));
}

std::unique_ptr<Tokenizer> parse_vocab_txt(std::string_view text,
                                           const std::string& where,
                                           const SideFiles& side, Save save) {
  const Field config(side.config, side.where);
  const auto or_else = [&](const char* key, const char* otherwise) {
    const std::string given = special_text(side, key);
    return given.empty() ? std::string(otherwise) : given;
  };
  const std::string cls = or_else("cls_token", "[CLS]");
  const std::string sep = or_else("sep_token", "[SEP]");
  const std::string unk = or_else("unk_token", "[UNK]");
  Json vocab = Json::object();
  std::size_t id = 0;
  for (std::string& line : lines_of(text)) vocab[std::move(line)] = id++;
  for (const std::string& piece : {cls, sep, unk}) {
    if (!vocab.contains(piece)) {
      throw_parse_error(where.c_str(), "the vocabulary must have the piece ",
                        io::in_quotes(piece));
    }
  }
  Json added = Json::array();
  for (const std::string& piece : {or_else("pad_token", "[PAD]"), unk, cls, sep,
                                   or_else("mask_token", "[MASK]")}) {
    if (vocab.contains(piece)) added.push_back(added_token(piece));
  }
  Json normalizer = {
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
      {"lowercase", config.flag("do_lower_case", true)}};
  if (config.has("strip_accents")) {
    normalizer["strip_accents"] = config["strip_accents"].flag();
  }
  const Json json = {{"added_tokens", std::move(added)},
                     {"normalizer", std::move(normalizer)},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"post_processor",
                      {{"type", "BertProcessing"},
                       {"cls", {cls, vocab[cls]}},
                       {"sep", {sep, vocab[sep]}}}},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", unk},
                       {"continuing_subword_prefix", "##"},
                       {"vocab", std::move(vocab)}}}};
  SideFiles named = side;
  if (named.special.is_null()) named.special = Json::object();
  const auto note = [&](const char* key, const std::string& piece) {
    if (special_text(side, key).empty()) named.special[key] = piece;
  };
  note("cls_token", cls);
  note("sep_token", sep);
  note("pad_token", "[PAD]");
  note("mask_token", "[MASK]");
  return from_json(json, where, named, std::move(save));
}

std::unique_ptr<Tokenizer> parse_vocab_and_merges(std::string_view vocab,
                                                  std::string_view merges,
                                                  const std::string& where,
                                                  const SideFiles& side,
                                                  Save save) {
  Json rules = Json::array();
  for (std::string& line : lines_of(merges)) {
    if (line.empty() || line.starts_with("#version")) continue;
    rules.push_back(std::move(line));
  }
  Json pieces = parse_json(vocab, where);
  const Field config(side.config, side.where);
  const bool prefix = config.flag("add_prefix_space", false);
  Json added = Json::array();
  for (const char* key : {"bos_token", "eos_token", "unk_token", "cls_token",
                          "sep_token", "pad_token", "mask_token"}) {
    const std::string piece = special_text(side, key);
    if (piece.empty() || !pieces.contains(piece)) continue;
    Json token = added_token(piece);
    // As RoBERTa has it: a mask takes the blank before it.
    token["lstrip"] = std::string_view(key) == "mask_token";
    added.push_back(std::move(token));
  }
  Json post = {{"type", "ByteLevel"},
               {"add_prefix_space", prefix},
               {"trim_offsets", false}};
  const std::string cls = special_text(side, "cls_token");
  const std::string sep = special_text(side, "sep_token");
  if (pieces.contains(cls) && pieces.contains(sep)) {
    post = {{"type", "RobertaProcessing"},
            {"cls", {cls, pieces[cls]}},
            {"sep", {sep, pieces[sep]}},
            {"trim_offsets", true},
            {"add_prefix_space", prefix}};
  }
  const Json json = {
      {"added_tokens", std::move(added)},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", prefix}}},
      {"post_processor", std::move(post)},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", std::move(pieces)},
        {"merges", std::move(rules)}}}};
  return from_json(json, where, side, std::move(save));
}

}  // namespace regard::text
