// SPDX-License-Identifier: Apache-2.0
#include "nn/decoder_copies.h"

#include <array>

#include "ops/product.h"
#include "regard/attention/weights.h"

namespace regard::nn::detail {

using ops::Rows;

DecoderCopies::DecoderCopies(const CopyWeights& weights,
                             const PackedTokens& sources, const Rows& memory,
                             ops::MemoryPool& pool, Threads threads)
    : weights_(&weights),
      offsets_(sources.offsets),
      keys_(pool.take(memory.size())) {
  const std::span<const std::int32_t> tokens = sources.tokens;
  for (std::size_t s = 1; s < offsets_.size(); ++s) {
    const auto begin = static_cast<std::size_t>(offsets_[s - 1]);
    const auto end = static_cast<std::size_t>(offsets_[s]);
    sources_.emplace_back(tokens.subspan(begin, end - begin));
  }
  ops::multiply(weights.key(memory, Rows(keys_.get(), memory.shape())),
                threads);
}

void DecoderCopies::add(const Rows& x, std::span<const std::int64_t> q_offsets,
                        const Rows& logits, ops::Arena& work,
                        Threads threads) const {
  const std::int64_t rows = x.extent(0), d = x.extent(1);
  const ops::Arena::Scope scope(work);
  const Rows q(work.take(rows * d), {rows, d});
  const Rows gate(work.take(rows), {rows, 1});
  const std::array products{weights_->query(x, q), weights_->gate(x, gate)};
  ops::multiply(products, threads);
  AttentionOptions options;
  options.sequences = {q_offsets, offsets_};
  options.threads = threads;
  const auto mix = [&](const WeightsBlock<float>& block) {
    const ops::CopySource& source =
        sources_[static_cast<std::size_t>(block.batch)];
    for (std::size_t r = 0; r < block.queries.size(); ++r) {
      const std::int64_t row = block.queries[r];
      ops::mix_copies(
          source, block.weights.at(static_cast<std::int64_t>(r)), *gate.at(row),
          {logits.at(row), static_cast<std::size_t>(logits.extent(1))});
    }
  };
  stream_attention_weights(
      TensorView<const float, 4>(q.data(), {1, 1, rows, d}),
      TensorView<const float, 4>(keys_.get(), {1, 1, offsets_.back(), d}), mix,
      {}, options);
}

}  // namespace regard::nn::detail
