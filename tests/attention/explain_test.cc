// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/attention_forward.h"
#include "mask/bound_mask.h"
#include "support/every_path.h"
#include "support/refusal.h"
#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::DenseBools;
using test::MaskSpec;
using test::Rng;
using ::testing::StartsWith;

AttentionShape shape_of(const AttentionCase& c) {
  return {.batch = c.rows(),
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .q_len = c.q_len,
          .kv_len = c.kv_len,
          .d_k = c.d_k,
          .d_v = c.d_v};
}

Explanation explain_case(const AttentionCase& c, int threads = 1) {
  test::CallOptions<float> options(c);
  options.value.threads.count = threads;
  return explain(shape_of(c), options.value);
}

// Tiles counted pair by pair, from the sizes that the explanation names. Rows
// of a key-value head stand query by query, the heads of a query together. They
// are cut into blocks, those into groups; a group and a run of keys are a tile.
// Runs are counted from key 0.
class BruteForce {
 public:
  std::int64_t visible = 0, full = 0, mixed = 0, skipped = 0, visited = 0;

  BruteForce(const AttentionCase& c, const Explanation& e) : c_(c), e_(e) {
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const std::int64_t rows = c.entry(b).sizes.q_len * c.group();
      for (std::int64_t h = 0; h < c.kv_heads; ++h) {
        for (std::int64_t r = 0; r < rows; r += e.rows_per_block) {
          count_block(b, h, r, std::min(rows, r + e.rows_per_block));
        }
      }
    }
  }

 private:
  bool sees(std::int64_t b, std::int64_t h, std::int64_t row,
            std::int64_t key) const {
    return c_.mask.visible(c_.entry(b).sizes, b,
                           h * c_.group() + row % c_.group(), row / c_.group(),
                           key);
  }

  // Whether a dense mask hides keys between those that a row of the block sees:
  // then every tile is looked at.
  bool has_holes(std::int64_t b, std::int64_t h, std::int64_t from,
                 std::int64_t to) const {
    if (c_.mask.parts.size() != 1 ||
        (c_.mask.parts[0].kind != MaskSpec::Kind::kKeep &&
         c_.mask.parts[0].kind != MaskSpec::Kind::kDrop)) {
      return false;
    }
    for (std::int64_t row = from; row < to; ++row) {
      const KeyRange seen = hull(b, h, row, row + 1);
      for (std::int64_t key = seen.begin; key < seen.end; ++key) {
        if (!sees(b, h, row, key)) return true;
      }
    }
    return false;
  }

  KeyRange hull(std::int64_t b, std::int64_t h, std::int64_t from,
                std::int64_t to) const {
    const std::int64_t keys = c_.entry(b).sizes.kv_len;
    KeyRange range{keys, 0};
    for (std::int64_t row = from; row < to; ++row) {
      for (std::int64_t key = 0; key < keys; ++key) {
        if (!sees(b, h, row, key)) continue;
        range = {std::min(range.begin, key), std::max(range.end, key + 1)};
      }
    }
    return range.end == 0 ? KeyRange{0, 0} : range;
  }

  void count_block(std::int64_t b, std::int64_t h, std::int64_t from,
                   std::int64_t to) {
    holes_ = has_holes(b, h, from, to);
    for (std::int64_t g = from; g < to; g += e_.tile_rows) {
      count_group(b, h, {g, std::min(to, g + e_.tile_rows)});
    }
  }

  void count_group(std::int64_t b, std::int64_t h, KeyRange rows) {
    const std::int64_t keys = c_.entry(b).sizes.kv_len;
    const KeyRange group = hull(b, h, rows.begin, rows.end);
    for (std::int64_t key = 0; key < keys; key += e_.tile_keys) {
      const KeyRange tile{std::max(key, group.begin),
                          std::min({keys, key + e_.tile_keys, group.end})};
      const bool visits = tile.begin < tile.end && count_tile(b, h, rows, tile);
      skipped += visits ? 0 : 1;
    }
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (std::int64_t key = 0; key < keys; ++key) {
        visible += sees(b, h, row, key);
      }
    }
  }

  bool count_tile(std::int64_t b, std::int64_t h, KeyRange rows,
                  KeyRange keys) {
    const std::int64_t pairs =
        (rows.end - rows.begin) * (keys.end - keys.begin);
    std::int64_t shown = 0;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (std::int64_t key = keys.begin; key < keys.end; ++key) {
        shown += sees(b, h, row, key);
      }
    }
    if (shown == 0 && holes_) return false;
    ++(shown == pairs ? full : mixed);
    visited += pairs;
    return true;
  }

  const AttentionCase& c_;
  const Explanation& e_;
  bool holes_ = false;
};

