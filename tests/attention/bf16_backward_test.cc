// SPDX-License-Identifier: Apache-2.0
// attention_backward with compute = kBFloat16, on every path that the machine
// has: every shape and option near the gradients in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/bf16_cases.h"
#include "support/every_path.h"
#include "support/refusal.h"
#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardCase;
using test::BackwardRun;
using test::DenseBools;
using test::fill_row;
using test::filled;
using test::kPoisons;
using test::Layout;
using test::medium_bf16_case;
using test::on_every_bf16_path;
using test::Rng;

template <typename T>
test::ProducedGradients<T> run(const BackwardCase& b,
                               BackwardRun options = {}) {
  options.compute = Compute::kBFloat16;
  return test::run_backward<T>(b, options);
}

// A weight, a score's gradient and what is stored are each off by half a unit
// of bf16, 2^-9, and so are the log-sum-exp and out, of which delta is made: a
// sum that may cancel, so that no size of a single term holds its error. Hence
// both a part of the term's own size and one of the largest; and together they
// must be much nearer.
template <typename T>
void expect_near(const BackwardCase& b, const BackwardRun& options) {
  const test::ReferenceBackward<double> exact(b);
  const auto got = run<T>(b, options);
  const auto judge = [&](const char* name, const auto& ours,
                         const std::vector<double>& truth,
                         const std::vector<double>& sizes) {
    ASSERT_EQ(ours.size(), truth.size()) << name;
    const double floor = 0x1p-8 * test::largest_magnitude(sizes) + 1e-30;
    double squares = 0, size_squares = 0;
    for (std::size_t n = 0; n < ours.size(); ++n) {
      ASSERT_NEAR(test::to_double(ours[n]), truth[n], 0x1p-6 * sizes[n] + floor)
          << name << "[" << n << "], " << b.forward.describe();
      squares += std::pow(test::to_double(ours[n]) - truth[n], 2);
      size_squares += std::pow(sizes[n], 2);
    }
    EXPECT_LE(std::sqrt(squares), 0x1p-7 * std::sqrt(size_squares) + 1e-30)
        << name << ", " << b.forward.describe();
  };
  test::for_each_gradient(judge, got, exact.result, exact.sizes);
  EXPECT_TRUE(got.gaps_are_untouched);
}

// Inputs are bf16 numbers, in every storage type.
void expect_exact(const AttentionCase& c, const BackwardRun& options = {},
                  bool with_d_lse = false) {
  Rng rng(9);
  const BackwardCase b =
      test::rounded_to<BFloat16>(test::backward_case(rng, c, with_d_lse));
  on_every_bf16_path([&] {
    expect_near<float>(b, options);
    expect_near<BFloat16>(b, options);
  });
}

class Bf16BackwardShapes : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(Bf16BackwardShapes, AreNearTheDefinition) {
  expect_exact(filled(GetParam()));
}

TEST_P(Bf16BackwardShapes, AreNearUnderACausalMask) {
  AttentionCase c = filled(GetParam());
  c.mask = test::causal_spec();
  expect_exact(c, {}, true);
}

INSTANTIATE_TEST_SUITE_P(, Bf16BackwardShapes,
                         ::testing::ValuesIn(test::bf16_shapes(144, 160)),
                         [](const auto& c) { return c.param.shape_name(); });

TEST(Bf16Backward, TakesEveryLayout) {
  for (const Layout layout : {Layout::kLengthFirst, Layout::kWithGaps}) {
    expect_exact(
        medium_bf16_case(),
        {.q = layout, .kv = layout, .out = layout, .gradients = layout});
  }
}

TEST(Bf16Backward, HasEveryMask) {
  AttentionCase c = medium_bf16_case();
  Rng rng(2);
  for (int n = 0; n < 20; ++n) {
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    expect_exact(c);
  }
}

TEST(Bf16Backward, HasEveryOption) {
  test::with_every_bf16_option([](AttentionCase c) {
    expect_exact(c, {}, true);
    c.mask = test::causal_spec() & test::window_spec(70, 0);
    expect_exact(c);
  });
}

TEST(Bf16Backward, HasPackedSequences) {
  AttentionCase c = filled(test::six_sequences());
  expect_exact(c);
  c.mask = test::causal_spec();
  c.alibi_slopes = {0.1, 0.2, -0.3, 0};
  c.dropout_rate = 0.2f;
  expect_exact(c, {}, true);
}

TEST(Bf16Backward, WritesOnlyWhatIsWanted) {
  Rng rng(9);
  const BackwardCase b = test::rounded_to<BFloat16>(
      test::backward_case(rng, medium_bf16_case(), false));
  on_every_bf16_path([&] {
    const auto all = run<float>(b);
    EXPECT_EQ(run<float>(b, {.want_k = false, .want_v = false}).q, all.q);
    EXPECT_EQ(run<float>(b, {.want_q = false, .want_v = false}).k, all.k);
    EXPECT_EQ(run<float>(b, {.want_q = false, .want_k = false}).v, all.v);
  });
}

TEST(Bf16Backward, GivesTheSameBitsForAnyThreadsAndBatch) {
  AttentionCase c = filled({3, 4, 2, 150, 300, 40, 24});
  c.mask = test::causal_spec();
  c.dropout_rate = 0.1f;
  c.alibi_slopes = {0.1, 0.2, -0.3, 0};
  Rng rng(9);
  const BackwardCase b = test::backward_case(rng, c, true);
  on_every_bf16_path([&] {
    const auto whole = run<BFloat16>(b);
    for (const int threads : {2, 3, 7}) {
      EXPECT_EQ(
          test::different_bits(run<BFloat16>(b, {.threads = threads}), whole),
          "");
    }
    BackwardCase one = b;
    one.forward = test::alone(b.forward, 0);
    one.d_out.resize(b.d_out.size() / 3);
    one.d_lse.resize(b.d_lse.size() / 3);
    const auto alone = run<BFloat16>(one);
    const auto begins = [](const auto& part, const auto& all) {
      return std::memcmp(part.data(), all.data(),
                         part.size() * sizeof(part[0])) == 0;
    };
    EXPECT_TRUE(begins(alone.q, whole.q));
    EXPECT_TRUE(begins(alone.k, whole.k));
    EXPECT_TRUE(begins(alone.v, whole.v));
  });
}

