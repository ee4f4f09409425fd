// SPDX-License-Identifier: Apache-2.0
#if defined(REGARD_KERNELS_BF16_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_BF16_PASSES_INL_H_
#undef REGARD_KERNELS_BF16_PASSES_INL_H_
#else
#define REGARD_KERNELS_BF16_PASSES_INL_H_
#endif

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/bf16/passes.h"
#include "kernels/philox-inl.h"
#include "kernels/score_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

inline constexpr int kBf16Lanes = static_cast<int>(hn::MaxLanes(Tag()));
static_assert(16 % kBf16Lanes == 0);
using HalfTag = hn::Rebind<std::uint16_t, Tag>;

// ---- bf16 and other storage ----

HWY_INLINE Vec load_bf16(const Bf16Bits* from) {
  const auto wide = hn::PromoteTo(UTag(), hn::LoadU(HalfTag(), from));
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(wide));
}

// To nearest, ties to even; NaN stays NaN. The upper half of each lane is the
// bf16 number.
HWY_INLINE UVec round_to_bf16(Vec value) {
  const UTag du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::IfThenElse(nan, quiet, rounded);
}

HWY_INLINE void store_bf16(Vec value, Bf16Bits* to) {
  const hn::RebindToSigned<Tag> di;
  const auto result = hn::ShiftRight<16>(round_to_bf16(value));
  hn::StoreU(hn::DemoteTo(HalfTag(), hn::BitCast(di, result)), HalfTag(), to);
}

HWY_INLINE Vec load_stored(const void* from, Storage storage, std::int64_t at) {
  const Tag d;
  switch (storage) {
    case Storage::kBFloat16:
      return load_bf16(static_cast<const Bf16Bits*>(from) + at);
    case Storage::kFloat16:
      return hn::PromoteTo(
          d, hn::LoadU(hn::Rebind<hwy::float16_t, Tag>(),
                       static_cast<const hwy::float16_t*>(from) + at));
    case Storage::kFloat32:
      break;
  }
  return hn::LoadU(d, static_cast<const float*>(from) + at);
}

HWY_INLINE void store_stored(Vec value, Storage storage, void* to,
                             std::int64_t at) {
  const Tag d;
  const hn::Rebind<hwy::float16_t, Tag> d16;
  switch (storage) {
    case Storage::kBFloat16:
      return store_bf16(value, static_cast<Bf16Bits*>(to) + at);
    case Storage::kFloat16:
      return hn::StoreU(hn::DemoteTo(d16, value), d16,
                        static_cast<hwy::float16_t*>(to) + at);
    case Storage::kFloat32:
      return hn::StoreU(value, d, static_cast<float*>(to) + at);
  }
}

HWY_INLINE void round_row(const void* from, Storage storage, std::int64_t n,
                          std::int64_t padded, Bf16Bits* to) {
  if (storage == Storage::kBFloat16) {
    std::memcpy(to, from, sizeof(Bf16Bits) * n);
  } else {
    std::int64_t i = 0;
    for (; i + kBf16Lanes <= n; i += kBf16Lanes) {
      store_bf16(load_stored(from, storage, i), to + i);
    }
    if (i < n) {
      HWY_ALIGN float in[kBf16Lanes] = {};
      Bf16Bits out[kBf16Lanes];
      const std::int64_t size = bytes_of(storage);
      std::memcpy(in, static_cast<const char*>(from) + i * size,
                  (n - i) * size);
      store_bf16(load_stored(in, storage, 0), out);
      std::memcpy(to + i, out, sizeof(Bf16Bits) * (n - i));
    }
  }
  std::memset(to + n, 0, sizeof(Bf16Bits) * (padded - n));
}

void RoundRow(const void* from, Storage storage, std::int64_t n,
              std::int64_t padded, Bf16Bits* to) {
  round_row(from, storage, n, padded, to);
}

float Norm(const Bf16Bits* row, std::int64_t n) {
  const Tag d;
  Vec sum = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kBf16Lanes) {
    const Vec x = load_bf16(row + i);
    sum = hn::MulAdd(x, x, sum);
  }
  return std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// One row to where its tiles start. Returns its length.
