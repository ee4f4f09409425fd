// SPDX-License-Identifier: Apache-2.0
// NaN and infinities reach exactly the gradients that depend on them, and a row
// that sees nothing reaches none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardCase;
using test::DenseBools;
using test::fill_row;
using test::kPoisons;
using test::Rng;

constexpr double kInf = std::numeric_limits<double>::infinity();

AttentionCase medium(bool cosine = false) {
  AttentionCase c = test::filled({.batch = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .q_len = 60,
                                  .kv_len = 150,
                                  .d_k = 16,
                                  .d_v = 24});
  c.cosine = cosine;
  c.head_scales = {1, 2, 0.5, -1};
  c.alibi_slopes = {0.1, 0, -0.1, 0.2};
  return c;
}

BackwardCase backward_of(const AttentionCase& c) {
  Rng rng(2);
  return test::backward_case(rng, c, true);
}

// Hidden places change no bit.
template <typename T>
void expect_same(const BackwardCase& clean, const BackwardCase& poisoned) {
  const auto a = test::run_backward<T>(test::rounded_to<T>(clean));
  const auto b = test::run_backward<T>(test::rounded_to<T>(poisoned));
  EXPECT_EQ(test::different_bits(a, b), "") << clean.forward.describe();
}

void expect_same_in_all(const BackwardCase& clean,
                        const BackwardCase& poisoned) {
  expect_same<float>(clean, poisoned);
  expect_same<double>(clean, poisoned);
  expect_same<BFloat16>(clean, poisoned);
  expect_same<Float16>(clean, poisoned);
}

// Finite exactly where the reference is, and there as it is. What is not finite
// may be NaN or infinite: that is a matter of the order of operations.
template <typename T>
void expect_reach(const BackwardCase& given, bool reaches_something = true) {
  const BackwardCase b = test::rounded_to<T>(given);
  const auto got = test::run_backward<T>(b);
  const auto exact = test::reference_backward<double>(b);
  bool some = false;
  test::for_each_gradient(
      [&](const char* name, const auto& x, const auto& y) {
        ASSERT_EQ(x.size(), y.size());
        for (std::size_t n = 0; n < x.size(); ++n) {
          const double ours = test::to_double(x[n]);
          some = some || !std::isfinite(y[n]);
          if (std::isfinite(y[n])) {
            // A slope's gradient sums distances, which cancel.
            const double each =
                std::string(name) == "d_alibi_slopes" ? 1e-3 : 1e-4;
            ASSERT_NEAR(ours, y[n], each * (1 + std::abs(y[n])))
                << name << "[" << n << "], " << b.forward.describe();
          } else {
            ASSERT_FALSE(std::isfinite(ours))
                << name << "[" << n << "], " << b.forward.describe();
          }
        }
      },
      got, exact);
  EXPECT_EQ(some, reaches_something) << b.forward.describe();
}

void expect_reach_in_both(const BackwardCase& b) {
  expect_reach<float>(b);
  expect_reach<double>(b);
}

TEST(BackwardPoison, InPaddingReachesNothing) {
  for (const bool cosine : {false, true}) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium(cosine);
      c.mask = test::lengths_spec({97, 150});
      const BackwardCase clean = backward_of(c);
      BackwardCase poisoned = clean;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t j = 97; j < c.kv_len; ++j) {
          const auto e = c.entry(0);
          fill_row(poisoned.forward.k, c.key_at(e, h, j, c.d_k), c.d_k, poison);
          fill_row(poisoned.forward.v, c.key_at(e, h, j, c.d_v), c.d_v, poison);
        }
      }
      expect_same_in_all(clean, poisoned);
    }
  }
}

// The row's own query, and what comes back to it.
TEST(BackwardPoison, InRowsThatSeeNothingReachesNothing) {
  for (const bool cosine : {false, true}) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium(cosine);
      c.mask = test::lengths_spec({150, 150}, {31, 60});
      const BackwardCase clean = backward_of(c);
      BackwardCase poisoned = clean;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 31; i < c.q_len; ++i) {
          const auto e = c.entry(0);
          fill_row(poisoned.forward.q, c.query_at(e, h, i, c.d_k), c.d_k,
                   poison);
          fill_row(poisoned.d_out, c.query_at(e, h, i, c.d_v), c.d_v, poison);
          fill_row(poisoned.d_lse, c.query_at(e, h, i, 1), 1, poison);
        }
      }
      expect_same_in_all(clean, poisoned);
    }
  }
}

