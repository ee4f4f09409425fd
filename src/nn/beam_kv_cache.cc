// SPDX-License-Identifier: Apache-2.0
#include "nn/beam_kv_cache.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/memory_layout.h"
#include "kernels/gemm.h"
#include "regard/attention/attention.h"

namespace regard::nn::detail {
namespace {

using kernels::DecodeBlock;
using kernels::kBlockKeys;
using kernels::kSplitBlocks;

// Below so many floats to read another thread costs more than it brings.
constexpr std::int64_t kWorthAThread = 1 << 16;

// What attend_one works in.
struct Workplace {
  float* scratch;  // the kernel's own
  float* rows;     // keys on their way into a block
  float* block;    // the newest tokens of one head
  float* states;   // [splits]

  Workplace(const kernels::KVLayout& layout, std::int64_t block_floats,
            std::int64_t splits) {
    const auto lay_out = [&](std::byte* base) {
      MemoryLayout memory(base);
      memory.take(scratch, kernels::decode_scratch_floats(layout));
      memory.take(rows, kBlockKeys * layout.d_k);
      memory.take(block, block_floats);
      memory.take(states, static_cast<std::size_t>(splits) *
                              kernels::decode_state_floats(layout, 1));
      return memory.used();
    };
    lay_out(thread_scratch(lay_out(nullptr)));
  }
};

}  // namespace

BeamKVCache::BeamKVCache(std::int64_t layers, std::int64_t heads,
                         std::int64_t dim, std::int64_t hypotheses)
    : layers_(layers),
      heads_(heads),
      dim_(dim),
      layout_{kernels::KVStorage::kFloat32, dim, dim},
      said_(static_cast<std::size_t>(hypotheses)) {}

std::int64_t BeamKVCache::tokens_in_blocks() const {
  if (said_.empty()) return 0;
  return kBlockKeys * static_cast<std::int64_t>(said_.front().blocks.size());
}

std::int64_t BeamKVCache::block_floats() const {
  return (layout_.k_bytes() + layout_.v_bytes()) /
         static_cast<std::int64_t>(sizeof(float));
}

float* BeamKVCache::token(std::int64_t layer, std::size_t step,
                          std::int64_t number) const {
  const Step& s = steps_[step];
  auto* const memory = const_cast<std::byte*>(s.memory.data());
  return reinterpret_cast<float*>(memory) +
         (layer * s.count + number) * 2 * width();
}

const float* BeamKVCache::closed_block(const Hypothesis& said,
                                       std::int64_t number, std::int64_t layer,
                                       std::int64_t head) const {
  const AlignedBuffer& memory = *said.blocks[static_cast<std::size_t>(number)];
  return reinterpret_cast<const float*>(memory.data()) +
         (layer * heads_ + head) * block_floats();
}

void BeamKVCache::make_room(std::int64_t place, Threads threads) {
  auto open = static_cast<std::size_t>(place - tokens_in_blocks());
  if (open == kBlockKeys) {
    close_blocks(threads);
    open = 0;
  }
  steps_.resize(open);
  const std::int64_t floats = layers_ * hypotheses() * 2 * width();
  steps_.push_back(
      {hypotheses(),
       AlignedBuffer(static_cast<std::size_t>(floats) * sizeof(float))});
  for (std::size_t h = 0; h < said_.size(); ++h) {
    said_[h].newest.resize(open);
    said_[h].newest.push_back(static_cast<std::int64_t>(h));
  }
}

void BeamKVCache::close_blocks(Threads threads) {
  std::vector<std::shared_ptr<const AlignedBuffer>> closed(said_.size());
  parallel_for(threads, hypotheses(), [&](std::int64_t h) {
    const auto number = static_cast<std::size_t>(h);
    const std::vector<std::int64_t>& newest = said_[number].newest;
    auto memory = std::make_shared<AlignedBuffer>(
        static_cast<std::size_t>(layers_ * heads_ * block_floats()) *
        sizeof(float));
    auto* const rows = reinterpret_cast<float*>(thread_scratch(
        static_cast<std::size_t>(kBlockKeys * dim_) * sizeof(float)));
    auto* block = reinterpret_cast<float*>(memory->data());
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      for (std::int64_t head = 0; head < heads_; ++head) {
        gather(layer, head, newest, rows, block);
        block += block_floats();
      }
    }
    closed[number] = std::move(memory);
  });
  // Nothing is changed before all that can fail is done.
  for (Hypothesis& said : said_) said.blocks.reserve(said.blocks.size() + 1);
  for (std::size_t h = 0; h < said_.size(); ++h) {
    said_[h].blocks.push_back(std::move(closed[h]));
    said_[h].newest.clear();
  }
  steps_.clear();
}

void BeamKVCache::append(std::int64_t layer, const float* k, const float* v,
                         std::int64_t stride) {
  for (std::int64_t h = 0; h < hypotheses(); ++h) {
    float* const to = token(layer, steps_.size() - 1, h);
    std::copy_n(k + h * stride, width(), to);
    std::copy_n(v + h * stride, width(), to + width());
  }
}

// The newest tokens of a head as a block.
void BeamKVCache::gather(std::int64_t layer, std::int64_t head,
                         std::span<const std::int64_t> newest, float* rows,
                         float* block) const {
  float* key = rows;
  float* value =
      block + layout_.k_bytes() / static_cast<std::int64_t>(sizeof(float));
  for (std::size_t i = 0; i < newest.size(); ++i) {
    const float* const from = token(layer, i, newest[i]) + head * dim_;
    key = std::copy_n(from, dim_, key);
    float* const row_end = value + layout_.columns();
    std::fill(std::copy_n(from + width(), dim_, value), row_end, 0.0f);
    value = row_end;
  }
  // All 16 rows, because whole tiles are transposed fastest; nobody looks at
  // what stands in those without a token.
  kernels::pack_columns_transposed(rows, dim_, dim_, kBlockKeys, block);
}

