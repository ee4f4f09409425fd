// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "io/atomic_file.h"
#include "io/gguf_tensors.h"
#include "io/gguf_types.h"
#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/io/gguf.h"

namespace regard {
namespace {

constexpr const char* kWhere = "save_gguf";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr const char* kAlignment = "general.alignment";

// What comes before the data.
class Header {
 public:
  template <typename T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void text(std::string_view text) {
    number<std::uint64_t>(text.size());
    raw(std::as_bytes(std::span(text)));
  }
  void pad(std::uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A type and its number in the files.
std::pair<std::uint32_t, const io::GgufTensorType*> type_named(
    const std::string& name) {
  constexpr std::uint32_t kMostTypes = 256;
  for (std::uint32_t number = 0; number < kMostTypes; ++number) {
    const io::GgufTensorType* type = io::gguf_tensor_type(number);
    if (type != nullptr && type->name == name) return {number, type};
  }
  throw InvalidArgument(std::string(kWhere) +
                        ": no type of tensors is called " +
                        io::in_quotes(name));
}

// Throws for a shape that is none, or whose rows are no whole blocks.
std::uint64_t bytes_of(const GgufTensor& tensor) {
  const io::GgufTensorType& type = *type_named(tensor.type).second;
  const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  require(row % type.block_elements == 0, kWhere, "rows of ", type.name,
          " are whole blocks of ", type.block_elements, " elements; ",
          io::in_quotes(tensor.name), " is ", to_string(tensor.shape));
  return static_cast<std::uint64_t>(element_count(tensor.shape) /
                                    type.block_elements * type.block_bytes);
}

void check_name(const std::string& name) {
  require(name.size() <= io::kLongestGgufName, kWhere,
          "a name may have at most ", io::kLongestGgufName, " bytes; ",
          io::in_quotes(name), " has ", name.size());
}

// What GgufFile would not read back.
void check(const std::map<std::string, std::uint32_t>& set,
           std::span<const GgufTensor> tensors) {
  for (const auto& [key, value] : set) check_name(key);
  require(!set.contains(kAlignment), kWhere, kAlignment,
          " is that of the other file, and cannot be set");
  std::set<std::string_view> names;
  for (const GgufTensor& tensor : tensors) {
    check_name(tensor.name);
    require(tensor.shape.size() <= io::kMostGgufDimensions, kWhere,
            "a tensor has at most ", io::kMostGgufDimensions, " dimensions; ",
            io::in_quotes(tensor.name), " is ", to_string(tensor.shape));
    require(names.insert(tensor.name).second, kWhere, "the tensor ",
            io::in_quotes(tensor.name), " comes twice");
  }
}

std::uint64_t rounded_up(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

void save_gguf(const std::filesystem::path& path, const GgufFile& settings_of,
               const std::map<std::string, std::uint32_t>& set,
               std::span<const GgufTensor> tensors) {
  check(set, tensors);
  const auto alignment = static_cast<std::uint64_t>(
      settings_of.integer(kAlignment).value_or(kDefaultAlignment));
  std::vector<std::string> kept = settings_of.keys();
  std::erase_if(kept,
                [&](const std::string& key) { return set.contains(key); });

  Header header;
  header.raw(std::as_bytes(std::span("GGUF", 4)));
  header.number(kVersion);
  header.number<std::uint64_t>(tensors.size());
  header.number<std::uint64_t>(kept.size() + set.size());
  for (const std::string& key : kept) {
    header.raw(settings_of.setting_bytes(key));
  }
  for (const auto& [key, value] : set) {
    header.text(key);
    header.number(io::GgufType::kUint32);
    header.number(value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto i = tensor.shape.rbegin(); i != tensor.shape.rend(); ++i) {
      header.number(static_cast<std::uint64_t>(*i));
    }
    header.number(type_named(tensor.type).first);
    header.number(offset);
    offset = rounded_up(offset + bytes_of(tensor), alignment);
  }
  header.pad(alignment);

  io::AtomicFile file(path, kWhere);
  file.write(header.bytes());
  const std::vector<std::byte> zeros(alignment, std::byte{0});
  for (const GgufTensor& tensor : tensors) {
    const std::vector<std::byte> blocks = tensor.blocks();
    const std::uint64_t size = bytes_of(tensor);
    require(blocks.size() == size, kWhere, io::in_quotes(tensor.name), " has ",
            size, " bytes as ", tensor.type, "; got ", blocks.size());
    file.write(blocks);
    file.write(std::span(zeros).first(rounded_up(size, alignment) - size));
  }
  file.commit();
}

}  // namespace regard
