// SPDX-License-Identifier: Apache-2.0
#include "regard/mask/mask.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "mask/bound_mask.h"
#include "support/mask_spec.h"

namespace regard {
namespace {

using test::causal_spec;
using test::DenseBools;
using test::MaskSpec;
using test::PairSizes;
using test::Rng;

MaskSizes to_mask_sizes(const PairSizes& sizes) {
  return {.batch = sizes.batch,
          .heads = sizes.heads,
          .q_len = sizes.q_len,
          .kv_len = sizes.kv_len};
}

void check_pairs(const MaskSpec& spec, const PairSizes& sizes,
                 const BoundMask& bound) {
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      for (std::int64_t i = 0; i < sizes.q_len; ++i) {
        const KeyRange range = bound.range(b, h, i);
        ASSERT_GE(range.begin, 0);
        ASSERT_LE(range.begin, range.end);
        ASSERT_LE(range.end, sizes.kv_len);
        for (std::int64_t j = 0; j < sizes.kv_len; ++j) {
          const bool seen = spec.visible(sizes, b, h, i, j);
          ASSERT_EQ(bound.visible(b, h, i, j), seen) << i << ", " << j;
          bool parts = j >= range.begin && j < range.end;
          for (const DensePart& part : bound.dense()) {
            parts = parts && part.row(b, h, i)[j] == part.visible_when;
          }
          ASSERT_EQ(parts, seen) << i << ", " << j;
          if (bound.ranges_are_full()) {
            ASSERT_EQ(range, (KeyRange{0, sizes.kv_len}));
          }
        }
      }
    }
  }
}

void check_visible_pairs(const MaskSpec& spec, const PairSizes& sizes,
                         const Mask& mask) {
  const Tensor pairs = mask::visible_pairs(
      mask, {sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len});
  const auto shown = pairs.view<bool, 4>();
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      for (std::int64_t i = 0; i < sizes.q_len; ++i) {
        for (std::int64_t j = 0; j < sizes.kv_len; ++j) {
          ASSERT_EQ(shown(b, h, i, j), spec.visible(sizes, b, h, i, j));
        }
      }
    }
  }
}

TEST(Mask, RangesAndDensePartsAgreeWithThePairsOfRandomMasks) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Rng rng(seed);
    const std::int64_t longest = test::one_of(rng, {3, 20, 150});
    const PairSizes sizes{.batch = test::pick(rng, 0, 3),
                          .heads = test::pick(rng, 1, 3),
                          .q_len = test::pick(rng, 0, longest),
                          .kv_len = test::pick(rng, 0, longest)};
    const MaskSpec spec = test::random_mask(rng, sizes);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + spec.describe());
    const Mask mask = spec.build();
    const BoundMask bound(mask, to_mask_sizes(sizes), "test");
    check_pairs(spec, sizes, bound);
    check_visible_pairs(spec, sizes, mask);
    if (HasFatalFailure()) return;
  }
}

TEST(Mask, ShowsEverythingByDefault) {
  const BoundMask bound(Mask(), {2, 2, 3, 5}, "test");
  EXPECT_TRUE(bound.ranges_are_full());
  EXPECT_TRUE(bound.dense().empty());
  EXPECT_EQ(bound.range(1, 1, 2), (KeyRange{0, 5}));
}

TEST(Mask, CausalAlignsByName) {
  const MaskSizes sizes{1, 1, 2, 5};
  const Mask bottom = mask::causal();
  EXPECT_EQ(BoundMask(bottom, sizes, "test").range(0, 0, 0).end, 4);
  EXPECT_EQ(BoundMask(bottom, sizes, "test").range(0, 0, 1).end, 5);
  const Mask top = mask::causal(mask::kTopLeft);
  EXPECT_EQ(BoundMask(top, sizes, "test").range(0, 0, 0).end, 1);
  const Mask offset = mask::causal(mask::at_offset(2));
  EXPECT_EQ(BoundMask(offset, sizes, "test").range(0, 0, 0).end, 3);
}

TEST(Mask, PartsThatHideNothingLeaveTheRangesFull) {
  const MaskSizes sizes{2, 3, 1, 6};
  const Mask decode = mask::causal() & mask::window(5, 0) &
                      mask::lengths({6, 6}) & mask::prefix(0);
  EXPECT_TRUE(BoundMask(decode, sizes, "test").ranges_are_full());
  EXPECT_FALSE(BoundMask(mask::window(4, 0), sizes, "test").ranges_are_full());
  EXPECT_FALSE(
      BoundMask(mask::lengths({6, 5}), sizes, "test").ranges_are_full());
}

TEST(Mask, DensePartsThatAreBroadcastAlongTheKeysBecomeRanges) {
  DenseBools rows({1, 1, 3, 1});
  rows(0, 0, 1, 0) = true;
  const Mask mask = mask::keep(rows.view());
  const BoundMask bound(mask, {2, 2, 3, 4}, "test");
  EXPECT_TRUE(bound.dense().empty());
  EXPECT_EQ(bound.range(1, 1, 0), (KeyRange{0, 0}));
  EXPECT_EQ(bound.range(1, 1, 1), (KeyRange{0, 4}));
}

