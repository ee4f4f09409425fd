// SPDX-License-Identifier: Apache-2.0
// compute = kBFloat16: every shape and option on every path that the machine
// has, at most twice as wrong as a plain loop that rounds to bf16.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/bf16_cases.h"
#include "support/every_path.h"
#include "support/refusal.h"
#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::DenseBools;
using test::filled;
using test::Layout;
using test::medium_bf16_case;
using test::on_every_bf16_path;
using test::Produced;
using test::Rng;

template <typename T>
Produced<T> run(const AttentionCase& c, test::RunOptions options = {}) {
  options.compute = Compute::kBFloat16;
  return test::run_attention<T>(c, options);
}

double to_bf16(double value) { return test::round_to_storage<BFloat16>(value); }

// What a plain loop makes of a case when it rounds each weight, relative to the
// row's largest, to bf16: the yardstick. Everything else is in double.
std::vector<double> plain_bf16(const AttentionCase& c) {
  std::vector<double> out(test::volume(c.out_shape()));
  std::vector<double> weights;
  const test::PlainOrder order(c.d_k, 0);
  const double kept = 1 / (1 - static_cast<double>(c.dropout_rate));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const AttentionCase::Entry e = c.entry(b);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < e.sizes.q_len; ++i) {
        test::reference_weights(c, e, b, h, i, order, weights);
        double largest = 0;
        for (const double w : weights) largest = std::max(largest, w);
        for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
          if (weights[j] == 0) continue;
          if (c.dropout_rate > 0 && test::reference_drops(c, b, h, i, j)) {
            continue;
          }
          const double w = largest * to_bf16(weights[j] / largest) *
                           (c.dropout_rate > 0 ? kept : 1);
          for (std::int64_t d = 0; d < c.d_v; ++d) {
            out[c.query_at(e, h, i, c.d_v) + d] +=
                w * c.v[c.key_at(e, h, j, c.d_v) + d];
          }
        }
      }
    }
  }
  return out;
}

template <typename T>
void expect_close(const AttentionCase& c, const Produced<T>& got) {
  const auto exact = test::reference_attention<double>(c);
  std::vector<double> plain = plain_bf16(c);
  for (double& value : plain) value = test::round_to_storage<T>(value);
  auto out = test::measure(got.out, exact.out, plain, "out");
  out.floor = 2e-4 * test::largest_magnitude(exact.out);
  EXPECT_TRUE(out.within()) << c.describe() << "\n  " << out.describe();
  auto lse = test::measure(got.lse, exact.lse, exact.lse, "log_sum_exp");
  // One weight is off by at most half a unit of bf16.
  lse.floor = 0x1.1p-8 + 1e-6 * test::largest_magnitude(exact.lse);
  EXPECT_TRUE(lse.within()) << c.describe() << "\n  " << lse.describe();
  EXPECT_TRUE(got.gaps_are_untouched);
}

// In every storage type, on every path. Inputs are bf16 numbers.
void expect_exact(const AttentionCase& c,
                  const test::RunOptions& options = {}) {
  const AttentionCase rounded = test::rounded_to<BFloat16>(c);
  on_every_bf16_path([&] {
    expect_close(rounded, run<BFloat16>(rounded, options));
    expect_close(rounded, run<float>(rounded, options));
  });
}

// A key that a bias hides is not looked at, whatever it holds.
TEST(Bf16, ABiasOfMinusInfinityHidesAnyKey) {
  for (const double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL, 3e38}) {
    AttentionCase clean = test::rounded_to<BFloat16>(medium_bf16_case());
    Rng rng(5);
    clean.bias = test::random_bias(rng, {1, 1, 1, clean.kv_len});
    AttentionCase poisoned = clean;
    for (const std::int64_t j : {0, 33, 149}) {
      clean.bias->values[j] = poisoned.bias->values[j] = -HUGE_VAL;
      for (std::int64_t h = 0; h < clean.kv_heads; ++h) {
        test::fill_row(poisoned.k,
                       clean.key_at(clean.entry(0), h, j, clean.d_k), clean.d_k,
                       poison);
      }
    }
    on_every_bf16_path([&] {
      EXPECT_EQ(test::different_bits(run<float>(clean), run<float>(poisoned)),
                "")
          << poison;
    });
  }
}

