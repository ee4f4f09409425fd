// SPDX-License-Identifier: Apache-2.0
// The parts as the user names them. Rules that need sizes wait for BoundMask,
// and so do the others: an error should name the call that the mask was meant
// for.
#include "regard/mask/mask.h"

#include <algorithm>
#include <unordered_map>

#include "mask/parts.h"

namespace regard {
namespace {

template <typename What>
Mask one_part(What what) {
  return Mask({std::make_shared<const Mask::Part>(
      Mask::Part{.what = std::move(what)})});
}

// Far beyond any length, and sums of three still fit in 64 bits.
constexpr std::int64_t kFar = std::int64_t{1} << 60;

Mask band(std::int64_t left, std::int64_t right, std::int64_t shown,
          mask::Alignment alignment) {
  alignment.offset = std::clamp(alignment.offset, -kFar, kFar);
  return one_part(BandPart{.left = std::min(left, kFar),
                           .right = std::min(right, kFar),
                           .shown = std::min(shown, kFar),
                           .alignment = alignment});
}

}  // namespace

Mask operator&(const Mask& a, const Mask& b) {
  Mask::Parts parts = a.parts_;
  parts.insert(parts.end(), b.parts_.begin(), b.parts_.end());
  return Mask(std::move(parts));
}

namespace mask {

Mask causal(Alignment alignment) { return band(-1, 0, 0, alignment); }

Mask window(std::int64_t left, std::int64_t right, Alignment alignment) {
  return band(left, right, 0, alignment);
}

Mask prefix(std::int64_t n, Alignment alignment) {
  return band(-1, 0, n, alignment);
}

Mask lengths(std::span<const std::int64_t> kv_lengths) {
  return one_part(
      LengthsPart{.kv_lengths = {kv_lengths.begin(), kv_lengths.end()},
                  .query_lengths = std::nullopt});
}

Mask lengths(std::span<const std::int64_t> kv_lengths,
             std::span<const std::int64_t> query_lengths) {
  return one_part(
      LengthsPart{.kv_lengths = {kv_lengths.begin(), kv_lengths.end()},
                  .query_lengths = std::vector<std::int64_t>(
                      query_lengths.begin(), query_lengths.end())});
}

Mask documents(std::span<const std::int32_t> query_ids,
               std::span<const std::int32_t> key_ids) {
  DocumentsPart part;
  part.kv_len = static_cast<std::int64_t>(key_ids.size());
  std::unordered_map<std::int32_t, KeyRange> documents;
  for (std::int64_t key = 0; key < part.kv_len; ++key) {
    const auto [place, is_new] =
        documents.try_emplace(key_ids[key], KeyRange{key, key});
    KeyRange& range = place->second;
    if (range.end != key && !part.torn_at) part.torn_at = key;
    range.end = key + 1;
  }
  part.ranges.reserve(query_ids.size());
  for (const std::int32_t id : query_ids) {
    const auto found = documents.find(id);
    part.ranges.push_back(found == documents.end() ? KeyRange{}
                                                   : found->second);
  }
  return one_part(std::move(part));
}

Mask documents(std::span<const std::int32_t> ids) {
  return documents(ids, ids);
}

Mask keep(TensorView<const bool, 4> pairs) {
  return one_part(DensePart{.pairs = pairs, .visible_when = true});
}

Mask drop(TensorView<const bool, 4> pairs) {
  return one_part(DensePart{.pairs = pairs, .visible_when = false});
}

}  // namespace mask
}  // namespace regard
