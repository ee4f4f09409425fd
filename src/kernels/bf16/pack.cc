// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/memory_layout.h"
#include "kernels/bf16/attention.h"
#include "kernels/bf16/passes.h"
#include "regard/core/float16.h"

namespace regard::kernels {
namespace {

int key_steps(std::int64_t d_k) { return static_cast<int>((d_k + 31) / 32); }
int value_tiles(std::int64_t d_v) { return static_cast<int>((d_v + 15) / 16); }

std::size_t staging_elements(std::int64_t d_k, std::int64_t d_v) {
  return static_cast<std::size_t>(
      std::max(key_steps(d_k) * 32, value_tiles(d_v) * 16));
}

// Some rows of n elements, as they are stored.
struct StoredRows {
  const void* first;
  Storage storage;
  std::int64_t stride, n, count;

  const void* at(std::int64_t i) const {
    return static_cast<const std::byte*>(first) +
           i * stride * bytes_of(storage);
  }
  StoredRows from(std::int64_t i) const {
    return {at(i), storage, stride, n, count - i};
  }
};
StoredRows keys_of(const AttentionKeys& keys, std::int64_t kv_len) {
  return {keys.k, keys.storage, keys.k_stride, keys.d_k, kv_len};
}
StoredRows values_of(const AttentionKeys& keys, std::int64_t kv_len) {
  return {keys.v, keys.storage, keys.v_stride, keys.d_v, kv_len};
}

// The rows of one group as bf16, padded to `padded` elements: where they lie if
// that will do, or else copied to staging. Keys beyond the last are zero.
class GroupRows {
 public:
  const Bf16Bits* row[kGroupKeys];

  GroupRows(const StoredRows& stored, std::int64_t padded, Bf16Bits* staging)
      : stored_(stored), padded_(padded), staging_(staging) {
    const bool in_place =
        stored.storage == Storage::kBFloat16 && stored.n == padded;
    for (int i = 0; i < kGroupKeys; ++i) {
      if (in_place && i < stored.count) {
        row[i] = static_cast<const Bf16Bits*>(stored.at(i));
        continue;
      }
      Bf16Bits* const to = staging + i * padded;
      bf16_round_row(stored.at(i), stored.storage,
                     i < stored.count ? stored.n : 0, padded, to);
      row[i] = to;
    }
  }

  // Brings those near length 1 whose lengths are not ordinary: by `powers`.
  // Whether there are any.
  bool scale(const float* norms, float* powers) {
    bool some = false;
    for (int i = 0; i < kGroupKeys; ++i) {
      powers[i] = 1;
      if (i >= stored_.count || bf16_is_ordinary(norms[i])) continue;
      powers[i] = bf16_unit_power(stored_.at(i), stored_.storage, stored_.n);
      if (powers[i] == 1) continue;
      Bf16Bits* const to = staging_ + i * padded_;
      bf16_round_scaled(stored_.at(i), stored_.storage, powers[i], stored_.n,
                        to);
      row[i] = to;
      some = true;
    }
    return some;
  }

 private:
  const StoredRows stored_;
  const std::int64_t padded_;
  Bf16Bits* const staging_;
};

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
  parts.take(head.key_powers, groups * kGroupKeys);
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
                   std::int64_t d_v, const ScoreOptions& score) {
  Bf16Head head{};
  head.kv_len = kv_len;
  head.key_steps = key_steps(d_k);
  head.value_tiles = value_tiles(d_v);
  lay_out(memory, d_k, d_v, head);
  if (!score.cosine) head.key_powers = nullptr;
  return head;
}

std::size_t bf16_pack_scratch_bytes(std::int64_t d_k, std::int64_t d_v) {
  return kGroupKeys * staging_elements(d_k, d_v) * sizeof(Bf16Bits);
}

float bf16_unit_power(const void* row, Storage storage,
                      std::int64_t n) noexcept {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(load_element(row, storage, i)));
  }
  if (largest == 0 || !std::isfinite(largest)) return 1;
  return std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126));
}

void bf16_round_scaled(const void* from, Storage storage, float power,
                       std::int64_t n, Bf16Bits* to) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = BFloat16(load_element(from, storage, i) * power).bits;
  }
}

namespace {

void pack_keys(GroupRows& rows, const Bf16Head& head, std::int64_t group) {
  float* const norms = head.key_norms + group * kGroupKeys;
  const auto pack = [&] {
    for (int half = 0; half < 2; ++half) {
      Bf16Bits* const to =
          head.keys + (group * 2 + half) * head.key_steps * kTileBf16;
      bf16_functions().pack_keys(rows.row + half * 16, head.key_steps, to,
                                 kTileBf16, norms + half * 16);
    }
  };
  pack();
  if (head.key_powers != nullptr &&
      rows.scale(norms, head.key_powers + group * kGroupKeys)) {
    pack();
  }
  float max = 0;
  for (int i = 0; i < kGroupKeys; ++i) max = max_or_nan(max, norms[i]);
  head.max_norms[group] = max;
}

void pack_values(const GroupRows& rows, const Bf16Head& head,
                 std::int64_t group) {
  Bf16Bits* const to = head.values + group * head.value_tiles * kTileBf16;
  head.values_are_finite[group] =
      bf16_functions().pack_values(rows.row, head.value_tiles, to);
  if (!head.values_are_finite[group]) clean_tiles(to, head.value_tiles);
}

}  // namespace

void bf16_pack_groups(const AttentionKeys& keys, const Bf16Head& head,
                      std::int64_t first, std::int64_t last,
                      std::byte* scratch) noexcept {
  auto* const staging = reinterpret_cast<Bf16Bits*>(scratch);
  const StoredRows all_keys = keys_of(keys, head.kv_len);
  const StoredRows all_values = values_of(keys, head.kv_len);
  for (std::int64_t group = first; group < last; ++group) {
    const std::int64_t key = group * kGroupKeys;
    GroupRows key_rows(all_keys.from(key), head.key_steps * 32, staging);
    pack_keys(key_rows, head, group);
    const GroupRows value_rows(all_values.from(key), head.value_tiles * 16,
                               staging);
    pack_values(value_rows, head, group);
  }
}

void bf16_pack_keys_twice(const AttentionKeys& keys, const Bf16Head& head,
                          std::int64_t first, std::int64_t last,
                          std::byte* scratch) noexcept {
  auto* const staging = reinterpret_cast<Bf16Bits*>(scratch);
  const StoredRows all_keys = keys_of(keys, head.kv_len);
  for (std::int64_t group = first; group < last; ++group) {
    GroupRows rows(all_keys.from(group * kGroupKeys), head.key_steps * 32,
                   staging);
    pack_keys(rows, head, group);
    pack_values(rows, head, group);
  }
}

}  // namespace regard::kernels
