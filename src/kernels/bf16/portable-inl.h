// SPDX-License-Identifier: Apache-2.0
// bf16 numbers multiplied and added as floats: the path of machines without
// bf16 instructions, and of those where they are slower.
#if defined(REGARD_KERNELS_BF16_PORTABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_BF16_PORTABLE_INL_H_
#undef REGARD_KERNELS_BF16_PORTABLE_INL_H_
#else
#define REGARD_KERNELS_BF16_PORTABLE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bf16/passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// Rows of a register tile; its columns are two vectors.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kDotRows = 4;
#else
inline constexpr int kDotRows = 8;
#endif
inline constexpr int kDotColumns = 2 * kBf16Lanes > 16 ? 32 : 2 * kBf16Lanes;
inline constexpr int kPanelSteps = 8;  // tile steps whose left side is at hand

// The two bf16 elements of each 32-bit word, as floats.
HWY_INLINE void split_pairs(const Bf16Bits* from, Vec& even, Vec& odd) {
  const Tag d;
  const UTag du;
  const auto words = hn::Load(du, reinterpret_cast<const std::uint32_t*>(from));
  even = hn::BitCast(d, hn::ShiftLeft<16>(words));
  odd = hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000u)));
}

// to [kDotRows][stride] <- kDotRows rows of 32 elements, which lie 32 apart.
HWY_INLINE void widen_rows(const Bf16Bits* from, float* to, int stride) {
  for (int r = 0; r < kDotRows; ++r) {
    for (int c = 0; c < 32; c += kBf16Lanes) {
      hn::Store(load_bf16(from + r * 32 + c), Tag(), to + r * stride + c);
    }
  }
}

// sum[row][2] += left[row][pairs] * right[pairs][columns], for 16 pairs. The
// second vector's columns start `next` elements after the first's.
HWY_INLINE void multiply_pairs(const float* left, int stride,
                               const Bf16Bits* right, std::int64_t next,
                               Vec (&sum)[kDotRows][2]) {
  const Tag d;
  for (int p = 0; p < 16; ++p) {
    Vec even[2], odd[2];
    split_pairs(right + p * 32, even[0], odd[0]);
    split_pairs(right + p * 32 + next, even[1], odd[1]);
    HWY_UNROLL(8)
    for (int r = 0; r < kDotRows; ++r) {
      const Vec a = hn::Set(d, left[r * stride + 2 * p]);
      const Vec b = hn::Set(d, left[r * stride + 2 * p + 1]);
      sum[r][0] = hn::MulAdd(a, even[0], sum[r][0]);
      sum[r][1] = hn::MulAdd(a, even[1], sum[r][1]);
      sum[r][0] = hn::MulAdd(b, odd[0], sum[r][0]);
      sum[r][1] = hn::MulAdd(b, odd[1], sum[r][1]);
    }
  }
}

// Where column c of two neighbouring tiles of pairs, or of floats, starts.
HWY_INLINE std::int64_t column_of_pairs(int c, std::int64_t tile_step) {
  return c / 16 * tile_step + c % 16 * 2;
}

HWY_INLINE void load_sums(const float* from, std::int64_t next,
                          Vec (&sum)[kDotRows][2]) {
  const Tag d;
  HWY_UNROLL(8)
  for (int r = 0; r < kDotRows; ++r) {
    sum[r][0] = hn::Load(d, from + r * 16);
    sum[r][1] = hn::Load(d, from + r * 16 + next);
  }
}

HWY_INLINE void store_sums(const Vec (&sum)[kDotRows][2], std::int64_t next,
                           float* to) {
  const Tag d;
  HWY_UNROLL(8)
  for (int r = 0; r < kDotRows; ++r) {
    hn::Store(sum[r][0], d, to + r * 16);
    hn::Store(sum[r][1], d, to + r * 16 + next);
  }
}

