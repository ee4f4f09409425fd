// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::kernels {

// What the three paths of bf16 arithmetic share: how keys, values, scores and
// weights lie in memory, and the steps that each path does in its own way.
//
// A tile is 1 KB: [16][16] floats, or [16][32] bf16 elements. A strip is 32
// rows, two blocks of 16; a group is 32 keys. Groups count from key 0 of the
// sequence, so what a row's result is made of never depends on how the work is
// cut.

using Bf16Bits = std::uint16_t;

inline constexpr int kStripRows = 32;
inline constexpr int kGroupKeys = 32;
inline constexpr int kChunkGroups = 4;  // groups that are scored at once
inline constexpr int kTileFloats = 256;
inline constexpr int kTileBf16 = 512;
inline constexpr int kGroupFloats = 4 * kTileFloats;  // scores of a group
// What Bf16Strip::scores has room for.
inline constexpr int kStripScoreFloats = 5 * kGroupFloats;
static_assert(kChunkGroups * kGroupFloats <= kStripScoreFloats);

// The keys and values of one head, packed. Every tile is the right operand of a
// product over pairs: element (2 p + e) of column c is at [p][c][e].
struct Bf16Head {
  // [groups][2][key_steps]: tiles of 16 keys (the first and the second half of
  // the group) and 32 elements of d_k, zero beyond d_k.
  Bf16Bits* keys;
  // [groups][value_tiles]: tiles of 32 keys and 16 columns. Pair p holds keys p
  // and p + 16. Values that are not finite are zero here.
  Bf16Bits* values;
  float* key_norms;  // [groups][32], |k|, of what is packed
  // [groups][32], what k was multiplied by; see Bf16Lengths. Null: by nothing.
  float* key_powers;
  float* max_norms;         // [groups], the largest; NaN if one is
  bool* values_are_finite;  // [groups]
  std::int64_t kv_len;
  int key_steps;
  int value_tiles;
};

// The larger of two lengths; NaN if one is.
constexpr float max_or_nan(float a, float b) {
  return a >= b || a != a ? a : b;
}

enum class Shown : std::uint8_t { kNone, kSome, kAll };

// One strip of rows against some groups of keys.
struct Bf16Strip {
  const Bf16Bits* queries;     // [2][key_steps] tiles of 16 rows, 32 elements
  int blocks;                  // of 16 rows, 1 or 2
  int slots;                   // groups at hand, 1 .. kChunkGroups
  const std::int64_t* groups;  // [slots], their numbers
  // [slots][2 blocks][2 halves] tiles of floats: row, key. The weights take the
  // place of the first half: a bf16 tile whose pair p holds keys p and p + 16.
  float* scores;
  const float* scale;            // [32], to log2
  const Shown (*shown)[2];       // [slots][2 blocks]
  const std::uint32_t* visible;  // [slots][32 rows], a bit a key; where kSome
  const float* max;              // [32], integers
  float* out;                    // [2][value_tiles] tiles of floats
  float* sums;                   // [2] tiles, every column the same
};

inline Bf16Bits* weights_of(float* scores, int slot, int block) {
  return reinterpret_cast<Bf16Bits*>(scores + slot * kGroupFloats +
                                     block * 2 * kTileFloats);
}

// 2^f for 0 <= f < 1 to 7.5e-5, and half a unit of bf16 more: what is cut off
// after that is rounded.
inline constexpr float kExp2Poly[4] = {0.99992520f + 0.00390625f, 0.69583356f,
                                       0.22606716f, 0.07802452f};

// Rows [first, last) of finished sums, as a Bf16Product leaves them, that are
// written to where they belong while a product runs.
struct Bf16Carry {
  const float* sums = nullptr;
  float* out = nullptr;  // of row 0
  std::int64_t stride = 0;
  int first = 0, last = 0;
  bool past_caches = false;  // asks for whole lines of memory
};

// sums = or += left * right: panels of 32 rows, each with the same 32 columns.
struct Bf16Product {
  // [steps][2] tiles of 16 rows and 32 elements for each panel; the panels are
  // left_stride elements apart.
  const Bf16Bits* left;
  std::int64_t left_stride;
  // [2] tiles of pairs, 16 columns each, for each step; the steps are
  // right_stride elements apart.
  const Bf16Bits* right;
  std::int64_t right_stride = 2 * kTileBf16;
  float* sums;  // [panels][2][2] tiles of floats: rows, columns
  int steps;    // at least 1
  int rows;     // over all panels; the rest of the last one gets anything
  bool from_zero;
  // What will be wanted soon, to be fetched meanwhile; may be empty.
  const Bf16Bits* ahead = nullptr;
  const Bf16Bits* ahead_end = nullptr;
  Bf16Carry carry{};  // empty where the path does not carry
};
inline constexpr int kProductFloats = 4 * kTileFloats;  // a panel's sums
inline constexpr int kPanelRows = 32;

struct Bf16Functions {
  // Around the calls of one thread: the tile registers, if any.
  void (*begin)() noexcept;
  void (*end)() noexcept;
  // 16 rows of `steps` * 32 elements, each at its own place, to tiles of pairs,
  // one a step, `stride` elements apart; norms[16] <- the rows' lengths.
  void (*pack_keys)(const Bf16Bits* const* rows, int steps, Bf16Bits* to,
                    std::int64_t stride, float* norms) noexcept;
  // 32 rows of tiles * 16 elements to `tiles` tiles of values; false if one is
  // not finite.
  bool (*pack_values)(const Bf16Bits* const* rows, int tiles,
                      Bf16Bits* to) noexcept;
  // scores <- queries * keys
  void (*score)(const Bf16Head& head, const Bf16Strip& strip) noexcept;
  // weights <- 2^(scale * score), where shown; for small scores
  void (*weigh)(const Bf16Head& head, const Bf16Strip& strip) noexcept;
  // weights <- 2^(score - max) of scores in log2; -inf becomes zero
  void (*weigh_below)(const Bf16Strip& strip) noexcept;
  // sums += weights
  void (*add_sums)(const Bf16Strip& strip) noexcept;
  // out += weights * values
  void (*add_values)(const Bf16Head& head, const Bf16Strip& strip) noexcept;
  void (*multiply)(const Bf16Product& product) noexcept;
  bool carries;  // whether multiply looks at product.carry
  // All of it for groups [first, last), every key of which every row sees, with
  // weights as weigh() makes them; strip.groups and slots are not read. False,
  // and nothing done, where there is no faster way than the steps above. Null
  // if there never is.
  bool (*add_full)(const Bf16Head& head, const Bf16Strip& strip,
                   std::int64_t first, std::int64_t last) noexcept;
};

const Bf16Functions& bf16_functions();  // of the path in use

// Null where the compiler cannot make them.
const Bf16Functions* bf16_amx_functions();
const Bf16Functions* bf16_dot_functions();
const Bf16Functions& bf16_portable_functions();

}  // namespace regard::kernels
