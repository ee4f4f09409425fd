// SPDX-License-Identifier: Apache-2.0
// `regard layer` against the definition of the layer, computed here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
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
using Matrix = std::vector<std::vector<double>>;  // [rows][columns]

Tensor random_tensor(const Shape& shape, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 0.5f);
  Tensor tensor(shape);
  for (float& value : tensor.values<float>()) value = normal(rng);
  return tensor;
}

Matrix matrix_of(const Tensor& tensor) {
  const auto columns = static_cast<std::size_t>(tensor.shape().back());
  Matrix result(static_cast<std::size_t>(tensor.size()) / columns);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto row = tensor.values<float>().subspan(i * columns, columns);
    result[i].assign(row.begin(), row.end());
  }
  return result;
}

// x W^T + b with the rows [first, first + count) of W and b.
Matrix project(const Matrix& x, const Matrix& weight, const Tensor* bias,
               std::size_t first, std::size_t count) {
  Matrix result(x.size(), std::vector<double>(count));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t r = 0; r < count; ++r) {
      double sum = bias == nullptr
                       ? 0
                       : static_cast<double>(bias->values<float>()[first + r]);
      for (std::size_t c = 0; c < x[i].size(); ++c) {
        sum += x[i][c] * weight[first + r][c];
      }
      result[i][r] = sum;
    }
  }
  return result;
}

struct Options {
  std::size_t group = 1;  // heads that share a key-value head
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt(d_k)
  double softcap = 0;
  double bias = 0;  // times the key's number
};

Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v,
              std::size_t heads, const Options& options) {
  const std::size_t d_k = q[0].size() / heads;
  const std::size_t d_v = v[0].size() / (heads / options.group);
  const double scale = options.scale != 0
                           ? options.scale
                           : 1 / std::sqrt(static_cast<double>(d_k));
  Matrix out(q.size(), std::vector<double>(heads * d_v));
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t kv = h / options.group;
    for (std::size_t i = 0; i < q.size(); ++i) {
      std::vector<double> weight(k.size());
      double sum = 0;
      for (std::size_t j = 0; j < k.size(); ++j) {
        if (options.causal && j > i) continue;
        double score = 0;
        for (std::size_t d = 0; d < d_k; ++d) {
          score += q[i][h * d_k + d] * k[j][kv * d_k + d];
        }
        score *= scale;
        if (options.softcap > 0) {
          score = options.softcap * std::tanh(score / options.softcap);
        }
        score += options.bias * static_cast<double>(j);
        weight[j] = std::exp(score);
        sum += weight[j];
      }
      for (std::size_t j = 0; j < k.size(); ++j) {
        for (std::size_t d = 0; d < d_v; ++d) {
          out[i][h * d_v + d] += weight[j] / sum * v[j][kv * d_v + d];
        }
      }
    }
  }
  return out;
}

void expect_near(const Tensor& got, const Matrix& wanted) {
  const Matrix rows = matrix_of(got);
  ASSERT_EQ(rows.size(), wanted.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), wanted[i].size());
    for (std::size_t j = 0; j < rows[i].size(); ++j) {
      ASSERT_NEAR(rows[i][j], wanted[i][j], 1e-5) << i << ", " << j;
    }
  }
}

class Layer : public ::testing::Test {
 protected:
  std::string save(const std::string& name, const Tensor& tensor) {
    save_npy(folder_ / name, tensor);
    return folder_ / name;
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  Ended run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "layer");
    return run_regard(arguments);
  }
  void expect_run(const std::vector<std::string>& arguments) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, IsEmpty());
  }
  TemporaryFolder folder_;
};

TEST_F(Layer, IsTheOneInTheFile) {
  StateDict state;
  state.emplace("in_proj_weight", random_tensor({24, 8}, 1));
  state.emplace("in_proj_bias", random_tensor({24}, 2));
  state.emplace("out_proj.weight", random_tensor({8, 8}, 3));
  state.emplace("out_proj.bias", random_tensor({8}, 4));
  save_safetensors(path("mha.safetensors"), state);
  const Tensor x = random_tensor({5, 8}, 5);
  expect_run({path("mha.safetensors"), "-x", save("x.npy", x), "--heads", "2",
              "--mask", "causal", "--out", path("y.npy"), "--weights",
              path("w.npy")});
  const Matrix weight = matrix_of(state["in_proj_weight"]);
  const Tensor* bias = &state["in_proj_bias"];
  const Matrix rows = matrix_of(x);
  const Matrix mixed = attend(
      project(rows, weight, bias, 0, 8), project(rows, weight, bias, 8, 8),
      project(rows, weight, bias, 16, 8), 2, {.causal = true});
  expect_near(load_npy(path("y.npy")),
              project(mixed, matrix_of(state["out_proj.weight"]),
                      &state["out_proj.bias"], 0, 8));
  const Tensor w = load_npy(path("w.npy"));
  EXPECT_EQ(w.shape(), (Shape{2, 5, 5}));
  EXPECT_EQ(w.values<float>()[0], 1);
  EXPECT_EQ(w.values<float>()[1], 0);
}

