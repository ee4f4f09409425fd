// SPDX-License-Identifier: Apache-2.0
#if defined(REGARD_KERNELS_ATTENTION_BACKWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_BACKWARD_INL_H_
#undef REGARD_KERNELS_ATTENTION_BACKWARD_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/attention_backward.h"
#include "kernels/attention_scores-inl.h"
#include "kernels/dropout-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/unit_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE bool all_finite(const float* x, std::int64_t n) {
  const Tag d;  // n is a multiple of 16
  Vec probe = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kVecLanes) {
    // Infinity times zero is NaN. All bits of a NaN's exponent are set, and
    // stay set.
    probe = hn::Or(probe, hn::Mul(hn::Load(d, x + i), hn::Zero(d)));
  }
  return hn::AllFalse(d, hn::IsNaN(probe));
}

// to[0, n) <- from[0, n) * factor, for n a multiple of 16.
HWY_INLINE void scale_row(const float* from, std::int64_t n, float factor,
                          float* to) {
  const Tag d;
  const Vec f = hn::Set(d, factor);
  for (std::int64_t c = 0; c < n; c += kVecLanes) {
    hn::Store(hn::Mul(hn::Load(d, from + c), f), d, to + c);
  }
}

HWY_INLINE bool all_zero(const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != 0) return false;
  }
  return true;
}

// Scratch of one run of keys, after the ScoreBlock's own.
struct BackwardScratch {
  std::int64_t k_columns, v_columns;
  float* keys;      // [key_run][k_columns]
  float* values;    // [key_run][v_columns]
  float* d_keys;    // [key_run][k_columns]
  float* d_values;  // [key_run][v_columns]
  float* d_scores;  // [kKeyBlock][kGroupRows]
  float* d_biases;  // [kGroupRows][kKeyBlock]
  float* norms;     // [key_run], 1 / |k| for cosine scores
  float* rest;      // for the ScoreBlock

  HWY_INLINE BackwardScratch(float* base, std::int64_t key_run,
                             std::int64_t d_k, std::int64_t d_v)
      : k_columns(AttentionScratch::padded(d_k)),
        v_columns(AttentionScratch::padded(d_v)) {
    const auto take = [&](std::int64_t floats) {
      float* const at = base;
      base += AttentionScratch::padded(floats);
      return at;
    };
    keys = take(key_run * k_columns);
    values = take(key_run * v_columns);
    d_keys = take(key_run * k_columns);
    d_values = take(key_run * v_columns);
    d_scores = take(kKeyBlock * kGroupRows);
    d_biases = take(kKeyBlock * kGroupRows);
    norms = take(key_run);
    rest = base;
  }
};

// Forward: unit = x / |x|. So dx = (d_unit - unit (unit . d_unit)) / |x|.
HWY_INLINE void project_out(const float* unit, std::int64_t n,
                            float inverse_norm, float* gradient) {
  const float along = ordered_dot(unit, gradient, n);
  for (std::int64_t c = 0; c < n; ++c) {
    gradient[c] = (gradient[c] - unit[c] * along) * inverse_norm;
  }
}

// ---- pass 1 ----

class PrepareGroup {
 public:
  HWY_INLINE PrepareGroup(const BackwardHead& head, std::int64_t group)
      : head_(head),
        group_(group),
        rows_(static_cast<int>(std::min<std::int64_t>(
            kGroupRows, head.row_count - group * kGroupRows))) {}

