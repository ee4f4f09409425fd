// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "regard/view/trace.h"

namespace regard::view {

// {"name": ..., "note": ...}: the note a string, or one for each language.
nlohmann::ordered_json model_json(const std::string& name, const Note& note);

}  // namespace regard::view
