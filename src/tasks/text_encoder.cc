// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/text_encoder.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "io/quote.h"
#include "kernels/rows.h"
#include "nn/transformer_layer.h"
#include "ops/arena.h"
#include "regard/attention/attention.h"
#include "regard/attention/weights.h"
#include "regard/core/error.h"
#include "regard/ops/memory_pool.h"
#include "tasks/encoder_config.h"
#include "tasks/encoder_weights.h"
#include "tasks/pooling.h"
#include "text/unicode.h"

namespace regard::tasks {
namespace {

using ops::ConstRows;
using ops::Rows;

// So many tokens of short texts go through the layers together: enough for the
// products, few enough for what lies between the layers to stay in the cache.
constexpr std::int64_t kBatchTokens = 512;
// Fewer do not keep a thread busy for long enough.
constexpr std::int64_t kLeastTokens = 64;
// Texts that are cut into tokens and sorted at a time.
constexpr std::int64_t kTexts = 8192;

// Some texts one after the other, without padding.
struct Packed {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};  // text i: [offsets[i], offsets[i + 1])
  std::int64_t longest = 0;

  void add(std::span<const std::int32_t> text) {
    ids.insert(ids.end(), text.begin(), text.end());
    offsets.push_back(std::ssize(ids));
    longest = std::max(longest, std::ssize(text));
  }
};

std::string in_small_letters(std::string_view text) {
  text::Chars chars;
  text::decode_utf8(text, 0, chars);
  text::lower_case(chars);
  std::string lower;
  text::encode_utf8(chars, lower);
  return lower;
}

TensorView<const float, 3> first_entry(const TensorView<const float, 4>& view) {
  return {view.data(),
          {view.extent(1), view.extent(2), view.extent(3)},
          {view.stride(1), view.stride(2), 1}};
}

void copy_heads(const TensorView<const float, 4>& heads, std::int64_t layer,
                Tensor& to) {
  const auto from = first_entry(heads);
  const auto all = to.view<float, 4>();
  for (std::int64_t h = 0; h < from.extent(0); ++h) {
    for (std::int64_t r = 0; r < from.extent(1); ++r) {
      std::copy_n(from.at(h, r), from.extent(2), all.at(layer, h, r));
    }
  }
}

}  // namespace

struct TextEncoder::Parts {
  Parts(const EncoderFolder& folder, Threads threads,
        ops::WeightStorage storage)
      : settings(folder.settings),
        weights(folder.weights, folder.settings, threads, storage),
        tokenizer(load_encoder_tokenizer(folder)) {}

  std::string with_prompt(std::string_view text,
                          const TextEncoderOptions& options) const;
  text::Encoding tokens_of(const std::string& text, bool offsets) const;
  void embed(const Packed& texts, Rows x) const;
  ConstRows run(const Packed& texts, Threads threads, ops::Arena& arena,
                TextTrace* trace) const;
  void encode_batch(const Packed& texts, Threads threads,
                    std::span<float* const> vectors) const;

  EncoderSettings settings;
  EncoderWeights weights;
  std::unique_ptr<text::Tokenizer> tokenizer;
  mutable ops::MemoryPool pool;  // of passes, reused
};

std::string TextEncoder::Parts::with_prompt(
    std::string_view text, const TextEncoderOptions& options) const {
  const TextEncoderConfig& c = settings.config;
  const std::string& name =
      options.prompt.empty() ? c.default_prompt : options.prompt;
  std::string all;
  if (!name.empty()) all = c.prompts.at(name);
  all += text;
  return c.lower_case ? in_small_letters(all) : all;
}

text::Encoding TextEncoder::Parts::tokens_of(const std::string& text,
                                             bool offsets) const {
  text::Encoding encoding = tokenizer->encode(
      text, {.offsets = offsets, .max_length = settings.config.max_length});
  for (const std::int32_t id : encoding.ids) {
    // A vocabulary may leave numbers out, and so have higher ones than pieces.
    if (id >= 0 && id < settings.config.vocab) continue;
    throw_parse_error("TextEncoder::encode", "the tokenizer's piece ",
                      io::in_quotes(tokenizer->piece(id)), " has number ", id,
                      ", the model knows ", settings.config.vocab);
  }
  return encoding;
}

