// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// Which (query, key) pairs are visible: a small value built from named parts
// and joined by `&`. A pair is visible when every part says so; the default
// Mask shows everything.
//
//   Mask m = mask::causal() & mask::window(511, 0) & mask::lengths({7, 12});
//
// A Mask knows no sizes: a call brings them, and refuses a mask that does not
// fit. Parts that hold small data (lengths, documents) copy it; keep and drop
// borrow their view, which must outlive the mask.
class Mask {
 public:
  Mask() = default;
  friend Mask operator&(const Mask& a, const Mask& b);

  struct Part;  // defined in mask.cc's own header
  using Parts = std::vector<std::shared_ptr<const Part>>;
  const Parts& parts() const { return parts_; }
  explicit Mask(Parts parts) : parts_(std::move(parts)) {}

 private:
  Parts parts_;
};

namespace mask {

// Position p of query i among the keys is i + offset. The offset is chosen by
// name, because q_len != kv_len makes "causal" ambiguous.
struct Alignment {
  enum class Kind { kBottomRight, kTopLeft, kOffset };
  Kind kind = Kind::kBottomRight;
  std::int64_t offset = 0;  // of kOffset
};
inline constexpr Alignment kBottomRight{Alignment::Kind::kBottomRight, 0};
inline constexpr Alignment kTopLeft{Alignment::Kind::kTopLeft, 0};
// The first query stands at key `offset`.
constexpr Alignment at_offset(std::int64_t offset) {
  return {Alignment::Kind::kOffset, offset};
}

// key <= p. By default the last query sees the last key (kBottomRight);
// kTopLeft lets the first query see the first key only, as PyTorch's is_causal
// does.
Mask causal(Alignment alignment = kBottomRight);

// p - left <= key <= p + right. A negative width does not limit that side.
Mask window(std::int64_t left, std::int64_t right,
            Alignment alignment = kBottomRight);

// key <= p, or key < n: the first n keys are visible to all, the rest causally
// (a prefix language model).
Mask prefix(std::int64_t n, Alignment alignment = kBottomRight);

// key < lengths[batch]: padding at the end. With query lengths, the rows of
// padded queries (query >= query_lengths[batch]) see nothing.
Mask lengths(std::span<const std::int64_t> kv_lengths);
inline Mask lengths(std::initializer_list<std::int64_t> kv_lengths) {
  return lengths(std::span(kv_lengths.begin(), kv_lengths.size()));
}
Mask lengths(std::span<const std::int64_t> kv_lengths,
             std::span<const std::int64_t> query_lengths);

// The document of the query is the document of the key: sequences packed one
// after the other. Ids are [q_len] and [kv_len], the same for every batch; the
// keys of one document must stand together.
Mask documents(std::span<const std::int32_t> query_ids,
               std::span<const std::int32_t> key_ids);
Mask documents(std::span<const std::int32_t> ids);  // self attention

// A dense mask [batch or 1, heads or 1, q_len or 1, kv_len or 1], borrowed.
// keep: true is visible. drop: true is hidden.
Mask keep(TensorView<const bool, 4> pairs);
Mask drop(TensorView<const bool, 4> pairs);

// The pairs that a mask shows in a call of these sizes, as the bools that keep
// takes, shaped [batch, heads, q_len, kv_len]: to look at, or to give to
// another library. No call of regard needs it. Throws InvalidArgument where the
// mask does not fit.
Tensor visible_pairs(const Mask& mask,
                     const std::array<std::int64_t, 4>& sizes);

}  // namespace mask

}  // namespace regard
