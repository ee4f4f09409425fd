// SPDX-License-Identifier: Apache-2.0
// The bits of the gradients depend on nothing but the numbers: not on threads,
// the batch, padding or the vector width.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "regard/core/aligned_buffer.h"
#include "regard/core/threads.h"
#include "support/every_path.h"
#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardCase;
using test::BackwardRun;
using test::Rng;

struct Sizes {
  std::int64_t batch = 1, heads = 2, kv_heads = 1, q_len = 101, kv_len = 301,
               d_k = 16, d_v = 24;
};

AttentionCase sized(const Sizes& s) {
  return test::filled(
      {s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, s.d_k, s.d_v});
}

// Options that have a gradient of their own, and dropout. No bias.
AttentionCase with_options(const Sizes& s) {
  AttentionCase c = sized(s);
  Rng rng(2);
  const auto heads = static_cast<std::size_t>(c.heads);
  c.head_scales = test::normal_values(rng, heads);
  c.alibi_slopes = test::normal_values(rng, heads, 0.1);
  c.sinks = test::normal_values(rng, heads);
  c.softcap = 4;
  c.dropout_rate = 0.2f;
  c.dropout_seed = 77;
  return c;
}

BackwardCase backward_of(const AttentionCase& c) {
  Rng rng(3);
  return test::backward_case(rng, c, true);
}

template <typename T>
void expect_same_for_any_threads(const AttentionCase& c) {
  const BackwardCase b = test::rounded_to<T>(backward_of(c));
  const auto one = test::run_backward<T>(b);
  for (const int threads : {2, 3, 5}) {
    EXPECT_EQ(test::different_bits(
                  test::run_backward<T>(b, {.threads = threads}), one),
              "")
        << threads << " threads, " << c.describe();
  }
}

// Few heads: their blocks of keys are shared out.
TEST(BackwardBits, AreTheSameForAnyThreadsWhenKeysAreSharedOut) {
  for (const auto& mask :
       {test::MaskSpec{}, test::causal_spec(), test::window_spec(40, 0),
        test::lengths_spec({200}, {40})}) {
    for (const Sizes& sizes : {Sizes{}, Sizes{.heads = 3, .kv_heads = 3},
                               Sizes{.heads = 5, .q_len = 45, .kv_len = 500}}) {
      AttentionCase c = with_options(sizes);
      c.mask = mask;
      expect_same_for_any_threads<float>(c);
      expect_same_for_any_threads<BFloat16>(c);
      c.cosine = true;
      expect_same_for_any_threads<Float16>(c);
      expect_same_for_any_threads<double>(c);
    }
  }
}

// 24 key-value heads: 2, 3 and 5 threads take whole ones, and 7 blocks of keys.
TEST(BackwardBits, AreTheSameForAnyThreadsWhenHeadsAreSharedOut) {
  AttentionCase c = with_options(
      {.batch = 6, .heads = 8, .kv_heads = 4, .q_len = 53, .kv_len = 110});
  c.mask = test::causal_spec();
  expect_same_for_any_threads<float>(c);
  expect_same_for_any_threads<BFloat16>(c);
  const BackwardCase b = backward_of(c);
  EXPECT_EQ(test::different_bits(test::run_backward<float>(b),
                                 test::run_backward<float>(b, {.threads = 7})),
            "");
}

// All threads add to the same few sums.
TEST(BackwardBits, OfASharedBiasAreTheSameForAnyThreads) {
  for (int bits = 0; bits < 16; ++bits) {
    for (const Sizes& sizes :
         {Sizes{.d_k = 8, .d_v = 8},
          Sizes{.batch = 2, .heads = 5, .q_len = 77, .d_k = 8, .d_v = 8},
          Sizes{.batch = 4,
          .heads = 6,
          .kv_heads = 6,
          .q_len = 50,
          .kv_len = 100}}) {
      AttentionCase c = sized(sizes);
      Rng rng(4);
      c.bias = test::random_bias(rng, c.pair_shape(bits));
      for (int repeat = 0; repeat < (bits >= 8 ? 4 : 1); ++repeat) {
        expect_same_for_any_threads<float>(c);
      }
    }
  }
}

