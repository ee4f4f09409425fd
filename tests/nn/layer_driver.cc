// SPDX-License-Identifier: Apache-2.0
// Runs the layer on files, for tests in other languages:
//
//   layer_driver IN.safetensors OUT.safetensors
//
// IN holds the inputs query, key and value (batched or not), the parameters as
// param.<name>, and if wanted bias [b, h, q, k] and any number of dense masks
// keep.<n> and drop.<n> [b, h, q, k]. Its metadata hold the numbers of the
// config by their names, causal = top_left or bottom_right, and bf16 = 1 for
// compute in bf16. OUT gets out, weights and average_weights; in bf16 out.amx,
// out.dot and out.portable instead, for the paths that the machine has.
#include <string>

#include "regard/nn/multi_head_attention.h"
#include "support/bf16_paths.h"
#include "support/driver.h"

namespace {

using namespace regard;

nn::MultiHeadAttentionConfig config_of(const SafetensorsFile& file) {
  const auto integer = [&](const char* name, double otherwise) {
    return static_cast<std::int64_t>(test::number_of(file, name, otherwise));
  };
  nn::MultiHeadAttentionConfig c;
  c.model_dim = integer("model_dim", 0);
  c.heads = integer("heads", 1);
  c.kv_heads = integer("kv_heads", 0);
  c.key_dim = integer("key_dim", 0);
  c.value_dim = integer("value_dim", 0);
  c.head_dim = integer("head_dim", 0);
  c.value_head_dim = integer("value_head_dim", 0);
  c.bias = integer("bias", 1) != 0;
  c.bias_kv = integer("bias_kv", 0) != 0;
  c.add_zero_attn = integer("add_zero_attn", 0) != 0;
  c.score = integer("cosine", 0) != 0 ? Score::kCosine : Score::kDot;
  return c;
}

// Rank 2 or 3, as the test wants the layer to be called.
template <int Rank>
StateDict run(const SafetensorsFile& file,
              const nn::MultiHeadAttention& layer) {
  const auto query = file.view<float, Rank>("query");
  const auto key = file.view<float, Rank>("key");
  const auto value = file.view<float, Rank>("value");
  const std::int64_t batch = Rank == 3 ? query.extent(0) : 1;
  const std::int64_t q_len = query.extent(Rank - 2);
  const std::int64_t all_keys = key.extent(Rank - 2) + layer.appended_keys();
  StateDict result;
  Tensor& out = result["out"] =
      Tensor(Shape(query.shape().begin(), query.shape().end()));
  Tensor& weights = result["weights"] =
      Tensor(Shape{batch, layer.config().heads, q_len, all_keys});
  Tensor& average = result["average_weights"] =
      Tensor(Shape{batch, q_len, all_keys});
  nn::MultiHeadAttentionOptions options;
  options.mask = test::mask_of(file);
  if (file.contains("bias")) options.bias = file.view<float, 4>("bias");
  if (test::number_of(file, "bf16", 0) != 0) {
    options.compute = Compute::kBFloat16;
    StateDict outs;
    test::for_each_bf16_path([&](const std::string& path) {
      layer.forward(query, key, value, out.view<float, Rank>(), options);
      outs["out." + path] = out;
    });
    return outs;
  }
  options.weights = weights.view<float, 4>();
  options.average_weights = average.view<float, 3>();
  layer.forward(query, key, value, out.view<float, Rank>(), options);
  return result;
}

StateDict run(const SafetensorsFile& file) {
  const nn::MultiHeadAttention layer(config_of(file),
                                     test::parameters_of(file));
  return file.shape("query").size() == 3 ? run<3>(file, layer)
                                         : run<2>(file, layer);
}

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "layer_driver",
                     [](const SafetensorsFile& file) { return run(file); });
}
