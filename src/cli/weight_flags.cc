// SPDX-License-Identifier: Apache-2.0
#include "cli/weight_flags.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace regard::cli {
namespace {

const std::vector<std::pair<std::string, ops::WeightStorage>>& names() {
  using ops::WeightStorage;
  static const std::vector<std::pair<std::string, WeightStorage>> all = {
      {"float32", WeightStorage::kFloat32},
      {"bfloat16", WeightStorage::kBFloat16},
      {"int8", WeightStorage::kInt8},
      {"int4", WeightStorage::kInt4},
      {"as-stored", WeightStorage::kAsStored}};
  return all;
}

}  // namespace

std::string weights_name(ops::WeightStorage weights) {
  for (const auto& [name, one] : names()) {
    if (one == weights) return name;
  }
  throw std::logic_error("weights_name: every type has one");
}

void add_weights_flag(App& app, ops::WeightStorage& weights) {
  app.add_choice<ops::WeightStorage>(
         "--weights", weights, names(),
         "Type of the weights in memory: float32 is exact; bfloat16, int8 "
         "and int4 are smaller and less exact; as-stored computes with the "
         "integers of a quantised file")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group("Machine");
}

}  // namespace regard::cli