HWY_INLINE float pack_query(const void* row, const AttentionKeys& keys,
                            Bf16Bits* tile) {
  const Tag d;
  const std::int64_t size = bytes_of(keys.storage);
  Vec squares = hn::Zero(d);
  for (std::int64_t i = 0; i < keys.d_k; i += 32, tile += kTileBf16) {
    if (keys.storage == Storage::kBFloat16 && i + 32 <= keys.d_k) {
      const auto* from = static_cast<const Bf16Bits*>(row) + i;
      for (int c = 0; c < 32; c += kBf16Lanes) {
        const auto bits = hn::LoadU(HalfTag(), from + c);
        hn::StoreU(bits, HalfTag(), tile + c);
        const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(UTag(), bits));
        const Vec x = hn::BitCast(d, wide);
        squares = hn::MulAdd(x, x, squares);
      }
      continue;
    }
    round_row(static_cast<const char*>(row) + i * size, keys.storage,
              HWY_MIN(32, keys.d_k - i), 32, tile);
    for (int c = 0; c < 32; c += kBf16Lanes) {
      const Vec x = load_bf16(tile + c);
      squares = hn::MulAdd(x, x, squares);
    }
  }
  return std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
}

// The same row times a power of two, where it is already.
HWY_INLINE float scale_query(const void* row, const AttentionKeys& keys,
                             float power, Bf16Bits* tile) {
  const Tag d;
  const std::int64_t size = bytes_of(keys.storage);
  Vec squares = hn::Zero(d);
  for (std::int64_t i = 0; i < keys.d_k; i += 32, tile += kTileBf16) {
    bf16_round_scaled(static_cast<const char*>(row) + i * size, keys.storage,
                      power, HWY_MIN(32, keys.d_k - i), tile);
    for (int c = 0; c < 32; c += kBf16Lanes) {
      const Vec x = load_bf16(tile + c);
      squares = hn::MulAdd(x, x, squares);
    }
  }
  return std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
}

void PackQueries(const void* const* rows, int blocks, const AttentionKeys& keys,
                 Bf16Bits* to, const Bf16Lengths& lengths) {
  const std::int64_t steps = (keys.d_k + 31) / 32;
  for (int r = 0; r < blocks * 16; ++r) {
    Bf16Bits* const tile = to + r / 16 * steps * kTileBf16 + r % 16 * 32;
    float norm = pack_query(rows[r], keys, tile);
    if (lengths.powers != nullptr) {
      const float power =
          bf16_is_ordinary(norm)
              ? 1.0f
              : bf16_unit_power(rows[r], keys.storage, keys.d_k);
      if (power != 1) norm = scale_query(rows[r], keys, power, tile);
      lengths.powers[r] = power;
    }
    lengths.norms[r] = norm;
  }
}

bool RowIsFinite(const float* row, int tiles) {
  const Tag d;
  Vec probe = hn::Zero(d);
  for (int tile = 0; tile < tiles; ++tile) {
    for (int c = 0; c < 16; c += kBf16Lanes) {
      // Infinity times zero is NaN, and NaN stays.
      probe = hn::MulAdd(hn::Load(d, row + tile * kTileFloats + c), hn::Zero(d),
                         probe);
    }
  }
  return hn::AllFalse(d, hn::IsNaN(probe));
}

void ScaleRow(float* row, int tiles, float factor) {
  const Tag d;
  const Vec f = hn::Set(d, factor);
  for (int tile = 0; tile < tiles; ++tile) {
    for (int c = 0; c < 16; c += kBf16Lanes) {
      float* const at = row + tile * kTileFloats + c;
      hn::Store(hn::Mul(hn::Load(d, at), f), d, at);
    }
  }
}

// out[0, n) <- what `at` makes of the columns of a row of tiles.
template <typename Function>
HWY_INLINE void write_columns(const Function& at, std::int64_t n,
                              Storage storage, void* out) {
  std::int64_t c = 0;
  for (; c + kBf16Lanes <= n; c += kBf16Lanes) {
    store_stored(at(c), storage, out, c);
  }
  if (c < n) {
    HWY_ALIGN float last[kBf16Lanes];
    store_stored(at(c), storage, last, 0);
    const std::int64_t size = bytes_of(storage);
    std::memcpy(static_cast<char*>(out) + c * size, last, (n - c) * size);
  }
}

