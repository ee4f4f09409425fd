// SPDX-License-Identifier: Apache-2.0
// The fast way through groups of keys that every row of a strip sees: tile
// products and the vector work of the softmax side by side. While the weights
// of one group are made, the tiles score a later group and add the values of
// the batch before.
#include "kernels/bf16/amx.h"

#if REGARD_BF16_X86

#include <immintrin.h>

#include "hwy/base.h"

// See bf16_avx512.cc: nothing from the standard library below.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
#include "kernels/bf16/weigh-inl.h"
namespace regard::kernels {
namespace {

// Groups whose weights are multiplied with values in one go: the sums are
// loaded and stored once for all of them. More would not leave the first cache
// room for the sums of wide heads.
constexpr int kBatch = 2;
constexpr int kWeightsOfGroup = 2 * kTileBf16;

// The scores of group g + kScoreLead are made beside the weights of group g.
constexpr int kScoreLead = 2;
static_assert(kScoreLead <= kBatch);  // the fewest groups of a run
constexpr int kScoreRing = kScoreLead + 1;

// The memory of strip.scores: the ring of scores, weights of two batches.
static_assert(kScoreRing * kGroupFloats + 2 * kBatch * kWeightsOfGroup / 2 <=
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

// Stores what a tile of sums holds, if it is wanted, before the tile is used
// again: tile operations run in order, and none should wait for the last
// product. A macro, because the names of tiles must be literals.
#define REGARD_SET_DOWN(tile) \
  if (held_[tile] != nullptr) _tile_stored(tile, held_[tile], 64)

class FullRun {
 public:
  FullRun(const Bf16Head& head, const Bf16Strip& strip, std::int64_t first)
      : head_(head), strip_(strip), first_(first) {}

  template <int kSteps>
  REGARD_INLINE void run(int count) {
    // Beside every tile product of the scores.
    constexpr int kRows = kSteps == 1 ? 4 : kSteps == 2 ? 2 : 1;
    RowSteps none{nullptr, nullptr, nullptr, kStripRows};
    for (int group = 0; group < kScoreLead; ++group) {
      score<kSteps, 0>(group, none);
    }
    for (int group = 0; group < count; ++group) {
      RowSteps rows{scores(group), weights(group), strip_.scale, 0};
      REGARD_FENCE;
      if (group + kScoreLead < count) {
        score<kSteps, kRows>(group + kScoreLead, rows);
      } else {
        set_down();
        REGARD_FENCE;
      }
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
    set_down();
    REGARD_FENCE;
  }

 private:
  float* scores(int group) const {
    return strip_.scores + group % kScoreRing * kGroupFloats;
  }
  Bf16Bits* weights(int group) const {
    return reinterpret_cast<Bf16Bits*>(strip_.scores +
                                       kScoreRing * kGroupFloats) +
           group % (2 * kBatch) * kWeightsOfGroup;
  }

  REGARD_INLINE void hold(float* tile0, float* tile1, float* tile2,
                          float* tile3) {
    held_[0] = tile0;
    held_[1] = tile1;
    held_[2] = tile2;
    held_[3] = tile3;
  }
  REGARD_INLINE void set_down() {
    REGARD_SET_DOWN(0);
    REGARD_SET_DOWN(1);
    REGARD_SET_DOWN(2);
    REGARD_SET_DOWN(3);
    hold(nullptr, nullptr, nullptr, nullptr);
  }

  // Keys and values pass once for each strip: they are loaded past the first
  // cache, which has the strip's own memory to keep.
  template <int kSteps, int kRows>
  REGARD_INLINE void score(int group, RowSteps& rows) {
    const Bf16Bits* const q0 = strip_.queries;
    const Bf16Bits* const q1 = q0 + kSteps * kTileBf16;
    const Bf16Bits* const k0 =
        head_.keys + (first_ + group) * 2 * kSteps * kTileBf16;
    const Bf16Bits* const k1 = k0 + kSteps * kTileBf16;
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const int at = step * kTileBf16;
      _tile_loadd(4, q0 + at, 64);
      _tile_stream_loadd(6, k0 + at, 64);
      _tile_stream_loadd(7, k1 + at, 64);
      _tile_loadd(5, q1 + at, 64);
      if (step == 0) {
        REGARD_SET_DOWN(0);
        _tile_zero(0);
      }
      _tile_dpbf16ps(0, 4, 6);
      rows.next_some<kRows>();
      if (step == 0) {
        REGARD_SET_DOWN(1);
        _tile_zero(1);
      }
      _tile_dpbf16ps(1, 4, 7);
      rows.next_some<kRows>();
      if (step == 0) {
        REGARD_SET_DOWN(2);
        _tile_zero(2);
      }
      _tile_dpbf16ps(2, 5, 6);
      rows.next_some<kRows>();
      if (step == 0) {
        REGARD_SET_DOWN(3);
        _tile_zero(3);
      }
      _tile_dpbf16ps(3, 5, 7);
      rows.next_some<kRows>();
    }
    float* const to = scores(group);
    hold(to, to + kTileFloats, to + 2 * kTileFloats, to + 3 * kTileFloats);
  }

  // Part 0 .. kBatch - 1 of a batch's products: pairs of value tiles part, part
  // + kBatch, ..., and the sums with the last.
  REGARD_INLINE void add_part(int batch, int part, int groups, RowSteps& rows) {
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

  REGARD_INLINE void add_pair(int batch, int tile, int groups, RowSteps& rows) {
    float* const o0 = strip_.out + tile * kTileFloats;
    float* const o1 = o0 + head_.value_tiles * kTileFloats;
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      const Bf16Bits* const v = values(batch, group, tile);
      _tile_loadd(4, w, 64);
      _tile_stream_loadd(6, v, 64);
      _tile_stream_loadd(7, v + kTileBf16, 64);
      _tile_loadd(5, w + kTileBf16, 64);
      if (group == 0) {
        REGARD_SET_DOWN(0);
        _tile_loadd(0, o0, 64);
      }
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      if (group == 0) {
        REGARD_SET_DOWN(1);
        _tile_loadd(1, o0 + kTileFloats, 64);
      }
      _tile_dpbf16ps(1, 4, 7);
      rows.next_if_any();
      if (group == 0) {
        REGARD_SET_DOWN(2);
        _tile_loadd(2, o1, 64);
      }
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
      if (group == 0) {
        REGARD_SET_DOWN(3);
        _tile_loadd(3, o1 + kTileFloats, 64);
      }
      _tile_dpbf16ps(3, 5, 7);
      rows.next_if_any();
    }
    hold(o0, o0 + kTileFloats, o1, o1 + kTileFloats);
  }

  REGARD_INLINE void add_tile(int batch, int tile, int groups, RowSteps& rows) {
    float* const o0 = strip_.out + tile * kTileFloats;
    float* const o1 = o0 + head_.value_tiles * kTileFloats;
    set_down();
    _tile_loadd(0, o0, 64);
    _tile_loadd(2, o1, 64);
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      _tile_stream_loadd(6, values(batch, group, tile), 64);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      _tile_loadd(5, w + kTileBf16, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
    }
    hold(o0, nullptr, o1, nullptr);
  }

  REGARD_INLINE void add_sums(int batch, int groups, RowSteps& rows) {
    float* const sums = strip_.sums;
    set_down();
    _tile_loadd(6, kBf16Ones, 0);  // the same row sixteen times
    _tile_loadd(0, sums, 64);
    _tile_loadd(2, sums + kTileFloats, 64);
    for (int group = 0; group < groups; ++group) {
      const Bf16Bits* const w = weights(batch * kBatch + group);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      rows.next_if_any();
      _tile_loadd(5, w + kTileBf16, 64);
      _tile_dpbf16ps(2, 5, 6);
      rows.next_if_any();
    }
    hold(sums, nullptr, sums + kTileFloats, nullptr);
  }

  const Bf16Head& head_;
  const Bf16Strip& strip_;
  const std::int64_t first_;
  float* held_[4] = {};  // where the sums of tiles 0 .. 3 belong, if anywhere
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
