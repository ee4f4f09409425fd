// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/attention/kv_cache.h"
#include "regard/core/threads.h"
#include "regard/io/gguf.h"
#include "regard/io/llama2c.h"
#include "regard/nn/rotary.h"
#include "regard/ops/activation.h"
#include "regard/ops/norm.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// A decoder-only model: tokens in, scores of the next one out. Each layer is
//
//   x += result_norm(attention(norm(x))), q and k rotated by their positions
//   x += result_norm(feed_forward(norm(x)))
//
// One description for Llama, Mistral, SmolLM, Qwen, Gemma, Phi-3 and GPT-2;
// what it says at first is Llama.
struct LanguageModelConfig {
  std::int64_t vocab = 0;
  std::int64_t model_dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t feed_forward_dim = 0;
  std::int64_t context = 0;  // the most tokens of a text

  ops::Norm norm = ops::Norm::kRmsNorm;
  float norm_epsilon = 1e-5f;
  ops::Activation activation = ops::Activation::kSwiglu;

  nn::RotaryConfig rotary{};  // a rotary_dim of 0: nothing turns
  nn::RotaryPairing pairing = nn::RotaryPairing::kInterleaved;
  // Some layers may see no more than the last `window` tokens, the token itself
  // among them: all, or those that `windowed` [layers] names. 0: none.
  std::int64_t window = 0;
  std::vector<bool> windowed{};
  std::optional<nn::RotaryConfig> window_rotary{};  // theirs, if another

  float attention_scale = 0.0f;  // of q . k; 0 means 1 / sqrt(head_dim)
  // x becomes softcap * tanh(x / softcap); 0: it stays.
  float attention_softcap = 0.0f;
  float output_softcap = 0.0f;
  float embedding_scale = 1.0f;

  // Which parameters there are beside those that every model has.
  bool learned_positions = false;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool feed_forward_bias = false;
  bool qk_norm = false;        // of each head, before it turns
  bool result_norms = false;   // of what a block adds
  bool fused_qkv = false;      // one matrix, q over k over v
  bool fused_gate_up = false;  // one matrix, the gate over the other
  bool tied_output = true;     // the embedding is the output's weight
};

// By the names that GGUF has for them; matrices [out, in], vectors [1, dim]:
//   token_embd.weight, position_embd.weight, output_norm.weight, output.weight,
//   blk.N.attn_norm.weight, .attn_q.weight, .attn_k.weight, .attn_v.weight or
//   .attn_qkv.weight, .attn_q_norm.weight, .attn_k_norm.weight,
//   .attn_output.weight, .post_attention_norm.weight,
//   .ffn_norm.weight, .ffn_gate.weight, .ffn_up.weight, .ffn_down.weight,
//   .post_ffw_norm.weight, and .bias where there is one
using ParameterViews = std::map<std::string, TensorView<const float, 2>>;

// A model's weights, laid out for the products. Never changes; any number of
// texts may be read with it at the same time.
class LanguageModel {
 public:
  // Copies the parameters. Throws InvalidArgument for a config that makes no
  // model, a parameter that is missing, of another shape or not the model's.
  LanguageModel(const LanguageModelConfig& config,
                const ParameterViews& parameters,
                ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  static LanguageModel from_llama2c(
      const Llama2cFile& file,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  // The architectures llama, qwen2, qwen3, gemma, gemma2, gemma3, phi3 and
  // gpt2; weights of any type, which become `weights`. Throws
  // ParseError for others, and for settings that it needs and does not find, or
  // that it does not have.
  static LanguageModel from_gguf(
      const GgufFile& file,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  // A Hugging Face folder of the types llama, mistral, qwen2, qwen3, gemma,
  // gemma2, gemma3_text, phi3 and gpt2: config.json, and model.safetensors or
  // the parts that model.safetensors.index.json names. Throws ParseError and
  // IoError as above.
  static LanguageModel from_folder(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  const LanguageModelConfig& config() const;

  struct Weights;
  const Weights& weights() const { return *weights_; }

  explicit LanguageModel(std::unique_ptr<const Weights> weights);

 private:
  std::unique_ptr<const Weights> weights_;
};

// A model with what cuts text into its tokens. The model is a Hugging Face
// folder, or a file in GGUF or llama2.c's format, told by how it begins.
// Without a path for the tokenizer, the one in the folder or inside GGUF is
// taken. Throws ParseError or IoError for files that cannot be used, and
// ParseError where the vocabularies of a file have different sizes; those of a
// folder may, as the embedding is often padded.
struct LoadedModel {
  LanguageModel model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<std::int32_t> stop_tokens{};  // each of them ends a text
  std::string chat_template{};              // as the files have it; empty: none
};
LoadedModel load_language_model(
    const std::filesystem::path& model,
    const std::optional<std::filesystem::path>& tokenizer = std::nullopt,
    ops::WeightStorage weights = ops::WeightStorage::kFloat32);

struct LanguageStateOptions {
  std::int64_t sequences = 1;
  KVCacheKind cache = KVCacheKind::kContiguous;  // or kPaged
  DType storage = DType::kFloat32;               // of keys and values
  std::int64_t page_tokens = 16;                 // of a paged cache
  // Pages a layer; 0: enough for all sequences at full length.
  std::int64_t pages = 0;
  Threads threads{};
};

// What every head looked at while it read a text.
struct LanguageTrace {
  Tensor weights{};  // [layers, heads, tokens, tokens]
  // [layers, heads, tokens, head_dim], what the weights were made of: softmax
  // of scale * q k^T. Empty for models that cap their scores.
  Tensor queries{}, keys{};
  double scale = 0;
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

  // Reads a whole text into a sequence that has read nothing yet, as read()
  // does, and gives what every head looked at. Memory grows with the square of
  // the length. Throws as read() does, and InvalidArgument for a sequence that
  // has read something.
  LanguageTrace trace(const Reading& reading);

  // Forgets what was read from `length` on, or all of it.
  void truncate(std::int64_t sequence, std::int64_t length);
  void release(std::int64_t sequence);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace regard::tasks
