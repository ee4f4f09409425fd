// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace regard::io {

// 'text' for an error message. What a file says is not to be trusted: control
// characters and bytes outside ASCII come as \xNN, long texts are cut.
std::string in_quotes(std::string_view text);

}  // namespace regard::io
