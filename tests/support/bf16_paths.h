// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16/cpu.h"

namespace regard::test {

// visit(name) on every way to multiply bf16 numbers that the machine has, then
// the best is chosen again.
template <typename Visit>
void for_each_bf16_path(const Visit& visit) {
  using kernels::Bf16Path;
  struct Named {
    Bf16Path path;
    const char* name;
  };
  for (const auto& [path, name] :
       {Named{Bf16Path::kAmx, "amx"}, Named{Bf16Path::kDot, "dot"},
        Named{Bf16Path::kPortable, "portable"}}) {
    if (!kernels::choose_bf16_path(path)) continue;
    visit(name);
    kernels::choose_best_bf16_path();
  }
}

}  // namespace regard::test
