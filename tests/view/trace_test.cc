// SPDX-License-Identifier: Apache-2.0
// What a trace keeps of the weights, against sums written out plainly.
#include "regard/view/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/tensor/tensor.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Rows that sum to 1, visible keys only.
Tensor random_weights(std::int64_t heads, std::int64_t rows,
                      std::int64_t columns, bool causal, std::uint64_t seed) {
  Random random(seed);
  Tensor weights({heads, rows, columns});
  const auto w = weights.view<float, 3>();
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t visible = causal ? i + 1 : columns;
      double sum = 0;
      for (std::int64_t j = 0; j < visible; ++j) {
        w(h, i, j) = std::exp(2 * random.normal());
        sum += w(h, i, j);
      }
      for (std::int64_t j = 0; j < visible; ++j) {
        w(h, i, j) = static_cast<float>(w(h, i, j) / sum);
      }
    }
  }
  return weights;
}

TensorView<const float, 3> view_of(const Tensor& tensor) {
  return tensor.view<float, 3>();
}

Section section_of(const Tensor& weights, bool self) {
  Section section({"some", 0, 0, weights.shape()[0], self}, weights.shape()[1],
                  weights.shape()[2]);
  section.add_layer(view_of(weights));
  return section;
}

TEST(Section, KeepsWeightsInSixteenBits) {
  const Tensor weights({0.0f, 1.0f, 0.25f, 0.75f, 1e-6f, 0.5f}, {1, 2, 3});
  const Section section = section_of(weights, false);
  EXPECT_THAT(section.codes(0, 0),
              ElementsAre(0, 65535, 16384, 49151, 0, 32768));
  EXPECT_EQ(little_endian(section.codes(0, 0)),
            std::string("\0\0\xff\xff\0\x40\xff\xbf\0\0\0\x80", 12));
}

TEST(Section, HasTheStatisticsOfTheDefinition) {
  const Tensor weights = random_weights(3, 11, 11, true, 5);
  const auto w = view_of(weights);
  const Section section = section_of(weights, true);
  for (std::int64_t h = 0; h < 3; ++h) {
    double entropy = 0, distance = 0, first = 0, previous = 0, same = 0;
    for (std::int64_t i = 0; i < 11; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const double x = w(h, i, j);
        entropy -= x * std::log(x) / 11;
        distance += x * static_cast<double>(i - j) / 11;
        if (j == 0) first += x / 11;
        if (j == i - 1) previous += x / 11;
        if (j == i) same += x / 11;
      }
    }
    const HeadStatistics& s = section.statistics(0, h);
    EXPECT_NEAR(s.entropy, entropy, 1e-5);
    EXPECT_NEAR(*s.distance, distance, 1e-5);
    EXPECT_NEAR(s.first, first, 1e-6);
    EXPECT_NEAR(*s.previous, previous, 1e-6);
    EXPECT_NEAR(*s.same, same, 1e-6);
  }
  EXPECT_TRUE(section.is_causal());
}

// The divergence of each row from what all rows prefer, as the header says it.
double telling_by_definition(const Tensor& weights, bool self, bool causal) {
  const auto w = view_of(weights);
  const std::int64_t rows = w.extent(1);
  const std::int64_t columns = w.extent(2);
  const auto sees = [&](std::int64_t q) { return causal ? q + 1 : columns; };
  std::vector<double> preferred(static_cast<std::size_t>(columns));
  for (std::int64_t k = 0; k < columns; ++k) {
    double sum = 0;
    double count = 0;
    for (std::int64_t q = 0; q < rows; ++q) {
      if (k >= sees(q)) continue;
      sum += w(0, q, k) * static_cast<double>(sees(q));
      ++count;
    }
    preferred[static_cast<std::size_t>(k)] = sum / count;
  }
  double information = 0;
  double near = 0;
  for (std::int64_t q = 0; q < rows; ++q) {
    double all = 0;
    for (std::int64_t k = 0; k < sees(q); ++k) {
      all += preferred[static_cast<std::size_t>(k)];
    }
    for (std::int64_t k = 0; k < sees(q); ++k) {
      const double x = w(0, q, k);
      const double p = preferred[static_cast<std::size_t>(k)] / all;
      if (x > 0) information += x * std::log(x / p);
      if (self && std::abs(q - k) <= 1) near += x;
    }
  }
  const auto n = static_cast<double>(rows);
  return information / n / std::log(static_cast<double>(columns)) *
         (1 - near / n);
}

