// SPDX-License-Identifier: Apache-2.0
// Runs attention in bf16 compute on files, for tests in other languages:
//
//   bf16_driver IN.safetensors OUT.safetensors
//
// IN holds q, k and v as bf16, and if wanted bias (float) and a dense mask keep
// [b, h, q, k]. Its metadata hold scale and causal = top_left or bottom_right.
// OUT gets out.amx, out.dot and out.portable, for the paths that the machine
// has.
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "kernels/bf16_cpu.h"
#include "regard/attention/attention.h"
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
      {kernels::Bf16Path::kAmx, "out.amx"},
      {kernels::Bf16Path::kDot, "out.dot"},
      {kernels::Bf16Path::kPortable, "out.portable"}};
  StateDict result;
  for (const auto& [path, name] : paths) {
    if (!kernels::choose_bf16_path(path)) continue;
    Tensor& out = result[name] =
        Tensor(DType::kBFloat16,
               Shape{q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
    attention_forward(q, k, v, out.view<BFloat16, 4>(), options_of(file));
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