  template <typename T>
  HWY_INLINE void run() {
    const AttentionKeys& keys = head_.block.keys;
    const std::int64_t k_columns = AttentionScratch::padded(keys.d_k);
    const std::int64_t v_columns = AttentionScratch::padded(keys.d_v);
    const std::int64_t first = group_ * kGroupRows;
    float* const q = head_.query_rows + first * k_columns;
    float* const d_out = head_.d_out_rows + first * v_columns;
    clear(q, keys.d_k, k_columns);
    clear(d_out, keys.d_v, v_columns);
    if (head_.d_query_rows != nullptr) {
      std::memset(head_.d_query_rows + first * k_columns, 0,
                  sizeof(float) * kGroupRows * k_columns);
    }
    const float* q_at[kGroupRows];
    const float* d_out_at[kGroupRows];
    for (int r = 0; r < rows_; ++r) {
      const AttentionRow& row = head_.block.rows[first + r];
      const BackwardRow& back = head_.backward_rows[first + r];
      float* const q_row = q + r * k_columns;
      float* const d_row = d_out + r * v_columns;
      convert_row(static_cast<const T*>(row.q), keys.d_k, q_row);
      convert_row(static_cast<const T*>(back.d_out), keys.d_v, d_row);
      if (head_.block.score.cosine) normalize(q_row, keys.d_k);
      q_at[r] = q_row;
      d_out_at[r] = d_row;
      set_row(first + r, *row.lse, static_cast<const T*>(back.out), d_row,
              back.d_lse == nullptr ? 0.0f : *back.d_lse);
    }
    for (int r = rows_; r < kGroupRows; ++r) {
      head_.log2_sums[first + r] = kInfinity;
      head_.deltas[first + r] = 0;
      head_.d_slopes[first + r] = 0;
      head_.d_row_biases[first + r] = 0;
    }
    // The scores want q times scale and log2(e), as the forward pass had it; dk
    // wants q times scale.
    HWY_ALIGN float scale[kGroupRows] = {};
    for (int r = 0; r < rows_; ++r) {
      scale[r] = head_.block.rows[first + r].scale * kLog2E;
    }
    pack(q_at, keys.d_k, scale, head_.queries + first * keys.d_k);
    pack(d_out_at, keys.d_v, nullptr, head_.d_outs + first * keys.d_v);
    for (int r = 0; r < rows_; ++r) {
      float* const row = q + r * k_columns;
      scale_row(row, k_columns, head_.block.rows[first + r].scale, row);
    }
    head_.finite[group_] = all_finite(q, kGroupRows * k_columns) &&
                           all_finite(d_out, kGroupRows * v_columns);
  }

 private:
  // Zeroes what conversion will not write: columns and rows of padding.
  HWY_INLINE void clear(float* rows, std::int64_t n, std::int64_t columns) {
    const int from = n == columns ? rows_ : 0;
    std::memset(rows + from * columns, 0,
                sizeof(float) * (kGroupRows - from) * columns);
  }

  template <typename T>
  static HWY_INLINE bool is_zero(const T* row, std::int64_t n) {
    float chunk[64];
    for (std::int64_t c = 0; c < n; c += 64) {
      const std::int64_t count = std::min<std::int64_t>(64, n - c);
      convert_row(row + c, count, chunk);
      if (!all_zero(chunk, count)) return false;
    }
    return true;
  }

  // delta = d_out . out - d_lse
  template <typename T>
  HWY_INLINE void set_row(std::int64_t at, float lse, const T* out,
                          const float* d_out, float d_lse) {
    const std::int64_t d_v = head_.block.keys.d_v;
    float delta = 0;
    if constexpr (std::is_same_v<T, float>) {
      delta = ordered_dot(out, d_out, d_v);
    } else {
      float chunk[256];
      for (std::int64_t c = 0; c < d_v; c += 256) {
        const std::int64_t n = std::min<std::int64_t>(256, d_v - c);
        convert_row(out + c, n, chunk);
        delta += ordered_dot(chunk, d_out + c, n);
      }
    }
    // A row that sees only its sink: a NaN in d_out has nothing to multiply.
    if (std::isnan(delta) && is_zero(out, d_v)) delta = 0;
    head_.deltas[at] = delta - d_lse;
    head_.log2_sums[at] = lse == -kInfinity ? kInfinity : lse * kLog2E;
    head_.d_slopes[at] = 0;
    head_.d_row_biases[at] = 0;
  }

  // out [n][kGroupRows] <- rows times scale; zeros for rows of padding.
  HWY_INLINE void pack(const float* const* rows, std::int64_t n,
                       const float* scale, float* out) {
    const Tag d;
    for (int r = rows_ / kVecLanes * kVecLanes; r < kGroupRows;
         r += kVecLanes) {
      for (std::int64_t c = 0; c < n; ++c) {
        hn::Store(hn::Zero(d), d, out + c * kGroupRows + r);
      }
    }
    transpose_rows(rows, rows_, n, out, scale);
  }

  const BackwardHead& head_;
  const std::int64_t group_;
  const int rows_;
};

// ---- pass 2 ----

class KeyRunPass {
 public:
  HWY_INLINE KeyRunPass(const BackwardHead& head, std::int64_t begin,
                        std::int64_t end, float* scratch)
      : head_(head),
        memory_(scratch, head.key_run, head.block.keys.d_k,
                head.block.keys.d_v),
        begin_(begin),
        end_(end) {}

