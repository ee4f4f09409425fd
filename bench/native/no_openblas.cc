// SPDX-License-Identifier: Apache-2.0
// Stands in for openblas.cc where OpenBLAS is not installed.
#include "bench.h"

extern "C" const char* regard_bench_openblas() { return nullptr; }

extern "C" double regard_bench_openblas_attention(
    const regard::bench::AttentionCase*, std::int64_t) {
  return regard::bench::fail("openblas: not in this build");
}
