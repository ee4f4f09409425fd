// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nn/transformer_layer.h"
#include "ops/norms.h"
#include "ops/rows.h"
#include "regard/core/threads.h"
#include "regard/io/safetensors.h"
#include "regard/tensor/tensor.h"
#include "tasks/encoder_config.h"

namespace regard::tasks {

// A matrix where it lies in the mapped file, or a copy of its own where the
// file has another type.
struct EncoderTable {
  Tensor copy;
  ops::ConstRows rows{};
};

// The weights of a pretrained encoder. What is looked up stays in the file,
// what is multiplied is packed.
struct EncoderWeights {
  EncoderWeights(const std::filesystem::path& path,
                 const EncoderSettings& settings, Threads threads,
                 ops::WeightStorage storage);

  SafetensorsFile file;
  EncoderTable words;      // [vocab, embedding_dim]
  EncoderTable positions;  // [positions, embedding_dim]
  EncoderTable types;      // [types, embedding_dim], or null
  ops::NormWeights embedding_norm;
  nn::detail::PackedLinear projection;  // ALBERT's; else null
  // Those that differ; a pass goes through layers[order[i]].
  std::vector<nn::detail::TransformerLayerWeights> layers;
  std::vector<std::size_t> order;
  // MPNet's bias of a key that stands j - i behind its query, [heads, 2 n - 1],
  // n = max_length, in the order of j - i; else empty.
  Tensor relative_bias{Shape{0}};
};

// The names in `file` of the matrices that are multiplied, sorted. Throws
// ParseError where one is missing.
std::vector<std::string> encoder_matrices(const SafetensorsFile& file,
                                          const EncoderFolder& folder);

// The weights as parameters of nn::Encoder, with so many places. For families
// that differ from it in names alone: BERT, RoBERTa and DistilBERT.
StateDict encoder_parameters(const EncoderFolder& folder, std::int64_t places);

}  // namespace regard::tasks