  template <typename T>
  HWY_INLINE void run() {
    load_keys<T>();
    const std::int64_t n = end_ - begin_;
    if (head_.d_key_sums != nullptr) {
      memory_.d_keys = head_.d_key_sums;
      memory_.d_values = head_.d_value_sums;
    } else {
      std::memset(memory_.d_keys, 0, sizeof(float) * n * memory_.k_columns);
      std::memset(memory_.d_values, 0, sizeof(float) * n * memory_.v_columns);
    }
    const std::int64_t groups = (head_.row_count + kGroupRows - 1) / kGroupRows;
    for (std::int64_t g = 0; g < groups; ++g) run_group(g);
    if (head_.stores_bias) hwy::FlushStream();
    if (head_.block.score.cosine && head_.d_k != nullptr) denormalize_keys();
    for (std::int64_t i = 0; i < n; ++i) {
      if (head_.d_k != nullptr) {
        convert_row(
            memory_.d_keys + i * memory_.k_columns, head_.block.keys.d_k,
            static_cast<T*>(head_.d_k) + (begin_ + i) * head_.d_k_stride);
      }
      if (head_.d_v != nullptr) {
        convert_row(
            memory_.d_values + i * memory_.v_columns, head_.block.keys.d_v,
            static_cast<T*>(head_.d_v) + (begin_ + i) * head_.d_v_stride);
      }
    }
  }

 private:
  template <typename T>
  HWY_INLINE void load_keys() {
    const AttentionKeys& keys = head_.block.keys;
    const std::int64_t n = end_ - begin_;
    if (keys.d_k != memory_.k_columns) {
      std::memset(memory_.keys, 0, sizeof(float) * n * memory_.k_columns);
    }
    if (keys.d_v != memory_.v_columns) {
      std::memset(memory_.values, 0, sizeof(float) * n * memory_.v_columns);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      float* const k = memory_.keys + i * memory_.k_columns;
      convert_row(static_cast<const T*>(keys.k) + (begin_ + i) * keys.k_stride,
                  keys.d_k, k);
      convert_row(static_cast<const T*>(keys.v) + (begin_ + i) * keys.v_stride,
                  keys.d_v, memory_.values + i * memory_.v_columns);
      if (head_.block.score.cosine) memory_.norms[i] = normalize(k, keys.d_k);
    }
    finite_ = all_finite(memory_.keys, n * memory_.k_columns) &&
              all_finite(memory_.values, n * memory_.v_columns);
  }

  HWY_INLINE void run_group(std::int64_t g) {
    AttentionBlock block = head_.block;
    block.rows = head_.block.rows + g * kGroupRows;
    block.row_count = static_cast<int>(
        std::min<std::int64_t>(kGroupRows, head_.row_count - g * kGroupRows));
    block.scratch = memory_.rest;
    block.first_row = g * kGroupRows;
    ScoreBlock scores(block,
                      head_.queries + g * kGroupRows * head_.block.keys.d_k);
    if (scores.end() <= begin_ || scores.begin() >= end_) {
      store_no_bias(block.row_count, g, begin_, end_);
      return;
    }
    skip_zeros_ = !finite_ || !head_.finite[g];
    bool has_turn = false;
    for (std::int64_t key = begin_; key < end_; key += kKeyBlock) {
      const std::int64_t skip = key - begin_;
      const std::int64_t end = std::min(key + kKeyBlock, end_);
      scores.borrow_keys(key, end, memory_.keys + skip * memory_.k_columns,
                         memory_.k_columns);
      if (!scores.compute(0)) {
        store_no_bias(block.row_count, g, key, end);
        continue;
      }
      const std::int64_t first = scores.first_key();
      store_no_bias(block.row_count, g, key, first);
      store_no_bias(block.row_count, g, first + scores.keys(), end);
      if (adds_bias()) fetch_bias(scores, g);
      add_to_keys(scores, g);
      if (head_.d_query_rows == nullptr) continue;
      if (!has_turn) (*head_.begin_turn)(g);
      has_turn = true;
      add_to_rows(scores, g);
    }
    if (head_.d_query_rows == nullptr) return;
    if (!has_turn) (*head_.begin_turn)(g);
    (*head_.end_turn)(g);
  }

