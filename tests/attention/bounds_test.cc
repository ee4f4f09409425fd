// SPDX-License-Identifier: Apache-2.0
// Nothing is read or written behind the end of a tensor: each ends where a page
// begins that nobody may touch.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/weights.h"
#include "support/every_path.h"

namespace regard {
namespace {

// [1, heads, len, dim] of T, the last element right before a forbidden page.
template <typename T>
class Fenced {
 public:
  Fenced(std::int64_t heads, std::int64_t len, std::int64_t dim)
      : shape_{1, heads, len, dim} {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto count = static_cast<std::size_t>(heads * len * dim);
    bytes_ = (count * sizeof(T) + page - 1) / page * page;
    memory_ = mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    mapped_ = bytes_ + page;
    auto* const fence = static_cast<std::byte*>(memory_) + bytes_;
    EXPECT_EQ(mprotect(fence, page, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(fence) - count;
    for (std::size_t i = 0; i < count; ++i) {
      data_[i] = T(static_cast<float>(i % 7) / 8);
    }
  }
  ~Fenced() { munmap(memory_, mapped_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  TensorView<T, 4> view() const { return {data_, shape_}; }
  TensorView<const T, 4> read() const { return {data_, shape_}; }

 private:
  std::array<std::int64_t, 4> shape_;
  std::size_t bytes_ = 0, mapped_ = 0;
  void* memory_ = nullptr;
  T* data_ = nullptr;
};

struct Sizes {
  std::int64_t rows, keys, d_k, d_v;
};

template <typename T>
void run_all(const Sizes& n) {
  constexpr std::int64_t kHeads = 2;
  const Fenced<T> q(kHeads, n.rows, n.d_k), k(kHeads, n.keys, n.d_k),
      v(kHeads, n.keys, n.d_v), out(kHeads, n.rows, n.d_v),
      d_out(kHeads, n.rows, n.d_v), d_q(kHeads, n.rows, n.d_k),
      d_k(kHeads, n.keys, n.d_k), d_v(kHeads, n.keys, n.d_v);
  const Fenced<float> weights(kHeads, n.rows, n.keys),
      bias(kHeads, n.rows, n.keys), d_bias(kHeads, n.rows, n.keys),
      lse(1, kHeads, n.rows);
  AttentionOptions options;
  options.bias = bias.read();
  options.log_sum_exp = {lse.view().data(), {1, kHeads, n.rows}};
  attention_forward(q.read(), k.read(), v.read(), out.view(), options);
  attention_weights(q.read(), k.read(), weights.view(), options);
  attention_backward(BackwardInputs<T>{.q = q.read(),
                                       .k = k.read(),
                                       .v = v.read(),
                                       .out = out.read(),
                                       .d_out = d_out.read()},
                     Gradients<T>{.q = d_q.view(),
                                  .k = d_k.view(),
                                  .v = d_v.view(),
                                  .bias = d_bias.view()},
                     options);
}

TEST(Bounds, NothingBehindATensorIsTouched) {
  test::on_every_simd_target([](const std::string&) {
    for (const std::int64_t dim : {1, 4, 8, 13, 16, 24, 40, 64, 72}) {
      for (const std::int64_t rows : {1, 5, 40}) {
        for (const std::int64_t keys : {1, 7, 16, 100}) {
          SCOPED_TRACE("dim " + std::to_string(dim));
          run_all<float>({rows, keys, dim, dim});
          run_all<BFloat16>({rows, keys, dim, dim});
          run_all<float>({rows, keys, dim, 8});
        }
      }
    }
  });
}

}  // namespace
}  // namespace regard
