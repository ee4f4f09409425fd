// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/attention_forward.h"

namespace regard::detail {

// A block of rows that read the same keys: rows [first, first + count) of a
// batch entry and key-value head. Row r is query r / group of head kv_head *
// group + r % group, so the heads of a group share every key that is loaded.
struct RowBlock {
  std::int64_t index;  // of the entry
  std::int64_t kv_head;
  std::int64_t first;
  int count;
};

// How the rows of a problem are cut into blocks. The cut changes no bit of the
// result, so it may look at threads and sizes as it likes.
class RowBlocks {
 public:
  RowBlocks(const Problem<float>& problem, int threads);

  std::int64_t size() const { return total_; }
  int rows() const { return rows_; }  // of a block, at most
  // Later rows first: under a causal mask they have the most to do.
  RowBlock operator[](std::int64_t number) const;

 private:
  std::int64_t blocks_of(std::int64_t q_len) const {
    return (q_len * group_ + rows_ - 1) / rows_;
  }

  std::int64_t group_, kv_heads_;
  int rows_ = 0;
  std::int64_t total_ = 0;
  std::int64_t q_len_ = 0;            // the same for all entries, or
  std::vector<std::int64_t> starts_;  // the first block of each, and the total
  std::vector<std::int64_t> q_lens_;
};

// What a call does to scores.
inline kernels::ScoreOptions score_options(const AttentionOptions& o) {
  return {.cosine = o.score == Score::kCosine,
          .softcap = o.softcap,
          .has_bias = !o.bias.is_null(),
          .bias_key_stride = o.bias.is_null() || o.bias.extent(3) == 1 ? 0 : 1,
          .has_alibi = !o.alibi_slopes.empty()};
}

// What a call says of all rows that read key-value head `kv_head` of an entry:
// everything but rows, dense parts and scratch.
kernels::AttentionBlock describe_call(const Problem<float>& problem,
                                      std::int64_t index, std::int64_t kv_head);

// One row. `out` is where its result goes, or null.
kernels::AttentionRow describe_row(const Problem<float>& problem,
                                   const BoundMask& mask, std::int64_t index,
                                   std::int64_t head, std::int64_t query,
                                   void* out);

// n rounded up to a whole number of cache lines.
constexpr std::size_t line_up(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// The scratch of one block: what the kernel needs and the rows that describe
// it.
class BlockMemory {
 public:
  // For kernels/attention_forward.h.
  BlockMemory(const Problem<float>& problem, int rows, std::size_t dense_parts);
  // For kernels that want so many bytes of AttentionBlock::scratch.
  BlockMemory(const Problem<float>& problem, int rows, std::size_t dense_parts,
              std::size_t kernel_bytes)
      : problem_(problem),
        rows_(static_cast<std::size_t>(rows)),
        dense_parts_(dense_parts),
        kernel_bytes_(kernel_bytes) {
    Parts parts{};
    bytes_ = lay_out(nullptr, parts);
  }

  // Of scratch, a thread.
  std::size_t bytes() const { return bytes_; }

  // Describes `block` to the kernel. What it points to lives in the calling
  // thread's scratch, until that is asked for again.
  kernels::AttentionBlock describe(const RowBlock& block, const BoundMask& mask,
                                   const Elements& out) const;

 private:
  struct Parts {
    std::byte* scratch;  // of the kernel
    kernels::AttentionRow* rows;
    kernels::AttentionDense* dense;
    const bool** dense_rows;  // [parts][rows]
  };
  std::size_t lay_out(std::byte* base, Parts& parts) const;

  const Problem<float>& problem_;
  const std::size_t rows_, dense_parts_, kernel_bytes_;
  std::size_t bytes_ = 0;
};

}  // namespace regard::detail
