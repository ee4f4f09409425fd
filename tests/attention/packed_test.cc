// SPDX-License-Identifier: Apache-2.0
// Packed sequences, views that need no copy, and sizes of zero.
#include <gtest/gtest.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <limits>
#include <vector>

#include "support/expect_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::expect_exact;
using test::filled;
using test::Layout;
using test::Rng;

AttentionCase packed(const std::vector<std::int64_t>& q_lens,
                     const std::vector<std::int64_t>& kv_lens) {
  return filled(test::packed_shape(
      {.heads = 4, .kv_heads = 2, .d_k = 16, .d_v = 24}, q_lens, kv_lens));
}

AttentionCase several() { return filled(test::six_sequences()); }

TEST(PackedSequences, AreAsExactAsTheDefinition) {
  AttentionCase c = several();
  test::expect_exact_in_every_storage(c);
  expect_exact<float>(c, {.q = Layout::kLengthFirst,
                          .kv = Layout::kPackedInRows,
                          .out = Layout::kLengthFirst});
}

// Few rows and many keys: the splits run side by side, each with a state of its
// own in memory that nobody has cleared.
TEST(PackedSequences, WithoutKeysYieldZerosBesideLongOnes) {
  const AttentionCase c = filled(
      test::packed_shape({.heads = 2, .kv_heads = 1, .d_k = 16, .d_v = 24},
                         {2, 2, 2}, {0, 9000, 0}),
      3);
#if defined(__GLIBC__)
  mallopt(M_PERTURB, 0x42);
#endif
  expect_exact<float>(c, {.threads = 4});
  expect_exact<BFloat16>(c, {.threads = 4});
#if defined(__GLIBC__)
  mallopt(M_PERTURB, 0);
#endif
}

TEST(PackedSequences, CountMaskPositionsFromTheirOwnStart) {
  AttentionCase c = several();
  for (const auto& spec :
       {test::causal_spec(), test::causal_spec(mask::kTopLeft),
        test::causal_spec() & test::window_spec(9, 0), test::prefix_spec(4),
        test::lengths_spec({3, 5, 60, 20, 0, 99}),
        test::lengths_spec({7, 5, 60, 49, 0, 131}, {7, 0, 0, 40, 3, 90})}) {
    c.mask = spec;
    expect_exact<float>(c);
    expect_exact<BFloat16>(c);
  }
}

TEST(PackedSequences, CountBiasAlibiAndDropoutByTheSequence) {
  AttentionCase c = several();
  Rng rng(2);
  c.alibi_slopes = {0.1, 0.2, -0.3, 0};
  c.dropout_rate = 0.25f;
  c.dropout_seed = 99;
  c.sinks = {0, 1, 2, 3};
  expect_exact<float>(c);
  for (const test::Extents4 shape :
       std::vector<test::Extents4>{{6, 1, 97, 131},
                                   {1, 4, 97, 131},
                                   {6, 4, 100, 140},
                                   {6, 1, 1, 131},
                                   {1, 1, 97, 1}}) {
    c.bias = test::random_bias(rng, shape);
    expect_exact<float>(c);
  }
}

TEST(PackedSequences, MayBeNone) {
  AttentionCase c = packed({}, {});
  const auto produced = test::run_attention<float>(c);
  EXPECT_TRUE(produced.out.empty());
}

TEST(PackedSequences, MayAllBeEmpty) {
  expect_exact<float>(packed({0, 0}, {0, 0}));
  expect_exact<float>(packed({2, 3}, {0, 0}));
  expect_exact<float>(packed({0, 0}, {4, 5}));
}

TEST(PackedSequences, MayBeMany) {
  Rng rng(3);
  std::vector<std::int64_t> q_lens, kv_lens;
  for (int n = 0; n < 300; ++n) {
    q_lens.push_back(test::pick(rng, 0, 9));
    kv_lens.push_back(test::pick(rng, 0, 9));
  }
  AttentionCase c = packed(q_lens, kv_lens);
  c.mask = test::causal_spec();
  expect_exact<float>(c, {.threads = 3});
}

// One buffer [batch, length, 3, heads, width], read where it lies.
TEST(ForwardViews, SlicesOfAPackedQkvNeedNoCopy) {
  const AttentionCase c = filled({.batch = 2,
                                  .heads = 3,
                                  .kv_heads = 3,
                                  .q_len = 50,
                                  .kv_len = 50,
                                  .d_k = 16,
                                  .d_v = 16},
                                 5);
  const std::int64_t width = c.heads * c.d_k;
  std::vector<float> qkv(
      static_cast<std::size_t>(c.batch * c.q_len * 3 * width));
  const test::Extents4 strides{c.q_len * 3 * width, c.d_k, 3 * width, 1};
  const auto at = [&](int which) {
    return TensorView<float, 4>(qkv.data() + which * width, c.q_shape(),
                                strides);
  };
  const std::vector<double>* from[] = {&c.q, &c.k, &c.v};
  for (int which = 0; which < 3; ++which) {
    std::size_t n = 0;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 0; i < c.q_len; ++i) {
          for (std::int64_t d = 0; d < c.d_k; ++d) {
            at(which)(b, h, i, d) = static_cast<float>((*from[which])[n++]);
          }
        }
      }
    }
  }
  test::Stored<float> out(c.out_shape(), Layout::kContiguous);
  attention_forward(at(0), at(1), at(2), out.view());
  EXPECT_EQ(out.elements(), test::run_attention<float>(c).out);
}