// A row that sees only its sink: its output is zero, whatever d_out is.
TEST(BackwardPoison, InRowsThatSeeOnlyTheSinkReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase c = medium();
    DenseBools rows({1, 1, c.q_len, 1});
    for (std::int64_t i = 0; i < c.q_len; ++i) rows(0, 0, i, 0) = i % 3 != 0;
    c.mask = test::keep_spec(rows);
    c.sinks = {1, 0, -1, 2};
    const BackwardCase clean = backward_of(c);
    BackwardCase poisoned = clean;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.q_len; i += 3) {
        const auto e = c.entry(1);
        fill_row(poisoned.forward.q, c.query_at(e, h, i, c.d_k), c.d_k, poison);
        fill_row(poisoned.d_out, c.query_at(e, h, i, c.d_v), c.d_v, poison);
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

TEST(BackwardPoison, ASinkOfMinusInfinityIsNone) {
  AttentionCase c = medium();
  c.mask = test::lengths_spec({0, 150});
  const BackwardCase clean = backward_of(c);
  BackwardCase with_sinks = clean;
  with_sinks.forward.sinks = {-kInf, -kInf, -kInf, -kInf};
  const auto a = test::run_backward<float>(clean);
  auto b = test::run_backward<float>(with_sinks);
  EXPECT_EQ(b.sinks, std::vector<float>(4, 0.0f));
  b.sinks.clear();
  EXPECT_EQ(test::different_bits(a, b), "");
  EXPECT_EQ(test::run_backward<double>(with_sinks).sinks,
            std::vector<double>(4, 0.0));
}

// A key inside a block that others see: the weight 0 must not meet it.
TEST(BackwardPoison, InKeysHiddenByADenseMaskReachesNothing) {
  for (const bool cosine : {false, true}) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium(cosine);
      Rng rng(3);
      const DenseBools pairs =
          test::random_bools(rng, {2, 1, 1, c.kv_len}, 0.3);
      c.mask = test::drop_spec(pairs);
      const BackwardCase clean = backward_of(c);
      BackwardCase poisoned = clean;
      for (std::int64_t b = 0; b < c.batch; ++b) {
        for (std::int64_t h = 0; h < c.heads; ++h) {
          for (std::int64_t j = 0; j < c.kv_len; ++j) {
            if (!pairs(b, 0, 0, j)) continue;
            const auto e = c.entry(b);
            fill_row(poisoned.forward.k, c.key_at(e, h, j, c.d_k), c.d_k,
                     poison);
            fill_row(poisoned.forward.v, c.key_at(e, h, j, c.d_v), c.d_v,
                     poison);
          }
        }
      }
      expect_same_in_all(clean, poisoned);
    }
  }
}

TEST(BackwardPoison, UnderABiasOfMinusInfinityReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase c = medium();
    Rng rng(4);
    c.bias = test::random_bias(rng, {1, 1, 1, c.kv_len});
    for (std::int64_t j = 0; j < c.kv_len; j += 3) {
      c.bias->values[static_cast<std::size_t>(j)] = -kInf;
    }
    c.softcap = 5;
    const BackwardCase clean = backward_of(c);
    BackwardCase poisoned = clean;
    for (std::int64_t j = 0; j < c.kv_len; j += 3) {
      const auto e = c.entry(1);
      fill_row(poisoned.forward.k, c.key_at(e, 0, j, c.d_k), c.d_k, poison);
      fill_row(poisoned.forward.v, c.key_at(e, 0, j, c.d_v), c.d_v, poison);
    }
    expect_same_in_all(clean, poisoned);
  }
}

