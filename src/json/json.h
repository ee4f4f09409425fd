// SPDX-License-Identifier: Apache-2.0
// JSON behind an interface of our own: json.cc alone includes
// nlohmann/json.hpp, which takes a compiler one to three seconds in every file
// that uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace regard {

// A text that is no JSON, a member that is missing, or a value of another type.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A value: null, true or false, an integer, a real number, a text, an array or
// an object.
//
//   const Json line = {{"word", word}, {"ids", {1, 2}}};
//   line.dump();                      // {"ids":[1,2],"word":"tea"}
//   line.at("ids")[1].get<int>();     // 2
//
// A list in braces is an object if each of its elements is a list of two whose
// first is a text, as above; otherwise an array.
class Json {
 public:
  using Object = std::map<std::string, Json, std::less<>>;
  enum class Keys { kSorted, kAsWritten };
  struct DumpOptions {
    int indent = -1;  // -1: on one line
    Keys keys = Keys::kSorted;
    bool ascii = false;  // escapes for all others
    // Bytes that are not UTF-8 become U+FFFD; otherwise they are a JsonError.
    bool replace_invalid = false;
  };

  Json();  // null
  Json(std::nullptr_t);
  template <typename T>
  requires std::is_arithmetic_v<T> Json(T number) {
    if constexpr (std::is_same_v<T, bool>) {
      value_.emplace<bool>(number);
    } else if constexpr (std::is_floating_point_v<T>) {
      value_.emplace<double>(number);
    } else if constexpr (std::is_signed_v<T>) {
      value_.emplace<std::int64_t>(number);
    } else {
      set_unsigned(number);
    }
  }
  Json(const char* text);
  Json(std::string text);
  Json(std::string_view text);
  template <typename T>
  Json(const std::vector<T>& values) {
    assign(values.begin(), values.end());
  }
  template <typename T, std::size_t N>
  Json(const std::array<T, N>& values) {
    assign(values.begin(), values.end());
  }
  template <typename T>
  Json(std::span<T> values) {
    assign(values.begin(), values.end());
  }
  Json(std::initializer_list<Json> list);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array();
  static Json array(std::initializer_list<Json> values);
  static Json object();

  // Throws JsonError. Of members with one name the last counts; what is nested
  // deeper than kDeepest is refused.
  static constexpr int kDeepest = 64;
  static Json parse(std::string_view text);
  static Json parse_or_null(std::string_view text);  // null: it is no JSON

  bool is_null() const;
  bool is_boolean() const;
  bool is_integer() const;
  bool is_number() const;  // an integer or a real number
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;
  const char* type_name() const;  // as JSON calls it: "number"

  // A bool, a number or a std::string; JsonError where it is of another type. A
  // number that an std::int64_t cannot hold is the greatest that it can.
  template <typename T>
  T get() const {
    if constexpr (std::is_same_v<T, bool>) {
      return boolean();
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(real());
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(integer());
    } else {
      static_assert(std::is_same_v<T, std::string>);
      return text();
    }
  }
  const std::string& text() const;

  // Arrays, and what else has elements: objects in size() and empty().
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  const Json* begin() const;  // nothing where it is no array
  const Json* end() const;
  const Json& operator[](std::size_t i) const;
  void push_back(Json value);  // makes an array of null

  // Objects.
  const Object& items() const;  // by name; none where it is no object
  const Json* find(std::string_view key) const;  // null: it is not there
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& at(std::string_view key) const;
  Json& operator[](const std::string& key);  // makes it, and an object of null
  template <typename T>
  T value(std::string_view key, T otherwise) const {
    const Json* const found = find(key);
    return found == nullptr ? otherwise : found->get<T>();
  }
  void update(const Json& members);

  std::string dump(int indent = -1) const { return dump({.indent = indent}); }
  std::string dump(const DumpOptions& options) const;

  friend bool operator==(const Json& json, std::string_view text) {
    return json.is_string() && json.text() == text;
  }

 private:
  struct Members {
    Object values;
    std::vector<std::string> written;  // the keys as they came
  };

  template <typename Iterator>
  void assign(Iterator begin, Iterator end) {
    auto& values = value_.emplace<std::vector<Json>>();
    for (; begin != end; ++begin) values.emplace_back(*begin);
  }
  void set_unsigned(std::uint64_t number);
  [[noreturn]] void fail(const char* wanted) const;
  bool boolean() const;
  std::int64_t integer() const;
  double real() const;
  Json take() const;  // leaves null
  void dump_to(std::string& out, const DumpOptions& options, int depth) const;

  // Unsigned: what an std::int64_t cannot hold. Mutable, because the elements
  // of a list in braces are const, and are taken without a copy.
  mutable std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t,
                       double, std::string, std::vector<Json>, Members>
      value_;
};

}  // namespace regard
