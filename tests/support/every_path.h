// SPDX-License-Identifier: Apache-2.0
// Runs a test on everything that the machine can compute with.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "regard/kernels/targets.h"
#include "support/bf16_paths.h"
#include "support/same_bits.h"

namespace regard::test {

// Whether a product and a sum are one operation there. Targets where they are
// agree to the last bit; the others have bits of their own.
inline bool fuses_products(const std::string& target) {
  for (const char* other : {"SCALAR", "EMU128", "SSE2", "SSSE3", "SSE4"}) {
    if (target == other) return false;
  }
  return true;
}

// body(target) on every SIMD target, then the best is chosen again.
template <typename Body>
void on_every_simd_target(const Body& body) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    set_simd_target(target);
    body(target);
  }
  set_simd_target("");
}

// run() on every SIMD target. Where products are fused, it must return the same
// bits.
template <typename Run>
void expect_same_bits_on_every_simd_target(const Run& run) {
  std::optional<decltype(run())> first;
  on_every_simd_target([&](const std::string& target) {
    const auto result = run();
    if (!fuses_products(target)) return;
    if (!first) first = result;
    EXPECT_TRUE(same_bits(*first, result));
  });
}

// body() on every way to multiply bf16 numbers.
template <typename Body>
void on_every_bf16_path(const Body& body) {
  for_each_bf16_path([&](const char* name) {
    SCOPED_TRACE(name);
    body();
  });
}

}  // namespace regard::test
