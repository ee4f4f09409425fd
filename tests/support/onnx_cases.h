// SPDX-License-Identifier: Apache-2.0
// The ONNX standard's node tests of one operator, from the files that come with
// it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/onnx_reader.h"

namespace regard::test {

struct OnnxNodeCase {
  std::string name;
  OnnxNode node;
  // In the order of the node; what is left out has no elements.
  std::vector<OnnxTensor> inputs, outputs;

  // Null where it is left out.
  const OnnxTensor* input(std::size_t n) const {
    return n < inputs.size() && !inputs[n].values.empty() ? &inputs[n]
                                                          : nullptr;
  }
};

inline std::filesystem::path onnx_folder() {
  return std::filesystem::path(REGARD_SOURCE_DIR) /
         "../shared/peer-tests/onnx-attention";
}

inline std::vector<OnnxTensor> read_onnx_tensors(
    const std::filesystem::path& folder, const std::string& stem,
    const std::vector<std::string>& names) {
  std::vector<OnnxTensor> tensors;
  int number = 0;
  for (const std::string& name : names) {
    const std::string file = stem + std::to_string(number) + ".pb";
    tensors.emplace_back();
    if (name.empty()) continue;
    tensors.back() = read_onnx_tensor(read_bytes((folder / file).string()));
    ++number;
  }
  return tensors;
}

// Empty where the files are not there.
inline std::vector<OnnxNodeCase> read_onnx_cases(const std::string& op_type) {
  std::vector<OnnxNodeCase> cases;
  if (!std::filesystem::exists(onnx_folder())) return cases;
  for (const auto& entry : std::filesystem::directory_iterator(onnx_folder())) {
    OnnxNodeCase c;
    c.node = read_onnx_model(read_bytes((entry.path() / "model.onnx").string()))
                 .at(0);
    if (c.node.op_type != op_type) continue;
    c.name = entry.path().filename().string();
    const auto data = entry.path() / "test_data_set_0";
    c.inputs = read_onnx_tensors(data, "input_", c.node.inputs);
    c.outputs = read_onnx_tensors(data, "output_", c.node.outputs);
    cases.push_back(std::move(c));
  }
  std::sort(cases.begin(), cases.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return cases;
}

}  // namespace regard::test
