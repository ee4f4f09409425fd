// SPDX-License-Identifier: Apache-2.0
#include "regard/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io/quote.h"
#include "io/safetensors_header.h"

namespace regard {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the bytes of the files are used as they are");

// The file: 8 bytes that count the header, the header, the data.
constexpr std::size_t kLengthBytes = 8;
// The limit of the format's own library.
constexpr std::uint64_t kLongestHeader = 100'000'000;

std::uint64_t checked_header_size(std::span<const std::byte> bytes,
                                  const std::string& where) {
  if (bytes.size() < kLengthBytes) {
    throw_parse_error(where.c_str(),
                      "a safetensors file has at least 8 bytes; this has ",
                      bytes.size());
  }
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), kLengthBytes);
  if (size > kLongestHeader) {
    throw_parse_error(where.c_str(), "the header may have at most ",
                      kLongestHeader, " bytes; this says ", size,
                      " (is it a safetensors file?)");
  }
  if (size > bytes.size() - kLengthBytes) {
    throw_parse_error(where.c_str(), "the header has ", size,
                      " bytes, but the file ends after ",
                      bytes.size() - kLengthBytes,
                      "; it may have been cut off");
  }
  return size;
}

}  // namespace

struct SafetensorsFile::Mapping {
  explicit Mapping(const std::filesystem::path& path)
      : file(path, "SafetensorsFile::open") {}
  io::MappedFile file;
};

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept =
    default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile::SafetensorsFile(const std::string& where,
                                 std::span<const std::byte> bytes)
    : where_(where) {
  const std::uint64_t header_size = checked_header_size(bytes, where);
  const std::span<const std::byte> data =
      bytes.subspan(kLengthBytes + header_size);
  const std::string_view json(
      reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_size);
  io::SafetensorsHeader header = io::parse_safetensors_header(
      json, static_cast<std::int64_t>(data.size()), where);
  metadata_ = std::move(header.metadata);
  for (auto& [name, item] : header.items) {
    entries_.emplace(
        name,
        Entry{item.dtype, std::move(item.shape),
              data.subspan(static_cast<std::size_t>(item.begin),
                           static_cast<std::size_t>(item.end - item.begin))});
  }
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_unique<const Mapping>(path);
  SafetensorsFile file("SafetensorsFile::open: '" + path.string() + "'",
                       mapping->file.bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes) {
  return {"SafetensorsFile::parse", bytes};
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

bool SafetensorsFile::contains(std::string_view name) const {
  return entries_.find(name) != entries_.end();
}

const SafetensorsFile::Entry& SafetensorsFile::find(
    std::string_view name) const {
  const auto place = entries_.find(name);
  if (place != entries_.end()) return place->second;
  constexpr std::size_t kShown = 8;
  std::string known;
  std::size_t count = 0;
  for (const auto& [other, entry] : entries_) {
    if (count == kShown) break;
    known += (count++ == 0 ? "" : ", ") + io::in_quotes(other);
  }
  if (entries_.size() > kShown) known += ", ...";
  throw InvalidArgument(where_ + ": no tensor is called " +
                        io::in_quotes(name) + "; the file has " +
                        (known.empty() ? std::string("none") : known));
}

void SafetensorsFile::check_view(std::string_view name, const Entry& entry,
                                 DType dtype, int rank,
                                 std::size_t alignment) const {
  const char* where = where_.c_str();
  require(entry.dtype == dtype, where, "the elements of ", io::in_quotes(name),
          " are ", to_string(entry.dtype), ", not ", to_string(dtype));
  require(static_cast<int>(entry.shape.size()) == rank, where, "the rank of ",
          io::in_quotes(name), " must be ", rank, "; its shape is ",
          to_string(entry.shape));
  const auto address = reinterpret_cast<std::uintptr_t>(entry.data.data());
  require(entry.data.empty() || address % alignment == 0, where, "the data of ",
          io::in_quotes(name), " is not aligned to ", alignment,
          " bytes, so it cannot be viewed in place; tensor() copies it");
  if (dtype == DType::kBool) check_bools(name, entry);
}

// Any other byte in a bool is undefined behaviour for whoever reads it.
void SafetensorsFile::check_bools(std::string_view name,
                                  const Entry& entry) const {
  const auto bad = std::find_if(entry.data.begin(), entry.data.end(),
                                [](std::byte b) { return b > std::byte{1}; });
  if (bad == entry.data.end()) return;
  throw_parse_error(
      where_.c_str(), "element ", bad - entry.data.begin(), " of ",
      io::in_quotes(name),
      " is neither false (0) nor true (1): ", static_cast<int>(*bad));
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const Entry& entry = find(name);
  if (entry.dtype == DType::kBool) check_bools(name, entry);
  Tensor tensor(entry.dtype, entry.shape);
  if (!entry.data.empty()) {
    std::memcpy(tensor.bytes(), entry.data.data(), entry.data.size());
  }
  return tensor;
}

StateDict SafetensorsFile::state_dict() const {
  StateDict state;
  for (const auto& [name, entry] : entries_) state.emplace(name, tensor(name));
  return state;
}

namespace {

void check_header_size(std::size_t size) {
  require(size <= kLongestHeader, "save_safetensors",
          "the header may have at most ", kLongestHeader,
          " bytes; the names and metadata take ", size);
}

// Appends a string as JSON has it. Refuses what is not UTF-8, and what is too
// long before it is copied.
void append_string(std::string& json, const std::string& text) {
  check_header_size(json.size() + text.size());
  try {
    json += nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument("save_safetensors: names must be UTF-8; got " +
                          io::in_quotes(text));
  }
}

using Order = std::vector<std::pair<const std::string*, const Tensor*>>;

// Wider elements first, so that each tensor is aligned for its type without
// padding, which the format does not allow.
Order order_of(const StateDict& state) {
  Order order;
  order.reserve(state.size());
  for (const auto& [name, tensor] : state) order.push_back({&name, &tensor});
  std::stable_sort(
      order.begin(), order.end(), [](const auto& a, const auto& b) {
        return size_of(a.second->dtype()) > size_of(b.second->dtype());
      });
  return order;
}

std::string header_of(const Order& order,
                      const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (json.back() != '{') json += ',';
      append_string(json, key);
      json += ':';
      append_string(json, value);
    }
    json += '}';
  }
  std::size_t offset = 0;
  for (const auto& [name, tensor] : order) {
    require(*name != "__metadata__", "save_safetensors",
            "no tensor may be called __metadata__, which the format keeps for "
            "itself");
    if (json.size() > 1) json += ',';
    append_string(json, *name);
    json += ":{\"dtype\":\"";
    json += io::safetensors_name(tensor->dtype());
    json += "\",\"shape\":[";
    for (const std::int64_t extent : tensor->shape()) {
      if (json.back() != '[') json += ',';
      json += std::to_string(extent);
    }
    json += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += tensor->byte_count();
    json += std::to_string(offset) + "]}";
  }
  json += '}';
  // The data then begins at a multiple of 8, the widest element.
  json.append((8 - json.size() % 8) % 8, ' ');
  return json;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const StateDict& state,
                      const std::map<std::string, std::string>& metadata) {
  const Order order = order_of(state);
  const std::string header = header_of(order, metadata);
  check_header_size(header.size());
  const std::uint64_t length = header.size();
  io::AtomicFile file(path, "save_safetensors");
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const auto& [name, tensor] : order) {
    file.write({tensor->bytes(), tensor->byte_count()});
  }
  file.commit();
}

}  // namespace regard
