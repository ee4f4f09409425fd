// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/language_model.h"

// Models made smaller: weights rounded to integers once, in a file.
namespace regard::tasks {

// What became of one tensor.
struct QuantizedTensor {
  std::string name;
  std::string from, to;  // types, as the file has them; equal: it was left
                         // alone
  std::int64_t bytes_before = 0, bytes_after = 0;
  // Root of the mean square of the change and of the weights.
  double error = 0, size = 0;
};

struct QuantizeOptions {
  // GGUF: kInt8 makes matrices Q8_0; kInt4 makes them Q4_1, and Q8_0 of the
  // tables of the first and the last layer, on which a text hangs most.
  ops::WeightStorage to = ops::WeightStorage::kInt8;
  std::function<void(std::int64_t done, std::int64_t all)> progress{};
};

// Writes a GGUF file anew. Matrices whose rows are no multiples of 32 and
// everything that is no matrix stay as they are. Throws InvalidArgument for
// another `to` and for weights that are not finite, and what GgufFile and
// save_gguf throw; nothing is then written.
std::vector<QuantizedTensor> quantize_gguf(const std::filesystem::path& from,
                                           const std::filesystem::path& to,
                                           const QuantizeOptions& options = {});

// Writes the folder of a pretrained encoder (TextEncoder::load) anew: matrices
// that are multiplied become int8 with a float32 scale per 64 elements of a
// row, or int4 with a float16 scale and minimum for each 32, in safetensors
// with the scales beside them; what is looked up and everything else stays as
// it is. Read as stored, it gives the bits that the old folder gives when it is
// read as int8 or int4. Matrices whose rows are no multiples of 64, or 32, stay
// floats. Settings, tokenizers and pages (.json, .txt, .model, .md, LICENSE)
// are copied. `to` must not be there yet. Throws InvalidArgument for another
// options.to, a `to` that is there and weights that are not finite, and what
// TextEncoder::load throws.
std::vector<QuantizedTensor> quantize_encoder(
    const std::filesystem::path& from, const std::filesystem::path& to,
    const QuantizeOptions& options = {});

// The kind that the config.json of a model names that was trained here, as
// "regard translator" or "regard classifier"; empty for any other folder.
// Throws ParseError for a config that is no JSON object.
std::string trained_kind(const std::filesystem::path& folder);

// Writes the folder of a model that was trained here anew, as
// quantize_encoder() does: the matrices of its attentions and feed-forward
// blocks, and of an output that is no table, become int8 or int4. Where it is
// loaded they are the float32 values of the codes, or with kAsStored, as in
// Translator::load(folder, kAsStored), these codes. Throws what
// quantize_encoder() throws, and InvalidArgument for any other folder.
std::vector<QuantizedTensor> quantize_trained(
    const std::filesystem::path& from, const std::filesystem::path& to,
    const QuantizeOptions& options = {});

// What the matrices of such a folder are: kInt8 or kInt4; kFloat32 for any
// other folder.
ops::WeightStorage stored_weights(const std::filesystem::path& folder);

// How well a model foretells a text: e to the mean of -log p(token | those
// before it). The text is cut into parts of `part` tokens, each read for
// itself, and the first token of a part is not counted. Throws InvalidArgument
// for fewer than two tokens, a part below 2 or longer than the context, and a
// token that the model does not have.
double perplexity(const LanguageModel& model,
                  std::span<const std::int32_t> tokens, std::int64_t part = 256,
                  Threads threads = {});

}  // namespace regard::tasks