  // dv += P^T d_out, dk += dS^T q; leaves dS in d_scores.
  HWY_INLINE void add_to_keys(ScoreBlock& scores, std::int64_t g) {
    const AttentionKeys& keys = head_.block.keys;
    const std::int64_t first = g * kGroupRows;
    const std::int64_t skip = scores.first_key() - begin_;
    scores.multiply(head_.d_outs + first * keys.d_v,
                    memory_.values + skip * memory_.v_columns,
                    memory_.v_columns, keys.d_v, memory_.d_scores);
    differentiate(scores, g);
    if (head_.d_v != nullptr || head_.d_value_sums != nullptr) {
      add_weighted_rows(
          scores, scores.scores(), head_.d_out_rows + first * memory_.v_columns,
          memory_.v_columns, memory_.d_values + skip * memory_.v_columns);
    }
    if (head_.d_k != nullptr || head_.d_key_sums != nullptr) {
      add_weighted_rows(scores, memory_.d_scores,
                        head_.query_rows + first * memory_.k_columns,
                        memory_.k_columns,
                        memory_.d_keys + skip * memory_.k_columns);
    }
  }

  // scores -> P, as the values were weighted; d_scores: dP -> dS. With a
  // softcap that is the gradient of the score before it; the one after it,
  // which bias and slopes were added to, replaces the cap's derivative.
  HWY_INLINE void differentiate(ScoreBlock& scores, std::int64_t g) {
    const Tag d;
    const AttentionBlock& block = head_.block;
    const bool drop = block.dropout_threshold != 0;
    const Vec keep_scale = hn::Set(d, block.keep_scale);
    const Vec hidden = hn::Set(d, -kInfinity);
    const Exp2Base exp2(hn::Zero(d));
    for (int j = 0; j < scores.vecs(0); ++j) {
      const std::int64_t lane = g * kGroupRows + j * kVecLanes;
      const Vec log2_sum = hn::Load(d, head_.log2_sums + lane);
      const Vec delta = hn::Load(d, head_.deltas + lane);
      float* const s_at = scores.scores() + j * kVecLanes;
      float* const d_at = memory_.d_scores + j * kVecLanes;
      float* const cap_at = scores.cap_slopes() + j * kVecLanes;
      const auto [from, to] = scores.vec_keys(j);
      for (std::int64_t i = 0; i < scores.keys(); ++i) {
        if (i >= from && i < to) continue;
        hn::Store(hn::Zero(d), d, s_at + i * kGroupRows);
        hn::Store(hn::Zero(d), d, d_at + i * kGroupRows);
        hn::Store(hn::Zero(d), d, cap_at + i * kGroupRows);
      }
      DropoutDraw draw(block, scores, 0, j);
      for (std::int64_t i = from; i < to; ++i) {
        const Vec s = hn::Load(d, s_at + i * kGroupRows);
        Vec dp = hn::Load(d, d_at + i * kGroupRows);
        // A hidden pair stays so where the row's sum is NaN. Not Ne: a NaN is
        // neither equal nor unequal to it.
        const Vec p =
            hn::IfThenZeroElse(hn::Eq(s, hidden), exp2(hn::Sub(s, log2_sum)));
        Vec used = p;
        if (drop) {
          const auto dropped = draw.dropped(scores.first_key() + i);
          used = hn::IfThenZeroElse(dropped, hn::Mul(p, keep_scale));
          dp = hn::IfThenZeroElse(dropped, hn::Mul(dp, keep_scale));
        }
        Vec ds = hn::Mul(p, hn::Sub(dp, delta));
        // Whatever stands in a pair without weight, it has no gradient.
        const auto none = hn::Eq(p, hn::Zero(d));
        ds = hn::IfThenZeroElse(none, ds);
        if (block.score.bend_products()) {
          const Vec slope = hn::Load(d, cap_at + i * kGroupRows);
          hn::Store(ds, d, cap_at + i * kGroupRows);
          ds = hn::IfThenZeroElse(none, hn::Mul(ds, slope));
        }
        hn::Store(used, d, s_at + i * kGroupRows);
        hn::Store(ds, d, d_at + i * kGroupRows);
      }
    }
  }

