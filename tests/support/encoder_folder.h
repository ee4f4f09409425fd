// SPDX-License-Identifier: Apache-2.0
// A tiny BERT in a folder, with random weights, to be loaded or spoiled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "io/files.h"
#include "regard/io/safetensors.h"

namespace regard::testing {

struct BertSizes {
  std::int64_t width = 8, inner = 12;
};

inline nlohmann::json bert_config(const BertSizes& sizes = {}) {
  return {{"model_type", "bert"},          {"vocab_size", 14},
          {"hidden_size", sizes.width},    {"num_hidden_layers", 2},
          {"num_attention_heads", 2},      {"intermediate_size", sizes.inner},
          {"max_position_embeddings", 20}, {"type_vocab_size", 2},
          {"layer_norm_eps", 1e-12},       {"hidden_act", "gelu"}};
}

inline StateDict bert_weights(const BertSizes& sizes = {}) {
  const std::int64_t width = sizes.width, inner = sizes.inner;
  StateDict state;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.7f);
  const auto add = [&](const std::string& name, const Shape& shape) {
    Tensor tensor(shape);
    for (float& value : tensor.values<float>()) value = normal(random);
    state.emplace(name, std::move(tensor));
  };
  const auto linear = [&](const std::string& name, std::int64_t out,
                          std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  };
  add("embeddings.word_embeddings.weight", {14, width});
  add("embeddings.position_embeddings.weight", {20, width});
  add("embeddings.token_type_embeddings.weight", {2, width});
  norm("embeddings.LayerNorm");
  for (int i = 0; i < 2; ++i) {
    const std::string at = "encoder.layer." + std::to_string(i) + ".";
    for (const char* part : {"query", "key", "value"}) {
      linear(at + "attention.self." + part, width, width);
    }
    linear(at + "attention.output.dense", width, width);
    norm(at + "attention.output.LayerNorm");
    linear(at + "intermediate.dense", inner, width);
    linear(at + "output.dense", width, inner);
    norm(at + "output.LayerNorm");
  }
  return state;
}

inline void write_encoder_folder(const std::filesystem::path& folder,
                                 const BertSizes& sizes = {}) {
  std::filesystem::create_directories(folder);
  write_text(folder / "config.json", bert_config(sizes).dump());
  write_text(folder / "vocab.txt",
             "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\nsat\n##s\n.\n"
             "mat\non\na\n");
  save_safetensors(folder / "model.safetensors", bert_weights(sizes));
}

}  // namespace regard::testing
