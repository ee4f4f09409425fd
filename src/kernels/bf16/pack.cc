// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bf16/attention.h"
#include "kernels/bf16/passes.h"

namespace regard::kernels {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t line_up(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

int key_steps(std::int64_t d_k) { return static_cast<int>((d_k + 31) / 32); }
int value_tiles(std::int64_t d_v) { return static_cast<int>((d_v + 15) / 16); }

// Where the parts of a head start, and its size.
struct HeadLayout {
  std::size_t keys, values, key_norms, max_norms, finite, size;

  HeadLayout(std::int64_t kv_len, std::int64_t d_k, std::int64_t d_v) {
    const auto groups = static_cast<std::size_t>(bf16_groups(kv_len));
    std::size_t used = 0;
    const auto take = [&](std::size_t bytes) {
      const std::size_t at = used;
      used += line_up(bytes);
      return at;
    };
    constexpr std::size_t kTileBytes = kTileBf16 * sizeof(Bf16Bits);
    keys = take(groups * 2 * static_cast<std::size_t>(key_steps(d_k)) *
                kTileBytes);
    values =
        take(groups * static_cast<std::size_t>(value_tiles(d_v)) * kTileBytes);
    key_norms = take(groups * kGroupKeys * sizeof(float));
    max_norms = take(groups * sizeof(float));
    finite = take(groups * sizeof(bool));
    size = used;
  }
};

std::size_t staging_elements(std::int64_t d_k, std::int64_t d_v) {
  return static_cast<std::size_t>(
      std::max(key_steps(d_k) * 32, value_tiles(d_v) * 16));
}

std::size_t bytes_of(Storage storage) {
  return storage == Storage::kFloat32 ? 4 : 2;
}

// The rows of one group as bf16, padded to `padded` elements: where they lie if
// that will do, or else copied to staging. Keys beyond the last are zero.
struct GroupRows {
  const Bf16Bits* row[kGroupKeys];

  GroupRows(const void* from, Storage storage, std::int64_t stride,
            std::int64_t n, std::int64_t padded, std::int64_t keys,
            Bf16Bits* staging) {
    const bool in_place = storage == Storage::kBFloat16 && n == padded;
    for (int i = 0; i < kGroupKeys; ++i) {
      const void* const at =
          static_cast<const std::byte*>(from) +
          i * stride * static_cast<std::int64_t>(bytes_of(storage));
      if (in_place && i < keys) {
        row[i] = static_cast<const Bf16Bits*>(at);
        continue;
      }
      Bf16Bits* const to = staging + i * padded;
      bf16_round_row(at, storage, i < keys ? n : 0, padded, to);
      row[i] = to;
    }
  }
};

const std::byte* key_at(const void* from, Storage storage, std::int64_t stride,
                        std::int64_t key) {
  return static_cast<const std::byte*>(from) +
         key * stride * static_cast<std::int64_t>(bytes_of(storage));
}

// Zero in the place of what is not finite: a weight of zero makes NaN of it.
void clean_tiles(Bf16Bits* tiles, int count) {
  for (int i = 0; i < count * kTileBf16; ++i) {
    if ((tiles[i] & 0x7f80) == 0x7f80) tiles[i] = 0;
  }
}

}  // namespace

std::size_t bf16_head_bytes(std::int64_t kv_len, std::int64_t d_k,
                            std::int64_t d_v) {
  return HeadLayout(kv_len, d_k, d_v).size;
}

Bf16Head bf16_head(std::byte* memory, std::int64_t kv_len, std::int64_t d_k,
                   std::int64_t d_v) {
  const HeadLayout at(kv_len, d_k, d_v);
  return {.keys = reinterpret_cast<Bf16Bits*>(memory + at.keys),
          .values = reinterpret_cast<Bf16Bits*>(memory + at.values),
          .key_norms = reinterpret_cast<float*>(memory + at.key_norms),
          .max_norms = reinterpret_cast<float*>(memory + at.max_norms),
          .values_are_finite = reinterpret_cast<bool*>(memory + at.finite),
          .kv_len = kv_len,
          .key_steps = key_steps(d_k),
          .value_tiles = value_tiles(d_v)};
}

std::size_t bf16_pack_scratch_bytes(std::int64_t d_k, std::int64_t d_v) {
  return kGroupKeys * staging_elements(d_k, d_v) * sizeof(Bf16Bits);
}

void bf16_pack_groups(const AttentionKeys& keys, const Bf16Head& head,
                      std::int64_t first, std::int64_t last,
                      std::byte* scratch) noexcept {
  const Bf16Functions& f = bf16_functions();
  auto* const staging = reinterpret_cast<Bf16Bits*>(scratch);
  for (std::int64_t group = first; group < last; ++group) {
    const std::int64_t key = group * kGroupKeys;
    const std::int64_t count =
        std::min<std::int64_t>(kGroupKeys, head.kv_len - key);
    float* const norms = head.key_norms + group * kGroupKeys;
    {
      const GroupRows rows(key_at(keys.k, keys.storage, keys.k_stride, key),
                           keys.storage, keys.k_stride, keys.d_k,
                           head.key_steps * 32, count, staging);
      for (int half = 0; half < 2; ++half) {
        Bf16Bits* const to =
            head.keys + (group * 2 + half) * head.key_steps * kTileBf16;
        f.pack_keys(rows.row + half * 16, head.key_steps, to, kTileBf16,
                    norms + half * 16);
      }
    }
    float max = 0;
    for (int i = 0; i < kGroupKeys; ++i) {
      max = max_or_nan(max, norms[i]);
    }
    head.max_norms[group] = max;

    const GroupRows rows(key_at(keys.v, keys.storage, keys.v_stride, key),
                         keys.storage, keys.v_stride, keys.d_v,
                         head.value_tiles * 16, count, staging);
    Bf16Bits* const to = head.values + group * head.value_tiles * kTileBf16;
    head.values_are_finite[group] =
        f.pack_values(rows.row, head.value_tiles, to);
    if (!head.values_are_finite[group]) clean_tiles(to, head.value_tiles);
  }
}

}  // namespace regard::kernels