void Score(const Bf16Head& head, const Bf16Strip& strip) {
  const int steps = head.key_steps;
  const Tag d;
  HWY_ALIGN float left[kDotRows * kPanelSteps * 32];
  for (int row = 0; row < strip.blocks * 16; row += kDotRows) {
    const Bf16Bits* const q =
        strip.queries + row / 16 * steps * kTileBf16 + row % 16 * 32;
    for (int panel = 0; panel < steps; panel += kPanelSteps) {
      const int end = std::min(steps, panel + kPanelSteps);
      const int stride = (end - panel) * 32;
      for (int step = panel; step < end; ++step) {
        widen_rows(q + step * kTileBf16, left + (step - panel) * 32, stride);
      }
      for (int slot = 0; slot < strip.slots; ++slot) {
        const Bf16Bits* const k =
            head.keys + strip.groups[slot] * 2 * steps * kTileBf16;
        float* const s = strip.scores + slot * kGroupFloats +
                         row / 16 * 2 * kTileFloats + row % 16 * 16;
        for (int c = 0; c < kGroupKeys; c += kDotColumns) {
          constexpr int kNext = kBf16Lanes;  // column of the second vector
          const std::int64_t half = steps * kTileBf16;
          const std::int64_t at = column_of_pairs(c, half);
          const std::int64_t next = column_of_pairs(c + kNext, half) - at;
          float* const to = s + c / 16 * kTileFloats + c % 16;
          const std::int64_t next_to = (c + kNext) / 16 * kTileFloats +
                                       (c + kNext) % 16 -
                                       (c / 16 * kTileFloats + c % 16);
          Vec sum[kDotRows][2];
          if (panel == 0) {
            for (auto& pair : sum) pair[0] = pair[1] = hn::Zero(d);
          } else {
            load_sums(to, next_to, sum);
          }
          for (int step = panel; step < end; ++step) {
            multiply_pairs(left + (step - panel) * 32, stride,
                           k + step * kTileBf16 + at, next, sum);
          }
          store_sums(sum, next_to, to);
        }
      }
    }
  }
}

// Value columns [c, c + two vectors), or one vector twice at the end.
HWY_INLINE void add_columns(const float* weights, const Bf16Bits* values,
                            float* out, int c, int columns) {
  const int second = c + kBf16Lanes < columns ? c + kBf16Lanes : c;
  const std::int64_t at = column_of_pairs(c, kTileBf16);
  const std::int64_t next = column_of_pairs(second, kTileBf16) - at;
  float* const to = out + c / 16 * kTileFloats + c % 16;
  const std::int64_t next_to =
      out + second / 16 * kTileFloats + second % 16 - to;
  Vec sum[kDotRows][2];
  load_sums(to, next_to, sum);
  multiply_pairs(weights, 32, values + at, next, sum);
  store_sums(sum, next_to, to);
}

void AddValues(const Bf16Head& head, const Bf16Strip& strip) {
  HWY_ALIGN float left[kDotRows * 32];
  const int columns = head.value_tiles * 16;
  for (int row = 0; row < strip.blocks * 16; row += kDotRows) {
    float* const out =
        strip.out + row / 16 * head.value_tiles * kTileFloats + row % 16 * 16;
    for (int slot = 0; slot < strip.slots; ++slot) {
      widen_rows(weights_of(strip.scores, slot, row / 16) + row % 16 * 32, left,
                 32);
      const Bf16Bits* const v =
          head.values + strip.groups[slot] * head.value_tiles * kTileBf16;
      for (int c = 0; c < columns; c += 2 * kBf16Lanes) {
        add_columns(left, v, out, c, columns);
      }
    }
  }
}

void Multiply(const Bf16Product& p) {
  const Tag d;
  HWY_ALIGN float left[kDotRows * kPanelSteps * 32];
  for (int row = 0; row < p.rows; row += kDotRows) {
    const Bf16Bits* const from = p.left + row / kPanelRows * p.left_stride +
                                 row / 16 % 2 * kTileBf16 + row % 16 * 32;
    float* const sums = p.sums + row / 16 * 2 * kTileFloats + row % 16 * 16;
    for (int panel = 0; panel < p.steps; panel += kPanelSteps) {
      const int end = std::min(p.steps, panel + kPanelSteps);
      const int stride = (end - panel) * 32;
      for (int step = panel; step < end; ++step) {
        widen_rows(from + step * 2 * kTileBf16, left + (step - panel) * 32,
                   stride);
      }
      for (int c = 0; c < 32; c += kDotColumns) {
        const std::int64_t at = column_of_pairs(c, kTileBf16);
        const std::int64_t next =
            column_of_pairs(c + kBf16Lanes, kTileBf16) - at;
        float* const to = sums + c / 16 * kTileFloats + c % 16;
        const std::int64_t next_to = sums +
                                     (c + kBf16Lanes) / 16 * kTileFloats +
                                     (c + kBf16Lanes) % 16 - to;
        Vec sum[kDotRows][2];
        if (panel == 0 && p.from_zero) {
          for (auto& pair : sum) pair[0] = pair[1] = hn::Zero(d);
        } else {
          load_sums(to, next_to, sum);
        }
        for (int step = panel; step < end; ++step) {
          multiply_pairs(left + (step - panel) * 32, stride,
                         p.right + step * p.right_stride + at, next, sum);
        }
        store_sums(sum, next_to, to);
      }
    }
  }
}

