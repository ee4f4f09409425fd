// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/kv_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "regard/io/safetensors.h"
#include "support/decode_case.h"

namespace regard {
namespace {

using test::Rng;

constexpr std::int64_t kHeads = 2, kDk = 5, kDv = 3;

// What a cache is, told simply: a list of tokens for each sequence. A token is
// a number that its elements are made from.
using Model = std::vector<std::vector<int>>;

float key_element(int token, std::int64_t head, std::int64_t c) {
  return static_cast<float>(token * 8 + head * 3 + c) * 0.25f;
}
float value_element(int token, std::int64_t head, std::int64_t c) {
  return -static_cast<float>(token * 8 + head * 5 + c) * 0.5f;
}

// k [n, kv_heads, tokens, d_k] and v of tokens that are numbered anew.
struct Tokens {
  std::vector<std::vector<int>> numbers;  // [n][tokens]
  std::vector<float> k, v;

  Tokens(std::int64_t n, std::int64_t count, int& next) {
    for (std::int64_t i = 0; i < n; ++i) {
      auto& mine = numbers.emplace_back();
      for (std::int64_t t = 0; t < count; ++t) mine.push_back(next++);
      for (std::int64_t h = 0; h < kHeads; ++h) {
        for (const int token : mine) {
          for (std::int64_t c = 0; c < kDk; ++c) {
            k.push_back(key_element(token, h, c));
          }
          for (std::int64_t c = 0; c < kDv; ++c) {
            v.push_back(value_element(token, h, c));
          }
        }
      }
    }
  }
  std::int64_t count() const {
    return numbers.empty() ? 0 : static_cast<std::int64_t>(numbers[0].size());
  }
  TensorView<const float, 4> keys() const {
    return {k.data(),
            {static_cast<std::int64_t>(numbers.size()), kHeads, count(), kDk}};
  }
  TensorView<const float, 4> values() const {
    return {v.data(),
            {static_cast<std::int64_t>(numbers.size()), kHeads, count(), kDv}};
  }
};

void append_one(KVCache& cache, std::int64_t sequence, std::int64_t tokens,
                int& next) {
  const Tokens t(1, tokens, next);
  cache.append(sequence, {t.k.data(), {kHeads, tokens, kDk}},
               {t.v.data(), {kHeads, tokens, kDv}});
}

KVCacheOptions options_of(KVCacheKind kind) {
  KVCacheOptions o{.kind = kind, .kv_heads = kHeads, .d_k = kDk, .d_v = kDv};
  if (kind == KVCacheKind::kRing) {
    o.window = 40;
    o.first_kept = 3;
  }
  if (kind == KVCacheKind::kPaged) {
    o.page_tokens = 16;
    o.pages = 10;
  }
  return o;
}

::testing::AssertionResult holds(const KVCache& cache, const Model& model) {
  if (cache.sequences() != static_cast<std::int64_t>(model.size())) {
    return ::testing::AssertionFailure() << "another number of sequences";
  }
  for (std::int64_t s = 0; s < cache.sequences(); ++s) {
    const auto& tokens = model[static_cast<std::size_t>(s)];
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (cache.length(s) != length) {
      return ::testing::AssertionFailure() << "another length of " << s;
    }
    const StateDict state = cache.prefix(s, length);
    const auto k = state.at("k").view<float, 3>();
    const auto v = state.at("v").view<float, 3>();
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t t = 0; t < length; ++t) {
        const int token = tokens[static_cast<std::size_t>(t)];
        for (std::int64_t c = 0; c < kDk; ++c) {
          if (k(h, t, c) != key_element(token, h, c)) {
            return ::testing::AssertionFailure()
                   << "another key: sequence " << s << ", token " << t;
          }
        }
        for (std::int64_t c = 0; c < kDv; ++c) {
          if (v(h, t, c) != value_element(token, h, c)) {
            return ::testing::AssertionFailure()
                   << "another value: sequence " << s << ", token " << t;
          }
        }
      }
    }
  }
  return ::testing::AssertionSuccess();
}

class RandomOperations {
 public:
  RandomOperations(KVCacheKind kind, std::int64_t longest)
      : longest_(longest), cache_(options_of(kind)), model_(1) {}

  void step() {
    const std::int64_t n = cache_.sequences();
    switch (test::pick(rng_, 0, 9)) {
      case 0:
      case 1:
      case 2:
        return append_some();
      case 3:
        return append_to_one();
      case 4:
        return n > 0 ? truncate() : resize();
      case 5:
        if (n > 0 && test::chance(rng_, 0.3)) {
          const std::int64_t s = any();
          cache_.release(s);
          of(s).clear();
        }
        return;
      case 6:
      case 7:
        if (n > 0) {
          const std::int64_t from = any(), to = any();
          cache_.fork(from, to);
          of(to) = std::vector<int>(of(from));
        }
        return;
      case 8:
        return reorder();
      default:
        if (test::chance(rng_, 0.3)) resize();
    }
  }

  KVCache& cache() { return cache_; }
  const Model& model() const { return model_; }
  int out_of_pages() const { return out_of_pages_; }

