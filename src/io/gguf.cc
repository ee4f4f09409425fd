// SPDX-License-Identifier: Apache-2.0
#include "regard/io/gguf.h"

#include <utility>

#include "io/byte_reader.h"
#include "io/gguf_tensors.h"
#include "io/gguf_types.h"
#include "io/mapped_file.h"
#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/core/threads.h"

namespace regard {
namespace {

using io::ByteReader;
using io::GgufType;
using io::in_quotes;

constexpr std::size_t kMagicBytes = 4;
constexpr std::uint32_t kOldestVersion = 2;
constexpr std::uint32_t kNewestVersion = 3;
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMostAlignment = 1 << 20;
constexpr int kDeepestArray = 4;
// The fewest bytes of one setting (key length, type, a byte) and of one
// tensor's description (name length, dimensions, type, offset).
constexpr std::uint64_t kLeastSetting = 8 + 4 + 1;
constexpr std::uint64_t kLeastTensor = 8 + 4 + 4 + 8;

std::uint64_t checked_count(ByteReader& reader, std::uint64_t least,
                            const char* what) {
  const auto count = reader.number<std::uint64_t>(what);
  if (count > reader.left() / least) {
    throw_parse_error(reader.where().c_str(), "the file says that it has ",
                      count, " ", what, ", more than its ", reader.left(),
                      " bytes can hold");
  }
  return count;
}

std::string read_name(ByteReader& reader, const char* what) {
  const auto length = reader.number<std::uint64_t>(what);
  if (length > io::kLongestGgufName) {
    throw_parse_error(reader.where().c_str(), "a name may have at most ",
                      io::kLongestGgufName, " bytes; ", what, " has ", length);
  }
  return std::string(reader.text(length, what));
}

std::string_view read_text(ByteReader& reader) {
  return reader.text(reader.number<std::uint64_t>("the length of a text"),
                     "a text");
}

// Goes over the elements of an array and checks that they are there.
void skip_elements(ByteReader& reader, std::uint32_t type, std::uint64_t count,
                   int depth) {
  const char* where = reader.where().c_str();
  if (const std::size_t size = io::gguf_size_of(type); size != 0) {
    if (count > reader.left() / size) {
      throw_parse_error(where, "an array of ", count,
                        " elements does not fit in the ", reader.left(),
                        " bytes that are left");
    }
    reader.take(count * size, "an array");
    return;
  }
  // Texts and arrays have at least their length.
  if (count > reader.left() / 8) {
    throw_parse_error(where, "an array of ", count,
                      " elements does not fit in the ", reader.left(),
                      " bytes that are left");
  }
  if (depth == kDeepestArray) {
    throw_parse_error(where, "arrays may be nested ", kDeepestArray,
                      " deep at most");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (type == GgufType::kText) {
      read_text(reader);
      continue;
    }
    const auto inner = reader.number<std::uint32_t>("the type of an array");
    io::check_gguf_type(inner, reader.where());
    const auto inner_count =
        reader.number<std::uint64_t>("the length of an array");
    skip_elements(reader, inner, inner_count, depth + 1);
  }
}

}  // namespace

struct GgufFile::Mapping {
  explicit Mapping(const std::filesystem::path& path)
      : file(path, "GgufFile::open") {}
  io::MappedFile file;
};

GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

// Reads the parts of a file in their order.
struct GgufFile::Parser {
  struct Description {
    std::string name;
    Shape shape;
    const io::GgufTensorType* type = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t elements = 0;

    std::uint64_t bytes() const {
      return elements / static_cast<std::uint64_t>(type->block_elements) *
             static_cast<std::uint64_t>(type->block_bytes);
    }
  };

  explicit Parser(ByteReader& bytes) : reader(bytes) {}

  const char* where() const { return reader.where().c_str(); }

  void read_start() {
    if (reader.left() < kMagicBytes ||
        reader.text(kMagicBytes, "the first bytes") != "GGUF") {
      throw_parse_error(where(), "a GGUF file begins with the letters GGUF");
    }
    const auto version = reader.number<std::uint32_t>("the version");
    if ((version & 0xffffu) == 0 && version != 0) {
      throw_parse_error(where(), "the file is big-endian, which is not read");
    }
    if (version < kOldestVersion || version > kNewestVersion) {
      throw_parse_error(where(), "versions ", kOldestVersion, " and ",
                        kNewestVersion, " are read; this is version ", version);
    }
  }