void WriteRow(const float* row, float factor, std::int64_t n, Storage storage,
              void* out) {
  const Tag d;
  const Vec f = hn::Set(d, factor);
  write_columns(
      [&](std::int64_t c) HWY_ATTR {
        return hn::Mul(hn::Load(d, row + c / 16 * kTileFloats + c % 16), f);
      },
      n, storage, out);
}

void WriteSums(const Bf16Sums& sums) {
  const Tag d;
  for (int r = 0; r < sums.rows; ++r) {
    const float* const row = sums.sums + r / 16 * 2 * kTileFloats + r % 16 * 16;
    void* const to =
        static_cast<char*>(sums.out) + r * sums.stride * bytes_of(sums.storage);
    write_columns(
        [&](std::int64_t c) HWY_ATTR {
          return hn::Load(d, row + c / 16 * kTileFloats + c % 16);
        },
        sums.columns, sums.storage, to);
  }
}

void PackPanel(const void* const* rows, int count, Storage storage,
               std::int64_t k, Bf16Bits* to) {
  // Few steps of all rows at a time: a row of a panel fills lines 2 KB apart,
  // which share few sets of the first cache.
  constexpr std::int64_t kChunk = 8 * 32;
  const std::int64_t size = bytes_of(storage);
  for (std::int64_t first = 0; first < k; first += kChunk) {
    const std::int64_t last = HWY_MIN(k, first + kChunk);
    for (int r = 0; r < (count + 15) / 16 * 16; ++r) {
      Bf16Bits* at =
          to + r / 16 * kTileBf16 + r % 16 * 32 + first / 32 * 2 * kTileBf16;
      for (std::int64_t i = first; i < last; i += 32, at += 2 * kTileBf16) {
        if (r >= count) {
          std::memset(at, 0, sizeof(Bf16Bits) * 32);
          continue;
        }
        const void* const from = static_cast<const char*>(rows[r]) + i * size;
        if (k - i < 32) {
          round_row(from, storage, k - i, 32, at);
        } else if (storage == Storage::kBFloat16) {
          std::memcpy(at, from, sizeof(Bf16Bits) * 32);
        } else {
          for (int c = 0; c < 32; c += kBf16Lanes) {
            store_bf16(load_stored(from, storage, c), at + c);
          }
        }
      }
    }
  }
}

void PackPairs(const float* rows, std::int64_t stride, int count, int columns,
               Bf16Bits* to) {
  const Tag d;
  const UTag du;
  HWY_ALIGN float zeros[32] = {};
  HWY_ALIGN float ends[2][32] = {};
  const auto row_at = [&](int row, float* end) {
    if (row >= count) return static_cast<const float*>(zeros);
    const float* const at = rows + row * stride;
    if (columns == 32) return at;
    std::memcpy(end, at, sizeof(float) * columns);
    return static_cast<const float*>(end);
  };
  for (int p = 0; p < 16; ++p, to += 32) {
    const float* const even = row_at(2 * p, ends[0]);
    const float* const odd = row_at(2 * p + 1, ends[1]);
    for (int c = 0; c < 32; c += kBf16Lanes) {
      const auto low =
          hn::ShiftRight<16>(round_to_bf16(hn::LoadU(d, even + c)));
      const auto high = hn::And(round_to_bf16(hn::LoadU(d, odd + c)),
                                hn::Set(du, 0xffff0000u));
      hn::StoreU(hn::Or(low, high), du,
                 reinterpret_cast<std::uint32_t*>(to + c / 16 * kTileBf16 +
                                                  c % 16 * 2));
    }
  }
}

// ---- scores ----

// Lanes c .. c + kBf16Lanes of a group's 32 bits.
HWY_INLINE hn::Mask<Tag> lanes_of(std::uint32_t visible, int c) {
  std::uint8_t bytes[8] = {};
  const std::uint32_t bits = visible >> c;
  std::memcpy(bytes, &bits, sizeof(bits));
  return hn::LoadMaskBits(Tag(), bytes);
}

