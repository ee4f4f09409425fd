// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regard::cli {

// The folder of the translator that comes with the program: between English
// and Chinese, both ways. It stands beside the program, wherever that was
// installed. Throws IoError where it does not.
std::string bundled_translator();

}  // namespace regard::cli
