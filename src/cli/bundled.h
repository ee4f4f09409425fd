// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regard::cli {

// The folder of a bundled model, relative to the program wherever it is
// installed. Throws IoError if it is not there.
std::string bundled_model(const std::string& name);

// The translator: between English and Chinese, both ways.
inline std::string bundled_translator() { return bundled_model("en-zh"); }

}  // namespace regard::cli
