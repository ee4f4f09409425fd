// SPDX-License-Identifier: Apache-2.0
// NaN and infinities reach exactly the rows that see them.
#include <gtest/gtest.h>

#include <vector>

#include "support/expect_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::DenseBools;
using test::kPoisons;
using test::Rng;

AttentionCase medium() {
  return test::filled({.batch = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .q_len = 60,
                       .kv_len = 150,
                       .d_k = 16,
                       .d_v = 24});
}

void poison_key(AttentionCase& c, std::int64_t b, std::int64_t h,
                std::int64_t j, double poison) {
  test::fill_row(c.k, c.key_at(c.entry(b), h, j, c.d_k), c.d_k, poison);
}
void poison_value(AttentionCase& c, std::int64_t b, std::int64_t h,
                  std::int64_t j, double poison) {
  test::fill_row(c.v, c.key_at(c.entry(b), h, j, c.d_v), c.d_v, poison);
}

// Both in every storage type: hidden places change no bit.
template <typename T>
void expect_same(const AttentionCase& clean, const AttentionCase& poisoned) {
  const auto a = test::run_attention<T>(test::rounded_to<T>(clean));
  const auto b = test::run_attention<T>(test::rounded_to<T>(poisoned));
  EXPECT_EQ(test::different_bits(a, b), "") << clean.describe();
}

void expect_same_in_all(const AttentionCase& clean,
                        const AttentionCase& poisoned) {
  expect_same<float>(clean, poisoned);
  expect_same<double>(clean, poisoned);
  expect_same<BFloat16>(clean, poisoned);
  expect_same<Float16>(clean, poisoned);
}

void expect_exact(const AttentionCase& c) { test::expect_exact<float>(c); }