class Bf16Shapes : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(Bf16Shapes, AreAsExactAsAPlainLoop) { expect_exact(filled(GetParam())); }

TEST_P(Bf16Shapes, AreAsExactUnderACausalMask) {
  AttentionCase c = filled(GetParam());
  c.mask = test::causal_spec();
  expect_exact(c);
}

INSTANTIATE_TEST_SUITE_P(, Bf16Shapes,
                         ::testing::ValuesIn(test::bf16_shapes(300, 272)),
                         [](const auto& c) { return c.param.shape_name(); });

TEST(Bf16, TakesEveryLayoutAndStorage) {
  const AttentionCase c = test::rounded_to<BFloat16>(medium_bf16_case());
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kWithGaps, Layout::kPackedInRows}) {
    on_every_bf16_path([&] {
      const test::RunOptions options{.q = layout, .kv = layout, .out = layout};
      expect_close(c, run<BFloat16>(c, options));
      expect_close(c, run<Float16>(c, options));
      expect_close(c, run<float>(c, options));
    });
  }
}

TEST(Bf16, RoundsFloatsAsItReadsThem) {
  const AttentionCase c = medium_bf16_case();
  const AttentionCase rounded = test::rounded_to<BFloat16>(c);
  on_every_bf16_path([&] {
    EXPECT_EQ(run<float>(c).out, run<float>(rounded).out);
    EXPECT_EQ(run<float>(c).lse, run<float>(rounded).lse);
  });
}

TEST(Bf16, HasEveryMask) {
  AttentionCase c = medium_bf16_case();
  Rng rng(2);
  for (int n = 0; n < 30; ++n) {
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    expect_exact(c);
  }
}

TEST(Bf16, SkipsAndSeesTheRightKeysOfLongMasks) {
  AttentionCase c = filled({1, 2, 1, 70, 700, 32, 16});
  c.mask = test::window_spec(40, 0);
  expect_exact(c);
  c.mask = test::causal_spec(mask::kTopLeft);
  expect_exact(c);
  DenseBools pairs({1, 1, 70, 700});
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t j = 0; j < 700; ++j) {
      pairs(0, 0, i, j) = j / 64 % 3 == i / 16 % 3;
    }
  }
  c.mask = test::keep_spec(pairs);
  expect_exact(c);
  c.mask = test::drop_spec(pairs) & test::causal_spec();
  expect_exact(c);
}

TEST(Bf16, HasEveryOption) {
  const auto visit = [](AttentionCase c) {
    expect_exact(c);
    c.mask = test::causal_spec() & test::window_spec(70, 0);
    expect_exact(c);
  };
  test::with_every_bf16_option(visit);
  AttentionCase c = medium_bf16_case();
  c.scale = -2;
  visit(c);
  c = medium_bf16_case();
  c.sinks = {50, 100, 300, -300};
  visit(c);
}

TEST(Bf16, HasPackedSequences) {
  AttentionCase c = filled(test::six_sequences());
  expect_exact(c);
  c.mask = test::causal_spec();
  c.alibi_slopes = {0.1, 0.2, -0.3, 0};
  c.dropout_rate = 0.2f;
  expect_exact(c);
}

TEST(Bf16, TakesABatchEntryWithoutKeys) {
  AttentionCase c = filled({2, 2, 1, 5, 40, 8, 8});
  c.mask = test::lengths_spec({0, 40});
  expect_exact(c);
}

// Rows whose scores are known to be small take a shorter way without a maximum.
// Where the two ways meet, no bit may tell which was taken.
TEST(Bf16, IsTheSameWhetherScoresAreBoundedOrNot) {
  AttentionCase small = medium_bf16_case();
  AttentionCase wide = small;  // key 0 of each head is long, and hidden
  DenseBools pairs({1, 1, 1, small.kv_len});
  for (std::int64_t j = 1; j < small.kv_len; ++j) pairs(0, 0, 0, j) = true;
  small.mask = wide.mask = test::keep_spec(pairs);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; h += 2) {
      test::fill_row(wide.k, wide.key_at(wide.entry(b), h, 0, wide.d_k),
                     wide.d_k, 1e4);
    }
  }
  on_every_bf16_path([&] {
    EXPECT_EQ(run<float>(small).out, run<float>(wide).out);
    EXPECT_EQ(run<float>(small).lse, run<float>(wide).lse);
  });
}