double telling(const Tensor& weights, bool self) {
  return section_of(weights, self).statistics(0, 0).telling;
}

TEST(Section, SaysHowTellingAHeadIs) {
  const Tensor free = random_weights(1, 7, 7, false, 1);
  const Tensor masked = random_weights(1, 7, 7, true, 2);
  const Tensor cross = random_weights(1, 5, 9, false, 3);
  EXPECT_NEAR(telling(free, true), telling_by_definition(free, true, false),
              1e-6);
  EXPECT_NEAR(telling(masked, true), telling_by_definition(masked, true, true),
              1e-6);
  EXPECT_NEAR(telling(cross, false), telling_by_definition(cross, false, false),
              1e-6);
}

TEST(Section, CallsNoHeadTellingThatLooksEverywhereOrAtOnePlace) {
  constexpr std::int64_t kLength = 8;
  Tensor even({1, kLength, kLength});
  Tensor first({1, kLength, kLength});
  Tensor own({1, kLength, kLength});
  Tensor before({1, kLength, kLength});
  Tensor behind({1, kLength, kLength});  // even, over what a causal mask shows
  Tensor mirrored({1, kLength, kLength});
  for (std::int64_t q = 0; q < kLength; ++q) {
    for (std::int64_t k = 0; k < kLength; ++k) {
      even.view<float, 3>()(0, q, k) = 1.0f / kLength;
      if (k <= q) {
        behind.view<float, 3>()(0, q, k) = 1.0f / static_cast<float>(q + 1);
      }
    }
    first.view<float, 3>()(0, q, 0) = 1;
    own.view<float, 3>()(0, q, q) = 1;
    before.view<float, 3>()(0, q, std::max<std::int64_t>(q - 1, 0)) = 1;
    mirrored.view<float, 3>()(0, q, kLength - 1 - q) = 1;
  }
  for (const Tensor* dull : {&even, &first, &own, &before, &behind}) {
    EXPECT_NEAR(telling(*dull, true), 0, 1e-6);
  }
  // Two of eight tokens stand beside their mirror image.
  EXPECT_NEAR(telling(mirrored, true), 6.0 / 8, 1e-6);
  EXPECT_NEAR(telling(mirrored, false), 1, 1e-6);
  EXPECT_EQ(telling(Tensor({1.0f}, {1, 1, 1}), true), 0);
}

TEST(Section, GivesTheRowsOfATokenInEveryHead) {
  Section section({"s", 0, 1, 2, false}, 2, 3);
  section.add_layer(view_of(Tensor({0.5f, 0.25f, 0.25f, 0.0f, 0.0f, 1.0f,  //
                                    1.0f, 0.0f, 0.0f, 0.2f, 0.8f, 0.0f},
                                   {2, 2, 3})));
  EXPECT_THAT(section.rows_of({1, 1}),
              ElementsAre(0, 0, 65535, 13107, 52428, 0));
  // The mean of queries 0 and 1; halves go up.
  EXPECT_THAT(
      section.rows_of({0, 1}),
      ElementsAre((32768 + 0) / 2, (16384 + 0) / 2, (16384 + 65535 + 1) / 2,
                  (65535 + 13107) / 2, (0 + 52428) / 2, 0));
  for (const auto& [first, last] : {std::pair{0, 2}, {-1, 0}, {1, 0}}) {
    const Section::Range range{first, last};
    EXPECT_THAT([&] { (void)section.rows_of(range); },
                ThrowsMessage<InvalidArgument>(HasSubstr(
                    "'s' has queries 0 .. 1; got " + std::to_string(first) +
                    " to " + std::to_string(last))));
  }
}

