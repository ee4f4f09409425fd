// SPDX-License-Identifier: Apache-2.0
// A mask under the sizes of one call: checked, and reduced to ranges of keys
// and the dense parts that vary along them.
#include "mask/bound_mask.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "mask/parts.h"

namespace regard {
namespace {

// What b leaves of a; empty or not, it lies within a.
KeyRange intersect(KeyRange a, KeyRange b) {
  const std::int64_t begin = std::min(std::max(a.begin, b.begin), a.end);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::int64_t count(const auto& values) {
  return static_cast<std::int64_t>(values.size());
}

struct EntryRange {
  std::int64_t begin, end;
};
// Those of `batch` entries that may be asked about: of packed sequences, each
// binds the mask anew, and must not look at all the others.
EntryRange entries_of(const MaskSizes& sizes, std::int64_t batch) {
  if (sizes.only_batch < 0 || batch <= 1) return {0, batch};
  return {sizes.only_batch, sizes.only_batch + 1};
}

void check_lengths(std::span<const std::int64_t> lengths, const char* name,
                   std::int64_t limit, const MaskSizes& sizes,
                   const char* where) {
  require(count(lengths) == sizes.batch, where, "mask lengths need one ", name,
          " length for each batch entry; batch is ", sizes.batch,
          ", lengths are ", lengths.size());
  const EntryRange entries = entries_of(sizes, sizes.batch);
  for (std::int64_t b = entries.begin; b < entries.end; ++b) {
    require(lengths[b] >= 0 && lengths[b] <= limit, where, "a mask's ", name,
            " length must lie in [0, ", limit, "]; that of batch entry ", b,
            " is ", lengths[b]);
  }
}

void check(const LengthsPart& part, const MaskSizes& sizes, const char* where) {
  check_lengths(part.kv_lengths, "key", sizes.kv_len, sizes, where);
  if (part.query_lengths) {
    check_lengths(*part.query_lengths, "query", sizes.q_len, sizes, where);
  }
}

void check(const DocumentsPart& part, const MaskSizes& sizes,
           const char* where) {
  require(count(part.ranges) == sizes.q_len && part.kv_len == sizes.kv_len,
          where,
          "mask documents need an id for each query and each key; q_len is ",
          sizes.q_len, ", kv_len is ", sizes.kv_len, ", ids are ",
          part.ranges.size(), " and ", part.kv_len);
  require(!part.torn_at, where,
          "the keys of one document must stand together; key ",
          part.torn_at.value_or(0),
          " belongs to a document that ended before it");
}

void check(const DensePart& part, const MaskSizes& sizes, const char* where) {
  const char* name = part.visible_when ? "keep" : "drop";
  const auto& shape = part.pairs.shape();
  const std::array<std::int64_t, 4> full{sizes.batch, sizes.heads, sizes.q_len,
                                         sizes.kv_len};
  bool fits = true;
  for (std::size_t i = 0; i < full.size(); ++i) {
    fits = fits && (shape[i] == 1 || shape[i] == full[i]);
  }
  require(fits || !part.pairs.is_null(), where, "mask ", name,
          " needs a view; it was given none");
  require(fits, where, "each extent of mask ", name, " must be 1 or that of ",
          ShapeText{full}, "; the view is ", ShapeText{shape});
}

}  // namespace

BoundMask::BoundMask(const Mask& mask, const MaskSizes& sizes,
                     const char* where)
    : sizes_(sizes), mask_(mask) {
  for (const auto& part : mask_.parts()) add(*part, where);
}

void BoundMask::add(const Mask::Part& part, const char* where) {
  require(sizes_.only_batch < 0 ||
              std::holds_alternative<BandPart>(part.what) ||
              std::holds_alternative<LengthsPart>(part.what),
          where,
          "mask keep, drop and documents cannot be used with packed sequences");
  Rule rule{.part = &part};
  if (const auto* band = std::get_if<BandPart>(&part.what)) {
    require(band->shown >= 0, where,
            "the prefix of a mask must not be negative; it is ", band->shown);
    using Kind = mask::Alignment::Kind;
    const Kind kind = band->alignment.kind;
    const std::int64_t offset =
        kind == Kind::kBottomRight ? sizes_.kv_len - sizes_.q_len
        : kind == Kind::kTopLeft   ? 0
                                   : band->alignment.offset;
    // An open side reaches past every key of every query.
    rule.low = band->left < 0 ? -sizes_.q_len : offset - band->left;
    rule.high = band->right < 0 ? sizes_.kv_len : offset + band->right + 1;
    rule.shown = band->shown;
  } else if (const auto* lengths = std::get_if<LengthsPart>(&part.what)) {
    check(*lengths, sizes_, where);
    rule.kind = Rule::Kind::kLengths;
  } else if (const auto* docs = std::get_if<DocumentsPart>(&part.what)) {
    check(*docs, sizes_, where);
    rule.kind = Rule::Kind::kDocuments;
  } else {
    const auto& dense = std::get<DensePart>(part.what);
    check(dense, sizes_, where);
    if (dense.pairs.extent(3) == sizes_.kv_len) {
      dense_.push_back(dense);
      return;
    }
    rule.kind = Rule::Kind::kDenseRow;
  }
  if (!leaves_all(rule)) rules_.push_back(rule);
}

KeyRange BoundMask::apply(const Rule& rule, std::int64_t batch,
                          std::int64_t head, std::int64_t query) const {
  switch (rule.kind) {
    case Rule::Kind::kBand:
      return {query + rule.low, std::max(query + rule.high, rule.shown)};
    case Rule::Kind::kLengths: {
      const auto& part = *std::get_if<LengthsPart>(&rule.part->what);
      const bool is_padding =
          part.query_lengths && query >= (*part.query_lengths)[batch];
      return {0, is_padding ? 0 : part.kv_lengths[batch]};
    }
    case Rule::Kind::kDocuments:
      return std::get_if<DocumentsPart>(&rule.part->what)->ranges[query];
    case Rule::Kind::kDenseRow: {
      const auto& part = *std::get_if<DensePart>(&rule.part->what);
      const bool is_visible =
          *part.row(batch, head, query) == part.visible_when;
      return {0, is_visible ? sizes_.kv_len : 0};
    }
  }
  assert(false);
  return {};
}

// Rules that change nothing are left out, so that a call with, say, a causal
// mask and one query runs as one without a mask. Tells in O(1) for a band and
// in the size of the part's own data for the others.
bool BoundMask::leaves_all(const Rule& rule) const {
  const std::int64_t kv_len = sizes_.kv_len;
  const auto covers = [&](std::int64_t b, std::int64_t h, std::int64_t q) {
    const KeyRange range = apply(rule, b, h, q);
    return kv_len == 0 || (range.begin <= 0 && range.end >= kv_len);
  };
  if (sizes_.batch == 0 || sizes_.heads == 0 || sizes_.q_len == 0) return true;
  const std::int64_t last = sizes_.q_len - 1;
  if (rule.kind == Rule::Kind::kBand) {
    // Both ends rise with the query: the first has the lowest end, the last the
    // highest begin.
    return covers(0, 0, 0) && covers(0, 0, last);
  }
  const bool is_dense = rule.kind == Rule::Kind::kDenseRow;
  const auto extent = [&](int dim, std::int64_t full) {
    return is_dense ? std::get<DensePart>(rule.part->what).pairs.extent(dim)
                    : full;
  };
  const bool by_batch = rule.kind != Rule::Kind::kDocuments;
  const EntryRange batches =
      entries_of(sizes_, by_batch ? extent(0, sizes_.batch) : 1);
  const std::int64_t heads = extent(1, 1);
  const std::int64_t queries = extent(2, sizes_.q_len);
  // The last query has the fewest keys when lengths limit the queries.
  const std::int64_t first = rule.kind == Rule::Kind::kLengths ? last : 0;
  for (std::int64_t b = batches.begin; b < batches.end; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t q = first; q < queries; ++q) {
        if (!covers(b, h, q)) return false;
      }
    }
  }
  return true;
}

