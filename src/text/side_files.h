// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "json/json.h"

namespace regard::text {

// What the files beside a vocabulary say, each null where it is not there.
struct SideFiles {
  Json config;             // tokenizer_config.json
  Json special;            // special_tokens_map.json
  std::string where = "";  // one of them, for errors
};

}  // namespace regard::text