// On cache lines it is written past the caches.
TEST(BackwardBits, OfABiasDoNotDependOnWhereItsGradientStands) {
  AttentionCase c = sized({.heads = 2, .q_len = 101, .kv_len = 301});
  c.mask = test::causal_spec();
  Rng rng(4);
  c.bias = test::random_bias(rng, c.pair_shape());
  const BackwardCase b = backward_of(c);
  constexpr std::int64_t kStride = 304;
  const std::int64_t rows = c.batch * c.heads * c.q_len;
  const auto run = [&](std::int64_t shift, AlignedBuffer& memory) {
    const auto floats = static_cast<std::size_t>(rows * kStride + shift);
    memory = AlignedBuffer(floats * sizeof(float));
    auto* const data = reinterpret_cast<float*>(memory.data());
    std::fill(data, data + floats, std::numeric_limits<float>::quiet_NaN());
    test::BackwardCall<float> call(b, {});
    call.gradients.bias = {
        data + shift,
        {c.batch, c.heads, c.q_len, c.kv_len},
        {c.heads * c.q_len * kStride, c.q_len * kStride, kStride, 1}};
    attention_backward(call.inputs, call.gradients, call.options);
    return data + shift;
  };
  AlignedBuffer one, other;
  const float* const on_lines = run(0, one);
  const float* const beside = run(1, other);
  for (std::int64_t r = 0; r < rows; ++r) {
    ASSERT_EQ(std::memcmp(on_lines + r * kStride, beside + r * kStride,
                          static_cast<std::size_t>(c.kv_len) * sizeof(float)),
              0)
        << r;
    ASSERT_FALSE(std::isnan(on_lines[r * kStride]));
  }
}

TEST(BackwardBits, OfPackedSequencesAreTheSameForAnyThreads) {
  AttentionCase c =
      test::filled(test::packed_shape(with_options({}), {100, 0, 1, 59, 50},
                                      {50, 20, 200, 130, 0}),
                   5);
  Rng rng(5);
  c.bias = test::random_bias(rng, {1, 1, 100, 200});
  c.mask = test::causal_spec();
  expect_same_for_any_threads<float>(c);
  expect_same_for_any_threads<Float16>(c);
}

TEST(BackwardBits, AreTheSameInACallersOwnPoolAndInsideATask) {
  const BackwardCase b = backward_of(with_options({}));
  const auto one = test::run_backward<float>(b);
  ThreadPool pool(3);
  test::BackwardCall<float> call(b, {.threads = 3});
  call.options.threads.pool = &pool;
  attention_backward(call.inputs, call.gradients, call.options);
  EXPECT_EQ(test::different_bits(call.take(), one), "");
  // From inside a task: everything runs in that thread.
  std::vector<std::string> different(4);
  parallel_for({.count = 2}, 4, [&](std::int64_t n) {
    different[static_cast<std::size_t>(n)] =
        test::different_bits(test::run_backward<float>(b, {.threads = 3}), one);
  });
  EXPECT_EQ(different, std::vector<std::string>(4));
}

// One entry of a batch as a call of its own, in the same place of the counter
// of dropout: entry 0.
TEST(BackwardBits, DoNotDependOnTheBatch) {
  for (const int threads : {1, 2}) {
    AttentionCase whole =
        with_options({.batch = 7, .heads = 4, .kv_heads = 2, .q_len = 61});
    Rng rng(6);
    whole.bias =
        test::random_bias(rng, {7, whole.heads, whole.q_len, whole.kv_len});
    whole.mask = test::causal_spec();
    const BackwardCase b = backward_of(whole);
    BackwardCase alone = b;
    alone.forward.batch = 1;
    alone.forward.bias->shape[0] = 1;
    for (auto* values :
         {&alone.forward.q, &alone.forward.k, &alone.forward.v, &alone.d_out,
          &alone.d_lse, &alone.forward.bias->values}) {
      values->resize(values->size() / 7);
    }
    auto all = test::run_backward<float>(b, {.threads = threads});
    const auto first = test::run_backward<float>(alone);
    for (auto* values : {&all.q, &all.k, &all.v, &all.bias}) {
      values->resize(values->size() / 7);
    }
    // These are sums over the batch.
    all.alibi_slopes = first.alibi_slopes;
    all.sinks = first.sinks;
    all.head_scales = first.head_scales;
    EXPECT_EQ(test::different_bits(all, first), "") << threads << " threads";
  }
}