 private:
  std::int64_t any() { return test::pick(rng_, 0, cache_.sequences() - 1); }
  std::vector<int>& of(std::int64_t s) {
    return model_[static_cast<std::size_t>(s)];
  }

  void append(const std::vector<std::int64_t>& to, std::int64_t count) {
    for (const std::int64_t s : to) {
      if (cache_.length(s) + count > longest_) return;
    }
    const Tokens tokens(static_cast<std::int64_t>(to.size()), count, next_);
    try {
      cache_.append(to, tokens.keys(), tokens.values());
    } catch (const OutOfPages&) {
      ++out_of_pages_;  // and nothing is lost, as the comparison shows
      return;
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      auto& model = of(to[i]);
      model.insert(model.end(), tokens.numbers[i].begin(),
                   tokens.numbers[i].end());
    }
  }
  void append_some() {
    std::vector<std::int64_t> to;
    for (std::int64_t s = cache_.sequences() - 1; s >= 0; --s) {
      if (test::chance(rng_, 0.5)) to.push_back(s);
    }
    append(to, test::pick(rng_, 0, test::chance(rng_, 0.7) ? 1 : 9));
  }
  void append_to_one() {
    if (cache_.sequences() > 0) append({any()}, test::pick(rng_, 1, 40));
  }
  void truncate() {
    const std::int64_t s = any();
    const std::int64_t now = cache_.length(s);
    const std::int64_t length =
        now - test::pick(rng_, 0, std::min<std::int64_t>(now, 20));
    cache_.truncate(s, length);
    of(s).resize(static_cast<std::size_t>(length));
  }
  void reorder() {
    if (cache_.sequences() == 0) return;
    std::vector<std::int64_t> parents;
    Model children;
    const std::int64_t count = test::pick(rng_, 0, 8);
    for (std::int64_t i = 0; i < count; ++i) {
      parents.push_back(any());
      children.push_back(of(parents.back()));
    }
    cache_.reorder(parents);
    model_ = children;
  }
  void resize() {
    const std::int64_t count = test::pick(rng_, 1, 8);
    cache_.resize(count);
    model_.resize(static_cast<std::size_t>(count));
  }

  std::int64_t longest_;
  Rng rng_{11};
  KVCache cache_;
  Model model_;
  int next_ = 0;
  int out_of_pages_ = 0;
};

TEST(KVCache, AgreesWithASimpleModelOverTenThousandOperations) {
  for (const KVCacheKind kind :
       {KVCacheKind::kContiguous, KVCacheKind::kPaged, KVCacheKind::kRing}) {
    // A ring that is never longer than its window keeps everything.
    RandomOperations operations(kind, kind == KVCacheKind::kRing ? 40 : 150);
    for (int i = 0; i < 10000; ++i) {
      operations.step();
      ASSERT_TRUE(holds(operations.cache(), operations.model()))
          << "after operation " << i;
    }
    if (kind == KVCacheKind::kPaged) {
      EXPECT_GT(operations.out_of_pages(), 100) << "the pool hardly ran out";
      operations.cache().resize(0);
      EXPECT_EQ(operations.cache().free_pages(), 10) << "pages were lost";
    }
  }
}

TEST(KVCache, SharesPagesOfAForkUntilOneWrites) {
  KVCacheOptions o = options_of(KVCacheKind::kPaged);
  o.sequences = 3;
  o.pages = 24;
  KVCache cache(o);
  int next = 0;
  append_one(cache, 0, 40, next);  // three pages, the last half full
  EXPECT_EQ(cache.free_pages(), 21);
  cache.fork(0, 1);
  cache.fork(0, 2);
  EXPECT_EQ(cache.free_pages(), 21);
  // Each of two gets a copy of the last page; the third keeps it.
  const Tokens tokens(3, 1, next);
  cache.append(tokens.keys(), tokens.values());
  EXPECT_EQ(cache.free_pages(), 19);
  cache.release(0);
  EXPECT_EQ(cache.free_pages(), 20);
  cache.release(1);
  cache.truncate(2, 32);
  EXPECT_EQ(cache.free_pages(), 22);
  cache.truncate(2, 0);
  EXPECT_EQ(cache.free_pages(), 24);
}

TEST(KVCache, ThatRunsOutOfPagesSaysSoAndLosesNothing) {
  KVCacheOptions o = options_of(KVCacheKind::kPaged);
  o.sequences = 2;
  o.pages = 3;
  KVCache cache(o);
  int next = 0;
  append_one(cache, 0, 16, next);
  append_one(cache, 1, 20, next);
  const Tokens tokens(2, 13, next);  // one page more each
  try {
    cache.append(tokens.keys(), tokens.values());
    FAIL() << "there is no page left";
  } catch (const OutOfPages& error) {
    EXPECT_STREQ(error.what(),
                 "KVCache::append: the pool must have as many free pages as "
                 "the tokens need; they need 2, free are 0 of 3");
  }
  Model model{{}, {}};
  for (int i = 0; i < 16; ++i) model[0].push_back(i);
  for (int i = 16; i < 36; ++i) model[1].push_back(i);
  EXPECT_TRUE(holds(cache, model));
  // Where there is room, it goes on.
  cache.release(0);
  append_one(cache, 1, 13, next);
  EXPECT_EQ(cache.length(1), 33);
}

