// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "regard/attention/kv_cache.h"
#include "regard/core/threads.h"
#include "regard/io/gguf.h"
#include "regard/io/llama2c.h"
#include "regard/nn/rotary.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"
#include "regard/text/byte_pair.h"

namespace regard::tasks {

// A decoder-only model of the Llama kind: tokens in, scores of the next one
// out. Each layer is
//
//   x += attention(rms_norm(x)), q and k turned by their positions
//   x += down(silu(gate(rms_norm(x))) * up(rms_norm(x)))
struct LanguageModelConfig {
  std::int64_t vocab = 0;
  std::int64_t model_dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t feed_forward_dim = 0;
  std::int64_t context = 0;  // the most tokens of a text
  float norm_epsilon = 1e-5f;
  nn::RotaryConfig rotary{};
  nn::RotaryPairing pairing = nn::RotaryPairing::kInterleaved;
};

// By the names that GGUF has for them; matrices [out, in], norms [1, dim]:
//   token_embd.weight, output_norm.weight, output.weight if it is not tied,
//   blk.N.attn_norm.weight, .attn_q.weight, .attn_k.weight, .attn_v.weight,
//   .attn_output.weight, .ffn_norm.weight, .ffn_gate.weight, .ffn_up.weight,
//   .ffn_down.weight
using ParameterViews = std::map<std::string, TensorView<const float, 2>>;

// A model's weights, laid out for the products. Never changes; any number of
// texts may be read with it at the same time.
class LanguageModel {
 public:
  // Copies the parameters. Throws InvalidArgument for a config that makes no
  // model, a parameter that is missing, of another shape or not the model's.
  LanguageModel(const LanguageModelConfig& config,
                const ParameterViews& parameters);
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  static LanguageModel from_llama2c(const Llama2cFile& file);
  // Throws ParseError for another architecture than llama, and for settings
  // that it needs and does not find, or that it does not have.
  static LanguageModel from_gguf(const GgufFile& file);

  const LanguageModelConfig& config() const;

  struct Weights;
  const Weights& weights() const { return *weights_; }

 private:
  std::unique_ptr<const Weights> weights_;
};

// A model with what cuts text into its tokens. The file of the model is GGUF or
// llama2.c's, told by how it begins. Without a file for the tokenizer, the one
// inside GGUF is taken. Throws ParseError or IoError for files that cannot be
// used, and ParseError where the vocabularies have different sizes.
struct LoadedModel {
  LanguageModel model;
  text::BytePairTokenizer tokenizer;
};
LoadedModel load_language_model(
    const std::filesystem::path& model,
    const std::optional<std::filesystem::path>& tokenizer = std::nullopt);

struct LanguageStateOptions {
  std::int64_t sequences = 1;
  KVCacheKind cache = KVCacheKind::kContiguous;  // or kPaged
  DType storage = DType::kFloat32;               // of keys and values
  std::int64_t page_tokens = 16;                 // of a paged cache
  // Pages a layer; 0: enough for all sequences at full length.
  std::int64_t pages = 0;
  Threads threads{};
};

// Some texts that a model is reading, and what it remembers of them.
//
// The scores of a token depend on its text alone: not on the other texts, how
// many tokens are read at a time, the kind of the cache or the number of
// threads. With float32 storage they are the same bits.
class LanguageState {
 public:
  // Borrows the model. Throws InvalidArgument for options that make no cache.
  explicit LanguageState(const LanguageModel& model,
                         const LanguageStateOptions& options = {});
  ~LanguageState();
  LanguageState(LanguageState&&) noexcept;
  LanguageState& operator=(LanguageState&&) noexcept;

  std::int64_t sequences() const;
  std::int64_t length(std::int64_t sequence) const;  // tokens read so far

  // More tokens of one sequence.
  struct Reading {
    std::int64_t sequence = 0;
    std::span<const std::int32_t> tokens;
  };

  // Reads on in some sequences, each named once, by any number of tokens but 0:
  // a prompt, or the one that was just written. Then logits() has a row for
  // each reading. Throws InvalidArgument for a token outside the vocabulary or
  // a text longer than the context, and OutOfPages; nothing is then read.
  void read(std::span<const Reading> readings);
  TensorView<const float, 2> logits() const;  // [readings, vocab]

  // Forgets what was read from `length` on, or all of it.
  void truncate(std::int64_t sequence, std::int64_t length);
  void release(std::int64_t sequence);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace regard::tasks
