// SPDX-License-Identifier: Apache-2.0
// attention_decode, and a plain read of the same bytes by the same threads.
#include "regard/attention/decode.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kv_store.h"
#include "bench.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads every byte once, in order, and does nothing else with them.
std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto* from = reinterpret_cast<const std::uint64_t*>(data);
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t count = bytes / 8;
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Xor(a, hn::Load(d, from + i));
    b = hn::Xor(b, hn::Load(d, from + i + lanes));
    c = hn::Xor(c, hn::Load(d, from + i + 2 * lanes));
    e = hn::Xor(e, hn::Load(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::bench {
namespace {

HWY_EXPORT(read_bytes);

// The work of one split of H8 d64 in fp32.
constexpr std::size_t kChunk = 512 << 10;

struct Chunk {
  const std::byte* data;
  std::size_t bytes;
};

}  // namespace

// Several caches with the same content, used in turn, so that what is read
// comes from where all of them together fit.
struct DecodeBench {
  std::vector<KVCache> caches;
  std::vector<std::vector<Chunk>> chunks;  // of each cache
  double bytes = 0;                        // that one call reads
  Array q{}, k{}, v{};
  bool append = false;  // a token before each call
  std::size_t next = 0;
  volatile std::uint64_t keep = 0;

  KVCache& turn() {
    next = (next + 1) % caches.size();
    return caches[next];
  }
};

namespace {

// Sequence b of every copy has lengths[b] tokens of k and v.
std::unique_ptr<DecodeBench> open_bench(const Array& q, const Array& k,
                                        const Array& v,
                                        const std::int64_t* lengths,
                                        std::int64_t copies, DType storage,
                                        bool append) {
  auto bench = std::make_unique<DecodeBench>();
  bench->q = q;
  bench->k = k;
  bench->v = v;
  bench->append = append;
  const auto keys = view<const float>(k), values = view<const float>(v);
  for (std::int64_t i = 0; i < copies; ++i) {
    KVCache& cache = bench->caches.emplace_back(
        KVCacheOptions{.storage = storage,
                       .sequences = k.shape[0],
                       .kv_heads = k.shape[1],
                       .d_k = k.shape[3],
                       .d_v = v.shape[3],
                       .reserve = append ? lengths[0] + 1 : 0});
    std::vector<Chunk>& chunks = bench->chunks.emplace_back();
    for (std::int64_t b = 0; b < k.shape[0]; ++b) {
      const auto part = [&](const TensorView<const float, 4>& x) {
        return TensorView<const float, 3>(
            x.at(b), {x.extent(1), lengths[b], x.extent(3)},
            {x.stride(1), x.stride(2), 1});
      };
      cache.append(b, part(keys), part(values));
      const AlignedBuffer& memory = cache.store()[b].memory;
      for (std::size_t at = 0; at < memory.size(); at += kChunk) {
        chunks.push_back(
            {memory.data() + at, std::min(kChunk, memory.size() - at)});
      }
      if (i == 0) bench->bytes += static_cast<double>(memory.size());
    }
  }
  return bench;
}

double decode(DecodeBench& bench, float* out, int threads, std::int64_t calls) {
  const Array& q = bench.q;
  AttentionOptions options;
  options.threads.count = threads;
  const TensorView<float, 4> result{
      out, {q.shape[0], q.shape[1], q.shape[2], bench.v.shape[3]}};
  const auto token = [](const Array& a) {
    return TensorView<const float, 4>(
        static_cast<const float*>(a.data),
        {a.shape[0], a.shape[1], 1, a.shape[3]},
        {a.strides[0], a.strides[1], a.strides[2], 1});
  };
  return timed(calls, [&] {
    KVCache& cache = bench.turn();
    if (bench.append) cache.append(token(bench.k), token(bench.v));
    attention_decode(view<const float>(q), cache, result, options);
    for (std::int64_t s = 0; bench.append && s < cache.sequences(); ++s) {
      cache.truncate(s, cache.length(s) - 1);
    }
  });
}

// Bytes a second of `threads` threads, for about so many seconds.
double read_rate(DecodeBench& bench, int threads, double seconds) {
  double bytes = 0;
  const double start = now();
  for (;;) {
    bench.turn();
    const std::vector<Chunk>& chunks = bench.chunks[bench.next];
    parallel_for({threads, nullptr}, static_cast<std::int64_t>(chunks.size()),
                 [&](std::int64_t i) {
                   const Chunk& chunk = chunks[static_cast<std::size_t>(i)];
                   bench.keep = HWY_DYNAMIC_DISPATCH(read_bytes)(chunk.data,
                                                                 chunk.bytes);
                 });
    bytes += bench.bytes;
    const double spent = now() - start;
    if (spent >= seconds) return bytes / spent;
  }
}

}  // namespace
}  // namespace regard::bench

using regard::bench::Array;
using regard::bench::DecodeBench;

// storage counts fp32, bf16, fp16, int8. Null when it fails.
extern "C" DecodeBench* regard_bench_decode_open(
    const Array* q, const Array* k, const Array* v, const std::int64_t* lengths,
    std::int64_t copies, std::int32_t storage, std::int32_t append) {
  using regard::DType;
  constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16,
                              DType::kFloat16, DType::kInt8};
  return regard::bench::made([&] {
    return regard::bench::open_bench(*q, *k, *v, lengths, copies,
                                     kTypes[storage], append != 0)
        .release();
  });
}

extern "C" void regard_bench_decode_close(DecodeBench* bench) { delete bench; }

extern "C" double regard_bench_decode_bytes(const DecodeBench* bench) {
  return bench->bytes;
}

extern "C" double regard_bench_decode(DecodeBench* bench, float* out,
                                      std::int32_t threads,
                                      std::int64_t calls) {
  return regard::bench::guarded(
      [&] { return regard::bench::decode(*bench, out, threads, calls); });
}

extern "C" double regard_bench_decode_read(DecodeBench* bench,
                                           std::int32_t threads,
                                           double seconds) {
  return regard::bench::read_rate(*bench, threads, seconds);
}

#endif  // HWY_ONCE
