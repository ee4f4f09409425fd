// SPDX-License-Identifier: Apache-2.0
// What attention_weights gives without all of the weights: chosen rows, blocks
// to a visitor, the largest of each row, what keys receive, and entropy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/attention/weights.h"
#include "regard/kernels/targets.h"
#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::RealFor;
using test::Rng;
using ::testing::HasSubstr;

// What is asked of a case.
struct Wanted {
  std::vector<std::int64_t> rows{};
  OverHeads heads = OverHeads::kEach;
  std::int64_t top = 3;
  OverRows received_over = OverRows::kSum;
  int threads = 1;
  bool all_weights = true;

  std::int64_t row_count(const AttentionCase& c) const {
    return rows.empty() ? c.q_len : std::ssize(rows);
  }
  std::int64_t head_count(const AttentionCase& c) const {
    return heads == OverHeads::kMean ? 1 : c.heads;
  }
  std::int64_t row(std::int64_t i) const {
    return rows.empty() ? i : rows[static_cast<std::size_t>(i)];
  }
};

template <typename Real>
struct Parts {
  std::vector<Real> weights;           // [batch, heads, rows, kv_len]
  std::vector<std::int64_t> top_keys;  // [batch, heads, rows, top]
  std::vector<Real> top_weights;
  std::vector<Real> received;  // [batch, heads, kv_len]
  std::vector<Real> entropy;   // [batch, heads, rows]
};

template <typename T>
Parts<RealFor<T>> run_parts(const AttentionCase& c, const Wanted& wanted) {
  using Real = RealFor<T>;
  test::Stored<T> q(c.q_shape(), test::Layout::kLengthFirst, c.q);
  test::Stored<T> k(c.k_shape(), test::Layout::kWithGaps, c.k);
  test::CallOptions<Real> options(c);
  options.value.threads.count = wanted.threads;
  const std::int64_t batch = c.rows(), heads = wanted.head_count(c),
                     rows = wanted.row_count(c), n = wanted.top;
  const auto sized = [](std::int64_t size) {
    return static_cast<std::size_t>(size);
  };
  Parts<Real> parts;
  if (wanted.all_weights && !c.is_packed()) {
    parts.weights.assign(sized(batch * heads * rows * c.kv_len), Real{42});
  }
  parts.top_keys.assign(sized(batch * heads * rows * n), 42);
  parts.top_weights.assign(sized(batch * heads * rows * n), Real{42});
  parts.received.assign(sized(batch * heads * c.kv_len), Real{42});
  parts.entropy.assign(sized(batch * heads * rows), Real{42});
  BasicWeightsRequest<Real> request{
      .rows = wanted.rows,
      .heads = wanted.heads,
      .top_keys = {parts.top_keys.data(), {batch, heads, rows, n}},
      .top_weights = {parts.top_weights.data(), {batch, heads, rows, n}},
      .received = {parts.received.data(), {batch, heads, c.kv_len}},
      .received_over = wanted.received_over,
      .entropy = {parts.entropy.data(), {batch, heads, rows}}};
  if (!parts.weights.empty()) {
    request.weights = {parts.weights.data(), {batch, heads, rows, c.kv_len}};
  }
  attention_weights(q.const_view(), k.const_view(), request, options.value);
  return parts;
}

// One packed sequence as a case of its own.
AttentionCase alone(const AttentionCase& packed, std::int64_t sequence) {
  const AttentionCase::Entry e = packed.entry(sequence);
  AttentionCase c = packed;
  c.batch = 1;
  c.q_len = e.sizes.q_len;
  c.kv_len = e.sizes.kv_len;
  c.q_offsets.clear();
  c.kv_offsets.clear();
  const auto cut = [](const std::vector<double>& from, std::int64_t heads,
                      std::int64_t length, std::int64_t begin,
                      std::int64_t count) {
    const std::int64_t width = std::ssize(from) / (heads * length);
    std::vector<double> to;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = from.begin() + (h * length + begin) * width;
      to.insert(to.end(), at, at + count * width);
    }
    return to;
  };
  c.q = cut(packed.q, c.heads, packed.q_len, e.q_begin, c.q_len);
  c.k = cut(packed.k, c.kv_heads, packed.kv_len, e.kv_begin, c.kv_len);
  c.v = cut(packed.v, c.kv_heads, packed.kv_len, e.kv_begin, c.kv_len);
  return c;
}

