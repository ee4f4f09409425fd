// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/gemm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "hwy/cache_control.h"
#include "kernels/bf16/passes.h"
#include "regard/core/float16.h"

namespace regard::kernels {
namespace {

constexpr std::int64_t kPanel = kPanelRows;  // and columns
static_assert(kPanel == kBf16PanelColumns);
// Steps along k whose right side, 32 KB, stays in the first cache while all
// rows pass.
constexpr std::int64_t kRunSteps = 16;
// Packed rows at hand: more would leave the second cache too little for the
// right side, fewer would read it more often.
constexpr std::int64_t kLeftBytes = 3 << 18;
// Rows of a result of more than this would leave the second cache before they
// are read.
constexpr std::int64_t kNearResultBytes = 3 << 19;
constexpr std::int64_t kLineBytes = 64;

std::int64_t steps_of(std::int64_t k) { return (k + 31) / 32; }
std::int64_t panels_of(std::int64_t count) {
  return (count + kPanel - 1) / kPanel;
}
// Elements of a panel.
std::int64_t panel_size(std::int64_t k) { return steps_of(k) * 2 * kTileBf16; }

const void* row_of(const Bf16Rows& rows, std::int64_t i) {
  return static_cast<const std::byte*>(rows.data) +
         i * rows.stride * bytes_of(rows.storage);
}

class Product {
 public:
  Product(const Bf16Gemm& job, std::byte* scratch)
      : job_(job),
        f_(bf16_functions()),
        steps_(steps_of(job.k)),
        panels_(panels_of(job.m)),
        left_(reinterpret_cast<Bf16Bits*>(scratch)),
        sums_(reinterpret_cast<float*>(left_ + panels_ * panel_size(job.k))),
        sums_before_(sums_ + panels_ * kProductFloats) {}

  void run() {
    for (std::int64_t panel = 0; panel < panels_; ++panel) pack_left(panel);
    f_.begin();
    for (std::int64_t column = 0; column < job_.n; column += kPanel) {
      start_sums(column);
      for (std::int64_t step = 0; step < steps_; step += kRunSteps) {
        multiply_run(column, step);
      }
      const bool is_last = column + kPanel >= job_.n;
      const std::int64_t carried = carries() && !is_last ? job_.m / kPanel : 0;
      for (std::int64_t panel = carried; panel < panels_; ++panel) {
        write(panel, column);
      }
      std::swap(sums_, sums_before_);
    }
    f_.end();
    if (carries()) hwy::FlushStream();
  }

 private:
  int rows_of(std::int64_t panel) const {
    return static_cast<int>(std::min(kPanel, job_.m - panel * kPanel));
  }
  float* sums_of(std::int64_t panel) const {
    return sums_ + panel * kProductFloats;
  }

  void pack_left(std::int64_t panel) const {
    if (job_.a_is_transposed) return pack_left_transposed(panel);
    const void* rows[kPanel];
    for (int i = 0; i < rows_of(panel); ++i) {
      rows[i] = row_of(job_.a, panel * kPanel + i);
    }
    bf16_pack_panel(rows, rows_of(panel), job_.a.storage, job_.k,
                    left_ + panel * panel_size(job_.k));
  }

  // Pairs of rows of a, [k, m], are words; transposed, the words of a column
  // are a row of the left side.
  void pack_left_transposed(std::int64_t panel) const {
    const int columns = rows_of(panel);
    const float* const from =
        static_cast<const float*>(job_.a.data) + panel * kPanel;
    Bf16Bits* to = left_ + panel * panel_size(job_.k);
    alignas(kLineBytes) Bf16Bits pairs[2 * kTileBf16];
    for (std::int64_t at = 0; at < job_.k; at += 32) {
      const int count =
          static_cast<int>(std::min<std::int64_t>(32, job_.k - at));
      bf16_pack_pairs(from + at * job_.a.stride, job_.a.stride, count, columns,
                      pairs);
      for (int tile = 0; tile < 2; ++tile, to += kTileBf16) {
        const Bf16Bits* words[16];
        for (int i = 0; i < 16; ++i)
          words[i] = pairs + tile * kTileBf16 + i * 32;
        float lengths[16];
        f_.pack_keys(words, 1, to, kTileBf16, lengths);
      }
    }
  }

  // Whether the sums of whole panels are written beside the products of the
  // next columns.
  bool carries() const {
    return f_.carries && job_.c_storage == Storage::kFloat32 && steps_ > 0;
  }
  bool from_zero() const {
    return job_.start == Start::kZero && job_.bias == nullptr && steps_ > 0;
  }

