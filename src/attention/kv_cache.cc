// SPDX-License-Identifier: Apache-2.0
// The public side of the cache: every rule is checked here, before KVStore
// changes anything.
#include "regard/attention/kv_cache.h"

#include <algorithm>
#include <vector>

#include "attention/kv_store.h"

namespace regard {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31;

void check_kind(const KVCacheOptions& o, const char* where) {
  const bool ring = o.kind == KVCacheKind::kRing;
  const bool paged = o.kind == KVCacheKind::kPaged;
  require(o.reserve == 0 || (!ring && !paged), where,
          "reserve is for a contiguous cache; it is ", o.reserve);
  require(o.reserve >= 0 && o.reserve < kMaxTokens, where,
          "reserve must lie in [0, 2^31); it is ", o.reserve);
  require(ring || (o.window == 0 && o.first_kept == 0), where,
          "window and first_kept are for a ring; they are ", o.window, " and ",
          o.first_kept);
  require(!ring || (o.window > 0 && o.window < kMaxTokens), where,
          "the window of a ring must lie in [1, 2^31); it is ", o.window);
  require(o.first_kept >= 0 && o.first_kept < kMaxTokens, where,
          "first_kept must lie in [0, 2^31); it is ", o.first_kept);
  require(paged || o.pages == 0, where,
          "pages are for a paged cache; there are ", o.pages);
  if (!paged) return;
  require(o.page_tokens > 0 && o.page_tokens % kernels::kBlockKeys == 0, where,
          "page_tokens must be a positive multiple of 16; it is ",
          o.page_tokens);
  require(o.pages > 0 && o.page_tokens < kMaxTokens &&
              o.pages < kMaxTokens / o.page_tokens,
          where,
          "a paged cache needs at least one page, and less than 2^31 tokens in "
          "all; pages are ",
          o.pages, ", of ", o.page_tokens, " tokens");
}

KVCacheOptions checked(KVCacheOptions o) {
  constexpr const char* kWhere = "KVCache";
  constexpr std::int64_t kMaxWidth = 1 << 24;
  if (o.d_v == 0) o.d_v = o.d_k;
  require(o.storage == DType::kFloat32 || o.storage == DType::kBFloat16 ||
              o.storage == DType::kFloat16 || o.storage == DType::kInt8,
          kWhere, "storage must be float32, bfloat16, float16 or int8; it is ",
          to_string(o.storage));
  require(o.sequences >= 0 && o.sequences < kMaxTokens, kWhere,
          "sequences must lie in [0, 2^31); it is ", o.sequences);
  const auto sized = [](std::int64_t n) { return n > 0 && n <= kMaxWidth; };
  require(
      sized(o.kv_heads) && sized(o.d_k) && sized(o.d_v) &&
          o.d_k + o.d_v <= kMaxWidth / o.kv_heads,
      kWhere,
      "kv_heads, d_k and d_v must be positive and kv_heads * (d_k + d_v) at "
      "most 2^24; they are ",
      o.kv_heads, ", ", o.d_k, " and ", o.d_v);
  check_kind(o, kWhere);
  return o;
}

void check_sequence(const detail::KVStore& store, std::int64_t sequence,
                    const char* where) {
  require(sequence >= 0 && sequence < store.count(), where,
          "a sequence must lie in [0, ", store.count(), "); it is ", sequence);
}

// k and v of an append but for the first extent, which says how many sequences.
template <int Rank>
void check_tokens(const KVCacheOptions& o,
                  const TensorView<const float, Rank>& k,
                  const TensorView<const float, Rank>& v, const char* where) {
  const std::int64_t tokens = k.extent(Rank - 2);
  require(k.extent(Rank - 3) == o.kv_heads && k.extent(Rank - 1) == o.d_k,
          where, "k must be [..., kv_heads, tokens, d_k] = [..., ", o.kv_heads,
          ", tokens, ", o.d_k, "]; it is ", ShapeText{k.shape()});
  require(v.extent(Rank - 3) == o.kv_heads && v.extent(Rank - 2) == tokens &&
              v.extent(Rank - 1) == o.d_v,
          where, "v must be [..., kv_heads, tokens, d_v] = [..., ", o.kv_heads,
          ", ", tokens, ", ", o.d_v, "]; it is ", ShapeText{v.shape()});
}

void check_length(std::int64_t length, std::int64_t tokens, const char* where) {
  require(tokens < kMaxTokens && length + tokens < kMaxTokens, where,
          "a sequence must stay shorter than 2^31 tokens; it has ", length,
          ", more come: ", tokens);
}

// The tensors of a saved prefix, by name.
struct PrefixTensors {
  const Tensor* k = nullptr;
  const Tensor* v = nullptr;
  const Tensor* k_scale = nullptr;
  const Tensor* v_scale = nullptr;
};

const Tensor* find(const StateDict& state, const char* name, DType dtype,
                   const Shape& shape, const char* where) {
  const auto found = state.find(name);
  require(found != state.end(), where, "the prefix must have the tensor ", name,
          "; it has ", state.size(), " others");
  const Tensor& tensor = found->second;
  // A negative extent: any length.
  bool fits = tensor.dtype() == dtype && tensor.shape().size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || shape[i] == tensor.shape()[i];
  }
  require(fits, where, name, " must be ", to_string(dtype), " ",
          ShapeText{shape}, " (-1: any length); it is ",
          to_string(tensor.dtype()), " ", ShapeText{tensor.shape()});
  return &tensor;
}