TEST(KVCache, OfARingGoesBackBySixteenTokensAtLeast) {
  for (const std::int64_t window : {1, 15, 16, 17, 33, 100}) {
    for (std::int64_t length = 1; length < 400; length += 7) {
      KVCacheOptions o = options_of(KVCacheKind::kRing);
      o.window = window;
      o.first_kept = 0;
      KVCache cache(o);
      int next = 0;
      append_one(cache, 0, length, next);
      EXPECT_NO_THROW(cache.truncate(0, std::max<std::int64_t>(0, length - 16)))
          << window << ", " << length;
    }
  }
}

// Such as a system prompt. They stand in blocks of their own.
TEST(KVCache, OfARingKeepsItsFirstTokensForGood) {
  KVCacheOptions o = options_of(KVCacheKind::kRing);
  o.window = 16;
  o.first_kept = 32;
  KVCache cache(o), fresh(o);
  int next = 0, next_of_fresh = 0;
  append_one(cache, 0, 500, next);
  append_one(fresh, 0, 32, next_of_fresh);
  for (const std::int64_t length : {0, 1, 20, 32}) {
    EXPECT_TRUE(
        test::same_bits(cache.prefix(0, length), fresh.prefix(0, length)))
        << length;
  }
  EXPECT_THROW(cache.prefix(0, 33), InvalidArgument);
  EXPECT_THROW(cache.truncate(0, 33), InvalidArgument);
  cache.truncate(0, 20);
  fresh.truncate(0, 20);
  next = next_of_fresh = 1000;
  const std::vector<float> q(kHeads * kDk, 0.125f);
  // Within the first blocks, beyond them, and round the ring again.
  for (const std::int64_t tokens : {1, 12, 30, 200}) {
    std::vector<float> out[2];
    for (KVCache* one : {&cache, &fresh}) {
      int& number = one == &cache ? next : next_of_fresh;
      append_one(*one, 0, tokens, number);
      auto& result = out[one == &cache ? 0 : 1];
      result.resize(kHeads * kDv);
      attention_decode({q.data(), {1, kHeads, 1, kDk}}, *one,
                       {result.data(), {1, kHeads, 1, kDv}});
    }
    EXPECT_EQ(out[0], out[1]) << tokens;
  }
}

TEST(KVCache, SavesAPrefixThatEveryOtherKindLoads) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("regard_kv_prefix_" + std::to_string(::getpid()));
  const test::AttentionCase c = test::filled({.heads = 4,
                                              .kv_heads = 2,
                                              .q_len = 2,
                                              .kv_len = 90,
                                              .d_k = 24,
                                              .d_v = 40},
                                             3);
  for (const DType storage :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (const auto& from : test::caches_that_keep_all()) {
      const KVCache cache = test::filled_cache(from, storage, {c});
      const auto wanted = test::run_decode(cache, {c})[0];
      save_safetensors(path, cache.prefix(0, 60));
      for (const auto& to : test::caches_that_keep_all()) {
        KVCache other = test::make_cache(to, c, storage, 1);
        other.load_prefix(0, SafetensorsFile::open(path).state_dict());
        EXPECT_EQ(other.length(0), 60);
        test::append_tokens(other, 0, c, 60, 90);
        const auto got = test::run_decode(other, {c})[0];
        EXPECT_EQ(test::different_bits(wanted, got), "")
            << from.name << " to " << to.name;
      }
    }
  }
  std::filesystem::remove(path);
}

TEST(KVCache, StoresInt8AsTheHeaderSays) {
  KVCache cache({.storage = DType::kInt8, .kv_heads = 1, .d_k = 4, .d_v = 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> k{1,     -2.54f, 0.03f,  0.015f,  // scale 0.02
                             0,     0,      0,      0,       //
                             1,     nan,    3,      0,       //
                             -1,    1,      0.5f,   -nan,    //
                             least, 0,      -least, 300 * least};
  const std::vector<float> v{127, -0.0f, std::numeric_limits<float>::infinity(),
                             1, 2};
  cache.append(0, {k.data(), {1, 5, 4}}, {v.data(), {1, 5, 1}});
  const StateDict state = cache.prefix(0, 5);
  const auto q = state.at("k").values<std::int8_t>();
  const auto scale = state.at("k_scale").values<float>();
  EXPECT_EQ(std::vector<int>(q.begin(), q.begin() + 8),
            (std::vector<int>{50, -127, 2, 1, 0, 0, 0, 0}));
  EXPECT_FLOAT_EQ(scale[0], 0.02f);
  EXPECT_EQ(scale[1], 0);
  EXPECT_TRUE(std::isnan(scale[2]) && std::isnan(scale[3]));
  EXPECT_EQ(q[19], 127);  // a scale that is rounded leads no further
  const auto v_scale = state.at("v_scale").values<float>();
  EXPECT_EQ(v_scale[0], 1);
  EXPECT_EQ(v_scale[1], 0);
  EXPECT_TRUE(std::isnan(v_scale[2]));
}

}  // namespace
}  // namespace regard
