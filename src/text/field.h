// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/quote.h"
#include "json/json.h"
#include "regard/core/error.h"

namespace regard::text {

// A value of a JSON file, which knows its place: every error names the file,
// the field and what was expected. Borrows the value.
class Field {
 public:
  Field(const Json& value, std::string where, std::string path = "")
      : value_(&value), where_(std::move(where)), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  bool is_null() const;
  bool is_text() const;
  bool is_object() const;
  bool is_array() const;
  std::size_t size() const;  // of an object or an array

  bool has(const char* key) const;  // a member that is there and not null?
  Field operator[](const char* key) const;
  std::vector<std::string> keys() const;
  Field element(std::size_t i) const;
  template <typename Visit>
  void for_each(const Visit& visit) const {
    if (!is_array()) expect("an array");
    for (std::size_t i = 0; i < size(); ++i) visit(element(i));
  }

  const std::string& text() const;
  bool flag() const;
  double real() const;
  std::int32_t id() const;     // of a piece
  std::int64_t count() const;  // not negative

  bool flag(const char* key, bool otherwise) const {
    return has(key) ? (*this)[key].flag() : otherwise;
  }
  std::string text(const char* key, std::string_view otherwise) const {
    return has(key) ? (*this)[key].text() : std::string(otherwise);
  }

  // "'tokenizer.json': model.vocab must be an object; it is [1,2]"
  [[noreturn]] void expect(const char* what) const;
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_parse_error(where_.c_str(), path_.empty() ? "the file" : path_, " ",
                      parts...);
  }
  [[noreturn]] void unknown_kind(const char* what) const {
    (*this)["type"].fail("is a kind of ", what, " that is not known: ",
                         io::in_quotes((*this)["type"].text()));
  }

 private:
  const Json* value_;
  std::string where_, path_;
};

}  // namespace regard::text