void expect_counts(const AttentionCase& c) {
  for (const int threads : {1, 2}) {
    const Explanation e = explain_case(c, threads);
    SCOPED_TRACE(c.describe() + "\n" + to_string(e));
    ASSERT_EQ(e.path, AttentionPath::kFused);
    const BruteForce truth(c, e);
    EXPECT_EQ(e.visible_pairs, truth.visible);
    EXPECT_EQ(e.full_tiles, truth.full);
    EXPECT_EQ(e.mixed_tiles, truth.mixed);
    EXPECT_EQ(e.skipped_tiles, truth.skipped);
    EXPECT_EQ(e.visited_pairs, truth.visited);
    EXPECT_EQ(e.flops, 2.0 * static_cast<double>(c.d_k + c.d_v) *
                           static_cast<double>(truth.visible));
    EXPECT_GT(e.scratch_bytes, 0);
  }
}

AttentionCase sized(std::int64_t q_len, std::int64_t kv_len,
                    std::int64_t kv_heads = 1) {
  return {.batch = 2,
          .heads = 3 * kv_heads,
          .kv_heads = kv_heads,
          .q_len = q_len,
          .kv_len = kv_len,
          .d_k = 16,
          .d_v = 24};
}

TEST(Explain, CountsTheTilesOfEveryMaskPairByPair) {
  for (const auto& [q_len, kv_len] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {97, 97}, {130, 400}, {50, 1100}, {300, 40}}) {
    AttentionCase c = sized(q_len, kv_len);
    expect_counts(c);
    std::vector<std::int32_t> query_ids, key_ids;
    for (std::int64_t i = 0; i < q_len; ++i) {
      query_ids.push_back(static_cast<std::int32_t>(i * 3 / q_len));
    }
    for (std::int64_t j = 0; j < kv_len; ++j) {
      key_ids.push_back(static_cast<std::int32_t>(j * 3 / kv_len));
    }
    for (const MaskSpec& mask :
         {test::prefix_spec(kv_len / 3),
          test::lengths_spec({kv_len / 2 + 1, kv_len}, {q_len, q_len / 2}),
          test::causal_spec(mask::kTopLeft),
          test::documents_spec(query_ids, key_ids)}) {
      c.mask = mask;
      expect_counts(c);
    }
  }
}

TEST(Explain, CountsTheTilesOfWindowsFromTheirFirstKey) {
  AttentionCase c = sized(400, 400);
  for (const std::int64_t width : {0, 7, 100}) {
    c.mask = test::window_spec(width, width);
    expect_counts(c);
    c.mask = test::window_spec(width, 0) & test::causal_spec();
    expect_counts(c);
  }
  // Blocks of 32 queries, three heads each, see 96 keys.
  c.mask = test::window_spec(31, 33);
  expect_counts(c);
}

TEST(Explain, CountsTheTilesOfADenseMask) {
  AttentionCase c = sized(200, 300, 2);
  DenseBools pairs({1, 1, 200, 300});
  for (std::int64_t i = 0; i < 200; ++i) {
    for (std::int64_t j = 0; j < 300; ++j) pairs(0, 0, i, j) = j <= i;
  }
  c.mask = test::keep_spec(pairs);
  expect_counts(c);
  c.mask = test::drop_spec(pairs);
  expect_counts(c);
  Rng rng(1);
  c.mask = test::keep_spec(test::random_bools(rng, {1, 1, 200, 300}, 0.001));
  expect_counts(c);
}

TEST(Explain, CountsPackedSequencesEachOnItsOwn) {
  AttentionCase c = sized(250, 300);
  c.batch = 4;
  c.q_offsets = {0, 100, 100, 248, 250};
  c.kv_offsets = {0, 90, 95, 95, 300};
  expect_counts(c);
  c.mask = test::causal_spec();
  expect_counts(c);
}

// Tiles walked one by one, from the keys that each query sees: for sizes where
// nobody can look at every pair.
class TileWalk {
 public:
  std::int64_t visible = 0, full = 0, mixed = 0, skipped = 0, visited = 0;

