// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "io/quote.h"
#include "regard/core/error.h"

namespace regard::io {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, DType>, 9> kTypes = {{
    {"F32", DType::kFloat32},
    {"F64", DType::kFloat64},
    {"BF16", DType::kBFloat16},
    {"F16", DType::kFloat16},
    {"I8", DType::kInt8},
    {"U8", DType::kUInt8},
    {"I32", DType::kInt32},
    {"I64", DType::kInt64},
    {"BOOL", DType::kBool},
}};

// No tensor library has more dimensions; keeps a long list from taking memory.
constexpr std::size_t kMostDimensions = 64;

// Follows the JSON as it is read and stops at the first thing that has no
// place. Nothing nests deeper than the format does, nothing is kept that the
// format does not have, and a key that comes twice is seen.
class HeaderReader {
 public:
  explicit HeaderReader(std::string where) : where_(std::move(where)) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_float(double, const std::string&) {
    return refuse("a number that is no 63-bit count");
  }
  bool binary(Json::binary_t&) { return refuse("binary data"); }

  bool number_integer(std::int64_t value) {
    // The library calls this for negative numbers.
    if (state_ != State::kShape && state_ != State::kOffsets) {
      return refuse("a number");
    }
    fail("tensor ", in_quotes(name_), " has a negative number: ", value);
  }

  bool number_unsigned(std::uint64_t value) {
    if (state_ != State::kShape && state_ != State::kOffsets) {
      return refuse("a number");
    }
    if (value > std::numeric_limits<std::int64_t>::max()) {
      return refuse("a number that is no 63-bit count");
    }
    if (state_ == State::kOffsets && numbers_.size() == 2) {
      fail("tensor ", in_quotes(name_), " has more than two data_offsets");
    }
    if (numbers_.size() == kMostDimensions) {
      fail("tensor ", in_quotes(name_), " has more than ", kMostDimensions,
           " dimensions");
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::kMetadataValue) {
      header_.metadata[name_] = std::move(value);
      state_ = State::kMetadata;
      return true;
    }
    if (state_ != State::kTypeValue) return refuse("a string");
    const auto* type = std::find_if(
        kTypes.begin(), kTypes.end(),
        [&value](const auto& known) { return known.first == value; });
    if (type == kTypes.end()) {
      fail("tensor ", in_quotes(name_), " has the type ", in_quotes(value),
           "; known are F32, F64, BF16, F16, I8, U8, I32, I64, BOOL");
    }
    dtype_ = type->second;
    state_ = State::kTensor;
    return true;
  }

  bool start_object(std::size_t) {
    switch (state_) {
      case State::kStart:
        state_ = State::kNames;
        return true;
      case State::kMetadataStart:
        state_ = State::kMetadata;
        return true;
      case State::kTensorStart:
        state_ = State::kTensor;
        return true;
      default:
        return refuse("an object");
    }
  }

  bool key(std::string& value) {
    if (state_ == State::kTensor) return tensor_key(value);
    if (state_ == State::kMetadata) {
      if (header_.metadata.contains(value)) {
        fail("the metadata has ", in_quotes(value), " twice");
      }
      name_ = value;
      state_ = State::kMetadataValue;
      return true;
    }
    if (value == "__metadata__") {
      if (std::exchange(has_metadata_, true)) {
        fail("the header has __metadata__ twice");
      }
      state_ = State::kMetadataStart;
      return true;
    }
    if (header_.items.contains(value)) {
      fail("the header has tensor ", in_quotes(value), " twice");
    }
    name_ = value;
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    state_ = State::kTensorStart;
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) {
      end_tensor();
      state_ = State::kNames;
    } else {
      state_ = state_ == State::kMetadata ? State::kNames : State::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) {
    numbers_.clear();
    switch (state_) {
      case State::kShapeStart:
        state_ = State::kShape;
        return true;
      case State::kOffsetsStart:
        state_ = State::kOffsets;
        return true;
      default:
        return refuse("a list");
    }
  }

  bool end_array() {
    (state_ == State::kShape ? shape_ : offsets_) = numbers_;
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) {
    fail("the header is not valid JSON at byte ", position);
  }

 private:
  // What has been read; named for what may come next.
  enum class State {
    kStart,
    kNames,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kTypeValue,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kEnd,
  };

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_parse_error(where_.c_str(), parts...);
  }

  bool refuse(const char* what) const {
    switch (state_) {
      case State::kStart:
      case State::kEnd:
        fail("the header must be one JSON object; it has ", what);
      case State::kMetadataStart:
      case State::kMetadata:
        fail("__metadata__ must be an object of strings; it has ", what);
      case State::kMetadataValue:
        fail("the metadata ", in_quotes(name_), " must be a string; it has ",
             what);
      case State::kTypeValue:
        fail("the dtype of tensor ", in_quotes(name_),
             " must be a string; it is ", what);
      case State::kShapeStart:
      case State::kShape:
        fail("the shape of tensor ", in_quotes(name_),
             " must be a list of counts; it has ", what);
      case State::kOffsetsStart:
      case State::kOffsets:
        fail("the data_offsets of tensor ", in_quotes(name_),
             " must be a list of two counts; it has ", what);
      default:
        fail("tensor ", in_quotes(name_), " must be an object; it is ", what);
    }
  }