TEST(Poison, InPaddingReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    clean.mask = test::lengths_spec({97, 150});
    AttentionCase poisoned = clean;
    for (std::int64_t h = 0; h < clean.heads; ++h) {
      for (std::int64_t j = 97; j < clean.kv_len; ++j) {
        poison_key(poisoned, 0, h, j, poison);
        poison_value(poisoned, 0, h, j, poison);
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

TEST(Poison, InPaddedQueriesReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    clean.mask = test::lengths_spec({150, 150}, {31, 60});
    AttentionCase poisoned = clean;
    for (std::int64_t h = 0; h < clean.heads; ++h) {
      for (std::int64_t i = 31; i < clean.q_len; ++i) {
        test::fill_row(poisoned.q,
                       clean.query_at(clean.entry(0), h, i, clean.d_k),
                       clean.d_k, poison);
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

// A key inside a block that others see: the weight 0 must not meet the value.
TEST(Poison, InKeysHiddenByADenseMaskReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    Rng rng(3);
    const DenseBools pairs =
        test::random_bools(rng, {2, 1, 1, clean.kv_len}, 0.3);
    clean.mask = test::drop_spec(pairs);
    AttentionCase poisoned = clean;
    for (std::int64_t b = 0; b < clean.batch; ++b) {
      for (std::int64_t h = 0; h < clean.heads; ++h) {
        for (std::int64_t j = 0; j < clean.kv_len; ++j) {
          if (!pairs(b, 0, 0, j)) continue;
          poison_key(poisoned, b, h, j, poison);
          poison_value(poisoned, b, h, j, poison);
        }
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

TEST(Poison, InValuesUnderAnInfinitelyNegativeBiasReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    Rng rng(4);
    clean.bias = test::random_bias(rng, {1, 1, 1, clean.kv_len});
    for (std::int64_t j = 0; j < clean.kv_len; j += 3) {
      clean.bias->values[j] = -HUGE_VAL;
    }
    AttentionCase poisoned = clean;
    for (std::int64_t j = 0; j < clean.kv_len; j += 3) {
      poison_value(poisoned, 1, 0, j, poison);
    }
    expect_same_in_all(clean, poisoned);
  }
}

TEST(Poison, InKeysUnderAnInfinitelyNegativeBiasReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    Rng rng(4);
    clean.bias = test::random_bias(rng, {1, 1, 1, clean.kv_len});
    AttentionCase poisoned = clean;
    for (const std::int64_t j : {0, 7, 149}) {
      clean.bias->values[j] = poisoned.bias->values[j] = -HUGE_VAL;
      poison_key(poisoned, 1, 0, j, poison);
      poison_value(poisoned, 1, 1, j, poison);
    }
    expect_same_in_all(clean, poisoned);
  }
}

// What comes after a NaN must not hide it: not even a key that is hidden.
TEST(Poison, InAQueryStaysWhereTheLastKeyIsHidden) {
  AttentionCase c = test::filled({.q_len = 2, .kv_len = 3, .d_k = 4, .d_v = 2});
  c.bias = test::BiasSpec{.shape = {1, 1, 1, 3}, .values = {0, 0, -HUGE_VAL}};
  test::fill_row(c.q, 0, c.d_k, NAN);
  const auto expect_nan = [&](const auto& produced) {
    EXPECT_TRUE(std::isnan(test::to_double(produced.out[0])));
    EXPECT_TRUE(std::isnan(produced.lse[0]));
    EXPECT_FALSE(std::isnan(test::to_double(produced.out[2])));
  };
  expect_nan(test::run_attention<float>(c));
  expect_nan(test::run_attention<double>(c));
}

TEST(Poison, InHiddenBiasReachesNothing) {
  for (const double poison : kPoisons) {
    AttentionCase clean = medium();
    Rng rng(5);
    clean.mask = test::causal_spec() & test::window_spec(33, 0);
    clean.bias = test::random_bias(
        rng, {clean.batch, clean.heads, clean.q_len, clean.kv_len});
    AttentionCase poisoned = clean;
    const auto sizes = clean.entry(0).sizes;
    for (std::int64_t i = 0; i < clean.q_len; ++i) {
      for (std::int64_t j = 0; j < clean.kv_len; ++j) {
        if (clean.mask.visible(sizes, 0, 0, i, j)) continue;
        poisoned.bias->values[clean.bias->place(1, 2, i, j)] = poison;
      }
    }
    expect_same_in_all(clean, poisoned);
  }
}

// The rows that see key j, and no others, change; the others keep every bit.
TEST(Poison, InASeenKeySpoilsExactlyTheRowsThatSeeIt) {
  for (const double poison : kPoisons) {
    for (const std::int64_t j : {0, 47, 48, 93, 110, 149}) {
      AttentionCase clean = medium();
      clean.mask = test::causal_spec() & test::window_spec(20, 0);
      const auto before = test::run_attention<float>(clean);
      AttentionCase poisoned = clean;
      poison_key(poisoned, 1, 3, j, poison);
      const auto after = test::run_attention<float>(poisoned);
      const auto e = clean.entry(1);
      for (std::int64_t b = 0; b < clean.batch; ++b) {
        for (std::int64_t h = 0; h < clean.heads; ++h) {
          for (std::int64_t i = 0; i < clean.q_len; ++i) {
            const bool sees =
                b == 1 && h / 2 == 1 && clean.mask.visible(e.sizes, b, h, i, j);
            const std::size_t at =
                clean.query_at(clean.entry(b), h, i, clean.d_v);
            for (std::int64_t d = 0; d < clean.d_v; ++d) {
              if (sees) {
                EXPECT_TRUE(std::isnan(after.out[at + d]));
              } else {
                EXPECT_EQ(after.out[at + d], before.out[at + d]);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Poison, InASeenValueReachesItsOwnElementOfTheRowsThatSeeIt) {
  for (const double poison : kPoisons) {
    for (const std::int64_t j : {0, 47, 48, 93, 110, 149}) {
      AttentionCase c = medium();
      c.mask = test::causal_spec();
      c.v[c.key_at(c.entry(1), 2, j, c.d_v) + 5] = poison;
      expect_exact(c);
      c.mask = test::causal_spec() & test::window_spec(20, 0);
      expect_exact(c);
    }
  }
}

TEST(Poison, InAQuerySpoilsItsRowAlone) {
  for (const double poison : kPoisons) {
    AttentionCase c = medium();
    c.q[c.query_at(c.entry(0), 1, 17, c.d_k) + 3] = poison;
    expect_exact(c);
    c.mask = test::causal_spec();
    expect_exact(c);
  }
}

TEST(Poison, InASeenBiasSpoilsTheRow) {
  for (const double poison : kPoisons) {
    AttentionCase c = medium();
    Rng rng(6);
    c.mask = test::causal_spec();
    c.bias = test::random_bias(rng, {1, 1, c.q_len, c.kv_len});
    c.bias->values[c.bias->place(0, 0, 30, 50)] = poison;
    expect_exact(c);
  }
}

// A whole tile of rows with all kinds of trouble at once, beside healthy rows.
TEST(Poison, OfAllKindsTogetherStaysWhereItBelongs) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    AttentionCase c = medium();
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    for (auto* values : {&c.q, &c.k, &c.v}) {
      for (int n = 0; n < 3; ++n) {
        const auto at = test::pick(rng, 0, std::ssize(*values) - 1);
        (*values)[at] = test::random_poison(rng);
      }
    }
    SCOPED_TRACE(seed);
    expect_exact(c);
  }
}

TEST(Poison, BeforeAndAfterTheTensorsIsNotRead) {
  AttentionCase c = medium();
  for (const auto layout :
       {test::Layout::kWithGaps, test::Layout::kPackedInRows}) {
    test::expect_exact<float>(c, {.q = layout, .kv = layout, .out = layout});
  }
}

}  // namespace
}  // namespace regard
