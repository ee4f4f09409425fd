// SPDX-License-Identifier: Apache-2.0
#include "cli/mask_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/usage_error.h"
#include "io/files.h"
#include "regard/core/error.h"
#include "regard/io/npy.h"

namespace regard::cli {
namespace {

using ::regard::testing::TemporaryFolder;
using ::regard::testing::text_of;
using Rule = std::function<bool(std::int64_t batch, std::int64_t query,
                                std::int64_t key)>;

OwnedMask parsed(const std::string& text) {
  return parse_mask(std::vector<std::string>{text});
}

void expect_rule(const OwnedMask& owned, std::int64_t q_len,
                 std::int64_t kv_len, const Rule& rule) {
  const Tensor pairs = mask::visible_pairs(owned.mask, {2, 1, q_len, kv_len});
  const auto visible = pairs.view<bool, 4>();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < q_len; ++i) {
      for (std::int64_t j = 0; j < kv_len; ++j) {
        EXPECT_EQ(visible(b, 0, i, j), rule(b, i, j))
            << "batch " << b << " query " << i << " key " << j;
      }
    }
  }
}

TEST(ParseMask, ReadsCausalWithItsAlignments) {
  // Three queries, five keys: the last query stands at the last key.
  expect_rule(parsed("causal"), 3, 5,
              [](auto, auto i, auto j) { return j <= i + 2; });
  expect_rule(parsed("causal=bottom-right"), 3, 5,
              [](auto, auto i, auto j) { return j <= i + 2; });
  expect_rule(parsed("causal=top-left"), 3, 5,
              [](auto, auto i, auto j) { return j <= i; });
  expect_rule(parsed("causal=1"), 3, 5,
              [](auto, auto i, auto j) { return j <= i + 1; });
  expect_rule(parsed("causal=-1"), 3, 5,
              [](auto, auto i, auto j) { return j <= i - 1; });
}

TEST(ParseMask, ReadsWindowsAndPrefixes) {
  expect_rule(parsed("window=2:1"), 6, 6,
              [](auto, auto i, auto j) { return j >= i - 2 && j <= i + 1; });
  expect_rule(parsed("window=1"), 6, 6,
              [](auto, auto i, auto j) { return j >= i - 1 && j <= i + 1; });
  expect_rule(parsed("window=-1:0"), 6, 6,
              [](auto, auto i, auto j) { return j <= i; });
  expect_rule(parsed("prefix=3"), 6, 6,
              [](auto, auto i, auto j) { return j <= i || j < 3; });
}

TEST(ParseMask, ReadsLists) {
  expect_rule(parsed("lengths=2:4"), 5, 5,
              [](auto b, auto, auto j) { return j < (b == 0 ? 2 : 4); });
  expect_rule(parsed("documents=7:7:7:-1:-1"), 5, 5,
              [](auto, auto i, auto j) { return (i < 3) == (j < 3); });
}

TEST(ParseMask, JoinsPartsByCommasAndRepetition) {
  const Rule rule = [](auto, auto i, auto j) { return j <= i && j >= i - 1; };
  expect_rule(parsed("causal,window=1:-1"), 4, 4, rule);
  expect_rule(parse_mask(std::vector<std::string>{"causal", "window=1"}), 4, 4,
              rule);
  EXPECT_TRUE(parse_mask({}).mask.parts().empty());
}

TEST(ParseMask, LoadsListsAndDenseMasksFromFiles) {
  const TemporaryFolder folder;
  const bool pairs[] = {true, false, true, true};
  save_npy(folder / "pairs.npy", Tensor(std::span<const bool>(pairs), {2, 2}));
  const std::int32_t lengths[] = {1, 2};
  save_npy(folder / "lengths.npy",
           Tensor(std::span<const std::int32_t>(lengths), {2}));
  const Rule hidden = [](auto, auto i, auto j) { return i == 0 && j == 1; };
  expect_rule(parsed("keep=" + (folder / "pairs.npy").string()), 2, 2,
              std::not_fn(hidden));
  expect_rule(parsed("drop=" + (folder / "pairs.npy").string()), 2, 2, hidden);
  expect_rule(parsed("lengths=" + (folder / "lengths.npy").string()), 2, 2,
              [](auto b, auto, auto j) { return j <= b; });
}

TEST(ParseMask, SaysWhatIsWrongWithTheText) {
  const auto wrong = [](const std::string& text) {
    return text_of<UsageError>([&text] { parsed(text); });
  };
  const std::string known =
      " is none of causal, window, prefix, lengths, documents, keep, drop";
  EXPECT_EQ(wrong("casual"), "--mask: 'casual'" + known);
  EXPECT_EQ(wrong("causal,"), "--mask: ''" + known);
  EXPECT_EQ(wrong("causal=left"),
            "--mask: 'causal=left' needs top-left, bottom-right or an offset");
  EXPECT_EQ(wrong("window"), "--mask: 'window' needs a value after '='");
  EXPECT_EQ(wrong("window="), "--mask: 'window=' needs a value after '='");
  EXPECT_EQ(wrong("window=1:2:3"),
            "--mask: 'window=1:2:3' needs one width, or LEFT:RIGHT");
  EXPECT_EQ(wrong("window=1.5"), "--mask: 'window=1.5' needs whole numbers");
  EXPECT_EQ(wrong("prefix=99999999999999999999"),
            "--mask: 'prefix=99999999999999999999' needs whole numbers");
  EXPECT_EQ(wrong("lengths=3:"), "--mask: 'lengths=3:' needs whole numbers");
  EXPECT_EQ(wrong("keep=3"),
            "--mask: 'keep=3' needs a .npy or .safetensors "
            "file");
}

TEST(ParseMask, SaysWhatIsWrongWithTheFile) {
  const TemporaryFolder folder;
  const std::string file = folder / "x.npy";
  save_npy(file, Tensor({1, 2, 3, 4}, {2, 2}));
  const auto wrong = [](const std::string& text) {
    return text_of<InvalidArgument>([&text] { parsed(text); });
  };
  EXPECT_EQ(wrong("keep=" + file),
            "keep: a dense mask is of bool; '" + file + "' is float32");
  EXPECT_EQ(wrong("lengths=" + file),
            "lengths: a list has one dimension; '" + file + "' is [2, 2]");
  save_npy(file, Tensor({1, 2}, {2}));
  EXPECT_EQ(
      wrong("documents=" + file),
      "documents: a list is of int32 or int64; '" + file + "' is float32");
  save_npy(file, Tensor(DType::kBool, {1, 1, 1, 1, 1}));
  EXPECT_EQ(wrong("drop=" + file),
            "drop: at most four dimensions; it is [1, 1, 1, 1, 1]");
  EXPECT_EQ(wrong("documents=4294967296"),
            "documents: a document's number must fit in 32 bits; it is "
            "4294967296");
}

}  // namespace
}  // namespace regard::cli
