// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "regard/tensor/tensor_view.h"

namespace regard {

// A model as llama2.c exports it, version 0: seven numbers, then float32
// weights one after the other. The file is mapped into memory and must not be
// cut shorter while it is open.
//
// The format has no magic number, so the sizes must agree exactly: every number
// is checked against the bytes of the file before it is used. A file that does
// not agree throws ParseError, one that cannot be read IoError; both texts name
// the file.
class Llama2cFile {
 public:
  struct Sizes {
    std::int64_t model_dim = 0;
    std::int64_t feed_forward_dim = 0;
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t vocab = 0;
    std::int64_t context = 0;  // the longest text it was trained on
    bool tied_output = true;   // the embedding is the output's weight

    std::int64_t head_dim() const { return model_dim / heads; }
  };

  static Llama2cFile open(const std::filesystem::path& path);
  // The same for bytes in memory, which are borrowed, not copied, and must be
  // aligned for float.
  static Llama2cFile parse(std::span<const std::byte> bytes);

  Llama2cFile(Llama2cFile&&) noexcept;
  Llama2cFile& operator=(Llama2cFile&&) noexcept;
  ~Llama2cFile();

  const Sizes& sizes() const { return sizes_; }

  // Every weight under the name that GGUF gives it: token_embd.weight,
  // blk.0.attn_q.weight ... output_norm.weight, and output.weight if it is not
  // tied. Matrices are [out, in], norms [1, dim]. They borrow from this object.
  const std::map<std::string, TensorView<const float, 2>>& parameters() const {
    return parameters_;
  }

 private:
  struct Mapping;
  Llama2cFile(const std::string& where, std::span<const std::byte> bytes);

  Sizes sizes_;
  std::unique_ptr<const Mapping> mapping_;
  std::map<std::string, TensorView<const float, 2>> parameters_;
};

}  // namespace regard