  Value read_value(std::uint32_t type) {
    if (type == GgufType::kText) return read_text(reader);
    if (type == GgufType::kArray) {
      ArrayPlace place;
      place.type = reader.number<std::uint32_t>("the type of an array");
      io::check_gguf_type(place.type, reader.where());
      place.count = reader.number<std::uint64_t>("the length of an array");
      ByteReader start = reader;
      skip_elements(reader, place.type, place.count, 1);
      place.bytes =
          start.take(reader.position() - start.position(), "an array");
      return place;
    }
    if (type == GgufType::kBool) {
      const auto value = reader.number<std::uint8_t>("a setting");
      if (value > 1) {
        throw_parse_error(where(), "a bool is 0 or 1; this is ", +value);
      }
      return value == 1;
    }
    if (io::gguf_is_real(type)) return io::read_gguf_real(reader, type);
    return io::read_gguf_integer(reader, type);
  }

  void read_settings(std::uint64_t count,
                     std::map<std::string, Setting, std::less<>>& settings) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ByteReader start = reader;
      std::string key = read_name(reader, "a key");
      const auto type = reader.number<std::uint32_t>("the type of a setting");
      io::check_gguf_type(type, reader.where());
      Value value = read_value(type);
      const auto bytes =
          start.take(reader.position() - start.position(), "a setting");
      if (!settings.emplace(key, Setting{value, bytes}).second) {
        throw_parse_error(where(), "the key ", in_quotes(key), " comes twice");
      }
    }
  }

  Description read_description(std::uint64_t alignment) {
    Description d;
    d.name = read_name(reader, "the name of a tensor");
    const std::string name = in_quotes(d.name);
    const auto rank = reader.number<std::uint32_t>("a tensor's dimensions");
    if (rank > io::kMostGgufDimensions) {
      throw_parse_error(where(), "a tensor has at most ",
                        io::kMostGgufDimensions, " dimensions; ", name, " has ",
                        rank);
    }
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto extent = reader.number<std::uint64_t>("a tensor's dimensions");
      d.shape.insert(d.shape.begin(), static_cast<std::int64_t>(extent));
    }
    // What is negative here was too large there.
    try {
      d.elements = static_cast<std::uint64_t>(element_count(d.shape));
    } catch (const InvalidArgument&) {
      throw_parse_error(where(), "the shape of ", name,
                        " has more elements than can be counted");
    }
    const auto type = reader.number<std::uint32_t>("a tensor's type");
    d.type = io::gguf_tensor_type(type);
    if (d.type == nullptr) {
      throw_parse_error(where(),
                        "tensors of the types F32, F16, BF16, Q4_0, Q4_1, "
                        "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K are read; ",
                        name, " is ", io::gguf_tensor_type_name(type));
    }
    const std::int64_t row = d.shape.empty() ? 1 : d.shape.back();
    if (row % d.type->block_elements != 0) {
      throw_parse_error(where(), "rows of ", d.type->name,
                        " are whole blocks of ", d.type->block_elements,
                        " elements; ", name, " is ", to_string(d.shape));
    }
    d.offset = reader.number<std::uint64_t>("a tensor's offset");
    if (d.offset % alignment != 0) {
      throw_parse_error(where(), "tensors start at multiples of ", alignment,
                        "; ", name, " starts at ", d.offset);
    }
    return d;
  }

  // The data begins at the next multiple of the alignment.
  std::span<const std::byte> read_data(std::uint64_t alignment) {
    const std::uint64_t rest = reader.position() % alignment;
    const std::uint64_t gap = rest == 0 ? 0 : alignment - rest;
    // A file without tensors may end right here.
    reader.take(std::min<std::uint64_t>(gap, reader.left()), "the padding");
    return reader.take(reader.left(), "the data");
  }

  ByteReader& reader;
};

