// SPDX-License-Identifier: Apache-2.0
// Tensors of a model with matrices of fewer bits. For a matrix NAME [out, in]:
// its codes (NAME, int8 [out, in], or uint8 [out, in / 2] with the even column
// in the lower half), NAME.scales [out, groups], and beside codes of 4 bits
// NAME.minima. A weight is scale * code + minimum.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/quantize.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

inline constexpr const char* kScalesEnding = ".scales";
inline constexpr const char* kMinimaEnding = ".minima";
// What the metadata of such a file calls its type.
inline constexpr const char* kWeightsEntry = "regard.weights";

struct RoundedState {
  StateDict state;
  std::vector<QuantizedTensor> reports;
};
// All tensors of a file, those for which is_matrix(name) says so rounded, where
// their rows are multiples of a group. Throws InvalidArgument for weights that
// are not finite, in the name of `where`.
RoundedState round_matrices(const SafetensorsFile& file,
                            FunctionRef<bool(const std::string&)> is_matrix,
                            const QuantizeOptions& options, const char* where);

// Writes a folder with the settings, tokenizers and pages of another, `deep`
// with those of the folders in it, and the weights.
void save_rounded(const std::filesystem::path& from,
                  const std::filesystem::path& to,
                  const std::filesystem::path& weights, bool deep,
                  const RoundedState& rounded, const SafetensorsFile& file,
                  const QuantizeOptions& options, const char* where);

// Throws InvalidArgument for another type than int8 or int4, and for a new
// folder that is there already.
void check_quantize(const std::filesystem::path& to,
                    const QuantizeOptions& options, const char* where);

// The type of the codes of a file; kFloat32 for one without.
ops::WeightStorage codes_of(const SafetensorsFile& file);

// The type that a model's weights get: `asked`, and for kAsStored that of its
// codes, since rounding their values anew gives the same codes. Throws
// InvalidArgument where there are none.
ops::WeightStorage weights_for(ops::WeightStorage asked,
                               ops::WeightStorage stored, const char* where);

// The codes among some tensors become float32. Throws ParseError for scales or
// minima that do not fit them.
void widen_codes(StateDict& state, const char* where);

}  // namespace regard::tasks
