// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "regard/core/error.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

namespace detail {
class KVStore;
}

enum class KVCacheKind {
  kContiguous,  // each sequence has memory of its own, doubled when it is full
  kRing,        // each sequence keeps its last tokens, and its first if wanted
  kPaged,       // sequences share a pool of pages of a fixed size
};

// What a KVCache is, decided once. What belongs to another kind is refused.
struct KVCacheOptions {
  KVCacheKind kind = KVCacheKind::kContiguous;
  // kFloat32, kBFloat16, kFloat16 (rounded to nearest, ties to even) or kInt8:
  // x becomes round(x / s) with s = max |x| / 127, one s for each token, head
  // and k or v.
  DType storage = DType::kFloat32;
  std::int64_t sequences = 1;  // at first; see resize and reorder
  std::int64_t kv_heads = 0;
  std::int64_t d_k = 0;
  std::int64_t d_v = 0;  // 0 means d_k

  // kContiguous: tokens a sequence gets room for with its first one.
  std::int64_t reserve = 0;

  // kRing: a query at position p sees keys from p - window + 1 on, and the
  // first `first_kept` of the sequence. Nothing else is promised to be kept.
  std::int64_t window = 0;
  std::int64_t first_kept = 0;

  // kPaged: the pool holds `pages` pages of `page_tokens` tokens, a multiple of
  // 16, of all heads. It is reserved at once.
  std::int64_t page_tokens = 64;
  std::int64_t pages = 0;
};

// The pool of a paged cache has not enough free pages for an append. Nothing
// was appended to any sequence: release or truncate some, then try again.
class OutOfPages : public IoError {
 public:
  using IoError::IoError;
};

// The keys and values of one attention layer, for a batch of sequences that
// grow at their end. attention_decode reads it (decode.h).
//
//   KVCache cache({.sequences = 2, .kv_heads = 8, .d_k = 64});
//   cache.append(0, k0, v0);           // a prompt: [kv_heads, tokens, d]
//   cache.append(1, k1, v1);           // another, of another length
//   for (;;) {                         // then one token each, all at once:
//     cache.append(k, v);              // [2, kv_heads, 1, d]
//     attention_decode(q, cache, out); // [2, heads, 1, d]
//   }
//
// For a prompt, call attention_forward on the k and v that are appended: it
// reads them where they are, many rows at a time, and gives the same bits.
//
// A position counts from the first token of its sequence and never changes,
// also in a ring. Elements are laid out at append as attention_decode reads
// them fastest (docs/adr/0007): a caller never sees that layout.
//
// Every call checks first and then writes: one that throws has changed nothing.
// Several threads may read at once; a call that changes the cache must be
// alone. Costs:
//   append    O(tokens appended). Contiguous: amortised beyond `reserve`, when
//             memory doubles. Paged: plus one page where the last is shared.
//   truncate  O(1); paged: O(pages given back). release likewise.
//   fork      Contiguous and ring: copies the tokens. Paged: copies the list of
//             pages, which are shared until one of the two writes to them.
//   reorder   A parent's first child takes its memory over in O(1); every
//             further child is a fork.
// All others O(1) but for prefix and load_prefix, which copy.
class KVCache {
 public:
  // Throws InvalidArgument for options that make no cache, IoError without
  // memory.
  explicit KVCache(const KVCacheOptions& options);
  ~KVCache();
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;

  const KVCacheOptions& options() const;  // with d_v filled in
  std::int64_t sequences() const;
  std::int64_t length(std::int64_t sequence) const;  // tokens so far
  std::int64_t free_pages() const;                   // of a paged cache, or 0

  // Adds tokens to the end of one sequence: k [kv_heads, tokens, d_k],
  // v [kv_heads, tokens, d_v].
  void append(std::int64_t sequence, TensorView<const float, 3> k,
              TensorView<const float, 3> v);
  // Of several, each named once: k [n, kv_heads, tokens, d_k], v likewise.
  void append(std::span<const std::int64_t> sequences,
              TensorView<const float, 4> k, TensorView<const float, 4> v);
  // Of all, in order.
  void append(TensorView<const float, 4> k, TensorView<const float, 4> v);

  // Forgets the tokens from `length` on, as when a speculation was wrong. A
  // ring goes back by at least 16 tokens: further only as long as no key in the
  // window at `length` was overwritten, else InvalidArgument.
  void truncate(std::int64_t sequence, std::int64_t length);
  // Forgets all tokens of a sequence and gives its memory back.
  void release(std::int64_t sequence);
  // Sequence `to` becomes a copy of `from`; what it held is released.
  void fork(std::int64_t from, std::int64_t to);
  // Beam search: sequence i becomes a copy of what sequence parents[i] was. As
  // many sequences as parents are left; one that is no parent is released.
  void reorder(std::span<const std::int64_t> parents);
  // The number of sequences: new ones are empty, lost ones are released.
  void resize(std::int64_t sequences);

  // The first `length` tokens of a sequence as they are stored, to be kept:
  //   "k" [kv_heads, length, d_k], "v" [kv_heads, length, d_v] of the storage's
  //   type; for int8 also "k_scale" and "v_scale" [kv_heads, length], float32.
  //
  //   save_safetensors("prompt.safetensors", cache.prefix(0, n));
  //   cache.load_prefix(1, SafetensorsFile::open(...).state_dict());
  //
  // Throws InvalidArgument where a ring has overwritten some of them.
  StateDict prefix(std::int64_t sequence, std::int64_t length) const;
  // Gives an empty sequence those tokens, bit for bit. The kind that they were
  // saved from does not matter; heads, d_k, d_v and storage must be the same,
  // else InvalidArgument.
  void load_prefix(std::int64_t sequence, const StateDict& prefix);

  // For attention_decode.
  const detail::KVStore& store() const { return *store_; }

 private:
  std::unique_ptr<detail::KVStore> store_;
};

}  // namespace regard
