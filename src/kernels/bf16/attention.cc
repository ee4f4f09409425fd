// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/memory_layout.h"
#include "kernels/bf16/passes.h"
#include "kernels/bf16/visible.h"
#include "kernels/log2.h"

namespace regard::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Scores of at most this, in log2, need no maximum: the weights 2^score and
// their sums stay far from the ends of float's range.
constexpr float kBoundedScore = 32.0f;

// Packed keys and values that stay near while the strips of a block pass.
constexpr std::int64_t kNearBytes = 1 << 20;

struct KeySpan {
  std::int64_t begin, end;
};

// What is known of one strip.
struct StripState {
  float scale[kStripRows];  // to log2
  float max[kStripRows];    // the weights' m; -inf before the first key
  const AttentionRow* rows[kStripRows];
  KeySpan any;       // keys that some row sees
  KeySpan all[2];    // keys that every row of a block sees
  KeySpan block[2];  // keys that some row of a block sees
  int blocks;
  bool bounded;
};

struct Scratch {
  Bf16Bits* queries;       // [strips][2][key_steps] tiles
  float* out;              // [strips][2][value_tiles] tiles
  float* sums;             // [strips][2] tiles
  float* scores;           // [kStripScoreFloats]
  std::uint32_t* visible;  // [kChunkGroups][32]
  StripState* strips;
  std::size_t size;

  Scratch(std::byte* base, int row_count, std::int64_t d_k, std::int64_t d_v) {
    const auto count =
        static_cast<std::size_t>((row_count + kStripRows - 1) / kStripRows);
    const auto steps = static_cast<std::size_t>((d_k + 31) / 32);
    const auto tiles = static_cast<std::size_t>((d_v + 15) / 16);
    MemoryLayout memory(base);
    memory.take(queries, count * 2 * steps * kTileBf16);
    memory.take(out, count * 2 * tiles * kTileFloats);
    memory.take(sums, count * 2 * kTileFloats);
    memory.take(scores, kStripScoreFloats);
    memory.take(visible, kChunkGroups * kStripRows);
    memory.take(strips, count);
    size = memory.used();
  }
};

