// SPDX-License-Identifier: Apache-2.0
#include "json/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/escaped.h"

namespace regard {
namespace {

using Parser = nlohmann::json;

// What the parser tells becomes a Json. Values are complete when their parent
// takes them: open_ holds what is not.
class Builder {
 public:
  Json root;
  std::string error;

  bool null() { return take(Json()); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(std::int64_t value) { return take(value); }
  bool number_unsigned(std::uint64_t value) { return take(value); }
  bool number_float(double value, const std::string&) { return take(value); }
  bool string(std::string& value) { return take(std::move(value)); }
  bool binary(Parser::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& what) {
    // "[json.exception.parse_error.101] " stands before what is wrong.
    const std::string_view text = what.what();
    const std::size_t mark = text.find("] ");
    return refuse(text.substr(mark == std::string_view::npos ? 0 : mark + 2));
  }

  bool read(std::string_view text) {
    // The parser takes a zero byte for the end of the text.
    if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
      return refuse("byte " + std::to_string(zero + 1) + " is 0");
    }
    return Parser::sax_parse(text.begin(), text.end(), this);
  }

 private:
  struct Open {
    Json value;
    std::string key;  // of the member that comes, in an object
  };

  bool refuse(std::string_view why) {
    error = "must be JSON: ";
    error += regard::detail::escaped(why);  // it quotes the text
    return false;
  }
  bool open(Json value) {
    if (open_.size() == Json::kDeepest) {
      error =
          "may be nested " + std::to_string(Json::kDeepest) + " deep at most";
      return false;
    }
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return take(std::move(value));
  }
  bool take(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (Open& parent = open_.back(); parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else {
      parent.value[parent.key] = std::move(value);
    }
    return true;
  }

  std::vector<Open> open_;
};

// Texts and real numbers as the parser's library writes them.
std::string leaf(const Parser& value, const Json::DumpOptions& options) {
  try {
    return value.dump(-1, ' ', options.ascii,
                      options.replace_invalid
                          ? Parser::error_handler_t::replace
                          : Parser::error_handler_t::strict);
  } catch (const Parser::exception&) {
    throw JsonError("a text is not UTF-8");
  }
}

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Json> list) {
  const bool members = std::all_of(list.begin(), list.end(), [](const Json& j) {
    return j.is_array() && j.size() == 2 && j[0].is_string();
  });
  if (!members) {
    auto& values = value_.emplace<std::vector<Json>>();
    for (const Json& value : list) values.push_back(value.take());
    return;
  }
  value_.emplace<Members>();
  for (const Json& member : list) {
    (*this)[member[0].text()] = member[1].take();
  }
}

Json Json::array() { return array({}); }
Json Json::array(std::initializer_list<Json> values) {
  Json json;
  json.assign(values.begin(), values.end());
  return json;
}
Json Json::object() {
  Json json;
  json.value_.emplace<Members>();
  return json;
}

Json Json::parse(std::string_view text) {
  Builder builder;
  if (!builder.read(text)) throw JsonError(builder.error);
  return std::move(builder.root);
}
Json Json::parse_or_null(std::string_view text) {
  Builder builder;
  return builder.read(text) ? std::move(builder.root) : Json();
}

bool Json::is_null() const {
  return std::holds_alternative<std::nullptr_t>(value_);
}
bool Json::is_boolean() const { return std::holds_alternative<bool>(value_); }
bool Json::is_integer() const {
  return std::holds_alternative<std::int64_t>(value_) ||
         std::holds_alternative<std::uint64_t>(value_);
}
bool Json::is_number() const {
  return is_integer() || std::holds_alternative<double>(value_);
}
bool Json::is_string() const {
  return std::holds_alternative<std::string>(value_);
}
bool Json::is_array() const {
  return std::holds_alternative<std::vector<Json>>(value_);
}
bool Json::is_object() const { return std::holds_alternative<Members>(value_); }

void Json::set_unsigned(std::uint64_t number) {
  if (number <= std::numeric_limits<std::int64_t>::max()) {
    value_.emplace<std::int64_t>(static_cast<std::int64_t>(number));
  } else {
    value_.emplace<std::uint64_t>(number);
  }
}

const char* Json::type_name() const {
  constexpr std::array kTypes = {"null",   "boolean", "number", "number",
                                 "number", "string",  "array",  "object"};
  return kTypes[value_.index()];
}

void Json::fail(const char* wanted) const {
  throw JsonError(std::string("a value must be ") + wanted +
                  "; it is of the type " + type_name());
}

Json Json::take() const {
  Json json;
  json.value_ = std::move(value_);
  return json;
}

bool Json::boolean() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  fail("true or false");
}

std::int64_t Json::integer() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  if (std::holds_alternative<std::uint64_t>(value_)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  fail("an integer");
}

double Json::real() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) {
    return static_cast<double>(*value);
  }
  fail("a number");
}

