// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention_decode.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn::detail {

// The KV cache of a beam search: the keys and values, in each layer, of what
// the hypotheses have said.
//
// Beam search drops and doubles hypotheses at every step. Nothing of them is
// copied for that: a token is kept once, however many go on from it, and a
// hypothesis is a list of its tokens. Its newest tokens lie anywhere and are
// gathered where they are read; sixteen at a time become a block as
// attention_decode.h reads it, which those who go on from it share. (KVCache,
// whose sequences are long and seldom copied, keeps one memory for each.)
struct BeamAttentionOptions {
  std::optional<float> scale{};  // 1 / sqrt(dim)
  float softcap = 0.0f;          // 0: none
  // [heads, tokens], added to the scores of every hypothesis; null: none.
  TensorView<const float, 2> bias{};
  Threads threads{};
};

class BeamKVCache {
 public:
  BeamKVCache(std::int64_t layers, std::int64_t heads, std::int64_t dim,
              std::int64_t hypotheses);

  // Makes room for token number `place` of each hypothesis, which is the one
  // after those kept, or again the last of them: a step that failed half-way
  // may be taken again.
  void make_room(std::int64_t place, Threads threads);
  // Keeps the newest tokens of one layer: k and v [hypotheses, heads * dim],
  // rows `stride` floats apart.
  void append(std::int64_t layer, const float* k, const float* v,
              std::int64_t stride);
  // out [hypotheses, heads * dim] = the attention of each hypothesis to what it
  // has said, its newest token included; rows of q are `stride` floats apart.
  // The bits are those of attention_forward.
  void attend(std::int64_t layer, const float* q, std::int64_t stride,
              float* out, const BeamAttentionOptions& options) const;
  // Hypothesis i goes on from what parents[i] has said.
  void reorder(std::span<const std::int64_t> parents);

 private:
  // The tokens that the hypotheses said in one step.
  struct Step {
    std::int64_t count;
    AlignedBuffer memory;  // [layers][count][2 * heads * dim]: keys, values
  };
  struct Hypothesis {
    // Sixteen tokens each: [layers][heads] blocks.
    std::vector<std::shared_ptr<const AlignedBuffer>> blocks;
    // Which token of each of steps_ is its own.
    std::vector<std::int64_t> newest;
  };

  std::int64_t width() const { return heads_ * dim_; }
  std::int64_t hypotheses() const {
    return static_cast<std::int64_t>(said_.size());
  }
  std::int64_t tokens_in_blocks() const;
  std::int64_t block_floats() const;
  float* token(std::int64_t layer, std::size_t step, std::int64_t number) const;
  const float* closed_block(const Hypothesis& said, std::int64_t number,
                            std::int64_t layer, std::int64_t head) const;
  void close_blocks(Threads threads);
  void gather(std::int64_t layer, std::int64_t head,
              std::span<const std::int64_t> newest, float* rows,
              float* block) const;
  void attend_one(std::int64_t layer, const Hypothesis& hypothesis,
                  const float* q, float* out,
                  const BeamAttentionOptions& options) const;
  void attend_one_plainly(std::int64_t layer, const Hypothesis& hypothesis,
                          const float* q, float* out,
                          const BeamAttentionOptions& options) const;

  std::int64_t layers_, heads_, dim_;
  kernels::KVLayout layout_;
  std::vector<Step> steps_;  // those not yet in blocks
  std::vector<Hypothesis> said_;
};

}  // namespace regard::nn::detail
