// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/amx.h"

#if REGARD_BF16_X86

#include <immintrin.h>

#include "hwy/base.h"

// See bf16_avx512.cc: nothing from the standard library below.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace regard::kernels {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void begin() noexcept {
  const TileConfig config;
  REGARD_FENCE;
  _tile_loadconfig(&config);
}

void end() noexcept { _tile_release(); }

// Tiles 0 .. 3 are the sums of two blocks of rows and two halves of a group;
// 4 and 5 hold rows, 6 and 7 keys. The sums of one group are stored while the
// products of the next begin.
void score_both(const Bf16Head& head, const Bf16Strip& strip) {
  const int steps = head.key_steps;
  const Bf16Bits* const q0 = strip.queries;
  const Bf16Bits* const q1 = q0 + steps * kTileBf16;
  float* before = nullptr;
  for (int slot = 0; slot < strip.slots; ++slot) {
    const Bf16Bits* const k0 =
        head.keys + strip.groups[slot] * 2 * steps * kTileBf16;
    const Bf16Bits* const k1 = k0 + steps * kTileBf16;
    _tile_loadd(4, q0, 64);
    _tile_stream_loadd(6, k0, 64);
    _tile_stream_loadd(7, k1, 64);
    _tile_loadd(5, q1, 64);
    if (before != nullptr) _tile_stored(0, before, 64);
    _tile_zero(0);
    _tile_dpbf16ps(0, 4, 6);
    if (before != nullptr) _tile_stored(1, before + kTileFloats, 64);
    _tile_zero(1);
    _tile_dpbf16ps(1, 4, 7);
    if (before != nullptr) _tile_stored(2, before + 2 * kTileFloats, 64);
    _tile_zero(2);
    _tile_dpbf16ps(2, 5, 6);
    if (before != nullptr) _tile_stored(3, before + 3 * kTileFloats, 64);
    _tile_zero(3);
    _tile_dpbf16ps(3, 5, 7);
    for (int step = 1; step < steps; ++step) {
      const int at = step * kTileBf16;
      _tile_loadd(4, q0 + at, 64);
      _tile_stream_loadd(6, k0 + at, 64);
      _tile_stream_loadd(7, k1 + at, 64);
      _tile_loadd(5, q1 + at, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    before = strip.scores + slot * kGroupFloats;
  }
  _tile_stored(0, before, 64);
  _tile_stored(1, before + kTileFloats, 64);
  _tile_stored(2, before + 2 * kTileFloats, 64);
  _tile_stored(3, before + 3 * kTileFloats, 64);
}

// d_k of at most 64: both blocks of rows stay in tiles 4 .. 7, and only keys
// are loaded, through 2 and 3. Sums are stored while the next products run.
void score_short(const Bf16Head& head, const Bf16Strip& strip) {
  _tile_loadd(4, strip.queries, 64);
  _tile_loadd(5, strip.queries + kTileBf16, 64);
  _tile_loadd(6, strip.queries + 2 * kTileBf16, 64);
  _tile_loadd(7, strip.queries + 3 * kTileBf16, 64);
  float* before = nullptr;
  for (int slot = 0; slot < strip.slots; ++slot) {
    const Bf16Bits* const k = head.keys + strip.groups[slot] * 4 * kTileBf16;
    _tile_loadd(2, k, 64);
    if (before != nullptr) _tile_stored(0, before + kTileFloats, 64);
    _tile_zero(0);
    _tile_dpbf16ps(0, 4, 2);
    if (before != nullptr) _tile_stored(1, before + 3 * kTileFloats, 64);
    _tile_zero(1);
    _tile_dpbf16ps(1, 6, 2);
    _tile_loadd(3, k + kTileBf16, 64);
    _tile_dpbf16ps(0, 5, 3);
    _tile_dpbf16ps(1, 7, 3);
    before = strip.scores + slot * kGroupFloats;
    _tile_loadd(2, k + 2 * kTileBf16, 64);
    _tile_stored(0, before, 64);
    _tile_zero(0);
    _tile_dpbf16ps(0, 4, 2);
    _tile_stored(1, before + 2 * kTileFloats, 64);
    _tile_zero(1);
    _tile_dpbf16ps(1, 6, 2);
    _tile_loadd(3, k + 3 * kTileBf16, 64);
    _tile_dpbf16ps(0, 5, 3);
    _tile_dpbf16ps(1, 7, 3);
  }
  _tile_stored(0, before + kTileFloats, 64);
  _tile_stored(1, before + 3 * kTileFloats, 64);
}

void score_one(const Bf16Head& head, const Bf16Strip& strip) {
  const int steps = head.key_steps;
  for (int slot = 0; slot < strip.slots; ++slot) {
    const Bf16Bits* const k0 =
        head.keys + strip.groups[slot] * 2 * steps * kTileBf16;
    const Bf16Bits* const k1 = k0 + steps * kTileBf16;
    _tile_zero(0);
    _tile_zero(1);
    for (int step = 0; step < steps; ++step) {
      const int at = step * kTileBf16;
      _tile_loadd(4, strip.queries + at, 64);
      _tile_loadd(6, k0 + at, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, k1 + at, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    float* const to = strip.scores + slot * kGroupFloats;
    _tile_stored(0, to, 64);
    _tile_stored(1, to + kTileFloats, 64);
  }
}

void score(const Bf16Head& head, const Bf16Strip& strip) noexcept {
  REGARD_FENCE;
  if (strip.blocks == 2 && head.key_steps == 2) {
    score_short(head, strip);
  } else if (strip.blocks == 2) {
    score_both(head, strip);
  } else {
    score_one(head, strip);
  }
  REGARD_FENCE;
}

// The address of a strip's weights as the tile loads want it.
inline const float* weights_at(const Bf16Strip& strip, int slot) {
  return strip.scores + slot * kGroupFloats;
}

inline const Bf16Bits* values_at(const Bf16Head& head, const Bf16Strip& strip,
                                 int slot, int tile) {
  return head.values +
         (strip.groups[slot] * head.value_tiles + tile) * kTileBf16;
}

// Two blocks of rows, two tiles of values.
void add_two_by_two(const Bf16Head& head, const Bf16Strip& strip, int tile) {
  float* const o0 = strip.out + tile * kTileFloats;
  float* const o1 = o0 + head.value_tiles * kTileFloats;
  _tile_loadd(0, o0, 64);
  _tile_loadd(1, o0 + kTileFloats, 64);
  _tile_loadd(2, o1, 64);
  _tile_loadd(3, o1 + kTileFloats, 64);
  for (int slot = 0; slot < strip.slots; ++slot) {
    const float* const w = weights_at(strip, slot);
    const Bf16Bits* const v = values_at(head, strip, slot, tile);
    _tile_loadd(4, w, 64);
    _tile_stream_loadd(6, v, 64);
    _tile_stream_loadd(7, v + kTileBf16, 64);
    _tile_loadd(5, w + 2 * kTileFloats, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, o0, 64);
  _tile_stored(1, o0 + kTileFloats, 64);
  _tile_stored(2, o1, 64);
  _tile_stored(3, o1 + kTileFloats, 64);
}

// Two blocks of rows, one tile of values.
void add_two_by_one(const Bf16Head& head, const Bf16Strip& strip, int tile) {
  float* const o0 = strip.out + tile * kTileFloats;
  float* const o1 = o0 + head.value_tiles * kTileFloats;
  _tile_loadd(0, o0, 64);
  _tile_loadd(2, o1, 64);
  for (int slot = 0; slot < strip.slots; ++slot) {
    const float* const w = weights_at(strip, slot);
    _tile_loadd(6, values_at(head, strip, slot, tile), 64);
    _tile_loadd(4, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w + 2 * kTileFloats, 64);
    _tile_dpbf16ps(2, 5, 6);
  }
  _tile_stored(0, o0, 64);
  _tile_stored(2, o1, 64);
}

void add_one_by_one(const Bf16Head& head, const Bf16Strip& strip, int tile) {
  float* const o = strip.out + tile * kTileFloats;
  _tile_loadd(0, o, 64);
  for (int slot = 0; slot < strip.slots; ++slot) {
    _tile_loadd(4, weights_at(strip, slot), 64);
    _tile_loadd(6, values_at(head, strip, slot, tile), 64);
    _tile_dpbf16ps(0, 4, 6);
  }
  _tile_stored(0, o, 64);
}

void add_sums(const Bf16Strip& strip) noexcept {
  REGARD_FENCE;
  _tile_loadd(6, kBf16Ones, 0);  // the same row sixteen times
  _tile_loadd(0, strip.sums, 64);
  if (strip.blocks == 2) {
    _tile_loadd(2, strip.sums + kTileFloats, 64);
    for (int slot = 0; slot < strip.slots; ++slot) {
      const float* const w = weights_at(strip, slot);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, w + 2 * kTileFloats, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(2, strip.sums + kTileFloats, 64);
  } else {
    for (int slot = 0; slot < strip.slots; ++slot) {
      _tile_loadd(4, weights_at(strip, slot), 64);
      _tile_dpbf16ps(0, 4, 6);
    }
  }
  _tile_stored(0, strip.sums, 64);
  REGARD_FENCE;
}

void add_values(const Bf16Head& head, const Bf16Strip& strip) noexcept {
  REGARD_FENCE;
  const int last = head.value_tiles;
  int tile = 0;
  if (strip.blocks == 2) {
    for (; tile + 2 <= last; tile += 2) add_two_by_two(head, strip, tile);
    if (tile < last) add_two_by_one(head, strip, tile);
  } else {
    for (; tile < last; ++tile) add_one_by_one(head, strip, tile);
  }
  REGARD_FENCE;
}

// Stores a sum of the panel before, if any, and begins the one of `sums`. A
// macro, because the names of tiles must be literals.
#define REGARD_START_SUM(tile, is_later)                               \
  do {                                                                 \
    if (is_later) _tile_stored(tile, before + (tile)*kTileFloats, 64); \
    if (p.from_zero) {                                                 \
      _tile_zero(tile);                                                \
    } else {                                                           \
      _tile_stream_loadd(tile, sums + (tile)*kTileFloats, 64);         \
    }                                                                  \
  } while (false)

// What is ahead of a product, brought into the second cache: an even share at
// each of `times`.
class Fetcher {
 public:
  Fetcher(const Bf16Bits* first, const Bf16Bits* last, int times)
      : at_(first),
        last_(last),
        share_(static_cast<int>(((last - first) / kLine + times - 1) / times)) {
  }

  inline void fetch_some() {
    for (int i = 0; i < share_ && at_ < last_; ++i, at_ += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T1);
    }
  }

 private:
  static constexpr int kLine = 64 / sizeof(Bf16Bits);
  const Bf16Bits* at_;
  const Bf16Bits* const last_;
  const int share_;
};

// The rows of a Bf16Carry, an even share of them at each of `times`.
class Carrier {
 public:
  Carrier(const Bf16Carry& carry, int times)
      : carry_(carry),
        row_(carry.first),
        share_((carry.last - carry.first + times - 1) / times) {}

  inline void carry_some() {
    const int last = row_ + share_ < carry_.last ? row_ + share_ : carry_.last;
    for (; row_ < last; ++row_) {
      const float* const from =
          carry_.sums + row_ / 16 * 2 * kTileFloats + row_ % 16 * 16;
      const __m512 a = _mm512_load_ps(from);
      const __m512 b = _mm512_load_ps(from + kTileFloats);
      float* const to = carry_.out + row_ * carry_.stride;
      if (carry_.past_caches) {
        _mm512_stream_ps(to, a);
        _mm512_stream_ps(to + 16, b);
      } else {
        _mm512_storeu_ps(to, a);
        _mm512_storeu_ps(to + 16, b);
      }
    }
  }

 private:
  const Bf16Carry carry_;
  int row_;
  const int share_;
};

// Panels [first, last). Tile operations run in order, so the sums of one panel
// are stored between the first products of the next: none waits for the last.
// What passes once is loaded past the first cache, which belongs to the right
// side.
void multiply_panels(const Bf16Product& p, int first, int last) {
  Fetcher fetcher(p.ahead, p.ahead_end, (last - first) * p.steps);
  Carrier carrier(p.carry, (last - first) * p.steps);
  float* before = nullptr;
  for (int panel = first; panel < last; ++panel) {
    const Bf16Bits* left = p.left + panel * p.left_stride;
    const Bf16Bits* right = p.right;
    float* const sums = p.sums + panel * kProductFloats;
    _tile_stream_loadd(4, left, 64);
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + kTileBf16, 64);
    _tile_stream_loadd(5, left + kTileBf16, 64);
    REGARD_START_SUM(0, panel > first);
    _tile_dpbf16ps(0, 4, 6);
    REGARD_START_SUM(1, panel > first);
    _tile_dpbf16ps(1, 4, 7);
    REGARD_START_SUM(2, panel > first);
    _tile_dpbf16ps(2, 5, 6);
    REGARD_START_SUM(3, panel > first);
    _tile_dpbf16ps(3, 5, 7);
    fetcher.fetch_some();
    carrier.carry_some();
    for (int step = 1; step < p.steps; ++step) {
      left += 2 * kTileBf16;
      right += p.right_stride;
      _tile_stream_loadd(4, left, 64);
      _tile_loadd(6, right, 64);
      _tile_loadd(7, right + kTileBf16, 64);
      _tile_stream_loadd(5, left + kTileBf16, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      fetcher.fetch_some();
      carrier.carry_some();
    }
    before = sums;
  }
  _tile_stored(0, before, 64);
  _tile_stored(1, before + kTileFloats, 64);
  _tile_stored(2, before + 2 * kTileFloats, 64);
  _tile_stored(3, before + 3 * kTileFloats, 64);
}

// The last panel, where it has one block of rows.
void multiply_half(const Bf16Product& p, int panel) {
  const Bf16Bits* left = p.left + panel * p.left_stride;
  const Bf16Bits* right = p.right;
  float* const sums = p.sums + panel * kProductFloats;
  const float* const before = nullptr;
  REGARD_START_SUM(0, false);
  REGARD_START_SUM(1, false);
  for (int step = 0; step < p.steps; ++step) {
    _tile_loadd(4, left, 64);
    _tile_loadd(6, right, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + kTileBf16, 64);
    _tile_dpbf16ps(1, 4, 7);
    left += 2 * kTileBf16;
    right += p.right_stride;
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileFloats, 64);
}

void multiply(const Bf16Product& product) noexcept {
  REGARD_FENCE;
  const int whole = product.rows / kPanelRows;
  const int rest = product.rows - whole * kPanelRows;
  if (whole > 0) multiply_panels(product, 0, whole);
  if (rest > 16) {
    Bf16Product last = product;
    last.carry = {};  // done, with the whole panels
    multiply_panels(last, whole, whole + 1);
  } else if (rest > 0) {
    multiply_half(product, whole);
  }
  REGARD_FENCE;
}

}  // namespace
}  // namespace regard::kernels
HWY_POP_ATTRIBUTES

namespace regard::kernels {

const Bf16Functions* bf16_amx_functions() {
  static constexpr Bf16Functions kFunctions{
      .begin = begin,
      .end = end,
      .pack_keys = avx512::pack_keys,
      .pack_values = avx512::pack_values,
      .score = score,
      .weigh = avx512::weigh,
      .weigh_below = avx512::weigh_below,
      .add_sums = add_sums,
      .add_values = add_values,
      .multiply = multiply,
      .carries = true,
      .add_full = amx_add_full,
  };
  return &kFunctions;
}

}  // namespace regard::kernels

#else

namespace regard::kernels {

const Bf16Functions* bf16_amx_functions() { return nullptr; }

}  // namespace regard::kernels

#endif  // REGARD_BF16_X86