// Slot after slot, each on its own, so that the slots of a call do not matter.
void AddSums(const Bf16Strip& strip) {
  const Tag d;
  for (int row = 0; row < strip.blocks * 16; ++row) {
    float* const to = strip.sums + row * 16;
    for (int slot = 0; slot < strip.slots; ++slot) {
      const Bf16Bits* const w =
          weights_of(strip.scores, slot, row / 16) + row % 16 * 32;
      Vec sum = hn::Zero(d);
      for (int c = 0; c < 32; c += kBf16Lanes) {
        sum = hn::Add(sum, load_bf16(w + c));
      }
      to[0] += hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

// 2^(y - m), rounded in its upper half when the lower is cut off. Zero for
// -inf; the m of a row is an integer.
HWY_INLINE Vec power_below(Vec y, Vec m) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const Vec n = hn::Floor(y);
  const Vec f = hn::Sub(y, n);
  Vec p = hn::Set(d, kExp2Poly[3]);
  for (int i = 2; i >= 0; --i) p = hn::MulAdd(p, f, hn::Set(d, kExp2Poly[i]));
  const Vec e =
      hn::Min(hn::Max(hn::Sub(n, m), hn::Set(d, -127.0f)), hn::Set(d, 127.0f));
  const auto exponent = hn::ConvertTo(di, hn::Add(e, hn::Set(d, 127.0f)));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
  return hn::IfThenElse(hn::Eq(y, hn::Set(d, -kInfinity)), hn::Zero(d),
                        hn::Mul(p, power));
}

// The weights of 16 rows of a group, from `y(row, column)`, to where the scores
// of its first half are. Every row's scores are read before it is written.
template <typename Function>
HWY_INLINE void weigh_tile(float* scores, const Function& y) {
  const Tag d;
  const UTag du;
  const auto upper = hn::Set(du, 0xffff0000u);
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 16; c += kBf16Lanes) {
      float* const low_at = scores + r * 16 + c;
      const Vec low = y(r, c, hn::Load(d, low_at));
      const Vec high = y(r, c + 16, hn::Load(d, low_at + kTileFloats));
      const auto pair = hn::Or(hn::ShiftRight<16>(hn::BitCast(du, low)),
                               hn::And(hn::BitCast(du, high), upper));
      hn::Store(hn::BitCast(d, pair), d, low_at);
    }
  }
}

void Weigh(const Bf16Head&, const Bf16Strip& strip) {
  const Tag d;
  for (int slot = 0; slot < strip.slots; ++slot) {
    for (int block = 0; block < strip.blocks; ++block) {
      float* const s =
          strip.scores + slot * kGroupFloats + block * 2 * kTileFloats;
      const Shown shown = strip.shown[slot][block];
      if (shown == Shown::kNone) {
        std::memset(s, 0, sizeof(float) * kTileFloats);
        continue;
      }
      const float* const scale = strip.scale + block * 16;
      const std::uint32_t* const visible =
          strip.visible + slot * kStripRows + block * 16;
      weigh_tile(s, [&](int r, int c, Vec score) HWY_ATTR {
        const Vec w =
            power_below(hn::Mul(score, hn::Set(d, scale[r])), hn::Zero(d));
        return shown == Shown::kAll
                   ? w
                   : hn::IfThenElseZero(lanes_of(visible[r], c), w);
      });
    }
  }
}

void WeighBelow(const Bf16Strip& strip) {
  const Tag d;
  for (int slot = 0; slot < strip.slots; ++slot) {
    for (int block = 0; block < strip.blocks; ++block) {
      float* const s =
          strip.scores + slot * kGroupFloats + block * 2 * kTileFloats;
      if (strip.shown[slot][block] == Shown::kNone) {
        std::memset(s, 0, sizeof(float) * kTileFloats);
        continue;
      }
      const float* const max = strip.max + block * 16;
      weigh_tile(s, [&](int r, int, Vec score) HWY_ATTR {
        return power_below(score, hn::Set(d, max[r]));
      });
    }
  }
}

void PackKeys(const Bf16Bits* const* rows, int steps, Bf16Bits* to,
              std::int64_t stride, float* norms) {
  for (int i = 0; i < 16; ++i) {
    for (int pair = 0; pair < steps * 16; ++pair) {
      std::memcpy(to + pair / 16 * stride + pair % 16 * 32 + i * 2,
                  rows[i] + pair * 2, 2 * sizeof(Bf16Bits));
    }
    norms[i] = Norm(rows[i], steps * 32);
  }
}

bool PackValues(const Bf16Bits* const* rows, int tiles, Bf16Bits* to) {
  bool non_finite = false;  // an exponent of all ones: infinite or NaN
  for (int p = 0; p < 16; ++p) {
    for (int c = 0; c < tiles * 16; ++c) {
      Bf16Bits* const at = to + c / 16 * kTileBf16 + p * 32 + c % 16 * 2;
      at[0] = rows[p][c];
      at[1] = rows[p + 16][c];
      non_finite |= (at[0] & 0x7f80) == 0x7f80 || (at[1] & 0x7f80) == 0x7f80;
    }
  }
  return !non_finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
