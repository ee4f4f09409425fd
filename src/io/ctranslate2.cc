// SPDX-License-Identifier: Apache-2.0
#include "regard/io/ctranslate2.h"

#include <cstring>
#include <utility>

#include "io/byte_reader.h"
#include "io/mapped_file.h"
#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"

namespace regard {
namespace {

using io::ByteReader;
using Type = Ctranslate2File::Type;
using Variable = Ctranslate2File::Variable;

constexpr std::uint32_t kOldest = 2;
constexpr std::uint32_t kNewest = 6;
constexpr std::size_t kMostDims = 8;

std::size_t size_of(Type type) {
  switch (type) {
    case Type::kInt8:
      return 1;
    case Type::kInt16:
    case Type::kFloat16:
    case Type::kBFloat16:
      return 2;
    case Type::kFloat32:
    case Type::kInt32:
      return 4;
  }
  return 0;
}

std::string read_name(ByteReader& reader, const char* what) {
  const auto length = reader.number<std::uint16_t>(what);
  std::string_view text = reader.text(length, what);
  // Written with the zero that ends it.
  if (text.empty() || text.back() != '\0') {
    throw_parse_error(reader.where().c_str(), what,
                      " must end with a zero: ", io::in_quotes(text));
  }
  text.remove_suffix(1);
  return std::string(text);
}

// Until version 3, the size of an element tells its type.
Type type_of(std::uint8_t number, std::uint32_t version,
             const std::string& name, const char* where) {
  if (version >= 4) {
    if (number <= static_cast<std::uint8_t>(Type::kBFloat16)) {
      return static_cast<Type>(number);
    }
  } else if (number == 4) {
    return Type::kFloat32;
  } else if (number == 2) {
    return Type::kInt16;
  } else if (number == 1) {
    return Type::kInt8;
  }
  throw_parse_error(where, "the variable ", io::in_quotes(name),
                    " has an unknown type: ", static_cast<int>(number));
}

Variable read_variable(ByteReader& reader, std::uint32_t version,
                       const std::string& name) {
  const char* const where = reader.where().c_str();
  const std::string quoted = io::in_quotes(name);
  const auto rank = reader.number<std::uint8_t>("a variable's shape");
  if (rank > kMostDims) {
    throw_parse_error(where, "a variable has at most ", kMostDims,
                      " dimensions; ", quoted, " has ", static_cast<int>(rank));
  }
  Variable variable;
  std::uint64_t elements = 1;
  for (std::uint8_t i = 0; i < rank; ++i) {
    const auto extent = reader.number<std::uint32_t>("a variable's shape");
    variable.shape.push_back(extent);
    // The file bounds how many elements there can be.
    if (extent != 0 && elements > reader.left() / extent) {
      throw_parse_error(where, "the file ends within the variable ", quoted,
                        ": dimension ", static_cast<int>(i), " is ", extent,
                        ", ", reader.left(), " bytes are left");
    }
    elements *= extent;
  }
  // An extent of zero must not hide others that no memory holds.
  try {
    element_count(variable.shape);
  } catch (const InvalidArgument&) {
    throw_parse_error(
        where, "the variable ", quoted,
        " has a shape that no memory holds: ", ShapeText{variable.shape});
  }
  const auto type = reader.number<std::uint8_t>("a variable's type");
  variable.type = type_of(type, version, name, where);
  const std::uint64_t size = size_of(variable.type);
  const auto count = reader.number<std::uint32_t>("a variable's size");
  const std::uint64_t bytes = version >= 4 ? count : count * size;
  if (bytes != elements * size) {
    throw_parse_error(where, "the variable ", quoted, " must have ",
                      elements * size, " bytes for its shape; it has ", bytes);
  }
  variable.bytes = reader.take(bytes, "a variable");
  return variable;
}

template <typename T>
T element(const Variable& variable, std::int64_t i) {
  T value;
  std::memcpy(&value,
              variable.bytes.data() + static_cast<std::size_t>(i) * sizeof(T),
              sizeof(T));
  return value;
}

template <typename T>
void widen(const Variable& variable, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] =
        static_cast<float>(element<T>(variable, static_cast<std::int64_t>(i)));
  }
}

}  // namespace

struct Ctranslate2File::Mapping {
  explicit Mapping(const std::filesystem::path& path)
      : file(path, "Ctranslate2File::open") {}
  io::MappedFile file;
};

Ctranslate2File::Ctranslate2File(Ctranslate2File&&) noexcept = default;
Ctranslate2File& Ctranslate2File::operator=(Ctranslate2File&&) noexcept =
    default;
Ctranslate2File::~Ctranslate2File() = default;

