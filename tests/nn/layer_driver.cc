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
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bf16_cpu.h"
#include "regard/io/safetensors.h"
#include "regard/nn/multi_head_attention.h"

namespace {

using namespace regard;

using Metadata = std::map<std::string, std::string>;

double number(const Metadata& metadata, const std::string& name,
              double otherwise) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? otherwise : std::stod(found->second);
}

nn::MultiHeadAttentionConfig config_of(const Metadata& m) {
  const auto integer = [&](const char* name, double otherwise) {
    return static_cast<std::int64_t>(number(m, name, otherwise));
  };
  nn::MultiHeadAttentionConfig c;
  c.model_dim = integer("model_dim", 0);
  c.heads = integer("heads", 1);
  c.kv_heads = integer("kv_heads", 0);
  c.key_dim = integer("key_dim", 0);
  c.value_dim = integer("value_dim", 0);
  c.head_dim = integer("head_dim", 0);
  c.value_head_dim = integer("value_head_dim", 0);
  c.bias = number(m, "bias", 1) != 0;
  c.bias_kv = number(m, "bias_kv", 0) != 0;
  c.add_zero_attn = number(m, "add_zero_attn", 0) != 0;
  c.score = number(m, "cosine", 0) != 0 ? Score::kCosine : Score::kDot;
  return c;
}

Mask mask_of(const SafetensorsFile& file) {
  Mask mask;
  for (const std::string& name : file.names()) {
    if (name.starts_with("keep.")) {
      mask = mask & mask::keep(file.view<bool, 4>(name));
    } else if (name.starts_with("drop.")) {
      mask = mask & mask::drop(file.view<bool, 4>(name));
    }
  }
  const auto causal = file.metadata().find("causal");
  if (causal != file.metadata().end()) {
    mask =
        mask & mask::causal(causal->second == "top_left" ? mask::kTopLeft
                                                         : mask::kBottomRight);
  }
  return mask;
}

// The output on every path of bf16 that the machine has.
template <typename Body>
StateDict run_bf16(const Body& body) {
  const std::pair<kernels::Bf16Path, const char*> paths[] = {
      {kernels::Bf16Path::kAmx, "out.amx"},
      {kernels::Bf16Path::kDot, "out.dot"},
      {kernels::Bf16Path::kPortable, "out.portable"}};
  StateDict result;
  for (const auto& [path, name] : paths) {
    if (kernels::choose_bf16_path(path)) result[name] = body();
  }
  return result;
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
  options.mask = mask_of(file);
  if (file.contains("bias")) options.bias = file.view<float, 4>("bias");
  if (number(file.metadata(), "bf16", 0) != 0) {
    options.compute = Compute::kBFloat16;
    return run_bf16([&] {
      layer.forward(query, key, value, out.view<float, Rank>(), options);
      return out;
    });
  }
  options.weights = weights.view<float, 4>();
  options.average_weights = average.view<float, 3>();
  layer.forward(query, key, value, out.view<float, Rank>(), options);
  return result;
}

void drive(const char* in, const char* out) {
  const SafetensorsFile file = SafetensorsFile::open(in);
  StateDict parameters;
  for (const std::string& name : file.names()) {
    if (name.starts_with("param.")) {
      parameters[name.substr(6)] = file.tensor(name);
    }
  }
  const nn::MultiHeadAttention layer(config_of(file.metadata()),
                                     std::move(parameters));
  save_safetensors(out, file.shape("query").size() == 3 ? run<3>(file, layer)
                                                        : run<2>(file, layer));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr,
                 "usage: layer_driver IN.safetensors OUT.safetensors\n");
    return 2;
  }
  try {
    drive(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "layer_driver: %s\n", error.what());
    return 1;
  }
  return 0;
}
