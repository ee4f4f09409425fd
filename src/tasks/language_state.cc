// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "nn/transformer_layer.h"
#include "ops/arena.h"
#include "regard/attention/attention.h"
#include "regard/attention/decode.h"
#include "regard/attention/weights.h"
#include "regard/core/error.h"
#include "regard/nn/rotary.h"
#include "regard/tasks/language_model.h"
#include "tasks/language_weights.h"

namespace regard::tasks {
namespace {

// So many tokens go through the layers at a time, of all texts together, but at
// least so many of each: the more of a text, the more of its attention reads
// keys where they are, and the fewer times weights come from memory.
constexpr std::size_t kRows = 512;
constexpr std::size_t kChunk = 64;

// Some rows of heads [1, heads, rows, dim] as [n, heads, 1, dim]: a text
// each...
template <typename T>
TensorView<T, 4> as_texts(const TensorView<T, 4>& heads, std::int64_t n) {
  return {heads.data(),
          {n, heads.extent(1), 1, heads.extent(3)},
          {heads.stride(2), heads.stride(1), heads.stride(2), 1}};
}

// ... or as [1, heads, n, dim]: of one text.
template <typename T>
TensorView<T, 4> as_one_text(const TensorView<T, 4>& heads, std::int64_t begin,
                             std::int64_t n) {
  return {heads.at(0, 0, begin),
          {1, heads.extent(1), n, heads.extent(3)},
          heads.strides()};
}

TensorView<const float, 3> first_entry(const TensorView<const float, 4>& view) {
  return {view.data(),
          {view.extent(1), view.extent(2), view.extent(3)},
          {view.stride(1), view.stride(2), 1}};
}

void copy_heads(const TensorView<const float, 4>& heads, std::int64_t layer,
                Tensor& to) {
  const auto all = to.view<float, 4>();
  const std::int64_t group = all.extent(1) / heads.extent(1);
  for (std::int64_t h = 0; h < all.extent(1); ++h) {
    for (std::int64_t row = 0; row < all.extent(2); ++row) {
      std::copy_n(heads.at(0, h / group, row), all.extent(3),
                  all.at(layer, h, row));
    }
  }
}

// In double, so that one rounding is all that is left of tanh's.
float capped(float score, float softcap) {
  const double cap = softcap;
  return static_cast<float>(cap * std::tanh(static_cast<double>(score) / cap));
}

// Some tokens of a sequence in one go through the layers.
struct Part {
  std::int64_t reading = 0;
  std::int64_t sequence = 0;
  std::span<const std::int32_t> tokens{};
  std::int64_t position = 0;   // of the first token
  std::int64_t first_row = 0;  // of its rows
  bool last = false;           // the reading ends here
};

}  // namespace

struct LanguageState::Memory {
  Memory(const LanguageModel& model_, const LanguageStateOptions& options_)
      : model(&model_), options(options_) {
    constexpr const char* kWhere = "LanguageState";
    const LanguageModelConfig& c = model_.config();
    require(options.cache != KVCacheKind::kRing, kWhere,
            "the cache must be contiguous or paged: a ring forgets");
    require(options.sequences >= 0, kWhere,
            "sequences must not be negative; got ", options.sequences);
    require(options.page_tokens > 0, kWhere,
            "page_tokens must be positive; got ", options.page_tokens);
    KVCacheOptions cache{.kind = options.cache,
                         .storage = options.storage,
                         .sequences = options.sequences,
                         .kv_heads = c.kv_heads,
                         .d_k = c.head_dim};
    if (options.cache == KVCacheKind::kPaged) {
      const std::int64_t each =
          (c.context + options.page_tokens - 1) / options.page_tokens;
      cache.page_tokens = options.page_tokens;
      cache.pages = options.pages != 0
                        ? options.pages
                        : std::max<std::int64_t>(1, each * options.sequences);
    }
    for (std::int64_t i = 0; i < c.layers; ++i) caches.emplace_back(cache);
  }

  const LanguageModel::Weights& weights() const { return model->weights(); }