  template <typename Seen>
  TileWalk(const Explanation& e, const Seen& seen) {
    const AttentionShape& s = e.shape;
    const std::int64_t group = s.heads / s.kv_heads, rows = s.q_len * group;
    for (std::int64_t first = 0; first < rows; first += e.rows_per_block) {
      const std::int64_t last = std::min(rows, first + e.rows_per_block);
      std::vector<KeyRange> some, every;
      std::vector<std::int64_t> counts;
      for (std::int64_t g = first; g < last; g += e.tile_rows) {
        KeyRange any{s.kv_len, 0}, all{0, s.kv_len};
        const std::int64_t end = std::min(last, g + e.tile_rows);
        for (std::int64_t row = g; row < end; ++row) {
          const KeyRange keys = seen(row / group);
          all = {std::max(all.begin, keys.begin), std::min(all.end, keys.end)};
          if (keys.begin >= keys.end) continue;
          any = {std::min(any.begin, keys.begin), std::max(any.end, keys.end)};
          visible += keys.end - keys.begin;
        }
        if (any.end == 0) any = {0, 0};
        some.push_back(any);
        every.push_back(all);
        counts.push_back(end - g);
      }
      for (std::size_t g = 0; g < some.size(); ++g) {
        for (std::int64_t key = 0; key < s.kv_len; key += e.tile_keys) {
          const KeyRange tile{
              std::max(key, some[g].begin),
              std::min({s.kv_len, key + e.tile_keys, some[g].end})};
          if (tile.begin >= tile.end) {
            ++skipped;
            continue;
          }
          visited += counts[g] * (tile.end - tile.begin);
          ++(every[g].begin <= tile.begin && tile.end <= every[g].end ? full
                                                                      : mixed);
        }
      }
    }
  }
};

// Of one batch entry and key-value head; others are counted as often.
template <typename Seen>
void expect_walk(const AttentionShape& shape, const Mask& mask,
                 const Seen& seen) {
  const Explanation e = explain(shape, {.mask = mask});
  SCOPED_TRACE(to_string(e));
  ASSERT_EQ(e.path, AttentionPath::kFused);
  const TileWalk truth(e, seen);
  const std::int64_t times = shape.batch * shape.kv_heads;
  EXPECT_EQ(e.visible_pairs, times * truth.visible);
  EXPECT_EQ(e.full_tiles, times * truth.full);
  EXPECT_EQ(e.mixed_tiles, times * truth.mixed);
  EXPECT_EQ(e.skipped_tiles, times * truth.skipped);
  EXPECT_EQ(e.visited_pairs, times * truth.visited);
}

TEST(Explain, CountsLongInputsAsAWalkOverTheirTilesDoes) {
  // Widths of a window from none to many splits, and offsets that are no
  // multiple of anything.
  for (const auto& [q_len, kv_len, group] :
       std::vector<std::array<std::int64_t, 3>>{{40000, 40000, 1},
                                                {30001, 47011, 1},
                                                {47011, 30001, 3},
                                                {20000, 35000, 8},
                                                {15000, 9000, 100}}) {
    const AttentionShape shape{.batch = 2,
                               .heads = 2 * group,
                               .kv_heads = 2,
                               .q_len = q_len,
                               .kv_len = kv_len,
                               .d_k = 64,
                               .d_v = 64};
    const std::int64_t n = kv_len, shift = kv_len - q_len;
    const auto within = [n](std::int64_t begin, std::int64_t end) {
      begin = std::clamp<std::int64_t>(begin, 0, n);
      return KeyRange{begin, std::clamp(end, begin, n)};
    };
    expect_walk(shape, {}, [&](std::int64_t) { return within(0, n); });
    expect_walk(shape, mask::causal(),
                [&](std::int64_t q) { return within(0, q + shift + 1); });
    expect_walk(shape, mask::causal(mask::kTopLeft),
                [&](std::int64_t q) { return within(0, q + 1); });
    for (const std::int64_t width : {0, 5, 1000, 5001}) {
      expect_walk(shape, mask::window(width, 2 * width), [&](std::int64_t q) {
        return within(q + shift - width, q + shift + 2 * width + 1);
      });
      expect_walk(shape, mask::window(width, -1),
                  [&](std::int64_t q) { return within(q + shift - width, n); });
      expect_walk(shape, mask::prefix(3 * width + 1) & mask::window(width, 50),
                  [&](std::int64_t q) {
                    return within(
                        q + shift - width,
                        std::min(q + shift + 51,
                                 std::max(q + shift + 1, 3 * width + 1)));
                  });
    }
    const std::int64_t known = n * 2 / 3, asked = q_len * 4 / 5;
    const std::vector<std::int64_t> kv_lengths(2, known), lengths(2, asked);
    expect_walk(shape, mask::causal() & mask::lengths(kv_lengths, lengths),
                [&](std::int64_t q) {
                  return within(0,
                                q < asked ? std::min(known, q + shift + 1) : 0);
                });
  }
}

