// SPDX-License-Identifier: Apache-2.0
// Runs attention in bf16 compute on files, for tests in other languages:
//
//   bf16_driver IN.safetensors OUT.safetensors
//
// IN holds q, k, v and d_out as bf16, and if wanted bias (float) and a dense
// mask keep [b, h, q, k]. Its metadata hold causal = top_left or bottom_right.
// OUT gets out.amx, out.dot and out.portable, for the paths that the machine
// has, and their gradients dq.amx, dk.amx, dv.amx, ...
#include <string>
#include <utility>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "support/bf16_paths.h"
#include "support/driver.h"

namespace {

using namespace regard;

StateDict run(const SafetensorsFile& file) {
  const auto q = file.view<BFloat16, 4>("q");
  const auto k = file.view<BFloat16, 4>("k");
  const auto v = file.view<BFloat16, 4>("v");
  AttentionOptions options;
  options.compute = Compute::kBFloat16;
  options.mask = test::mask_of(file);
  if (file.contains("bias")) options.bias = file.view<float, 4>("bias");
  StateDict result;
  test::for_each_bf16_path([&](const std::string& path) {
    const auto make = [&](const std::string& name, Shape shape) {
      Tensor& tensor = result[name + "." + path] =
          Tensor(DType::kBFloat16, std::move(shape));
      return tensor.view<BFloat16, 4>();
    };
    const auto out =
        make("out", {q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
    Tensor lse(Shape{q.extent(0), q.extent(1), q.extent(2)});
    options.log_sum_exp = lse.view<float, 3>();
    attention_forward(q, k, v, out, options);
    attention_backward({.q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .d_out = file.view<BFloat16, 4>("d_out"),
                        .d_log_sum_exp = {}},
                       {.q = make("dq", file.shape("q")),
                        .k = make("dk", file.shape("k")),
                        .v = make("dv", file.shape("v"))},
                       options);
  });
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return test::drive(argc, argv, "bf16_driver", run);
}