  // out[key][column] += sum over rows of weights[key][row] *
  // values[row][column]
  HWY_INLINE void add_weighted_rows(const ScoreBlock& scores,
                                    const float* weights, const float* values,
                                    std::int64_t columns, float* out) {
    constexpr std::int64_t kTileWidth = kTileColumns * kVecLanes;
    for (std::int64_t c = 0; c < columns; c += kTileWidth) {
      const auto vecs =
          static_cast<int>(std::min(kTileWidth, columns - c) / kVecLanes);
      for (std::int64_t i = 0; i < scores.keys(); i += kTileRows) {
        const std::int64_t count =
            std::min<std::int64_t>(kTileRows, scores.keys() - i);
        const auto [from, to] = scores.rows_of_keys(i, i + count);
        if (from >= to) continue;
        const ValueProduct product{.weights = weights + i * kGroupRows + from,
                                   .v = values + from * columns + c,
                                   .v_stride = columns,
                                   .inner = to - from,
                                   .out = out + i * columns + c,
                                   .out_stride = columns,
                                   .waiting = nullptr,
                                   .from_zero = false};
        if (skip_zeros_) {
          value_some_skipping_zeros<Weights::kRowMajor>(static_cast<int>(count),
                                                        vecs, product);
        } else {
          value_some<Weights::kRowMajor>(static_cast<int>(count), vecs,
                                         product);
        }
      }
    }
  }

  // dq += dS k, and what else is summed a row.
  HWY_INLINE void add_to_rows(const ScoreBlock& scores, std::int64_t g) {
    const std::int64_t columns = memory_.k_columns;
    const KeyBlockProduct product{
        .weights = memory_.d_scores,
        .v = scores.key_rows(),
        .v_stride = columns,
        .first_key = scores.first_key(),
        .keys = scores.keys(),
        .rows = scores.row_count(),
        .columns = columns,
        .out = head_.d_query_rows + g * kGroupRows * columns,
        .waiting = scores.waiting(),
        .skip_zeros = skip_zeros_};
    product.run([&](int tile) HWY_ATTR { return scores.tile_keys(tile); },
                [](int) HWY_ATTR { return true; });
    if (adds_bias()) add_bias(scores, g);
    if (head_.stores_bias) store_bias(scores, g);
    if (adds_row_bias() || head_.block.score.has_alibi) add_row_sums(scores, g);
  }

  // The gradient of a bias with an element a key, and with one a row.
  bool adds_bias() const {
    return head_.backward_rows[0].d_bias != nullptr &&
           head_.block.score.bias_key_stride != 0 && !head_.stores_bias;
  }
  bool adds_row_bias() const {
    return head_.backward_rows[0].d_bias != nullptr &&
           head_.block.score.bias_key_stride == 0;
  }

  HWY_INLINE void fetch_bias(const ScoreBlock& scores, std::int64_t g) {
    for (int r = 0; r < scores.row_count(); ++r) {
      fetch(head_.backward_rows[g * kGroupRows + r].d_bias + scores.first_key(),
            scores.keys());
    }
  }

  HWY_INLINE void add_bias(const ScoreBlock& scores, std::int64_t g) {
    const BackwardRow* const rows = head_.backward_rows + g * kGroupRows;
    float* to[kGroupRows];
    for (int r = 0; r < scores.row_count(); ++r) {
      to[r] = rows[r].d_bias + scores.first_key();
    }
    add_transposed(added_gradient(scores), scores.row_count(), scores.keys(),
                   to);
  }

  // The keys [begin, end) of a group, none of which a row sees.
  HWY_INLINE void store_no_bias(int rows, std::int64_t g, std::int64_t begin,
                                std::int64_t end) {
    if (!head_.stores_bias || begin >= end) return;
    for (int r = 0; r < rows; ++r) {
      float* const row = head_.backward_rows[g * kGroupRows + r].d_bias;
      std::fill(row + begin, row + end, 0.0f);
    }
  }

  // Past the caches where it can: it is much, and nobody reads it soon.
  HWY_INLINE void store_bias(const ScoreBlock& scores, std::int64_t g) {
    const Tag d;
    const std::int64_t n = scores.keys();
    float* rows[kGroupRows];
    for (int r = 0; r < scores.row_count(); ++r) {
      rows[r] = memory_.d_biases + r * kKeyBlock;
    }
    transpose_tile(added_gradient(scores), n, rows, scores.row_count());
    for (int r = 0; r < scores.row_count(); ++r) {
      float* const to =
          head_.backward_rows[g * kGroupRows + r].d_bias + scores.first_key();
      const bool on_line = reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
      std::int64_t i = 0;
      for (; i + kVecLanes <= n; i += kVecLanes) {
        // Plus zero: no element is -0, as none of a sum is.
        const Vec x = hn::Add(hn::Load(d, rows[r] + i), hn::Zero(d));
        if (on_line) {
          hn::Stream(x, d, to + i);
        } else {
          hn::StoreU(x, d, to + i);
        }
      }
      for (; i < n; ++i) to[i] = rows[r][i] + 0.0f;
    }
  }

