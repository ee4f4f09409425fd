// SPDX-License-Identifier: Apache-2.0
#include "regard/kernels/targets.h"

#include <cstdint>

#include "hwy/targets.h"
#include "regard/core/error.h"

namespace regard {
namespace {

std::vector<std::int64_t> runnable() {
  std::vector<std::int64_t> targets;
  // Highway numbers better targets lower. The static target is always there.
  std::int64_t left =
      hwy::SupportedTargets() & (HWY_TARGETS | HWY_STATIC_TARGET);
  for (; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

std::int64_t chosen = 0;  // 0: the best

void choose(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  chosen = target;
}

}  // namespace

std::vector<std::string> simd_targets() {
  const std::int64_t before = chosen;
  choose(0);
  std::vector<std::string> names;
  for (const std::int64_t target : runnable()) {
    names.push_back(hwy::TargetName(target));
  }
  choose(before);
  return names;
}

std::string simd_target() {
  return chosen != 0 ? hwy::TargetName(chosen) : simd_targets().front();
}

void set_simd_target(const std::string& name) {
  if (name.empty()) return choose(0);
  std::string known;
  choose(0);
  for (const std::int64_t target : runnable()) {
    if (hwy::TargetName(target) == name) return choose(target);
    known += known.empty() ? "" : ", ";
    known += hwy::TargetName(target);
  }
  require(false, "set_simd_target", "the target must be one of ", known,
          "; got ", name);
}

}  // namespace regard
