// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/decode.h"

#include "capi/arguments.h"

namespace {

using namespace regard;        // NOLINT: the C functions stand outside of it
using namespace regard::capi;  // NOLINT

KVCacheKind kind_of(regard_kv_cache_kind kind, const char* where) {
  switch (kind) {
    case REGARD_CONTIGUOUS:
      return KVCacheKind::kContiguous;
    case REGARD_RING:
      return KVCacheKind::kRing;
    case REGARD_PAGED:
      return KVCacheKind::kPaged;
    default:
      break;
  }
  require(false, where, "kind must be one of regard_kv_cache_kind; it is ",
          kind);
  return {};
}

template <int Rank>
TensorView<const float, Rank> floats(const regard_tensor* given,
                                     const char* where, const char* name) {
  return typed_view<const float, Rank>(&not_null(given, where, name), where,
                                       name);
}

}  // namespace

regard_status regard_kv_cache_create(const regard_kv_cache_options* options,
                                     regard_kv_cache** cache) {
  constexpr const char* kWhere = "regard_kv_cache_create";
  return create(cache, kWhere, "cache", [&] {
    const auto from = read_struct(options, kWhere, "options");
    KVCacheOptions to{
        .kind = kind_of(from.kind, kWhere),
        .storage = capi::dtype_of(from.storage, kWhere, "storage"),
        .sequences = from.sequences,
        .kv_heads = from.kv_heads,
        .d_k = from.d_k,
        .d_v = from.d_v,
        .reserve = from.reserve,
        .window = from.window,
        .first_kept = from.first_kept,
        .pages = from.pages};
    if (from.page_tokens != 0) to.page_tokens = from.page_tokens;
    return KVCache(to);
  });
}

void regard_kv_cache_free(regard_kv_cache* cache) { delete cache; }

regard_status regard_kv_cache_append(regard_kv_cache* cache,
                                     const int64_t* sequences, int64_t n,
                                     const regard_tensor* k,
                                     const regard_tensor* v) {
  constexpr const char* kWhere = "regard_kv_cache_append";
  return guarded([&] {
    KVCache& to = not_null(cache, kWhere, "cache").cache;
    const auto k_view = floats<4>(k, kWhere, "k");
    const auto v_view = floats<4>(v, kWhere, "v");
    if (sequences == nullptr) return to.append(k_view, v_view);
    to.append(span_of(sequences, n, kWhere, "sequences"), k_view, v_view);
  });
}

regard_status regard_kv_cache_length(const regard_kv_cache* cache,
                                     int64_t sequence, int64_t* length) {
  constexpr const char* kWhere = "regard_kv_cache_length";
  return guarded([&] {
    const KVCache& of = not_null(cache, kWhere, "cache").cache;
    not_null(length, kWhere, "length") = of.length(sequence);
  });
}

regard_status regard_kv_cache_truncate(regard_kv_cache* cache, int64_t sequence,
                                       int64_t length) {
  return guarded([&] {
    not_null(cache, "regard_kv_cache_truncate", "cache")
        .cache.truncate(sequence, length);
  });
}

regard_status regard_kv_cache_release(regard_kv_cache* cache,
                                      int64_t sequence) {
  return guarded([&] {
    not_null(cache, "regard_kv_cache_release", "cache").cache.release(sequence);
  });
}

regard_status regard_kv_cache_fork(regard_kv_cache* cache, int64_t from,
                                   int64_t to) {
  return guarded([&] {
    not_null(cache, "regard_kv_cache_fork", "cache").cache.fork(from, to);
  });
}

regard_status regard_kv_cache_reorder(regard_kv_cache* cache,
                                      const int64_t* parents, int64_t n) {
  constexpr const char* kWhere = "regard_kv_cache_reorder";
  return guarded([&] {
    not_null(cache, kWhere, "cache")
        .cache.reorder(span_of(parents, n, kWhere, "parents"));
  });
}

regard_status regard_kv_cache_resize(regard_kv_cache* cache,
                                     int64_t sequences) {
  return guarded([&] {
    not_null(cache, "regard_kv_cache_resize", "cache").cache.resize(sequences);
  });
}

regard_status regard_attention_decode(const regard_tensor* q,
                                      const regard_kv_cache* cache,
                                      const int64_t* sequences, int64_t n,
                                      const regard_tensor* out,
                                      const regard_attention_options* options) {
  constexpr const char* kWhere = "regard_attention_decode";
  return guarded([&] {
    const KVCache& from = not_null(cache, kWhere, "cache").cache;
    const auto q_view = floats<4>(q, kWhere, "q");
    const auto out_view =
        typed_view<float, 4>(&not_null(out, kWhere, "out"), kWhere, "out");
    const auto typed = options_of<float>(options, kWhere);
    if (sequences == nullptr) {
      return attention_decode(q_view, from, out_view, typed);
    }
    attention_decode(q_view, from, span_of(sequences, n, kWhere, "sequences"),
                     out_view, typed);
  });
}