// The 32 values that start at `from`, of which only `n` exist.
HWY_INLINE const float* whole_group(const float* from, std::int64_t n,
                                    float (&copy)[kGroupKeys]) {
  if (n >= kGroupKeys) return from;
  std::memset(copy, 0, sizeof(copy));
  std::memcpy(copy, from, sizeof(float) * n);
  return copy;
}

// The score in log2 of a product with the keys from `key` on.
HWY_INLINE Vec scale_product(const Bf16Modifier& modifier, Vec product,
                             float scale, std::int64_t key) {
  const Tag d;
  const Vec y = hn::Mul(product, hn::Set(d, scale));
  if (modifier.key_norms == nullptr) return y;
  const Vec norm = hn::Load(d, modifier.key_norms + key);
  // A zero vector is similar to nothing.
  return hn::IfThenElse(hn::Eq(norm, hn::Zero(d)), hn::Zero(d),
                        hn::Div(y, norm));
}

class ScoreFinisher {
 public:
  HWY_INLINE ScoreFinisher(const Bf16Modifier& modifier, const Bf16Strip& strip)
      : modifier_(modifier),
        block_(*modifier.block),
        strip_(strip),
        score_(modifier.block->score) {}

  // Returns the row's largest score.
  HWY_INLINE float finish_row(int r) const {
    const Tag d;
    const AttentionRow& row = *modifier_.rows[r];
    Vec max = hn::Set(d, -kInfinity);
    for (int slot = 0; slot < strip_.slots; ++slot) {
      const Shown shown = strip_.shown[slot][r / 16];
      if (shown == Shown::kNone) continue;
      const std::uint32_t visible =
          shown == Shown::kAll ? ~0u : strip_.visible[slot * kStripRows + r];
      float* const s = strip_.scores + slot * kGroupFloats +
                       r / 16 * 2 * kTileFloats + r % 16 * 16;
      const std::int64_t key = strip_.groups[slot] * kGroupKeys;
      HWY_ALIGN float copy[kGroupKeys];
      const float* bias = nullptr;
      if (block_.score.has_bias && block_.score.bias_key_stride == 1) {
        bias = whole_group(row.bias + key, modifier_.kv_len - key, copy);
      }
      for (int c = 0; c < kGroupKeys; c += kBf16Lanes) {
        float* const at = s + c / 16 * kTileFloats + c % 16;
        Vec y =
            scale_product(modifier_, hn::Load(d, at), strip_.scale[r], key + c);
        y = modify(y, row, bias == nullptr ? nullptr : bias + c, key, c);
        y = hide_unless(lanes_of(visible, c), y);
        hn::Store(y, d, at);
        max = hn::IfThenElse(hn::Gt(y, max), y, max);  // not a NaN
      }
    }
    return hn::GetLane(hn::MaxOfLanes(d, max));
  }

 private:
  HWY_INLINE Vec modify(Vec y, const AttentionRow& row, const float* bias,
                        std::int64_t key, int c) const {
    const Tag d;
    const auto bias_of_keys = [&]() HWY_ATTR {
      return bias == nullptr ? hn::Set(d, *row.bias) : hn::LoadU(d, bias);
    };
    return score_(y, bias_of_keys, hn::Set(d, row.alibi_slope * kLog2E),
                  hn::Set(d, row.alibi_position - static_cast<float>(key)),
                  hn::Iota(d, static_cast<float>(c)));
  }

  const Bf16Modifier& modifier_;
  const AttentionBlock& block_;
  const Bf16Strip& strip_;
  const ScoreModifier score_;
};

void FinishScores(const Bf16Modifier& modifier, const Bf16Strip& strip,
                  float* max) {
  const ScoreFinisher finisher(modifier, strip);
  for (int r = 0; r < strip.blocks * 16; ++r) max[r] = finisher.finish_row(r);
}

// ---- dense masks ----

