// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantised.h"
#include "regard/core/threads.h"

// How weights become codes of few bits, and codes become panels.
namespace regard::ops {

// Weights [out, in] of few bits, as a file has them: groups of `group` weights
// of a row share a scale and, if there are any, a minimum; a weight is
// scale * code + minimum.
struct GroupedWeights {
  std::int64_t out = 0, in = 0;
  std::int64_t group = 32;
  kernels::CodeBits bits = kernels::CodeBits::k8;
  kernels::ScaleType scales = kernels::ScaleType::kFloat32;
  bool has_minima = false;
  // Writes row `row`: codes [in], scales and minima [groups]. Called from many
  // threads.
  struct Row {
    std::int8_t* codes;
    float* scales;
    float* minima;
  };
  FunctionRef<void(std::int64_t row, const Row& to)> read;
};

// Groups of 64 with floats as scales.
kernels::QuantisedLayout int8_layout(std::int64_t in);
// Groups of 32 with half floats as scale and minimum.
kernels::QuantisedLayout int4_layout(std::int64_t in);

// A row of weights [in] as codes in one of these layouts. A group with a number
// that is not finite becomes NaN as a whole.
void round_to_int8(const float* weights, std::int64_t in,
                   const GroupedWeights::Row& to);
void round_to_int4(const float* weights, std::int64_t in,
                   const GroupedWeights::Row& to);

// Rows [begin, begin + count) into their panels; begin is a multiple of
// kQuantisedColumns.
void pack_codes(
    const kernels::QuantisedLayout& layout, std::int64_t begin,
    std::int64_t count,
    FunctionRef<void(std::int64_t row, const GroupedWeights::Row& to)> read,
    std::byte* panels);

std::size_t codes_bytes(const kernels::QuantisedLayout& layout,
                        std::int64_t out);

}  // namespace regard::ops
