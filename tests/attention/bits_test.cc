// SPDX-License-Identifier: Apache-2.0
// One result: the bits of an output row depend on its own query, the keys that
// it sees and the options, and on nothing else.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/every_path.h"
#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Layout;
using test::MaskSpec;
using test::part_of;
using test::Rng;

// Rows [first, ...) of entry b of the whole are the rows of the part.
template <typename T>
void expect_same_rows(const AttentionCase& whole,
                      const test::Produced<T>& whole_result, std::int64_t b,
                      std::int64_t first, const AttentionCase& part,
                      const test::Produced<T>& part_result) {
  const auto e = whole.entry(b);
  std::int64_t different = 0;
  for (std::int64_t h = 0; h < whole.heads; ++h) {
    for (std::int64_t i = 0; i < part.q_len; ++i) {
      const auto in_whole = whole.query_at(e, h, first + i, 1);
      const auto in_part = static_cast<std::size_t>(h * part.q_len + i);
      const bool same =
          std::memcmp(&whole_result.out[in_whole * whole.d_v],
                      &part_result.out[in_part * part.d_v],
                      static_cast<std::size_t>(part.d_v) * sizeof(T)) == 0 &&
          std::memcmp(&whole_result.lse[in_whole], &part_result.lse[in_part],
                      sizeof(whole_result.lse[0])) == 0;
      different += same ? 0 : 1;
    }
  }
  EXPECT_EQ(different, 0) << "rows of entry " << b << " from " << first
                          << " differ; " << part.describe();
}

template <typename T>
void expect_same(const test::Produced<T>& a, const test::Produced<T>& b,
                 const std::string& what) {
  EXPECT_EQ(test::different_bits(a, b), "") << what;
}

AttentionCase sized(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
                    std::int64_t d_k = 24, std::int64_t d_v = 40) {
  return test::filled({batch, 4, 2, q_len, kv_len, d_k, d_v});
}

// Options that add arithmetic to a row but do not tie it to its place.
std::vector<AttentionCase> with_options(const AttentionCase& plain) {
  std::vector<AttentionCase> all(4, plain);
  all[1].softcap = 4;
  all[1].alibi_slopes = {0.1, 0.2, -0.1, 0};
  all[2].cosine = true;
  all[2].head_scales = {4, 1, -2, 9};
  all[2].sinks = {0, 1, -3, 7};
  all[3].scale = 1.3;  // scores far apart, so that the maximum moves
  return all;
}

template <typename T>
class Bits : public ::testing::Test {};
using Storages = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(Bits, Storages);

template <typename T>
test::Produced<T> run(const AttentionCase& c,
                      const test::RunOptions& how = {}) {
  return test::run_attention<T>(test::rounded_to<T>(c), how);
}

TYPED_TEST(Bits, DoNotDependOnTheNumberOfThreads) {
  for (const AttentionCase& shape :
       {sized(2, 150, 150), sized(1, 1, 5000), sized(3, 7, 1100),
        sized(1, 300, 2100, 16, 16)}) {
    for (AttentionCase c : with_options(shape)) {
      c.dropout_rate = 0.1f;
      for (const MaskSpec& mask : {MaskSpec{}, test::causal_spec()}) {
        c.mask = mask;
        const auto one = run<TypeParam>(c, {.threads = 1});
        for (const int threads : {2, 3, 5}) {
          expect_same(one, run<TypeParam>(c, {.threads = threads}),
                      c.describe() + ", threads " + std::to_string(threads));
        }
      }
    }
  }
}

TYPED_TEST(Bits, DoNotDependOnTheBatch) {
  for (const AttentionCase& shape : {sized(7, 33, 70), sized(7, 3, 1300, 8, 8),
                                     sized(7, 1, 97), sized(7, 130, 20)}) {
    for (AttentionCase c : with_options(shape)) {
      c.mask = test::causal_spec();
      const auto whole = run<TypeParam>(c);
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const AttentionCase alone = test::alone(c, b);
        expect_same_rows(c, whole, b, 0, alone, run<TypeParam>(alone));
      }
    }
  }
}

