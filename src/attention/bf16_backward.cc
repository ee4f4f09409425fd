// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/backward.h"

#include <cstring>

#include "attention/backward_rows.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

// One key-value head of one entry: its rows described, run, and what there is
// one of a head summed.
class Bf16HeadWork {
 public:
  Bf16HeadWork(const BackwardProblem<float>& problem,
               const EntryMasks<float>& masks, std::int64_t index,
               std::int64_t kv_head)
      : b_(problem),
        p_(problem.forward),
        kv_head_(kv_head),
        rows_(problem, masks, index, kv_head) {}

  void run(HeadSums& sums) {
    const std::size_t own = lay_out(nullptr);
    std::byte* const memory = thread_scratch(
        own + kernels::bf16_backward_bytes(rows_.count(), rows_.entry().kv_len,
                                           p_.d_k, p_.d_v));
    lay_out(memory);
    rows_.describe_head(head_);
    rows_.describe_rows(0, rows_.count());
    if (rows_.count() == 0) {
      clear_keys();
    } else {
      kernels::bf16_backward_head(head_, memory + own);
    }
    rows_.sum(head_, sums);
  }

 private:
  std::size_t lay_out(std::byte* base) {
    MemoryLayout memory(base);
    rows_.lay_out(memory);
    memory.take(head_.deltas, rows_.count());
    memory.take(head_.d_slopes, rows_.count());
    memory.take(head_.d_row_biases, rows_.count());
    if (!b_.gradients.head_scales.empty()) {
      memory.take(head_.d_scales, rows_.count());
    }
    return memory.used();
  }

  // Keys that no row reads.
  void clear_keys() const {
    const Entry& e = rows_.entry();
    const auto clear = [&](const Elements& gradient) {
      for (std::int64_t j = 0; j < e.kv_len && !gradient.is_null(); ++j) {
        std::memset(gradient.at(e.batch, kv_head_, e.kv_begin + j), 0,
                    gradient.row_bytes());
      }
    };
    clear(b_.gradients.k);
    clear(b_.gradients.v);
  }

  const BackwardProblem<float>& b_;
  const Problem<float>& p_;
  const std::int64_t kv_head_;
  BackwardRows rows_;
  kernels::Bf16BackwardHead head_{};
};

}  // namespace

void bf16_backward(const BackwardProblem<float>& b,
                   const EntryMasks<float>& masks) {
  const Problem<float>& p = b.forward;
  HeadSums sums(p.entries, p.heads);
  if (p.entries > 0 && p.heads > 0) {
    // Heads may add to the same bias: then one after the other.
    const int count =
        b.gradients.bias.is_null() ? threads_for(p, 6 * p.d_k + 4 * p.d_v) : 1;
    parallel_for({count, p.options.threads.pool}, p.entries * p.kv_heads,
                 [&](std::int64_t task) {
                   Bf16HeadWork(b, masks, task / p.kv_heads, task % p.kv_heads)
                       .run(sums);
                 });
  }
  sums.write(b.gradients);
}

}  // namespace regard::detail
