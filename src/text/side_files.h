// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace regard::text {

// What the files beside a vocabulary say, each null where it is not there.
struct SideFiles {
  nlohmann::json config;   // tokenizer_config.json
  nlohmann::json special;  // special_tokens_map.json
  std::string where = "";  // one of them, for errors
};

}  // namespace regard::text