// The sum of a token's three vectors, normed and projected.
void TextEncoder::Parts::embed(const Packed& texts, Rows x) const {
  const std::int64_t width = x.extent(1);
  std::int64_t row = 0;
  for (std::size_t t = 0; t + 1 < texts.offsets.size(); ++t) {
    std::int64_t place = settings.first_position;
    for (; row < texts.offsets[t + 1]; ++row) {
      const std::int32_t id = texts.ids[static_cast<std::size_t>(row)];
      // Padding that stands in a text has the place before the first.
      const std::int64_t position =
          id == settings.padding ? settings.first_position - 1 : place++;
      float* const to = x.at(row);
      std::copy_n(weights.words.rows.at(std::int64_t{id}), width, to);
      if (!weights.types.rows.is_null()) {
        kernels::add_scaled(weights.types.rows.at(0), 1.0f, width, to);
      }
      kernels::add_scaled(weights.positions.rows.at(position), 1.0f, width, to);
    }
  }
}

ConstRows TextEncoder::Parts::run(const Packed& texts, Threads threads,
                                  ops::Arena& arena, TextTrace* trace) const {
  const TextEncoderConfig& c = settings.config;
  const std::int64_t n = std::ssize(texts.ids);
  nn::detail::ResidualStream stream(n, c.model_dim, arena);
  Rows embedded = stream.x;
  if (!weights.projection.is_null()) {
    embedded = {arena.take(n * settings.embedding_dim),
                {n, settings.embedding_dim}};
  }
  embed(texts, embedded);
  weights.embedding_norm(embedded, embedded, threads);
  if (!weights.projection.is_null()) {
    ops::multiply(weights.projection(embedded, stream.x), threads);
  }

  AttentionOptions options{.threads = threads};
  if (weights.relative_bias.size() > 0) {
    const auto table = weights.relative_bias.view<float, 2>();
    options.bias = {table.data() + c.max_length - 1,
                    {1, c.heads, texts.longest, texts.longest},
                    {0, table.stride(0), -1, 1}};
  }
  const auto keep_hidden = [&](std::int64_t layer) {
    if (trace == nullptr) return;
    std::copy_n(stream.x.data(), stream.x.size(),
                trace->hidden_states.view<float, 3>().at(layer));
  };
  keep_hidden(0);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const auto self = [&](const nn::detail::LayerHeads& heads) {
      if (trace != nullptr) {
        const auto all = trace->weights.view<float, 4>();
        attention_weights(heads.q, heads.k, {all.at(i), {1, c.heads, n, n}},
                          options);
        if (trace->queries.size() > 0) {
          copy_heads(heads.q, i, trace->queries);
          copy_heads(heads.k, i, trace->keys);
        }
      }
      AttentionOptions packed = options;
      packed.sequences = {.q_offsets = texts.offsets,
                          .kv_offsets = texts.offsets};
      attention_forward(heads.q, heads.k, heads.v, heads.out, packed);
    };
    const std::size_t layer = weights.order[static_cast<std::size_t>(i)];
    nn::detail::run_layer(weights.layers[layer],
                          {.self = self, .cross = self, .threads = threads},
                          stream, arena);
    keep_hidden(i + 1);
  }
  return stream.x;
}

void TextEncoder::Parts::encode_batch(const Packed& texts, Threads threads,
                                      std::span<float* const> vectors) const {
  const TextEncoderConfig& c = settings.config;
  ops::Arena arena(pool);
  const ConstRows hidden = run(texts, threads, arena, nullptr);
  for (std::size_t t = 0; t < vectors.size(); ++t) {
    const std::int64_t begin = texts.offsets[t];
    const ConstRows rows(hidden.at(begin),
                         {texts.offsets[t + 1] - begin, c.model_dim});
    float* to = vectors[t];
    for (const Pooling pooling : c.pooling) {
      pool_tokens(pooling, rows, to);
      to += c.model_dim;
    }
    if (c.normalize) {
      normalize({vectors[t], static_cast<std::size_t>(c.embedding_dim())});
    }
  }
}

