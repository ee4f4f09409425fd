// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/attention.h"

#include "bench.h"

namespace regard::bench {
namespace {

Mask make_mask(const AttentionCase& c) {
  switch (c.mask) {
    case MaskKind::kNone:
      return {};
    case MaskKind::kCausal:
      return mask::causal();
    case MaskKind::kWindow:
      return mask::window(c.window - 1, 0);
    case MaskKind::kDense:
      return mask::keep({c.dense, {1, 1, c.q.shape[2], c.k.shape[2]}});
  }
  return {};
}

template <typename T>
double run(const AttentionCase& c, std::int64_t calls) {
  AttentionOptions options;
  options.mask = make_mask(c);
  options.dropout = {c.dropout_rate, c.dropout_seed};
  options.threads.count = c.threads;
  if (c.in_bf16 != 0) options.compute = Compute::kBFloat16;
  const auto q = view<const T>(c.q);
  const auto k = view<const T>(c.k);
  const auto v = view<const T>(c.v);
  const auto out = view<T>(c.out);
  return timed(calls, [&] { attention_forward(q, k, v, out, options); });
}

}  // namespace
}  // namespace regard::bench

extern "C" double regard_bench_attention(const regard::bench::AttentionCase* c,
                                         std::int64_t calls) {
  using regard::bench::ElementType;
  return regard::bench::guarded([&] {
    switch (c->type) {
      case ElementType::kFloat32:
        return regard::bench::run<float>(*c, calls);
      case ElementType::kBFloat16:
        return regard::bench::run<regard::BFloat16>(*c, calls);
      case ElementType::kFloat16:
        return regard::bench::run<regard::Float16>(*c, calls);
    }
    return regard::bench::fail("attention: no such element type");
  });
}