  void check(std::span<const Reading> readings) const;
  void make_tables(std::int64_t positions);
  bool is_windowed(std::size_t layer) const;
  const nn::RotaryTable* rotary_of(std::size_t layer) const {
    const LanguageModelConfig& c = model->config();
    if (c.window_rotary && is_windowed(layer)) return &window_rotary;
    return c.rotary.rotary_dim > 0 ? &rotary : nullptr;
  }
  AttentionOptions attention_options(std::size_t layer) const;
  void run(std::span<const Part> parts);
  void embed(std::span<const Part> parts, const ops::Rows& x);
  void attend(std::size_t layer, std::span<const Part> parts,
              const nn::detail::LayerHeads& heads);
  void keep(std::size_t layer, const nn::detail::LayerHeads& heads);
  void score(std::span<const Part> parts, const ops::Rows& x);

  const LanguageModel* model;
  LanguageStateOptions options;
  std::vector<KVCache> caches;  // one per layer
  ops::Arena arena;
  std::vector<std::int64_t> positions;         // of each row
  nn::RotaryTable rotary{};                    // of the positions so far
  nn::RotaryTable window_rotary{};             // of windowed layers, likewise
  std::vector<std::int64_t> single_sequences;  // with one token; they go first
  Tensor logits;
  LanguageTrace* trace = nullptr;  // of the one text that is being read
};

void LanguageState::Memory::check(std::span<const Reading> readings) const {
  constexpr const char* kWhere = "LanguageState::read";
  const LanguageModelConfig& c = model->config();
  std::set<std::int64_t> seen;
  for (const Reading& r : readings) {
    require(r.sequence >= 0 && r.sequence < options.sequences, kWhere,
            "sequences are 0 to ", options.sequences - 1, "; got ", r.sequence);
    require(seen.insert(r.sequence).second, kWhere, "sequence ", r.sequence,
            " comes twice");
    require(!r.tokens.empty(), kWhere, "sequence ", r.sequence,
            " gets no tokens");
    const std::int64_t before = caches[0].length(r.sequence);
    require(std::ssize(r.tokens) <= c.context - before, kWhere,
            "a text has at most ", c.context, " tokens; sequence ", r.sequence,
            " would have ", before + std::ssize(r.tokens));
    for (const std::int32_t token : r.tokens) {
      require(token >= 0 && token < c.vocab, kWhere, "tokens are 0 to ",
              c.vocab - 1, "; got ", token);
    }
  }
}

// Grown by doubling: a model may name a context far longer than its texts.
void LanguageState::Memory::make_tables(std::int64_t count) {
  const LanguageModelConfig& c = model->config();
  const std::int64_t rows = rotary.cos.shape()[0];
  if (count <= rows) return;
  const std::int64_t more = std::min(c.context, std::max(count, 2 * rows));
  if (c.window_rotary) {
    window_rotary = nn::rotary_table(*c.window_rotary, more);
  }
  rotary = nn::rotary_table(c.rotary, more);
}

bool LanguageState::Memory::is_windowed(std::size_t layer) const {
  const LanguageModelConfig& c = model->config();
  return c.window > 0 && (c.windowed.empty() || c.windowed[layer]);
}

AttentionOptions LanguageState::Memory::attention_options(
    std::size_t layer) const {
  const LanguageModelConfig& c = model->config();
  AttentionOptions attention{.mask = mask::causal(),
                             .softcap = c.attention_softcap,
                             .threads = options.threads};
  if (c.attention_scale > 0) attention.scale = c.attention_scale;
  if (is_windowed(layer)) {
    attention.mask = attention.mask & mask::window(c.window - 1, 0);
  }
  return attention;
}

void LanguageState::Memory::embed(std::span<const Part> parts,
                                  const ops::Rows& x) {
  const auto table = weights().embedding.view<float, 2>();
  const LanguageModelConfig& c = model->config();
  positions.clear();
  for (const Part& part : parts) {
    for (std::size_t i = 0; i < part.tokens.size(); ++i) {
      const auto row = static_cast<std::int64_t>(positions.size());
      const std::int64_t place = part.position + static_cast<std::int64_t>(i);
      const float* const from = table.at(std::int64_t{part.tokens[i]});
      float* const to = x.at(row);
      for (std::int64_t j = 0; j < c.model_dim; ++j) {
        to[j] = c.embedding_scale * from[j];
      }
      if (c.learned_positions) {
        const float* const at = weights().positions.view<float, 2>().at(place);
        for (std::int64_t j = 0; j < c.model_dim; ++j) to[j] += at[j];
      }
      positions.push_back(place);
    }
  }
}

void LanguageState::Memory::keep(std::size_t layer,
                                 const nn::detail::LayerHeads& heads) {
  const auto all = trace->weights.view<float, 4>();
  const auto i = static_cast<std::int64_t>(layer);
  attention_weights(
      heads.q, heads.k,
      {all.at(i), {1, all.extent(1), all.extent(2), all.extent(3)}},
      attention_options(layer));
  if (trace->queries.size() == 0) return;
  copy_heads(heads.q, i, trace->queries);
  copy_heads(heads.k, i, trace->keys);
}

// One token of each of many texts, all at once; then the longer parts.
void LanguageState::Memory::attend(std::size_t layer,
                                   std::span<const Part> parts,
                                   const nn::detail::LayerHeads& heads) {
  KVCache& cache = caches[layer];
  const AttentionOptions attention = attention_options(layer);
  const std::int64_t singles = std::ssize(single_sequences);
  if (singles > 0) {
    cache.append(single_sequences, as_texts(heads.k, singles),
                 as_texts(heads.v, singles));
    attention_decode(as_texts(heads.q, singles), cache, single_sequences,
                     as_texts(heads.out, singles), attention);
  }
  for (const Part& part : parts.subspan(static_cast<std::size_t>(singles))) {
    const auto rows = [&](const auto& of) {
      return as_one_text(of, part.first_row, std::ssize(part.tokens));
    };
    const auto k = rows(heads.k), v = rows(heads.v);
    cache.append(part.sequence, first_entry(k), first_entry(v));
    const bool rounded = options.storage != DType::kFloat32;
    if (part.position == 0 && !rounded) {
      // The whole text so far is here: no need to go through the cache.
      attention_forward(rows(heads.q), k, v, rows(heads.out), attention);
    } else {
      attention_decode(rows(heads.q), cache, std::array{part.sequence},
                       rows(heads.out), attention);
    }
  }
}

// The last token of each reading that ends here.
void LanguageState::Memory::score(std::span<const Part> parts,
                                  const ops::Rows& x) {
  const LanguageModelConfig& c = model->config();
  std::int64_t n = 0;
  for (const Part& part : parts) n += part.last ? 1 : 0;
  if (n == 0) return;
  const ops::Rows ends(arena.take(n * c.model_dim), {n, c.model_dim});
  const ops::Rows scores(arena.take(n * c.vocab), {n, c.vocab});
  n = 0;
  for (const Part& part : parts) {
    if (!part.last) continue;
    const std::int64_t row = part.first_row + std::ssize(part.tokens) - 1;
    std::copy_n(x.at(row), c.model_dim, ends.at(n++));
  }
  weights().output_norm(ends, ends, options.threads);
  ops::multiply(weights().output(ends, scores), options.threads);
  n = 0;
  for (const Part& part : parts) {
    if (!part.last) continue;
    const float* const from = scores.at(n++);
    float* const to = logits.view<float, 2>().at(part.reading);
    for (std::int64_t j = 0; j < c.vocab; ++j) {
      to[j] =
          c.output_softcap > 0 ? capped(from[j], c.output_softcap) : from[j];
    }
  }
}

void LanguageState::Memory::run(std::span<const Part> parts) {
  const LanguageModelConfig& c = model->config();
  const Part& end = parts.back();
  const std::int64_t n = end.first_row + std::ssize(end.tokens);
  arena.reset();
  nn::detail::ResidualStream stream(n, c.model_dim, arena);
  embed(parts, stream.x);
  single_sequences.clear();
  for (const Part& part : parts) {
    if (part.tokens.size() == 1) single_sequences.push_back(part.sequence);
  }
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const auto self = [&, i](const nn::detail::LayerHeads& heads) {
      if (trace != nullptr) keep(i, heads);
      attend(i, parts, heads);
    };
    nn::detail::run_layer(weights().layers[i],
                          {.self = self,
                           .cross = self,
                           .rotary = rotary_of(i),
                           .pairing = c.pairing,
                           .positions = positions,
                           .threads = options.threads},
                          stream, arena);
  }
  score(parts, stream.x);
}