GgufFile::GgufFile(const std::string& where, std::span<const std::byte> bytes)
    : where_(where) {
  require(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0,
          where_.c_str(), "the bytes must be aligned for float");
  ByteReader reader(bytes, where);
  Parser parser(reader);
  parser.read_start();
  const auto tensors = checked_count(reader, kLeastTensor, "tensors");
  const auto count = checked_count(reader, kLeastSetting, "settings");
  parser.read_settings(count, settings_);

  const std::int64_t said =
      integer("general.alignment").value_or(kDefaultAlignment);
  if (said <= 0 || said % 8 != 0 || said > kMostAlignment) {
    throw_parse_error(where_.c_str(),
                      "general.alignment must be a multiple of 8, at most ",
                      kMostAlignment, "; it is ", said);
  }
  const auto alignment = static_cast<std::uint64_t>(said);
  std::vector<Parser::Description> descriptions;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    descriptions.push_back(parser.read_description(alignment));
  }
  const auto data = parser.read_data(alignment);
  // An empty tensor may begin where another does, and comes first.
  std::stable_sort(descriptions.begin(), descriptions.end(),
                   [](const auto& a, const auto& b) {
                     return std::pair(a.offset, a.elements != 0) <
                            std::pair(b.offset, b.elements != 0);
                   });
  std::uint64_t end = 0;  // of the tensor before
  for (Parser::Description& d : descriptions) {
    const std::uint64_t size = d.bytes();
    if (d.offset > data.size() || size > data.size() - d.offset) {
      throw_parse_error(where_.c_str(), in_quotes(d.name), " lies at bytes ",
                        d.offset, " to ", d.offset + size, " of ", data.size(),
                        "; the file may have been cut off");
    }
    if (d.offset < end) {
      throw_parse_error(where_.c_str(), in_quotes(d.name),
                        " overlaps the tensor before it, which ends at byte ",
                        end, "; it starts at ", d.offset);
    }
    if (size != 0) end = d.offset + size;
    std::string name = d.name;
    Entry entry{std::move(d.shape), d.type, data.subspan(d.offset, size)};
    if (!entries_.emplace(name, std::move(entry)).second) {
      throw_parse_error(where_.c_str(), "the tensor ", in_quotes(name),
                        " comes twice");
    }
  }
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_unique<const Mapping>(path);
  GgufFile file("GgufFile::open: '" + path.string() + "'",
                mapping->file.bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes) {
  return {"GgufFile::parse", bytes};
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

bool GgufFile::contains(std::string_view name) const {
  return entries_.find(name) != entries_.end();
}

const GgufFile::Entry& GgufFile::find(std::string_view name) const {
  const auto place = entries_.find(name);
  require(place != entries_.end(), where_.c_str(), "no tensor is called ",
          in_quotes(name));
  return place->second;
}

std::string_view GgufFile::type(std::string_view name) const {
  return find(name).type->name;
}

std::span<const float> GgufFile::values(std::string_view name) const {
  const Entry& entry = find(name);
  require(type(name) == "F32", where_.c_str(), in_quotes(name),
          " must be F32 to be read in place; it is ", type(name));
  return {reinterpret_cast<const float*>(entry.data.data()),
          entry.data.size() / sizeof(float)};
}

std::optional<GgufFile::Groups> GgufFile::groups(std::string_view name) const {
  const io::GgufTensorType& type = *find(name).type;
  if (type.read_codes == nullptr) return std::nullopt;
  // -8 times a half float may be none.
  const bool zero_in_minima = type.four_bits && type.zero != 0;
  return Groups{.group = type.group,
                .four_bits = type.four_bits,
                .half_scales = type.half_scales && !zero_in_minima,
                .has_minima = type.has_minima || zero_in_minima};
}

void GgufFile::read_groups(std::string_view name, std::int64_t row,
                           std::int8_t* codes, float* scales,
                           float* minima) const {
  const Entry& entry = find(name);
  const io::GgufTensorType& type = *entry.type;
  const std::int64_t columns = entry.shape.back();
  const std::int64_t blocks = columns / type.block_elements;
  require(type.read_codes != nullptr, where_.c_str(), io::in_quotes(name),
          " has no groups; its type is ", type.name);
  require(row >= 0 &&
              row < std::ssize(entry.data) /
                        std::max<std::int64_t>(1, blocks * type.block_bytes),
          where_.c_str(), io::in_quotes(name), " has no row ", row);
  type.read_codes(entry.data.data() + row * blocks * type.block_bytes, blocks,
                  {codes, scales, minima});
  if (type.zero == 0) return;
  // Codes with a sign take the zero away themselves; those without one have no
  // room for it.
  if (!type.four_bits) {
    for (std::int64_t i = 0; i < columns; ++i) {
      codes[i] = static_cast<std::int8_t>(codes[i] - type.zero);
    }
    return;
  }
  for (std::int64_t g = 0; g < columns / type.group; ++g) {
    minima[g] = -static_cast<float>(type.zero) * scales[g];
  }
}

Tensor GgufFile::tensor(std::string_view name) const {
  const Entry& entry = find(name);
  const io::GgufTensorType& type = *entry.type;
  Tensor tensor(entry.shape);
  const std::int64_t blocks = std::ssize(entry.data) / type.block_bytes;
  // Enough for a thread to wake up for.
  const std::int64_t part = (1 << 18) / type.block_elements;
  parallel_for({}, (blocks + part - 1) / part, [&](std::int64_t i) {
    const std::int64_t begin = i * part;
    io::read_gguf_values(
        type, entry.data.data() + begin * type.block_bytes,
        std::min(part, blocks - begin),
        tensor.values<float>().data() + begin * type.block_elements);
  });
  return tensor;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : settings_) keys.push_back(key);
  return keys;
}