// One layer of a larger model, in bfloat16, with its own key and value widths
// and free head sizes: 2 heads of 3 for scores, of 5 for values.
TEST_F(Layer, IsFoundByItsPrefixAndReadsItsSizesFromTheShapes) {
  StateDict state;
  const std::string prefix = "decoder.layers.0.multihead_attn.";
  state.emplace(prefix + "q_proj_weight", random_tensor({6, 8}, 1));
  state.emplace(prefix + "k_proj_weight", random_tensor({6, 7}, 2));
  state.emplace(prefix + "v_proj_weight", random_tensor({10, 4}, 3));
  state.emplace(prefix + "out_proj.weight", random_tensor({8, 10}, 4));
  state.emplace("decoder.norm.weight", random_tensor({8}, 5));
  // Values that bfloat16 holds exactly.
  StateDict halves;
  for (auto& [name, tensor] : state) {
    Tensor rounded(DType::kBFloat16, tensor.shape());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      rounded.values<BFloat16>()[at] = BFloat16(tensor.values<float>()[at]);
      tensor.values<float>()[at] =
          static_cast<float>(rounded.values<BFloat16>()[at]);
    }
    halves.emplace(name, std::move(rounded));
  }
  save_safetensors(path("model.safetensors"), halves);
  const Tensor query = random_tensor({2, 3, 8}, 6);
  const Tensor key = random_tensor({2, 4, 7}, 7);
  const Tensor value = random_tensor({2, 4, 4}, 8);
  expect_run({path("model.safetensors") + ":" + prefix, "-q",
              save("q.npy", query), "-k", save("k.npy", key), "-v",
              save("v.npy", value), "--heads", "2", "--out", path("y.npy")});
  const auto half = [](const Matrix& all, std::size_t which) {
    const auto n = static_cast<std::ptrdiff_t>(all.size() / 2);
    const auto begin = all.begin() + n * static_cast<std::ptrdiff_t>(which);
    return Matrix(begin, begin + n);
  };
  Matrix wanted;
  for (std::size_t b = 0; b < 2; ++b) {
    const auto in = [&](const Tensor& input, const char* name) {
      const Matrix weight = matrix_of(state[prefix + name]);
      return project(half(matrix_of(input), b), weight, nullptr, 0,
                     weight.size());
    };
    const Matrix mixed =
        attend(in(query, "q_proj_weight"), in(key, "k_proj_weight"),
               in(value, "v_proj_weight"), 2, {});
    const Matrix out = project(
        mixed, matrix_of(state[prefix + "out_proj.weight"]), nullptr, 0, 8);
    wanted.insert(wanted.end(), out.begin(), out.end());
  }
  const Tensor y = load_npy(path("y.npy"));
  EXPECT_EQ(y.shape(), (Shape{2, 3, 8}));
  expect_near(y, wanted);
}

// 4 heads of 2 share 2 key-value heads: 8 + 4 + 4 rows.
TEST_F(Layer, TakesTheOptionsOfTheOperation) {
  StateDict state;
  state.emplace("in_proj_weight", random_tensor({16, 6}, 1));
  state.emplace("out_proj.weight", random_tensor({6, 8}, 2));
  save_safetensors(path("mha.safetensors"), state);
  const Tensor x = random_tensor({5, 6}, 3);
  const Tensor bias({0, 0.5f, 1, 1.5f, 2}, {5});
  expect_run({path("mha.safetensors"), "-x", save("x.npy", x), "--heads", "4",
              "--kv-heads", "2", "--scale", "1.25", "--softcap", "2", "--bias",
              save("bias.npy", bias), "--out", path("y.npy")});
  const Matrix weight = matrix_of(state["in_proj_weight"]);
  const Matrix rows = matrix_of(x);
  const Matrix mixed =
      attend(project(rows, weight, nullptr, 0, 8),
             project(rows, weight, nullptr, 8, 4),
             project(rows, weight, nullptr, 12, 4), 4,
             {.group = 2, .scale = 1.25, .softcap = 2, .bias = 0.5});
  expect_near(
      load_npy(path("y.npy")),
      project(mixed, matrix_of(state["out_proj.weight"]), nullptr, 0, 6));
}

