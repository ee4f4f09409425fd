// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace regard::text {

// Small letters of every script that has them, whatever the locale. Python's
// str.lower() but for the Greek final sigma, which depends on its neighbours.
std::u32string lower_case(std::u32string_view text);

}  // namespace regard::text