TextEncoder::TextEncoder(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;

TextEncoder TextEncoder::load(const std::filesystem::path& folder,
                              Threads threads, ops::WeightStorage storage) {
  return TextEncoder(
      std::make_unique<Parts>(read_encoder_folder(folder), threads, storage));
}

const TextEncoderConfig& TextEncoder::config() const {
  return parts_->settings.config;
}
const text::Tokenizer& TextEncoder::tokenizer() const {
  return *parts_->tokenizer;
}

namespace {

void check(const TextEncoderConfig& config, const TextEncoderOptions& options,
           const char* where) {
  if (options.prompt.empty() || config.prompts.contains(options.prompt)) return;
  std::string known;
  for (const auto& [name, prompt] : config.prompts) {
    known += (known.empty() ? "" : ", ") + io::in_quotes(name);
  }
  require(false, where, "the model's prompts are ",
          known.empty() ? "none" : known, "; got ",
          io::in_quotes(options.prompt));
}

// Texts by their length, the longest first, in batches of so many tokens.
std::vector<std::vector<std::size_t>> batches_of(
    const std::vector<std::vector<std::int32_t>>& texts, std::int64_t tokens) {
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) {
                     return texts[a].size() > texts[b].size();
                   });
  std::vector<std::vector<std::size_t>> batches;
  std::int64_t room = 0;
  for (const std::size_t text : order) {
    const std::int64_t size = std::ssize(texts[text]);
    if (batches.empty() || size > room) {
      batches.emplace_back();
      room = tokens;
    }
    batches.back().push_back(text);
    room -= size;
  }
  return batches;
}

}  // namespace

Tensor TextEncoder::encode(std::span<const std::string> texts,
                           const TextEncoderOptions& options) const {
  check(config(), options, "TextEncoder::encode");
  const std::int64_t all = std::ssize(texts), width = config().embedding_dim();
  Tensor result({all, width});
  float* const vectors = result.values<float>().data();
  std::int64_t done = 0;
  std::mutex mutex;
  for (std::int64_t start = 0; start < all; start += kTexts) {
    const std::int64_t count = std::min(kTexts, all - start);
    std::vector<std::vector<std::int32_t>> ids(static_cast<std::size_t>(count));
    parallel_for(options.threads, count, [&](std::int64_t i) {
      const auto place = static_cast<std::size_t>(start + i);
      ids[static_cast<std::size_t>(i)] =
          parts_->tokens_of(parts_->with_prompt(texts[place], options), false)
              .ids;
    });
    std::int64_t tokens = 0;
    for (const auto& text : ids) tokens += std::ssize(text);
    const int threads = thread_count(options.threads, count);
    const auto batches =
        batches_of(ids, threads == 1 ? kBatchTokens
                                     : std::clamp(tokens / (4 * threads),
                                                  kLeastTokens, kBatchTokens));
    const auto run = [&](std::size_t number, Threads of_batch) {
      Packed packed;
      std::vector<float*> to;
      for (const std::size_t text : batches[number]) {
        packed.add(ids[text]);
        to.push_back(vectors +
                     (start + static_cast<std::int64_t>(text)) * width);
      }
      parts_->encode_batch(packed, of_batch, to);
      if (!options.progress) return;
      const std::scoped_lock lock(mutex);
      done += std::ssize(to);
      options.progress(done, all);
    };
    if (std::ssize(batches) >= threads) {
      parallel_for(options.threads, std::ssize(batches), [&](std::int64_t i) {
        run(static_cast<std::size_t>(i), {.count = 1});
      });
    } else {
      for (std::size_t i = 0; i < batches.size(); ++i) run(i, options.threads);
    }
  }
  return result;
}

TextTrace TextEncoder::trace(std::string_view text,
                             const TextEncoderOptions& options) const {
  check(config(), options, "TextEncoder::trace");
  const TextEncoderConfig& c = config();
  TextTrace trace;
  trace.text = parts_->with_prompt(text, options);
  trace.encoding = parts_->tokens_of(trace.text, true);
  Packed packed;
  packed.add(trace.encoding.ids);
  for (const std::int32_t id : trace.encoding.ids) {
    trace.pieces.push_back(tokenizer().piece(id));
  }
  const std::int64_t n = packed.longest;
  trace.hidden_states = Tensor({c.layers + 1, n, c.model_dim});
  trace.weights = Tensor({c.layers, c.heads, n, n});
  if (parts_->weights.relative_bias.size() == 0) {
    trace.queries = trace.keys = Tensor({c.layers, c.heads, n, c.head_dim()});
  }
  ops::Arena arena(parts_->pool);
  parts_->run(packed, options.threads, arena, &trace);
  return trace;
}

}  // namespace regard::tasks
