// SPDX-License-Identifier: Apache-2.0
#include "regard/tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace regard {
namespace {

template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<float> counted(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(ShapeText, ListsTheExtents) {
  EXPECT_EQ(to_string(std::array<std::int64_t, 4>{2, 8, 128, 64}),
            "[2, 8, 128, 64]");
  EXPECT_EQ(to_string(std::array<std::int64_t, 1>{-1}), "[-1]");
  EXPECT_EQ(to_string(std::span<const std::int64_t>()), "[]");
}

TEST(ElementCount, IsTheProductOfTheExtents) {
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(element_count(Extents{2, 3, 5}), 30);
  EXPECT_EQ(element_count(Extents{}), 1);
  EXPECT_EQ(element_count(Extents{7, 0, 3}), 0);
  EXPECT_EQ(element_count(Extents{(std::int64_t{1} << 60) - 1}),
            (std::int64_t{1} << 60) - 1);
}

TEST(ElementCount, RefusesWhatDoesNotFit) {
  using Extents = std::vector<std::int64_t>;
  const std::int64_t large = std::int64_t{1} << 40;
  const std::string rule =
      "element_count: the elements must fit in 63 bits of bytes; shape is ";
  EXPECT_EQ(refusal([=] {
              element_count(Extents{large, large});
            }),
            rule + "[1099511627776, 1099511627776]");
  EXPECT_EQ(refusal([] { element_count(Extents{std::int64_t{1} << 60}); }),
            rule + "[1152921504606846976]");
  // An empty one too: its strides would overflow.
  EXPECT_EQ(refusal([=] {
              element_count(Extents{0, large, large});
            }),
            rule + "[0, 1099511627776, 1099511627776]");
  EXPECT_EQ(refusal([] {
              element_count(Extents{3, -2});
            }),
            "element_count: no extent may be negative; shape is [3, -2]");
}

TEST(TensorView, OfContiguousElementsHasRowMajorStrides) {
  std::vector<float> values = counted(24);
  const TensorView<float, 3> view(values.data(), {2, 3, 4});
  EXPECT_EQ(view.strides(), (std::array<std::int64_t, 3>{12, 4, 1}));
  EXPECT_EQ(view.size(), 24);
  EXPECT_EQ(view.extent(1), 3);
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_EQ(*view.at(1), 12);
  EXPECT_EQ(*view.at(1, 2), 20);
  EXPECT_EQ(view.at(), values.data());
}

TEST(TensorView, ReadsHeadsOutOfAPackedTensorWithoutACopy) {
  // [batch 2, len 3, heads 2, dim 4] seen as [batch, heads, len, dim].
  std::vector<float> values = counted(48);
  const TensorView<float, 4> view(values.data(), {2, 2, 3, 4}, {24, 4, 8, 1});
  EXPECT_FALSE(view.is_contiguous());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t n = 0; n < 3; ++n) {
        EXPECT_EQ(view(b, h, n, 1),
                  static_cast<float>(24 * b + 8 * n + 4 * h + 1));
      }
    }
  }
}

TEST(TensorView, BroadcastsWithAStrideOfZero) {
  std::vector<float> values = counted(3);
  const TensorView<float, 2> view(values.data(), {5, 3}, {0, 1});
  EXPECT_EQ(view(4, 2), 2);
  EXPECT_EQ(view.size(), 15);
  EXPECT_FALSE(view.is_contiguous());
}

TEST(TensorView, IgnoresTheStridesOfExtentsOfOne) {
  std::vector<float> values = counted(4);
  const TensorView<float, 3> view(values.data(), {1, 4, 1}, {77, 1, 9});
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.stride(2), 1);
}

TEST(TensorView, TurnsIntoAViewOfConstElements) {
  std::vector<float> values = counted(6);
  const TensorView<float, 2> view(values.data(), {2, 3});
  const TensorView<const float, 2> fixed = view;
  EXPECT_EQ(fixed.data(), values.data());
  EXPECT_EQ(fixed.shape(), view.shape());
  EXPECT_EQ(fixed.strides(), view.strides());
}

TEST(TensorView, KnowsThatItWasNeverGiven) {
  EXPECT_TRUE((TensorView<float, 2>().is_null()));
  std::vector<float> values = counted(1);
  EXPECT_FALSE((TensorView<float, 2>(values.data(), {1, 1}).is_null()));
  EXPECT_FALSE((TensorView<float, 2>(values.data(), {0, 1}).is_null()));
}

TEST(TensorView, RefusesBrokenRulesByName) {
  std::vector<float> values = counted(6);
  EXPECT_EQ(refusal([] {
              TensorView<float, 2>(nullptr, {2, 3});
            }),
            "TensorView: data must not be null; shape is [2, 3]");
  EXPECT_EQ(refusal([&] { TensorView<float, 1>(values.data(), {-6}); }),
            "element_count: no extent may be negative; shape is [-6]");
  EXPECT_EQ(refusal([&] {
              TensorView<float, 2>(values.data(), {2, 3}, {1, 2});
            }),
            "TensorView: the last stride must be 1; strides are [1, 2]");
  EXPECT_EQ(refusal([] { TensorView<float, 2>(nullptr, {0, 3}); }), "accepted");
}

}  // namespace
}  // namespace regard
