// SPDX-License-Identifier: Apache-2.0
#include "attention/kv_store.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

namespace regard::detail {
namespace {

using kernels::kBlockKeys;
using kernels::KVLayout;
using kernels::KVStorage;

// A ring can go back by so many tokens, or serve so many queries at once.
constexpr std::int64_t kRingSlack = 16;

KVStorage storage_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return KVStorage::kBFloat16;
    case DType::kFloat16:
      return KVStorage::kFloat16;
    case DType::kInt8:
      return KVStorage::kInt8;
    default:
      return KVStorage::kFloat32;
  }
}

std::int64_t blocks_for(std::int64_t tokens) {
  return (tokens + kBlockKeys - 1) / kBlockKeys;
}

// Between a row and a lane of a k block.
template <typename T>
void scatter(const std::byte* from, std::int64_t n, std::byte* to,
             std::int64_t lane) {
  const auto* source = reinterpret_cast<const T*>(from);
  auto* target = reinterpret_cast<T*>(to) + lane;
  for (std::int64_t i = 0; i < n; ++i) target[i * kBlockKeys] = source[i];
}

template <typename T>
void gather(const std::byte* from, std::int64_t lane, std::int64_t n,
            std::byte* to) {
  const auto* source = reinterpret_cast<const T*>(from) + lane;
  auto* target = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < n; ++i) target[i] = source[i * kBlockKeys];
}

// to <- round(x / s); returns s = max |x| / 127. What is not finite has no such
// scale: NaN then, so that nobody who sees the token misses it.
float quantize(const float* x, std::int64_t n, std::int8_t* to) {
  // As integers, magnitudes order like numbers, and compilers make vectors.
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  }
  const bool finite = largest < 0x7f800000;
  const float scale = std::bit_cast<float>(largest) / 127;
  if (!finite || scale == 0) {
    std::fill(to, to + n, std::int8_t{0});
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  for (std::int64_t i = 0; i < n; ++i) {
    // Adding 1.5 * 2^23 rounds to an integer, ties to even. A scale so small
    // that it is rounded itself could lead beyond 127.
    const float q = std::clamp(x[i] / scale, -127.0f, 127.0f);
    to[i] = static_cast<std::int8_t>(
        static_cast<std::int32_t>((q + 12582912.0f) - 12582912.0f));
  }
  return scale;
}

// A row of floats as it is stored. Returns the scale of int8.
float encode(KVStorage storage, const float* row, std::int64_t n,
             std::byte* to) {
  switch (storage) {
    case KVStorage::kFloat32:
      std::memcpy(to, row, static_cast<std::size_t>(n) * sizeof(float));
      return 1;
    case KVStorage::kBFloat16:
      for (std::int64_t i = 0; i < n; ++i) {
        reinterpret_cast<BFloat16*>(to)[i] = BFloat16(row[i]);
      }
      return 1;
    case KVStorage::kFloat16:
      for (std::int64_t i = 0; i < n; ++i) {
        reinterpret_cast<Float16*>(to)[i] = Float16(row[i]);
      }
      return 1;
    case KVStorage::kInt8:
      return quantize(row, n, reinterpret_cast<std::int8_t*>(to));
  }
  return 1;
}

}  // namespace

KVStore::KVStore(const KVCacheOptions& options)
    : options_(options),
      layout_{.storage = storage_of(options.storage),
              .d_k = options.d_k,
              .d_v = options.d_v},
      first_blocks_(blocks_for(options.first_kept)),
      ring_blocks_(blocks_for(options.window + kRingSlack - 1) + 1),
      page_blocks_(options.page_tokens / kBlockKeys),
      sequences_(static_cast<std::size_t>(options.sequences)) {
  if (options.kind == KVCacheKind::kPaged) {
    pool_ = AlignedBuffer(slab_bytes(page_blocks_) *
                          static_cast<std::size_t>(options.pages));
    references_.assign(static_cast<std::size_t>(options.pages), 0);
    free_.resize(static_cast<std::size_t>(options.pages));
    for (std::size_t i = 0; i < free_.size(); ++i) {
      free_[i] = static_cast<Page>(free_.size() - 1 - i);
    }
  }
}

std::size_t KVStore::slab_bytes(std::int64_t blocks) const {
  return static_cast<std::size_t>(options_.kv_heads * blocks *
                                  (layout_.k_bytes() + layout_.v_bytes()));
}

