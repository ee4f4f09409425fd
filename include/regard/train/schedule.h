// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::train {

enum class ScheduleKind {
  kConstant,
  kInverseSqrt,  // peak * sqrt(warmup / update)
  kCosine,       // half a cosine from peak to floor, which it reaches at total
  kLinear,       // a straight line from peak to floor, likewise
};

// The learning rate over time. The first `warmup` updates rise in a straight
// line from `start` to `peak`.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kInverseSqrt;
  double peak = 1e-3;
  double start = 1e-7;
  double floor = 0;         // of those that end
  std::int64_t warmup = 0;  // updates
  std::int64_t total = 0;   // updates; only those that end need it

  bool ends() const {
    return kind == ScheduleKind::kCosine || kind == ScheduleKind::kLinear;
  }

  // Throws InvalidArgument for values that make no sense.
  void check() const;
  // The rate of an update; they count from 1.
  double rate(std::int64_t update) const;
};

}  // namespace regard::train
