// SPDX-License-Identifier: Apache-2.0
// The scores of a block of rows against a block of keys, in log2 and masked:
// what the forward pass, the weights and the backward pass start from.
#if defined(REGARD_KERNELS_ATTENTION_SCORES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_SCORES_INL_H_
#undef REGARD_KERNELS_ATTENTION_SCORES_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_forward.h"
#include "kernels/attention_scratch.h"
#include "kernels/score_ops-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/unit_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// A range of keys; relative to a block's first key where it says so.
struct Keys {
  std::int64_t begin, end;
};

// The weights exp2(score) of a block's keys that a vector of rows sees, summed
// in the canonical order: key i of the sequence goes to chain i mod 4, and the
// chains are added pairwise.
//   scores [key][kGroupRows], the first of them of `first_key`
// `use` gets each key's weight.
template <typename Exp2, typename Use>
HWY_INLINE Vec weigh_keys(const Exp2& exp2, const float* scores, Keys keys,
                          std::int64_t first_key, const Use& use) {
  const Tag d;
  Vec chain[4];
  HWY_UNROLL(4)
  for (int u = 0; u < 4; ++u) chain[u] = hn::Zero(d);
  const auto add = [&](std::int64_t i, Vec& to) HWY_ATTR {
    const Vec w = exp2(hn::Load(d, scores + i * kGroupRows));
    use(i, w);
    to = hn::Add(to, w);
  };
  std::int64_t i = keys.begin - (first_key + keys.begin) % 4;
  if (i < keys.begin) {
    HWY_UNROLL(4)
    for (int u = 0; u < 4; ++u) {
      if (i + u >= keys.begin && i + u < keys.end) add(i + u, chain[u]);
    }
    i += 4;
  }
  for (; i + 4 <= keys.end; i += 4) {
    HWY_UNROLL(4)
    for (int u = 0; u < 4; ++u) add(i + u, chain[u]);
  }
  HWY_UNROLL(4)
  for (int u = 0; u < 4; ++u) {
    if (i + u < keys.end) add(i + u, chain[u]);
  }
  return hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3]));
}

// The same with the exponential that suits the maximum.
template <typename Use>
HWY_INLINE Vec weigh_keys(const Exp2Base& exp2, const float* scores, Keys keys,
                          std::int64_t first_key, const Use& use) {
  if (exp2.small()) [[likely]] {
    return weigh_keys([&](Vec s) HWY_ATTR { return exp2(s); }, scores, keys,
                      first_key, use);
  }
  return weigh_keys([&](Vec s) HWY_ATTR { return exp2.any(s); }, scores, keys,
                    first_key, use);
}

class ScoreBlock {
 public:
  // `queries`: the rows already packed, [d_k][kGroupRows] a group; null packs
  // them into the scratch.
  HWY_INLINE explicit ScoreBlock(const AttentionBlock& block,
                                 const float* queries = nullptr)
      : block_(block),
        groups_((block.row_count + kGroupRows - 1) / kGroupRows),
        memory_(block.scratch, block.row_count, block.keys.d_k, block.keys.d_v),
        queries_(queries != nullptr ? queries : memory_.queries),
        begin_(INT64_MAX),
        end_(0) {
    for (int g = 0; g < groups_; ++g) {
      measure_group(g);
      if (queries == nullptr) pack_queries(g);
      // A group that sees nothing may stand anywhere, {93, 93} for one.
      if (info_[g].any.begin >= info_[g].any.end) continue;
      begin_ = std::min(begin_, info_[g].any.begin);
      end_ = std::max(end_, info_[g].any.end);
    }
    if (end_ == 0) begin_ = 0;
    // A block starts where the split's keys start or at a multiple of four, so
    // that the four keys of a random draw are never cut.
    begin_ = begin_ / 4 * 4;
  }

