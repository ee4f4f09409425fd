// SPDX-License-Identifier: Apache-2.0
// attention_decode gives the bits of attention_forward on the same tokens.
#include "regard/attention/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/decode_case.h"
#include "support/every_path.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::CacheSpec;
using test::MaskSpec;
using test::Rng;

AttentionCase sized(std::int64_t q_len, std::int64_t kv_len,
                    std::int64_t heads = 4, std::int64_t kv_heads = 2,
                    std::int64_t d_k = 24, std::int64_t d_v = 40) {
  return test::filled({.heads = heads,
                       .kv_heads = kv_heads,
                       .q_len = q_len,
                       .kv_len = kv_len,
                       .d_k = d_k,
                       .d_v = d_v,
                       .mask = test::causal_spec()},
                      static_cast<std::uint64_t>(q_len * 131 + kv_len));
}

std::vector<AttentionCase> sequences(std::vector<std::int64_t> lengths,
                                     std::int64_t q_len) {
  std::vector<AttentionCase> all;
  for (const std::int64_t n : lengths) all.push_back(sized(q_len, n));
  return all;
}

using Change = void (*)(AttentionCase&);
struct NamedChange {
  const char* name;
  Change change;
};

std::vector<NamedChange> changes() {
  return {
      {"plain", [](AttentionCase&) {}},
      {"softcap and ALiBi",
       [](AttentionCase& c) {
         c.softcap = 4;
         c.alibi_slopes = {0.1, 0.2, -0.1, 0};
       }},
      {"cosine and sinks",
       [](AttentionCase& c) {
         c.cosine = true;
         c.head_scales = {4, 1, -2, 9};
         c.sinks = {0, 1, -3, 7};
       }},
      {"scores far apart", [](AttentionCase& c) { c.scale = 1.3; }},
      {"window",
       [](AttentionCase& c) { c.mask = c.mask & test::window_spec(37, 0); }},
      {"wide window and sinks",
       [](AttentionCase& c) {
         c.mask = test::window_spec(1500, 0);
         c.sinks = {9, 1, -3, 0};
       }},
      {"prefix", [](AttentionCase& c) { c.mask = test::prefix_spec(3); }},
      {"no mask", [](AttentionCase& c) { c.mask = {}; }},
  };
}

void expect_same(const test::Produced<float>& a, const test::Produced<float>& b,
                 const std::string& what) {
  EXPECT_EQ(test::different_bits(a, b), "") << what;
  EXPECT_TRUE(a.gaps_are_untouched && b.gaps_are_untouched) << what;
}

// What the cache gives for a case is as exact for `stored`, which is what the
// cache holds of it, as a plain loop is.
void expect_exact(const KVCache& cache, const AttentionCase& c,
                  const AttentionCase& stored) {
  const auto judgement =
      test::judge<float>(stored, test::run_decode(cache, {c})[0]);
  EXPECT_TRUE(judgement.good()) << judgement.describe() << c.describe();
}

template <typename T>
class DecodeBits : public ::testing::Test {};
using Storages = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(DecodeBits, Storages);

TYPED_TEST(DecodeBits, AreThoseOfForwardForEveryCacheBatchAndThreads) {
  for (const std::int64_t q_len : {1, 2, 5, 16}) {
    for (const NamedChange& change : changes()) {
      std::vector<AttentionCase> cases =
          sequences({1, 16, 17, 700, 1024, 1025, 2300, 16, 0}, q_len);
      for (AttentionCase& c : cases) change.change(c);
      std::vector<test::Produced<float>> wanted;
      for (const AttentionCase& c : cases) {
        wanted.push_back(
            test::run_attention<float>(test::with_stored_keys<TypeParam>(c)));
      }
      for (const CacheSpec& spec : test::caches_that_keep_all()) {
        const KVCache cache =
            test::filled_cache(spec, dtype_of<TypeParam>(), cases);
        for (const int threads : {1, 2, 3}) {
          const auto got = test::run_decode(cache, cases, threads);
          for (std::size_t i = 0; i < cases.size(); ++i) {
            expect_same(wanted[i], got[i],
                        std::string(change.name) + ", " + spec.name +
                            ", threads " + std::to_string(threads) + ", " +
                            cases[i].describe());
          }
        }
      }
    }
  }
}

