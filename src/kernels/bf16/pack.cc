// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/memory_layout.h"
#include "kernels/bf16/attention.h"
#include "kernels/bf16/passes.h"

namespace regard::kernels {
namespace {

int key_steps(std::int64_t d_k) { return static_cast<int>((d_k + 31) / 32); }
int value_tiles(std::int64_t d_v) { return static_cast<int>((d_v + 15) / 16); }

std::size_t staging_elements(std::int64_t d_k, std::int64_t d_v) {
  return static_cast<std::size_t>(
      std::max(key_steps(d_k) * 32, value_tiles(d_v) * 16));
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
          static_cast<const std::byte*>(from) + i * stride * bytes_of(storage);
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
  return static_cast<const std::byte*>(from) + key * stride * bytes_of(storage);
}

// Zero in the place of what is not finite: a weight of zero makes NaN of it.
void clean_tiles(Bf16Bits* tiles, int count) {
  for (int i = 0; i < count * kTileBf16; ++i) {
    if ((tiles[i] & 0x7f80) == 0x7f80) tiles[i] = 0;
  }
}

// Where the parts of a head are in `memory`; returns what they take.
std::size_t lay_out(std::byte* memory, std::int64_t d_k, std::int64_t d_v,
                    Bf16Head& head) {
  const std::int64_t groups = bf16_groups(head.kv_len);
  MemoryLayout parts(memory);
  parts.take(head.keys, groups * 2 * key_steps(d_k) * kTileBf16);
  parts.take(head.values, groups * value_tiles(d_v) * kTileBf16);
  parts.take(head.key_norms, groups * kGroupKeys);
  parts.take(head.max_norms, groups);
  parts.take(head.values_are_finite, groups);
  return parts.used();
}

}  // namespace

std::size_t bf16_head_bytes(std::int64_t kv_len, std::int64_t d_k,
                            std::int64_t d_v) {
  Bf16Head head{};
  head.kv_len = kv_len;
  return lay_out(nullptr, d_k, d_v, head);
}

Bf16Head bf16_head(std::byte* memory, std::int64_t kv_len, std::int64_t d_k,
                   std::int64_t d_v) {
  Bf16Head head{};
  head.kv_len = kv_len;
  head.key_steps = key_steps(d_k);
  head.value_tiles = value_tiles(d_v);
  lay_out(memory, d_k, d_v, head);
  return head;
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