KeySpan join(KeySpan a, KeySpan b) {
  if (a.begin >= a.end) return b;
  if (b.begin >= b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// The next multiple of 8, as long as floats have one.
float round_up(float max) {
  const float up = std::ceil(max / 8) * 8;
  return std::isfinite(up) ? up : max;
}

// 2^(from - to), both integers.
float power_between(float from, float to) {
  const float difference = from - to;
  return difference < -148 ? 0.0f
                           : std::ldexp(1.0f, static_cast<int>(difference));
}

class BlockForward {
 public:
  BlockForward(const AttentionBlock& block, const Bf16Head& head,
               std::byte* scratch)
      : block_(block),
        head_(head),
        f_(bf16_functions()),
        memory_(scratch, block.row_count, block.keys.d_k, block.keys.d_v),
        strips_((block.row_count + kStripRows - 1) / kStripRows) {
    for (int s = 0; s < strips_; ++s) {
      measure_strip(s);
      pack_queries(s);
    }
  }

  // False if a sum left float's range where scores were taken for bounded.
  bool run(bool may_bound) {
    for (int s = 0; s < strips_; ++s) reset(s, may_bound);
    KeySpan any{0, 0};
    for (int s = 0; s < strips_; ++s) any = join(any, memory_.strips[s].any);
    const std::int64_t last = bf16_groups(any.end);
    // Keys and values that the second cache holds, while all strips pass over
    // them; a strip's scores and sums stay in the first.
    const std::int64_t group_bytes =
        (2 * head_.key_steps + head_.value_tiles) * kTileFloats * 4;
    const std::int64_t reach =
        std::max<std::int64_t>(kNearBytes / group_bytes, kChunkGroups) /
        kChunkGroups * kChunkGroups;
    for (std::int64_t near = any.begin / kGroupKeys; near < last;
         near += reach) {
      for (int s = 0; s < strips_; ++s) {
        run_groups(s, near, std::min(last, near + reach));
      }
    }
    if (may_bound && !bounded_strips_are_finite()) return false;
    for (int s = 0; s < strips_; ++s) {
      for (int r = 0; r < rows_of(s); ++r) finish_row(s, r);
    }
    return true;
  }

 private:
  int rows_of(int s) const {
    return std::min(kStripRows, block_.row_count - s * kStripRows);
  }
  // Rows of padding repeat the last row.
  int row_number(int s, int r) const {
    return std::min(s * kStripRows + r, block_.row_count - 1);
  }
  Bf16Bits* queries(int s) const {
    return memory_.queries + s * 2 * head_.key_steps * kTileBf16;
  }
  float* out(int s) const {
    return memory_.out + s * 2 * head_.value_tiles * kTileFloats;
  }
  float* out_row(int s, int r) const {
    return out(s) + r / 16 * head_.value_tiles * kTileFloats + r % 16 * 16;
  }
  float* sums(int s) const { return memory_.sums + s * 2 * kTileFloats; }

  void measure_strip(int s) {
    StripState& strip = memory_.strips[s];
    strip.blocks = rows_of(s) > 16 ? 2 : 1;
    strip.any = {0, 0};
    for (int b = 0; b < 2; ++b) {
      strip.block[b] = {0, 0};
      strip.all[b] = {0, std::numeric_limits<std::int64_t>::max()};
    }
    for (int r = 0; r < strip.blocks * 16; ++r) {
      const AttentionRow& row = block_.rows[row_number(s, r)];
      strip.rows[r] = &row;
      KeySpan& block = strip.block[r / 16];
      KeySpan& all = strip.all[r / 16];
      block = join(block, {row.begin, row.end});
      all = {std::max(all.begin, row.begin), std::min(all.end, row.end)};
    }
    for (int b = 0; b < strip.blocks; ++b) {
      strip.any = join(strip.any, strip.block[b]);
    }
  }

  void pack_queries(int s) {
    StripState& strip = memory_.strips[s];
    const void* rows[kStripRows];
    for (int r = 0; r < strip.blocks * 16; ++r) rows[r] = strip.rows[r]->q;
    float norms[kStripRows], powers[kStripRows];
    bf16_pack_queries(
        rows, strip.blocks, block_.keys, queries(s),
        {.norms = norms, .powers = block_.score.cosine ? powers : nullptr});
    float largest = 0;
    for (int r = 0; r < strip.blocks * 16; ++r) {
      strip.scale[r] = strip.rows[r]->scale * kLog2E;
      if (block_.score.cosine)
        strip.scale[r] *= norms[r] == 0 ? 0 : 1 / norms[r];
      const float reach = std::abs(strip.scale[r]) * norms[r];
      largest = max_or_nan(largest, reach);
    }
    float longest = 0;
    for (std::int64_t g = strip.any.begin / kGroupKeys;
         g < bf16_groups(strip.any.end); ++g) {
      longest = max_or_nan(longest, head_.max_norms[g]);
    }
    const bool plain = !block_.score.change_products() && !block_.score.cosine;
    strip.bounded = plain && largest * longest <= kBoundedScore;
  }

  const void* element(const void* from, std::int64_t at) const {
    const std::int64_t size = block_.keys.storage == Storage::kFloat32 ? 4 : 2;
    return static_cast<const std::byte*>(from) + at * size;
  }

  void reset(int s, bool may_bound) {
    StripState& strip = memory_.strips[s];
    strip.bounded = strip.bounded && may_bound;
    std::fill(strip.max, strip.max + kStripRows, strip.bounded ? 0.0f : -kInf);
    std::memset(out(s), 0, sizeof(float) * 2 * head_.value_tiles * kTileFloats);
    std::memset(sums(s), 0, sizeof(float) * 2 * kTileFloats);
  }

  // Which of a group's keys the rows of a block see.
  Shown classify(int s, int b, std::int64_t group, std::uint32_t* words) {
    const StripState& strip = memory_.strips[s];
    const std::int64_t key = group * kGroupKeys;
    const bool in_range =
        strip.all[b].begin <= key && key + kGroupKeys <= strip.all[b].end;
    if (in_range && block_.dense_count == 0) return Shown::kAll;
    if (strip.block[b].begin >= key + kGroupKeys || strip.block[b].end <= key) {
      return Shown::kNone;
    }
    return bf16_see_group(
        block_, strip.rows + b * 16,
        [&](int r) { return block_.first_row + row_number(s, b * 16 + r); },
        key, head_.kv_len, words);
  }

  // A strip without groups.
  Bf16Strip describe(int s) const {
    const StripState& strip = memory_.strips[s];
    return {.queries = queries(s),
            .blocks = strip.blocks,
            .slots = 0,
            .groups = nullptr,
            .scores = memory_.scores,
            .scale = strip.scale,
            .shown = nullptr,
            .visible = memory_.visible,
            .max = nullptr,
            .out = out(s),
            .sums = sums(s)};
  }

  // Groups [first, last) in order: what every row sees whole by the fast way,
  // the rest in chunks.
  void run_groups(int s, std::int64_t first, std::int64_t last) {
    const KeySpan full = full_groups(s, first, last);
    for (std::int64_t at = first; at < last;) {
      if (at == full.begin && full.begin < full.end) {
        const Bf16Strip work = describe(s);
        if (f_.add_full(head_, work, full.begin, full.end)) {
          at = full.end;
          continue;
        }
      }
      const std::int64_t end = at < full.begin ? full.begin : last;
      run_chunk(s, at, std::min(end, at + kChunkGroups));
      at += std::min(end - at, std::int64_t{kChunkGroups});
    }
  }

  // The groups of [first, last) that add_full may be asked for.
  KeySpan full_groups(int s, std::int64_t first, std::int64_t last) const {
    const StripState& strip = memory_.strips[s];
    const KeySpan none{last, last};
    if (f_.add_full == nullptr || !strip.bounded || block_.dense_count > 0 ||
        block_.dropout_threshold != 0) {
      return none;
    }
    KeySpan full{first, last};
    for (int b = 0; b < strip.blocks; ++b) {
      full.begin = std::max(full.begin, bf16_groups(strip.all[b].begin));
      full.end = std::min(full.end, strip.all[b].end / kGroupKeys);
    }
    if (full.begin >= full.end) return none;
    for (std::int64_t g = full.begin; g < full.end; ++g) {
      if (!head_.values_are_finite[g]) return none;
    }
    return full;
  }

  void run_chunk(int s, std::int64_t first, std::int64_t last) {
    StripState& strip = memory_.strips[s];
    first = std::max(first, strip.any.begin / kGroupKeys);
    last = std::min(last, bf16_groups(strip.any.end));
    std::int64_t groups[kChunkGroups];
    Shown shown[kChunkGroups][2];
    int slots = 0;
    for (std::int64_t group = first; group < last; ++group) {
      shown[slots][1] = Shown::kNone;
      for (int b = 0; b < strip.blocks; ++b) {
        shown[slots][b] = classify(
            s, b, group, memory_.visible + slots * kStripRows + b * 16);
      }
      if (shown[slots][0] == Shown::kNone && shown[slots][1] == Shown::kNone) {
        continue;
      }
      groups[slots++] = group;
    }
    if (slots == 0) return;
    float below[kStripRows];
    Bf16Strip work = describe(s);
    work.slots = slots;
    work.groups = groups;
    work.shown = shown;
    work.max = below;
    const Bf16Modifier modifier{
        .block = &block_,
        .rows = strip.rows,
        .key_norms = block_.score.cosine ? head_.key_norms : nullptr,
        .kv_len = head_.kv_len};
    f_.score(head_, work);
    if (strip.bounded) {
      f_.weigh(head_, work);
    } else {
      weigh_below_max(s, modifier, work, below);
    }
    f_.add_sums(work);
    if (block_.dropout_threshold != 0) bf16_drop(modifier, work);
    f_.add_values(head_, work);
    for (int slot = 0; slot < slots; ++slot) {
      if (!head_.values_are_finite[groups[slot]])
        add_non_finite_values(s, work, slot);
    }
  }

  // The scores as they are meant, then weights below the running maximum; what
  // was summed so far follows it. Every factor is an exact power of two.
  void weigh_below_max(int s, const Bf16Modifier& modifier,
                       const Bf16Strip& work, float* below) {
    StripState& strip = memory_.strips[s];
    float max[kStripRows];
    bf16_finish_scores(modifier, work, max);
    for (int r = 0; r < strip.blocks * 16; ++r) {
      float& m = strip.max[r];
      // An infinite score makes the row NaN under any m.
      if (max[r] > m && max[r] < kInf) {
        const float up = round_up(max[r]);
        if (m != -kInf && up != m) {
          scale_row(s, r, power_between(m, up));
        }
        m = up;
      }
      below[r] = m == -kInf ? 0.0f : m;
    }
    f_.weigh_below(work);
  }

  void scale_row(int s, int r, float factor) {
    float& sum = sums(s)[r * 16];
    if (factor == 0) {  // not a product: what is gone may have been infinite
      for (int tile = 0; tile < head_.value_tiles; ++tile) {
        std::memset(out_row(s, r) + tile * kTileFloats, 0, sizeof(float) * 16);
      }
      std::memset(&sum, 0, sizeof(float) * 16);
      return;
    }
    bf16_scale_row(out_row(s, r), head_.value_tiles, factor);
    bf16_scale_row(&sum, 1, factor);
  }

  // Infinite and NaN values reach the rows that give them weight.
  void add_non_finite_values(int s, const Bf16Strip& work, int slot) {
    const AttentionKeys& keys = block_.keys;
    const std::int64_t first = work.groups[slot] * kGroupKeys;
    for (int i = 0; i < kGroupKeys && first + i < head_.kv_len; ++i) {
      const void* const v = element(keys.v, (first + i) * keys.v_stride);
      for (std::int64_t c = 0; c < keys.d_v; ++c) {
        Bf16Bits bits;
        bf16_round_row(element(v, c), keys.storage, 1, 1, &bits);
        if ((bits & 0x7f80) != 0x7f80) continue;
        const float value = std::bit_cast<float>(std::uint32_t{bits} << 16);
        for (int r = 0; r < rows_of(s); ++r) {
          const Bf16Bits* const w = weights_of(work.scores, slot, r / 16);
          if (w[r % 16 * 32 + i % 16 * 2 + i / 16] == 0) continue;
          out_row(s, r)[c / 16 * kTileFloats + c % 16] += value;
        }
      }
    }
  }

  bool bounded_strips_are_finite() const {
    for (int s = 0; s < strips_; ++s) {
      if (!memory_.strips[s].bounded) continue;
      for (int r = 0; r < rows_of(s); ++r) {
        if (!bf16_row_is_finite(out_row(s, r), head_.value_tiles)) return false;
      }
    }
    return true;
  }

  void finish_row(int s, int r) {
    const AttentionRow& row = block_.rows[s * kStripRows + r];
    float& max = memory_.strips[s].max[r];
    float* const sum = sums(s) + r * 16;
    if (block_.has_sink) {
      const float sink = row.sink * kLog2E;
      const float up = round_up(sink);
      if (up > max) {
        if (max != -kInf) scale_row(s, r, power_between(max, up));
        max = up;
      }
      if (max != -kInf || std::isnan(sink)) {
        *sum += static_cast<float>(std::exp2(static_cast<double>(sink) - max));
      }
    }
    // A row that sees no key has no distribution: define it as zero, because
    // 0 / 0 would spread NaN through everything that follows. A sum that is
    // infinite comes from an infinite score.
    const float factor = *sum == 0     ? 0.0f
                         : *sum < kInf ? block_.keep_scale / *sum
                                       : kNaN;
    bf16_write_row(out_row(s, r), factor, block_.keys.d_v, block_.keys.storage,
                   row.out);
    if (row.lse != nullptr) *row.lse = log_sum_exp(max, *sum);
  }

  static float log_sum_exp(float max, float sum) {
    if (sum == 0) return -kInf;
    if (!(sum < kInf)) return kNaN;
    return static_cast<float>((std::log2(static_cast<double>(sum)) + max) *
                              0.6931471805599453);
  }

  const AttentionBlock& block_;
  const Bf16Head& head_;
  const Bf16Functions& f_;
  const Scratch memory_;
  const int strips_;
};

}  // namespace

std::size_t bf16_block_scratch_bytes(int row_count, std::int64_t d_k,
                                     std::int64_t d_v) {
  return Scratch(nullptr, row_count, d_k, d_v).size;
}

void bf16_forward_block(const AttentionBlock& block, const Bf16Head& head,
                        std::byte* scratch) noexcept {
  bf16_functions().begin();
  BlockForward forward(block, head, scratch);
  if (!forward.run(true)) forward.run(false);
  bf16_functions().end();
}

}  // namespace regard::kernels
