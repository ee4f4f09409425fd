// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/layer_call.h"
#include "cli/text.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::cli {
namespace {

constexpr std::string_view kSentence =
    "The animal didn't cross the street because it was too tired";
constexpr std::int64_t kModelDim = 512;
constexpr std::int64_t kHeads = 8;

// FNV-1a: one number a word, the same on every machine.
std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : word) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

// [words, kModelDim]: a random vector for each word, the same wherever the word
// stands, plus the sines and cosines by which the Transformer tells positions
// apart.
Tensor embedded(const std::vector<std::string>& words, std::uint64_t seed) {
  Tensor result({static_cast<std::int64_t>(words.size()), kModelDim});
  const auto rows = result.view<float, 2>();
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    Random random(seed ^ hash_of(words[static_cast<std::size_t>(i)]));
    for (std::int64_t j = 0; j < kModelDim; ++j) {
      const double rate =
          std::pow(10000.0, -static_cast<double>(j - j % 2) / kModelDim);
      const double angle = static_cast<double>(i) * rate;
      const double position = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
      rows(i, j) = random.normal() + static_cast<float>(position);
    }
  }
  return result;
}

}  // namespace

void run_attention_demonstration(const AttentionFlags& asked, Score score) {
  AttentionFlags flags = asked;
  if (flags.text.empty()) flags.text = kSentence;
  const std::vector<std::string> words = words_of(flags.text);
  require(!words.empty(), "--text", "there must be at least one word");
  nn::MultiHeadAttentionConfig config{.model_dim = kModelDim, .heads = kHeads};
  if (flags.heads != 0) config.heads = flags.heads;
  config.kv_heads = flags.kv_heads;
  config.score = score;
  config.dropout = static_cast<float>(flags.dropout);
  if (flags.scale) config.scale = static_cast<float>(*flags.scale);
  const nn::MultiHeadAttention layer(config, flags.seed);
  const std::string caption = fmt::format(
      "Self attention over {} words: {} heads of {}, embeddings of {}.\n"
      "The weights are untrained: embeddings and projections are random "
      "(seed {}).\n"
      "They show how attention is computed, not what the words mean.\n"
      "A line is a query, a column a key; each line sums to 1.\n\n",
      words.size(), layer.config().heads, layer.config().head_dim, kModelDim,
      flags.seed);
  call_layer(layer, {embedded(words, flags.seed), {}, {}}, flags, caption);
}

}  // namespace regard::cli