LanguageState::LanguageState(const LanguageModel& model,
                             const LanguageStateOptions& options)
    : memory_(std::make_unique<Memory>(model, options)) {}
LanguageState::~LanguageState() = default;
LanguageState::LanguageState(LanguageState&&) noexcept = default;
LanguageState& LanguageState::operator=(LanguageState&&) noexcept = default;

std::int64_t LanguageState::sequences() const {
  return memory_->options.sequences;
}

std::int64_t LanguageState::length(std::int64_t sequence) const {
  return memory_->caches[0].length(sequence);
}

void LanguageState::read(std::span<const Reading> readings) {
  Memory& m = *memory_;
  m.check(readings);
  if (readings.empty()) return;
  std::vector<std::int64_t> lengths;  // to go back to
  std::int64_t longest = 0;
  for (const Reading& r : readings) {
    lengths.push_back(length(r.sequence));
    longest = std::max(longest, lengths.back() + std::ssize(r.tokens));
  }
  m.make_tables(longest);
  Tensor fresh({std::ssize(readings), m.model->config().vocab});
  std::swap(m.logits, fresh);
  try {
    std::vector<std::size_t> done(readings.size(), 0);
    // A trace needs all keys of its text at once.
    const std::size_t chunk = m.trace != nullptr
                                  ? readings[0].tokens.size()
                                  : std::max(kChunk, kRows / readings.size());
    for (;;) {
      // The next chunk of every text, those of one token first.
      std::vector<Part> parts;
      for (std::size_t i = 0; i < readings.size(); ++i) {
        const auto left = readings[i].tokens.subspan(done[i]);
        if (left.empty()) continue;
        Part part{.reading = static_cast<std::int64_t>(i),
                  .sequence = readings[i].sequence};
        part.tokens = left.first(std::min(left.size(), chunk));
        part.position = length(part.sequence);
        part.last = part.tokens.size() == left.size();
        done[i] += part.tokens.size();
        parts.push_back(part);
      }
      if (parts.empty()) break;
      std::stable_partition(parts.begin(), parts.end(), [](const Part& part) {
        return part.tokens.size() == 1;
      });
      std::int64_t row = 0;
      for (Part& part : parts) {
        part.first_row = row;
        row += std::ssize(part.tokens);
      }
      m.run(parts);
    }
  } catch (...) {
    // No more pages or memory, or somebody stopped it: nothing was read then.
    for (std::size_t i = 0; i < readings.size(); ++i) {
      for (KVCache& cache : m.caches) {
        if (cache.length(readings[i].sequence) > lengths[i]) {
          cache.truncate(readings[i].sequence, lengths[i]);
        }
      }
    }
    std::swap(m.logits, fresh);
    throw;
  }
}