  int groups() const { return groups_; }
  int row_count() const { return block_.row_count; }
  // Rows of padding repeat the last row.
  const AttentionRow& row(int i) const {
    return block_.rows[std::min(i, block_.row_count - 1)];
  }
  // The keys that any row sees.
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }

  // Makes [begin, end), at most kKeyBlock keys, the block that compute()
  // scores.
  HWY_INLINE void load_keys(std::int64_t begin, std::int64_t end) {
    block_keys_ = {begin, end};
    with_storage(block_.keys.storage,
                 [&]<typename T>(T*) HWY_ATTR { load<T>(); });
  }

  // The same with keys that the caller has packed.
  HWY_INLINE void borrow_keys(std::int64_t begin, std::int64_t end,
                              const float* keys, std::int64_t step) {
    block_keys_ = {begin, end};
    key_rows_ = keys;
    key_step_ = step;
  }

  // Scores group g; false if it sees none of the keys. What follows tells of
  // the last call.
  HWY_NOINLINE bool compute(int g) {
    const GroupInfo& info = info_[g];
    keys_ = {std::max(block_keys_.begin, info.any.begin),
             std::min(block_keys_.end, info.any.end)};
    if (keys_.begin >= keys_.end) return false;
    group_ = g;
    bool full = info.all.begin <= keys_.begin && keys_.end <= info.all.end;
    const bool dense = block_.dense_count > 0 && !full_by_dense();
    if (dense && !load_dense()) return false;
    const bool modified = block_.score.change_products();
    const float* q = queries(g);
    const Tag d;
    for (int j = 0; j < kGroupVecs; ++j) {
      hn::Store(hn::Set(d, -kInfinity), d, memory_.max + j * kVecLanes);
    }
    full = full && !dense;
    const Product product{q, key_rows(), key_step_, block_.keys.d_k,
                          memory_.scores};
    if (full && !modified) {
      score_all(product, info.vecs);
      return true;
    }
    // Whole tiles that every row sees have their maxima from the product.
    const Keys all = clip(info.all);
    Keys done{(all.begin + kTileKeys - 1) / kTileKeys * kTileKeys,
              all.end / kTileKeys * kTileKeys};
    if (dense || modified || done.begin >= done.end) done = {0, 0};
    score_visible(product, done);
    finish_scores(info, dense, done);
    return true;
  }

  std::int64_t first_key() const { return keys_.begin; }
  std::int64_t keys() const { return keys_.end - keys_.begin; }
  int vecs(int g) const { return info_[g].vecs; }
  // [key][row], from first_key() on, rows kGroupRows apart. Valid within
  // vec_keys; -inf where hidden.
  float* scores() const { return memory_.scores; }
  // [key][row]: the derivative of the softcap, where there is one. The caller
  // may write to it.
  float* cap_slopes() const { return memory_.cap_slopes; }
  // The maximum of each row.
  const float* max() const { return memory_.max; }
  // [kGroupRows][columns], for a KeyBlockProduct of values or of keys.
  float* waiting() const { return memory_.waiting; }
  // The keys that some row of a vector, or of a value tile, sees: from
  // first_key() on.
  Keys vec_keys(int j) const { return clip(info_[group_].vec_any[j]); }
  Keys tile_keys(int tile) const { return clip(info_[group_].tile_any[tile]); }
  // The rows, whole vectors of them, that see some of the keys [begin, end),
  // which count from first_key() on.
  HWY_INLINE Keys rows_of_keys(std::int64_t begin, std::int64_t end) const {
    const GroupInfo& info = info_[group_];
    int from = 0, to = info.vecs;
    const auto sees = [&](int j) HWY_ATTR {
      return info.vec_any[j].begin < keys_.begin + end &&
             info.vec_any[j].end > keys_.begin + begin;
    };
    while (from < to && !sees(from)) ++from;
    while (from < to && !sees(to - 1)) --to;
    return {from * kVecLanes, to * kVecLanes};
  }
  // Values of first_key() on, padded to whole vectors.
  const float* values() const {
    return values_ + (keys_.begin - block_keys_.begin) * value_step_;
  }
  std::int64_t value_step() const { return value_step_; }  // between keys
  std::int64_t value_stride() const { return memory_.value_columns; }
  // Keys of first_key() on, as floats, normalised for cosine scores.
  const float* key_rows() const {
    return key_rows_ + (keys_.begin - block_keys_.begin) * key_step_;
  }
  std::int64_t key_step() const { return key_step_; }
  const float* queries(int g) const {
    return queries_ + g * block_.keys.d_k * kGroupRows;
  }

  // out[key][row] <- rows . values for the pairs of compute() that may be
  // visible, with `rows` packed like queries: the product that the backward
  // pass needs beside the scores.
  HWY_INLINE void multiply(const float* rows, const float* values,
                           std::int64_t step, std::int64_t depth, float* out) {
    score_visible({rows, values, step, depth, out}, {0, 0});
  }

 private:
  struct GroupInfo {
    int vecs;  // vectors that hold rows
    Keys any;  // seen by some row
    Keys all;  // seen by every row
    Keys vec_any[kGroupVecs], vec_all[kGroupVecs];
    Keys tile_any[kGroupRows / kTileRows];
  };

  static HWY_INLINE Keys join(Keys a, Keys b) {  // some of either
    if (a.begin >= a.end) return b;
    if (b.begin >= b.end) return a;
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  }
  HWY_INLINE Keys clip(Keys k) const {
    const std::int64_t n = keys_.end - keys_.begin;
    const std::int64_t from =
        std::clamp<std::int64_t>(k.begin - keys_.begin, 0, n);
    return {from, std::clamp<std::int64_t>(k.end - keys_.begin, from, n)};
  }

  HWY_INLINE void measure_group(int g) {
    GroupInfo& info = info_[g];
    const int rows = std::min(kGroupRows, block_.row_count - g * kGroupRows);
    info.vecs = (rows + kVecLanes - 1) / kVecLanes;
    if (block_.same_keys) {
      const Keys seen{block_.rows[0].begin, block_.rows[0].end};
      info.any = info.all = seen;
      for (int j = 0; j < kGroupVecs; ++j) {
        info.vec_any[j] = info.vec_all[j] = seen;
      }
      for (Keys& tile : info.tile_any) tile = seen;
      return;
    }
    info.any = {0, 0};
    info.all = {0, INT64_MAX};
    for (int j = 0; j < kGroupVecs; ++j) {
      info.vec_any[j] = {0, 0};
      info.vec_all[j] = {0, INT64_MAX};
    }
    for (Keys& tile : info.tile_any) tile = {0, 0};
    for (int r = 0; r < info.vecs * kVecLanes; ++r) {
      const AttentionRow& at = row(g * kGroupRows + r);
      const Keys seen{at.begin, at.end};
      const int j = r / kVecLanes;
      info.vec_any[j] = join(info.vec_any[j], seen);
      info.vec_all[j] = {std::max(info.vec_all[j].begin, seen.begin),
                         std::min(info.vec_all[j].end, seen.end)};
      Keys& tile = info.tile_any[r / kTileRows];
      if (r < rows) tile = join(tile, seen);
    }
    for (int j = 0; j < info.vecs; ++j) {
      info.any = join(info.any, info.vec_any[j]);
      info.all = {std::max(info.all.begin, info.vec_all[j].begin),
                  std::min(info.all.end, info.vec_all[j].end)};
    }
  }

  // queries [d_k][kGroupRows] <- the rows' q, scaled to log2.
  HWY_INLINE void pack_queries(int g) {
    with_storage(block_.keys.storage,
                 [&]<typename T>(T*) HWY_ATTR { pack_queries_of<T>(g); });
  }

  template <typename T>
  HWY_INLINE void pack_queries_of(int g) {
    const std::int64_t d_k = block_.keys.d_k;
    float* const q = memory_.queries + g * d_k * kGroupRows;
    const int rows = std::min(kGroupRows, block_.row_count - g * kGroupRows);
    const float* at[kGroupRows];
    HWY_ALIGN float scale[kGroupRows] = {};
    for (int r = 0; r < rows; ++r) {
      const AttentionRow& from = block_.rows[g * kGroupRows + r];
      if constexpr (std::is_same_v<T, float>) {
        at[r] = static_cast<const float*>(from.q);
      } else {
        float* const to = memory_.rows + r * d_k;
        convert_row(static_cast<const T*>(from.q), d_k, to);
        at[r] = to;
      }
      scale[r] = from.scale * kLog2E;
      if (!block_.score.cosine) continue;
      const UnitFactors unit = unit_factors(at[r], d_k);
      scale[r] *= unit.inverse;
      if (unit.scale == 1) continue;
      float* const to = memory_.rows + r * d_k;
      for (std::int64_t c = 0; c < d_k; ++c) to[c] = at[r][c] * unit.scale;
      at[r] = to;
    }
    // Rows of padding repeat the last one, or are zero: nobody looks at them.
    const int whole = rows / kVecLanes * kVecLanes;
    const int some = rows - whole;
    const int all = some == 0 ? rows : whole + (some <= 4 ? 4 : kVecLanes);
    for (int r = rows; r < all; ++r) {
      at[r] = at[rows - 1];
      scale[r] = scale[rows - 1];
    }
    for (int r = 0; r + kVecLanes <= all; r += kVecLanes) {
      transpose_vector<true>(Tag(), at + r, d_k, q + r, scale + r);
    }
    if (all % kVecLanes != 0) {
      transpose_vector<true>(hn::FixedTag<float, 4>(), at + whole, d_k,
                             q + whole, scale + whole);
    }
  }

  template <typename T>
  HWY_INLINE void load() {
    const AttentionKeys& keys = block_.keys;
    const std::int64_t n = block_keys_.end - block_keys_.begin;
    const T* k =
        static_cast<const T*>(keys.k) + block_keys_.begin * keys.k_stride;
    const T* v =
        static_cast<const T*>(keys.v) + block_keys_.begin * keys.v_stride;
    // Rows far apart fall into few sets of the cache; several groups repay the
    // copy.
    const bool far_apart = groups_ > 1;
    if constexpr (std::is_same_v<T, float>) {
      key_rows_ = k;
      key_step_ = keys.k_stride;
      values_ = v;
      value_step_ = keys.v_stride;
      const bool copy_keys =
          block_.score.cosine || (far_apart && keys.k_stride > 2 * keys.d_k);
      // Products read whole strips of padded columns, which must not reach
      // behind the last row.
      const bool copy_values = keys.d_v != memory_.value_columns ||
                               (far_apart && keys.v_stride > 2 * keys.d_v);
      if (copy_keys) pack_keys(k, n);
      if (copy_values && v != nullptr) pack_values(v, n);
    } else {
      pack_keys(k, n);
      if (v != nullptr) pack_values(v, n);
    }
  }

  template <typename T>
  HWY_INLINE void pack_keys(const T* k, std::int64_t n) {
    const std::int64_t d_k = block_.keys.d_k;
    key_rows_ = memory_.keys;
    key_step_ = d_k;
    for (std::int64_t i = 0; i < n; ++i) {
      float* const to = memory_.keys + i * d_k;
      convert_row(k + i * block_.keys.k_stride, d_k, to);
      if (block_.score.cosine) normalize(to, d_k);
    }
  }

  template <typename T>
  HWY_INLINE void pack_values(const T* v, std::int64_t n) {
    const std::int64_t d_v = block_.keys.d_v;
    values_ = memory_.values;
    value_step_ = memory_.value_columns;
    for (std::int64_t i = 0; i < n; ++i) {
      float* const to = memory_.values + i * value_step_;
      convert_row(v + i * block_.keys.v_stride, d_v, to);
      for (std::int64_t c = d_v; c < value_step_; ++c) to[c] = 0;
    }
  }

  struct Product {
    const float* rows;  // [depth][kGroupRows]
    const float* keys;  // of first_key() on
    std::int64_t step;  // between keys
    std::int64_t depth;
    float* out;  // [key][kGroupRows]
  };

  HWY_INLINE void score_all(const Product& p, int vecs) {
    const std::int64_t n = keys_.end - keys_.begin;
    const float* k = p.keys;
    float* s = p.out;
    std::int64_t i = 0;
    for (; i + kTileKeys <= n; i += kTileKeys) {
      score_keys<kTileKeys>(p.rows, k, p.step, p.depth, s, memory_.max, vecs);
      k += kTileKeys * p.step;
      s += kTileKeys * kGroupRows;
    }
    if (i < n) {
      score_some(static_cast<int>(n - i), p.rows, k, p.step, p.depth, s,
                 memory_.max, vecs);
    }
  }

  // Only the vectors of rows that see a key of the tile. Maxima are taken of
  // the keys in `with_max` alone; of the others, not all may be visible.
  HWY_INLINE void score_visible(const Product& p, Keys with_max) {
    HWY_ALIGN float unused[kGroupRows] = {};
    const std::int64_t n = keys_.end - keys_.begin;
    for (std::int64_t i = 0; i < n; i += kTileKeys) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(kTileKeys, n - i));
      const Keys rows = rows_of_keys(i, i + count);
      if (rows.begin == rows.end) continue;
      score_some(count, p.rows + rows.begin, p.keys + i * p.step, p.step,
                 p.depth, p.out + i * kGroupRows + rows.begin,
                 with_max.begin <= i && i < with_max.end
                     ? memory_.max + rows.begin
                     : unused,
                 static_cast<int>(rows.end - rows.begin) / kVecLanes);
    }
  }

  // Softcap, bias, ALiBi and the mask, in this order; then the maxima. The
  // scores of the keys in `done` are ready, and in the maxima.
  HWY_INLINE void finish_scores(const GroupInfo& info, bool dense, Keys done) {
    const Tag d;
    const hn::RebindToUnsigned<Tag> du;
    const bool bias_tile = block_.score.has_bias && load_bias();
    HWY_ALIGN float begin[kVecLanes], end[kVecLanes], slope[kVecLanes],
        position[kVecLanes], bias[kVecLanes];
    for (int j = 0; j < info.vecs; ++j) {
      const Keys keys = clip(info.vec_any[j]);
      const Keys all = clip(info.vec_all[j]);
      for (int r = 0; r < kVecLanes; ++r) {
        const AttentionRow& at = row(group_ * kGroupRows + j * kVecLanes + r);
        const Keys seen = clip({at.begin, at.end});
        begin[r] = static_cast<float>(seen.begin);
        end[r] = static_cast<float>(seen.end);
        slope[r] = at.alibi_slope * kLog2E;
        position[r] = at.alibi_position - static_cast<float>(keys_.begin);
        bias[r] = block_.score.has_bias && !bias_tile ? *at.bias : 0;
      }
      const Vec v_begin = hn::Load(d, begin);
      const Vec v_end = hn::Load(d, end);
      const Vec v_slope = hn::Load(d, slope);
      const Vec v_position = hn::Load(d, position);
      const Vec row_bias = hn::Load(d, bias);
      const ScoreModifier modify(block_.score);
      Vec max = hn::Load(d, memory_.max + j * kVecLanes);
      if (bias_tile && block_.score.softcap == 0 && !block_.score.has_alibi &&
          !dense && all.begin <= keys.begin && keys.end <= all.end) {
        hn::Store(add_biases(j, keys, max), d, memory_.max + j * kVecLanes);
        continue;
      }
      for (std::int64_t i = keys.begin; i < keys.end; ++i) {
        if (i == done.begin) i = std::max(i, done.end);
        if (i >= keys.end) break;
        const std::int64_t at = i * kGroupRows + j * kVecLanes;
        float* const s_at = memory_.scores + at;
        const auto bias_of_key = [&]() HWY_ATTR {
          return bias_tile ? hn::Load(d, memory_.modifier + at) : row_bias;
        };
        const Vec key = hn::Set(d, static_cast<float>(i));
        Vec s = modify(hn::Load(d, s_at), bias_of_key, v_slope, v_position, key,
                       memory_.cap_slopes + at);
        if (i < all.begin || i >= all.end) {
          const auto seen = hn::And(hn::Le(v_begin, key), hn::Lt(key, v_end));
          s = hide_unless(seen, s);
        }
        if (dense) {
          const hn::Rebind<std::uint8_t, Tag> d8;
          const auto bytes = hn::LoadU(d8, memory_.visible + at);
          const auto seen = hn::Ne(hn::PromoteTo(du, bytes), hn::Zero(du));
          s = hide_unless(hn::RebindMask(d, seen), s);
        }
        hn::Store(s, d, s_at);
        max = hn::Max(s, max);
      }
      hn::Store(max, d, memory_.max + j * kVecLanes);
    }
  }

  // Nothing but a bias, on keys that every row sees: no question for each key.
  HWY_INLINE Vec add_biases(int j, Keys keys, Vec max) {
    const Tag d;
    float* const scores = memory_.scores + j * kVecLanes;
    const float* const bias = memory_.modifier + j * kVecLanes;
    HWY_UNROLL(4)
    for (std::int64_t i = keys.begin; i < keys.end; ++i) {
      const Vec s = add_bias(hn::Load(d, scores + i * kGroupRows),
                             hn::Load(d, bias + i * kGroupRows));
      hn::Store(s, d, scores + i * kGroupRows);
      max = hn::Max(s, max);
    }
    return max;
  }

  // modifier [key][row] <- the bias of the block's keys; false when a row has
  // one bias for all keys.
  HWY_INLINE bool load_bias() {
    if (block_.score.bias_key_stride == 0) return false;
    const float* at[kGroupRows];
    const int rows = info_[group_].vecs * kVecLanes;
    for (int r = 0; r < rows; ++r) {
      at[r] = row(group_ * kGroupRows + r).bias + keys_.begin;
    }
    const std::int64_t count = keys_.end - keys_.begin;
    if (keys_.end < end_) {
      const std::int64_t next = std::min(count, end_ - keys_.end);
      for (int r = 0; r < rows; ++r) fetch(at[r] + count, next);
    }
    transpose_rows(at, rows, count, memory_.modifier);
    return true;
  }

  const bool* dense_row(int part, int r) const {
    const int at = std::min(group_ * kGroupRows + r, block_.row_count - 1);
    return block_.dense[part].rows[block_.first_row + at] + keys_.begin;
  }

  // Whether the dense parts hide nothing of the block.
  HWY_INLINE bool full_by_dense() const {
    const int rows =
        std::min(kGroupRows, block_.row_count - group_ * kGroupRows);
    for (int part = 0; part < block_.dense_count; ++part) {
      for (int r = 0; r < rows; ++r) {
        if (!all_equal(dense_row(part, r), keys_.end - keys_.begin,
                       block_.dense[part].visible_when)) {
          return false;
        }
      }
    }
    return true;
  }

  static HWY_INLINE bool all_equal(const bool* flags, std::int64_t n,
                                   bool wanted) {
    const hn::ScalableTag<std::uint8_t> d8;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d8));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(flags);
    const auto differs = [&](std::int64_t at) HWY_ATTR {
      const auto zero = hn::Eq(hn::LoadU(d8, bytes + at), hn::Zero(d8));
      return wanted ? !hn::AllFalse(d8, zero) : !hn::AllTrue(d8, zero);
    };
    if (n < lanes) {
      for (std::int64_t i = 0; i < n; ++i) {
        if ((bytes[i] != 0) != wanted) return false;
      }
      return true;
    }
    for (std::int64_t i = 0; i + lanes < n; i += lanes) {
      if (differs(i)) return false;
    }
    return !differs(n - lanes);  // may look at some twice
  }

  // visible [key][row] <- whether every dense part shows the pair; false if
  // none is shown at all.
  HWY_INLINE bool load_dense() {
    const std::int64_t n = keys_.end - keys_.begin;
    const int rows = info_[group_].vecs * kVecLanes;
    const int real =
        std::min(kGroupRows, block_.row_count - group_ * kGroupRows);
    bool some = false;
    for (int part = 0; part < block_.dense_count && !some; ++part) {
      if (block_.dense_count > 1) some = true;  // found out pair by pair
      for (int r = 0; r < real && !some; ++r) {
        some =
            !all_equal(dense_row(part, r), n, !block_.dense[part].visible_when);
      }
    }
    if (!some) return false;
    std::memset(memory_.visible, 1, static_cast<std::size_t>(n * kGroupRows));
    for (int part = 0; part < block_.dense_count; ++part) {
      for (int r = 0; r < rows; r += 8) add_dense_rows(part, r, n);
    }
    return true;
  }

  // Eight rows of one dense part into `visible`: bytes transposed 8 by 8.
  HWY_INLINE void add_dense_rows(int part, int r, std::int64_t n) {
    const bool wanted = block_.dense[part].visible_when;
    const std::uint8_t* from[8];
    for (int i = 0; i < 8; ++i) {
      from[i] = reinterpret_cast<const std::uint8_t*>(dense_row(part, r + i));
    }
    std::int64_t key = 0;
    for (; key + 8 <= n; key += 8) {
      std::uint64_t x[8];
      for (int i = 0; i < 8; ++i) {
        std::uint64_t bytes;
        std::memcpy(&bytes, from[i] + key, 8);
        // 1 where a byte is not zero, whatever a hostile bool holds.
        bytes |= bytes >> 4 & 0x0f0f0f0f0f0f0f0fu;
        bytes |= bytes >> 2 & 0x0303030303030303u;
        bytes |= bytes >> 1;
        bytes &= 0x0101010101010101u;
        x[i] = wanted ? bytes : bytes ^ 0x0101010101010101u;
      }
      swap_blocks<1>(x, 8, 0x00ff00ff00ff00ffu);
      swap_blocks<2>(x, 16, 0x0000ffff0000ffffu);
      swap_blocks<4>(x, 32, 0x00000000ffffffffu);
      for (int i = 0; i < 8; ++i) {
        std::uint8_t* const to = memory_.visible + (key + i) * kGroupRows + r;
        std::uint64_t bytes;
        std::memcpy(&bytes, to, 8);
        bytes &= x[i];
        std::memcpy(to, &bytes, 8);
      }
    }
    for (; key < n; ++key) {
      for (int i = 0; i < 8; ++i) {
        memory_.visible[key * kGroupRows + r + i] &=
            static_cast<std::uint8_t>((from[i][key] != 0) == wanted);
      }
    }
  }

  // One step of a transpose: exchanges the off-diagonal blocks of kStep words.
  template <int kStep>
  static HWY_INLINE void swap_blocks(std::uint64_t* x, int bits,
                                     std::uint64_t low) {
    for (int i = 0; i < 8; ++i) {
      if (i & kStep) continue;
      const std::uint64_t a = x[i], b = x[i + kStep];
      x[i] = (a & low) | (b & low) << bits;
      x[i + kStep] = (a >> bits & low) | (b & ~low);
    }
  }

  const AttentionBlock& block_;
  const int groups_;
  const AttentionScratch memory_;
  const float* const queries_;
  GroupInfo info_[kMaxRows / kGroupRows];
  std::int64_t begin_, end_;

  Keys block_keys_{};  // of load_keys
  const float* key_rows_ = nullptr;
  const float* values_ = nullptr;
  std::int64_t key_step_ = 0;
  std::int64_t value_step_ = 0;

  int group_ = 0;  // of compute
  Keys keys_{};
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
