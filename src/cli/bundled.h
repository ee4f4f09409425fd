// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regard::cli {

// The folder of a model that comes with the program. It stands beside the
// program, wherever that was installed. Throws IoError where it does not.
std::string bundled_model(const std::string& name);

// The translator: between English and Chinese, both ways.
inline std::string bundled_translator() { return bundled_model("en-zh"); }

}  // namespace regard::cli
