// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/backward.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/memory_layout.h"
#include "kernels/bf16/attention.h"
#include "kernels/bf16/visible.h"
#include "kernels/log2.h"
#include "regard/core/float16.h"

namespace regard::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Keys and rows whose products are taken together: a block of keys is
// kChunkGroups groups, a bundle of rows so many strips.
constexpr int kBundleStrips = 4;
constexpr std::int64_t kPanelTiles = kBundleStrips * 2 * kTileBf16;

std::int64_t panels_of(std::int64_t n) { return (n + 31) / 32; }
std::int64_t strips_of(std::int64_t rows) {
  return (rows + kStripRows - 1) / kStripRows;
}
std::int64_t bundles_of(std::int64_t rows) {
  return (strips_of(rows) + kBundleStrips - 1) / kBundleStrips;
}

bool is_non_finite(Bf16Bits bits) { return (bits & 0x7f80) == 0x7f80; }
float to_float(Bf16Bits bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// What is known of one strip of 32 rows; rows of padding repeat the last.
struct StripState {
  const AttentionRow* rows[kStripRows];
  float* d_bias[kStripRows];
  float scale[kStripRows];      // to log2
  float key_scale[kStripRows];  // of q in dS^T q
  float norms[kStripRows];      // |q|, of what is packed
  float powers[kStripRows];     // what q was multiplied by, for cosines
  float log2_sums[kStripRows];
  float deltas[kStripRows];
  float row_sums[kStripRows], slopes[kStripRows];
  std::int64_t begin, end;  // keys that some row sees
  std::int64_t all_begin,
      all_end;      // keys that every row does, dense parts apart
  bool non_finite;  // d_out has an element that is not finite
};

// The parts of a head's memory.
struct Memory {
  std::byte *keys, *values;  // packed heads
  Bf16Bits* queries;         // [strips][2][steps] tiles
  Bf16Bits* d_outs;          // the same of d_out
  // Transposed: [bundles][panels of d][kBundleStrips][2] tiles, whose rows are
  // elements of d and whose pairs are rows r and r + 16 of a strip.
  Bf16Bits *transposed_queries, *transposed_d_outs;
  float* d_queries;          // [bundles][panels][kBundleStrips] sums
  float *d_keys, *d_values;  // [kChunkGroups][panels] sums, of a block of keys
  StripState* strips;        // [strips]
  float *scores, *products, *raw;  // of a strip and a block of keys
  std::uint32_t* visible;          // [kChunkGroups][32]
  // Of a bundle and a block of keys: [kChunkGroups][kBundleStrips][2] tiles on
  // the right, [kBundleStrips][kChunkGroups][2] on the left.
  Bf16Bits *weights, *d_scores_right, *d_scores_left;
  Bf16Bits* staging;  // [32][padded d]
  float* row;         // [padded d]
  float* unit;        // [padded d]
  std::size_t size;

  Memory(std::byte* base, std::int64_t rows, std::int64_t kv_len,
         std::int64_t d_k, std::int64_t d_v) {
    const std::int64_t k = panels_of(d_k), v = panels_of(d_v);
    const std::int64_t strip_count = strips_of(rows);
    const std::int64_t bundles = bundles_of(rows);
    MemoryLayout memory(base);
    const auto bytes_of_head = [&](std::int64_t left, std::int64_t right) {
      return static_cast<std::int64_t>(bf16_head_bytes(kv_len, left, right));
    };
    memory.take(keys, bytes_of_head(d_k, 32 * k));
    memory.take(values, bytes_of_head(d_v, 0));
    memory.take(queries, strip_count * 2 * k * kTileBf16);
    memory.take(d_outs, strip_count * 2 * v * kTileBf16);
    memory.take(transposed_queries, bundles * k * kPanelTiles);
    memory.take(transposed_d_outs, bundles * v * kPanelTiles);
    memory.take(d_queries, bundles * k * kBundleStrips * kProductFloats);
    memory.take(d_keys, kChunkGroups * k * kProductFloats);
    memory.take(d_values, kChunkGroups * v * kProductFloats);
    memory.take(strips, strip_count);
    memory.take(scores, kStripScoreFloats);
    memory.take(products, kStripScoreFloats);
    memory.take(raw, kStripScoreFloats);
    memory.take(visible, kChunkGroups * kStripRows);
    memory.take(weights, kChunkGroups * kPanelTiles);
    memory.take(d_scores_right, kChunkGroups * kPanelTiles);
    memory.take(d_scores_left, kChunkGroups * kPanelTiles);
    memory.take(staging, kStripRows * 32 * std::max({k, v, std::int64_t{1}}));
    memory.take(row, 32 * std::max({k, v, std::int64_t{1}}));
    memory.take(unit, 32 * std::max({k, v, std::int64_t{1}}));
    size = memory.used();
  }
};

// to[j][i] <- from[i][j], 16 x 16 pairs: from pairs of rows by columns to
// columns by pairs of rows.
void transpose_tile(const Bf16Bits* from, Bf16Bits* to) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      std::memcpy(to + j * 32 + i * 2, from + i * 32 + j * 2,
                  2 * sizeof(Bf16Bits));
    }
  }
}