KVStore::Place KVStore::place(const KVSequence& s, std::int64_t number) const {
  if (options_.kind == KVCacheKind::kPaged) {
    const auto page = static_cast<std::size_t>(
        s.pages[static_cast<std::size_t>(number / page_blocks_)]);
    return {
        const_cast<std::byte*>(pool_.data()) + page * slab_bytes(page_blocks_),
        page_blocks_, number % page_blocks_};
  }
  auto* const memory = const_cast<std::byte*>(s.memory.data());
  if (options_.kind == KVCacheKind::kRing && number >= first_blocks_) {
    number = first_blocks_ + (number - first_blocks_) % ring_blocks_;
  }
  return {memory, s.blocks, number};
}

std::byte* KVStore::k_block(const Place& p, std::int64_t kv_head) const {
  return p.slab + kv_head * p.blocks * (layout_.k_bytes() + layout_.v_bytes()) +
         p.index * layout_.k_bytes();
}

std::byte* KVStore::v_block(const Place& p, std::int64_t kv_head) const {
  return p.slab + kv_head * p.blocks * (layout_.k_bytes() + layout_.v_bytes()) +
         p.blocks * layout_.k_bytes() + p.index * layout_.v_bytes();
}

kernels::DecodeBlock KVStore::block(const KVSequence& s, std::int64_t kv_head,
                                    std::int64_t number) const {
  const Place at = place(s, number);
  return {k_block(at, kv_head), v_block(at, kv_head), number * kBlockKeys};
}

// ---- room ----

void KVStore::make_memory(KVSequence& s, std::int64_t blocks) const {
  if (blocks <= s.blocks) return;
  AlignedBuffer memory(slab_bytes(blocks));
  const Place from{s.memory.data(), s.blocks, 0};
  const Place to{memory.data(), blocks, 0};
  const std::int64_t used = blocks_for(s.length);
  for (std::int64_t head = 0; head < options_.kv_heads && used > 0; ++head) {
    std::memcpy(k_block(to, head), k_block(from, head),
                static_cast<std::size_t>(used * layout_.k_bytes()));
    std::memcpy(v_block(to, head), v_block(from, head),
                static_cast<std::size_t>(used * layout_.v_bytes()));
  }
  s.memory = std::move(memory);
  s.blocks = blocks;
}

// Pages that an append takes from the pool: new ones, and copies of last pages
// that others read, too. The last of those who share one may keep it.
std::int64_t KVStore::pages_wanted(std::span<const std::int64_t> sequences,
                                   std::int64_t tokens) {
  std::int64_t wanted = 0;
  std::vector<Page> left;  // whose references are lowered for the count
  left.reserve(sequences.size());
  for (const std::int64_t number : sequences) {
    const KVSequence& s = (*this)[number];
    wanted +=
        (s.length + tokens + options_.page_tokens - 1) / options_.page_tokens -
        static_cast<std::int64_t>(s.pages.size());
    if (s.length % options_.page_tokens == 0) continue;
    auto& references = references_[static_cast<std::size_t>(s.pages.back())];
    if (references == 1) continue;
    --references;
    left.push_back(s.pages.back());
    ++wanted;
  }
  for (const Page page : left) ++references_[static_cast<std::size_t>(page)];
  return wanted;
}

