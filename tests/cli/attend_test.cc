// SPDX-License-Identifier: Apache-2.0
// `regard attend` against the definition of attention, computed here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "regard/io/npy.h"
#include "regard/io/safetensors.h"

namespace regard::test {
namespace {

using ::regard::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Tensor random_tensor(const Shape& shape, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor tensor(shape);
  for (float& value : tensor.values<float>()) value = normal(rng);
  return tensor;
}

// One attention, told by functions: q(b, h, i, d) and so on.
struct Plain {
  using Element = std::function<double(std::int64_t b, std::int64_t h,
                                       std::int64_t i, std::int64_t d)>;
  using Pair =
      std::function<bool(std::int64_t b, std::int64_t i, std::int64_t j)>;
  std::int64_t batch = 1, heads = 1, q_len = 1, kv_len = 1, d_k = 1, d_v = 1;
  Element q{}, k{}, v{};
  Pair visible = [](auto, auto, auto) { return true; };
  double scale = 0;  // 0: 1 / sqrt(d_k)
  double softcap = 0;
  bool cosine = false;
  std::function<double(std::int64_t h, std::int64_t i, std::int64_t j)> bias =
      [](auto, auto, auto) { return 0.0; };

  double dot(const Element& a, std::int64_t i, const Element& b, std::int64_t j,
             std::int64_t at, std::int64_t h) const {
    double sum = 0;
    for (std::int64_t d = 0; d < d_k; ++d) {
      sum += a(at, h, i, d) * b(at, h, j, d);
    }
    return sum;
  }
  std::vector<double> weights(std::int64_t b, std::int64_t h,
                              std::int64_t i) const {
    std::vector<double> row(static_cast<std::size_t>(kv_len));
    double sum = 0;
    for (std::int64_t j = 0; j < kv_len; ++j) {
      if (!visible(b, i, j)) continue;
      double score = dot(q, i, k, j, b, h);
      if (cosine) {
        score /= std::sqrt(dot(q, i, q, i, b, h) * dot(k, j, k, j, b, h));
      }
      const double plain = cosine ? 1 : 1 / std::sqrt(static_cast<double>(d_k));
      score *= scale == 0 ? plain : scale;
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      score += bias(h, i, j);
      sum += row[static_cast<std::size_t>(j)] = std::exp(score);
    }
    for (double& weight : row) weight = sum == 0 ? 0 : weight / sum;
    return row;
  }
  double out(std::int64_t b, std::int64_t h, std::int64_t i,
             std::int64_t d) const {
    const std::vector<double> row = weights(b, h, i);
    double sum = 0;
    for (std::int64_t j = 0; j < kv_len; ++j) {
      sum += row[static_cast<std::size_t>(j)] * v(b, h, j, d);
    }
    return sum;
  }
};

// An element of [batch, len, width] or [len, width], split into heads.
Plain::Element split(const Tensor& tensor, std::int64_t heads,
                     std::int64_t group = 1) {
  const Shape& shape = tensor.shape();
  const std::int64_t len = shape[shape.size() - 2];
  const std::int64_t width = shape.back();
  const float* data = tensor.values<float>().data();
  return [=](auto b, auto h, auto i, auto d) {
    return static_cast<double>(
        data[(b * len + i) * width + h / group * (width / heads) + d]);
  };
}

// `got` is [batch, len, heads * d_v], with or without the batch.
void expect_output(const Tensor& got, const Plain& plain, double bound) {
  const std::int64_t width = plain.heads * plain.d_v;
  ASSERT_EQ(got.size(), plain.batch * plain.q_len * width);
  for (std::int64_t b = 0; b < plain.batch; ++b) {
    for (std::int64_t i = 0; i < plain.q_len; ++i) {
      for (std::int64_t c = 0; c < width; ++c) {
        const auto at =
            static_cast<std::size_t>((b * plain.q_len + i) * width + c);
        ASSERT_NEAR(got.values<float>()[at],
                    plain.out(b, c / plain.d_v, i, c % plain.d_v), bound)
            << "batch " << b << " query " << i << " column " << c;
      }
    }
  }
}

// `got` is [batch, heads, q_len, kv_len], with or without the batch.
void expect_weights(const Tensor& got, const Plain& plain, double bound) {
  std::size_t at = 0;
  ASSERT_EQ(got.size(), plain.batch * plain.heads * plain.q_len * plain.kv_len);
  for (std::int64_t b = 0; b < plain.batch; ++b) {
    for (std::int64_t h = 0; h < plain.heads; ++h) {
      for (std::int64_t i = 0; i < plain.q_len; ++i) {
        for (const double weight : plain.weights(b, h, i)) {
          ASSERT_NEAR(got.values<float>()[at++], weight, bound);
        }
      }
    }
  }
}

class Attend : public ::testing::Test {
 protected:
  std::string save(const std::string& name, const Tensor& tensor) {
    const std::string path = folder_ / name;
    save_npy(path, tensor);
    return path;
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  // Must end well and say nothing on standard error.
  std::string run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "attend");
    const Ended ended = run_regard(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, IsEmpty());
    return ended.out;
  }
  TemporaryFolder folder_;
};

constexpr double kBound = 3e-6;

TEST_F(Attend, ToItselfInHeadsWithMaskAndWeights) {
  const Tensor x = random_tensor({7, 12}, 1);
  const std::string said = run({"-x", save("x.npy", x), "--heads", "3",
                                "--mask", "causal,window=2:0", "--out",
                                path("y.npy"), "--weights", path("w.npy")});
  EXPECT_EQ(said, "out [7, 12] -> " + path("y.npy") +
                      "\nweights [3, 7, 7] -> " + path("w.npy") + "\n");
  Plain plain{.heads = 3, .q_len = 7, .kv_len = 7, .d_k = 4, .d_v = 4};
  plain.q = plain.k = plain.v = split(x, 3);
  plain.visible = [](auto, auto i, auto j) { return j <= i && j >= i - 2; };
  const Tensor y = load_npy(path("y.npy"));
  const Tensor w = load_npy(path("w.npy"));
  EXPECT_EQ(y.shape(), (Shape{7, 12}));
  EXPECT_EQ(w.shape(), (Shape{3, 7, 7}));
  expect_output(y, plain, kBound);
  expect_weights(w, plain, kBound);
}

TEST_F(Attend, ToABatchOfOthersWithGroupedHeadsAndWiderValues) {
  const Tensor q = random_tensor({2, 5, 24}, 1);  // 4 heads of 6
  const Tensor k = random_tensor({2, 3, 12}, 2);  // 2 heads of 6
  const Tensor v = random_tensor({2, 3, 10}, 3);  // 2 heads of 5
  run({"-q", save("q.npy", q), "-k", save("k.npy", k), "-v", save("v.npy", v),
       "--heads", "4", "--kv-heads", "2", "--mask", "lengths=3:2", "--out",
       path("y.npy"), "--weights", path("w.npy")});
  Plain plain{
      .batch = 2, .heads = 4, .q_len = 5, .kv_len = 3, .d_k = 6, .d_v = 5};
  plain.q = split(q, 4);
  plain.k = split(k, 2, 2);
  plain.v = split(v, 2, 2);
  plain.visible = [](auto b, auto, auto j) { return j < (b == 0 ? 3 : 2); };
  const Tensor y = load_npy(path("y.npy"));
  EXPECT_EQ(y.shape(), (Shape{2, 5, 20}));
  expect_output(y, plain, kBound);
  const Tensor w = load_npy(path("w.npy"));
  EXPECT_EQ(w.shape(), (Shape{2, 4, 5, 3}));
  expect_weights(w, plain, kBound);
}

TEST_F(Attend, WithScaleSoftcapAndBias) {
  const Tensor x = random_tensor({6, 8}, 1);
  const Tensor bias = random_tensor({2, 6, 6}, 2);
  run({"-x", save("x.npy", x), "--heads", "2", "--scale", "-0.7", "--softcap",
       "1.5", "--bias", save("bias.npy", bias), "--out", path("y.npy")});
  Plain plain{.heads = 2, .q_len = 6, .kv_len = 6, .d_k = 4, .d_v = 4};
  plain.q = plain.k = plain.v = split(x, 2);
  plain.scale = -0.7;
  plain.softcap = 1.5;
  plain.bias = [&bias](auto h, auto i, auto j) {
    return static_cast<double>(
        bias.values<float>()[static_cast<std::size_t>((h * 6 + i) * 6 + j)]);
  };
  expect_output(load_npy(path("y.npy")), plain, kBound);
}

TEST_F(Attend, ByCosineToMemoryThatIsKeysAndValues) {
  const Tensor q = random_tensor({4, 6}, 1);
  const Tensor memory = random_tensor({5, 6}, 2);
  run({"-q", save("q.npy", q), "-k", save("m.npy", memory), "--score", "cosine",
       "--out", path("y.npy")});
  Plain plain{.q_len = 4, .kv_len = 5, .d_k = 6, .d_v = 6};
  plain.q = split(q, 1);
  plain.k = plain.v = split(memory, 1);
  plain.cosine = true;
  expect_output(load_npy(path("y.npy")), plain, kBound);
}

TEST_F(Attend, ToHeadsThatAreSplitAlready) {
  // The same numbers as [1, 3 heads, 4, 2] and as a batch of 3 with one head.
  const Tensor x = random_tensor({3, 4, 2}, 1);
  run({"-x", save("x3.npy", x), "--out", path("y3.npy")});
  run({"-x", save("x4.npy", random_tensor({1, 3, 4, 2}, 1)), "--out",
       path("y4.npy"), "--weights", path("w4.npy")});
  Plain plain{.batch = 3, .q_len = 4, .kv_len = 4, .d_k = 2, .d_v = 2};
  plain.q = plain.k = plain.v = split(x, 1);
  expect_output(load_npy(path("y3.npy")), plain, kBound);
  const Tensor y4 = load_npy(path("y4.npy"));
  EXPECT_EQ(y4.shape(), (Shape{1, 3, 4, 2}));
  expect_output(y4, plain, kBound);
  EXPECT_EQ(load_npy(path("w4.npy")).shape(), (Shape{1, 3, 4, 4}));
}

TEST_F(Attend, DropsWeightsBySeedAndReportsThemBeforeDropout) {
  const Tensor x = random_tensor({16, 4}, 1);
  // Values of 1: each output is the sum of the weights that stay, over 1 - r.
  Tensor ones({16, 1});
  for (float& value : ones.values<float>()) value = 1;
  const auto attend = [&](const std::string& seed, const std::string& out) {
    run({"-q", save("x.npy", x), "-k", path("x.npy"), "-v", save("v.npy", ones),
         "--dropout", "0.5", "--seed", seed, "--out", path(out), "--weights",
         path("w.npy")});
    return load_npy(path(out));
  };
  const Tensor a = attend("1", "a.npy");
  const Tensor again = attend("1", "again.npy");
  const Tensor b = attend("2", "b.npy");
  EXPECT_TRUE(std::ranges::equal(a.values<float>(), again.values<float>()));
  EXPECT_FALSE(std::ranges::equal(a.values<float>(), b.values<float>()));
  const Tensor w = load_npy(path("w.npy"));
  for (std::size_t i = 0; i < 16; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < 16; ++j) sum += w.values<float>()[i * 16 + j];
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_F(Attend, InTheTypeOfTheFilesOrAnother) {
  const Tensor x = random_tensor({5, 4}, 1);
  const std::string file = save("x.npy", x);
  Plain plain{.q_len = 5, .kv_len = 5, .d_k = 4, .d_v = 4};
  plain.q = plain.k = plain.v = split(x, 1);
  run({"-x", file, "--dtype", "float64", "--out", path("d.npy"), "--weights",
       path("wd.npy")});
  const Tensor d = load_npy(path("d.npy"));
  ASSERT_EQ(d.dtype(), DType::kFloat64);
  EXPECT_EQ(load_npy(path("wd.npy")).dtype(), DType::kFloat64);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(d.values<double>()[static_cast<std::size_t>(i)],
                plain.out(0, 0, i / 4, i % 4), 1e-14);
  }
  run({"-x", file, "--dtype", "float16", "--out", path("h.npy")});
  EXPECT_EQ(load_npy(path("h.npy")).dtype(), DType::kFloat16);
  // NumPy has no bfloat16; safetensors has.
  run({"-x", file, "--dtype", "bfloat16", "--out", path("b.npy")});
  expect_output(load_npy(path("b.npy")), plain, 0.03);
  run({"-x", file, "--dtype", "bfloat16", "--out", path("b.safetensors:y")});
  const auto b = SafetensorsFile::open(path("b.safetensors"));
  EXPECT_EQ(b.dtype("y"), DType::kBFloat16);
  run({"-x", path("b.safetensors"), "--out", path("c.safetensors")});
  EXPECT_EQ(SafetensorsFile::open(path("c.safetensors")).dtype("out"),
            DType::kBFloat16);
}

TEST_F(Attend, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::string file = save("x.npy", random_tensor({2, 130, 32}, 1));
  std::string first;
  for (const char* threads : {"1", "2", "3"}) {
    run({"-x", file, "--heads", "4", "--threads", threads, "--out",
         path("y.npy")});
    const std::string bytes = testing::read_text(path("y.npy"));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads << " threads";
  }
}

TEST_F(Attend, ToNothingGivesZeros) {
  run({"-q", save("q.npy", random_tensor({3, 4}, 1)), "-k",
       save("k.npy", Tensor({0, 4})), "--out", path("y.npy")});
  const Tensor y = load_npy(path("y.npy"));
  for (const float value : y.values<float>()) EXPECT_EQ(value, 0);
  run({"-x", save("none.npy", Tensor({0, 3, 4})), "--show"});
}

TEST_F(Attend, DrawsTheFirstBatchEntryWhenNoFileIsAskedFor) {
  // The first query is far along the second key, the second query the other
  // way round; the second batch entry would be drawn the other way.
  const Tensor q({0, 40, 40, 0, 40, 0, 0, 40}, {2, 2, 2});
  const Tensor k({1, 0, 0, 1, 1, 0, 0, 1}, {2, 2, 2});
  EXPECT_EQ(
      run({"-q", save("q.npy", q), "-k", save("k.npy", k), "--text", "to be"}),
      "   head 0\n"
      "   t b\n"
      "   o e\n"
      "to ..@@\n"
      "be @@..\n"
      "\n"
      "0 ..::--==++++**##%%@@ 1\n");
  EXPECT_THAT(folder_.files(), UnorderedElementsAre("q.npy", "k.npy"));
}

TEST_F(Attend, KeepsTheOldFileWhereTheCallIsRefused) {
  const std::string file = save("x.npy", random_tensor({4, 6}, 1));
  testing::write_text(path("y.npy"), "old");
  const Ended ended = run_regard(
      {"attend", "-x", file, "--heads", "4", "--out", path("y.npy")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err,
            "regard: attend: heads must divide the width; heads are 4, the "
            "tensor is [4, 6]\n");
  EXPECT_EQ(testing::read_text(path("y.npy")), "old");
  EXPECT_THAT(folder_.files(), UnorderedElementsAre("x.npy", "y.npy"));
}

}  // namespace
}  // namespace regard::test