PrefixTensors find_tensors(const KVCacheOptions& o, const StateDict& state,
                           const char* where) {
  PrefixTensors t;
  t.k = find(state, "k", o.storage, {o.kv_heads, -1, o.d_k}, where);
  const std::int64_t tokens = t.k->shape()[1];
  t.v = find(state, "v", o.storage, {o.kv_heads, tokens, o.d_v}, where);
  const bool scaled = o.storage == DType::kInt8;
  if (scaled) {
    const Shape scales{o.kv_heads, tokens};
    t.k_scale = find(state, "k_scale", DType::kFloat32, scales, where);
    t.v_scale = find(state, "v_scale", DType::kFloat32, scales, where);
  }
  const std::size_t wanted = scaled ? 4 : 2;
  require(state.size() == wanted, where, "the prefix must have ", wanted,
          " tensors; it has ", state.size());
  return t;
}

}  // namespace

KVCache::KVCache(const KVCacheOptions& options)
    : store_(std::make_unique<detail::KVStore>(checked(options))) {}
KVCache::~KVCache() = default;
KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;

const KVCacheOptions& KVCache::options() const { return store_->options(); }
std::int64_t KVCache::sequences() const { return store_->count(); }
std::int64_t KVCache::free_pages() const { return store_->free_pages(); }

std::int64_t KVCache::length(std::int64_t sequence) const {
  check_sequence(*store_, sequence, "KVCache::length");
  return (*store_)[sequence].length;
}

void KVCache::append(std::int64_t sequence, TensorView<const float, 3> k,
                     TensorView<const float, 3> v) {
  constexpr const char* kWhere = "KVCache::append";
  check_tokens(options(), k, v, kWhere);
  const auto as_batch = [](const TensorView<const float, 3>& x) {
    return TensorView<const float, 4>(
        x.data(), {1, x.extent(0), x.extent(1), x.extent(2)},
        {0, x.stride(0), x.stride(1), 1});
  };
  append({&sequence, 1}, as_batch(k), as_batch(v));
}

void KVCache::append(TensorView<const float, 4> k,
                     TensorView<const float, 4> v) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(sequences()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  append(all, k, v);
}

void KVCache::append(std::span<const std::int64_t> sequences,
                     TensorView<const float, 4> k,
                     TensorView<const float, 4> v) {
  constexpr const char* kWhere = "KVCache::append";
  const auto count = static_cast<std::int64_t>(sequences.size());
  const std::int64_t tokens = k.extent(2);
  check_tokens(options(), k, v, kWhere);
  require(k.extent(0) == count && v.extent(0) == count, kWhere,
          "k and v must have one batch entry a sequence; sequences are ", count,
          ", k is ", ShapeText{k.shape()}, ", v is ", ShapeText{v.shape()});
  if (count > 1) {
    std::vector<bool> named(static_cast<std::size_t>(store_->count()), false);
    for (const std::int64_t s : sequences) {
      check_sequence(*store_, s, kWhere);
      require(!named[static_cast<std::size_t>(s)], kWhere,
              "a sequence may be named once; twice came ", s);
      named[static_cast<std::size_t>(s)] = true;
    }
  }
  for (const std::int64_t s : sequences) {
    check_sequence(*store_, s, kWhere);
    check_length((*store_)[s].length, tokens, kWhere);
  }
  store_->make_room(sequences, tokens, kWhere);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t s = sequences[static_cast<std::size_t>(i)];
    for (std::int64_t head = 0; head < options().kv_heads; ++head) {
      store_->write_keys(s, head, k.at(i, head), k.stride(2), tokens);
      store_->write_values(s, head, v.at(i, head), v.stride(2), tokens);
    }
    store_->grow(s, tokens);
  }
}