TEST(ForwardViews, KeysMayBeBroadcastByStrideZero) {
  AttentionCase c = filled({.batch = 3,
                            .heads = 4,
                            .kv_heads = 4,
                            .q_len = 9,
                            .kv_len = 70,
                            .d_k = 16,
                            .d_v = 8},
                           6);
  // One key and value sequence for every batch entry and head.
  const auto repeat = [&](std::vector<double>& values, std::int64_t width) {
    const auto one = static_cast<std::size_t>(c.kv_len * width);
    for (std::size_t n = one; n < values.size(); ++n)
      values[n] = values[n % one];
    return std::vector<float>(values.begin(),
                              values.begin() + c.kv_len * width);
  };
  const std::vector<float> k = repeat(c.k, c.d_k);
  const std::vector<float> v = repeat(c.v, c.d_v);
  test::Stored<float> q(c.q_shape(), Layout::kContiguous, c.q);
  test::Stored<float> out(c.out_shape(), Layout::kContiguous);
  attention_forward(
      q.const_view(),
      TensorView<const float, 4>(k.data(), c.k_shape(), {0, 0, c.d_k, 1}),
      TensorView<const float, 4>(v.data(), c.v_shape(), {0, 0, c.d_v, 1}),
      out.view());
  EXPECT_EQ(out.elements(), test::run_attention<float>(c).out);
}

TEST(ForwardViews, RowsMayRunBackwards) {
  const AttentionCase c = filled(
      {.heads = 2, .kv_heads = 2, .q_len = 5, .kv_len = 33, .d_k = 8, .d_v = 8},
      7);
  test::Stored<float> q(c.q_shape(), Layout::kContiguous, c.q);
  test::Stored<float> k(c.k_shape(), Layout::kContiguous, c.k);
  test::Stored<float> v(c.v_shape(), Layout::kContiguous, c.v);
  test::Stored<float> out(c.out_shape(), Layout::kContiguous);
  const auto backwards = [&](TensorView<const float, 4> view) {
    return TensorView<const float, 4>(
        view.at(0, 0, c.kv_len - 1), view.shape(),
        {view.stride(0), view.stride(1), -view.stride(2), 1});
  };
  attention_forward(q.const_view(), backwards(k.const_view()),
                    backwards(v.const_view()), out.view());
  AttentionCase reversed = c;
  for (std::int64_t h = 0; h < c.heads; ++h) {
    for (std::int64_t j = 0; j < c.kv_len; ++j) {
      for (std::int64_t d = 0; d < c.d_k; ++d) {
        const auto e = c.entry(0);
        reversed.k[c.key_at(e, h, j, c.d_k) + d] =
            c.k[c.key_at(e, h, c.kv_len - 1 - j, c.d_k) + d];
        reversed.v[c.key_at(e, h, j, c.d_v) + d] =
            c.v[c.key_at(e, h, c.kv_len - 1 - j, c.d_v) + d];
      }
    }
  }
  EXPECT_EQ(out.elements(), test::run_attention<float>(reversed).out);
}

TEST(ForwardZeroSizes, AreTaken) {
  for (const auto& spec : {test::MaskSpec{}, test::causal_spec()}) {
    for (const AttentionCase& shape : test::empty_shapes()) {
      AttentionCase c = filled(shape, 8);
      c.mask = spec;
      expect_exact<float>(c);
      expect_exact<double>(c);
      expect_exact<BFloat16>(c);
    }
  }
}

TEST(ForwardZeroSizes, WithoutKeysTheOutputIsZeroAndTheSumIsTheSink) {
  AttentionCase c = filled({2, 2, 2, 3, 0, 5, 6});
  auto produced = test::run_attention<float>(c);
  EXPECT_EQ(produced.out, std::vector<float>(2 * 2 * 3 * 6, 0.0f));
  EXPECT_EQ(
      produced.lse,
      std::vector<float>(2 * 2 * 3, -std::numeric_limits<float>::infinity()));
  c.sinks = {2, 2};
  produced = test::run_attention<float>(c);
  EXPECT_EQ(produced.out, std::vector<float>(2 * 2 * 3 * 6, 0.0f));
  EXPECT_EQ(produced.lse, std::vector<float>(2 * 2 * 3, 2.0f));
}

TEST(ForwardZeroSizes, NullViewsOfNoElementsAreTaken) {
  attention_forward(TensorView<const float, 4>{}, TensorView<const float, 4>{},
                    TensorView<const float, 4>{}, TensorView<float, 4>{});
  // No keys: k and v have no elements, so no address either.
  const std::vector<float> q(6, 1.0f);
  std::vector<float> out(4, 9.0f);
  attention_forward(TensorView<const float, 4>(q.data(), {1, 1, 2, 3}),
                    TensorView<const float, 4>(nullptr, {1, 1, 0, 3}),
                    TensorView<const float, 4>(nullptr, {1, 1, 0, 2}),
                    TensorView<float, 4>(out.data(), {1, 1, 2, 2}));
  EXPECT_EQ(out, std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace regard
