// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/attention_forward.h"
#include "kernels/bf16/paths.h"

namespace regard::kernels {

// Steps of bf16 attention that are the same on every path, on Highway's
// vectors.

// to[0, padded) <- from[0, n) rounded to bf16, then zeros.
void bf16_round_row(const void* from, Storage storage, std::int64_t n,
                    std::int64_t padded, Bf16Bits* to) noexcept;

// Whether a row of this length may be squared and multiplied as it is. Cosine
// scores are of rows of any length: the others are multiplied by a power of two
// first, which changes no direction and no bit.
constexpr bool bf16_is_ordinary(float norm) {
  return norm > 0x1p-50f && norm < 0x1p50f;
}
// The power that brings the largest element near 1; 1 for zeros, and where one
// is infinite.
float bf16_unit_power(const void* row, Storage storage,
                      std::int64_t n) noexcept;
// to[0, n) <- from[0, n) * power, rounded to bf16.
void bf16_round_scaled(const void* from, Storage storage, float power,
                       std::int64_t n, Bf16Bits* to) noexcept;

// What rows turn out to be when they are packed. Where `powers` is given, those
// that are not ordinary are scaled; the norms are of what is packed.
struct Bf16Lengths {
  float* norms;
  float* powers = nullptr;
};

// Tiles [blocks][steps] of 16 rows and 32 elements <- 16 * blocks rows of
// keys.d_k elements in its storage, rounded to bf16, then zeros.
void bf16_pack_queries(const void* const* rows, int blocks,
                       const AttentionKeys& keys, Bf16Bits* to,
                       const Bf16Lengths& lengths) noexcept;

// What the rows of a strip ask for beyond the product.
struct Bf16Modifier {
  const AttentionBlock* block;
  const AttentionRow* const* rows;  // [32]
  const float* key_norms;           // [groups][32], of cosine scores, or null
  std::int64_t kv_len;
};

// scores <- scores in log2, with everything that the modifier asks for, -inf
// where hidden; max[32] <- the largest of each row, NaN left out.
void bf16_finish_scores(const Bf16Modifier& modifier, const Bf16Strip& strip,
                        float* max) noexcept;

// Zeroes the weights that dropout takes.
void bf16_drop(const Bf16Modifier& modifier, const Bf16Strip& strip) noexcept;

// One step of the backward pass (bf16_backward.h): a strip of 32 rows against
// the groups of its slots. Tiles of group g go where those of g - first_group
// are counted from.
struct Bf16Differential {
  const Bf16Modifier* modifier;
  const Bf16Strip* strip;  // its scores in log2, -inf where hidden
  const float* products;   // dP, as the scores lie
  const float* raw;        // the products before the softcap, or null
  const float* log2_sums;  // [32]; +inf for a row that is not there
  const float* deltas;     // [32]
  const float* scales;     // [32], of q in dS^T q
  bool wants_rows;         // row_sums, slopes and d_bias
  float* row_sums;         // [32] += dS
  float* slopes;           // [32] += the gradient of ALiBi's slope
  float* const* d_bias;    // [32], += dS of each key; or null
  std::int64_t first_group;
  // [2] tiles of pairs of rows, right_stride apart: the weights, and dS times
  // the row's scale.
  Bf16Bits *weights, *d_keys;
  std::int64_t right_stride;
  Bf16Bits* d_queries;  // [groups][2] tiles of rows: dS, over |k| for cosines
};
void bf16_differentiate(const Bf16Differential& job) noexcept;

// words[16] &= the bits of keys [key, key + n), n <= 32, that a dense part
// shows to 16 rows.
void bf16_dense_words(const bool* const* rows, std::int64_t key, int n,
                      bool visible_when, std::uint32_t* words) noexcept;

// Of row[16] of each tile, whether all are finite.
bool bf16_row_is_finite(const float* row, int tiles) noexcept;

// row[16] of each tile, times a factor.
void bf16_scale_row(float* row, int tiles, float factor) noexcept;

// The left side of a Bf16Product: `count` <= 32 rows of k elements, rounded to
// bf16, then zeros. Blocks of 16 rows without a row are left alone.
void bf16_pack_panel(const void* const* rows, int count, Storage storage,
                     std::int64_t k, Bf16Bits* to) noexcept;

// Two tiles of pairs of rows, 16 columns each: `count` <= 32 rows of `columns`
// <= 32 elements, rounded to bf16, then zeros. Element (2 p + e) of column c is
// at [c / 16][p][c % 16][e], p counting pairs of rows.
void bf16_pack_pairs(const float* rows, std::int64_t stride, int count,
                     int columns, Bf16Bits* to) noexcept;

// out [rows, columns] <- the sums of a Bf16Product, in storage.
struct Bf16Sums {
  const float* sums;
  int rows, columns;  // at most 32
  Storage storage;
  void* out;
  std::int64_t stride;  // of out, in elements
};
void bf16_write_sums(const Bf16Sums& sums) noexcept;

// out[0, n) <- row * factor, in storage.
void bf16_write_row(const float* row, float factor, std::int64_t n,
                    Storage storage, void* out) noexcept;

}  // namespace regard::kernels
