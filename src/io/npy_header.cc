// SPDX-License-Identifier: Apache-2.0
#include "io/npy_header.h"

#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"

namespace regard::io {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes = {{
    {"<f4", DType::kFloat32},
    {"<f8", DType::kFloat64},
    {"<f2", DType::kFloat16},
    {"|i1", DType::kInt8},
    {"|u1", DType::kUInt8},
    {"<i4", DType::kInt32},
    {"<i8", DType::kInt64},
    {"|b1", DType::kBool},
}};

// NumPy reads more spellings than it writes: one byte has no order, and '=' and
// no mark at all mean this machine's, which is little-endian.
std::string as_numpy_writes(std::string_view name) {
  char order = '<';
  if (!name.empty() && std::string_view("<>=|").find(name[0]) != name.npos) {
    if (name[0] == '>') order = '>';
    name.remove_prefix(1);
  }
  if (name == "i1" || name == "u1" || name == "b1") order = '|';
  std::string written(1, order);
  written += name;
  return written;
}

// The part of Python's literals that NumPy writes here. Nothing nests, so
// nothing recurses.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where)
      : text_(text), where_(where) {}

  NpyHeader parse() {
    expect('{');
    while (!accept('}')) {
      parse_entry();
      if (accept('}')) break;
      expect(',');
    }
    skip_space();
    if (place_ != text_.size()) fail("text after the dictionary");
    if (!dtype_) fail("no 'descr'");
    if (!fortran_order_) fail("no 'fortran_order'");
    if (!shape_) fail("no 'shape'");
    try {
      element_count(*shape_);
    } catch (const InvalidArgument&) {
      throw_parse_error(where_.c_str(), "no memory holds the shape ",
                        to_string(*shape_));
    }
    return {*dtype_, *fortran_order_, std::move(*shape_)};
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw_parse_error(where_.c_str(), "the header is broken at character ",
                      place_, ": ", problem);
  }

  void skip_space() {
    while (place_ < text_.size() &&
           (text_[place_] == ' ' || text_[place_] == '\n' ||
            text_[place_] == '\t' || text_[place_] == '\r')) {
      ++place_;
    }
  }

  bool accept(char wanted) {
    skip_space();
    if (place_ == text_.size() || text_[place_] != wanted) return false;
    ++place_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted))
      fail(std::string("expected ") + in_quotes({&wanted, 1}));
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(place_).starts_with(word)) return false;
    place_ += word.size();
    return true;
  }

  // No escapes: none of the names that may stand here needs one.
  std::string_view parse_string() {
    skip_space();
    const char quote = place_ < text_.size() ? text_[place_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a string");
    const std::size_t start = ++place_;
    const std::size_t end = text_.find(quote, start);
    if (end == std::string_view::npos) fail("a string without an end");
    place_ = end + 1;
    return text_.substr(start, end - start);
  }

  void parse_entry() {
    const std::string_view key = parse_string();
    expect(':');
    if (key == "descr") {
      if (dtype_) fail("'descr' comes twice");
      dtype_ = parse_type();
    } else if (key == "fortran_order") {
      if (fortran_order_) fail("'fortran_order' comes twice");
      fortran_order_ = parse_bool();
    } else if (key == "shape") {
      if (shape_) fail("'shape' comes twice");
      shape_ = parse_shape();
    } else {
      fail("unknown key " + in_quotes(key));
    }
  }

  DType parse_type() {
    skip_space();
    if (place_ < text_.size() && text_[place_] == '[') {
      throw_parse_error(
          where_.c_str(),
          "the elements are records; only plain numbers are read");
    }
    const std::string_view name = parse_string();
    const std::string written = as_numpy_writes(name);
    for (const auto& [known, dtype] : kTypes) {
      if (written == known) return dtype;
    }
    if (name.starts_with('>')) {
      throw_parse_error(where_.c_str(), "the elements are big-endian (",
                        in_quotes(name), "); only little-endian ones are read");
    }
    throw_parse_error(where_.c_str(), "the elements have the type ",
                      in_quotes(name),
                      "; known are <f2, <f4, <f8, |i1, |u1, <i4, <i8, |b1");
  }

  bool parse_bool() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("expected True or False");
  }

  Shape parse_shape() {
    Shape shape;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail("expected ',' or ')'");
      if (shape.size() == static_cast<std::size_t>(kMostNpyDimensions)) {
        fail("more than 64 dimensions");
      }
      shape.push_back(parse_count());
      comma = accept(',');
    }
    // "(3)" is a number, not a tuple.
    if (shape.size() == 1 && !comma) fail("expected ',' in a tuple of one");
    return shape;
  }

  std::int64_t parse_count() {
    skip_space();
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const std::size_t start = place_;
    std::int64_t value = 0;
    for (; place_ < text_.size(); ++place_) {
      const char c = text_[place_];
      if (c < '0' || c > '9') break;
      const std::int64_t digit = c - '0';
      if (value > (kMost - digit) / 10) fail("a number that is too large");
      value = value * 10 + digit;
    }
    if (place_ == start) fail("expected a count");
    // Python 2 wrote its long integers so.
    if (place_ < text_.size() && text_[place_] == 'L') ++place_;
    return value;
  }

  const std::string_view text_;
  const std::string& where_;
  std::size_t place_ = 0;
  std::optional<DType> dtype_;
  std::optional<bool> fortran_order_;
  std::optional<Shape> shape_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& where) {
  return HeaderParser(text, where).parse();
}

std::string_view npy_name(DType dtype) {
  for (const auto& [name, type] : kTypes) {
    if (type == dtype) return name;
  }
  throw InvalidArgument("npy: the dtype must be one that NumPy has");
}

std::string npy_start(DType dtype, const Shape& shape) {
  std::string header = "{'descr': '";
  header += npy_name(dtype);
  header += "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t extent : shape) {
    header += std::to_string(extent) + ", ";
  }
  // A tuple of one keeps its comma: "(3,)"; longer ones end without: "(2, 3)".
  if (!shape.empty()) header.pop_back();
  if (shape.size() >= 2) header.pop_back();
  header += "), }";
  // The data begins at a multiple of 64, so that it can be mapped.
  std::string start = "\x93NUMPY";
  start += '\1';
  start += '\0';
  const std::size_t used = start.size() + 2 + header.size() + 1;
  header.append((64 - used % 64) % 64, ' ');
  header += '\n';
  start += static_cast<char>(header.size() & 255);
  start += static_cast<char>(header.size() >> 8);
  return start + header;
}

}  // namespace regard::io
