// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/packed_parameters.h"

#include <map>
#include <utility>

#include "ops/packed_weights.h"

namespace regard::nn {

struct PackedParameters::Packed {
  StateDict values;
  // By name and first row.
  std::map<std::pair<std::string, std::int64_t>, ops::PackedWeights> parts;
};

PackedParameters::PackedParameters(const ParameterSpecs& specs,
                                   StateDict parameters,
                                   ops::WeightStorage weights,
                                   const char* where) {
  check_parameters(specs, parameters, where);
  auto packed = std::make_shared<Packed>();
  for (const auto& entry : specs) {
    const std::string& name = entry.first;
    const ParameterSpec::Use use = entry.second.use;
    if (use == ParameterSpec::Use::kAny) continue;
    const auto matrix = parameters.extract(name);
    const TensorView<const float, 2> all = matrix.mapped().view<float, 2>();
    const auto pack = [&](std::int64_t first, std::int64_t count) {
      packed->parts[{name, first}] = ops::PackedWeights::pack(
          {all.at(first), {count, all.extent(1)}}, {.storage = weights});
    };
    if (use == ParameterSpec::Use::kProduct) {
      pack(0, all.extent(0));
    } else {
      const std::int64_t queries = all.extent(0) / 3;
      pack(0, queries);
      pack(queries, 2 * queries);
    }
  }
  packed->values = std::move(parameters);
  packed_ = std::move(packed);
}

const StateDict& PackedParameters::values() const { return packed_->values; }

std::size_t PackedParameters::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, tensor] : packed_->values) sum += tensor.byte_count();
  for (const auto& [place, part] : packed_->parts) sum += part.bytes();
  return sum;
}

const ops::PackedWeights* PackedParameters::part(const std::string& name,
                                                 std::int64_t first) const {
  const auto found = packed_->parts.find({name, first});
  return found == packed_->parts.end() ? nullptr : &found->second;
}

}  // namespace regard::nn