  bool tensor_key(const std::string& field) {
    bool repeated = false;
    if (field == "dtype") {
      repeated = dtype_.has_value();
      state_ = State::kTypeValue;
    } else if (field == "shape") {
      repeated = shape_.has_value();
      state_ = State::kShapeStart;
    } else if (field == "data_offsets") {
      repeated = offsets_.has_value();
      state_ = State::kOffsetsStart;
    } else {
      fail("tensor ", in_quotes(name_), " has an unknown field ",
           in_quotes(field));
    }
    if (repeated) {
      fail("tensor ", in_quotes(name_), " has the field ", in_quotes(field),
           " twice");
    }
    return true;
  }

  void end_tensor() {
    if (!dtype_ || !shape_ || !offsets_) {
      const char* missing =
          !dtype_ ? "dtype" : (!shape_ ? "shape" : "data_offsets");
      fail("tensor ", in_quotes(name_), " has no ", missing);
    }
    if (offsets_->size() != 2) {
      fail("tensor ", in_quotes(name_), " needs two data_offsets; it has ",
           offsets_->size());
    }
    header_.items[name_] = {*dtype_, std::move(*shape_), (*offsets_)[0],
                            (*offsets_)[1]};
  }

  const std::string where_;
  SafetensorsHeader header_;
  State state_ = State::kStart;
  bool has_metadata_ = false;
  std::string name_;  // of the tensor or of the metadata that is being read
  std::vector<std::int64_t> numbers_;
  std::optional<DType> dtype_;
  std::optional<Shape> shape_;
  std::optional<std::vector<std::int64_t>> offsets_;
};

void check_item(const std::string& name, const SafetensorsItem& item,
                std::int64_t data_size, const std::string& where) {
  if (item.begin > item.end) {
    throw_parse_error(where.c_str(), "tensor ", in_quotes(name),
                      " ends before it begins: ", item.begin, " .. ", item.end);
  }
  if (item.end > data_size) {
    throw_parse_error(where.c_str(), "tensor ", in_quotes(name),
                      " ends at byte ", item.end, " of the data, which has ",
                      data_size, "; the file may have been cut off");
  }
  std::int64_t count = 0;
  try {
    count = element_count(item.shape);
  } catch (const InvalidArgument&) {
    throw_parse_error(
        where.c_str(), "tensor ", in_quotes(name),
        " has a shape that no memory holds: ", to_string(item.shape));
  }
  // element_count allows for 8 bytes an element, so this cannot overflow.
  const auto size = count * static_cast<std::int64_t>(size_of(item.dtype));
  if (size != item.end - item.begin) {
    throw_parse_error(where.c_str(), "tensor ", in_quotes(name), " has ",
                      item.end - item.begin, " bytes, but ",
                      safetensors_name(item.dtype), " of shape ",
                      to_string(item.shape), " takes ", size);
  }
}

// The format allows neither shared bytes nor bytes that belong to nobody.
void check_cover(const SafetensorsHeader& header, std::int64_t data_size,
                 const std::string& where) {
  std::vector<std::pair<const std::string*, const SafetensorsItem*>> order;
  order.reserve(header.items.size());
  for (const auto& [name, item] : header.items) order.push_back({&name, &item});
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) <
           std::pair(b.second->begin, b.second->end);
  });
  std::int64_t covered = 0;
  for (const auto& [name, item] : order) {
    if (item->begin < covered) {
      throw_parse_error(
          where.c_str(), "tensor ", in_quotes(*name), " begins at byte ",
          item->begin, " of the data, inside another, which ends at ", covered);
    }
    if (item->begin > covered) break;
    covered = item->end;
  }
  if (covered != data_size) {
    throw_parse_error(where.c_str(), "byte ", covered,
                      " of the data belongs to no tensor; the data has ",
                      data_size);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::int64_t data_size,
                                           const std::string& where) {
  if (json.empty() || json.front() != '{') {
    throw_parse_error(where.c_str(), "the header must begin with '{'");
  }
  // The JSON library takes a zero byte for the end of the text.
  if (const auto zero = json.find('\0'); zero != std::string_view::npos) {
    throw_parse_error(where.c_str(), "the header is not valid JSON at byte ",
                      zero + 1);
  }
  HeaderReader reader(where);
  Json::sax_parse(json.begin(), json.end(), &reader);
  SafetensorsHeader header = reader.take();
  for (const auto& [name, item] : header.items) {
    check_item(name, item, data_size, where);
  }
  check_cover(header, data_size, where);
  return header;
}

std::string_view safetensors_name(DType dtype) {
  for (const auto& [name, type] : kTypes) {
    if (type == dtype) return name;
  }
  throw InvalidArgument("safetensors: the dtype must be one of the known ones");
}

}  // namespace regard::io
