// SPDX-License-Identifier: Apache-2.0
// Loads one attention layer out of a whole model in a safetensors file: the
// names are PyTorch's, the file holds fp16, the layer computes in float.
//
//   load_weights [FILE [PREFIX [HEADS]]]
//
// Without arguments, the first layer of the translator that comes with this
// repository, from its root.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "regard/nn/multi_head_attention.h"
#include "regard/regard.h"

namespace {

using regard::Tensor;

Tensor to_float(const Tensor& from) {
  if (from.dtype() == regard::DType::kFloat32) return from;
  Tensor to(from.shape());
  std::ranges::transform(from.values<regard::Float16>(),
                         to.values<float>().begin(),
                         [](regard::Float16 x) { return float(x); });
  return to;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string path =
      argc > 1 ? argv[1] : "models/en-zh/model.safetensors";
  const std::string prefix = argc > 2 ? argv[2] : "encoder.layers.0.self_attn.";
  const std::int64_t heads = argc > 3 ? std::atoi(argv[3]) : 4;

  // 1. The tensors whose names begin with the prefix, without it. The file is
  // mapped: nothing else of it is read.
  const auto file = regard::SafetensorsFile::open(path);
  regard::nn::MultiHeadAttentionConfig config{.heads = heads};
  config.model_dim = file.shape(prefix + "out_proj.weight")[0];
  regard::StateDict parameters;
  for (const std::string& name : file.names()) {
    if (!name.starts_with(prefix)) continue;
    parameters[name.substr(prefix.size())] = to_float(file.tensor(name));
  }

  // 2. A layer of them. One that is missing, unknown or misshapen is named.
  const regard::nn::MultiHeadAttention layer(config, std::move(parameters));
  for (const auto& [name, tensor] : layer.parameters()) {
    std::printf("%-15s %s\n", name.c_str(),
                regard::to_string(tensor.shape()).c_str());
  }

  // 3. Use it: self attention over five tokens, and what each head saw of them.
  regard::Random random(1);
  const std::int64_t width = layer.config().model_dim;
  Tensor x({1, 5, width}), y({1, 5, width}), weights({1, heads, 5, 5});
  for (float& value : x.values<float>()) value = random.normal();
  layer.forward(x.view<float, 3>(), y.view<float, 3>(),
                {.weights = weights.view<float, 4>()});
  bool right = true;
  for (std::int64_t h = 0; h < heads; ++h) {
    std::printf("head %d, first token:", static_cast<int>(h));
    float sum = 0;
    for (std::int64_t j = 0; j < 5; ++j) {
      const float weight = weights.view<float, 4>()(0, h, 0, j);
      std::printf(" %.3f", weight);
      sum += weight;
    }
    std::printf("   sum %.3f\n", sum);
    right &= std::abs(sum - 1) < 1e-5f;
  }
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "load_weights: %s\n", error.what());
  return 1;
}
