// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "json/json.h"
#include "regard/view/trace.h"

namespace regard::view {

// {"name": ..., "note": ...}: the note a string, or one for each language.
Json model_json(const std::string& name, const Note& note);

}  // namespace regard::view
