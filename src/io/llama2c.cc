// SPDX-License-Identifier: Apache-2.0
#include "regard/io/llama2c.h"

#include <cstring>
#include <utility>

#include "io/byte_reader.h"
#include "io/mapped_file.h"
#include "regard/core/error.h"

namespace regard {
namespace {

using io::ByteReader;
using Sizes = Llama2cFile::Sizes;

constexpr std::uint32_t kLaterMagic = 0x616b3432;  // "ak42": version 1 on
constexpr std::size_t kHeaderBytes = 7 * sizeof(std::int32_t);

Sizes read_sizes(ByteReader& reader) {
  const char* where = reader.where().c_str();
  if (reader.left() < kHeaderBytes) {
    throw_parse_error(where, "a llama2.c model begins with ", kHeaderBytes,
                      " bytes of sizes; this has ", reader.left());
  }
  const auto read = [&] { return reader.number<std::int32_t>("the sizes"); };
  Sizes s;
  s.model_dim = read();
  if (s.model_dim == static_cast<std::int32_t>(kLaterMagic)) {
    throw_parse_error(where, "only version 0 of llama2.c's format is read; ",
                      "this is version ", read());
  }
  s.feed_forward_dim = read();
  s.layers = read();
  s.heads = read();
  s.kv_heads = read();
  s.vocab = read();
  s.context = read();
  // A negative vocabulary says that the output has a weight of its own.
  s.tied_output = s.vocab > 0;
  if (s.vocab < 0) s.vocab = -s.vocab;
  const std::pair<const char*, std::int64_t> all[] = {
      {"model_dim", s.model_dim}, {"feed_forward_dim", s.feed_forward_dim},
      {"layers", s.layers},       {"heads", s.heads},
      {"kv_heads", s.kv_heads},   {"vocab", s.vocab},
      {"context", s.context}};
  for (const auto& [name, size] : all) {
    if (size <= 0) {
      throw_parse_error(where, "every size must be positive; ", name, " is ",
                        size, " (is it a llama2.c model?)");
    }
  }
  if (s.model_dim % s.heads != 0 || s.head_dim() % 2 != 0) {
    throw_parse_error(where, "heads must divide model_dim into even parts; ",
                      s.model_dim, " and ", s.heads, " heads came");
  }
  if (s.heads % s.kv_heads != 0) {
    throw_parse_error(where, "kv_heads must divide heads; ", s.kv_heads,
                      " and ", s.heads, " came");
  }
  return s;
}

// Hands out the weights in the order of the file. Sizes are below 2^31, so a
// product of two of them cannot overflow; with a third, they are counted
// against the floats that are left before they are multiplied.
class Weights {
 public:
  Weights(std::span<const std::byte> bytes, const std::string& where)
      : next_(reinterpret_cast<const float*>(bytes.data())),
        left_(static_cast<std::int64_t>(bytes.size() / sizeof(float))),
        rest_(bytes.size() % sizeof(float)),
        where_(where) {}

  // Some matrices [rows, columns], one after the other.
  const float* take(std::int64_t count, std::int64_t rows, std::int64_t columns,
                    const char* what) {
    if (count > left_ / (rows * columns)) {
      throw_parse_error(where_.c_str(), "the file ends within ", what, ": ",
                        count, " times [", rows, ", ", columns,
                        "] are wanted, ", left_, " floats are left");
    }
    const float* taken = next_;
    next_ += count * rows * columns;
    left_ -= count * rows * columns;
    return taken;
  }

  void check_end() const {
    if (left_ != 0 || rest_ != 0) {
      throw_parse_error(where_.c_str(),
                        "the file is longer than its sizes say: ",
                        static_cast<std::size_t>(left_) * sizeof(float) + rest_,
                        " bytes follow the weights (is it a llama2.c model?)");
    }
  }

 private:
  const float* next_;
  std::int64_t left_;
  std::size_t rest_;
  const std::string& where_;
};

}  // namespace

struct Llama2cFile::Mapping {
  explicit Mapping(const std::filesystem::path& path)
      : file(path, "Llama2cFile::open") {}
  io::MappedFile file;
};

Llama2cFile::Llama2cFile(Llama2cFile&&) noexcept = default;
Llama2cFile& Llama2cFile::operator=(Llama2cFile&&) noexcept = default;
Llama2cFile::~Llama2cFile() = default;

Llama2cFile::Llama2cFile(const std::string& where,
                         std::span<const std::byte> bytes) {
  require(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0,
          where.c_str(), "the bytes must be aligned for float");
  ByteReader reader(bytes, where);
  sizes_ = read_sizes(reader);
  const Sizes& s = sizes_;
  Weights weights(bytes.subspan(kHeaderBytes), where);
  std::map<std::string, TensorView<const float, 2>> parameters;
  const auto one = [&](const char* name, std::int64_t rows,
                       std::int64_t columns) {
    parameters[name] = {weights.take(1, rows, columns, name), {rows, columns}};
  };
  // All layers' weights of one kind stand together. Names are made only once
  // the weights are known to be there, so the file bounds their number.
  const auto each = [&](const char* name, std::int64_t rows,
                        std::int64_t columns) {
    const float* data = weights.take(s.layers, rows, columns, name);
    for (std::int64_t i = 0; i < s.layers; ++i) {
      parameters["blk." + std::to_string(i) + "." + name] = {
          data + i * rows * columns, {rows, columns}};
    }
  };
  const std::int64_t dim = s.model_dim;
  const std::int64_t kv_dim = s.kv_heads * s.head_dim();
  one("token_embd.weight", s.vocab, dim);
  each("attn_norm.weight", 1, dim);
  each("attn_q.weight", dim, dim);
  each("attn_k.weight", kv_dim, dim);
  each("attn_v.weight", kv_dim, dim);
  each("attn_output.weight", dim, dim);
  each("ffn_norm.weight", 1, dim);
  each("ffn_gate.weight", s.feed_forward_dim, dim);
  each("ffn_down.weight", dim, s.feed_forward_dim);
  each("ffn_up.weight", s.feed_forward_dim, dim);
  one("output_norm.weight", 1, dim);
  // Tables of cos and sin follow, which the format keeps for older readers.
  weights.take(2, s.context, s.head_dim() / 2, "the rotary tables");
  if (!s.tied_output) one("output.weight", s.vocab, dim);
  weights.check_end();
  parameters_ = std::move(parameters);
}

Llama2cFile Llama2cFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_unique<const Mapping>(path);
  Llama2cFile file("Llama2cFile::open: '" + path.string() + "'",
                   mapping->file.bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

Llama2cFile Llama2cFile::parse(std::span<const std::byte> bytes) {
  return {"Llama2cFile::parse", bytes};
}

}  // namespace regard
