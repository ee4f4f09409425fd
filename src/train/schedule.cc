// SPDX-License-Identifier: Apache-2.0
#include "regard/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "regard/core/error.h"

namespace regard::train {

void Schedule::check() const {
  require(peak > 0 && std::isfinite(peak), "Schedule",
          "the learning rate must be positive; got ", peak);
  require(start >= 0 && floor >= 0 && floor <= peak, "Schedule",
          "start and floor must not be negative, nor the floor above the peak; "
          "got ",
          start, " and ", floor);
  require(warmup >= 0, "Schedule", "the warm-up must not be negative; got ",
          warmup);
  require(!ends() || total > warmup, "Schedule",
          kind == ScheduleKind::kCosine ? "a cosine" : "a line",
          " must end after its warm-up of ", warmup, " updates; it ends at ",
          total);
}

double Schedule::rate(std::int64_t update) const {
  const auto at = static_cast<double>(update);
  const auto rise = static_cast<double>(warmup);
  if (update < warmup) return start + (peak - start) * at / rise;
  const double share =
      std::min((at - rise) / (static_cast<double>(total) - rise), 1.0);
  switch (kind) {
    case ScheduleKind::kConstant:
      return peak;
    case ScheduleKind::kInverseSqrt:
      return peak * std::sqrt(std::max(rise, 1.0) / at);
    case ScheduleKind::kCosine:
      return floor +
             (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * share));
    case ScheduleKind::kLinear:
      return floor + (peak - floor) * (1 - share);
  }
  return peak;
}

}  // namespace regard::train