void BeamKVCache::attend(std::int64_t layer, const float* q,
                         std::int64_t stride, float* out,
                         const BeamAttentionOptions& options) const {
  Threads threads = options.threads;
  const std::int64_t tokens =
      tokens_in_blocks() + static_cast<std::int64_t>(steps_.size());
  if (hypotheses() * tokens * width() < kWorthAThread) threads.count = 1;
  const bool plainly = !kernels::attention_has_kernel();
  parallel_for(threads, hypotheses(), [&](std::int64_t h) {
    const Hypothesis& said = said_[static_cast<std::size_t>(h)];
    const float* const row = q + h * stride;
    float* const to = out + h * width();
    plainly ? attend_one_plainly(layer, said, row, to, options)
            : attend_one(layer, said, row, to, options);
  });
}

void BeamKVCache::attend_one(std::int64_t layer, const Hypothesis& said,
                             const float* q, float* out,
                             const BeamAttentionOptions& options) const {
  const auto closed = static_cast<std::int64_t>(said.blocks.size());
  const std::int64_t splits = closed / kSplitBlocks + 1;
  const std::size_t state = kernels::decode_state_floats(layout_, 1);
  const Workplace place(layout_, block_floats(), splits);
  kernels::DecodeRow row{};
  row.end = tokens_in_blocks() + static_cast<std::int64_t>(steps_.size());
  row.position = row.end - 1;
  row.scale = options.scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim_))));
  DecodeBlock blocks[kSplitBlocks];
  kernels::DecodeSplit split{};
  split.layout = layout_;
  split.rows = &row;
  split.row_count = 1;
  split.blocks = blocks;
  split.scratch = place.scratch;
  split.score.softcap = options.softcap;
  split.score.has_bias = !options.bias.is_null();
  split.score.bias_key_stride = 1;
  for (std::int64_t head = 0; head < heads_; ++head) {
    row.q = q + head * dim_;
    row.out = out + head * dim_;
    if (split.score.has_bias) row.bias = options.bias.at(head);
    gather(layer, head, said.newest, place.rows, place.block);
    for (std::int64_t i = 0; i < splits; ++i) {
      split.block_count = 0;
      for (std::int64_t b = i * kSplitBlocks;
           b <= closed && b < (i + 1) * kSplitBlocks; ++b) {
        const float* const memory =
            b == closed ? place.block : closed_block(said, b, layer, head);
        const auto* const bytes = reinterpret_cast<const std::byte*>(memory);
        blocks[split.block_count++] = {bytes, bytes + layout_.k_bytes(),
                                       b * kBlockKeys};
      }
      kernels::decode_split(split,
                            place.states + static_cast<std::size_t>(i) * state);
    }
    kernels::decode_merge(split, false, splits, place.states);
  }
}

void BeamKVCache::attend_one_plainly(std::int64_t layer, const Hypothesis& said,
                                     const float* q, float* out,
                                     const BeamAttentionOptions& given) const {
  const std::int64_t in_blocks = tokens_in_blocks();
  const std::int64_t tokens =
      in_blocks + static_cast<std::int64_t>(steps_.size());
  std::vector<float> kv(static_cast<std::size_t>(tokens * 2 * width()));
  for (std::int64_t t = 0; t < in_blocks; ++t) {
    for (std::int64_t i = 0; i < width(); ++i) {
      const float* const block =
          closed_block(said, t / kBlockKeys, layer, i / dim_);
      const float* const values =
          block + layout_.k_bytes() / static_cast<std::int64_t>(sizeof(float));
      float* const to = kv.data() + t * 2 * width() + i;
      to[0] = block[i % dim_ * kBlockKeys + t % kBlockKeys];
      to[width()] = values[t % kBlockKeys * layout_.columns() + i % dim_];
    }
  }
  for (std::size_t i = 0; i < said.newest.size(); ++i) {
    const auto at = in_blocks + static_cast<std::int64_t>(i);
    std::copy_n(token(layer, i, said.newest[i]), 2 * width(),
                kv.data() + at * 2 * width());
  }
  const auto view = [&](auto* data, std::int64_t rows, std::int64_t stride) {
    return TensorView<std::remove_pointer_t<decltype(data)>, 4>(
        data, {1, heads_, rows, dim_}, {rows * stride, dim_, stride, 1});
  };
  const float* const keys = kv.data();
  AttentionOptions options;
  options.scale = given.scale;
  options.softcap = given.softcap;
  if (!given.bias.is_null()) {
    options.bias = {given.bias.data(),
                    {1, heads_, 1, tokens},
                    {0, given.bias.stride(0), tokens, 1}};
  }
  options.threads.count = 1;
  attention_forward(view(q, 1, width()), view(keys, tokens, 2 * width()),
                    view(keys + width(), tokens, 2 * width()),
                    view(out, 1, width()), options);
}

void BeamKVCache::reorder(std::span<const std::int64_t> parents) {
  std::vector<Hypothesis> said;
  said.reserve(parents.size());
  for (const std::int64_t parent : parents) {
    said.push_back(said_[static_cast<std::size_t>(parent)]);
  }
  said_ = std::move(said);
}

}  // namespace regard::nn::detail
