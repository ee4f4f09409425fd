// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tensor/tensor_view.h"
#include "regard/view/trace.h"

namespace regard::view {

// The tokens of weights that another model computed. Where there is a target,
// its tokens are the queries of cross attention and the source's the keys.
struct Tokens {
  std::vector<std::string> source;
  std::optional<std::vector<std::string>> target;
  bool only_cross = false;  // all weights are between target and source
};

// ["a", "b"] for self attention, {"source": [...], "target": [...]} for a model
// with a decoder, or {"queries": [...], "keys": [...]} for one attention.
// Throws ParseError, which names `where`, for anything else.
Tokens parse_tokens(std::string_view json, const std::string& where);

// The weights of one kind of attention, a layer at a time.
struct ImportedSection {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // [heads, rows, columns]; valid until the next call.
  std::function<TensorView<const float, 3>(std::int64_t layer)> layer;
};

// The sections of a safetensors file, floating tensors of any width. A tensor
//
//   [layers, heads, queries, keys]   is a section,
//   [heads, queries, keys]           a layer, if its name ends in a number
//                                    (encoder.0, layer.11); [1, heads,
//                                    queries, keys] too, as Hugging Face has it
//   [queries, keys]                  a layer of one head
//
// and without a number a section of one layer. The name before the number is
// the section's. Throws ParseError for other shapes, for layers that are
// missing or differ in shape, IoError for a file that cannot be read.
std::vector<ImportedSection> open_weights(const std::filesystem::path& path);

// A trace of imported weights. Sections called encoder, decoder and
// cross are between the texts that they say: source and source, target and
// target, target and source. Any other is by its shape. Throws InvalidArgument
// where the shapes and tokens do not fit, or would fit in two ways.
Trace trace_imported(Tokens tokens, std::vector<ImportedSection> sections);

}  // namespace regard::view