// The same from the definition.
struct ExpectedRow {
  std::vector<double> weights;  // of the keys of its own sequence
  std::int64_t kv_begin = 0;
  std::int64_t sequence = 0;
};

class Expected {
 public:
  Expected(const AttentionCase& c, const Wanted& wanted)
      : c_(c), wanted_(wanted) {
    for (std::int64_t s = 0; s < (c.is_packed() ? c.batch : 1); ++s) {
      weights_.push_back(
          test::reference_attention<double>(c.is_packed() ? alone(c, s) : c)
              .weights);
    }
  }

  ExpectedRow row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::int64_t query = wanted_.row(i);
    if (c_.is_packed()) {
      b = 0;
      while (c_.q_offsets[static_cast<std::size_t>(b) + 1] <= query) ++b;
    }
    const AttentionCase::Entry e = c_.entry(b);
    query -= e.q_begin;
    const std::int64_t kv_len = e.sizes.kv_len;
    ExpectedRow row{std::vector<double>(static_cast<std::size_t>(kv_len)),
                    e.kv_begin, b};
    const bool mean = wanted_.heads == OverHeads::kMean;
    for (std::int64_t head = mean ? 0 : h; head < (mean ? c_.heads : h + 1);
         ++head) {
      const auto& all =
          weights_[c_.is_packed() ? static_cast<std::size_t>(b) : 0];
      const double* from =
          all.data() +
          (((c_.is_packed() ? 0 : b) * c_.heads + head) * e.sizes.q_len +
           query) *
              kv_len;
      for (std::int64_t j = 0; j < kv_len; ++j) {
        // A hidden pair has weight 0, in a broken row too.
        if (!c_.mask.visible(e.sizes, b, head, query, j)) continue;
        row.weights[static_cast<std::size_t>(j)] +=
            from[j] / static_cast<double>(mean ? c_.heads : 1);
      }
    }
    return row;
  }

 private:
  const AttentionCase& c_;
  const Wanted& wanted_;
  std::vector<std::vector<double>> weights_;  // of each sequence, or of all
};

// Keys by weight, ties to the lower; weights above 0 only.
template <typename Real>
std::vector<std::int64_t> sorted_keys(const Real* weights, std::int64_t count) {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j < count; ++j) {
    if (weights[j] > 0) keys.push_back(j);
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [&](auto a, auto b) { return weights[a] > weights[b]; });
  return keys;
}

template <typename T>
double tolerance() {
  return std::is_same_v<T, double> ? 1e-14 : 4e-6;
}

void expect_near(double got, double truth, double tolerance,
                 const std::string& what) {
  if (std::isnan(truth)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
  } else {
    EXPECT_NEAR(got, truth, tolerance) << what;
  }
}

