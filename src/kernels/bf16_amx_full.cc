// SPDX-License-Identifier: Apache-2.0
// The fast way through groups of keys that every row of a strip sees: tile
// products and the vector work of the softmax side by side. While the weights
// of one group are made, the tiles score the next group and add the values of
// the batch before.
#include "kernels/bf16_amx.h"

#if REGARD_BF16_X86

#include <immintrin.h>

#include "hwy/base.h"

// See bf16_avx512.cc: nothing from the standard library below.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
#include "kernels/bf16_weigh-inl.h"
namespace regard::kernels {
namespace {

// Groups whose weights are multiplied with values in one go: the sums are
// loaded and stored once for all of them.
constexpr int kBatch = 4;
constexpr int kWeightsOfGroup = 2 * kTileBf16;

// The memory of strip.scores: scores of two groups, weights of two batches.
constexpr int kScoreRing = 2 * kGroupFloats;
static_assert(kScoreRing + 2 * kBatch * kWeightsOfGroup / 2 <=
              kStripScoreFloats);

// The rows of a group whose weights are still to be made.
struct RowSteps {
  const float* scores;
  Bf16Bits* weights;
  const float* scale;
  int row;

  REGARD_INLINE void next() {
    weigh_row(scores + row * 16 + row / 16 * kTileFloats, scale[row],
              weights + row * 32);
    ++row;
  }
  template <int kCount>
  REGARD_INLINE void next_some() {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) next();
  }
  REGARD_INLINE void next_if_any() {
    if (row < kStripRows) next();
  }
};

class FullRun {
 public:
  FullRun(const Bf16Head& head, const Bf16Strip& strip, std::int64_t first)
      : head_(head), strip_(strip), first_(first) {}

  template <int kSteps>
  REGARD_INLINE void run(int count) {
    // Beside every tile product of the scores.
    constexpr int kRows = kSteps == 1 ? 4 : kSteps == 2 ? 2 : 1;
    RowSteps none{nullptr, nullptr, nullptr, kStripRows};
    score<kSteps, 0>(0, none);
    for (int group = 0; group < count; ++group) {
      RowSteps rows{scores(group), weights(group), strip_.scale, 0};
      REGARD_FENCE;
      if (group + 1 < count) score<kSteps, kRows>(group + 1, rows);
      if (group >= kBatch) {
        add_part(group / kBatch - 1, group % kBatch, kBatch, rows);
      }
      while (rows.row < kStripRows) rows.next();
      REGARD_FENCE;
    }
    // What the last groups left to do.
    const int batches = (count + kBatch - 1) / kBatch;
    const int last = count - (batches - 1) * kBatch;
    if (batches > 1) {
      for (int part = last; part < kBatch; ++part) {
        add_part(batches - 2, part, kBatch, none);
      }
    }
    for (int part = 0; part < kBatch; ++part) {
      add_part(batches - 1, part, last, none);
    }
    REGARD_FENCE;
  }

 private:
  float* scores(int group) const {
    return strip_.scores + group % 2 * kGroupFloats;
  }
  Bf16Bits* weights(int group) const {
    return reinterpret_cast<Bf16Bits*>(strip_.scores + kScoreRing) +
           group % (2 * kBatch) * kWeightsOfGroup;
  }

