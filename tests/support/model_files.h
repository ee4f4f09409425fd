// SPDX-License-Identifier: Apache-2.0
// Writes the files of models, right or wrong in one place, for the tests of
// those who read them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace regard::test {

template <typename T>
std::string bytes_of_number(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string gguf_text(std::string_view text) {
  return bytes_of_number<std::uint64_t>(text.size()) + std::string(text);
}

// One file, as settings and tensors are added. Everything can be overruled.
class GgufWriter {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::int64_t more_settings = 0;  // than there are
  std::int64_t more_tensors = 0;
  std::uint64_t alignment = 32;

  template <typename T>
  GgufWriter& number(std::string_view key, std::uint32_t type, T value) {
    return raw_setting(key, type, bytes_of_number(value));
  }
  GgufWriter& integer(std::string_view key, std::uint32_t value) {
    return number(key, 4, value);
  }
  GgufWriter& real(std::string_view key, float value) {
    return number(key, 6, value);
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    return raw_setting(key, 8, gguf_text(value));
  }
  GgufWriter& texts(std::string_view key,
                    const std::vector<std::string>& values) {
    std::string bytes = bytes_of_number<std::uint32_t>(8) +
                        bytes_of_number<std::uint64_t>(values.size());
    for (const std::string& value : values) bytes += gguf_text(value);
    return raw_setting(key, 9, bytes);
  }
  template <typename T>
  GgufWriter& numbers(std::string_view key, std::uint32_t type,
                      const std::vector<T>& values) {
    std::string bytes =
        bytes_of_number(type) + bytes_of_number<std::uint64_t>(values.size());
    for (const T value : values) bytes += bytes_of_number(value);
    return raw_setting(key, 9, bytes);
  }
  GgufWriter& raw_setting(std::string_view key, std::uint32_t type,
                          std::string_view bytes) {
    ++settings_count_;
    settings_ += gguf_text(key) + bytes_of_number(type) + std::string(bytes);
    return *this;
  }

  // Fastest dimension first, as the files have it.
  GgufWriter& tensor(std::string_view name,
                     const std::vector<std::uint64_t>& extents,
                     const std::vector<float>& values) {
    const std::uint64_t offset = data_.size();
    for (const float value : values) data_ += bytes_of_number(value);
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return description(name, extents, 0, offset);
  }
  // Of any type, by the bytes of its blocks.
  GgufWriter& blocks(std::string_view name,
                     const std::vector<std::uint64_t>& extents,
                     std::uint32_t type, std::string_view bytes) {
    const std::uint64_t offset = data_.size();
    data_ += bytes;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return description(name, extents, type, offset);
  }
  GgufWriter& description(std::string_view name,
                          const std::vector<std::uint64_t>& extents,
                          std::uint32_t type, std::uint64_t offset) {
    ++tensors_count_;
    tensors_ += gguf_text(name) +
                bytes_of_number(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) {
      tensors_ += bytes_of_number(extent);
    }
    tensors_ += bytes_of_number(type) + bytes_of_number(offset);
    return *this;
  }

  std::string bytes() const {
    std::string file = magic + bytes_of_number(version) +
                       bytes_of_number(tensors_count_ + more_tensors) +
                       bytes_of_number(settings_count_ + more_settings) +
                       settings_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::int64_t settings_count_ = 0, tensors_count_ = 0;
  std::string settings_, tensors_, data_;
};

// A llama2.c model of version 0, its weights from `next`.
struct Llama2cSizes {
  std::int32_t dim = 8, hidden = 6, layers = 2, heads = 2, kv_heads = 1;
  std::int32_t vocab = 5, context = 16;  // a negative vocab: not tied
};

inline std::int64_t llama2c_floats(const Llama2cSizes& s) {
  const std::int64_t vocab = s.vocab < 0 ? -s.vocab : s.vocab;
  const std::int64_t head_dim = s.dim / s.heads;
  const std::int64_t layer = 2 * s.dim + 2 * s.dim * s.dim +
                             2 * s.kv_heads * head_dim * s.dim +
                             3 * s.hidden * s.dim;
  return vocab * s.dim * (s.vocab < 0 ? 2 : 1) + s.layers * layer + s.dim +
         s.context * head_dim;
}

template <typename Next>
std::string llama2c_file(const Llama2cSizes& s, Next next) {
  std::string file;
  for (const std::int32_t size :
       {s.dim, s.hidden, s.layers, s.heads, s.kv_heads, s.vocab, s.context}) {
    file += bytes_of_number(size);
  }
  const std::int64_t count = llama2c_floats(s);
  for (std::int64_t i = 0; i < count; ++i) {
    file += bytes_of_number(static_cast<float>(next()));
  }
  return file;
}

// A vocabulary as llama2.c exports it.
inline std::string llama2c_pieces(
    const std::vector<std::pair<std::string, float>>& pieces,
    std::int32_t longest = 16) {
  std::string file = bytes_of_number(longest);
  for (const auto& [piece, score] : pieces) {
    file += bytes_of_number(score) +
            bytes_of_number(static_cast<std::int32_t>(piece.size())) + piece;
  }
  return file;
}

}  // namespace regard::test
