// SPDX-License-Identifier: Apache-2.0
// Attention over the ranks of MPI, by heads and by sequence, beside the same
// call in one process: mpirun -n 3 spread_attention_driver [LENGTH]. Ends with
// 1 where a bit differs.
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

bool is_same(dist::Communicator& ranks, std::int64_t kv_heads,
             std::int64_t length) {
  constexpr std::int64_t kHeads = 4, kDim = 16;
  Tensor q = random_tensor({1, kHeads, length, kDim}, 1);
  Tensor k = random_tensor({1, kv_heads, length, kDim}, 2);
  Tensor v = random_tensor({1, kv_heads, length, kDim}, 3);
  Tensor alone(q.shape()), spread(q.shape());
  const AttentionOptions options{.mask = mask::causal(),
                                 .threads = {.count = 1}};
  const auto own = dist::part_of(length, ranks.rank(), ranks.size());
  dist::attention_forward(ranks, ConstUntypedView<4>(part(q, own)),
                          ConstUntypedView<4>(part(k, own)),
                          ConstUntypedView<4>(part(v, own)),
                          UntypedView<4>(part(spread, own)), options);
  attention_forward(q.view<float, 4>(), k.view<float, 4>(), v.view<float, 4>(),
                    alone.view<float, 4>(), options);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const auto at = [&](Tensor& tensor) {
      return tensor.view<float, 4>().at(0, h, own.begin);
    };
    if (std::memcmp(
            at(alone), at(spread),
            static_cast<std::size_t>(own.size() * kDim) * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
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
