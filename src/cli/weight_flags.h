// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/options.h"
#include "regard/ops/weight_storage.h"

namespace regard::cli {

// --weights: the type that a model's weights get in memory.
void add_weights_flag(App& app, ops::WeightStorage& weights);
// As the flag calls it.
std::string weights_name(ops::WeightStorage weights);

}  // namespace regard::cli