// Each sequence padded to the longest, packed after the others, and alone.
TYPED_TEST(Bits, DoNotDependOnPaddingOrPacking) {
  const std::vector<std::int64_t> lengths{5, 130, 1, 49, 1200, 64};
  for (AttentionCase c : with_options(sized(6, 1200, 1200, 8, 8))) {
    for (const MaskSpec& inner : {test::causal_spec(mask::kTopLeft), MaskSpec{},
                                  test::window_spec(30, 4, mask::kTopLeft)}) {
      c.alibi_slopes.clear();
      c.mask = test::lengths_spec(lengths, lengths) & inner;
      const auto padded = run<TypeParam>(c);
      AttentionCase packed = test::packed_shape(c, lengths, lengths);
      packed.mask = inner;
      packed.q.resize(test::volume(packed.q_shape()));
      packed.k.resize(test::volume(packed.k_shape()));
      packed.v.resize(test::volume(packed.v_shape()));
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const auto from = c.entry(b);
        const auto to = packed.entry(b);
        for (std::int64_t h = 0; h < c.heads; ++h) {
          std::copy_n(&c.q[c.query_at(from, h, 0, c.d_k)], lengths[b] * c.d_k,
                      &packed.q[packed.query_at(to, h, 0, c.d_k)]);
          std::copy_n(&c.k[c.key_at(from, h, 0, c.d_k)], lengths[b] * c.d_k,
                      &packed.k[packed.key_at(to, h, 0, c.d_k)]);
          std::copy_n(&c.v[c.key_at(from, h, 0, c.d_v)], lengths[b] * c.d_v,
                      &packed.v[packed.key_at(to, h, 0, c.d_v)]);
        }
      }
      const auto tight = run<TypeParam>(packed);
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const AttentionCase alone =
            part_of(c, b, {0, lengths[b]}, lengths[b], inner);
        const auto result = run<TypeParam>(alone);
        expect_same_rows(c, padded, b, 0, alone, result);
        expect_same_rows(packed, tight, b, 0, alone, result);
      }
    }
  }
}

// A prompt in one go, in chunks over the growing keys, and token by token.
TYPED_TEST(Bits, DoNotDependOnChunking) {
  for (AttentionCase c : with_options(sized(1, 1150, 1150, 8, 16))) {
    for (const MaskSpec& mask :
         {test::causal_spec(), test::causal_spec() & test::window_spec(100, 0),
          test::prefix_spec(0)}) {
      c.mask = mask;
      const auto whole = run<TypeParam>(c);
      std::int64_t begin = 0;
      std::int64_t n = 0;
      const std::int64_t sizes[] = {1, 7, 64, 1, 300, 48, 129};
      while (begin < c.q_len) {
        const std::int64_t end = std::min(c.q_len, begin + sizes[n++ % 7]);
        const AttentionCase chunk = part_of(c, 0, {begin, end}, end, mask);
        expect_same_rows(c, whole, 0, begin, chunk, run<TypeParam>(chunk));
        begin = end;
      }
    }
  }
}

TYPED_TEST(Bits, DoNotDependOnTheSharingOfKeyHeads) {
  for (const AttentionCase& c : with_options(sized(2, 61, 130))) {
    AttentionCase repeated = c;
    repeated.kv_heads = c.heads;
    repeated.k.clear();
    repeated.v.clear();
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const auto e = c.entry(b);
        const auto k =
            c.k.begin() + static_cast<std::ptrdiff_t>(c.key_at(e, h, 0, c.d_k));
        const auto v =
            c.v.begin() + static_cast<std::ptrdiff_t>(c.key_at(e, h, 0, c.d_v));
        repeated.k.insert(repeated.k.end(), k, k + c.kv_len * c.d_k);
        repeated.v.insert(repeated.v.end(), v, v + c.kv_len * c.d_v);
      }
    }
    expect_same(run<TypeParam>(c), run<TypeParam>(repeated), c.describe());
  }
}

TYPED_TEST(Bits, DoNotDependOnTheLayout) {
  for (const AttentionCase& c : with_options(sized(2, 61, 130))) {
    const auto whole = run<TypeParam>(c);
    for (const Layout layout :
         {Layout::kLengthFirst, Layout::kWithGaps, Layout::kPackedInRows}) {
      expect_same(whole,
                  run<TypeParam>(c, {.q = layout, .kv = layout, .out = layout}),
                  c.describe());
    }
  }
}

// What is seen counts, not the words it was said in.
TYPED_TEST(Bits, DoNotDependOnHowAMaskIsWritten) {
  const auto dense_of = [](const AttentionCase& c, const MaskSpec& mask,
                           bool keep) {
    test::DenseBools pairs({1, 1, c.q_len, c.kv_len});
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        pairs(0, 0, i, j) = mask.visible(c.entry(0).sizes, 0, 0, i, j) == keep;
      }
    }
    return keep ? test::keep_spec(pairs) : test::drop_spec(pairs);
  };
  std::vector<std::int32_t> ids;
  for (std::int32_t n = 0; n < 1300; ++n) ids.push_back(n < 40 ? 0 : n / 400);
  for (const MaskSpec& mask :
       {test::causal_spec(), test::window_spec(100, 20), test::prefix_spec(50),
        test::causal_spec() & test::window_spec(64, 0),
        test::documents_spec({ids.begin() + 1100, ids.end()}, ids),
        test::lengths_spec({1111}), test::lengths_spec({0})}) {
    for (AttentionCase c : with_options(sized(1, 200, 1300, 16, 8))) {
      c.dropout_rate = 0.25f;
      c.mask = mask;
      const auto named = run<TypeParam>(c);
      c.mask = dense_of(c, mask, true);
      expect_same(named, run<TypeParam>(c), mask.describe() + " as keep");
      c.mask = dense_of(c, mask, false);
      expect_same(named, run<TypeParam>(c), mask.describe() + " as drop");
    }
  }
}

