// SPDX-License-Identifier: Apache-2.0
// What kernels include, parsed once. Highway only where there is one SIMD
// target: for more, each file brings it in once for each. There,
// foreach_target.h has nothing to do, and must have come before highway.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "hwy/detect_targets.h"
#if HWY_TARGETS == HWY_STATIC_TARGET
#define HWY_TARGET_INCLUDE "hwy/base.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#undef HWY_TARGET_INCLUDE
#endif
