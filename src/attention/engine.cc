// SPDX-License-Identifier: Apache-2.0
#include "attention/engine.h"

#include <algorithm>

#include "attention/entry_masks.h"
#include "kernels/attention_forward.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

// Few rows and many keys: the splits of a block run side by side.
void forward_by_splits(const Problem<float>& p, const Elements& out,
                       const EntryMasks<float>& masks, const EnginePlan& plan,
                       const BlockMemory& memory) {
  const RowBlocks& blocks = plan.blocks;
  const std::int64_t splits = plan.splits;
  const auto state = static_cast<std::int64_t>(
      kernels::attention_state_floats(blocks.rows(), p.d_v));
  AlignedBuffer buffer(
      static_cast<std::size_t>(blocks.size() * splits * state) * sizeof(float));
  auto* const states = reinterpret_cast<float*>(buffer.data());
  // A sequence without keys has a state, too, which says that it saw none.
  const auto splits_of = [&](const RowBlock& block) {
    const std::int64_t kv_len = p.entry(block.index).kv_len;
    return std::max<std::int64_t>(
        1, (kv_len + kernels::kSplitKeys - 1) / kernels::kSplitKeys);
  };
  // A state takes as much room as its own rows need.
  const auto state_of = [&](std::int64_t block, std::int64_t split) {
    return states + block * splits * state +
           split * static_cast<std::int64_t>(kernels::attention_state_floats(
                       blocks[block].count, p.d_v));
  };
  parallel_for(
      p.options.threads, blocks.size() * splits, [&](std::int64_t task) {
        const RowBlock block = blocks[task / splits];
        const std::int64_t split = task % splits;
        if (split >= splits_of(block)) return;
        masks.with(block.index, [&](const BoundMask& mask) {
          kernels::attention_split(memory.describe(block, mask, out), split,
                                   state_of(task / splits, split));
        });
      });
  parallel_for(p.options.threads, blocks.size(), [&](std::int64_t task) {
    const RowBlock block = blocks[task];
    masks.with(block.index, [&](const BoundMask& mask) {
      kernels::attention_merge(memory.describe(block, mask, out),
                               splits_of(block), state_of(task, 0));
    });
  });
}

}  // namespace

bool engine_available() { return kernels::attention_has_kernel(); }

EnginePlan::EnginePlan(const Problem<float>& p)
    : threads(threads_for(p, 2 * (p.d_k + p.d_v))), blocks(p, threads) {
  if (blocks.size() >= 2 * threads || threads == 1 ||
      p.k.extent(2) <= kernels::kSplitKeys) {
    return;
  }
  for (std::int64_t i = 0; i < p.entries; ++i) {
    splits = std::max(splits, (p.entry(i).kv_len + kernels::kSplitKeys - 1) /
                                  kernels::kSplitKeys);
  }
}

void engine_forward(const Problem<float>& p, const Elements& out) {
  if (p.entries == 0 || p.heads == 0 || p.q.extent(2) == 0) return;
  const EntryMasks<float> masks(p);
  const EnginePlan plan(p);
  const RowBlocks& blocks = plan.blocks;
  const BlockMemory memory(p, blocks.rows(), masks.dense_parts());
  const Threads budget{plan.threads, p.options.threads.pool};

  if (plan.splits > 0) return forward_by_splits(p, out, masks, plan, memory);
  parallel_for(budget, blocks.size(), [&](std::int64_t number) {
    const RowBlock block = blocks[number];
    masks.with(block.index, [&](const BoundMask& mask) {
      kernels::attention_forward_block(memory.describe(block, mask, out));
    });
  });
}

}  // namespace regard::detail