const GgufFile::Value* GgufFile::setting(std::string_view key) const {
  const auto place = settings_.find(key);
  return place == settings_.end() ? nullptr : &place->second.value;
}

std::span<const std::byte> GgufFile::setting_bytes(std::string_view key) const {
  const auto place = settings_.find(key);
  require(place != settings_.end(), where_.c_str(), "no setting is called ",
          in_quotes(std::string(key)));
  return place->second.bytes;
}

namespace {

// The value if it is there and of the type.
template <typename T, typename Value>
std::optional<T> as(const Value* value, const std::string& where,
                    std::string_view key, const char* what) {
  if (value == nullptr) return std::nullopt;
  if (const T* typed = std::get_if<T>(value)) return *typed;
  throw_parse_error(where.c_str(), key, " must be ", what);
}

}  // namespace

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  return as<std::int64_t>(setting(key), where_, key, "an integer");
}

std::optional<double> GgufFile::real(std::string_view key) const {
  return as<double>(setting(key), where_, key, "a real number");
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  return as<bool>(setting(key), where_, key, "a bool");
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  return as<std::string_view>(setting(key), where_, key, "a text");
}

const GgufFile::ArrayPlace* GgufFile::array(std::string_view key,
                                            const char* what) const {
  const Value* value = setting(key);
  if (value == nullptr) return nullptr;
  const auto* place = std::get_if<ArrayPlace>(value);
  if (place == nullptr) {
    throw_parse_error(where_.c_str(), key, " must be an array of ", what);
  }
  return place;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(
    std::string_view key) const {
  const ArrayPlace* place = array(key, "texts");
  if (place == nullptr) return std::nullopt;
  if (place->type != GgufType::kText) {
    throw_parse_error(where_.c_str(), key, " must be an array of texts");
  }
  ByteReader reader(place->bytes, where_);
  std::vector<std::string_view> texts;
  for (std::uint64_t i = 0; i < place->count; ++i) {
    texts.push_back(read_text(reader));
  }
  return texts;
}

std::optional<std::vector<double>> GgufFile::reals(std::string_view key) const {
  const ArrayPlace* place = array(key, "real numbers");
  if (place == nullptr) return std::nullopt;
  if (!io::gguf_is_real(place->type)) {
    throw_parse_error(where_.c_str(), key, " must be an array of real numbers");
  }
  ByteReader reader(place->bytes, where_);
  std::vector<double> reals;
  for (std::uint64_t i = 0; i < place->count; ++i) {
    reals.push_back(io::read_gguf_real(reader, place->type));
  }
  return reals;
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(
    std::string_view key) const {
  const ArrayPlace* place = array(key, "integers");
  if (place == nullptr) return std::nullopt;
  if (io::gguf_size_of(place->type) == 0 || io::gguf_is_real(place->type) ||
      place->type == GgufType::kBool) {
    throw_parse_error(where_.c_str(), key, " must be an array of integers");
  }
  ByteReader reader(place->bytes, where_);
  std::vector<std::int64_t> integers;
  for (std::uint64_t i = 0; i < place->count; ++i) {
    integers.push_back(io::read_gguf_integer(reader, place->type));
  }
  return integers;
}

}  // namespace regard
