// SPDX-License-Identifier: Apache-2.0
#include "regard/kernels/targets.h"

#include <cstdint>

#include "hwy/targets.h"
#include "regard/core/error.h"

namespace regard {
namespace {

std::int64_t chosen = 0;  // 0: the best

void choose(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  chosen = target;
}

// Asked once, because Highway tells what the machine has only while no target
// is chosen, and to undo a choice would change what runs at that moment.
const std::vector<std::int64_t>& runnable() {
  static const std::vector<std::int64_t> all = [] {
    std::vector<std::int64_t> targets;
    // Highway numbers better targets lower. The static target is always there.
    std::int64_t left =
        hwy::SupportedTargets() & (HWY_TARGETS | HWY_STATIC_TARGET);
    for (; left != 0; left &= left - 1) targets.push_back(left & -left);
    return targets;
  }();
  return all;
}

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : runnable()) {
    names.push_back(hwy::TargetName(target));
  }
  return names;
}

std::string simd_target() {
  return hwy::TargetName(chosen != 0 ? chosen : runnable().front());
}

void set_simd_target(const std::string& name) {
  const std::vector<std::int64_t>& targets = runnable();
  if (name.empty()) return choose(0);
  std::string known;
  for (const std::int64_t target : targets) {
    if (hwy::TargetName(target) == name) return choose(target);
    known += known.empty() ? "" : ", ";
    known += hwy::TargetName(target);
  }
  require(false, "set_simd_target", "the target must be one of ", known,
          "; got ", name);
}

}  // namespace regard