const std::string& Json::text() const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  fail("a text");
}

std::size_t Json::size() const {
  if (is_array()) return std::get<std::vector<Json>>(value_).size();
  return items().size();
}
const Json* Json::begin() const {
  return is_array() ? std::get<std::vector<Json>>(value_).data() : nullptr;
}
const Json* Json::end() const {
  return is_array() ? begin() + size() : nullptr;
}
const Json& Json::operator[](std::size_t i) const {
  if (!is_array() || i >= size()) fail("an array with more elements");
  return begin()[i];
}
void Json::push_back(Json value) {
  if (is_null()) value_.emplace<std::vector<Json>>();
  if (!is_array()) fail("an array");
  std::get<std::vector<Json>>(value_).push_back(std::move(value));
}

const Json::Object& Json::items() const {
  static const Object none;
  const Members* const members = std::get_if<Members>(&value_);
  return members == nullptr ? none : members->values;
}
const Json* Json::find(std::string_view key) const {
  const auto found = items().find(key);
  return found == items().end() ? nullptr : &found->second;
}
const Json& Json::at(std::string_view key) const {
  if (const Json* found = find(key)) return *found;
  if (!is_object()) fail("an object");
  throw JsonError("there is no member '" + std::string(key) + "'");
}
Json& Json::operator[](const std::string& key) {
  if (is_null()) value_.emplace<Members>();
  if (!is_object()) fail("an object");
  Members& members = std::get<Members>(value_);
  const auto [place, is_new] = members.values.try_emplace(key);
  if (is_new) members.written.push_back(key);
  return place->second;
}
void Json::update(const Json& members) {
  const Members* const from = std::get_if<Members>(&members.value_);
  if (from == nullptr) members.fail("an object");
  for (const std::string& key : from->written) {
    (*this)[key] = from->values.at(key);
  }
}

std::string Json::dump(const DumpOptions& options) const {
  std::string out;
  dump_to(out, options, 0);
  return out;
}

void Json::dump_to(std::string& out, const DumpOptions& options,
                   int depth) const {
  const auto new_line = [&](int deep) {
    if (options.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(deep * options.indent), ' ');
  };
  if (const auto* values = std::get_if<std::vector<Json>>(&value_)) {
    out += '[';
    for (const Json& value : *values) {
      if (&value != values->data()) out += ',';
      new_line(depth + 1);
      value.dump_to(out, options, depth + 1);
    }
    if (!values->empty()) new_line(depth);
    out += ']';
  } else if (const auto* members = std::get_if<Members>(&value_)) {
    out += '{';
    bool first = true;
    const auto write = [&](const std::string& key, const Json& value) {
      if (!std::exchange(first, false)) out += ',';
      new_line(depth + 1);
      out += leaf(key, options) + (options.indent < 0 ? ":" : ": ");
      value.dump_to(out, options, depth + 1);
    };
    if (options.keys == Keys::kSorted) {
      for (const auto& [key, value] : members->values) write(key, value);
    } else {
      for (const std::string& key : members->written) {
        write(key, members->values.find(key)->second);
      }
    }
    if (!first) new_line(depth);
    out += '}';
  } else if (is_string()) {
    out += leaf(text(), options);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    out += leaf(*number, options);
  } else if (const auto* large = std::get_if<std::uint64_t>(&value_)) {
    out += std::to_string(*large);
  } else if (is_integer()) {
    out += std::to_string(integer());
  } else if (is_boolean()) {
    out += boolean() ? "true" : "false";
  } else {
    out += "null";
  }
}

}  // namespace regard