// Sizes around vectors and tiles, and groups from one to more than a tile.
TYPED_TEST(DecodeBits, AreThoseOfForwardForEverySize) {
  for (const std::int64_t d : {1, 3, 16, 33, 64, 128, 160}) {
    for (const std::int64_t group : {1, 2, 3, 4, 5, 8, 13}) {
      const AttentionCase c = sized(d % 2 + 1, 1100 + d, group * 2, 2, d,
                                    d > 100 ? d - 37 : d + 31);
      for (const CacheSpec& spec :
           {test::caches_that_keep_all()[0], test::caches_that_keep_all()[4]}) {
        const KVCache cache =
            test::filled_cache(spec, dtype_of<TypeParam>(), {c});
        expect_same(
            test::run_attention<float>(test::with_stored_keys<TypeParam>(c)),
            test::run_decode(cache, {c}, 2)[0], c.describe());
      }
    }
  }
}

TEST(Decode, HasTheBitsOfTheLastRowsOfAFullPrefill) {
  const std::int64_t length = 1500;
  const AttentionCase prompt = sized(length, length);
  const auto whole = test::run_attention<float>(prompt, {.threads = 2});
  KVCache cache = test::make_cache({.name = ""}, prompt, DType::kFloat32, 1);
  for (const std::int64_t n : {1, 40, 1023, 1024, 1025, 1500}) {
    test::append_tokens(cache, 0, prompt, cache.length(0), n);
    AttentionCase last = prompt;
    last.q_len = 1;
    last.kv_len = n;
    last.q.clear();
    for (std::int64_t h = 0; h < 4; ++h) {
      const auto at = prompt.q.begin() + (h * length + n - 1) * last.d_k;
      last.q.insert(last.q.end(), at, at + last.d_k);
    }
    const auto got = test::run_decode(cache, {last});
    for (std::int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(std::memcmp(&whole.out[static_cast<std::size_t>(
                                (h * length + n - 1) * last.d_v)],
                            &got[0].out[static_cast<std::size_t>(h * last.d_v)],
                            static_cast<std::size_t>(last.d_v) * sizeof(float)),
                0)
          << "token " << n << ", head " << h;
    }
  }
}

TEST(Decode, HasTheBitsOfForwardWithEveryShapeOfBias) {
  const std::int64_t kv_len = 1100;
  for (const test::Extents4& shape :
       {test::Extents4{1, 4, 3, kv_len}, test::Extents4{1, 1, 1, kv_len},
        test::Extents4{1, 4, 3, 1}, test::Extents4{1, 1, 3, kv_len}}) {
    AttentionCase c = sized(3, kv_len);
    Rng rng(5);
    c.bias = test::random_bias(rng, shape);
    // -inf hides a pair.
    for (std::size_t i = 0; i < c.bias->values.size(); i += 7) {
      c.bias->values[i] = -std::numeric_limits<double>::infinity();
    }
    for (const CacheSpec& spec : test::caches_that_keep_all()) {
      const KVCache cache = test::filled_cache(spec, DType::kFloat32, {c});
      expect_same(test::run_attention<float>(c),
                  test::run_decode(cache, {c}, 2)[0], c.describe());
    }
  }
}

