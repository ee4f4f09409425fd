// SPDX-License-Identifier: Apache-2.0
// A mask under the sizes of one call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/mask/mask.h"

namespace regard {

// The keys [begin, end) of one row. An empty range has begin == end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const KeyRange&) const = default;
};

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
