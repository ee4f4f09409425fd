// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

#include "regard/core/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/vector_ends-inl.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernels/philox-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void run_dropout_add(const DropoutAdd& job, const RowDropout& dropout) {
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const auto row = static_cast<std::uint32_t>(job.first_row + r);
    for (std::int64_t c = 0; c < job.width; ++c) {
      const auto place = static_cast<std::uint32_t>(c / 64 * 16 + c % 16);
      const PhiloxCounter words =
          regard::philox({place, row, dropout.site, 0}, dropout.seed);
      const bool kept = words[c / 16 % 4] >= dropout.threshold;
      const std::int64_t at = r * job.width + c;
      const float value = kept ? job.x[at] * dropout.factor : 0.0f;
      job.y[at] = job.residual == nullptr ? value : value + job.residual[at];
    }
  }
}

#else

// Up to 64 columns of one row, whose words are drawn together: `draws` vectors
// of counters give four words each.
HWY_INLINE void dropout_add_columns(const float* x, const float* residual,
                                    std::int64_t count, PhiloxWords first,
                                    const RowDropout& dropout, float* y) {
  const Tag d;
  const UTag du;
  const UVec threshold = hn::Set(du, dropout.threshold);
  const Vec factor = hn::Set(d, dropout.factor);
  for (std::int64_t lane = 0; lane < 16; lane += kEndLanes) {
    PhiloxWords words = first;
    words.word[0] =
        hn::Add(first.word[0], hn::Iota(du, static_cast<std::uint32_t>(lane)));
    words = philox(words, dropout.seed);
    for (std::int64_t w = 0; w < 4; ++w) {
      const std::int64_t c = w * 16 + lane;
      if (c >= count) break;
      const auto gone = hn::RebindMask(d, hn::Lt(words.word[w], threshold));
      const Vec value = hn::IfThenZeroElse(
          gone, hn::Mul(load_left(x + c, count - c), factor));
      const Vec sum = residual == nullptr
                          ? value
                          : hn::Add(value, load_left(residual + c, count - c));
      store_left(sum, y + c, count - c);
    }
  }
}

void run_dropout_add(const DropoutAdd& job, const RowDropout& dropout) {
  const UTag du;
  for (std::int64_t r = 0; r < job.rows; ++r) {
    PhiloxWords words;
    words.word[1] = hn::Set(du, static_cast<std::uint32_t>(job.first_row + r));
    words.word[2] = hn::Set(du, dropout.site);
    words.word[3] = hn::Zero(du);
    for (std::int64_t c = 0; c < job.width; c += 64) {
      words.word[0] = hn::Set(du, static_cast<std::uint32_t>(c / 4));
      const std::int64_t at = r * job.width + c;
      dropout_add_columns(job.x + at,
                          job.residual == nullptr ? nullptr : job.residual + at,
                          std::min<std::int64_t>(64, job.width - c), words,
                          dropout, job.y + at);
    }
  }
}

#endif  // HWY_TARGET

void run_add_scaled(const float* x, float factor, std::int64_t n, float* y) {
  const EndVec f = hn::Set(EndTag(), factor);
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const EndVec sum =
        hn::MulAdd(load_left(x + i, left), f, load_left(y + i, left));
    store_left(sum, y + i, left);
  });
}

void run_scale_add(const float* x, float factor, const float* z, std::int64_t n,
                   float* y) {
  const EndVec f = hn::Set(EndTag(), factor);
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const EndVec a = load_left(x + i, left);
    const EndVec sum =
        z == nullptr ? hn::Mul(a, f) : hn::MulAdd(a, f, load_left(z + i, left));
    store_left(sum, y + i, left);
  });
}

// kVecs vectors of columns: several, so that no sum waits for the one before
// it and lines are read whole. `left` may be less than a vector where there is
// one.
template <int kVecs>
HWY_INLINE void add_sums_of_columns(const float* x, std::int64_t stride,
                                    std::int64_t rows, std::int64_t left,
                                    float* sums) {
  const EndTag d;
  EndVec sum[kVecs];
  for (int v = 0; v < kVecs; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVecs; ++v) {
      sum[v] = hn::Add(sum[v], load_left(x + r * stride + v * kEndLanes, left));
    }
  }
  for (int v = 0; v < kVecs; ++v) {
    float* const to = sums + v * kEndLanes;
    store_left(hn::Add(load_left(to, left), sum[v]), to, left);
  }
}

void run_add_column_sums(const float* x, std::int64_t stride, std::int64_t rows,
                         std::int64_t columns, float* sums) {
  constexpr int kVecs = 8;
  constexpr std::int64_t kAtOnce = kVecs * kEndLanes;
  for (std::int64_t first = 0; first < rows; first += kSumBlock) {
    const float* const block = x + first * stride;
    const std::int64_t count = std::min(kSumBlock, rows - first);
    std::int64_t c = 0;
    for (; c + kAtOnce <= columns; c += kAtOnce) {
      add_sums_of_columns<kVecs>(block + c, stride, count, kEndLanes, sums + c);
    }
    over_vectors(columns - c, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
      add_sums_of_columns<1>(block + c + i, stride, count, left, sums + c + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_dropout_add);
HWY_EXPORT(run_add_scaled);
HWY_EXPORT(run_scale_add);
HWY_EXPORT(run_add_column_sums);

void dropout_add(const DropoutAdd& job, const RowDropout& dropout) noexcept {
  if (dropout.threshold == 0 && dropout.factor == 1.0f) {
    // Nothing is drawn.
    HWY_DYNAMIC_DISPATCH(run_scale_add)
    (job.x, 1.0f, job.residual, job.rows * job.width, job.y);
    return;
  }
  HWY_DYNAMIC_DISPATCH(run_dropout_add)(job, dropout);
}

void add_scaled(const float* x, float factor, std::int64_t n,
                float* y) noexcept {
  HWY_DYNAMIC_DISPATCH(run_add_scaled)(x, factor, n, y);
}

void scale_add(const float* x, float factor, const float* z, std::int64_t n,
               float* y) noexcept {
  HWY_DYNAMIC_DISPATCH(run_scale_add)(x, factor, z, n, y);
}

void add_column_sums(const float* x, std::int64_t stride, std::int64_t rows,
                     std::int64_t columns, float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(run_add_column_sums)(x, stride, rows, columns, sums);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
