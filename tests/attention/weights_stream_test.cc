// SPDX-License-Identifier: Apache-2.0
// Weights handed to a visitor block by block, and what requests are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "regard/attention/weights.h"
#include "support/refusal.h"
#include "support/weights_case.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Expected;
using test::run_parts;
using test::Wanted;
using ::testing::StartsWith;

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
  AttentionCase c = test::rounded_to<float>(test::weights_case(150, 111));
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
  const AttentionCase c = test::rounded_to<float>(test::weights_case(150, 111));
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
  const AttentionCase c = test::rounded_to<float>(test::packed_weights_case());
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
  const AttentionCase c = test::weights_case(200, 64);
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
  return test::refusal([&] { attention_weights(q, k, request, options); });
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
  EXPECT_EQ(refusal({.entropy = {f.data(), {1, 2, 6}, {12, 5, 1}}}),
            "attention_weights: the rows of entropy must not overlap; its "
            "strides are [12, 5, 1]");
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
  EXPECT_THAT(test::refusal([&] {
                stream_attention_weights(
                    TensorView<const float, 4>(q.data(), {1, 2, 6, 4}),
                    TensorView<const float, 4>(q.data(), {1, 2, 6, 2}),
                    [](const WeightsBlock<float>&) {});
              }),
              StartsWith("stream_attention_weights: q and k"));
}

}  // namespace
}  // namespace regard
