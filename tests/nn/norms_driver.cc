// SPDX-License-Identifier: Apache-2.0
// Runs norms and rotary positions on files, for tests in other languages:
//
//   norms_driver IN.safetensors OUT.safetensors
//
// The metadata say what: op = rms_norm, layer_norm or rotary. A norm takes x,
// d_out [rows, dim], weight, bias [dim] and epsilon. rotary takes x, d_out
// [batch, heads, len, dim], positions [batch, len] and the members of
// RotaryConfig by their names, with scaling = 0 to 4 in the order of the
// header, interleaved = 0 or 1 and table = the number of positions. OUT gets
// out and the gradients d_x, d_weight and d_bias.
#include <string>

#include "regard/nn/norms.h"
#include "regard/nn/rotary.h"
#include "support/driver.h"

namespace {

using namespace regard;
using test::number_of;

StateDict run_norm(const SafetensorsFile& file, bool centred) {
  const auto x = file.view<float, 2>("x");
  const auto d_out = file.view<float, 2>("d_out");
  const auto weight = file.view<float, 1>("weight");
  const std::int64_t rows = x.extent(0), dim = x.extent(1);
  Tensor mean({rows}), rstd({rows});
  StateDict result;
  result["out"] = Tensor({rows, dim});
  result["d_x"] = Tensor({rows, dim});
  result["d_weight"] = Tensor({dim});
  const auto out = result["out"].view<float, 2>();
  nn::NormGradients gradients{.d_x = result["d_x"].view<float, 2>(),
                              .d_weight = result["d_weight"].view<float, 1>()};
  nn::NormOptions options{
      .epsilon = static_cast<float>(number_of(file, "epsilon", 1e-5)),
      .rstd = rstd.view<float, 1>()};
  if (centred) {
    result["d_bias"] = Tensor({dim});
    gradients.d_bias = result["d_bias"].view<float, 1>();
    options.mean = mean.view<float, 1>();
    nn::layer_norm(x, weight, file.view<float, 1>("bias"), out, options);
    nn::layer_norm_backward(x, weight, d_out, gradients, options);
  } else {
    nn::rms_norm(x, weight, out, options);
    nn::rms_norm_backward(x, weight, d_out, gradients, options);
  }
  return result;
}

StateDict run_rotary(const SafetensorsFile& file) {
  const auto integer = [&](const char* name, double otherwise) {
    return static_cast<std::int64_t>(number_of(file, name, otherwise));
  };
  nn::RotaryConfig config;
  config.rotary_dim = integer("rotary_dim", 0);
  config.base = number_of(file, "base", config.base);
  config.scaling = static_cast<nn::RotaryScaling>(integer("scaling", 0));
  config.factor = number_of(file, "factor", config.factor);
  config.trained_length = integer("trained_length", 0);
  const nn::RotaryTable table = nn::rotary_table(config, integer("table", 0));
  const auto x = file.view<float, 4>("x");
  StateDict result;
  result["out"] = Tensor(Shape(x.shape().begin(), x.shape().end()));
  result["d_x"] = Tensor(Shape(x.shape().begin(), x.shape().end()));
  const nn::RotaryOptions options{
      .pairing = integer("interleaved", 0) != 0
                     ? nn::RotaryPairing::kInterleaved
                     : nn::RotaryPairing::kHalfSplit,
      .positions = file.view<std::int64_t, 2>("positions")};
  nn::rotary_forward(x, table.cos.view<float, 2>(), table.sin.view<float, 2>(),
                     result["out"].view<float, 4>(), options);
  nn::rotary_backward(file.view<float, 4>("d_out"), table.cos.view<float, 2>(),
                      table.sin.view<float, 2>(),
                      result["d_x"].view<float, 4>(), options);
  return result;
}

StateDict run(const SafetensorsFile& file) {
  const std::string op = test::text_of(file, "op");
  return op == "rotary" ? run_rotary(file) : run_norm(file, op == "layer_norm");
}

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "norms_driver", run);
}