  template <int kSteps, int kRows>
  REGARD_INLINE void score(int group, RowSteps& rows) const {
    const Bf16Bits* const q0 = strip_.queries;
    const Bf16Bits* const q1 = q0 + kSteps * kTileBf16;
    const Bf16Bits* const k0 =
        head_.keys + (first_ + group) * 2 * kSteps * kTileBf16;
    const Bf16Bits* const k1 = k0 + kSteps * kTileBf16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const int at = step * kTileBf16;
      _tile_loadd(4, q0 + at, 64);
      _tile_loadd(6, k0 + at, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_some<kRows>();
      _tile_loadd(7, k1 + at, 64);
      _tile_dpbf16ps(1, 4, 7);
      rows.next_some<kRows>();
      _tile_loadd(5, q1 + at, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_some<kRows>();
      _tile_dpbf16ps(3, 5, 7);
      rows.next_some<kRows>();
    }
    float* const to = scores(group);
    _tile_stored(0, to, 64);
    _tile_stored(1, to + kTileFloats, 64);
    _tile_stored(2, to + 2 * kTileFloats, 64);
    _tile_stored(3, to + 3 * kTileFloats, 64);
  }

  // Part 0 .. kBatch - 1 of a batch's products: pairs of value tiles part, part
  // + kBatch, ..., and the sums with the last.
  REGARD_INLINE void add_part(int batch, int part, int groups,
                              RowSteps& rows) const {
    for (int tile = 2 * part; tile < head_.value_tiles; tile += 2 * kBatch) {
      if (tile + 1 < head_.value_tiles) {
        add_pair(batch, tile, groups, rows);
      } else {
        add_tile(batch, tile, groups, rows);
      }
    }
    if (part == kBatch - 1) add_sums(batch, groups, rows);
  }

  REGARD_INLINE const Bf16Bits* values(int batch, int group, int tile) const {
    return head_.values +
           ((first_ + batch * kBatch + group) * head_.value_tiles + tile) *
               kTileBf16;
  }

  REGARD_INLINE void add_pair(int batch, int tile, int groups,
                              RowSteps& rows) const {
    float* const o0 = strip_.out + tile * kTileFloats;
    float* const o1 = o0 + head_.value_tiles * kTileFloats;
    _tile_loadd(0, o0, 64);
    _tile_loadd(1, o0 + kTileFloats, 64);
    _tile_loadd(2, o1, 64);
    _tile_loadd(3, o1 + kTileFloats, 64);
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      const Bf16Bits* const v = values(batch, group, tile);
      _tile_loadd(4, w, 64);
      _tile_loadd(6, v, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      _tile_loadd(7, v + kTileBf16, 64);
      _tile_dpbf16ps(1, 4, 7);
      rows.next_if_any();
      _tile_loadd(5, w + kTileBf16, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
      _tile_dpbf16ps(3, 5, 7);
      rows.next_if_any();
    }
    _tile_stored(0, o0, 64);
    _tile_stored(1, o0 + kTileFloats, 64);
    _tile_stored(2, o1, 64);
    _tile_stored(3, o1 + kTileFloats, 64);
  }

  REGARD_INLINE void add_tile(int batch, int tile, int groups,
                              RowSteps& rows) const {
    float* const o0 = strip_.out + tile * kTileFloats;
    float* const o1 = o0 + head_.value_tiles * kTileFloats;
    _tile_loadd(0, o0, 64);
    _tile_loadd(2, o1, 64);
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      _tile_loadd(6, values(batch, group, tile), 64);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      _tile_loadd(5, w + kTileBf16, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
    }
    _tile_stored(0, o0, 64);
    _tile_stored(2, o1, 64);
  }

  REGARD_INLINE void add_sums(int batch, int groups, RowSteps& rows) const {
    _tile_loadd(6, kBf16Ones, 0);  // the same row sixteen times
    _tile_loadd(0, strip_.sums, 64);
    _tile_loadd(2, strip_.sums + kTileFloats, 64);
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      _tile_loadd(5, w + kTileBf16, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
    }
    _tile_stored(0, strip_.sums, 64);
    _tile_stored(2, strip_.sums + kTileFloats, 64);
  }

  const Bf16Head& head_;
  const Bf16Strip& strip_;
  const std::int64_t first_;
};

}  // namespace

bool amx_add_full(const Bf16Head& head, const Bf16Strip& strip,
                  std::int64_t first, std::int64_t last) noexcept {
  const auto count = static_cast<int>(last - first);
  if (strip.blocks != 2 || count < kBatch) return false;
  FullRun full(head, strip, first);
  REGARD_FENCE;
  switch (head.key_steps) {
    case 1:
      full.run<1>(count);
      return true;
    case 2:
      full.run<2>(count);
      return true;
    case 3:
      full.run<3>(count);
      return true;
    case 4:
      full.run<4>(count);
      return true;
    default:
      return false;
  }
}

}  // namespace regard::kernels
HWY_POP_ATTRIBUTES

#endif  // REGARD_BF16_X86