// A bias may be longer than a sequence: one for all of a batch.
TEST(Decode, ReadsABiasByEachSequencesOwnPositions) {
  std::vector<AttentionCase> cases = sequences({5, 40, 33}, 2);
  Rng rng(6);
  const test::BiasSpec bias = test::random_bias(rng, {1, 4, 2, 45});
  for (AttentionCase& c : cases) c.bias = bias;
  const KVCache cache =
      test::filled_cache({.name = ""}, DType::kFloat32, cases);
  const auto got = test::run_decode(cache, cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    AttentionCase alone = cases[i];
    alone.bias = test::BiasSpec{.shape = {1, 4, 2, alone.kv_len}, .values = {}};
    for (std::int64_t row = 0; row < 8; ++row) {
      const auto at = bias.values.begin() + row * 45;
      alone.bias->values.insert(alone.bias->values.end(), at,
                                at + alone.kv_len);
    }
    expect_same(test::run_attention<float>(alone), got[i], alone.describe());
  }
}

// What a ring shows: its window, and the first tokens.
MaskSpec ring_mask(const CacheSpec& ring, std::int64_t q_len,
                   std::int64_t kv_len) {
  MaskSpec::Part part{.kind = MaskSpec::Kind::kKeep,
                      .dense = test::DenseBools({1, 1, q_len, kv_len})};
  for (std::int64_t i = 0; i < q_len; ++i) {
    const std::int64_t p = i + kv_len - q_len;
    for (std::int64_t j = 0; j < kv_len; ++j) {
      part.dense(0, 0, i, j) =
          j <= p && (j > p - ring.window || j < ring.first_kept);
    }
  }
  return MaskSpec(part);
}

TYPED_TEST(DecodeBits, OfARingAreThoseOfForwardWithItsMask) {
  for (const auto& [window, kept] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 0}, {16, 4}, {40, 0}, {100, 20}, {1030, 1}, {50, 1100}}) {
    const CacheSpec ring{.name = "ring",
                         .kind = KVCacheKind::kRing,
                         .window = window,
                         .first_kept = kept};
    for (const std::int64_t q_len : {1, 7, 16}) {
      for (const std::int64_t length : {3, 17, 120, 1500, 2500}) {
        AttentionCase c = sized(q_len, length);
        c.alibi_slopes = {0.01, 0.2, -0.01, 0};
        const KVCache cache =
            test::filled_cache(ring, dtype_of<TypeParam>(), {c});
        AttentionCase masked = c;
        masked.mask = ring_mask(ring, q_len, length);
        expect_same(test::run_attention<float>(
                        test::with_stored_keys<TypeParam>(masked)),
                    test::run_decode(cache, {c}, 2)[0],
                    "window " + std::to_string(window) + ", kept " +
                        std::to_string(kept) + ", " + c.describe());
      }
    }
  }
}

TEST(Decode, IsAsExactAsTheDefinition) {
  for (const NamedChange& change : changes()) {
    for (const std::int64_t kv_len : {1, 59, 1300}) {
      AttentionCase c = sized(1, kv_len);
      change.change(c);
      c = test::rounded_to<float>(c);
      const KVCache cache =
          test::filled_cache({.name = ""}, DType::kFloat32, {c});
      expect_exact(cache, c, c);
    }
  }
}

TEST(Decode, HasTheSameBitsOnEveryTargetWithFusedMultiplyAdd) {
  for (const DType storage :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (const NamedChange& change : changes()) {
      for (const std::int64_t q_len : {1, 3}) {
        std::vector<AttentionCase> cases =
            sequences({1, 100, 1025, 2300}, q_len);
        for (AttentionCase& c : cases) change.change(c);
        const KVCache cache = test::filled_cache({.name = ""}, storage, cases);
        const auto wanted = test::run_decode(cache, cases);
        test::on_every_simd_target([&](const std::string& target) {
          if (!test::fuses_products(target)) return;
          const auto got = test::run_decode(cache, cases);
          for (std::size_t i = 0; i < cases.size(); ++i) {
            expect_same(wanted[i], got[i], change.name + cases[i].describe());
          }
        });
      }
    }
  }
}