template <typename T>
void expect_parts(const AttentionCase& unrounded, const Wanted& wanted) {
  const AttentionCase c = test::rounded_to<T>(unrounded);
  SCOPED_TRACE(c.describe());
  const auto parts = run_parts<T>(c, wanted);
  const Expected expected(c, wanted);
  const double close = tolerance<T>();
  const std::int64_t heads = wanted.head_count(c), rows = wanted.row_count(c);
  std::vector<double> received(parts.received.size(), 0.0);
  std::vector<double> rows_of(static_cast<std::size_t>(c.batch), 0.0);
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < c.rows(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i, ++n) {
        const ExpectedRow row = expected.row(b, h, i);
        const std::string at = " of batch " + std::to_string(b) + ", head " +
                               std::to_string(h) + ", row " + std::to_string(i);
        double entropy = 0;
        for (std::size_t j = 0; j < row.weights.size(); ++j) {
          const double w = row.weights[j];
          if (!parts.weights.empty()) {
            expect_near(
                parts.weights[static_cast<std::size_t>(n * c.kv_len) + j], w,
                close, "weight " + std::to_string(j) + at);
          }
          if (w != 0) entropy -= w * std::log(w);
          received[static_cast<std::size_t>((b * heads + h) * c.kv_len +
                                            row.kv_begin) +
                   j] += w;
        }
        if (h == 0) rows_of[static_cast<std::size_t>(row.sequence)] += 1;
        expect_near(parts.entropy[static_cast<std::size_t>(n)], entropy,
                    4 * close, "entropy" + at);
        const auto keys =
            sorted_keys(row.weights.data(), std::ssize(row.weights));
        for (std::int64_t t = 0; t < wanted.top; ++t) {
          const auto place = static_cast<std::size_t>(n * wanted.top + t);
          const std::int64_t key = parts.top_keys[place];
          const double weight = parts.top_weights[place];
          if (std::isnan(entropy)) {
            EXPECT_EQ(key, -1) << at;
            EXPECT_TRUE(std::isnan(weight)) << at;
            continue;
          }
          const double truth = t < std::ssize(keys)
                                   ? row.weights[static_cast<std::size_t>(
                                         keys[static_cast<std::size_t>(t)])]
                                   : 0;
          EXPECT_NEAR(weight, truth, close) << "top " << t << at;
          if (key >= 0) {
            EXPECT_NEAR(weight, row.weights[static_cast<std::size_t>(key)],
                        close)
                << "key of top " << t << at;
          } else {
            EXPECT_EQ(weight, 0) << at;
            EXPECT_NEAR(truth, 0, 1e-30) << at;
          }
        }
      }
    }
  }
  for (std::size_t j = 0; j < received.size(); ++j) {
    double truth = received[j];
    double scale = 1;
    if (wanted.received_over == OverRows::kMean) {
      const auto key = static_cast<std::int64_t>(j) % c.kv_len;
      std::size_t b = j / static_cast<std::size_t>(heads * c.kv_len);
      while (c.is_packed() && c.kv_offsets[b + 1] <= key) ++b;
      scale = rows_of[b] == 0 ? 0 : 1 / rows_of[b];
    }
    expect_near(parts.received[j], truth * scale,
                close * (1 + std::abs(truth) * scale),
                "received " + std::to_string(j));
  }
}

AttentionCase sized(std::int64_t q_len, std::int64_t kv_len) {
  AttentionCase c{.batch = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .q_len = q_len,
                  .kv_len = kv_len,
                  .d_k = 16,
                  .d_v = 8};
  Rng rng(static_cast<std::uint64_t>(q_len * 1000 + kv_len));
  test::fill_inputs(rng, c);
  return c;
}

AttentionCase packed() {
  AttentionCase c = sized(101, 150);
  c.batch = 4;
  c.q_offsets = {0, 50, 50, 99, 101};
  c.kv_offsets = {0, 30, 37, 37, 150};
  Rng rng(5);
  test::fill_inputs(rng, c);
  return c;
}

template <typename T>
class WeightsParts : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(WeightsParts, Types);

TYPED_TEST(WeightsParts, AreThoseOfTheDefinitionAtOddSizes) {
  for (const std::int64_t q_len : {0, 1, 7, 48, 49, 97}) {
    for (const std::int64_t kv_len : {0, 1, 7, 59, 96, 97, 193}) {
      expect_parts<TypeParam>(sized(q_len, kv_len), {});
    }
  }
  expect_parts<TypeParam>(sized(3, 2100), {.top = 20});
}

TYPED_TEST(WeightsParts, AreThoseOfTheDefinitionUnderRandomMasks) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    AttentionCase c = sized(60, 131);
    Rng rng(seed);
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    SCOPED_TRACE(seed);
    expect_parts<TypeParam>(
        c, {.heads = seed % 2 == 0 ? OverHeads::kEach : OverHeads::kMean});
  }
}

TYPED_TEST(WeightsParts, FollowEveryOptionButDropout) {
  AttentionCase c = sized(50, 130);
  Rng rng(3);
  c.mask = test::causal_spec();
  c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
  c.bias->values[17] = -std::numeric_limits<double>::infinity();
  c.head_scales = {1, 2, 0.5, 1.5};
  c.alibi_slopes = {0.1, 0.2, 0, 0.3};
  c.sinks = {0, 1, -1, 0.5};
  c.softcap = 4;
  c.scale = 0.5;
  c.dropout_rate = 0.5f;
  expect_parts<TypeParam>(c, {});
  c.cosine = true;
  expect_parts<TypeParam>(c, {.heads = OverHeads::kMean});
}