Ctranslate2File::Ctranslate2File(std::string where,
                                 std::span<const std::byte> bytes)
    : where_(std::move(where)) {
  ByteReader reader(bytes, where_);
  const auto version = reader.number<std::uint32_t>("the version");
  if (version < kOldest || version > kNewest) {
    throw_parse_error(where_.c_str(), "versions ", kOldest, " to ", kNewest,
                      " of CTranslate2's format are read; this is version ",
                      version, " (is it a model of CTranslate2?)");
  }
  spec_ = read_name(reader, "the kind of model");
  revision_ = reader.number<std::uint32_t>("the revision");
  const auto count = reader.number<std::uint32_t>("the number of variables");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string name = read_name(reader, "a variable's name");
    Variable variable = read_variable(reader, version, name);
    if (!variables_.emplace(name, std::move(variable)).second) {
      throw_parse_error(where_.c_str(), "the variable ", io::in_quotes(name),
                        " is there twice");
    }
  }
  if (version >= 3) {
    const auto aliases = reader.number<std::uint32_t>("the number of aliases");
    for (std::uint32_t i = 0; i < aliases; ++i) {
      const std::string alias = read_name(reader, "an alias");
      const std::string name = read_name(reader, "an alias's variable");
      const Variable variable = at(name);
      if (!variables_.emplace(alias, variable).second) {
        throw_parse_error(where_.c_str(), "the variable ", io::in_quotes(alias),
                          " is there twice");
      }
      // Quantized weights bring their scale.
      const auto scale = variables_.find(name + "_scale");
      if (scale != variables_.end()) {
        variables_.emplace(alias + "_scale", Variable(scale->second));
      }
    }
  }
  if (reader.left() != 0) {
    throw_parse_error(where_.c_str(),
                      "the file is longer than it says: ", reader.left(),
                      " bytes follow its last part");
  }
}

Ctranslate2File Ctranslate2File::open(const std::filesystem::path& path) {
  auto mapping = std::make_unique<const Mapping>(path);
  Ctranslate2File file("Ctranslate2File::open: '" + path.string() + "'",
                       mapping->file.bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

Ctranslate2File Ctranslate2File::parse(std::span<const std::byte> bytes) {
  return {"Ctranslate2File::parse", bytes};
}

bool Ctranslate2File::contains(const std::string& name) const {
  return variables_.contains(name);
}

const Variable& Ctranslate2File::at(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    throw_parse_error(where_.c_str(), "the variable ", io::in_quotes(name),
                      " is missing");
  }
  return found->second;
}

Tensor Ctranslate2File::values(const std::string& name) const {
  const Variable& variable = at(name);
  Tensor tensor(variable.shape);
  const std::span<float> to = tensor.values<float>();
  switch (variable.type) {
    case Type::kFloat32:
      widen<float>(variable, to);
      return tensor;
    case Type::kFloat16:
      widen<Float16>(variable, to);
      return tensor;
    case Type::kBFloat16:
      widen<BFloat16>(variable, to);
      return tensor;
    case Type::kInt8:
      widen<std::int8_t>(variable, to);
      break;
    case Type::kInt16:
      widen<std::int16_t>(variable, to);
      break;
    case Type::kInt32:
      throw_parse_error(where_.c_str(), "the variable ", io::in_quotes(name),
                        " must be of a type for weights; it is int32");
  }
  const Variable& scale = at(name + "_scale");
  const auto rows = variable.shape.empty() ? 1 : variable.shape.front();
  const auto scales =
      static_cast<std::int64_t>(scale.bytes.size() / sizeof(float));
  if (scale.type != Type::kFloat32 || (scales != 1 && scales != rows) ||
      scales == 0) {
    throw_parse_error(where_.c_str(), "the scale of ", io::in_quotes(name),
                      " must be float32, one number or ", rows, "; it has ",
                      scales);
  }
  const std::int64_t width = rows == 0 ? 0 : tensor.size() / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto by = element<float>(scale, scales == 1 ? 0 : r);
    for (std::int64_t i = 0; i < width; ++i) {
      to[static_cast<std::size_t>(r * width + i)] /= by;
    }
  }
  return tensor;
}

std::optional<std::int64_t> Ctranslate2File::setting(
    const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  const Variable& variable = found->second;
  if (variable.bytes.size() == size_of(variable.type)) {
    if (variable.type == Type::kInt8) return element<std::int8_t>(variable, 0);
    if (variable.type == Type::kInt16)
      return element<std::int16_t>(variable, 0);
    if (variable.type == Type::kInt32)
      return element<std::int32_t>(variable, 0);
  }
  throw_parse_error(where_.c_str(), "the variable ", io::in_quotes(name),
                    " must be one integer; it is ", ShapeText{variable.shape});
}

}  // namespace regard