TEST_F(Layer, ComputesInBf16OnRequest) {
  StateDict state;
  state.emplace("in_proj_weight", random_tensor({24, 8}, 1));
  state.emplace("out_proj.weight", random_tensor({8, 8}, 2));
  save_safetensors(path("mha.safetensors"), state);
  const std::string x = save("x.npy", random_tensor({5, 8}, 3));
  const auto output = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{path("mha.safetensors"),
                                   "-x",
                                   x,
                                   "--heads",
                                   "2",
                                   "--out",
                                   path("y.npy")};
    words.insert(words.end(), more.begin(), more.end());
    expect_run(words);
    return load_npy(path("y.npy"));
  };
  const Tensor exact = output({"--compute", "float32"});
  const Tensor rounded = output({"--compute", "bfloat16"});
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const double value = exact.values<float>()[i];
    worst = std::max(worst, std::abs(rounded.values<float>()[i] - value));
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_GT(worst, 1e-5 * largest);
  EXPECT_LT(worst, 0.05 * largest);
}

TEST_F(Layer, DropsWeightsBySeed) {
  StateDict state;
  state.emplace("in_proj_weight", random_tensor({12, 4}, 1));
  state.emplace("out_proj.weight", random_tensor({4, 4}, 2));
  save_safetensors(path("mha.safetensors"), state);
  const std::string x = save("x.npy", random_tensor({9, 4}, 3));
  const auto out = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {path("mha.safetensors"), "-x", x, "--heads", "2",
                               "--out", path("y.npy")});
    expect_run(more);
    return testing::read_text(path("y.npy"));
  };
  const std::string all = out({});
  const std::string some = out({"--dropout", "0.5", "--seed", "1"});
  EXPECT_NE(some, all);
  EXPECT_EQ(out({"--dropout", "0.5", "--seed", "1"}), some);
  EXPECT_NE(out({"--dropout", "0.5", "--seed", "2"}), some);
}

TEST_F(Layer, DrawsTheAppendedKeysLast) {
  StateDict state;
  state.emplace("in_proj_weight", Tensor({6, 2}));
  state.emplace("out_proj.weight", Tensor({2, 2}));
  state.emplace("bias_k", Tensor({1, 1, 2}));
  state.emplace("bias_v", Tensor({1, 1, 2}));
  save_safetensors(path("mha.safetensors"), state);
  const Ended ended =
      run({path("mha.safetensors"), "-x", save("x.npy", Tensor({1, 2})),
           "--heads", "1", "--add-zero-attn", "--text", "it"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  // Nothing but zeros: all three keys weigh a third.
  EXPECT_THAT(ended.out, HasSubstr("     b z\n"
                                   "     i e\n"
                                   "   i a r\n"
                                   "   t s o\n"
                                   "it @@@@@@\n"));
  EXPECT_THAT(ended.out, HasSubstr(" 0.333\n"));
}

TEST_F(Layer, RefusesFilesThatAreNoLayer) {
  const std::string x = save("x.npy", Tensor({2, 8}));
  const std::string file = path("mha.safetensors");
  const auto refused = [&](const StateDict& state,
                           const std::vector<std::string>& more = {}) {
    save_safetensors(file, state);
    std::vector<std::string> arguments = {file, "-x", x, "--heads", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.out, IsEmpty());
    return ended.err;
  };
  StateDict state;
  EXPECT_EQ(refused(state), "regard: layer: '" + file + "' has no parameter\n");
  state.emplace("other", Tensor({2}));
  EXPECT_EQ(refused(state), "regard: layer: the file has no out_proj.weight\n");
  state.emplace("out_proj.weight", Tensor({8}));
  EXPECT_EQ(refused(state),
            "regard: layer: out_proj.weight must be a matrix; it is [8]\n");
  state["out_proj.weight"] = Tensor({8, 8});
  EXPECT_EQ(refused(state),
            "regard: layer: out_proj.weight is 8 wide, which does not divide "
            "by 3\n");
  state["out_proj.weight"] = Tensor({8, 9});
  EXPECT_EQ(refused(state), "regard: layer: the file has no q_proj_weight\n");
  state.emplace("in_proj_weight", Tensor({26, 8}));
  EXPECT_EQ(refused(state),
            "regard: layer: in_proj_weight, without its part for values, is "
            "17 wide, which does not divide by 6\n");
  state["in_proj_weight"] = Tensor({27, 8});
  // What is not the layer's is the library's to refuse.
  EXPECT_THAT(refused(state), HasSubstr("other"));
  state.erase("other");
  save_npy(x, Tensor({2, 3, 4, 5}));
  EXPECT_EQ(refused(state),
            "regard: layer: an input is [len, width] or [batch, len, width]; "
            "it is [2, 3, 4, 5]\n");
}

TEST_F(Layer, IsNotInAFileWithoutItsPrefix) {
  StateDict state;
  state.emplace("a.out_proj.weight", Tensor({8, 8}));
  const std::string file = path("mha.safetensors");
  save_safetensors(file, state);
  const Ended ended = run({file + ":b.", "-x", "x.npy", "--heads", "2"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err, "regard: layer: '" + file +
                           "' has no parameter that begins with b.\n");
}

}  // namespace
}  // namespace regard::test