TEST(Bf16, TakesScoresFarApart) {
  for (const double deviation : {5.0, 30.0, 1e3, 1e8}) {
    expect_exact(filled({1, 2, 1, 40, 600, 32, 16}, 5, deviation));
  }
}

// The length of a vector may lie anywhere where its elements do: powers of two
// change no bit, where nothing becomes subnormal.
TEST(Bf16, CosineScoresDoNotDependOnTheLengths) {
  AttentionCase plain = medium_bf16_case();
  plain.cosine = true;
  plain.scale = 6;
  on_every_bf16_path([&] {
    const auto expected = run<float>(plain);
    for (const double q_size : {0x1p-100, 0x1p-66, 1.0, 0x1p64, 0x1p120}) {
      for (const double k_size : {0x1p-100, 0x1p-70, 1.0, 0x1p83, 0x1p120}) {
        AttentionCase c = plain;
        for (double& x : c.q) x *= q_size;
        for (double& x : c.k) x *= k_size;
        SCOPED_TRACE(std::to_string(q_size) + " " + std::to_string(k_size));
        EXPECT_EQ(test::different_bits(run<float>(c), expected), "");
        EXPECT_EQ(test::different_bits(run<BFloat16>(c), run<BFloat16>(plain)),
                  "");
      }
    }
  });
}

// One row among others, in the middle of a tile, a group and a chunk.
TEST(Bf16, CosineScoresTakeSomeVectorsOfAnyLength) {
  for (const double size : {1e-39, 1e-20, 1e25, 1e38}) {
    AttentionCase c = medium_bf16_case();
    c.cosine = true;
    c.scale = 6;
    for (const std::int64_t row : {0, 17, 41}) {
      for (std::int64_t d = 0; d < c.d_k; ++d) {
        c.q[row * c.d_k + d] = d == 7 ? size : 0;
        c.k[(row + 90) * c.d_k + d] = d < 9 ? -size : 0;
      }
    }
    expect_exact(c);
  }
}

TEST(Bf16, TakesValuesAtTheEndsOfTheRange) {
  for (const double factor : {1e-30, 1e30, 1e37}) {
    AttentionCase c = filled({1, 1, 1, 40, 300, 32, 16});
    for (double& value : c.v) value *= factor;
    const AttentionCase rounded = test::rounded_to<BFloat16>(c);
    on_every_bf16_path([&] {
      const auto got = run<float>(rounded).out;
      const auto exact = test::reference_attention<double>(rounded).out;
      for (std::size_t n = 0; n < got.size(); ++n) {
        ASSERT_NEAR(got[n], exact[n], 0.02 * factor);
      }
    });
  }
}

TEST(Bf16, AgreesBetweenPathsWithinRounding) {
  AttentionCase c =
      test::rounded_to<BFloat16>(filled({1, 2, 1, 130, 500, 64, 64}));
  c.mask = test::causal_spec();
  const auto expected = run<float>(c);
  on_every_bf16_path([&] {
    const auto got = run<float>(c);
    for (std::size_t n = 0; n < got.out.size(); ++n) {
      ASSERT_NEAR(got.out[n], expected.out[n], 2e-3);
    }
  });
}

TEST(Bf16, GivesTheSameBitsForAnyThreadsAndBatch) {
  AttentionCase c = filled({3, 4, 2, 150, 300, 40, 24});
  c.mask = test::causal_spec();
  c.dropout_rate = 0.1f;
  on_every_bf16_path([&] {
    const auto whole = run<BFloat16>(c);
    for (const int threads : {2, 3, 7}) {
      const auto again = run<BFloat16>(c, {.threads = threads});
      EXPECT_EQ(test::different_bits(again, whole), "");
    }
    // The first entry alone: dropout counts the entries.
    auto first = whole;
    first.out.resize(first.out.size() / 3);
    first.lse.resize(first.lse.size() / 3);
    EXPECT_EQ(test::different_bits(run<BFloat16>(test::alone(c, 0)), first),
              "");
  });
}

TEST(Bf16, GivesARowTheSameBitsAmongOtherRows) {
  AttentionCase c = filled({1, 1, 1, 100, 300, 40, 24});
  c.mask = test::causal_spec();
  on_every_bf16_path([&] {
    const auto whole = run<float>(c);
    for (const std::int64_t rows : {1, 15, 33}) {
      AttentionCase some = c;
      some.q_len = rows;  // the last rows
      some.q.assign(c.q.end() - rows * c.d_k, c.q.end());
      const auto got = run<float>(some);
      const std::vector<float> expected(whole.out.end() - rows * c.d_v,
                                        whole.out.end());
      EXPECT_EQ(got.out, expected);
    }
  });
}