TYPED_TEST(WeightsParts, OfChosenRowsComeInTheOrderAsked) {
  AttentionCase c = sized(120, 150);
  c.mask = test::causal_spec();
  std::vector<std::int64_t> rows{119, 0, 7, 7, 64, 3};
  expect_parts<TypeParam>(c, {.rows = rows});
  expect_parts<TypeParam>(c, {.rows = rows, .heads = OverHeads::kMean});
  rows.resize(100);
  std::iota(rows.begin() + 6, rows.end(), 20);
  expect_parts<TypeParam>(c, {.rows = rows, .all_weights = false});
}

TYPED_TEST(WeightsParts, ReceivedMayBeTheMeanOverRows) {
  AttentionCase c = sized(70, 99);
  c.mask = test::window_spec(20, 20);
  expect_parts<TypeParam>(c, {.received_over = OverRows::kMean});
  expect_parts<TypeParam>(c, {.rows = {4, 9},
                              .heads = OverHeads::kMean,
                              .received_over = OverRows::kMean});
}

TYPED_TEST(WeightsParts, OfPackedSequencesCountKeysFromTheirStart) {
  AttentionCase c = packed();
  expect_parts<TypeParam>(c, {});
  c.mask = test::causal_spec();
  expect_parts<TypeParam>(
      c, {.heads = OverHeads::kMean, .received_over = OverRows::kMean});
  expect_parts<TypeParam>(
      c, {.rows = {100, 2, 60, 1, 99}, .received_over = OverRows::kMean});
}

TYPED_TEST(WeightsParts, TopIsTheStartOfAFullSort) {
  AttentionCase c = test::rounded_to<TypeParam>(sized(30, 200));
  c.mask = test::causal_spec();
  for (const std::int64_t top : {1, 2, 17, 200, 230}) {
    const auto parts = run_parts<TypeParam>(c, {.top = top});
    for (std::int64_t row = 0; row < 2 * 4 * 30; ++row) {
      const auto* weights = parts.weights.data() + row * c.kv_len;
      const auto keys = sorted_keys(weights, c.kv_len);
      for (std::int64_t t = 0; t < top; ++t) {
        const auto place = static_cast<std::size_t>(row * top + t);
        if (t < std::ssize(keys)) {
          const std::int64_t key = keys[static_cast<std::size_t>(t)];
          ASSERT_EQ(parts.top_keys[place], key) << row << " " << t;
          ASSERT_EQ(parts.top_weights[place], weights[key]);
        } else {
          ASSERT_EQ(parts.top_keys[place], -1);
          ASSERT_EQ(parts.top_weights[place], 0);
        }
      }
    }
  }
}

TYPED_TEST(WeightsParts, TiesGoToTheLowerKey) {
  AttentionCase c = sized(2, 300);
  std::fill(c.k.begin(), c.k.end(), 0.5);
  const auto parts = run_parts<TypeParam>(c, {.top = 4});
  for (std::size_t i = 0; i < parts.top_keys.size(); ++i) {
    EXPECT_EQ(parts.top_keys[i], static_cast<std::int64_t>(i % 4));
  }
  for (const auto entropy : parts.entropy) {
    EXPECT_NEAR(entropy, std::log(300.0), 3e-5);
  }
}

TYPED_TEST(WeightsParts, PoisonReachesTheRowsThatSeeItAndTheKeysTheySee) {
  for (const double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    AttentionCase c = sized(60, 60);
    c.mask = test::causal_spec();
    c.sinks = {0, 0, 0, 0};
    const auto clean = run_parts<TypeParam>(test::rounded_to<TypeParam>(c), {});
    const std::size_t at = c.key_at(c.entry(1), 2, 40, c.d_k);
    c.k[at] = poison;
    if (std::isnan(poison)) {
      expect_parts<TypeParam>(c, {});
      expect_parts<TypeParam>(c, {.heads = OverHeads::kMean});
    }
    // An infinite key has scores of either sign: rows of NaN or without it.
    const auto parts = run_parts<TypeParam>(test::rounded_to<TypeParam>(c), {});
    for (std::int64_t row = 0; row < 2 * 4 * 60; ++row) {
      const bool sees = row >= (4 + 2) * 60 && row % 60 >= 40;
      const auto* weights = parts.weights.data() + row * 60;
      for (std::int64_t j = 0; j < 60; ++j) {
        if (j > row % 60) {
          ASSERT_EQ(weights[j], 0) << row << " " << j;
        } else if (!sees) {
          ASSERT_EQ(weights[j],
                    clean.weights[static_cast<std::size_t>(row * 60 + j)]);
        }
      }
    }
  }
}