TEST(Section, KeepsQueriesAndKeysInHalfPrecision) {
  Section section({"s", 0, 1, 1, false}, 1, 2);
  const Tensor q({1.0f, -2.0f}, {1, 1, 2});
  const Tensor k({0.5f, 0.1f, 3.0f, 4.0f}, {1, 2, 2});
  section.add_layer(view_of(Tensor({0.5f, 0.5f}, {1, 1, 2})));
  EXPECT_FALSE(section.has_vectors());
  EXPECT_THAT([&] { (void)section.vectors(0, 0); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("'s' has no queries and keys, only weights")));
  section.add_vectors(view_of(q), view_of(k), 0.25);
  EXPECT_TRUE(section.has_vectors());
  EXPECT_EQ(section.vector_dim(), 2);
  EXPECT_EQ(section.vector_scale(), 0.25);
  // IEEE 754 binary16 of 1, -2, 0.5, 0.1, 3, 4.
  EXPECT_THAT(section.vectors(0, 0),
              ElementsAre(0x3c00, 0xc000, 0x3800, 0x2e66, 0x4200, 0x4400));
  EXPECT_THAT([&] { section.add_vectors(view_of(q), view_of(k), 0.25); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("each layer of 's' must have queries and keys")));
  EXPECT_THAT([&] { section.add_vectors(view_of(k), view_of(k), 0.25); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "must be [1, 1, dim] and [1, 2, dim]; they are [1, 2, 2]")));
  // A layer without them: nobody may ask for some of them.
  section.add_layer(view_of(Tensor({0.5f, 0.5f}, {1, 1, 2})));
  EXPECT_FALSE(section.has_vectors());
}

