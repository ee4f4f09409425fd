// SPDX-License-Identifier: Apache-2.0
#include "attention/bf16.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/entry_masks.h"
#include "attention/row_blocks.h"
#include "kernels/bf16/attention.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::AttentionBlock;
using kernels::Bf16Head;
using kernels::kStripRows;

// Packed heads that are at hand at once: about a core's second cache for each
// thread. One head is packed whole, however long.
constexpr std::size_t kWaveBytes = 2 << 20;
constexpr std::int64_t kGroupsATask = 16;  // of packing

// One key-value head of one entry.
struct Unit {
  std::int64_t index, kv_head;
  std::int64_t rows;  // that read it
  Bf16Head head;
};

class Bf16Engine {
 public:
  Bf16Engine(const Problem<float>& p, const Elements& out)
      : p_(p),
        out_(out),
        masks_(p),
        threads_{threads_for(p, 2 * (p.d_k + p.d_v)), p.options.threads.pool},
        block_rows_(choose_block_rows()),
        memory_(p, block_rows_, masks_.dense_parts(),
                kernels::bf16_block_scratch_bytes(block_rows_, p.d_k, p.d_v)) {}

  // Units [first, last) that fit one wave; their keys are packed, then their
  // rows run.
  void run() {
    const std::int64_t units = p_.entries * p_.kv_heads;
    std::vector<Unit> wave;
    for (std::int64_t first = 0; first < units;) {
      const std::int64_t last = plan_wave(first, units, wave);
      pack(wave);
      attend(wave);
      first = last;
    }
  }

 private:
  // Strips that share one pass over the keys; fewer where threads would wait
  // for the last of few blocks.
  int choose_block_rows() const {
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < (p_.packed ? p_.entries : 1); ++i) {
      total += p_.entry(i).q_len * p_.heads;
    }
    if (!p_.packed) total *= p_.entries;
    constexpr std::int64_t kBlocksAThread = 8;
    int strips = 8;
    while (threads_.count > 1 && strips > 1 &&
           total < kBlocksAThread * threads_.count * strips * kStripRows) {
      strips /= 2;
    }
    return strips * kStripRows;
  }

  std::int64_t plan_wave(std::int64_t first, std::int64_t units,
                         std::vector<Unit>& wave) const {
    const std::size_t limit =
        kWaveBytes * static_cast<std::size_t>(threads_.count);
    std::size_t used = 0;
    std::vector<std::size_t> starts;
    std::int64_t last = first;
    for (; last < units; ++last) {
      const std::size_t bytes = kernels::bf16_head_bytes(
          p_.entry(last / p_.kv_heads).kv_len, p_.d_k, p_.d_v);
      if (last > first && used + bytes > limit) break;
      starts.push_back(used);
      used += bytes;
    }
    std::byte* const memory = thread_scratch(used, Scratch::kCall);
    wave.clear();
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t index = unit / p_.kv_heads;
      const Entry e = p_.entry(index);
      wave.push_back(
          {.index = index,
           .kv_head = unit % p_.kv_heads,
           .rows = e.q_len * p_.group,
           .head = kernels::bf16_head(
               memory + starts[static_cast<std::size_t>(unit - first)],
               e.kv_len, p_.d_k, p_.d_v, score_options(p_.options))});
    }
    return last;
  }

  // Tasks [0, count(unit)) of every unit of the wave.
  template <typename Count, typename Body>
  void for_each_task(const std::vector<Unit>& wave, const Count& count,
                     const Body& body) const {
    std::vector<std::int64_t> starts{0};
    for (const Unit& unit : wave) starts.push_back(starts.back() + count(unit));
    parallel_for(threads_, starts.back(), [&](std::int64_t task) {
      const auto after = std::upper_bound(starts.begin(), starts.end(), task);
      const std::int64_t unit = after - starts.begin() - 1;
      body(wave[static_cast<std::size_t>(unit)],
           task - starts[static_cast<std::size_t>(unit)]);
    });
  }

  void pack(const std::vector<Unit>& wave) const {
    for_each_task(
        wave,
        [](const Unit& unit) {
          return (kernels::bf16_groups(unit.head.kv_len) + kGroupsATask - 1) /
                 kGroupsATask;
        },
        [&](const Unit& unit, std::int64_t task) {
          const AttentionBlock call =
              describe_call(p_, unit.index, unit.kv_head);
          const std::int64_t first = task * kGroupsATask;
          const std::int64_t last = std::min(
              first + kGroupsATask, kernels::bf16_groups(unit.head.kv_len));
          kernels::bf16_pack_groups(
              call.keys, unit.head, first, last,
              thread_scratch(kernels::bf16_pack_scratch_bytes(p_.d_k, p_.d_v)));
        });
  }

  void attend(const std::vector<Unit>& wave) const {
    for_each_task(
        wave,
        [&](const Unit& unit) {
          return (unit.rows + block_rows_ - 1) / block_rows_;
        },
        [&](const Unit& unit, std::int64_t task) {
          // Later rows first: under a causal mask they have the most to do.
          const std::int64_t blocks =
              (unit.rows + block_rows_ - 1) / block_rows_;
          const std::int64_t first = (blocks - 1 - task) * block_rows_;
          masks_.with(unit.index, [&](const BoundMask& mask) {
            attend_block(unit, mask, first);
          });
        });
  }

  void attend_block(const Unit& unit, const BoundMask& mask,
                    std::int64_t first) const {
    const auto count = static_cast<int>(
        std::min<std::int64_t>(block_rows_, unit.rows - first));
    const AttentionBlock block =
        memory_.describe({unit.index, unit.kv_head, first, count}, mask, out_);
    kernels::bf16_forward_block(block, unit.head,
                                reinterpret_cast<std::byte*>(block.scratch));
  }

  const Problem<float>& p_;
  const Elements& out_;
  const EntryMasks<float> masks_;
  const Threads threads_;
  const int block_rows_;
  const BlockMemory memory_;
};

}  // namespace

void bf16_forward(const Problem<float>& p, const Elements& out) {
  if (p.entries == 0 || p.heads == 0 || p.q.extent(2) == 0) return;
  Bf16Engine(p, out).run();
}

}  // namespace regard::detail