Page KVStore::take_page() {
  assert(!free_.empty());
  const Page page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KVStore::make_pages(KVSequence& s, std::int64_t tokens) {
  if (s.length % options_.page_tokens != 0) {
    const Page shared = s.pages.back();
    auto& references = references_[static_cast<std::size_t>(shared)];
    if (references > 1) {
      const std::size_t bytes = slab_bytes(page_blocks_);
      const Page mine = take_page();
      std::memcpy(pool_.data() + static_cast<std::size_t>(mine) * bytes,
                  pool_.data() + static_cast<std::size_t>(shared) * bytes,
                  bytes);
      --references;
      s.pages.back() = mine;
    }
  }
  while (static_cast<std::int64_t>(s.pages.size()) * options_.page_tokens <
         s.length + tokens) {
    s.pages.push_back(take_page());
  }
}

void KVStore::make_room(std::span<const std::int64_t> sequences,
                        std::int64_t tokens, const char* where) {
  if (tokens == 0) return;
  if (options_.kind == KVCacheKind::kPaged) {
    const std::int64_t wanted = pages_wanted(sequences, tokens);
    if (wanted > free_pages()) {
      throw OutOfPages(compose(
          where,
          {"the pool must have as many free pages as the tokens need; "
           "they need ",
           wanted, ", free are ", free_pages(), " of ", options_.pages}));
    }
  }
  for (const std::int64_t number : sequences) {
    KVSequence& s = sequences_[static_cast<std::size_t>(number)];
    const std::int64_t blocks = blocks_for(s.length + tokens);
    switch (options_.kind) {
      case KVCacheKind::kContiguous:
        if (blocks > s.blocks) {
          make_memory(s, std::max({blocks, 2 * s.blocks,
                                   blocks_for(options_.reserve)}));
        }
        break;
      case KVCacheKind::kRing:
        make_memory(s, first_blocks_ + ring_blocks_);
        break;
      case KVCacheKind::kPaged:
        make_pages(s, tokens);
        break;
    }
  }
}

// ---- tokens ----

bool KVStore::survives(std::int64_t token, std::int64_t end) const {
  if (options_.kind != KVCacheKind::kRing) return true;
  const std::int64_t number = token / kBlockKeys;
  return number < first_blocks_ ||
         number + ring_blocks_ > (end - 1) / kBlockKeys;
}

void KVStore::write_key(std::byte* block, std::int64_t lane, const std::byte* k,
                        float scale) const {
  switch (layout_.element_bytes()) {
    case 4:
      return scatter<float>(k, layout_.d_k, block, lane);
    case 2:
      return scatter<std::uint16_t>(k, layout_.d_k, block, lane);
    default:
      scatter<std::int8_t>(k, layout_.d_k, block, lane);
      reinterpret_cast<float*>(block + layout_.k_scales())[lane] = scale;
  }
}

void KVStore::write_value(std::byte* block, std::int64_t lane,
                          const std::byte* v, float scale) const {
  const std::int64_t bytes = layout_.d_v * layout_.element_bytes();
  const std::int64_t row = layout_.columns() * layout_.element_bytes();
  std::memcpy(block + lane * row, v, static_cast<std::size_t>(bytes));
  std::memset(block + lane * row + bytes, 0,
              static_cast<std::size_t>(row - bytes));
  if (layout_.storage == KVStorage::kInt8) {
    reinterpret_cast<float*>(block + layout_.v_scales())[lane] = scale;
  }
}

void KVStore::write_keys(std::int64_t sequence, std::int64_t kv_head,
                         const float* k, std::int64_t stride,
                         std::int64_t tokens) {
  const KVSequence& s = (*this)[sequence];
  auto* const row =
      thread_scratch(static_cast<std::size_t>(layout_.d_k) * sizeof(float));
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t token = s.length + i;
    if (!survives(token, s.length + tokens)) continue;
    const float scale =
        encode(layout_.storage, k + i * stride, layout_.d_k, row);
    write_key(k_block(place(s, token / kBlockKeys), kv_head),
              token % kBlockKeys, row, scale);
  }
}

void KVStore::write_values(std::int64_t sequence, std::int64_t kv_head,
                           const float* v, std::int64_t stride,
                           std::int64_t tokens) {
  const KVSequence& s = (*this)[sequence];
  auto* const row =
      thread_scratch(static_cast<std::size_t>(layout_.d_v) * sizeof(float));
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t token = s.length + i;
    if (!survives(token, s.length + tokens)) continue;
    const float scale =
        encode(layout_.storage, v + i * stride, layout_.d_v, row);
    write_value(v_block(place(s, token / kBlockKeys), kv_head),
                token % kBlockKeys, row, scale);
  }
}

void KVStore::grow(std::int64_t sequence, std::int64_t tokens) {
  KVSequence& s = sequences_[static_cast<std::size_t>(sequence)];
  s.length += tokens;
  if (options_.kind != KVCacheKind::kRing || s.length == 0) return;
  const std::int64_t oldest = (s.length - 1) / kBlockKeys - ring_blocks_ + 1;
  if (oldest > first_blocks_) {
    s.held_from = std::max(s.held_from, oldest * kBlockKeys);
  }
}

void KVStore::read_token(std::int64_t sequence, std::int64_t kv_head,
                         std::int64_t token, std::byte* k, std::byte* v,
                         float scales[2]) const {
  const Place at = place((*this)[sequence], token / kBlockKeys);
  const std::byte* const keys = k_block(at, kv_head);
  const std::byte* const values = v_block(at, kv_head);
  const std::int64_t lane = token % kBlockKeys;
  const std::int64_t bytes = layout_.element_bytes();
  std::memcpy(v, values + lane * layout_.columns() * bytes,
              static_cast<std::size_t>(layout_.d_v * bytes));
  if (bytes == 4) return gather<float>(keys, lane, layout_.d_k, k);
  if (bytes == 2) return gather<std::uint16_t>(keys, lane, layout_.d_k, k);
  gather<std::int8_t>(keys, lane, layout_.d_k, k);
  const auto scale_at = [lane](const std::byte* block, std::int64_t offset) {
    return reinterpret_cast<const float*>(block + offset)[lane];
  };
  scales[0] = scale_at(keys, layout_.k_scales());
  scales[1] = scale_at(values, layout_.v_scales());
}