TEST(Trace, OpensAtAHeadThatIsThere) {
  Trace trace;
  trace.add_axis({"source", {"a"}});
  const Tensor one({1.0f, 1.0f}, {2, 1, 1});
  trace.add_section({"small", 0, 0, 2, true}).add_layer(view_of(one));
  Section& large = trace.add_section({"large", 0, 0, 2, true});
  large.add_layer(view_of(one));
  large.add_layer(view_of(one));
  trace.set_start({.layer = 1});
  trace.set_start({.section = 0, .head = 1});
  const auto header = nlohmann::json::parse(header_json(trace, ""));
  EXPECT_EQ(header["start"], (nlohmann::json{{"section", 0}, {"head", 1}}));
  EXPECT_THAT([&] { trace.set_start({.section = 0, .layer = 1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "the page must open at a head that is there: 'small' has "
                  "layers 0 .. 0 and heads 0 .. 1; got layer 1")));
  EXPECT_THAT([&] { trace.set_start({.head = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("got head -1")));
  EXPECT_THAT([&] { trace.set_start({.section = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("sections 0 .. 1")));
}

TEST(Section, IsCausalOnlyWhereNothingLooksAhead) {
  const Tensor ahead({0.5f, 0.5f, 0.0f, 1.0f}, {1, 2, 2});
  EXPECT_FALSE(section_of(ahead, true).is_causal());
  const Tensor behind({1.0f, 0.0f, 0.5f, 0.5f}, {1, 2, 2});
  EXPECT_TRUE(section_of(behind, true).is_causal());
  // One layer that looks ahead is enough.
  Section both = section_of(behind, true);
  both.add_layer(view_of(ahead));
  EXPECT_FALSE(both.is_causal());
}

// Means are over the rows that see anything.
TEST(Section, CountsNoRowThatSeesNothing) {
  const Tensor weights({0.0f, 0.0f, 0.5f, 0.5f}, {1, 2, 2});
  const HeadStatistics s = section_of(weights, true).statistics(0, 0);
  EXPECT_NEAR(s.entropy, std::log(2.0), 1e-6);
  EXPECT_EQ(s.first, 0.5);
  EXPECT_EQ(*s.same, 0.5);
  const HeadStatistics none =
      section_of(Tensor({1, 2, 2}), true).statistics(0, 0);
  EXPECT_EQ(none.entropy, 0);
  EXPECT_EQ(none.first, 0);
}

TEST(Section, HasNoDistanceBetweenDifferentTexts) {
  const Section section = section_of(random_weights(1, 4, 7, false, 1), false);
  EXPECT_FALSE(section.statistics(0, 0).distance);
  EXPECT_FALSE(section.statistics(0, 0).previous);
  EXPECT_FALSE(section.statistics(0, 0).same);
  EXPECT_FALSE(section.is_causal());
  EXPECT_FALSE(section.has_rollout());
  EXPECT_THAT([&] { section.rollout(); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("a rollout needs self attention; 'some' is not")));
}

TEST(Section, HasThumbnailsOfTheLargestWeights) {
  const Tensor weights = random_weights(2, 100, 70, false, 3);
  const auto w = view_of(weights);
  const Section section = section_of(weights, false);
  const Thumbnails& small = section.thumbnails();
  ASSERT_EQ(small.rows, 48);
  ASSERT_EQ(small.columns, 48);
  std::vector<float> largest(2 * 48 * 48);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 100; ++i) {
      for (std::int64_t j = 0; j < 70; ++j) {
        float& cell = largest[static_cast<std::size_t>(
            (h * 48 + i * 48 / 100) * 48 + j * 48 / 70)];
        cell = std::max(cell, w(h, i, j));
      }
    }
  }
  for (std::size_t i = 0; i < largest.size(); ++i) {
    EXPECT_EQ(small.cells[i], std::lround(255 * largest[i])) << i;
  }
  EXPECT_EQ(
      section_of(random_weights(1, 5, 50, false, 3), false).thumbnails().rows,
      5);
}

// The product over layers of (A + I) / 2, last layer leftmost.
TEST(Section, RollsOutOverItsLayers) {
  constexpr std::int64_t kLength = 53;
  Section section({"some", 0, 0, 2, true}, kLength, kLength);
  std::vector<std::vector<double>> truth(kLength, std::vector<double>(kLength));
  for (std::size_t i = 0; i < kLength; ++i) truth[i][i] = 1;
  for (std::uint64_t layer = 0; layer < 3; ++layer) {
    const Tensor weights =
        random_weights(2, kLength, kLength, false, 10 + layer);
    const auto w = view_of(weights);
    section.add_layer(w);
    std::vector<std::vector<double>> next(kLength,
                                          std::vector<double>(kLength));
    for (std::int64_t i = 0; i < kLength; ++i) {
      for (std::int64_t k = 0; k < kLength; ++k) {
        const double a = 0.25 * (static_cast<double>(w(0, i, k)) + w(1, i, k)) +
                         (i == k ? 0.5 : 0);
        for (std::size_t j = 0; j < kLength; ++j) {
          next[static_cast<std::size_t>(i)][j] +=
              a * truth[static_cast<std::size_t>(k)][j];
        }
      }
    }
    truth = next;
  }
  const std::vector<std::uint16_t> rollout = section.rollout();
  for (std::size_t i = 0; i < kLength * kLength; ++i) {
    EXPECT_NEAR(rollout[i] / 65535.0, truth[i / kLength][i % kLength], 3e-5);
  }
}

TEST(Section, RefusesWhatAreNoWeights) {
  const auto message = [](float bad) {
    Tensor weights({1, 2, 2});
    weights.view<float, 3>()(0, 1, 0) = bad;
    return [weights] { section_of(weights, true); };
  };
  EXPECT_THAT(message(-0.25f),
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "weights must be numbers from 0 to 1; 'some' has at layer 0, "
                  "head 0, query 1, key 0: -0.25")));
  EXPECT_THAT(message(1.25f),
              ThrowsMessage<InvalidArgument>(HasSubstr("in evaluation mode?")));
  EXPECT_THAT(message(std::numeric_limits<float>::quiet_NaN()),
              ThrowsMessage<InvalidArgument>(HasSubstr("key 0: nan")));
  EXPECT_EQ(section_of(Tensor({1.0004f}, {1, 1, 1}), true).codes(0, 0)[0],
            65535);
}

TEST(Section, RefusesOtherShapesAndPlaces) {
  Section section({"some", 0, 0, 2, true}, 3, 3);
  EXPECT_THAT(
      [&] {
        section.add_layer(view_of(Tensor({2, 3, 4})));
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("layer 0 of 'some' must have weights of [2, 3, 3]; they "
                    "are [2, 3, 4]")));
  section.add_layer(view_of(Tensor({2, 3, 3})));
  EXPECT_THAT([&] { (void)section.codes(1, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "'some' has layers 0 .. 0 and heads 0 .. 1; got layer 1, "
                  "head 0")));
  EXPECT_THAT([&] { (void)section.statistics(0, -1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("head -1")));
  EXPECT_THAT(
      [] {
        Section({"some", 0, 0, 1, true}, 3, 4);
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("self attention must have as many queries as keys; 'some' "
                    "has 3 and 4")));
  EXPECT_THAT(
      [] {
        Section({"some", 0, 0, 0, false}, 3, 4);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "there must be heads, queries and keys; 'some' has 0, 3 and "
          "4")));
}

TEST(Trace, RefusesSectionsBetweenNoAxes) {
  Trace trace;
  trace.add_axis({"source", {"a"}});
  EXPECT_THAT(
      [&] {
        trace.add_section({"some", 0, 1, 1, false});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("'some' must have axes in 0 .. 0; they are 0 and 1")));
  EXPECT_THAT([&] { (void)trace.section(0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("got 0")));
}

TEST(Header, SaysAllButTheWeights) {
  Trace trace;
  trace.model = "m";
  trace.note = {{"", "untrained"}};
  trace.source = "a b";
  trace.target = "c";
  trace.steps = 1;
  trace.add_axis({"source", {"a", "b"}});
  trace.add_axis({"target", {"c\xff"}});
  trace.add_section({"encoder", 0, 0, 1, true})
      .add_layer(view_of(Tensor({1.0f, 0.0f, 0.5f, 0.5f}, {1, 2, 2})));
  trace.add_section({"cross", 1, 0, 1, false})
      .add_layer(view_of(Tensor({0.0f, 1.0f}, {1, 1, 2})));
  const auto header = nlohmann::json::parse(header_json(trace, "x1"));
  EXPECT_EQ(header["format"], "regard-trace");
  EXPECT_EQ(header["version"], 1);
  EXPECT_EQ(header["id"], "x1");
  EXPECT_EQ(header["model"]["name"], "m");
  EXPECT_EQ(header["model"]["note"], "untrained");
  EXPECT_EQ(header["start"], nlohmann::json::object());
  EXPECT_EQ(header["steps"], 1);
  EXPECT_EQ(header["axes"][0]["tokens"][1], "b");
  EXPECT_EQ(header["axes"][1]["tokens"][0], "c\ufffd");
  const auto& encoder = header["sections"][0];
  EXPECT_EQ(encoder["queries"], 0);
  EXPECT_EQ(encoder["layers"], 1);
  EXPECT_EQ(encoder["heads"], 1);
  EXPECT_EQ(encoder["causal"], true);
  EXPECT_EQ(encoder["rollout"], true);
  EXPECT_EQ(encoder["thumbnails"]["rows"], 2);
  EXPECT_EQ(encoder["thumbnails"]["data"], "/wCAgA==");  // 255, 0, 128, 128
  EXPECT_EQ(encoder["statistics"][0][0]["same"], 0.75);
  EXPECT_EQ(header["sections"][1]["statistics"][0][0]["distance"], nullptr);
  EXPECT_EQ(header["sections"][1]["rollout"], false);
}

}  // namespace
}  // namespace regard::view