// The same sequences padded to one length, and laid one after the other.
TEST(BackwardBits, OfPaddedAndPackedSequencesAreTheSame) {
  const std::vector<std::int64_t> q_lens{50, 1, 130, 97},
      kv_lens{60, 200, 97, 96};
  AttentionCase padded = sized(
      {.batch = 4, .heads = 4, .kv_heads = 2, .q_len = 130, .kv_len = 200});
  padded.mask = test::lengths_spec(kv_lens, q_lens) &
                test::causal_spec(mask::at_offset(20));
  Rng rng(7);
  padded.sinks = test::normal_values(rng, 4);
  padded.head_scales = test::normal_values(rng, 4);
  padded.dropout_rate = 0.3f;
  padded.dropout_seed = 5;
  padded.bias = test::random_bias(rng, {4, 1, 130, 200});
  const BackwardCase b = backward_of(padded);

  BackwardCase p{.forward = test::packed_shape(padded, q_lens, kv_lens)};
  AttentionCase& packed = p.forward;
  // to[n] <- from, in the order of the packed rows.
  const auto gather = [&](const auto& from, bool queries, std::int64_t heads,
                          std::int64_t width) {
    std::decay_t<decltype(from)> to;
    const std::int64_t length = queries ? padded.q_len : padded.kv_len;
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t s = 0; s < 4; ++s) {
        const std::int64_t rows =
            (queries ? q_lens : kv_lens)[static_cast<std::size_t>(s)];
        const auto at = from.begin() + (s * heads + h) * length * width;
        to.insert(to.end(), at, at + rows * width);
      }
    }
    return to;
  };
  packed.q = gather(padded.q, true, 4, packed.d_k);
  packed.k = gather(padded.k, false, 2, packed.d_k);
  packed.v = gather(padded.v, false, 2, packed.d_v);
  p.d_out = gather(b.d_out, true, 4, packed.d_v);
  p.d_lse = gather(b.d_lse, true, 4, 1);

  // Rows of padding keep their sink, which gets their d_lse.
  BackwardCase without = b;
  for (std::int64_t s = 0; s < 4; ++s) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = q_lens[static_cast<std::size_t>(s)]; i < 130; ++i) {
        without.d_lse[padded.query_at(padded.entry(s), h, i, 1)] = 0;
      }
    }
  }
  for (const int threads : {1, 2}) {
    auto want = test::run_backward<float>(without, {.threads = threads});
    want.q = gather(want.q, true, 4, packed.d_k);
    want.k = gather(want.k, false, 2, packed.d_k);
    want.v = gather(want.v, false, 2, packed.d_v);
    EXPECT_EQ(test::different_bits(
                  test::run_backward<float>(p, {.threads = threads}), want),
              "");
  }
}

TEST(BackwardTargets, GiveTheSameBits) {
  for (const bool cosine : {false, true}) {
    AttentionCase c = with_options({.batch = 2,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .q_len = 53,
                                    .kv_len = 203,
                                    .d_k = 37,
                                    .d_v = 21});
    Rng rng(8);
    c.cosine = cosine;
    c.mask =
        test::causal_spec() & test::keep_spec(test::random_bools(
                                  rng, {c.batch, c.heads, c.q_len, c.kv_len}));
    c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
    const BackwardCase b = backward_of(c);
    const auto best = test::run_backward<float>(b);
    const auto best_half = test::run_backward<Float16>(b);
    test::on_every_simd_target([&](const std::string& target) {
      if (!test::fuses_products(target)) return;
      EXPECT_EQ(test::different_bits(test::run_backward<float>(b), best), "");
      EXPECT_EQ(test::different_bits(test::run_backward<Float16>(b), best_half),
                "");
    });
  }
}

// SCALAR has no kernels: there the plain loops serve floats too.
TEST(BackwardTargets, AreAllAsExactAsTheDefinition) {
  AttentionCase c = with_options(
      {.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 53, .kv_len = 103});
  Rng rng(9);
  c.mask = test::causal_spec();
  c.bias = test::random_bias(rng, {1, c.heads, 1, c.kv_len});
  test::on_every_simd_target([&](const std::string&) {
    EXPECT_EQ(test::gradient_complaint<float>(backward_of(c)), "");
    EXPECT_EQ(test::gradient_complaint<BFloat16>(backward_of(c)), "");
  });
}

}  // namespace
}  // namespace regard
