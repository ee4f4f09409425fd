// SPDX-License-Identifier: Apache-2.0
#include "regard/mask/mask.h"

#include "capi/arguments.h"

namespace {

using namespace regard;        // NOLINT: the C functions stand outside of it
using namespace regard::capi;  // NOLINT

mask::Alignment alignment_of(regard_alignment alignment, std::int64_t offset,
                             const char* where) {
  switch (alignment) {
    case REGARD_BOTTOM_RIGHT:
      return mask::kBottomRight;
    case REGARD_TOP_LEFT:
      return mask::kTopLeft;
    case REGARD_AT_OFFSET:
      return mask::at_offset(offset);
    default:
      break;
  }
  require(false, where, "alignment must be one of regard_alignment; it is ",
          alignment);
  return {};
}

// A byte that is neither 0 nor 1 is no bool, and must not be read as one.
TensorView<const bool, 4> pairs_of(const regard_tensor* given,
                                   const char* where) {
  const auto pairs = typed_view<const bool, 4>(&not_null(given, where, "pairs"),
                                               where, "pairs");
  for (std::int64_t b = 0; b < pairs.extent(0) && pairs.size() > 0; ++b) {
    for (std::int64_t h = 0; h < pairs.extent(1); ++h) {
      for (std::int64_t i = 0; i < pairs.extent(2); ++i) {
        const auto* row =
            reinterpret_cast<const unsigned char*>(pairs.at(b, h, i));
        require(std::all_of(row, row + pairs.extent(3),
                            [](unsigned char byte) { return byte <= 1; }),
                where, "every byte of pairs must be 0 or 1; one is not");
      }
    }
  }
  return pairs;
}

}  // namespace

regard_status regard_mask_causal(regard_alignment alignment, int64_t offset,
                                 regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_causal";
  return create(mask, kWhere, "mask", [&] {
    return mask::causal(alignment_of(alignment, offset, kWhere));
  });
}

regard_status regard_mask_window(int64_t left, int64_t right,
                                 regard_alignment alignment, int64_t offset,
                                 regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_window";
  return create(mask, kWhere, "mask", [&] {
    return mask::window(left, right, alignment_of(alignment, offset, kWhere));
  });
}

regard_status regard_mask_prefix(int64_t n, regard_alignment alignment,
                                 int64_t offset, regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_prefix";
  return create(mask, kWhere, "mask", [&] {
    require(n >= 0, kWhere, "n must not be negative; it is ", n);
    return mask::prefix(n, alignment_of(alignment, offset, kWhere));
  });
}

regard_status regard_mask_lengths(const int64_t* kv_lengths,
                                  const int64_t* query_lengths, int64_t batch,
                                  regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_lengths";
  return create(mask, kWhere, "mask", [&] {
    const auto keys = span_of(kv_lengths, batch, kWhere, "kv_lengths");
    if (query_lengths == nullptr) return mask::lengths(keys);
    return mask::lengths(
        keys, span_of(query_lengths, batch, kWhere, "query_lengths"));
  });
}

regard_status regard_mask_documents(const int32_t* query_ids, int64_t q_len,
                                    const int32_t* key_ids, int64_t kv_len,
                                    regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_documents";
  return create(mask, kWhere, "mask", [&] {
    const auto queries = span_of(query_ids, q_len, kWhere, "query_ids");
    const auto keys = span_of(key_ids, kv_len, kWhere, "key_ids");
    return mask::documents(queries, keys);
  });
}

regard_status regard_mask_keep(const regard_tensor* pairs, regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_keep";
  return create(mask, kWhere, "mask",
                [&] { return mask::keep(pairs_of(pairs, kWhere)); });
}

regard_status regard_mask_drop(const regard_tensor* pairs, regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_drop";
  return create(mask, kWhere, "mask",
                [&] { return mask::drop(pairs_of(pairs, kWhere)); });
}

regard_status regard_mask_and(const regard_mask* a, const regard_mask* b,
                              regard_mask** mask) {
  constexpr const char* kWhere = "regard_mask_and";
  return create(mask, kWhere, "mask", [&] {
    const Mask& first = not_null(a, kWhere, "a").mask;
    const Mask& second = not_null(b, kWhere, "b").mask;
    return first & second;
  });
}

void regard_mask_free(regard_mask* mask) { delete mask; }
