// SPDX-License-Identifier: Apache-2.0
// What a careful engineer writes with a BLAS: for each head and each block of
// query rows, sgemm, softmax, sgemm. The block keeps the scores in the cache
// and leaves out the keys that a causal or window mask hides from the whole
// block.
#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "bench.h"
#include "softmax.h"

namespace regard::bench {
namespace {

constexpr std::int64_t kRows = 256;

const float* head_of(const Array& a, std::int64_t b, std::int64_t h) {
  return static_cast<const float*>(a.data) + b * a.strides[0] +
         h * a.strides[1];
}

// scores [rows, keys], of queries from i0 and keys from j0: hides, turns into
// weights.
void softmax_block(const AttentionCase& c, std::int64_t i0, std::int64_t rows,
                   std::int64_t j0, std::int64_t keys, float* scores) {
  const float hidden = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * keys;
    if (c.mask == MaskKind::kDense) {
      const bool* shown = c.dense + (i0 + i) * c.k.shape[2] + j0;
      for (std::int64_t j = 0; j < keys; ++j)
        row[j] = shown[j] ? row[j] : hidden;
    } else if (c.mask != MaskKind::kNone) {
      const auto [begin, end] = visible_keys(c, i0 + i);
      std::fill(row, row + begin - j0, hidden);
      std::fill(row + end - j0, row + keys, hidden);
    }
    const float scale = 1.0f / exp_row(row, keys);
    for (std::int64_t j = 0; j < keys; ++j) row[j] *= scale;
  }
}

void attend_block(const AttentionCase& c, std::int64_t b, std::int64_t h,
                  std::int64_t i0, std::vector<float>& scores) {
  const std::int64_t kv_head = h / (c.q.shape[1] / c.k.shape[1]);
  const std::int64_t rows = std::min(kRows, c.q.shape[2] - i0);
  const std::int64_t j0 = visible_keys(c, i0).begin;
  const std::int64_t keys = visible_keys(c, i0 + rows - 1).end - j0;
  const std::int64_t d_k = c.q.shape[3], d_v = c.v.shape[3];
  const auto size = static_cast<std::size_t>(rows * keys);
  if (scores.size() < size) scores.resize(size);
  const auto n = [](std::int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n(rows), n(keys), n(d_k),
              1.0f / std::sqrt(static_cast<float>(d_k)),
              head_of(c.q, b, h) + i0 * c.q.strides[2], n(c.q.strides[2]),
              head_of(c.k, b, kv_head) + j0 * c.k.strides[2], n(c.k.strides[2]),
              0.0f, scores.data(), n(keys));
  softmax_block(c, i0, rows, j0, keys, scores.data());
  float* out = static_cast<float*>(c.out.data) + b * c.out.strides[0] +
               h * c.out.strides[1] + i0 * c.out.strides[2];
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n(rows), n(d_v),
              n(keys), 1.0f, scores.data(), n(keys),
              head_of(c.v, b, kv_head) + j0 * c.v.strides[2], n(c.v.strides[2]),
              0.0f, out, n(c.out.strides[2]));
}

// Blocks are shared out over threads of ours, each with single-threaded BLAS
// calls: the softmax is then spread as well, which BLAS threads would not do.
void attend(const AttentionCase& c, std::vector<std::vector<float>>& scores) {
  const std::int64_t blocks = (c.q.shape[2] + kRows - 1) / kRows;
  const std::int64_t tasks = c.q.shape[0] * c.q.shape[1] * blocks;
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::size_t thread) {
    for (;;) {
      const std::int64_t task = next.fetch_add(1);
      if (task >= tasks) return;
      const std::int64_t bh = task / blocks;
      attend_block(c, bh / c.q.shape[1], bh % c.q.shape[1],
                   task % blocks * kRows, scores[thread]);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < scores.size(); ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();
}

}  // namespace
}  // namespace regard::bench

extern "C" const char* regard_bench_openblas() { return openblas_get_config(); }

extern "C" double regard_bench_openblas_attention(
    const regard::bench::AttentionCase* c, std::int64_t calls) {
  using regard::bench::fail;
  if (c->type != regard::bench::ElementType::kFloat32) {
    return fail("openblas: fp32 only");
  }
  if (c->dropout_rate != 0.0f) return fail("openblas: no dropout");
  openblas_set_num_threads(1);
  std::vector<std::vector<float>> scores(
      static_cast<std::size_t>(std::max(c->threads, 1)));
  return regard::bench::timed(calls,
                              [&] { regard::bench::attend(*c, scores); });
}