  // Where the two halves of a row's sums are.
  float* row_sums(std::int64_t row) const {
    return sums_ + row / 16 * 2 * kTileFloats + row % 16 * 16;
  }

  // The sums begin with the bias, or with the result so far.
  void start_sums(std::int64_t column) const {
    if (from_zero()) return;
    if (job_.start == Start::kResult) return load_sums(column);
    float bias[kPanel] = {};
    const std::int64_t columns = std::min(kPanel, job_.n - column);
    if (job_.bias != nullptr) {
      std::copy_n(job_.bias + column, columns, bias);
    }
    for (std::int64_t row = 0; row < panels_ * kPanel; ++row) {
      float* const to = row_sums(row);
      std::memcpy(to, bias, sizeof(float) * 16);
      std::memcpy(to + kTileFloats, bias + 16, sizeof(float) * 16);
    }
  }
  void load_sums(std::int64_t column) const {
    const std::int64_t columns = std::min(kPanel, job_.n - column);
    const std::int64_t first = std::min<std::int64_t>(16, columns);
    const auto* from = static_cast<const float*>(job_.c) + column;
    for (std::int64_t row = 0; row < job_.m; ++row, from += job_.c_stride) {
      float* const to = row_sums(row);
      std::copy_n(from, first, to);
      std::copy_n(from + first, columns - first, to + kTileFloats);
    }
  }

  // The share of the columns before that is written beside one run.
  Bf16Carry carry_of(std::int64_t column, std::int64_t step,
                     std::int64_t steps) const {
    if (column == 0 || !carries()) return {};
    const std::int64_t rows = job_.m / kPanel * kPanel;
    float* const out = static_cast<float*>(job_.c) + column - kPanel;
    const bool whole_lines =
        reinterpret_cast<std::uintptr_t>(out) % kLineBytes == 0 &&
        job_.c_stride * 4 % kLineBytes == 0;
    return {.sums = sums_before_,
            .out = out,
            .stride = job_.c_stride,
            .first = static_cast<int>(rows * step / steps_),
            .last = static_cast<int>(rows * (step + steps) / steps_),
            .past_caches =
                whole_lines && job_.m * job_.c_stride * 4 >= kNearResultBytes};
  }

  // One run along k of 32 columns, for all rows. What comes next follows in
  // memory.
  void multiply_run(std::int64_t column, std::int64_t step) const {
    const std::int64_t steps = std::min(kRunSteps, steps_ - step);
    const Bf16Bits* const right =
        job_.b + column / kPanel * panel_size(job_.k) + step * 2 * kTileBf16;
    const Bf16Bits* const next = right + steps * 2 * kTileBf16;
    f_.multiply(
        {.left = left_ + step * 2 * kTileBf16,
         .left_stride = panel_size(job_.k),
         .right = right,
         .sums = sums_,
         .steps = static_cast<int>(steps),
         .rows = static_cast<int>(job_.m),
         .from_zero = step == 0 && from_zero(),
         .ahead = next,
         .ahead_end = std::min(next + kRunSteps * 2 * kTileBf16,
                               job_.b + bf16_packed_size(job_.n, job_.k)),
         .carry = carry_of(column, step, steps)});
  }

  void write(std::int64_t panel, std::int64_t column) const {
    const std::int64_t at = panel * kPanel * job_.c_stride + column;
    bf16_write_sums(
        {.sums = sums_of(panel),
         .rows = rows_of(panel),
         .columns = static_cast<int>(std::min(kPanel, job_.n - column)),
         .storage = job_.c_storage,
         .out = static_cast<std::byte*>(job_.c) + at * bytes_of(job_.c_storage),
         .stride = job_.c_stride});
  }

