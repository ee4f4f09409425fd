// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_decode.h"
#include "regard/attention/kv_cache.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {

// The number of a page of the pool.
using Page = std::int32_t;

// One sequence of a cache. Contiguous and ring: `memory` holds `blocks` blocks.
// Paged: page i holds the blocks from i * blocks a page on.
struct KVSequence {
  std::int64_t length = 0;
  std::int64_t held_from = 0;  // ring: the first token behind those that are
                               // always kept and not yet overwritten
  AlignedBuffer memory;
  std::int64_t blocks = 0;
  std::vector<Page> pages;
};

// What a KVCache holds. All kinds store blocks of 16 tokens in slabs: a slab of
// n blocks is [kv_heads][n k blocks, n v blocks], so that each head's keys lie
// in one stream, and so do its values. The kinds differ in how they find the
// slab of a block: a sequence's own, which grows; a sequence's own, whose
// blocks come round again; or a page. Everything here trusts its arguments:
// KVCache checks them.
class KVStore {
 public:
  explicit KVStore(const KVCacheOptions& options);

  const KVCacheOptions& options() const { return options_; }
  const kernels::KVLayout& layout() const { return layout_; }
  std::int64_t count() const {
    return static_cast<std::int64_t>(sequences_.size());
  }
  const KVSequence& operator[](std::int64_t sequence) const {
    return sequences_[static_cast<std::size_t>(sequence)];
  }
  std::int64_t free_pages() const {
    return static_cast<std::int64_t>(free_.size());
  }
  // Whether tokens [from, to) are all there.
  bool holds(std::int64_t sequence, std::int64_t from, std::int64_t to) const {
    return to <= first_tokens() || (*this)[sequence].held_from <= from;
  }

  // The block that holds token 16 * number, which must be there.
  kernels::DecodeBlock block(const KVSequence& sequence, std::int64_t kv_head,
                             std::int64_t number) const;

  // Makes room for `tokens` more in each of these sequences, whose last blocks
  // are then their own. Throws before anything is changed.
  void make_room(std::span<const std::int64_t> sequences, std::int64_t tokens,
                 const char* where);
  // Writes tokens [length, length + tokens) of one head, rows `stride` apart.
  // The length stays.
  void write_keys(std::int64_t sequence, std::int64_t kv_head, const float* k,
                  std::int64_t stride, std::int64_t tokens);
  void write_values(std::int64_t sequence, std::int64_t kv_head, const float* v,
                    std::int64_t stride, std::int64_t tokens);
  void grow(std::int64_t sequence, std::int64_t tokens);

  // One token as it is stored: elements, and the scale of int8.
  void read_token(std::int64_t sequence, std::int64_t kv_head,
                  std::int64_t token, std::byte* k, std::byte* v,
                  float scales[2]) const;
  void write_token(std::int64_t sequence, std::int64_t kv_head,
                   std::int64_t token, const std::byte* k, const std::byte* v,
                   const float scales[2]);

  void truncate(std::int64_t sequence, std::int64_t length);
  void release(std::int64_t sequence);
  void fork(std::int64_t from, std::int64_t to);
  void reorder(std::span<const std::int64_t> parents);
  void resize(std::int64_t sequences);

 private:
  struct Place {  // a block of a slab
    std::byte* slab;
    std::int64_t blocks;
    std::int64_t index;
  };
  Place place(const KVSequence& sequence, std::int64_t number) const;
  std::byte* k_block(const Place& place, std::int64_t kv_head) const;
  std::byte* v_block(const Place& place, std::int64_t kv_head) const;
  std::size_t slab_bytes(std::int64_t blocks) const;

  // Those in the blocks that a ring never overwrites.
  std::int64_t first_tokens() const {
    return first_blocks_ * kernels::kBlockKeys;
  }
  // Whether an append that ends at token `end` leaves this token's block.
  bool survives(std::int64_t token, std::int64_t end) const;
  void write_key(std::byte* block, std::int64_t lane, const std::byte* k,
                 float scale) const;
  void write_value(std::byte* block, std::int64_t lane, const std::byte* v,
                   float scale) const;

  void make_memory(KVSequence& sequence, std::int64_t blocks) const;
  std::int64_t pages_wanted(std::span<const std::int64_t> sequences,
                            std::int64_t tokens);
  void make_pages(KVSequence& sequence, std::int64_t tokens);
  Page take_page();
  void give_back(KVSequence& sequence, std::size_t pages_left);
  // A copy but for the references to its pages.
  KVSequence copy_of(const KVSequence& sequence) const;
  void share_pages(const KVSequence& sequence);

  KVCacheOptions options_;
  kernels::KVLayout layout_;
  std::int64_t first_blocks_ = 0;  // ring: blocks that are never overwritten
  std::int64_t ring_blocks_ = 0;   // ring: blocks that come round
  std::int64_t page_blocks_ = 0;
  std::vector<KVSequence> sequences_;
  AlignedBuffer pool_;
  std::vector<std::int32_t> references_;  // of each page
  std::vector<Page> free_;
};

}  // namespace regard::detail