LanguageTrace LanguageState::trace(const Reading& reading) {
  Memory& m = *memory_;
  m.check(std::span(&reading, 1));
  const std::int64_t before = length(reading.sequence);
  require(before == 0, "LanguageState::trace",
          "a sequence must have read nothing before; it has ", before,
          " tokens");
  const LanguageModelConfig& c = m.model->config();
  const std::int64_t n = std::ssize(reading.tokens);
  LanguageTrace trace;
  trace.weights = Tensor({c.layers, c.heads, n, n});
  if (c.attention_softcap == 0) {
    trace.queries = Tensor({c.layers, c.heads, n, c.head_dim});
    trace.keys = Tensor({c.layers, c.heads, n, c.head_dim});
  }
  trace.scale = c.attention_scale > 0
                    ? static_cast<double>(c.attention_scale)
                    : 1 / std::sqrt(static_cast<double>(c.head_dim));
  m.trace = &trace;
  try {
    read(std::span(&reading, 1));
  } catch (...) {
    m.trace = nullptr;
    throw;
  }
  m.trace = nullptr;
  return trace;
}

TensorView<const float, 2> LanguageState::logits() const {
  const Tensor& logits = memory_->logits;
  if (logits.rank() != 2) return {};
  return logits.view<float, 2>();
}

void LanguageState::truncate(std::int64_t sequence, std::int64_t length) {
  for (KVCache& cache : memory_->caches) cache.truncate(sequence, length);
}

void LanguageState::release(std::int64_t sequence) {
  for (KVCache& cache : memory_->caches) cache.release(sequence);
}

}  // namespace regard::tasks
