// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "regard/tensor/tensor.h"

namespace regard {

// A model.bin as CTranslate2 writes it, versions 2 to 6: variables by name, of
// which some are other names of the same. The file is mapped into memory and
// must not be cut shorter while it is open.
//
// Every size is checked against the bytes of the file before it is used, and
// nothing is allocated that the file does not hold. A broken file throws
// ParseError, one that cannot be read IoError; both texts name the file, and
// the variable where it is one's fault.
class Ctranslate2File {
 public:
  enum class Type { kFloat32, kInt8, kInt16, kInt32, kFloat16, kBFloat16 };
  struct Variable {
    Type type = Type::kFloat32;
    Shape shape;
    std::span<const std::byte> bytes;  // as many as type and shape say
  };

  static Ctranslate2File open(const std::filesystem::path& path);
  // The same for bytes in memory, which are borrowed.
  static Ctranslate2File parse(std::span<const std::byte> bytes);

  Ctranslate2File(Ctranslate2File&&) noexcept;
  Ctranslate2File& operator=(Ctranslate2File&&) noexcept;
  ~Ctranslate2File();

  // What kind of model it is, "TransformerSpec"; and the revision of that.
  const std::string& spec() const { return spec_; }
  std::uint32_t revision() const { return revision_; }

  // By name, aliases with them.
  const std::map<std::string, Variable>& variables() const {
    return variables_;
  }
  bool contains(const std::string& name) const;

  // A variable as float32. int8 has a scale for each row, int16 one for all, in
  // a variable of the same name and "_scale": the value is the integer over its
  // scale. Throws ParseError where it is missing or its scale does not fit.
  Tensor values(const std::string& name) const;

  // A setting: a variable of one number; nothing where it is missing.
  std::optional<std::int64_t> setting(const std::string& name) const;

 private:
  struct Mapping;
  Ctranslate2File(std::string where, std::span<const std::byte> bytes);
  const Variable& at(const std::string& name) const;

  std::string where_;
  std::string spec_;
  std::uint32_t revision_ = 0;
  std::map<std::string, Variable> variables_;
  std::unique_ptr<const Mapping> mapping_;
};

}  // namespace regard