// Also where there is no kernel: there plain loops read a copy of the keys.
TEST(Decode, IsAsExactAsTheDefinitionOnEveryTargetForEveryCache) {
  test::on_every_simd_target([](const std::string&) {
    for (const NamedChange& change : changes()) {
      AttentionCase c = sized(3, 130);
      change.change(c);
      c = test::rounded_to<float>(c);
      for (const CacheSpec& spec : test::caches_that_keep_all()) {
        expect_exact(test::filled_cache(spec, DType::kFloat32, {c}), c, c);
      }
    }
  });
}

// The keys and values that int8 stands for, by the rule in the header.
AttentionCase through_int8(AttentionCase c) {
  const auto pass = [](std::vector<double>& values, std::int64_t width) {
    for (std::size_t at = 0; at < values.size();
         at += static_cast<std::size_t>(width)) {
      double largest = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        largest = std::max(largest, std::abs(values[at + i]));
      }
      const double scale = static_cast<float>(largest) / 127.0f;
      if (scale == 0) continue;
      for (std::int64_t i = 0; i < width; ++i) {
        values[at + i] = std::nearbyint(static_cast<float>(values[at + i]) /
                                        static_cast<float>(scale)) *
                         scale;
      }
    }
  };
  pass(c.k, c.d_k);
  pass(c.v, c.d_v);
  return c;
}

// The arithmetic adds no more than float does; the rounding to int8 is what
// there is to lose.
TEST(DecodeInt8, IsExactForWhatIsStored) {
  for (const NamedChange& change : changes()) {
    for (const std::int64_t kv_len : {1, 59, 1300}) {
      AttentionCase c = sized(2, kv_len);
      change.change(c);
      c = test::rounded_to<float>(c);
      const auto stored = through_int8(c);
      for (const CacheSpec& spec : test::caches_that_keep_all()) {
        const KVCache cache = test::filled_cache(spec, DType::kInt8, {c});
        expect_exact(cache, c, stored);
      }
    }
  }
}

// The bounds that docs/exactness.md states for inputs of variance 1.
TEST(DecodeInt8, IsWithinTheStatedErrorOfTheTruth) {
  double largest = 0, squares = 0, truth_squares = 0;
  for (const std::int64_t d : {64, 128}) {
    for (const std::int64_t kv_len : {1, 100, 1000, 4000}) {
      const AttentionCase c =
          test::rounded_to<float>(sized(1, kv_len, 8, 8, d, d));
      const KVCache cache = test::filled_cache({.name = ""}, DType::kInt8, {c});
      const auto got = test::run_decode(cache, {c})[0];
      const auto exact = test::reference_attention<double>(c);
      for (std::size_t i = 0; i < got.out.size(); ++i) {
        const double error = std::abs(got.out[i] - exact.out[i]);
        largest = std::max(largest, error);
        squares += error * error;
        truth_squares += exact.out[i] * exact.out[i];
      }
    }
  }
  EXPECT_LT(largest, 0.02);
  EXPECT_LT(std::sqrt(squares / truth_squares), 0.01);
}

TEST(Decode, OfAnEmptySequenceIsZero) {
  AttentionCase c = sized(2, 0);
  KVCache cache = test::make_cache({.name = ""}, c, DType::kFloat32, 1);
  const auto got = test::run_decode(cache, {c})[0];
  for (const float x : got.out) EXPECT_EQ(x, 0);
  for (const float x : got.lse) {
    EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
  }
}

TEST(Decode, OfARowThatSeesNothingIsZeroBesideOthers) {
  // Four queries after two tokens: the first two stand before any key.
  const AttentionCase c = sized(4, 2);
  const KVCache cache = test::filled_cache({.name = ""}, DType::kFloat32, {c});
  const auto got = test::run_decode(cache, {c})[0];
  for (std::size_t h = 0; h < 4; ++h) {
    for (std::size_t i = 0; i < 80; ++i) EXPECT_EQ(got.out[h * 160 + i], 0);
    EXPECT_NE(got.out[h * 160 + 80], 0);
  }
}