// Where q and k are longer by powers of two, their gradients are shorter by
// them, and nothing else changes.
TEST(Bf16Backward, CosineScoresTakeVectorsOfAnyLength) {
  AttentionCase c = medium_bf16_case();
  c.cosine = true;
  c.head_scales = {6, 2, 0.5, -1};
  Rng rng(9);
  const BackwardCase plain = test::backward_case(rng, c, true);
  on_every_bf16_path([&] {
    const auto expected = run<float>(plain);
    for (const double q_size : {0x1p-80, 1.0, 0x1p80}) {
      for (const double k_size : {0x1p-70, 1.0, 0x1p83}) {
        BackwardCase b = plain;
        for (double& x : b.forward.q) x *= q_size;
        for (double& x : b.forward.k) x *= k_size;
        auto got = run<float>(b);
        for (float& x : got.q) x *= static_cast<float>(q_size);
        for (float& x : got.k) x *= static_cast<float>(k_size);
        EXPECT_EQ(test::different_bits(got, expected), "")
            << q_size << " " << k_size;
      }
    }
  });
}

// Not what float gives: the option is not ignored.
TEST(Bf16Backward, RoundsToBf16) {
  Rng rng(9);
  const BackwardCase b = test::backward_case(rng, medium_bf16_case(), false);
  EXPECT_NE(run<float>(b).k, test::run_backward<float>(b).k);
  const BackwardCase rounded = test::rounded_to<BFloat16>(b);
  on_every_bf16_path(
      [&] { EXPECT_EQ(run<float>(b).v, run<float>(rounded).v); });
}

// ---- NaN and infinities ----

TEST(Bf16Backward, KeepsPoisonInHiddenPlacesFromEveryGradient) {
  for (const bool cosine : {false, true}) {
    for (const double poison : kPoisons) {
      AttentionCase c = medium_bf16_case();
      c.cosine = cosine;
      c.head_scales = {1, 2, 0.5, -1};
      DenseBools pairs({1, 1, c.q_len, c.kv_len});  // hides row 5 and key 33
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        for (std::int64_t j = 0; j < c.kv_len; ++j) {
          pairs(0, 0, i, j) = i != 5 && j != 33;
        }
      }
      c.mask = test::keep_spec(pairs);
      Rng rng(2);
      const BackwardCase clean = test::backward_case(rng, c, false);
      BackwardCase poisoned = clean;
      AttentionCase& p = poisoned.forward;
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const auto e = c.entry(b);
        for (std::int64_t h = 0; h < c.heads; ++h) {
          fill_row(p.k, c.key_at(e, h, 33, c.d_k), c.d_k, poison);
          fill_row(p.v, c.key_at(e, h, 33, c.d_v), c.d_v, poison);
          fill_row(p.q, c.query_at(e, h, 5, c.d_k), c.d_k, poison);
          fill_row(poisoned.d_out, c.query_at(e, h, 5, c.d_v), c.d_v, poison);
        }
      }
      on_every_bf16_path([&] {
        EXPECT_EQ(test::different_bits(run<float>(clean), run<float>(poisoned)),
                  "");
      });
    }
  }
}

TEST(Bf16Backward, LetsPoisonReachWhatDependsOnIt) {
  for (const double poison : kPoisons) {
    for (int what = 0; what < 4; ++what) {
      AttentionCase c = medium_bf16_case();
      c.mask = test::causal_spec();
      Rng rng(2);
      BackwardCase b =
          test::rounded_to<BFloat16>(test::backward_case(rng, c, false));
      const auto e = c.entry(0);
      AttentionCase& f = b.forward;
      if (what == 0) f.q[c.query_at(e, 1, 7, c.d_k) + 3] = poison;
      if (what == 1) f.k[c.key_at(e, 1, 120, c.d_k) + 3] = poison;
      if (what == 2) f.v[c.key_at(e, 1, 120, c.d_v) + 3] = poison;
      if (what == 3) b.d_out[c.query_at(e, 1, 7, c.d_v) + 3] = poison;
      const auto exact = test::reference_backward<double>(b);
      on_every_bf16_path([&] {
        const auto got = run<float>(b);
        test::for_each_gradient(
            [&](const char* name, const auto& x, const auto& y) {
              for (std::size_t n = 0; n < x.size(); ++n) {
                ASSERT_EQ(std::isfinite(x[n]), std::isfinite(y[n]))
                    << name << "[" << n << "], poison " << poison << " in "
                    << what;
              }
            },
            got, exact);
      });
    }
  }
}

TEST(Bf16Backward, RefusesDouble) {
  Rng rng(2);
  const BackwardCase b = test::backward_case(rng, medium_bf16_case(), false);
  test::BackwardCall<double> call(b, {});
  call.options.compute = Compute::kBFloat16;
  EXPECT_EQ(test::refusal([&] {
              attention_backward(call.inputs, call.gradients, call.options);
            }),
            "attention_backward: compute in bf16 is for float, bf16 and fp16; "
            "q is double");
}

}  // namespace
}  // namespace regard