void KVCache::truncate(std::int64_t sequence, std::int64_t length) {
  constexpr const char* kWhere = "KVCache::truncate";
  check_sequence(*store_, sequence, kWhere);
  const std::int64_t now = (*store_)[sequence].length;
  require(length >= 0 && length <= now, kWhere, "length must lie in [0, ", now,
          "]; it is ", length);
  const std::int64_t from =
      std::max<std::int64_t>(0, length - options().window);
  require(length == now || store_->holds(sequence, from, length), kWhere,
          "the ring must still hold the window at the new length, the tokens [",
          from, ", ", length, "); it holds those from ",
          (*store_)[sequence].held_from, " on");
  store_->truncate(sequence, length);
}

void KVCache::release(std::int64_t sequence) {
  check_sequence(*store_, sequence, "KVCache::release");
  store_->release(sequence);
}

void KVCache::fork(std::int64_t from, std::int64_t to) {
  check_sequence(*store_, from, "KVCache::fork");
  check_sequence(*store_, to, "KVCache::fork");
  store_->fork(from, to);
}

void KVCache::reorder(std::span<const std::int64_t> parents) {
  for (const std::int64_t parent : parents) {
    check_sequence(*store_, parent, "KVCache::reorder");
  }
  store_->reorder(parents);
}

void KVCache::resize(std::int64_t sequences) {
  require(sequences >= 0 && sequences < kMaxTokens, "KVCache::resize",
          "sequences must lie in [0, 2^31); it is ", sequences);
  store_->resize(sequences);
}

StateDict KVCache::prefix(std::int64_t sequence, std::int64_t length) const {
  constexpr const char* kWhere = "KVCache::prefix";
  check_sequence(*store_, sequence, kWhere);
  const std::int64_t now = (*store_)[sequence].length;
  require(length >= 0 && length <= now, kWhere, "length must lie in [0, ", now,
          "]; it is ", length);
  require(store_->holds(sequence, 0, length), kWhere,
          "the ring must still hold every token; the first after those that "
          "are kept is ",
          (*store_)[sequence].held_from);
  const KVCacheOptions& o = options();
  Tensor k(o.storage, {o.kv_heads, length, o.d_k});
  Tensor v(o.storage, {o.kv_heads, length, o.d_v});
  const bool scaled = o.storage == DType::kInt8;
  Tensor k_scale({scaled ? o.kv_heads : 0, length});
  Tensor v_scale({scaled ? o.kv_heads : 0, length});
  const auto size = static_cast<std::int64_t>(size_of(o.storage));
  for (std::int64_t head = 0; head < o.kv_heads; ++head) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t at = head * length + i;
      float scales[2] = {};
      store_->read_token(sequence, head, i, k.bytes() + at * o.d_k * size,
                         v.bytes() + at * o.d_v * size, scales);
      if (!scaled) continue;
      k_scale.values<float>()[static_cast<std::size_t>(at)] = scales[0];
      v_scale.values<float>()[static_cast<std::size_t>(at)] = scales[1];
    }
  }
  StateDict state;
  state.emplace("k", std::move(k));
  state.emplace("v", std::move(v));
  if (scaled) {
    state.emplace("k_scale", std::move(k_scale));
    state.emplace("v_scale", std::move(v_scale));
  }
  return state;
}

void KVCache::load_prefix(std::int64_t sequence, const StateDict& prefix) {
  constexpr const char* kWhere = "KVCache::load_prefix";
  check_sequence(*store_, sequence, kWhere);
  require((*store_)[sequence].length == 0, kWhere,
          "the sequence must be empty; it has tokens: ",
          (*store_)[sequence].length);
  const KVCacheOptions& o = options();
  const PrefixTensors t = find_tensors(o, prefix, kWhere);
  const std::int64_t length = t.k->shape()[1];
  check_length(0, length, kWhere);
  store_->make_room({&sequence, 1}, length, kWhere);
  const auto size = static_cast<std::int64_t>(size_of(o.storage));
  for (std::int64_t head = 0; head < o.kv_heads; ++head) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t at = head * length + i;
      float scales[2] = {};
      if (t.k_scale != nullptr) {
        scales[0] = t.k_scale->values<float>()[static_cast<std::size_t>(at)];
        scales[1] = t.v_scale->values<float>()[static_cast<std::size_t>(at)];
      }
      store_->write_token(sequence, head, i, t.k->bytes() + at * o.d_k * size,
                          t.v->bytes() + at * o.d_v * size, scales);
    }
  }
  store_->grow(sequence, length);
}

}  // namespace regard