TEST(Explain, CountsMoreThanAnybodyCouldWalkOver) {
  AttentionShape shape{.batch = 1,
                       .heads = 8,
                       .kv_heads = 1,
                       .q_len = 1000000000,
                       .kv_len = 1000000000,
                       .d_k = 64,
                       .d_v = 64};
  const Explanation e = explain(shape, {.mask = mask::causal()});
  // 8 heads of n (n + 1) / 2 pairs.
  EXPECT_EQ(e.visible_pairs, 4000000004000000000);
  // 8 heads of 6 queries are a group of rows.
  const std::int64_t groups = (8000000000 + 47) / 48;
  const std::int64_t tiles = 1000000000 / 128;
  EXPECT_EQ(e.full_tiles + e.mixed_tiles + e.skipped_tiles, groups * tiles);
  shape.dtype = DType::kFloat64;
  EXPECT_EQ(explain(shape, {.mask = mask::causal()}).visible_pairs,
            4000000004000000000);
  shape.batch = 1 << 20;
  EXPECT_THAT(test::refusal([&] { explain(shape); }),
              StartsWith("explain: batch * heads * q_len * kv_len must be"));
}

TEST(Explain, TellsThatFewRowsOfManyKeysRunInSplits) {
  AttentionCase c = sized(1, 8192);
  c.batch = 1;
  c.heads = c.kv_heads = 2;
  c.d_k = c.d_v = 64;
  EXPECT_EQ(explain_case(c, 2).splits, 8);
  EXPECT_EQ(explain_case(c, 1).splits, 0);
  c.q_len = 4096;
  EXPECT_EQ(explain_case(c, 2).splits, 0);
}

TEST(Explain, NamesThePlainPathOfDoubleAndOfMachinesWithoutVectors) {
  AttentionShape shape = shape_of(sized(70, 90));
  EXPECT_EQ(explain(shape).path, AttentionPath::kFused);
  shape.dtype = DType::kFloat64;
  const Explanation e = explain(shape, {.mask = mask::causal()});
  EXPECT_EQ(e.path, AttentionPath::kPlain);
  EXPECT_EQ(e.visible_pairs, 2 * 3 * (21 + 90) * 70 / 2);
  EXPECT_EQ(e.rows, 2 * 3 * 70);
  EXPECT_EQ(e.scratch_bytes, e.threads * (90 + 24) * 8);
  shape.dtype = DType::kBFloat16;
  test::on_every_simd_target([&](const std::string& target) {
    EXPECT_EQ(explain(shape).path, kernels::attention_has_kernel()
                                       ? AttentionPath::kFused
                                       : AttentionPath::kPlain);
    EXPECT_EQ(explain(shape).simd_target, target);
  });
}

TEST(Explain, HasNothingToDoWhereThereIsNothing) {
  for (const auto member : {&AttentionShape::batch, &AttentionShape::q_len,
                            &AttentionShape::kv_len}) {
    AttentionShape shape = shape_of(sized(5, 5));
    shape.*member = 0;
    const Explanation e = explain(shape);
    EXPECT_EQ(e.visible_pairs, 0);
    EXPECT_EQ(e.flops, 0);
    EXPECT_EQ(e.full_tiles + e.mixed_tiles + e.skipped_tiles, 0);
  }
}

