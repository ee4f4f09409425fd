// SPDX-License-Identifier: Apache-2.0
// The ONNX standard's own cases for its Attention operator, read from the files
// that come with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/onnx_cases.h"
#include "support/weights_case.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::OnnxNode;
using test::OnnxNodeCase;
using test::OnnxTensor;

// The places of the operator's inputs and outputs.
enum Input { kQ, kK, kV, kMask, kPastKey, kPastValue };
enum Output { kY, kPresentKey, kPresentValue, kScores };

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

AttentionCase to_attention(const OnnxNodeCase& onnx) {
  const OnnxNode& node = onnx.node;
  const std::int64_t heads = node.integer("q_num_heads", 0);
  const std::int64_t kv_heads = node.integer("kv_num_heads", 0);
  const OnnxTensor* const past = onnx.input(kPastKey);
  const OnnxTensor q = by_head(onnx.inputs[kQ], heads);
  const OnnxTensor k = with_past(past, by_head(onnx.inputs[kK], kv_heads));
  const OnnxTensor v =
      with_past(onnx.input(kPastValue), by_head(onnx.inputs[kV], kv_heads));
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
    c.mask = test::causal_spec(mask::at_offset(past ? past->shape[2] : 0));
  }
  if (const OnnxTensor* given = onnx.input(kMask)) {
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

void check_case(const OnnxNodeCase& onnx) {
  const AttentionCase c = to_attention(onnx);
  const OnnxTensor y = by_head(onnx.outputs[kY], c.heads);
  expect_near(test::run_attention<float>(c).out, y.values);
  constexpr std::int64_t kAfterSoftmax = 3;
  if (onnx.node.integer("qk_matmul_output_mode", 0) == kAfterSoftmax) {
    expect_near(test::run_weights(c), onnx.outputs[kScores].values);
  }
}

TEST(OnnxCases, OfAttentionHold) {
  const auto cases = test::read_onnx_cases("Attention");
  if (cases.empty()) GTEST_SKIP() << test::onnx_folder() << " is not there";
  for (const OnnxNodeCase& onnx : cases) {
    SCOPED_TRACE(onnx.name);
    check_case(onnx);
  }
  EXPECT_EQ(cases.size(), 47u);
}

}  // namespace
}  // namespace regard
