// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "regard/tensor/tensor_view.h"

namespace regard {

// The keys [begin, end) of one row. An empty range has begin == end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const KeyRange&) const = default;
};

enum class BlockClass { kEmpty, kFull, kMixed };

// Which (query, key) pairs are visible: a small value built from named parts
// and joined by `&`. A pair is visible when every part says so; the default
// Mask shows everything.
//
//   Mask m = mask::causal() & mask::window(511, 0) & mask::lengths({7, 12});
//
// A Mask knows no sizes; BoundMask gives it those of a call. Parts that hold
// small data (lengths, documents) copy it; keep and drop borrow their view,
// which must outlive the mask.
class Mask {
 public:
  Mask() = default;
  friend Mask operator&(const Mask& a, const Mask& b);
  bool shows_everything() const { return parts_.empty(); }

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

}  // namespace mask

// The sizes a mask is asked about.
struct MaskSizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  // In a packed call the lengths of every sequence are its own, so the mask is
  // bound once for each: batch counts all sequences, and only this entry is
  // checked and may be asked about; dense and document parts, which have one
  // size for all, are refused. Negative: every entry.
  std::int64_t only_batch = -1;
};

// One dense part: row(batch, head, query) points at kv_len bools; a pair is
// visible when its bool equals `visible_when`.
struct DensePart {
  TensorView<const bool, 4> pairs;
  bool visible_when = true;

  const bool* row(std::int64_t batch, std::int64_t head,
                  std::int64_t query) const {
    return pairs.at(pairs.extent(0) == 1 ? 0 : batch,
                    pairs.extent(1) == 1 ? 0 : head,
                    pairs.extent(2) == 1 ? 0 : query);
  }
};

// A mask under the sizes of one call. Every part but a dense one leaves a row
// one range of keys, and so does a dense part that is broadcast along the keys.
// So a mask is: a range for each (batch, head, query), and a short list of
// dense parts that vary along the keys.
class BoundMask {
 public:
  // Throws InvalidArgument, in the name of `where`, if a part does not fit the
  // sizes. Shares the mask's parts; allocates nothing for an empty mask.
  BoundMask(const Mask& mask, const MaskSizes& sizes, const char* where);

  const MaskSizes& sizes() const { return sizes_; }

  // What all parts leave of a row, but for the dense parts in dense().
  KeyRange range(std::int64_t batch, std::int64_t head,
                 std::int64_t query) const;
  // True when range() depends on nothing: every row sees [0, kv_len).
  bool ranges_are_full() const { return rules_.empty(); }

  std::span<const DensePart> dense() const { return dense_; }

  bool visible(std::int64_t batch, std::int64_t head, std::int64_t query,
               std::int64_t key) const;

  // Of the pairs of queries [q.begin, q.end) and keys [k.begin, k.end): none,
  // all, or some visible. Exact, not a guess. An empty rectangle is kEmpty.
  BlockClass classify(std::int64_t batch, std::int64_t head, KeyRange queries,
                      KeyRange keys) const;

 private:
  // One part that leaves a row one range, ready for these sizes.
  struct Rule {
    enum class Kind { kBand, kLengths, kDocuments, kDenseRow };
    Kind kind = Kind::kBand;
    // Of kBand: the keys [query + low, max(query + high, shown)).
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::int64_t shown = 0;
    const Mask::Part* part = nullptr;
  };
  KeyRange apply(const Rule& rule, std::int64_t batch, std::int64_t head,
                 std::int64_t query) const;
  bool leaves_all(const Rule& rule) const;
  void add(const Mask::Part& part, const char* where);

  MaskSizes sizes_;
  Mask mask_;
  std::vector<Rule> rules_;
  std::vector<DensePart> dense_;
};

}  // namespace regard
