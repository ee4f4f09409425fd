// SPDX-License-Identifier: Apache-2.0
#include "cli/mask_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/tensor_file.h"
#include "cli/usage_error.h"
#include "regard/core/error.h"

namespace regard::cli {

const char* const kMaskHelp =
    R"(A mask is a list of parts, separated by commas; a pair is visible if every part
shows it.
  causal           keys up to the query; the last query sees the last key
  causal=top-left  the same, but the first query sees the first key only
  causal=N         the same, but the first query is at key N
  window=L:R       L keys before the query and R after it, -1: any number of
                   them; window=N is N:N
  prefix=N         causal, but all queries see the first N keys
  lengths=N:N:...  number of keys, one for each batch entry
  documents=A:B:.. one number per position; a query sees its own document
  keep=FILE        bool, true is visible; broadcast to [batch, heads, q, k]
  drop=FILE        bool, true is hidden
lengths and documents can also be a FILE of int32 or int64.)";

namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

template <typename T>
std::vector<std::int64_t> widened(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}

std::vector<std::int64_t> load_integers(const std::string& file,
                                        const char* part) {
  const Tensor tensor = load_tensor(file);
  require(tensor.rank() == 1, part, "a list has one dimension; '", file,
          "' is ", to_string(tensor.shape()));
  if (tensor.dtype() == DType::kInt64) return widened<std::int64_t>(tensor);
  require(tensor.dtype() == DType::kInt32, part,
          "a list is of int32 or int64; '", file, "' is ",
          to_string(tensor.dtype()));
  return widened<std::int32_t>(tensor);
}

// One part of a mask: "window=3:0" has the name window and the value 3:0.
class Part {
 public:
  explicit Part(std::string_view text) : text_(text) {
    const std::size_t equals = text.find('=');
    name_ = text.substr(0, equals);
    if (equals != std::string_view::npos) value_ = text.substr(equals + 1);
  }

  std::string_view name() const { return name_; }
  bool has_value() const { return value_.has_value(); }
  std::string value() const {
    if (!value_ || value_->empty()) fail("a value after '='");
    return std::string(*value_);
  }

  [[noreturn]] void fail(std::string_view wanted) const {
    throw UsageError("--mask: '" + std::string(text_) + "' needs " +
                     std::string(wanted));
  }

  std::int64_t integer(std::string_view text) const {
    const std::optional<std::int64_t> value = parse_integer(text);
    if (!value) fail("whole numbers");
    return *value;
  }

  std::vector<std::int64_t> integers() const {
    const std::string text = value();
    if (check_place(text).empty()) {
      return load_integers(text, std::string(name_).c_str());
    }
    std::vector<std::int64_t> numbers;
    for (const std::string_view number : split(text, ':')) {
      numbers.push_back(integer(number));
    }
    return numbers;
  }

 private:
  std::string_view text_;
  std::string_view name_;
  std::optional<std::string_view> value_;
};

Mask parse_causal(const Part& part) {
  if (!part.has_value()) return mask::causal();
  if (part.value() == "top-left") return mask::causal(mask::kTopLeft);
  if (part.value() == "bottom-right") return mask::causal();
  const std::optional<std::int64_t> offset = parse_integer(part.value());
  if (!offset) part.fail("top-left, bottom-right or an offset");
  return mask::causal(mask::at_offset(*offset));
}

Mask parse_window(const Part& part) {
  const std::string text = part.value();
  const std::vector<std::string_view> sides = split(text, ':');
  if (sides.size() > 2) part.fail("one width, or LEFT:RIGHT");
  return mask::window(part.integer(sides.front()), part.integer(sides.back()));
}

Mask parse_documents(const Part& part) {
  const std::vector<std::int64_t> wide = part.integers();
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : wide) {
    require(std::in_range<std::int32_t>(id), "documents",
            "a document's number must fit in 32 bits; it is ", id);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return mask::documents(ids);
}

Mask parse_dense(const Part& part, std::vector<Tensor>& storage) {
  const std::string file = part.value();
  if (!check_place(file).empty()) part.fail("a .npy or .safetensors file");
  const std::string name(part.name());
  storage.push_back(load_tensor(file));
  const Tensor& tensor = storage.back();
  require(tensor.dtype() == DType::kBool, name.c_str(),
          "a dense mask is of bool; '", file, "' is ",
          to_string(tensor.dtype()));
  const TensorView<const bool, 4> pairs(tensor.values<bool>().data(),
                                        broadcast_shape(tensor, name.c_str()));
  return name == "keep" ? mask::keep(pairs) : mask::drop(pairs);
}

Mask parse_part(const Part& part, std::vector<Tensor>& storage) {
  if (part.name() == "causal") return parse_causal(part);
  if (part.name() == "window") return parse_window(part);
  if (part.name() == "prefix") return mask::prefix(part.integer(part.value()));
  if (part.name() == "lengths") return mask::lengths(part.integers());
  if (part.name() == "documents") return parse_documents(part);
  if (part.name() == "keep" || part.name() == "drop") {
    return parse_dense(part, storage);
  }
  throw UsageError("--mask: '" + std::string(part.name()) +
                   "' is none of causal, window, prefix, lengths, documents, "
                   "keep, drop");
}

}  // namespace

OwnedMask parse_mask(std::span<const std::string> texts) {
  OwnedMask result;
  for (const std::string& text : texts) {
    for (const std::string_view part : split(text, ',')) {
      result.mask = result.mask & parse_part(Part(part), result.dense);
    }
  }
  return result;
}

}  // namespace regard::cli