TYPED_TEST(WeightsParts, DoNotDependOnThreads) {
  AttentionCase c = test::rounded_to<TypeParam>(sized(300, 500));
  c.mask = test::causal_spec();
  for (const OverHeads heads : {OverHeads::kEach, OverHeads::kMean}) {
    const auto one = run_parts<TypeParam>(c, {.heads = heads});
    for (const int threads : {2, 3, 5}) {
      const auto more =
          run_parts<TypeParam>(c, {.heads = heads, .threads = threads});
      EXPECT_EQ(more.weights, one.weights);
      EXPECT_EQ(more.top_keys, one.top_keys);
      EXPECT_EQ(more.top_weights, one.top_weights);
      EXPECT_EQ(more.received, one.received);
      EXPECT_EQ(more.entropy, one.entropy);
    }
  }
}

// What is asked for besides changes no bit: with all weights the rows are
// written where the caller wants them, without them into scratch.
TYPED_TEST(WeightsParts, DoNotDependOnWhatElseIsAsked) {
  AttentionCase c = test::rounded_to<TypeParam>(sized(100, 140));
  const auto with = run_parts<TypeParam>(c, {});
  const auto without = run_parts<TypeParam>(c, {.all_weights = false});
  EXPECT_EQ(with.top_weights, without.top_weights);
  EXPECT_EQ(with.received, without.received);
  EXPECT_EQ(with.entropy, without.entropy);
  const auto chosen = run_parts<TypeParam>(c, {.rows = {77, 5}});
  const auto row_of = [&](const auto& parts, std::size_t row) {
    return std::vector(
        parts.weights.begin() + static_cast<std::ptrdiff_t>(row * 140),
        parts.weights.begin() + static_cast<std::ptrdiff_t>((row + 1) * 140));
  };
  EXPECT_EQ(row_of(chosen, 0), row_of(with, 77));
  EXPECT_EQ(row_of(chosen, 1), row_of(with, 5));
}

TYPED_TEST(WeightsParts, TimesTheValuesAreWhatForwardReturns) {
  for (const std::int64_t kv_len : {61, 1500}) {
    AttentionCase c = sized(50, kv_len);
    c.mask = test::causal_spec();
    c.sinks = {0, 1, -1, 0.5};
    c = test::rounded_to<TypeParam>(c);
    const auto parts = run_parts<TypeParam>(c, {});
    const auto forward = test::run_attention<TypeParam>(c);
    const double storage = std::is_same_v<TypeParam, BFloat16>  ? 4e-3
                           : std::is_same_v<TypeParam, Float16> ? 5e-4
                                                                : 0;
    std::size_t n = 0;
    for (std::int64_t row = 0; row < 2 * 4 * 50; ++row) {
      for (std::int64_t d = 0; d < c.d_v; ++d, ++n) {
        double sum = 0;
        for (std::int64_t j = 0; j < kv_len; ++j) {
          sum += parts.weights[static_cast<std::size_t>(row * kv_len + j)] *
                 c.v[c.key_at(c.entry(row / 200), row / 50 % 4, j, c.d_v) +
                     static_cast<std::size_t>(d)];
        }
        ASSERT_NEAR(test::to_double(forward.out[n]), sum,
                    tolerance<TypeParam>() + storage * std::abs(sum))
            << "row " << row;
      }
    }
  }
}

// Targets that fuse a product and a sum agree to the bit.
TEST(WeightsOnEveryTarget, AreTheSameBits) {
  const AttentionCase c = sized(100, 1300);
  std::vector<Parts<float>> all;
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    expect_parts<float>(sized(50, 97), {});
    expect_parts<BFloat16>(sized(50, 97), {.heads = OverHeads::kMean});
    if (target != "SCALAR" && target != "EMU128") {
      all.push_back(run_parts<float>(c, {}));
    }
  }
  set_simd_target("");
  for (const auto& parts : all) {
    EXPECT_EQ(parts.weights, all.front().weights);
    EXPECT_EQ(parts.received, all.front().received);
    EXPECT_EQ(parts.top_keys, all.front().top_keys);
    EXPECT_EQ(parts.top_weights, all.front().top_weights);
    EXPECT_EQ(parts.entropy, all.front().entropy);
  }
}