TEST(Explain, ReadsWellInATerminal) {
  Explanation e{.shape = {.batch = 1,
                          .heads = 8,
                          .kv_heads = 2,
                          .q_len = 4096,
                          .kv_len = 1,
                          .d_k = 64,
                          .d_v = 128,
                          .dtype = DType::kBFloat16},
                .path = AttentionPath::kFused,
                .simd_target = "AVX2",
                .threads = 2,
                .rows = 32768,
                .row_blocks = 86,
                .rows_per_block = 384,
                .tile_rows = 48,
                .tile_keys = 96,
                .full_tiles = 14000,
                .mixed_tiles = 860,
                .skipped_tiles = 14140,
                .pairs = 134217728,
                .visible_pairs = 67125248,
                .flops = 17.18e9,
                .scratch_bytes = 1234567};
  EXPECT_EQ(to_string(e),
            "attention  batch 1, heads 8 on 2, 4,096 queries x 1 key, d_k 64, "
            "d_v 128, bfloat16\n"
            "path       fused, AVX2, 2 threads\n"
            "pairs      67,125,248 of 134,217,728 visible (50.0 %)\n"
            "tiles      14,860 of 29,000 visited, 48 rows x 96 keys: 14,000 "
            "full, 860 mixed, 14,140 skipped\n"
            "rows       32,768 in 86 blocks of at most 384\n"
            "keys       splits of 1,024, one after the other\n"
            "work       17.2 GFLOP\n"
            "scratch    1.23 MB\n");
  e.path = AttentionPath::kPlain;
  e.threads = 1;
  e.shape.kv_heads = 8;
  EXPECT_EQ(to_string(e),
            "attention  batch 1, heads 8, 4,096 queries x 1 key, d_k 64, "
            "d_v 128, bfloat16\n"
            "path       plain loops, 1 thread\n"
            "pairs      67,125,248 of 134,217,728 visible (50.0 %)\n"
            "work       17.2 GFLOP\n"
            "scratch    1.23 MB\n");
}

TEST(Explain, TakesTheShapeOfViews) {
  const std::vector<Float16> values(1000);
  using View = TensorView<const Float16, 4>;
  const View q(values.data(), {2, 4, 5, 3}), k(values.data(), {2, 2, 7, 3}),
      v(values.data(), {2, 2, 7, 6});
  const AttentionShape shape = attention_shape(q, k, v);
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(shape.heads, 4);
  EXPECT_EQ(shape.kv_heads, 2);
  EXPECT_EQ(shape.q_len, 5);
  EXPECT_EQ(shape.kv_len, 7);
  EXPECT_EQ(shape.d_k, 3);
  EXPECT_EQ(shape.d_v, 6);
  EXPECT_EQ(shape.dtype, DType::kFloat16);
  EXPECT_EQ(explain(shape).pairs, 2 * 4 * 5 * 7);
}

std::string refusal(const AttentionShape& shape,
                    const AttentionOptions& options = {}) {
  return test::refusal([&] { explain(shape, options); });
}

TEST(Explain, RefusesWhatForwardWouldRefuse) {
  const AttentionShape good = shape_of(sized(5, 7));
  EXPECT_EQ(refusal(good), "accepted");
  AttentionShape shape = good;
  shape.q_len = -1;
  EXPECT_EQ(refusal(shape),
            "explain: no extent may be negative; batch, heads, kv_heads, "
            "q_len, kv_len, d_k and d_v are [2, 3, 1, -1, 7, 16, 24]");
  shape = good;
  shape.dtype = DType::kInt8;
  EXPECT_EQ(refusal(shape),
            "explain: the dtype must be float32, bfloat16, float16 or float64; "
            "it is int8");
  shape = good;
  shape.kv_heads = 2;
  EXPECT_THAT(refusal(shape), StartsWith("explain: kv_heads must divide"));
  EXPECT_THAT(refusal(good, {.mask = mask::prefix(-1)}),
              StartsWith("explain: the prefix of a mask must not be negative"));
  AttentionOptions in_bf16;
  in_bf16.compute = Compute::kBFloat16;
  EXPECT_EQ(refusal(good, in_bf16),
            "explain: compute must be kFloat32: other arithmetic has no tiles "
            "to tell of");
  const std::vector<float> values(10);
  EXPECT_EQ(test::refusal([&] {
              attention_shape(
                  TensorView<const float, 4>(values.data(), {1, 1, 2, 3}),
                  TensorView<const float, 4>(values.data(), {1, 1, 2, 4}),
                  TensorView<const float, 4>(values.data(), {1, 1, 2, 3}));
            }),
            "attention_shape: q, k and v must belong together; q is "
            "[1, 1, 2, 3], k is [1, 1, 2, 4], v is [1, 1, 2, 3]");
}

}  // namespace
}  // namespace regard