// NaN and infinities in tokens that no query sees, also in those that were
// forgotten and whose memory is still there.
TEST(Decode, IsNotTouchedByWhatIsNotSeen) {
  for (const DType storage :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (CacheSpec spec : test::caches_that_keep_all()) {
      AttentionCase c = sized(2, 1100);
      c.mask = test::causal_spec() & test::window_spec(300, 0);
      AttentionCase bad = c;
      for (const std::int64_t key : {0, 5, 700}) {
        for (std::int64_t h = 0; h < 2; ++h) {
          bad.k[static_cast<std::size_t>((h * 1100 + key) * c.d_k + 1)] =
              std::numeric_limits<double>::quiet_NaN();
          bad.v[static_cast<std::size_t>((h * 1100 + key) * c.d_v + 2)] =
              std::numeric_limits<double>::infinity();
        }
      }
      const KVCache clean = test::filled_cache(spec, storage, {c});
      KVCache cache = test::filled_cache(spec, storage, {bad});
      expect_same(test::run_decode(clean, {c})[0],
                  test::run_decode(cache, {c})[0], spec.name);
      // Tokens of nothing but NaN, written and forgotten.
      const std::vector<float> nan(static_cast<std::size_t>(2 * 20 * c.d_v),
                                   std::numeric_limits<float>::quiet_NaN());
      cache.append(0, {nan.data(), {2, 20, c.d_k}},
                   {nan.data(), {2, 20, c.d_v}});
      cache.truncate(0, 1100);
      expect_same(test::run_decode(clean, {c})[0],
                  test::run_decode(cache, {c})[0], spec.name);
    }
  }
}

// Query 0 sees key 0 alone of the poisoned; query 1 sees one more.
TEST(Decode, GivesNaNAndInfinityToExactlyTheRowsThatSeeThem) {
  for (const DType storage :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (const bool in_keys : {true, false}) {
      AttentionCase c = sized(2, 1050);
      const auto at = [&](std::int64_t h, std::int64_t width) {
        return static_cast<std::size_t>((h * 1050 + 1049) * width + 3);
      };
      const double nan = std::numeric_limits<double>::quiet_NaN();
      (in_keys ? c.k[at(1, c.d_k)] : c.v[at(1, c.d_v)]) = nan;
      const KVCache cache = test::filled_cache({.name = ""}, storage, {c});
      const auto got = test::run_decode(cache, {c})[0];
      for (std::size_t h = 0; h < 4; ++h) {
        for (std::size_t i = 0; i < 2; ++i) {
          for (std::size_t e = 0; e < 40; ++e) {
            const bool whole = in_keys || storage == DType::kInt8;
            const bool wanted = h >= 2 && i == 1 && (whole || e == 3);
            EXPECT_EQ(std::isnan(got.out[(h * 2 + i) * 40 + e]), wanted)
                << h << " " << i << " " << e;
          }
        }
      }
    }
  }
}

TEST(Decode, TakesSequencesInAnyOrderAndMoreThanOnce) {
  const std::vector<AttentionCase> cases = sequences({70, 1100, 5}, 1);
  const KVCache cache =
      test::filled_cache({.name = ""}, DType::kFloat32, cases);
  const auto wanted = test::run_decode(cache, cases);
  const std::vector<std::int64_t> order{2, 0, 2, 1};
  std::vector<float> q, out(4 * 4 * 40);
  for (const std::int64_t s : order) {
    const auto& from = cases[static_cast<std::size_t>(s)].q;
    q.insert(q.end(), from.begin(), from.end());
  }
  attention_decode({q.data(), {4, 4, 1, 24}}, cache, order,
                   {out.data(), {4, 4, 1, 40}});
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(std::memcmp(&out[i * 160],
                          wanted[static_cast<std::size_t>(order[i])].out.data(),
                          160 * sizeof(float)),
              0);
  }
}

}  // namespace
}  // namespace regard