// ---- streamed ----

struct Piece {
  std::int64_t batch, head;
  std::vector<std::int64_t> queries;
  std::vector<float> weights;
  std::int64_t keys;
};

std::vector<Piece> stream(const AttentionCase& c, const WeightsRequest& request,
                          int threads) {
  test::Stored<float> q(c.q_shape(), test::Layout::kContiguous, c.q);
  test::Stored<float> k(c.k_shape(), test::Layout::kContiguous, c.k);
  test::CallOptions<float> options(c);
  options.value.threads.count = threads;
  std::vector<Piece> pieces;
  stream_attention_weights(
      q.const_view(), k.const_view(),
      [&](const WeightsBlock<float>& block) {
        Piece piece{block.batch,
                    block.head,
                    {block.queries.begin(), block.queries.end()},
                    {},
                    block.weights.extent(1)};
        for (std::int64_t i = 0; i < block.weights.extent(0); ++i) {
          const float* row = block.weights.at(i);
          piece.weights.insert(piece.weights.end(), row, row + piece.keys);
        }
        pieces.push_back(std::move(piece));
      },
      request, options.value);
  return pieces;
}

TEST(StreamedWeights, ComeInTheOrderOfTheWholeArray) {
  AttentionCase c = test::rounded_to<float>(sized(150, 111));
  c.mask = test::causal_spec();
  const auto whole = run_parts<float>(c, {});
  for (const int threads : {1, 3}) {
    std::vector<float> all;
    std::vector<std::int64_t> queries;
    for (const Piece& piece : stream(c, {}, threads)) {
      EXPECT_LE(piece.queries.size(), 48u);
      EXPECT_EQ(piece.keys, 111);
      for (const std::int64_t query : piece.queries) {
        EXPECT_EQ(query, std::ssize(queries) % 150);
        EXPECT_EQ(piece.head, std::ssize(queries) / 150 % 4);
        EXPECT_EQ(piece.batch, std::ssize(queries) / 600);
        queries.push_back(query);
      }
      all.insert(all.end(), piece.weights.begin(), piece.weights.end());
    }
    EXPECT_EQ(all, whole.weights);
  }
}

TEST(StreamedWeights, OfChosenRowsAreAveragedIfAsked) {
  const AttentionCase c = test::rounded_to<float>(sized(150, 111));
  const std::vector<std::int64_t> rows{140, 3, 77};
  const Wanted wanted{.rows = rows, .heads = OverHeads::kMean};
  const auto whole = run_parts<float>(c, wanted);
  std::vector<float> entropy(6);
  const auto pieces = stream(c,
                             {.rows = rows,
                              .heads = OverHeads::kMean,
                              .entropy = {entropy.data(), {2, 1, 3}}},
                             2);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].queries, rows);
  EXPECT_EQ(pieces[1].batch, 1);
  EXPECT_EQ(pieces[1].head, 0);
  EXPECT_EQ(
      pieces[1].weights,
      std::vector<float>(whole.weights.begin() + 3 * 111, whole.weights.end()));
  EXPECT_EQ(entropy, whole.entropy);
}

TEST(StreamedWeights, OfPackedSequencesHaveRowsAsLongAsTheirOwnKeys) {
  const AttentionCase c = test::rounded_to<float>(packed());
  const Wanted everything;
  const Expected expected(c, everything);
  std::int64_t rows = 0;
  for (const Piece& piece : stream(c, {}, 2)) {
    const auto e = c.entry(piece.batch);
    ASSERT_EQ(piece.keys, e.sizes.kv_len);
    for (std::size_t i = 0; i < piece.queries.size(); ++i, ++rows) {
      const std::vector<double> truth =
          expected.row(0, piece.head, piece.queries[i]).weights;
      for (std::size_t j = 0; j < truth.size(); ++j) {
        ASSERT_NEAR(piece.weights[i * truth.size() + j], truth[j], 4e-6);
      }
    }
  }
  EXPECT_EQ(rows, 4 * 101);
}

