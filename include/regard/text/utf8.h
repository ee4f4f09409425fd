// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regard::text {

// The place of the first byte that is not valid UTF-8 (over-long forms,
// surrogates and code points beyond U+10FFFF are not), or npos.
std::size_t find_invalid_utf8(std::string_view text);

// The code points of valid UTF-8. Throws InvalidArgument for anything else.
std::u32string code_points(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

}  // namespace regard::text