void KVStore::write_token(std::int64_t sequence, std::int64_t kv_head,
                          std::int64_t token, const std::byte* k,
                          const std::byte* v, const float scales[2]) {
  const Place at = place((*this)[sequence], token / kBlockKeys);
  write_key(k_block(at, kv_head), token % kBlockKeys, k, scales[0]);
  write_value(v_block(at, kv_head), token % kBlockKeys, v, scales[1]);
}

// ---- sequences ----

void KVStore::give_back(KVSequence& s, std::size_t pages_left) {
  while (s.pages.size() > pages_left) {
    const Page page = s.pages.back();
    s.pages.pop_back();
    if (--references_[static_cast<std::size_t>(page)] == 0) {
      free_.push_back(page);
    }
  }
}

void KVStore::truncate(std::int64_t sequence, std::int64_t length) {
  KVSequence& s = sequences_[static_cast<std::size_t>(sequence)];
  s.length = length;
  if (length <= first_tokens()) s.held_from = 0;
  if (options_.kind == KVCacheKind::kPaged) {
    give_back(s, static_cast<std::size_t>((length + options_.page_tokens - 1) /
                                          options_.page_tokens));
  }
}

void KVStore::release(std::int64_t sequence) {
  KVSequence& s = sequences_[static_cast<std::size_t>(sequence)];
  give_back(s, 0);
  s = KVSequence();
}

KVSequence KVStore::copy_of(const KVSequence& s) const {
  KVSequence copy;
  if (options_.kind == KVCacheKind::kPaged) {
    copy.pages = s.pages;
  } else if (s.length > 0) {
    copy.memory = AlignedBuffer(s.memory.size());
    copy.blocks = s.blocks;
    const Place from{const_cast<std::byte*>(s.memory.data()), s.blocks, 0};
    const Place to{copy.memory.data(), s.blocks, 0};
    const std::int64_t used = std::min(blocks_for(s.length), s.blocks);
    for (std::int64_t head = 0; head < options_.kv_heads; ++head) {
      std::memcpy(k_block(to, head), k_block(from, head),
                  static_cast<std::size_t>(used * layout_.k_bytes()));
      std::memcpy(v_block(to, head), v_block(from, head),
                  static_cast<std::size_t>(used * layout_.v_bytes()));
    }
  }
  copy.length = s.length;
  copy.held_from = s.held_from;
  return copy;
}

void KVStore::share_pages(const KVSequence& s) {
  for (const Page page : s.pages) {
    ++references_[static_cast<std::size_t>(page)];
  }
}

void KVStore::fork(std::int64_t from, std::int64_t to) {
  if (from == to) return;
  KVSequence copy = copy_of((*this)[from]);
  share_pages(copy);
  release(to);
  sequences_[static_cast<std::size_t>(to)] = std::move(copy);
}

void KVStore::reorder(std::span<const std::int64_t> parents) {
  // All that can fail comes first: copies for every child but a parent's first.
  std::vector<KVSequence> children(parents.size());
  std::vector<bool> taken(sequences_.size(), false);
  std::vector<bool> is_first(parents.size(), false);
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const auto parent = static_cast<std::size_t>(parents[i]);
    if (taken[parent]) {
      children[i] = copy_of(sequences_[parent]);
    } else {
      taken[parent] = is_first[i] = true;
    }
  }
  for (const KVSequence& child : children) share_pages(child);
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (!taken[i]) release(static_cast<std::int64_t>(i));
  }
  for (std::size_t i = 0; i < parents.size(); ++i) {
    if (!is_first[i]) continue;
    children[i] = std::move(sequences_[static_cast<std::size_t>(parents[i])]);
  }
  sequences_ = std::move(children);
}

void KVStore::resize(std::int64_t count) {
  for (std::int64_t i = count; i < this->count(); ++i) release(i);
  sequences_.resize(static_cast<std::size_t>(count));
}

}  // namespace regard::detail
