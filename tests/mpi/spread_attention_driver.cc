// SPDX-License-Identifier: Apache-2.0
// Attention over the ranks of MPI and its gradients, by heads and by sequence,
// beside the same in one process: mpirun -n 3 spread_attention_driver [LENGTH].
// Ends with 1 where a bit differs.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "regard/core/random.h"
#include "regard/dist/attention.h"
#include "regard/mpi/mpi.h"
#include "regard/tensor/tensor.h"

namespace {

using namespace regard;

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  Tensor tensor(shape);
  for (float& x : tensor.values<float>()) x = random.normal();
  return tensor;
}

// A rank's positions of [1, heads, length, dim].
TensorView<float, 4> part(Tensor& tensor, dist::Part own) {
  const auto whole = tensor.view<float, 4>();
  auto shape = whole.shape();
  shape[2] = own.size();
  return {whole.at(0, 0, own.begin), shape, whole.strides()};
}

constexpr std::int64_t kHeads = 4, kDim = 16;

// Everything that one step reads and writes.
struct Step {
  Step(std::int64_t kv_heads, std::int64_t length)
      : q(random_tensor({1, kHeads, length, kDim}, 1)),
        k(random_tensor({1, kv_heads, length, kDim}, 2)),
        v(random_tensor({1, kv_heads, length, kDim}, 3)),
        d_out(random_tensor(q.shape(), 4)),
        out(q.shape()),
        lse(Shape{1, kHeads, length}),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()) {}
  Tensor q, k, v, d_out, out, lse, d_q, d_k, d_v;

  // The part `own` of it, over `ranks`.
  void run(dist::Communicator& ranks, dist::Part own) {
    const auto read = [&](Tensor& tensor) {
      return ConstUntypedView<4>(part(tensor, own));
    };
    const auto write = [&](Tensor& tensor) {
      return UntypedView<4>(part(tensor, own));
    };
    const auto rows = lse.view<float, 3>();
    const AttentionOptions options{.mask = mask::causal(),
                                   .log_sum_exp = {rows.data() + own.begin,
                                                   {1, kHeads, own.size()},
                                                   rows.strides()},
                                   .threads = {.count = 1}};
    dist::attention_forward(ranks, read(q), read(k), read(v), write(out),
                            options);
    dist::attention_backward(
        ranks,
        UntypedBackwardInputs{.q = read(q),
                              .k = read(k),
                              .v = read(v),
                              .out = read(out),
                              .d_out = read(d_out)},
        UntypedGradients{.q = write(d_q), .k = write(d_k), .v = write(d_v)},
        options);
  }
};

bool is_same(dist::Communicator& ranks, std::int64_t kv_heads,
             std::int64_t length) {
  Step spread(kv_heads, length), alone(kv_heads, length);
  const auto own = dist::part_of(length, ranks.rank(), ranks.size());
  spread.run(ranks, own);
  alone.run(dist::single_process(), {0, length});
  const auto same = [&own](Tensor& a, Tensor& b) {
    for (std::int64_t h = 0; h < a.shape()[1]; ++h) {
      const auto at = [&](Tensor& tensor) {
        return tensor.view<float, 4>().at(0, h, own.begin);
      };
      if (std::memcmp(at(a), at(b),
                      static_cast<std::size_t>(own.size() * kDim) *
                          sizeof(float)) != 0) {
        return false;
      }
    }
    return true;
  };
  return same(spread.out, alone.out) && same(spread.d_q, alone.d_q) &&
         same(spread.d_k, alone.d_k) && same(spread.d_v, alone.d_v);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t length = argc > 1 ? std::atoll(argv[1]) : 3000;
  const auto ranks = regard::mpi::start();
  for (const std::int64_t kv_heads : {4, 1}) {
    if (is_same(*ranks, kv_heads, length)) continue;
    std::fprintf(stderr, "rank %d has other bits, with %d key-value heads\n",
                 ranks->rank(), static_cast<int>(kv_heads));
    regard::mpi::abort(1);
  }
  if (ranks->rank() == 0) std::printf("the same on %d ranks\n", ranks->size());
  return 0;
}