TEST(BackwardPoison, InAHiddenBiasReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase c = medium();
    Rng rng(5);
    c.mask = test::causal_spec() & test::window_spec(33, 0);
    c.bias = test::random_bias(rng, {c.batch, c.heads, c.q_len, c.kv_len});
    const BackwardCase clean = backward_of(c);
    BackwardCase poisoned = clean;
    const auto sizes = c.entry(0).sizes;
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        if (c.mask.visible(sizes, 0, 0, i, j)) continue;
        poisoned.forward.bias->values[c.bias->place(1, 2, i, j)] = poison;
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

// Everything that a mask can hide from a spoiled row must stay clean.
std::vector<test::MaskSpec> masks() {
  Rng rng(6);
  return {test::causal_spec(), test::causal_spec() & test::window_spec(20, 0),
          test::keep_spec(test::random_bools(rng, {1, 1, 60, 150}, 0.5))};
}

TEST(BackwardPoison, InAQueryReachesItsRowAndTheKeysItSees) {
  for (const bool cosine : {false, true}) {
    for (const auto& mask : masks()) {
      for (const double poison : kPoisons) {
        AttentionCase c = medium(cosine);
        c.mask = mask;
        c.q[c.query_at(c.entry(0), 1, 17, c.d_k) + 3] = poison;
        expect_reach_in_both(backward_of(c));
      }
    }
  }
}

TEST(BackwardPoison, InAKeyReachesTheRowsThatSeeItAndWhatTheySee) {
  for (const bool cosine : {false, true}) {
    for (const auto& mask : masks()) {
      for (const double poison : kPoisons) {
        AttentionCase c = medium(cosine);
        c.mask = mask;
        c.k[c.key_at(c.entry(1), 3, 100, c.d_k) + 5] = poison;
        expect_reach_in_both(backward_of(c));
      }
    }
  }
}

TEST(BackwardPoison, InAValueReachesNoGradientOfValues) {
  for (const auto& mask : masks()) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium();
      c.mask = mask;
      c.v[c.key_at(c.entry(1), 3, 100, c.d_v) + 5] = poison;
      expect_reach_in_both(backward_of(c));
    }
  }
}

TEST(BackwardPoison, InTheGradientOfTheOutputReachesWhatTheRowSees) {
  for (const auto& mask : masks()) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium();
      c.mask = mask;
      BackwardCase b = backward_of(c);
      b.d_out[c.query_at(c.entry(0), 2, 44, c.d_v) + 7] = poison;
      expect_reach_in_both(b);
      b = backward_of(c);
      b.d_lse[c.query_at(c.entry(0), 2, 44, 1)] = poison;
      expect_reach_in_both(b);
    }
  }
}

TEST(BackwardPoison, InASeenBiasReachesItsRow) {
  for (const double poison : {std::nan(""), kInf}) {
    AttentionCase c = medium();
    Rng rng(7);
    c.mask = test::causal_spec();
    c.bias = test::random_bias(rng, {1, 1, c.q_len, c.kv_len});
    c.bias->values[c.bias->place(0, 0, 30, 50)] = poison;
    c.bias->values[c.bias->place(0, 0, 30, 51)] = -kInf;
    expect_reach_in_both(backward_of(c));
  }
}

// A dropped weight is still in the softmax; its value is not in the output.
TEST(BackwardPoison, InADroppedValueReachesNothing) {
  AttentionCase c = medium();
  c.dropout_rate = 0.5f;
  c.dropout_seed = 3;
  c.q_len = 1;
  c.heads = c.kv_heads = 1;
  c.batch = 1;
  c.head_scales = {1};
  c.alibi_slopes = {0};
  c = test::filled(c, 8);
  BackwardCase b = backward_of(c);
  for (std::int64_t j = 0; j < c.kv_len; ++j) {
    if (!test::reference_drops(c, 0, 0, 0, j)) continue;
    fill_row(b.forward.v, c.key_at(c.entry(0), 0, j, c.d_v), c.d_v,
             std::nan(""));
  }
  expect_reach<float>(b, false);
  expect_reach<double>(b, false);
}

// All kinds of trouble at once, beside healthy rows.
TEST(BackwardPoison, OfAllKindsTogetherStaysWhereItBelongs) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    AttentionCase c = medium(test::chance(rng, 0.3));
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    if (test::chance(rng, 0.5)) c.sinks = {0, 1, 2, 3};
    BackwardCase b = backward_of(c);
    AttentionCase& f = b.forward;
    for (auto* values : {&f.q, &f.k, &f.v, &b.d_out}) {
      const auto at = test::pick(rng, 0, std::ssize(*values) - 1);
      (*values)[static_cast<std::size_t>(at)] = test::random_poison(rng);
    }
    SCOPED_TRACE(seed);
    const auto exact = test::reference_backward<double>(b);
    bool some = false;
    test::for_each_gradient(
        [&](const char*, const auto& values) {
          for (const double value : values) {
            some = some || !std::isfinite(value);
          }
        },
        exact);
    expect_reach<float>(b, some);
    expect_reach<double>(b, some);
  }
}

}  // namespace
}  // namespace regard
