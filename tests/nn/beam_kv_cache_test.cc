// SPDX-License-Identifier: Apache-2.0
#include "nn/beam_kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::nn::detail {
namespace {

constexpr std::int64_t kLayers = 2;

std::vector<float> some_floats(std::int64_t count, Random& random) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  for (float& x : floats) x = random.normal();
  return floats;
}

// What a hypothesis said, the plain way: its own copy of every key and value.
struct Sentence {
  std::vector<float> k[kLayers], v[kLayers];  // [tokens, heads * dim]
};

class Hypotheses {
 public:
  Hypotheses(std::int64_t heads, std::int64_t dim, std::int64_t count,
             bool biased = false)
      : heads_(heads),
        dim_(dim),
        biased_(biased),
        said_(kLayers, heads, dim, count),
        sentences_(static_cast<std::size_t>(count)) {}

  void say_a_token(Random& random, Threads threads) {
    const std::int64_t width = heads_ * dim_;
    said_.make_room(length_++, threads);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<float> qkv = some_floats(count() * 3 * width, random);
      said_.append(layer, qkv.data() + width, qkv.data() + 2 * width,
                   3 * width);
      std::vector<float> out(static_cast<std::size_t>(count() * width));
      bias_ = some_floats(heads_ * length_, random);
      const TensorView<const float, 2> bias(bias_.data(), {heads_, length_});
      said_.attend(layer, qkv.data(), 3 * width, out.data(),
                   biased_ ? BeamAttentionOptions{.scale = 0.7f,
                                                  .softcap = 3.0f,
                                                  .bias = bias,
                                                  .threads = threads}
                           : BeamAttentionOptions{.threads = threads});
      for (std::int64_t h = 0; h < count(); ++h) {
        const float* const q = qkv.data() + h * 3 * width;
        check(layer, h, q, out.data() + h * width);
      }
    }
  }

  void reorder(const std::vector<std::int64_t>& parents) {
    said_.reorder(parents);
    std::vector<Sentence> next;
    for (const std::int64_t parent : parents) {
      next.push_back(sentences_[static_cast<std::size_t>(parent)]);
    }
    sentences_ = std::move(next);
  }

  // A step that is taken back, as if it had failed.
  void stumble() { said_.make_room(length_, {.count = 1}); }

  std::int64_t count() const {
    return static_cast<std::int64_t>(sentences_.size());
  }

 private:
  // Adds the token behind q to the sentence, whose attention `got` must be.
  void check(std::int64_t layer, std::int64_t h, const float* q,
             const float* got) {
    const std::int64_t width = heads_ * dim_;
    Sentence& sentence = sentences_[static_cast<std::size_t>(h)];
    auto& k = sentence.k[layer];
    auto& v = sentence.v[layer];
    k.insert(k.end(), q + width, q + 2 * width);
    v.insert(v.end(), q + 2 * width, q + 3 * width);
    const auto view = [&](const float* data, std::int64_t rows) {
      return TensorView<const float, 4>(data, {1, heads_, rows, dim_},
                                        {rows * width, dim_, width, 1});
    };
    std::vector<float> truth(static_cast<std::size_t>(width));
    AttentionOptions options;
    if (biased_) {
      options.scale = 0.7f;
      options.softcap = 3.0f;
      options.bias = {bias_.data(), {1, heads_, 1, length_}};
    }
    attention_forward(
        view(q, 1), view(k.data(), length_), view(v.data(), length_),
        TensorView<float, 4>(truth.data(), {1, heads_, 1, dim_}), options);
    ASSERT_EQ(std::memcmp(truth.data(), got, truth.size() * sizeof(float)), 0)
        << "token " << length_ << " of hypothesis " << h << ", layer " << layer;
  }

  std::int64_t heads_, dim_, length_ = 0;
  bool biased_;
  std::vector<float> bias_;  // [heads, length], of the step
  BeamKVCache said_;
  std::vector<Sentence> sentences_;
};

// Some are dropped, some doubled, and their number changes.
std::vector<std::int64_t> some_parents(std::int64_t count, Random& random) {
  std::vector<std::int64_t> parents(
      static_cast<std::size_t>(1 + random.below(6)));
  for (std::int64_t& parent : parents) parent = random.below(count);
  return parents;
}

TEST(BeamKVCache, IsAttendedToWithTheBitsOfAttentionForward) {
  test::on_every_simd_target([](const std::string&) {
    for (const std::int64_t dim : {1, 8, 13, 64}) {
      SCOPED_TRACE("dim " + std::to_string(dim));
      Random random(static_cast<std::uint64_t>(dim));
      Hypotheses hypotheses(3, dim, 2);
      for (int step = 0; step < 40; ++step) {
        if (step % 5 == 3 || step == 15 || step == 16) hypotheses.stumble();
        hypotheses.say_a_token(random, {.count = 1 + step % 3});
        hypotheses.reorder(some_parents(hypotheses.count(), random));
      }
    }
  });
}

TEST(BeamKVCache, TakesAScaleASoftcapAndABias) {
  test::on_every_simd_target([](const std::string&) {
    Random random(5);
    Hypotheses hypotheses(3, 13, 2, true);
    for (int step = 0; step < 40; ++step) {
      hypotheses.say_a_token(random, {.count = 1 + step % 3});
      hypotheses.reorder(some_parents(hypotheses.count(), random));
    }
  });
}

TEST(BeamKVCache, MayHoldMoreThanOneSplit) {
  Random random(1);
  Hypotheses hypotheses(1, 8, 1);
  for (int step = 0; step < 1060; ++step) {
    hypotheses.say_a_token(random, {.count = 1});
  }
}

TEST(BeamKVCache, MayBeThatOfNobody) {
  BeamKVCache said(kLayers, 2, 8, 3);
  said.reorder({});
  said.make_room(0, {});
  said.append(0, nullptr, nullptr, 48);
  said.attend(0, nullptr, 48, nullptr, {});
}

}  // namespace
}  // namespace regard::nn::detail
