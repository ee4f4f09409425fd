// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "regard/attention/attention.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// The sizes of one attention, without its elements.
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t d_k = 0;
  std::int64_t d_v = 0;
  DType dtype = DType::kFloat32;  // float32, bfloat16, float16 or float64
};

enum class AttentionPath {
  kFused,  // SIMD kernels over tiles of pairs, O(N) memory
  kPlain,  // one row after the other: double, or a machine without vectors
};

// How attention_forward would run.
struct Explanation {
  AttentionShape shape{};
  AttentionPath path = AttentionPath::kPlain;
  std::string simd_target{};
  int threads = 1;

  std::int64_t rows = 0;            // queries of all heads and batch entries
  std::int64_t row_blocks = 0;      // tasks for threads
  std::int64_t rows_per_block = 0;  // at most
  // Of the longest sequence, where the splits of a block's keys run side by
  // side; 0 where they run one after the other. The bits are the same.
  std::int64_t splits = 0;

  // Tiles of rows and keys, of the fused path: those that all rows see whole,
  // those where something is hidden, and those that cost nothing.
  int tile_rows = 0;
  int tile_keys = 0;
  std::int64_t full_tiles = 0;
  std::int64_t mixed_tiles = 0;
  std::int64_t skipped_tiles = 0;

  std::int64_t pairs = 0;          // of queries and keys, over heads and batch
  std::int64_t visible_pairs = 0;  // that the mask shows; a bias of -inf is not
                                   // looked for
  std::int64_t visited_pairs = 0;  // in the tiles that are not skipped
  double flops = 0;                // 2 (d_k + d_v) for each visible pair
  std::int64_t scratch_bytes = 0;  // beyond the arguments, all threads
};

// What attention_forward does with a call of these sizes: nothing is computed,
// and of the options only masks and sizes are looked at. Takes time in
// proportion to the pairs of a dense mask, which must be read, to the queries
// of documents and to the lengths, and to no size with every other mask.
// options.bias and the like are those of a float call for every dtype. Packed
// calls have batch 1. Throws InvalidArgument where attention_forward would, for
// another compute than kFloat32, and for more than 9e18 pairs.
Explanation explain(const AttentionShape& shape,
                    const AttentionOptions& options = {});

// The shape of a call.
template <typename T>
AttentionShape attention_shape(TensorView<const T, 4> q,
                               TensorView<const T, 4> k,
                               TensorView<const T, 4> v) {
  require(q.extent(0) == k.extent(0) && k.extent(0) == v.extent(0) &&
              q.extent(3) == k.extent(3) && k.extent(1) == v.extent(1) &&
              k.extent(2) == v.extent(2),
          "attention_shape", "q, k and v must belong together; q is ",
          to_string(q.shape()), ", k is ", to_string(k.shape()), ", v is ",
          to_string(v.shape()));
  return {q.extent(0), q.extent(1), k.extent(1), q.extent(2),
          k.extent(2), q.extent(3), v.extent(3), dtype_of<T>()};
}

// A few lines for a terminal, each ended.
std::string to_string(const Explanation& explanation);

}  // namespace regard