TEST(Bf16, ReturnsTheValueWhereOneKeyIsSeen) {
  AttentionCase c =
      test::rounded_to<BFloat16>(filled({1, 1, 1, 40, 40, 32, 16}));
  c.mask = test::window_spec(0, 0);
  on_every_bf16_path([&] {
    const auto got = run<BFloat16>(c).out;
    for (std::size_t n = 0; n < got.size(); ++n) {
      ASSERT_EQ(static_cast<float>(got[n]), static_cast<float>(c.v[n]));
    }
  });
}

// ---- NaN and infinities ----

TEST(Bf16, KeepsPoisonInHiddenKeysFromEveryRow) {
  for (const double poison : test::kPoisons) {
    AttentionCase clean = medium_bf16_case();
    Rng rng(3);
    const DenseBools pairs =
        test::random_bools(rng, {2, 1, 1, clean.kv_len}, 0.3);
    clean.mask = test::drop_spec(pairs);
    AttentionCase poisoned = clean;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t j = 0; j < clean.kv_len; ++j) {
          if (!pairs(b, 0, 0, j)) continue;
          const auto e = clean.entry(b);
          test::fill_row(poisoned.k, clean.key_at(e, h, j, clean.d_k),
                         clean.d_k, poison);
          test::fill_row(poisoned.v, clean.key_at(e, h, j, clean.d_v),
                         clean.d_v, poison);
        }
      }
    }
    on_every_bf16_path([&] {
      EXPECT_EQ(run<float>(clean).out, run<float>(poisoned).out);
      EXPECT_EQ(run<float>(clean).lse, run<float>(poisoned).lse);
    });
  }
}

TEST(Bf16, LetsPoisonReachExactlyTheRowsThatSeeIt) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    AttentionCase c = medium_bf16_case();
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    for (auto* values : {&c.q, &c.k, &c.v}) {
      for (int n = 0; n < 3; ++n) {
        const auto at = test::pick(rng, 0, std::ssize(*values) - 1);
        (*values)[at] = test::random_poison(rng);
      }
    }
    SCOPED_TRACE(seed);
    const AttentionCase rounded = test::rounded_to<BFloat16>(c);
    on_every_bf16_path([&] { expect_close(rounded, run<float>(rounded)); });
  }
}

// As in float, also where there is nothing but the sink; with a maximum, as of
// cosines, and without.
TEST(Bf16, LetsANaNSinkReachItsRows) {
  AttentionCase c = medium_bf16_case();
  c.mask = test::lengths_spec({0, c.kv_len});
  c.sinks = {0, std::nan(""), 1, -HUGE_VAL};
  for (const bool cosine : {false, true}) {
    c.cosine = cosine;
    const auto in_float = test::run_attention<float>(c);
    on_every_bf16_path([&] {
      const auto got = run<float>(c);
      for (std::size_t n = 0; n < got.out.size(); ++n) {
        ASSERT_EQ(std::isnan(got.out[n]), std::isnan(in_float.out[n])) << n;
      }
      for (std::size_t n = 0; n < got.lse.size(); ++n) {
        ASSERT_EQ(std::isnan(got.lse[n]), std::isnan(in_float.lse[n])) << n;
      }
    });
  }
}

// ---- what it refuses, and what it falls back to ----

TEST(Bf16, IsRefusedForDouble) {
  EXPECT_EQ(test::refusal([] { run<double>(medium_bf16_case()); }),
            "attention_forward: compute in bf16 is for float, bf16 and fp16; q "
            "is double");
}

TEST(Bf16, RunsOnEverySimdTargetWithoutItsInstructions) {
  const AttentionCase c = test::rounded_to<BFloat16>(medium_bf16_case());
  ASSERT_TRUE(kernels::choose_bf16_path(kernels::Bf16Path::kPortable));
  test::on_every_simd_target(
      [&](const std::string&) { expect_close(c, run<BFloat16>(c)); });
  kernels::choose_best_bf16_path();
}

}  // namespace
}  // namespace regard
