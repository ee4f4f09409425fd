// SPDX-License-Identifier: Apache-2.0
// The ONNX standard's own cases for its Attention operator, read from the files
// that come with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "regard/attention/weights.h"
#include "support/onnx_reader.h"
#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::OnnxNode;
using test::OnnxTensor;

struct OnnxCase {
  std::string name;
  OnnxNode node;
  std::map<std::string, OnnxTensor> tensors;

  const OnnxTensor* find(const std::string& tensor) const {
    const auto found = tensors.find(tensor);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

std::filesystem::path folder() {
  return std::filesystem::path(REGARD_SOURCE_DIR) /
         "../shared/peer-tests/onnx-attention";
}

OnnxCase read_case(const std::filesystem::path& path) {
  OnnxCase c;
  c.name = path.filename().string();
  c.node = test::read_onnx_model(test::read_bytes(path / "model.onnx")).at(0);
  for (const auto& file :
       std::filesystem::directory_iterator(path / "test_data_set_0")) {
    OnnxTensor tensor =
        test::read_onnx_tensor(test::read_bytes(file.path().string()));
    const std::string name = tensor.name;
    c.tensors[name] = std::move(tensor);
  }
  return c;
}

std::vector<OnnxCase> read_cases() {
  std::vector<OnnxCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    OnnxCase c = read_case(entry.path());
    if (c.node.op_type == "Attention") cases.push_back(std::move(c));
  }
  std::sort(cases.begin(), cases.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return cases;
}

// [batch, length, heads * width] as [batch, heads, length, width]; tensors of
// four dimensions are so already.
OnnxTensor by_head(const OnnxTensor& tensor, std::int64_t heads) {
  if (tensor.shape.size() == 4) return tensor;
  OnnxTensor result;
  const std::int64_t batch = tensor.shape[0], length = tensor.shape[1];
  const std::int64_t width = tensor.shape[2] / heads;
  result.shape = {batch, heads, length, width};
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t d = 0; d < width; ++d) {
          result.values.push_back(
              tensor.values[((b * length + i) * heads + h) * width + d]);
        }
      }
    }
  }
  return result;
}

// The past's keys before the present's, per batch and head.
OnnxTensor with_past(const OnnxTensor* past, const OnnxTensor& present) {
  if (past == nullptr) return present;
  OnnxTensor all;
  all.shape = present.shape;
  all.shape[2] += past->shape[2];
  const auto append = [&](const OnnxTensor& from, std::int64_t sequence) {
    const std::int64_t size = from.shape[2] * from.shape[3];
    const auto begin = from.values.begin() + sequence * size;
    all.values.insert(all.values.end(), begin, begin + size);
  };
  for (std::int64_t n = 0; n < present.shape[0] * present.shape[1]; ++n) {
    append(*past, n);
    append(present, n);
  }
  return all;
}

AttentionCase to_attention(const OnnxCase& onnx) {
  const OnnxNode& node = onnx.node;
  const std::int64_t heads = node.integer("q_num_heads", 0);
  const std::int64_t kv_heads = node.integer("kv_num_heads", 0);
  const OnnxTensor q = by_head(*onnx.find("Q"), heads);
  const OnnxTensor k =
      with_past(onnx.find("past_key"), by_head(*onnx.find("K"), kv_heads));
  const OnnxTensor v =
      with_past(onnx.find("past_value"), by_head(*onnx.find("V"), kv_heads));
  AttentionCase c{.batch = q.shape[0],
                  .heads = q.shape[1],
                  .kv_heads = k.shape[1],
                  .q_len = q.shape[2],
                  .kv_len = k.shape[2],
                  .d_k = q.shape[3],
                  .d_v = v.shape[3],
                  .q = q.values,
                  .k = k.values,
                  .v = v.values};
  if (node.integer("is_causal", 0) == 1) {
    // The first query stands after the past: at key 0 without one.
    const OnnxTensor* past = onnx.find("past_key");
    c.mask = test::causal_spec(mask::at_offset(past ? past->shape[2] : 0));
  }
  if (const OnnxTensor* given = onnx.find("attn_mask")) {
    test::Extents4 shape{1, 1, 1, 1};
    std::copy_backward(given->shape.begin(), given->shape.end(), shape.end());
    if (given->type == OnnxTensor::kBool) {
      test::DenseBools pairs(shape);
      for (std::size_t n = 0; n < pairs.size(); ++n) {
        pairs.values[n] = given->values[n] != 0;
      }
      c.mask = c.mask & test::keep_spec(pairs);
    } else {
      c.bias = test::BiasSpec{shape, given->values};
    }
  }
  if (node.floats.contains("scale")) c.scale = node.floats.at("scale");
  if (node.floats.contains("softcap")) c.softcap = node.floats.at("softcap");
  return c;
}

// The tolerance of the values is that of the float program that made them.
void expect_near(const std::vector<float>& got,
                 const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    ASSERT_NEAR(got[n], expected[n], 2e-6 + 1e-5 * std::abs(expected[n])) << n;
  }
}

void check_case(const OnnxCase& onnx) {
  const AttentionCase c = to_attention(onnx);
  const OnnxTensor y = by_head(*onnx.find("Y"), c.heads);
  expect_near(test::run_attention<float>(c).out, y.values);
  constexpr std::int64_t kAfterSoftmax = 3;
  if (onnx.node.integer("qk_matmul_output_mode", 0) == kAfterSoftmax) {
    test::Stored<float> q(c.q_shape(), test::Layout::kContiguous, c.q);
    test::Stored<float> k(c.k_shape(), test::Layout::kContiguous, c.k);
    test::Stored<float> weights({c.batch, c.heads, c.q_len, c.kv_len},
                                test::Layout::kContiguous);
    test::CallOptions<float> options(c);
    attention_weights(q.const_view(), k.const_view(), weights.view(),
                      options.value);
    expect_near(weights.elements(), onnx.find("qk_matmul_output")->values);
  }
}

TEST(OnnxCases, OfAttentionHold) {
  if (!std::filesystem::exists(folder())) {
    GTEST_SKIP() << "the ONNX cases are not here: " << folder();
  }
  const std::vector<OnnxCase> cases = read_cases();
  for (const OnnxCase& onnx : cases) {
    SCOPED_TRACE(onnx.name);
    check_case(onnx);
  }
  EXPECT_EQ(cases.size(), 47u);
}

}  // namespace
}  // namespace regard