void store_row(const float* from, std::int64_t n, Storage storage, void* to) {
  for (std::int64_t c = 0; c < n; ++c) store_element(from[c], storage, to, c);
}

class HeadBackward {
 public:
  HeadBackward(const Bf16BackwardHead& head, std::byte* memory)
      : head_(head),
        block_(head.block),
        d_k_(head.block.keys.d_k),
        d_v_(head.block.keys.d_v),
        k_panels_(panels_of(d_k_)),
        v_panels_(panels_of(d_v_)),
        f_(bf16_functions()),
        m_(memory, head.row_count, head.kv_len, d_k_, d_v_),
        keys_(bf16_head(m_.keys, head.kv_len, d_k_, 32 * k_panels_,
                        block_.score)),
        values_(bf16_head(m_.values, head.kv_len, d_v_, 0, {})) {}

  void run() {
    pack_keys();
    for (std::int64_t s = 0; s < strips_of(head_.row_count); ++s) prepare(s);
    std::memset(m_.d_queries, 0,
                sizeof(float) * bundles_of(head_.row_count) * k_panels_ *
                    kBundleStrips * kProductFloats);
    f_.begin();
    const std::int64_t groups = bf16_groups(head_.kv_len);
    for (std::int64_t first = 0; first < groups; first += kChunkGroups) {
      run_keys(first, std::min<std::int64_t>(kChunkGroups, groups - first));
    }
    f_.end();
    for (std::int64_t i = 0; i < head_.row_count; ++i) finish_row(i);
  }

 private:
  // ---- before ----

  // Keys both ways; of the values only what d_out is multiplied with.
  void pack_keys() {
    const std::int64_t groups = bf16_groups(head_.kv_len);
    auto* const staging = reinterpret_cast<std::byte*>(m_.staging);
    AttentionKeys keys = block_.keys;
    bf16_pack_keys_twice(keys, keys_, 0, groups, staging);
    keys.k = keys.v;
    keys.k_stride = keys.v_stride;
    keys.d_k = d_v_;
    keys.d_v = 0;
    bf16_pack_groups(keys, values_, 0, groups, staging);
  }

  std::int64_t row_number(std::int64_t strip, int r) const {
    return std::min(strip * kStripRows + r, head_.row_count - 1);
  }

  // A row of n elements as it is packed, then zeros.
  void round_row(const void* row, std::int64_t n, float power,
                 Bf16Bits* to) const {
    const Storage storage = block_.keys.storage;
    bf16_round_row(row, storage, n, 32 * panels_of(n), to);
    if (power != 1) bf16_round_scaled(row, storage, power, n, to);
  }