// Where the contract ends: scores some 100 apart leave weights at the bottom of
// float's range, and which of them vanish depends on where blocks end. With
// values of zero elsewhere, as here, that is all there is to see.
TYPED_TEST(Bits, OfScoresFarApartDifferInNothingButVanishingWeights) {
  AttentionCase c = sized(1, 200, 700, 16, 8);
  c.scale = 12;
  Rng rng(4);
  for (double& value : c.v) value = test::chance(rng, 0.1) ? value : 0;
  c.mask = test::causal_spec() & test::window_spec(100, 0);
  const auto whole = run<TypeParam>(c);
  for (const std::int64_t begin : {0, 47, 100, 163}) {
    const test::Span rows{begin, begin + 37};
    const std::int64_t keys = rows.end + c.kv_len - c.q_len;
    const AttentionCase part = part_of(c, 0, rows, keys, c.mask);
    const auto result = run<TypeParam>(part);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t n = 0; n < part.q_len * c.d_v; ++n) {
        const auto at = c.query_at(c.entry(0), h, begin, c.d_v) + n;
        EXPECT_NEAR(test::to_double(whole.out[at]),
                    test::to_double(result.out[h * part.q_len * c.d_v + n]),
                    1e-35);
      }
    }
  }
}

// Keys that a row does not see: changed, absent, or beyond the end.
TYPED_TEST(Bits, DoNotDependOnKeysThatAreNotSeen) {
  for (AttentionCase c : with_options(sized(1, 50, 1400, 16, 16))) {
    c.alibi_slopes.clear();
    c.mask = test::lengths_spec({1100});
    const auto result = run<TypeParam>(c);
    AttentionCase changed = c;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t j = 1100; j < c.kv_len; ++j) {
        for (std::int64_t d = 0; d < c.d_k; ++d) {
          changed.k[c.key_at(c.entry(0), h, j, c.d_k) + d] *= -100;
          changed.v[c.key_at(c.entry(0), h, j, c.d_v) + d] *= -100;
        }
      }
    }
    expect_same(result, run<TypeParam>(changed), "changed");
    const AttentionCase cut = part_of(c, 0, {0, c.q_len}, 1100, MaskSpec{});
    expect_same_rows(c, result, 0, 0, cut, run<TypeParam>(cut));
  }
}

TYPED_TEST(Bits, DoNotDependOnTheOrderOfTheRows) {
  AttentionCase c = sized(1, 90, 200);
  const auto result = run<TypeParam>(c);
  for (const std::int64_t i : {0, 1, 47, 48, 89}) {
    const AttentionCase row = part_of(c, 0, {i, i + 1}, c.kv_len, MaskSpec{});
    expect_same_rows(c, result, 0, i, row, run<TypeParam>(row));
  }
}

TYPED_TEST(Bits, DoNotDependOnTheRun) {
  AttentionCase c = sized(2, 200, 1100);
  c.mask = test::causal_spec();
  const auto result = run<TypeParam>(c, {.threads = 2});
  for (int n = 0; n < 5; ++n) {
    expect_same(result, run<TypeParam>(c, {.threads = 2}), "again");
  }
}

TYPED_TEST(Bits, DoNotDependOnTheVectorWidth) {
  for (const AttentionCase& shape :
       {sized(2, 61, 130), sized(1, 1, 1500), sized(1, 17, 33, 7, 5),
        sized(2, 100, 49, 128, 64), sized(1, 5, 1100, 72, 100)}) {
    for (AttentionCase c : with_options(shape)) {
      Rng rng(5);
      c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
      c.dropout_rate = 0.3f;
      for (const MaskSpec& mask :
           {MaskSpec{}, test::causal_spec(),
            test::keep_spec(test::random_bools(rng, c.entry(0).sizes))}) {
        c.mask = mask;
        const auto best = run<TypeParam>(c);
        test::on_every_simd_target([&](const std::string& target) {
          if (!test::fuses_products(target)) return;
          expect_same(best, run<TypeParam>(c), c.describe());
        });
      }
    }
  }
}

}  // namespace
}  // namespace regard
