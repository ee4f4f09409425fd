// SPDX-License-Identifier: Apache-2.0
#include "text/post_processors.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace regard::text {
namespace {

using Part = PostProcessor::Part;

Part token(std::int32_t id, std::int32_t type = 0) {
  return {Part::kToken, id, type};
}

std::int32_t checked_id(const Field& field, std::int32_t vocab) {
  const std::int32_t id = field.id();
  if (id >= vocab) field.expect("the number of a piece");
  return id;
}

std::vector<Part> read_template(
    const Field& list,
    const std::unordered_map<std::string, std::vector<std::int32_t>>& tokens) {
  std::vector<Part> parts;
  list.for_each([&](const Field& part) {
    const bool is_token = part.has("SpecialToken");
    const Field inner = part[is_token ? "SpecialToken" : "Sequence"];
    const std::int32_t type = inner.has("type_id") ? inner["type_id"].id() : 0;
    const std::string& name = inner["id"].text();
    if (is_token) {
      const auto found = tokens.find(name);
      if (found == tokens.end()) {
        inner["id"].fail("is none of the special tokens: ",
                         io::in_quotes(name));
      }
      for (const std::int32_t id : found->second) {
        parts.push_back(token(id, type));
      }
    } else if (name == "A" || name == "B") {
      parts.push_back({name == "A" ? Part::kFirst : Part::kSecond, 0, type});
    } else {
      inner["id"].expect("A or B");
    }
  });
  return parts;
}

void cut(Encoding& encoding, std::size_t length) {
  if (encoding.ids.size() <= length) return;
  encoding.ids.resize(length);
  encoding.words.resize(length);
  if (!encoding.offsets.empty()) encoding.offsets.resize(length);
}

}  // namespace

PostProcessor::PostProcessor()
    : single_{{Part::kFirst, 0, 0}},
      pair_{{Part::kFirst, 0, 0}, {Part::kSecond, 0, 1}} {}

PostProcessor::PostProcessor(const Field& field, std::int32_t vocab)
    : PostProcessor() {
  if (!field.is_null()) read(field, vocab);
}

PostProcessor::PostProcessor(std::vector<Part> single, std::vector<Part> pair)
    : single_(std::move(single)), pair_(std::move(pair)) {}

void PostProcessor::read(const Field& field, std::int32_t vocab) {
  const std::string& type = field["type"].text();
  if (type == "Sequence") {
    field["processors"].for_each([&](const Field& part) { read(part, vocab); });
  } else if (type == "ByteLevel") {
    trims_ = field.flag("trim_offsets", true);
    keeps_first_blank_ = field.flag("add_prefix_space", true);
  } else if (type == "TemplateProcessing") {
    std::unordered_map<std::string, std::vector<std::int32_t>> tokens;
    const Field list = field["special_tokens"];
    for (const std::string& name : list.keys()) {
      list[name.c_str()]["ids"].for_each([&](const Field& id) {
        tokens[name].push_back(checked_id(id, vocab));
      });
    }
    single_ = read_template(field["single"], tokens);
    if (field.has("pair")) pair_ = read_template(field["pair"], tokens);
    if (std::any_of(single_.begin(), single_.end(), [](const Part& part) {
          return part.kind == Part::kSecond;
        })) {
      field["single"].fail("must not have a second text");
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const std::int32_t cls = checked_id(field["cls"].element(1), vocab);
    const std::int32_t sep = checked_id(field["sep"].element(1), vocab);
    const Part first{Part::kFirst, 0, 0};
    single_ = {token(cls), first, token(sep)};
    if (type == "BertProcessing") {
      pair_ = {
          token(cls), first, token(sep), {Part::kSecond, 0, 1}, token(sep, 1)};
    } else {
      pair_ = {token(cls), first, token(sep), token(sep), {Part::kSecond, 0, 0},
               token(sep)};
      trims_ = field.flag("trim_offsets", true);
      keeps_first_blank_ = field.flag("add_prefix_space", true);
    }
  } else {
    field.unknown_kind("post-processor");
  }
}

Encoding PostProcessor::join(Encoding first, Encoding* second,
                             const EncodeOptions& options) const {
  const std::vector<Part>& parts = second == nullptr ? single_ : pair_;
  const auto added = options.add_special_tokens
                         ? std::count_if(parts.begin(), parts.end(),
                                         [](const Part& part) {
                                           return part.kind == Part::kToken;
                                         })
                         : 0;
  require(options.max_length >= 0, "Tokenizer::encode",
          "max_length must not be negative; it is ", options.max_length);
  if (options.max_length > 0) {
    require(options.max_length > added, "Tokenizer::encode",
            "max_length must leave room beside ", added,
            " special tokens; it is ", options.max_length);
    // One piece of the longer text after the other, the first of equals last.
    const auto room = static_cast<std::size_t>(options.max_length - added);
    std::size_t a = first.ids.size();
    std::size_t b = second == nullptr ? 0 : second->ids.size();
    if (a + b > room) {
      const std::size_t half = room / 2;
      if (a <= b) {
        a = std::min(a, std::max(half, room - std::min(b, room)));
        b = room - a;
      } else {
        b = std::min(b, std::max(half, room - std::min(a, room)));
        a = room - b;
      }
    }
    cut(first, a);
    if (second != nullptr) cut(*second, b);
  }
  Encoding joined;
  for (const Part& part : parts) {
    if (part.kind == Part::kToken) {
      if (!options.add_special_tokens) continue;
      joined.ids.push_back(part.id);
      joined.words.push_back(-1);
      joined.types.push_back(part.type);
      if (options.offsets) joined.offsets.push_back({0, 0});
      continue;
    }
    const Encoding& text = part.kind == Part::kFirst ? first : *second;
    joined.ids.insert(joined.ids.end(), text.ids.begin(), text.ids.end());
    joined.words.insert(joined.words.end(), text.words.begin(),
                        text.words.end());
    joined.types.insert(joined.types.end(), text.ids.size(), part.type);
    joined.offsets.insert(joined.offsets.end(), text.offsets.begin(),
                          text.offsets.end());
  }
  return joined;
}

}  // namespace regard::text
