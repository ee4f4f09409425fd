// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::kernels {

// The keys from the first to the last that one row of a dense mask shows.
struct VisibleRun {
  std::int64_t begin, end;  // equal where it shows none
  bool whole;               // it shows every key between
};

// Of the keys [begin, end); `flags` is the row's bool of key 0. Any byte but 0
// is true.
VisibleRun visible_run(const bool* flags, std::int64_t begin, std::int64_t end,
                       bool visible_when);

}  // namespace regard::kernels