TEST(StreamedWeights, LetTheVisitorStopByThrowing) {
  const AttentionCase c = sized(200, 64);
  const std::vector<float> q(test::volume(c.q_shape()), 1.0f);
  const std::vector<float> k(test::volume(c.k_shape()), 1.0f);
  int calls = 0;
  const auto run = [&] {
    stream_attention_weights(TensorView<const float, 4>(q.data(), c.q_shape()),
                             TensorView<const float, 4>(k.data(), c.k_shape()),
                             [&](const WeightsBlock<float>&) {
                               if (++calls == 3)
                                 throw std::runtime_error("enough");
                             });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_EQ(calls, 3);
}

// ---- refusals ----

std::string refusal(const WeightsRequest& request,
                    const AttentionOptions& options = {}) {
  const std::vector<float> values(1000, 1.0f);
  const TensorView<const float, 4> q(values.data(), {1, 2, 6, 4});
  const TensorView<const float, 4> k(values.data(), {1, 2, 9, 4});
  try {
    attention_weights(q, k, request, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(WeightsPartsRefusals, NameTheRuleAndWhatCame) {
  std::vector<float> f(1000, 42.0f);
  std::vector<std::int64_t> keys(1000, 42);
  const std::vector<std::int64_t> low{0, -1}, high{6}, two{0, 1};
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.rows = low}),
            "attention_weights: rows must lie in [0, 6); one is -1");
  EXPECT_EQ(refusal({.rows = high}),
            "attention_weights: rows must lie in [0, 6); one is 6");
  EXPECT_EQ(refusal({.rows = two, .weights = {f.data(), {1, 2, 6, 9}}}),
            "attention_weights: weights must be [1, 2, 2, 9]; it is "
            "[1, 2, 6, 9]");
  EXPECT_EQ(
      refusal({.heads = OverHeads::kMean, .weights = {f.data(), {1, 2, 6, 9}}}),
      "attention_weights: weights must be [1, 1, 6, 9]; it is "
      "[1, 2, 6, 9]");
  EXPECT_EQ(refusal({.top_keys = {keys.data(), {1, 2, 5, 3}}}),
            "attention_weights: top_keys must be [1, 2, 6, 3]; it is "
            "[1, 2, 5, 3]");
  EXPECT_EQ(refusal({.top_weights = {f.data(), {1, 1, 6, 3}}}),
            "attention_weights: top_weights must be [1, 2, 6, 3]; it is "
            "[1, 1, 6, 3]");
  EXPECT_EQ(refusal({.top_keys = {keys.data(), {1, 2, 6, 3}},
                     .top_weights = {f.data(), {1, 2, 6, 2}}}),
            "attention_weights: top_keys and top_weights must be of one "
            "shape; they are [1, 2, 6, 3] and [1, 2, 6, 2]");
  EXPECT_EQ(refusal({.received = {f.data(), {1, 2, 6}}}),
            "attention_weights: received must be [1, 2, 9]; it is [1, 2, 6]");
  EXPECT_EQ(refusal({.entropy = {f.data(), {1, 2, 9}}}),
            "attention_weights: entropy must be [1, 2, 6]; it is [1, 2, 9]");
  EXPECT_EQ(refusal({.entropy = {f.data(), {1, 2, 6}, {0, 0, 1}}}),
            "attention_weights: the rows of entropy must not overlap; its "
            "strides are [0, 0, 1]");
  EXPECT_EQ(f, std::vector<float>(1000, 42.0f));
  EXPECT_EQ(keys, std::vector<std::int64_t>(1000, 42));
}

TEST(WeightsPartsRefusals, PackedSequencesHaveNoSingleArray) {
  std::vector<float> f(1000);
  const std::vector<std::int64_t> q_offsets{0, 2, 6}, kv_offsets{0, 5, 9};
  AttentionOptions options;
  options.sequences = {q_offsets, kv_offsets};
  EXPECT_EQ(refusal({.weights = {f.data(), {1, 2, 6, 9}}}, options),
            "attention_weights: weights of packed sequences are not one "
            "array; stream them");
  EXPECT_EQ(refusal({.entropy = {f.data(), {1, 2, 6}}}, options), "accepted");
  const std::vector<float> q(48, 1.0f);
  try {
    stream_attention_weights(TensorView<const float, 4>(q.data(), {1, 2, 6, 4}),
                             TensorView<const float, 4>(q.data(), {1, 2, 6, 2}),
                             [](const WeightsBlock<float>&) {});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("stream_attention_weights: q and k"));
  }
}

}  // namespace
}  // namespace regard
