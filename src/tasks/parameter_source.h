// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "nn/transformer_layer.h"
#include "regard/io/gguf.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// One parameter of a file, not yet read: a model's weights are made one after
// the other, so that only one is there twice.
struct Parameter {
  Shape shape;
  std::function<Tensor()> load;  // in float32

  // The integers of a file that has such.
  struct Codes {
    GgufFile::Groups layout;
    std::function<void(std::int64_t row, std::int8_t* codes, float* scales,
                       float* minima)>
        read;
  };
  std::optional<Codes> codes{};
};

// The parameters of a file by their names there.
struct ParameterSource {
  std::map<std::string, Parameter> parameters;
  // How the file calls what GGUF calls so.
  std::function<std::string(const std::string&)> name_of =
      [](const std::string& name) { return name; };
};

// Rows [begin, begin + count) of a parameter [out, in].
struct ParameterRows {
  const Parameter* parameter;
  std::int64_t begin, count;
};
// All of them, one below the other, as one weight, without a bias.
nn::detail::PackedLinear pack_parameters(std::span<const ParameterRows> parts,
                                         ops::WeightStorage storage);

}  // namespace regard::tasks
