// SPDX-License-Identifier: Apache-2.0
// Runs attention in bf16 compute on files, for tests in other languages:
//
//   bf16_driver IN.safetensors OUT.safetensors
//
// IN holds q, k and v as bf16, and if wanted bias (float) and a dense mask keep
// [b, h, q, k]. Its metadata hold scale and causal = top_left or bottom_right.
// OUT gets out.amx, out.dot and out.portable, for the paths that the machine
// has; with d_out in IN also their gradients dq.amx, dk.amx, dv.amx, ...
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "kernels/bf16_cpu.h"
#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/io/safetensors.h"

namespace {

using namespace regard;

AttentionOptions options_of(const SafetensorsFile& file) {
  const auto text = [&](const char* name) -> std::string {
    const auto found = file.metadata().find(name);
    return found == file.metadata().end() ? "" : found->second;
  };
  AttentionOptions o;
  o.compute = Compute::kBFloat16;
  if (!text("scale").empty()) o.scale = std::stof(text("scale"));
  if (file.contains("keep")) o.mask = mask::keep(file.view<bool, 4>("keep"));
  if (text("causal") == "top_left") {
    o.mask = o.mask & mask::causal(mask::kTopLeft);
  } else if (text("causal") == "bottom_right") {
    o.mask = o.mask & mask::causal();
  }
  if (file.contains("bias")) o.bias = file.view<float, 4>("bias");
  return o;
}

void run(const char* from, const char* to) {
  const SafetensorsFile file = SafetensorsFile::open(from);
  const auto q = file.view<BFloat16, 4>("q");
  const auto k = file.view<BFloat16, 4>("k");
  const auto v = file.view<BFloat16, 4>("v");
  const std::pair<kernels::Bf16Path, const char*> paths[] = {
      {kernels::Bf16Path::kAmx, "amx"},
      {kernels::Bf16Path::kDot, "dot"},
      {kernels::Bf16Path::kPortable, "portable"}};
  StateDict result;
  for (const auto& [path, path_name] : paths) {
    if (!kernels::choose_bf16_path(path)) continue;
    const std::string suffix = std::string(".") + path_name;
    const auto make = [&](const char* name, Shape shape) {
      Tensor& tensor = result[name + suffix] =
          Tensor(DType::kBFloat16, std::move(shape));
      return tensor.view<BFloat16, 4>();
    };
    const auto out =
        make("out", {q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
    Tensor lse(Shape{q.extent(0), q.extent(1), q.extent(2)});
    AttentionOptions options = options_of(file);
    options.log_sum_exp = lse.view<float, 3>();
    attention_forward(q, k, v, out, options);
    if (!file.contains("d_out")) continue;
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
  }
  save_safetensors(to, result);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bf16_driver IN.safetensors OUT.safetensors\n");
    return 2;
  }
  try {
    run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bf16_driver: %s\n", error.what());
    return 1;
  }
}