  const Bf16Gemm& job_;
  const Bf16Functions& f_;
  const std::int64_t steps_, panels_;
  Bf16Bits* const left_;  // [panels][steps][2] tiles
  float* sums_;           // [panels][2][2] tiles
  float* sums_before_;    // of the columns before
};

// Where one element of a packed right side lies.
std::int64_t place_of(std::int64_t column, std::int64_t at, std::int64_t k) {
  return column / kPanel * panel_size(k) + at / 32 * 2 * kTileBf16 +
         column / 16 % 2 * kTileBf16 + at % 32 / 2 * 32 + column % 16 * 2 +
         at % 2;
}

float value_at(const Bf16Rows& rows, std::int64_t row, std::int64_t at) {
  return load_element(row_of(rows, row), rows.storage, at);
}

// For machines with no vectors that we know.
void plain_gemm(const Bf16Gemm& job) {
  for (std::int64_t i = 0; i < job.m; ++i) {
    for (std::int64_t j = 0; j < job.n; ++j) {
      const std::int64_t place = i * job.c_stride + j;
      float sum = job.bias == nullptr ? 0 : job.bias[j];
      if (job.start == Start::kResult) {
        sum = load_element(job.c, job.c_storage, place);
      }
      for (std::int64_t at = 0; at < job.k; ++at) {
        const Bf16Bits b = job.b[place_of(j, at, job.k)];
        const float a = job.a_is_transposed ? value_at(job.a, at, i)
                                            : value_at(job.a, i, at);
        sum += static_cast<float>(BFloat16(a)) *
               std::bit_cast<float>(std::uint32_t{b} << 16);
      }
      store_element(sum, job.c_storage, job.c, place);
    }
  }
}

void plain_pack_right(const Bf16Rows& transposed, std::int64_t n,
                      std::int64_t k, Bf16Bits* packed) {
  std::fill(packed, packed + bf16_packed_size(n, k), Bf16Bits{0});
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t at = 0; at < k; ++at) {
      packed[place_of(j, at, k)] = BFloat16(value_at(transposed, j, at)).bits;
    }
  }
}

}  // namespace

std::int64_t bf16_packed_size(std::int64_t n, std::int64_t k) {
  return panels_of(n) * panel_size(k);
}

void bf16_pack_right(const Bf16Rows& transposed, std::int64_t n, std::int64_t k,
                     Bf16Bits* packed) {
  if (!attention_has_kernel()) {
    return plain_pack_right(transposed, n, k, packed);
  }
  const Bf16Functions& f = bf16_functions();
  const std::int64_t steps = steps_of(k);
  if (steps == 0) return;
  std::vector<Bf16Bits> staging(static_cast<std::size_t>(16 * steps * 32));
  for (std::int64_t tile = 0; tile < 2 * panels_of(n); ++tile) {
    const Bf16Bits* rows[16];
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t column = tile * 16 + i;
      Bf16Bits* const to = staging.data() + i * steps * 32;
      const bool real = column < n;
      bf16_round_row(real ? row_of(transposed, column) : to, transposed.storage,
                     real ? k : 0, steps * 32, to);
      rows[i] = to;
    }
    float norms[16];
    f.pack_keys(rows, static_cast<int>(steps),
                packed + tile / 2 * panel_size(k) + tile % 2 * kTileBf16,
                2 * kTileBf16, norms);
  }
}

void bf16_pack_right_rows(const float* rows, std::int64_t stride,
                          std::int64_t n, std::int64_t k, Bf16Bits* packed) {
  if (!attention_has_kernel()) {
    std::fill(packed, packed + bf16_packed_size(n, k), Bf16Bits{0});
    for (std::int64_t at = 0; at < k; ++at) {
      for (std::int64_t j = 0; j < n; ++j) {
        packed[place_of(j, at, k)] = BFloat16(rows[at * stride + j]).bits;
      }
    }
    return;
  }
  for (std::int64_t column = 0; column < n; column += kPanel) {
    for (std::int64_t at = 0; at < k; at += 32, packed += 2 * kTileBf16) {
      bf16_pack_pairs(rows + at * stride + column, stride,
                      static_cast<int>(std::min<std::int64_t>(32, k - at)),
                      static_cast<int>(std::min(kPanel, n - column)), packed);
    }
  }
}

std::int64_t bf16_gemm_rows(std::int64_t k) {
  const std::int64_t panels =
      kLeftBytes / std::max<std::int64_t>(1, panel_size(k) * 2);
  return std::clamp<std::int64_t>(panels, 1, 16) * kPanel;
}

std::size_t bf16_gemm_scratch_bytes(std::int64_t m, std::int64_t k) {
  return static_cast<std::size_t>(panels_of(m) *
                                  (panel_size(k) * 2 + 2 * kProductFloats * 4));
}

void bf16_gemm(const Bf16Gemm& job, std::byte* scratch) noexcept {
  if (!attention_has_kernel()) return plain_gemm(job);
  Product(job, scratch).run();
}

}  // namespace regard::kernels