void DenseWords(const bool* const* rows, std::int64_t key, int n,
                bool visible_when, std::uint32_t* words) {
  const hn::CappedTag<std::uint8_t, kGroupKeys> d8;
  const auto lanes = static_cast<int>(hn::Lanes(d8));
  for (int r = 0; r < 16; ++r) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(rows[r] + key);
    std::uint8_t copy[kGroupKeys] = {};
    if (n < kGroupKeys) {
      std::memcpy(copy, from, static_cast<std::size_t>(n));
      from = copy;
    }
    std::uint8_t bits[kGroupKeys / 8 + 8] = {};
    for (int i = 0; i < kGroupKeys; i += lanes) {
      const auto set = hn::Ne(hn::LoadU(d8, from + i), hn::Zero(d8));
      hn::StoreMaskBits(d8, set, bits + i / 8);
    }
    std::uint32_t word;
    std::memcpy(&word, bits, sizeof(word));
    words[r] &= visible_when ? word : ~word;
  }
}

// ---- dropout ----

// Bit i of a byte to bit 4 i of a word.
constexpr std::array<std::uint32_t, 256> make_spread() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    for (int i = 0; i < 8; ++i) table[byte] |= (byte >> i & 1u) << (4 * i);
  }
  return table;
}
inline constexpr std::array<std::uint32_t, 256> kSpread = make_spread();

// kept[16] <- a bit for each of the group's keys that dropout leaves, for 16
// rows. A draw gives the words of four keys: counter {key / 4, query, head,
// batch}. Lanes run over eight draws of a row, then the next row's.
HWY_INLINE void draw_kept(const Bf16Modifier& modifier, int block,
                          std::int64_t group, std::uint32_t (&kept)[16]) {
  constexpr int kDraws = kGroupKeys / 4;
  constexpr int kItems = 16 * kDraws;
  const UTag du;
  HWY_ALIGN std::uint32_t counter[4][kItems];
  for (int item = 0; item < kItems; ++item) {
    const AttentionRow& row = *modifier.rows[block * 16 + item / kDraws];
    counter[0][item] =
        static_cast<std::uint32_t>(group * kDraws + item % kDraws);
    for (int i = 0; i < 3; ++i) {
      counter[i + 1][item] = row.dropout_counter[i];
    }
  }
  const UVec threshold = hn::Set(du, modifier.block->dropout_threshold);
  std::uint8_t bits[4][kItems / 8 + 8] = {};
  for (int item = 0; item < kItems; item += kBf16Lanes) {
    PhiloxWords words;
    for (int i = 0; i < 4; ++i) words.word[i] = hn::Load(du, counter[i] + item);
    words = philox(words, modifier.block->dropout_seed);
    for (int i = 0; i < 4; ++i) {
      std::uint8_t some[8] = {};
      hn::StoreMaskBits(du, hn::Lt(words.word[i], threshold), some);
      for (int b = 0; b < (kBf16Lanes + 7) / 8; ++b) {
        bits[i][item / 8 + b] |= static_cast<std::uint8_t>(some[b] << item % 8);
      }
    }
  }
  for (int r = 0; r < 16; ++r) {
    std::uint32_t dropped = 0;
    for (int i = 0; i < 4; ++i) dropped |= kSpread[bits[i][r]] << i;
    kept[r] = ~dropped;
  }
}

void Drop(const Bf16Modifier& modifier, const Bf16Strip& strip) {
  for (int slot = 0; slot < strip.slots; ++slot) {
    for (int block = 0; block < strip.blocks; ++block) {
      if (strip.shown[slot][block] == Shown::kNone) continue;
      std::uint32_t kept[16];
      draw_kept(modifier, block, strip.groups[slot], kept);
      Bf16Bits* const w = weights_of(strip.scores, slot, block);
      for (int r = 0; r < 16; ++r) {
        for (int p = 0; p < 16; ++p) {
          const std::uint32_t low = kept[r] >> p & 1u;
          const std::uint32_t high = kept[r] >> (p + 16) & 1u;
          Bf16Bits* const at = w + r * 32 + 2 * p;
          at[0] = static_cast<Bf16Bits>(at[0] * low);
          at[1] = static_cast<Bf16Bits>(at[1] * high);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
