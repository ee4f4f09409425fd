// SPDX-License-Identifier: Apache-2.0
// What the cache and attention_decode refuse, and in which words.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "regard/attention/decode.h"
#include "support/refusal.h"

namespace regard {
namespace {

using test::refusal;

std::string refused(const KVCacheOptions& options) {
  return refusal([&] { KVCache cache(options); });
}

constexpr KVCacheOptions kGood{.kv_heads = 2, .d_k = 4, .d_v = 3};

TEST(KVCacheRefusals, NameTheOption) {
  KVCacheOptions o = kGood;
  o.storage = DType::kFloat64;
  EXPECT_EQ(refused(o),
            "KVCache: storage must be float32, bfloat16, float16 or int8; it "
            "is float64");
  o = kGood;
  o.sequences = -1;
  EXPECT_EQ(refused(o), "KVCache: sequences must lie in [0, 2^31); it is -1");
  o = kGood;
  o.kv_heads = 0;
  EXPECT_EQ(refused(o),
            "KVCache: kv_heads, d_k and d_v must be positive and kv_heads * "
            "(d_k + d_v) at most 2^24; they are 0, 4 and 3");
  o = kGood;
  o.d_k = std::int64_t{1} << 40;
  EXPECT_EQ(refused(o),
            "KVCache: kv_heads, d_k and d_v must be positive and kv_heads * "
            "(d_k + d_v) at most 2^24; they are 2, 1099511627776 and 3");
  o = kGood;
  o.reserve = -5;
  EXPECT_EQ(refused(o), "KVCache: reserve must lie in [0, 2^31); it is -5");
}

TEST(KVCacheRefusals, NameWhatBelongsToAnotherKind) {
  KVCacheOptions o = kGood;
  o.window = 8;
  EXPECT_EQ(refused(o),
            "KVCache: window and first_kept are for a ring; they are 8 and 0");
  o = kGood;
  o.pages = 8;
  EXPECT_EQ(refused(o), "KVCache: pages are for a paged cache; there are 8");
  o = kGood;
  o.kind = KVCacheKind::kRing;
  EXPECT_EQ(refused(o),
            "KVCache: the window of a ring must lie in [1, 2^31); it is 0");
  o.window = 4;
  o.first_kept = -1;
  EXPECT_EQ(refused(o), "KVCache: first_kept must lie in [0, 2^31); it is -1");
  o.first_kept = 0;
  o.reserve = 3;
  EXPECT_EQ(refused(o), "KVCache: reserve is for a contiguous cache; it is 3");
  o = kGood;
  o.kind = KVCacheKind::kPaged;
  EXPECT_EQ(refused(o),
            "KVCache: a paged cache needs at least one page, and less than "
            "2^31 tokens in all; pages are 0, of 64 tokens");
  o.pages = 4;
  o.page_tokens = 24;
  EXPECT_EQ(refused(o),
            "KVCache: page_tokens must be a positive multiple of 16; it is 24");
}

class CacheRefusals : public ::testing::Test {
 protected:
  KVCache make(std::int64_t sequences) {
    KVCacheOptions o = kGood;
    o.sequences = sequences;
    return KVCache(o);
  }
  std::vector<float> data_ = std::vector<float>(1000, 1.0f);
  TensorView<const float, 3> rows(std::int64_t heads, std::int64_t tokens,
                                  std::int64_t width) {
    return {data_.data(), {heads, tokens, width}};
  }
  TensorView<const float, 4> batch(std::int64_t n, std::int64_t heads,
                                   std::int64_t tokens, std::int64_t width) {
    return {data_.data(), {n, heads, tokens, width}};
  }
};

TEST_F(CacheRefusals, OfAnAppendNameTheShape) {
  KVCache cache = make(2);
  EXPECT_EQ(refusal([&] { cache.append(0, rows(2, 1, 5), rows(2, 1, 3)); }),
            "KVCache::append: k must be [..., kv_heads, tokens, d_k] = [..., "
            "2, tokens, 4]; it is [2, 1, 5]");
  EXPECT_EQ(refusal([&] { cache.append(0, rows(2, 1, 4), rows(2, 2, 3)); }),
            "KVCache::append: v must be [..., kv_heads, tokens, d_v] = [..., "
            "2, 1, 3]; it is [2, 2, 3]");
  EXPECT_EQ(refusal([&] { cache.append(2, rows(2, 1, 4), rows(2, 1, 3)); }),
            "KVCache::append: a sequence must lie in [0, 2); it is 2");
  EXPECT_EQ(
      refusal([&] { cache.append(batch(1, 2, 1, 4), batch(1, 2, 1, 3)); }),
      "KVCache::append: k and v must have one batch entry a sequence; "
      "sequences are 2, k is [1, 2, 1, 4], v is [1, 2, 1, 3]");
  const std::vector<std::int64_t> twice{1, 1};
  EXPECT_EQ(refusal([&] {
              cache.append(twice, batch(2, 2, 1, 4), batch(2, 2, 1, 3));
            }),
            "KVCache::append: a sequence may be named once; twice came 1");
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.length(1), 0);
}

TEST_F(CacheRefusals, OfSequencesNameTheNumber) {
  KVCache cache = make(2);
  cache.append(0, rows(2, 5, 4), rows(2, 5, 3));
  EXPECT_EQ(refusal([&] { cache.length(-1); }),
            "KVCache::length: a sequence must lie in [0, 2); it is -1");
  EXPECT_EQ(refusal([&] { cache.truncate(0, 6); }),
            "KVCache::truncate: length must lie in [0, 5]; it is 6");
  EXPECT_EQ(refusal([&] { cache.truncate(3, 0); }),
            "KVCache::truncate: a sequence must lie in [0, 2); it is 3");
  EXPECT_EQ(refusal([&] { cache.release(2); }),
            "KVCache::release: a sequence must lie in [0, 2); it is 2");
  EXPECT_EQ(refusal([&] { cache.fork(0, 2); }),
            "KVCache::fork: a sequence must lie in [0, 2); it is 2");
  const std::vector<std::int64_t> parents{0, -1};
  EXPECT_EQ(refusal([&] { cache.reorder(parents); }),
            "KVCache::reorder: a sequence must lie in [0, 2); it is -1");
  EXPECT_EQ(refusal([&] { cache.resize(-1); }),
            "KVCache::resize: sequences must lie in [0, 2^31); it is -1");
  EXPECT_EQ(refusal([&] { cache.prefix(0, 9); }),
            "KVCache::prefix: length must lie in [0, 5]; it is 9");
}

TEST_F(CacheRefusals, OfARingSayWhatItStillHolds) {
  KVCacheOptions o = kGood;
  o.kind = KVCacheKind::kRing;
  o.window = 10;
  KVCache cache(o);
  for (int i = 0; i < 100; ++i) cache.append(0, rows(2, 1, 4), rows(2, 1, 3));
  EXPECT_EQ(refusal([&] { cache.truncate(0, 60); }),
            "KVCache::truncate: the ring must still hold the window at the new "
            "length, the tokens [50, 60); it holds those from 64 on");
  EXPECT_EQ(refusal([&] { cache.prefix(0, 10); }),
            "KVCache::prefix: the ring must still hold every token; the first "
            "after those that are kept is 64");
  std::vector<float> out(2 * 40 * 3);
  EXPECT_EQ(refusal([&] {
              attention_decode(batch(1, 2, 40, 4), cache,
                               {out.data(), {1, 2, 40, 3}});
            }),
            "attention_decode: the ring must still hold what a query sees; "
            "query 0 of entry 0 sees the keys from 51, held are those from 64");
}

TEST_F(CacheRefusals, OfAPrefixNameTheTensor) {
  KVCache cache = make(1);
  const auto load = [&](StateDict state) {
    return refusal([&] { cache.load_prefix(0, state); });
  };
  const std::string where = "KVCache::load_prefix: ";
  EXPECT_EQ(load({}),
            where + "the prefix must have the tensor k; it has 0 others");
  EXPECT_EQ(load({{"k", Tensor({2, 5, 3})}}),
            where +
                "k must be float32 [2, -1, 4] (-1: any length); it is "
                "float32 [2, 5, 3]");
  EXPECT_EQ(load({{"k", Tensor(DType::kInt8, {2, 5, 4})}}),
            where +
                "k must be float32 [2, -1, 4] (-1: any length); it is int8 "
                "[2, 5, 4]");
  EXPECT_EQ(load({{"k", Tensor({2, 5, 4})}, {"v", Tensor({2, 4, 3})}}),
            where +
                "v must be float32 [2, 5, 3] (-1: any length); it is "
                "float32 [2, 4, 3]");
  EXPECT_EQ(load({{"k", Tensor({2, 5, 4})},
                  {"v", Tensor({2, 5, 3})},
                  {"w", Tensor({1})}}),
            where + "the prefix must have 2 tensors; it has 3");
  cache.append(0, rows(2, 1, 4), rows(2, 1, 3));
  EXPECT_EQ(load({}), where + "the sequence must be empty; it has tokens: 1");
}

class DecodeRefusals : public CacheRefusals {
 protected:
  DecodeRefusals() : cache_(make(2)) {
    cache_.append(0, rows(2, 5, 4), rows(2, 5, 3));
  }
  std::string decode(const AttentionOptions& options) {
    return decode({2, 4, 1, 4}, {2, 4, 1, 3}, options);
  }
  std::string decode(const std::array<std::int64_t, 4>& q,
                     const std::array<std::int64_t, 4>& out,
                     const AttentionOptions& options = {}) {
    std::vector<float> result(500, 7.0f);
    const std::string text = refusal([&] {
      attention_decode({data_.data(), q}, cache_, {result.data(), out},
                       options);
    });
    EXPECT_EQ(result, std::vector<float>(500, 7.0f)) << "out was written";
    return text;
  }
  KVCache cache_;
};

TEST_F(DecodeRefusals, NameTheShape) {
  const std::string where = "attention_decode: ";
  EXPECT_EQ(decode({1, 4, 1, 4}, {1, 4, 1, 3}),
            where +
                "q must be [sequences, heads, q_len, d_k] = [2, heads, "
                "q_len, 4]; it is [1, 4, 1, 4]");
  EXPECT_EQ(decode({2, 3, 1, 4}, {2, 3, 1, 3}),
            where +
                "kv_heads must divide heads; the cache has 2, q is [2, 3, "
                "1, 4]");
  EXPECT_EQ(decode({2, 4, 1, 4}, {2, 4, 1, 4}),
            where +
                "out must be [sequences, heads, q_len, d_v] = [2, 4, 1, "
                "3]; it is [2, 4, 1, 4]");
  std::vector<float> out(100);
  EXPECT_EQ(refusal([&] {
              attention_decode({data_.data(), {2, 4, 1, 4}}, cache_,
                               {out.data(), {2, 4, 1, 3}, {0, 3, 3, 1}});
            }),
            where +
                "the rows of out must not overlap; its strides are [0, 3, "
                "3, 1]");
  EXPECT_EQ(refusal([&] {
              attention_decode({data_.data(), {2, 4, 1, 4}}, cache_,
                               {out.data(), {2, 4, 1, 3}, {12, 2, 3, 1}});
            }),
            where +
                "the rows of out must not overlap; its strides are [12, 2, "
                "3, 1]");
  std::vector<float> sums(8);
  AttentionOptions options;
  options.log_sum_exp = {sums.data(), {2, 4, 1}, {0, 1, 1}};
  EXPECT_EQ(refusal([&] {
              attention_decode({data_.data(), {2, 4, 1, 4}}, cache_,
                               {out.data(), {2, 4, 1, 3}}, options);
            }),
            where +
                "the rows of log_sum_exp must not overlap; its strides are "
                "[0, 1, 1]");
  const std::vector<std::int64_t> wrong{0, 5};
  EXPECT_EQ(refusal([&] {
              attention_decode({data_.data(), {2, 4, 1, 4}}, cache_, wrong,
                               {out.data(), {2, 4, 1, 3}});
            }),
            where + "a sequence must lie in [0, 2); it is 5");
}

TEST_F(DecodeRefusals, NameTheOption) {
  const std::string where = "attention_decode: ";
  const std::vector<float> three(3);
  const std::vector<std::int64_t> offsets{0, 1};
  const bool shown[5] = {};
  EXPECT_EQ(decode({.dropout = {.rate = 0.5f}}),
            where + "there is no dropout in decoding; the rate is 0.5");
  EXPECT_EQ(decode({.sequences = {offsets, offsets}}),
            where +
                "packed sequences cannot be used: each entry is a sequence "
                "of the cache; offsets came");
  EXPECT_EQ(decode({.compute = Compute::kBFloat16}),
            where + "the arithmetic must be float; Compute::kBFloat16 came");
  EXPECT_EQ(decode({.mask = mask::keep({shown, {1, 1, 1, 5}})}),
            where +
                "mask keep, drop and documents cannot be used; hide pairs "
                "by -inf in bias");
  EXPECT_EQ(decode({.scale = std::numeric_limits<float>::infinity()}),
            where + "scale must be finite; it is inf");
  EXPECT_EQ(decode({.head_scales = three}),
            where +
                "head_scales must hold one value per head; heads is 4, "
                "values are 3");
  EXPECT_EQ(decode({.alibi_slopes = three}),
            where +
                "alibi_slopes must hold one value per head; heads is 4, "
                "values are 3");
  EXPECT_EQ(decode({.sinks = three}),
            where +
                "sinks must hold one value per head; heads is 4, values are "
                "3");
  EXPECT_EQ(decode({.softcap = -1}),
            where + "softcap must be finite and not negative; it is -1");
  EXPECT_EQ(decode({.bias = {three.data(), {1, 1, 1, 3}}}),
            where +
                "bias must be [sequences or 1, heads or 1, q_len or 1, at "
                "least the longest length or 1]; it is [1, 1, 1, 3], they "
                "are [2, 4, 1, 5]");
  float lse[3];
  EXPECT_EQ(decode({.log_sum_exp = {lse, {1, 3, 1}}}),
            where +
                "log_sum_exp must be [sequences, heads, q_len]; it is [1, "
                "3, 1], q is [2, 4, 1, 4]");
  EXPECT_EQ(decode({.mask = mask::lengths({3})}),
            where +
                "mask lengths need one key length for each batch entry; "
                "batch is 2, lengths are 1");
}

}  // namespace
}  // namespace regard
