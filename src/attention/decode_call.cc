// SPDX-License-Identifier: Apache-2.0
#include "attention/decode_call.h"

#include <algorithm>
#include <variant>

#include "attention/checks.h"
#include "mask/parts.h"

namespace regard::detail {
namespace {

constexpr const char* kWhere = "attention_decode";

}  // namespace

DecodeCall::DecodeCall(TensorView<const float, 4> queries, const KVStore& cache,
                       std::span<const std::int64_t> cache_sequences,
                       TensorView<float, 4> result,
                       const AttentionOptions& call_options)
    : q(queries),
      store(cache),
      sequences(cache_sequences),
      out(result),
      options(call_options),
      entries(static_cast<std::int64_t>(cache_sequences.size())),
      heads(queries.extent(1)),
      kv_heads(cache.options().kv_heads),
      group(queries.extent(1) / cache.options().kv_heads),
      q_len(queries.extent(2)) {
  check_shapes();
  check_options();
  find_keys();
}

void DecodeCall::check_shapes() const {
  const KVCacheOptions& o = store.options();
  for (const std::int64_t s : sequences) {
    require(s >= 0 && s < store.count(), kWhere, "a sequence must lie in [0, ",
            store.count(), "); it is ", s);
  }
  require(q.extent(0) == entries && q.extent(3) == o.d_k, kWhere,
          "q must be [sequences, heads, q_len, d_k] = [", entries,
          ", heads, q_len, ", o.d_k, "]; it is ", ShapeText{q.shape()});
  require(heads % kv_heads == 0, kWhere,
          "kv_heads must divide heads; the cache has ", kv_heads, ", q is ",
          ShapeText{q.shape()});
  require(q_len < std::int64_t{1} << 31, kWhere,
          "q_len must be below 2^31; q is ", ShapeText{q.shape()});
  require(out.extent(0) == entries && out.extent(1) == heads &&
              out.extent(2) == q_len && out.extent(3) == o.d_v,
          kWhere, "out must be [sequences, heads, q_len, d_v] = [", entries,
          ", ", heads, ", ", q_len, ", ", o.d_v, "]; it is ",
          ShapeText{out.shape()});
  check_rows_apart(out, kWhere, "out");
}

void DecodeCall::check_options() {
  const AttentionOptions& o = options;
  require(o.dropout.rate == 0, kWhere,
          "there is no dropout in decoding; the rate is ", o.dropout.rate);
  require(o.sequences.q_offsets.empty() && o.sequences.kv_offsets.empty(),
          kWhere,
          "packed sequences cannot be used: each entry is a sequence of the "
          "cache; offsets came");
  require(o.compute == Compute::kFloat32, kWhere,
          "the arithmetic must be float; Compute::kBFloat16 came");
  for (const auto& part : o.mask.parts()) {
    require(std::holds_alternative<BandPart>(part->what) ||
                std::holds_alternative<LengthsPart>(part->what),
            kWhere,
            "mask keep, drop and documents cannot be used; hide pairs by -inf "
            "in bias");
  }
  scale = checked_scale(o, q.extent(3), kWhere);
  check_score_options(o, heads, kWhere);
  if (!o.bias.is_null()) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < entries; ++i) {
      longest = std::max(longest, sequence(i).length);
    }
    const auto& b = o.bias;
    const auto fits = [](std::int64_t extent, std::int64_t wanted) {
      return extent == 1 || extent == wanted;
    };
    require(fits(b.extent(0), entries) && fits(b.extent(1), heads) &&
                fits(b.extent(2), q_len) &&
                (b.extent(3) == 1 || b.extent(3) >= longest),
            kWhere,
            "bias must be [sequences or 1, heads or 1, q_len or 1, at least "
            "the longest length or 1]; it is ",
            ShapeText{b.shape()}, ", they are [", entries, ", ", heads, ", ",
            q_len, ", ", longest, "]");
  }
  if (!o.log_sum_exp.is_null()) {
    const auto& l = o.log_sum_exp;
    require(
        l.extent(0) == entries && l.extent(1) == heads && l.extent(2) == q_len,
        kWhere, "log_sum_exp must be [sequences, heads, q_len]; it is ",
        ShapeText{l.shape()}, ", q is ", ShapeText{q.shape()});
    check_rows_apart(l, kWhere, "log_sum_exp");
  }
}

void DecodeCall::find_keys() {
  const KVCacheOptions& cache = store.options();
  keys.resize(static_cast<std::size_t>(entries * q_len));
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    const KVSequence& s = sequence(entry);
    const BoundMask mask(options.mask, {entries, heads, q_len, s.length, entry},
                         kWhere);
    for (std::int64_t query = 0; query < q_len; ++query) {
      RowKeys& row = keys[static_cast<std::size_t>(entry * q_len + query)];
      // No part that may come here looks at the head.
      row.late = mask.range(entry, 0, query);
      if (cache.kind != KVCacheKind::kRing) continue;
      const std::int64_t position = query + s.length - q_len;
      const KeyRange seen = row.late;
      row.early = {seen.begin,
                   std::clamp(cache.first_kept, seen.begin, seen.end)};
      row.late.begin =
          std::clamp(position - cache.window + 1, seen.begin, seen.end);
      require(row.late.begin == row.late.end || row.late.begin >= s.held_from,
              kWhere, "the ring must still hold what a query sees; query ",
              query, " of entry ", entry, " sees the keys from ",
              row.late.begin, ", held are those from ", s.held_from);
    }
  }
}

}  // namespace regard::detail