TEST(Mask, WidthsAndOffsetsFarBeyondTheKeysDoNotOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const MaskSizes sizes{1, 1, 3, 3};
  const Mask wide = mask::window(kMost, kMost) & mask::prefix(kMost);
  EXPECT_TRUE(BoundMask(wide, sizes, "test").ranges_are_full());
  const Mask after = mask::window(2, kMost, mask::at_offset(kMost));
  EXPECT_EQ(BoundMask(after, sizes, "test").range(0, 0, 2), (KeyRange{3, 3}));
  const Mask before = mask::causal(mask::at_offset(kLeast));
  EXPECT_EQ(BoundMask(before, sizes, "test").range(0, 0, 2), (KeyRange{0, 0}));
}

TEST(Mask, OnePackedSequenceIsCheckedAgainstItsOwnSizes) {
  const Mask kept = mask::lengths({9, 2, 50});
  const MaskSizes sizes{3, 1, 4, 5, /*only_batch=*/1};
  EXPECT_EQ(BoundMask(kept, sizes, "test").range(1, 0, 0), (KeyRange{0, 2}));
  EXPECT_THROW(BoundMask(kept, {3, 1, 4, 5, 2}, "test"), InvalidArgument);
}

// The text of a refusal.
std::string refusal(const Mask& mask, const MaskSizes& sizes) {
  try {
    const BoundMask bound(mask, sizes, "caller");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

TEST(MaskRefuses, LengthsThatAreNotOneForEachBatchEntry) {
  EXPECT_EQ(refusal(mask::lengths({1, 2}), {3, 1, 4, 5}),
            "caller: mask lengths need one key length for each batch entry; "
            "batch is 3, lengths are 2");
  const std::vector<std::int64_t> keys{1, 2, 3};
  const std::vector<std::int64_t> queries{1};
  EXPECT_EQ(refusal(mask::lengths(keys, queries), {3, 1, 4, 5}),
            "caller: mask lengths need one query length for each batch entry; "
            "batch is 3, lengths are 1");
}

TEST(MaskRefuses, LengthsOutsideOfTheTensor) {
  EXPECT_EQ(refusal(mask::lengths({1, -2}), {2, 1, 4, 5}),
            "caller: a mask's key length must lie in [0, 5]; that of batch "
            "entry 1 is -2");
  EXPECT_EQ(refusal(mask::lengths({6, 1}), {2, 1, 4, 5}),
            "caller: a mask's key length must lie in [0, 5]; that of batch "
            "entry 0 is 6");
  const std::vector<std::int64_t> keys{5};
  const std::vector<std::int64_t> queries{5};
  EXPECT_EQ(refusal(mask::lengths(keys, queries), {1, 1, 4, 5}),
            "caller: a mask's query length must lie in [0, 4]; that of batch "
            "entry 0 is 5");
}

TEST(MaskRefuses, DocumentsOfOtherSizes) {
  const std::vector<std::int32_t> ids{1, 1, 2};
  EXPECT_EQ(refusal(mask::documents(ids), {1, 1, 3, 4}),
            "caller: mask documents need an id for each query and each key; "
            "q_len is 3, kv_len is 4, ids are 3 and 3");
}

TEST(MaskRefuses, DocumentsWhoseKeysDoNotStandTogether) {
  const std::vector<std::int32_t> ids{1, 1, 2, 1, 2};
  EXPECT_EQ(refusal(mask::documents(ids), {1, 1, 5, 5}),
            "caller: the keys of one document must stand together; key 3 "
            "belongs to a document that ended before it");
}

TEST(MaskRefuses, DenseAndDocumentPartsOfPackedSequences) {
  const char* text =
      "caller: mask keep, drop and documents cannot be used with packed "
      "sequences";
  const DenseBools one({1, 1, 1, 1});
  const std::vector<std::int32_t> ids{1, 1};
  const MaskSizes sizes{1, 1, 2, 2, /*only_batch=*/0};
  EXPECT_EQ(refusal(mask::keep(one.view()), sizes), text);
  EXPECT_EQ(refusal(mask::causal() & mask::drop(one.view()), sizes), text);
  EXPECT_EQ(refusal(mask::documents(ids), sizes), text);
  EXPECT_EQ(refusal(mask::causal() & mask::lengths({1}), sizes), "none");
}

TEST(MaskRefuses, ANegativePrefix) {
  EXPECT_EQ(refusal(mask::prefix(-1), {1, 1, 5, 5}),
            "caller: the prefix of a mask must not be negative; it is -1");
}

TEST(MaskRefuses, DenseViewsThatAreAbsentOrOfAnotherShape) {
  EXPECT_EQ(refusal(mask::keep({}), {1, 1, 5, 5}),
            "caller: mask keep needs a view; it was given none");
  EXPECT_EQ(refusal(mask::drop({}), {1, 1, 5, 5}),
            "caller: mask drop needs a view; it was given none");
  const DenseBools pairs({2, 1, 5, 4});
  EXPECT_EQ(refusal(mask::keep(pairs.view()), {2, 8, 5, 5}),
            "caller: each extent of mask keep must be 1 or that of "
            "[2, 8, 5, 5]; the view is [2, 1, 5, 4]");
  EXPECT_EQ(refusal(mask::drop(pairs.view()), {3, 8, 5, 4}),
            "caller: each extent of mask drop must be 1 or that of "
            "[3, 8, 5, 4]; the view is [2, 1, 5, 4]");
}

}  // namespace
}  // namespace regard