KeyRange BoundMask::range(std::int64_t batch, std::int64_t head,
                          std::int64_t query) const {
  KeyRange all{0, sizes_.kv_len};
  for (const Rule& rule : rules_) {
    all = intersect(all, apply(rule, batch, head, query));
  }
  return all;
}

bool BoundMask::visible(std::int64_t batch, std::int64_t head,
                        std::int64_t query, std::int64_t key) const {
  const KeyRange keys = range(batch, head, query);
  return key >= keys.begin && key < keys.end &&
         std::all_of(dense_.begin(), dense_.end(), [&](const DensePart& part) {
           return part.row(batch, head, query)[key] == part.visible_when;
         });
}

namespace mask {

Tensor visible_pairs(const Mask& mask,
                     const std::array<std::int64_t, 4>& sizes) {
  constexpr const char* kWhere = "visible_pairs";
  Tensor pairs(DType::kBool, Shape(sizes.begin(), sizes.end()));
  const auto [batch, heads, q_len, kv_len] = sizes;
  const BoundMask bound(mask, {batch, heads, q_len, kv_len}, kWhere);
  bool* next = pairs.values<bool>().data();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < q_len; ++i) {
        for (std::int64_t j = 0; j < kv_len; ++j) {
          *next++ = bound.visible(b, h, i, j);
        }
      }
    }
  }
  return pairs;
}

}  // namespace mask
}  // namespace regard