  // Rows as they are, for products over d, and transposed, for products over
  // rows. Where that one is not finite it is zero: a weight of zero would make
  // NaN of it. Returns whether all were finite.
  bool pack_rows(const void* const* rows, std::int64_t n, std::int64_t strip,
                 Bf16Bits* plain, Bf16Bits* transposed,
                 const Bf16Lengths& lengths) {
    const std::int64_t panels = panels_of(n);
    AttentionKeys form = block_.keys;
    form.d_k = n;
    bf16_pack_queries(rows, 2, form, plain + strip * 2 * panels * kTileBf16,
                      lengths);
    const Bf16Bits* staged[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      Bf16Bits* const to = m_.staging + r * 32 * panels;
      round_row(rows[r], n,
                lengths.powers == nullptr ? 1.0f : lengths.powers[r], to);
      staged[r] = to;
    }
    bool finite = true;
    alignas(64) Bf16Bits pairs[2 * kTileBf16];
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const Bf16Bits* part[kStripRows];
      for (int r = 0; r < kStripRows; ++r) part[r] = staged[r] + 32 * panel;
      if (!f_.pack_values(part, 2, pairs)) {
        finite = false;
        for (Bf16Bits& bits : pairs)
          bits = is_non_finite(bits) ? Bf16Bits{0} : bits;
      }
      Bf16Bits* const to =
          transposed + (strip / kBundleStrips * panels + panel) * kPanelTiles +
          strip % kBundleStrips * 2 * kTileBf16;
      transpose_tile(pairs, to);
      transpose_tile(pairs + kTileBf16, to + kTileBf16);
    }
    return finite;
  }

  void prepare(std::int64_t s) {
    StripState& strip = m_.strips[s];
    const void* queries[kStripRows];
    const void* d_outs[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      const std::int64_t i = row_number(s, r);
      strip.rows[r] = block_.rows + i;
      strip.d_bias[r] = head_.backward_rows[i].d_bias;
      queries[r] = strip.rows[r]->q;
      d_outs[r] = head_.backward_rows[i].d_out;
    }
    std::fill_n(strip.powers, kStripRows, 1.0f);
    pack_rows(queries, d_k_, s, m_.queries, m_.transposed_queries,
              {.norms = strip.norms,
               .powers = block_.score.cosine ? strip.powers : nullptr});
    float unused[kStripRows];
    strip.non_finite = !pack_rows(d_outs, d_v_, s, m_.d_outs,
                                  m_.transposed_d_outs, {.norms = unused});
    strip.begin = head_.kv_len;
    strip.end = strip.all_begin = 0;
    strip.all_end = head_.kv_len;
    for (int r = 0; r < kStripRows; ++r) {
      const AttentionRow& row = *strip.rows[r];
      const bool real = s * kStripRows + r < head_.row_count;
      if (row.begin < row.end) {
        strip.begin = std::min(strip.begin, row.begin);
        strip.end = std::max(strip.end, row.end);
      }
      strip.all_begin = std::max(strip.all_begin, row.begin);
      strip.all_end = std::min(strip.all_end, row.end);
      const float norm = strip.norms[r];
      const float unit = !block_.score.cosine ? 1.0f
                         : norm == 0          ? 0.0f
                                              : 1 / norm;
      strip.key_scale[r] = row.scale * unit;
      strip.scale[r] = strip.key_scale[r] * kLog2E;
      strip.log2_sums[r] = real && *row.lse != -kInf ? *row.lse * kLog2E : kInf;
      strip.deltas[r] = real ? delta_of(s * kStripRows + r, r) : 0.0f;
      strip.row_sums[r] = strip.slopes[r] = 0;
      if (real) head_.deltas[s * kStripRows + r] = strip.deltas[r];
    }
  }

  // d_out . out - d_lse. The d_out of the strip's rows stand in staging.
  float delta_of(std::int64_t i, int r) const {
    const BackwardRow& row = head_.backward_rows[i];
    const Bf16Bits* const d_out = m_.staging + r * 32 * v_panels_;
    double delta = 0;
    bool zero = true;
    for (std::int64_t c = 0; c < d_v_; ++c) {
      const float out = element(row.out, c);
      zero = zero && out == 0;
      delta += static_cast<double>(to_float(d_out[c])) * out;
    }
    // A row that sees only its sink: a NaN in d_out has nothing to multiply.
    if (std::isnan(delta) && zero) delta = 0;
    if (row.d_lse != nullptr) delta -= *row.d_lse;
    return static_cast<float>(delta);
  }

  float element(const void* from, std::int64_t at) const {
    return load_element(from, block_.keys.storage, at);
  }

  // ---- a block of keys ----

  void run_keys(std::int64_t first, std::int64_t count) {
    std::memset(m_.d_keys, 0,
                sizeof(float) * kChunkGroups * k_panels_ * kProductFloats);
    std::memset(m_.d_values, 0,
                sizeof(float) * kChunkGroups * v_panels_ * kProductFloats);
    for (std::int64_t b = 0; b < bundles_of(head_.row_count); ++b) {
      const std::int64_t strips = std::min<std::int64_t>(
          kBundleStrips, strips_of(head_.row_count) - b * kBundleStrips);
      bool seen = false;
      for (std::int64_t s = 0; s < strips; ++s) {
        const StripState& strip = m_.strips[b * kBundleStrips + s];
        seen = seen || (strip.begin < (first + count) * kGroupKeys &&
                        strip.end > first * kGroupKeys);
      }
      if (!seen) continue;
      for (std::int64_t s = 0; s < strips; ++s) {
        run_strip(b * kBundleStrips + s, s, first, count);
      }
      multiply(b, static_cast<int>(strips), first, static_cast<int>(count));
    }
    const std::int64_t last =
        std::min((first + count) * kGroupKeys, head_.kv_len);
    for (std::int64_t key = first * kGroupKeys; key < last; ++key) {
      finish_key(key, key - first * kGroupKeys);
    }
  }

  void see_group(std::int64_t s, std::int64_t group, Shown* shown,
                 std::uint32_t* words) const {
    const StripState& strip = m_.strips[s];
    const std::int64_t key = group * kGroupKeys;
    if (strip.begin >= key + kGroupKeys || strip.end <= key) {
      shown[0] = shown[1] = Shown::kNone;
      return;
    }
    if (strip.all_begin <= key && key + kGroupKeys <= strip.all_end &&
        block_.dense_count == 0) {
      shown[0] = shown[1] = Shown::kAll;
      return;
    }
    for (int b = 0; b < 2; ++b) {
      shown[b] = bf16_see_group(
          block_, strip.rows + b * 16,
          [&](int r) { return block_.first_row + row_number(s, b * 16 + r); },
          key, head_.kv_len, words + b * 16);
    }
  }

  // The weights and the scores' gradients of one strip, where the products read
  // them.
  void run_strip(std::int64_t s, std::int64_t in_bundle, std::int64_t first,
                 std::int64_t count) {
    StripState& strip = m_.strips[s];
    std::int64_t groups[kChunkGroups];
    Shown shown[kChunkGroups][2];
    int slots = 0;
    for (std::int64_t g = first; g < first + count; ++g) {
      see_group(s, g, shown[slots], m_.visible + slots * kStripRows);
      if (shown[slots][0] == Shown::kNone && shown[slots][1] == Shown::kNone) {
        clear(in_bundle, g - first);
        continue;
      }
      groups[slots++] = g;
    }
    if (slots == 0) return;
    Bf16Strip work{.queries = m_.queries + s * 2 * k_panels_ * kTileBf16,
                   .blocks = 2,
                   .slots = slots,
                   .groups = groups,
                   .scores = m_.scores,
                   .scale = strip.scale,
                   .shown = shown,
                   .visible = m_.visible,
                   .max = nullptr,
                   .out = nullptr,
                   .sums = nullptr};
    f_.score(keys_, work);
    const std::size_t bytes = sizeof(float) * kGroupFloats * slots;
    if (block_.score.bend_products()) std::memcpy(m_.raw, m_.scores, bytes);
    const Bf16Modifier modifier{
        .block = &block_,
        .rows = strip.rows,
        .key_norms = block_.score.cosine ? keys_.key_norms : nullptr,
        .kv_len = head_.kv_len};
    float max[kStripRows];
    bf16_finish_scores(modifier, work, max);
    Bf16Strip of_values = work;
    of_values.queries = m_.d_outs + s * 2 * v_panels_ * kTileBf16;
    of_values.scores = m_.products;
    if (v_panels_ == 0) {
      std::memset(m_.products, 0, bytes);
    } else {
      f_.score(values_, of_values);
    }
    bf16_differentiate(
        {.modifier = &modifier,
         .strip = &work,
         .products = m_.products,
         .raw = block_.score.bend_products() ? m_.raw : nullptr,
         .log2_sums = strip.log2_sums,
         .deltas = strip.deltas,
         .scales = strip.key_scale,
         .wants_rows = block_.score.has_bias || block_.score.has_alibi,
         .row_sums = strip.row_sums,
         .slopes = strip.slopes,
         .d_bias = strip.d_bias,
         .first_group = first,
         .weights = m_.weights + in_bundle * 2 * kTileBf16,
         .d_keys = m_.d_scores_right + in_bundle * 2 * kTileBf16,
         .right_stride = kPanelTiles,
         .d_queries =
             m_.d_scores_left + in_bundle * kChunkGroups * 2 * kTileBf16});
    if (strip.non_finite) {
      for (int slot = 0; slot < slots; ++slot) {
        add_non_finite(s, in_bundle, groups[slot] - first);
      }
    }
  }

  Bf16Bits* right_tiles(Bf16Bits* base, std::int64_t in_bundle,
                        std::int64_t group) const {
    return base + group * kPanelTiles + in_bundle * 2 * kTileBf16;
  }

  void clear(std::int64_t in_bundle, std::int64_t group) {
    constexpr std::size_t kBytes = sizeof(Bf16Bits) * 2 * kTileBf16;
    std::memset(right_tiles(m_.weights, in_bundle, group), 0, kBytes);
    std::memset(right_tiles(m_.d_scores_right, in_bundle, group), 0, kBytes);
    std::memset(
        m_.d_scores_left + (in_bundle * kChunkGroups + group) * 2 * kTileBf16,
        0, kBytes);
  }

  // Infinite and NaN elements of d_out reach the values of the keys that the
  // row gives weight.
  void add_non_finite(std::int64_t s, std::int64_t in_bundle,
                      std::int64_t group) {
    const Bf16Bits* const weights = right_tiles(m_.weights, in_bundle, group);
    for (int r = 0; r < kStripRows; ++r) {
      if (s * kStripRows + r >= head_.row_count) break;
      const void* const d_out = head_.backward_rows[s * kStripRows + r].d_out;
      for (std::int64_t c = 0; c < d_v_; ++c) {
        const BFloat16 value(element(d_out, c));
        if (!is_non_finite(value.bits)) continue;
        for (int key = 0; key < kGroupKeys; ++key) {
          const Bf16Bits weight = weights[key / 16 * kTileBf16 + r % 16 * 32 +
                                          key % 16 * 2 + r / 16];
          if (weight != 0) {
            *sum_at(m_.d_values, v_panels_, group, c, key) +=
                static_cast<float>(value);
          }
        }
      }
    }
  }

  // The sum of element c of a key: tiles [groups][panels][2][2] of [16 elements
  // of d][16 keys].
  static float* sum_at(float* sums, std::int64_t panels, std::int64_t group,
                       std::int64_t c, int key) {
    return sums + (group * panels + c / 32) * kProductFloats +
           (c / 16 % 2 * 2 + key / 16) * kTileFloats + c % 16 * 16 + key % 16;
  }

  // dv += P^T d_out, dk += dS^T q, dq += dS k.
  void multiply(std::int64_t bundle, int strips, std::int64_t first,
                int count) {
    for (int group = 0; group < count; ++group) {
      add_transposed(m_.transposed_d_outs, v_panels_, bundle, strips,
                     m_.weights + group * kPanelTiles,
                     m_.d_values + group * v_panels_ * kProductFloats);
      add_transposed(m_.transposed_queries, k_panels_, bundle, strips,
                     m_.d_scores_right + group * kPanelTiles,
                     m_.d_keys + group * k_panels_ * kProductFloats);
    }
    for (std::int64_t panel = 0; panel < k_panels_; ++panel) {
      f_.multiply({.left = m_.d_scores_left,
                   .left_stride = kChunkGroups * 2 * kTileBf16,
                   .right = keys_.values +
                            (first * keys_.value_tiles + 2 * panel) * kTileBf16,
                   .right_stride = keys_.value_tiles * kTileBf16,
                   .sums = m_.d_queries + (bundle * k_panels_ + panel) *
                                              kBundleStrips * kProductFloats,
                   .steps = count,
                   .rows = strips * kStripRows,
                   .from_zero = false});
    }
  }

  void add_transposed(const Bf16Bits* transposed, std::int64_t panels,
                      std::int64_t bundle, int strips, const Bf16Bits* right,
                      float* sums) {
    if (panels == 0) return;
    f_.multiply({.left = transposed + bundle * panels * kPanelTiles,
                 .left_stride = kPanelTiles,
                 .right = right,
                 .sums = sums,
                 .steps = strips,
                 .rows = static_cast<int>(panels) * kPanelRows,
                 .from_zero = false});
  }

  // ---- after ----

  // Forward, for cosines: unit = x / |x|, where x stands in staging and is the
  // input times `power`. So dx = (d_unit - unit (unit . d_unit)) / |x|. What is
  // all zero stays: x may be NaN.
  void project_out(float norm, float power, std::int64_t n,
                   float* gradient) const {
    if (std::all_of(gradient, gradient + n, [](float g) { return g == 0; })) {
      return;
    }
    const float inverse = norm == 0 ? 0.0f : 1 / norm;
    float along = 0;
    for (std::int64_t c = 0; c < n; ++c) {
      m_.unit[c] = to_float(m_.staging[c]) * inverse;
      along += m_.unit[c] * gradient[c];
    }
    for (std::int64_t c = 0; c < n; ++c) {
      gradient[c] = (gradient[c] - m_.unit[c] * along) * inverse * power;
    }
  }

  void finish_key(std::int64_t key, std::int64_t in_block) {
    const std::int64_t group = in_block / kGroupKeys;
    const auto at = static_cast<int>(in_block % kGroupKeys);
    const Storage storage = block_.keys.storage;
    const auto place = [&](void* base, std::int64_t stride) {
      return static_cast<std::byte*>(base) + key * stride * bytes_of(storage);
    };
    if (head_.d_v != nullptr) {
      for (std::int64_t c = 0; c < d_v_; ++c) {
        m_.row[c] = *sum_at(m_.d_values, v_panels_, group, c, at);
      }
      store_row(m_.row, d_v_, storage, place(head_.d_v, head_.d_v_stride));
    }
    if (head_.d_k == nullptr) return;
    for (std::int64_t c = 0; c < d_k_; ++c) {
      m_.row[c] = *sum_at(m_.d_keys, k_panels_, group, c, at);
    }
    if (block_.score.cosine) {
      const auto* const k = static_cast<const std::byte*>(block_.keys.k) +
                            key * block_.keys.k_stride * bytes_of(storage);
      const float power = keys_.key_powers[key];
      round_row(k, d_k_, power, m_.staging);
      project_out(keys_.key_norms[key], power, d_k_, m_.row);
    }
    store_row(m_.row, d_k_, storage, place(head_.d_k, head_.d_k_stride));
  }

  // dq = scale * dS k, and its part in the gradient of the scale: q . dS k.
  void finish_row(std::int64_t i) {
    const StripState& strip = m_.strips[i / kStripRows];
    const auto r = static_cast<int>(i % kStripRows);
    const AttentionRow& row = block_.rows[i];
    head_.d_slopes[i] = strip.slopes[r];
    head_.d_row_biases[i] = strip.row_sums[r];
    const std::int64_t bundle = i / kStripRows / kBundleStrips;
    const std::int64_t in_bundle = i / kStripRows % kBundleStrips;
    bool nothing = true;
    for (std::int64_t c = 0; c < d_k_; ++c) {
      const float* const sums =
          m_.d_queries +
          ((bundle * k_panels_ + c / 32) * kBundleStrips + in_bundle) *
              kProductFloats;
      m_.row[c] =
          sums[(r / 16 * 2 + c / 16 % 2) * kTileFloats + r % 16 * 16 + c % 16];
      nothing = nothing && m_.row[c] == 0;
    }
    round_row(row.q, d_k_, strip.powers[r], m_.staging);
    if (head_.d_scales != nullptr) {
      const float norm = strip.norms[r];
      const float unit = !block_.score.cosine ? 1.0f
                         : norm == 0          ? 0.0f
                                              : 1 / norm;
      float sum = 0;
      // A row that sees nothing gives nothing, be its query NaN.
      for (std::int64_t c = 0; c < d_k_ && !nothing; ++c) {
        sum += to_float(m_.staging[c]) * unit * m_.row[c];
      }
      head_.d_scales[i] = sum;
    }
    if (head_.backward_rows[i].d_q == nullptr) return;
    for (std::int64_t c = 0; c < d_k_ && !nothing; ++c) {
      m_.row[c] *= row.scale;
    }
    if (block_.score.cosine) {
      project_out(strip.norms[r], strip.powers[r], d_k_, m_.row);
    }
    store_row(m_.row, d_k_, block_.keys.storage, head_.backward_rows[i].d_q);
  }

  const Bf16BackwardHead& head_;
  const AttentionBlock& block_;
  const std::int64_t d_k_, d_v_, k_panels_, v_panels_;
  const Bf16Functions& f_;
  const Memory m_;
  const Bf16Head keys_, values_;
};

}  // namespace

std::size_t bf16_backward_bytes(std::int64_t row_count, std::int64_t kv_len,
                                std::int64_t d_k, std::int64_t d_v) {
  return Memory(nullptr, row_count, kv_len, d_k, d_v).size;
}

void bf16_backward_head(const Bf16BackwardHead& head,
                        std::byte* memory) noexcept {
  HeadBackward(head, memory).run();
}

}  // namespace regard::kernels
