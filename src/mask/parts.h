// SPDX-License-Identifier: Apache-2.0
// What a Mask's parts hold. Nobody outside src/mask needs to know.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "mask/bound_mask.h"
#include "regard/mask/mask.h"

namespace regard {

// causal, window and prefix: the keys [p - left, p + right] of a query at p,
// and the first `shown` ones. A negative width does not limit its side.
struct BandPart {
  std::int64_t left = -1;
  std::int64_t right = -1;
  std::int64_t shown = 0;
  mask::Alignment alignment;
};

struct LengthsPart {
  std::vector<std::int64_t> kv_lengths;
  std::optional<std::vector<std::int64_t>> query_lengths;
};

struct DocumentsPart {
  std::vector<KeyRange> ranges;  // [q_len], the keys of the query's document
  std::int64_t kv_len = 0;
  // The first key whose document began, ended and begins again.
  std::optional<std::int64_t> torn_at;
};

struct Mask::Part {
  std::variant<BandPart, LengthsPart, DocumentsPart, DensePart> what;
};

}  // namespace regard