  // The gradient of what was added to the scores, after the softcap.
  HWY_INLINE const float* added_gradient(const ScoreBlock& scores) const {
    return head_.block.score.bend_products() ? scores.cap_slopes()
                                             : memory_.d_scores;
  }

  // Forward: score += bias of the row - slope * |position - key|.
  HWY_INLINE void add_row_sums(const ScoreBlock& scores, std::int64_t g) {
    const Tag d;
    HWY_ALIGN float position[kVecLanes];
    for (int j = 0; j < scores.vecs(0); ++j) {
      for (int r = 0; r < kVecLanes; ++r) {
        position[r] = scores.row(j * kVecLanes + r).alibi_position;
      }
      const Vec v_position = hn::Load(d, position);
      const auto [from, to] = scores.vec_keys(j);
      Vec sum = hn::Zero(d), slope = hn::Zero(d);
      for (std::int64_t i = from; i < to; ++i) {
        const Vec ds = hn::Load(
            d, added_gradient(scores) + i * kGroupRows + j * kVecLanes);
        const Vec key = hn::Set(d, static_cast<float>(scores.first_key() + i));
        sum = hn::Add(sum, ds);
        slope = hn::MulAdd(ds, hn::Abs(hn::Sub(v_position, key)), slope);
      }
      const std::int64_t at = g * kGroupRows + j * kVecLanes;
      hn::Store(hn::Add(hn::Load(d, head_.d_row_biases + at), sum), d,
                head_.d_row_biases + at);
      hn::Store(hn::Sub(hn::Load(d, head_.d_slopes + at), slope), d,
                head_.d_slopes + at);
    }
  }

  HWY_INLINE void denormalize_keys() {
    const std::int64_t d_k = head_.block.keys.d_k;
    for (std::int64_t i = 0; i < end_ - begin_; ++i) {
      // A key that nobody sees gets nothing, be it NaN.
      if (all_zero(memory_.d_keys + i * memory_.k_columns, d_k)) continue;
      project_out(memory_.keys + i * memory_.k_columns, d_k, memory_.norms[i],
                  memory_.d_keys + i * memory_.k_columns);
    }
  }

  const BackwardHead& head_;
  BackwardScratch memory_;
  const std::int64_t begin_, end_;
  bool finite_ = true;  // the keys and values are
  bool skip_zeros_ = false;
};

// ---- pass 3 ----

// dq = scale * dS k, and its part in the gradient of the scale: q . dS k.
template <typename T>
HWY_INLINE void finish_group(const BackwardHead& head, std::int64_t group) {
  const std::int64_t d_k = head.block.keys.d_k;
  const std::int64_t columns = AttentionScratch::padded(d_k);
  const std::int64_t last = std::min(head.row_count, (group + 1) * kGroupRows);
  for (std::int64_t i = group * kGroupRows; i < last; ++i) {
    float* const gradient = head.d_query_rows + i * columns;
    // A row that sees nothing gives nothing, be its query NaN.
    const bool nothing = all_zero(gradient, d_k);
    const float scale = nothing ? 0.0f : head.block.rows[i].scale;
    if (head.d_scales != nullptr || head.block.score.cosine) {
      // Not query_rows: the scale may be zero.
      float* const q = head.query_rows + i * columns;
      convert_row(static_cast<const T*>(head.block.rows[i].q), d_k, q);
      const float inverse_norm =
          head.block.score.cosine ? normalize(q, d_k) : 1;
      if (head.d_scales != nullptr) {
        head.d_scales[i] = nothing ? 0 : ordered_dot(q, gradient, d_k);
      }
      scale_row(gradient, columns, scale, gradient);
      if (head.block.score.cosine && !nothing) {
        project_out(q, d_k, inverse_norm, gradient);
      }
    } else {
      scale_row(gradient, columns, scale, gradient);
    }
    if (head.backward_rows[i].d_q != nullptr) {
      convert_row(gradient, d_k, static_cast<T*>(head.backward_rows[i].d_q));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
