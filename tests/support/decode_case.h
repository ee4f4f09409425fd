// SPDX-License-Identifier: Apache-2.0
// Calls attention_decode with sequences that are AttentionCases of a batch of
// one, with caches of every kind.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "regard/attention/decode.h"
#include "support/run_attention.h"

namespace regard::test {

// A kind of cache, for sequences of any length that a test uses.
struct CacheSpec {
  const char* name;
  KVCacheKind kind = KVCacheKind::kContiguous;
  std::int64_t reserve = 0;
  std::int64_t page_tokens = 64;
  std::int64_t window = 0;
  std::int64_t first_kept = 0;
};

inline std::vector<CacheSpec> caches_that_keep_all() {
  return {
      {.name = "contiguous"},
      {.name = "reserved", .reserve = 3000},
      {.name = "ring longer than all",
       .kind = KVCacheKind::kRing,
       .window = 6000},
      {.name = "pages of 16", .kind = KVCacheKind::kPaged, .page_tokens = 16},
      {.name = "pages of 80", .kind = KVCacheKind::kPaged, .page_tokens = 80}};
}

inline KVCache make_cache(const CacheSpec& spec, const AttentionCase& c,
                          DType storage, std::int64_t sequences) {
  const bool paged = spec.kind == KVCacheKind::kPaged;
  return KVCache({.kind = spec.kind,
                  .storage = storage,
                  .sequences = sequences,
                  .kv_heads = c.kv_heads,
                  .d_k = c.d_k,
                  .d_v = c.d_v,
                  .reserve = spec.reserve,
                  .window = spec.window,
                  .first_kept = spec.first_kept,
                  .page_tokens = spec.page_tokens,
                  .pages = paged ? 20000 / spec.page_tokens : 0});
}

// Tokens [begin, end) of a case, appended to a sequence.
inline void append_tokens(KVCache& cache, std::int64_t sequence,
                          const AttentionCase& c, std::int64_t begin,
                          std::int64_t end) {
  Stored<float> k(c.k_shape(), Layout::kWithGaps, c.k);
  Stored<float> v(c.v_shape(), Layout::kLengthFirst, c.v);
  const auto part = [&](const TensorView<const float, 4>& x) {
    return TensorView<const float, 3>(x.at(0, 0, begin),
                                      {x.extent(1), end - begin, x.extent(3)},
                                      {x.stride(1), x.stride(2), 1});
  };
  if (begin == end) return;
  cache.append(sequence, part(k.const_view()), part(v.const_view()));
}

// Sequence i holds case i. Tokens come in pieces of many sizes, in turns.
inline KVCache filled_cache(const CacheSpec& spec, DType storage,
                            const std::vector<AttentionCase>& cases) {
  const auto count = static_cast<std::int64_t>(cases.size());
  KVCache cache = make_cache(spec, cases[0], storage, count);
  std::int64_t piece = 1;
  for (bool more = true; more; piece = piece * 3 % 761 + 1) {
    more = false;
    for (std::int64_t i = 0; i < count; ++i) {
      const AttentionCase& c = cases[static_cast<std::size_t>(i)];
      const std::int64_t begin = cache.length(i);
      const std::int64_t end = std::min(c.kv_len, begin + piece);
      append_tokens(cache, i, c, begin, end);
      more = more || end < c.kv_len;
    }
  }
  return cache;
}

// The last q_len queries of each case, whose options and q_len are those of
// the first. Results as those of a call each.
inline std::vector<Produced<float>> run_decode(
    const KVCache& cache, const std::vector<AttentionCase>& cases,
    int threads = 1) {
  const AttentionCase& first = cases[0];
  const auto count = static_cast<std::int64_t>(cases.size());
  std::vector<double> all;
  for (const AttentionCase& c : cases) {
    all.insert(all.end(), c.q.begin(), c.q.end());
  }
  const Extents4 q_shape{count, first.heads, first.q_len, first.d_k};
  const Extents4 out_shape{count, first.heads, first.q_len, first.d_v};
  Stored<float> q(q_shape, Layout::kLengthFirst, all);
  Stored<float> out(out_shape, Layout::kWithGaps);
  CallOptions<float> options(first);
  std::vector<float> lse(
      static_cast<std::size_t>(count * first.heads * first.q_len), 12345.0f);
  options.value.log_sum_exp = {lse.data(), {count, first.heads, first.q_len}};
  options.value.threads.count = threads;
  attention_decode(q.const_view(), cache, out.view(), options.value);
  const std::vector<float> elements = out.elements();
  const bool untouched = out.gaps_are_untouched(out_shape, Layout::kWithGaps);
  std::vector<Produced<float>> results;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto part = [&](const std::vector<float>& from) {
      const auto size = static_cast<std::ptrdiff_t>(from.size() / cases.size());
      const auto at = from.begin() + static_cast<std::ptrdiff_t>(i) * size;
      return std::vector<float>(at, at + size);
    };
    results.push_back({part(elements), part(lse), untouched});
  }
  return results;
}

// The keys and values as a cache of this type holds them.
template <typename T>
AttentionCase with_stored_keys(AttentionCase c) {
  c = rounded_to<float>(c);
  for (auto* values : {&c.k, &c.v}) {
    for (double& value : *values) value = round_to_storage<T>(value);
  }
  return c;
}

}  // namespace regard::test
