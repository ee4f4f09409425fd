// SPDX-License-Identifier: Apache-2.0
// Pointing at one of several rows: the place where an answer begins, or the
// choice that is right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/nn/layers.h"

namespace regard::tasks {

// p(row r of a group) = softmax over the group of q . k[r] / sqrt(width), where
// q = query(what stands for the group) and k = key(row).
struct Pointer {
  std::string name;  // "start": start.query.weight, start.key.weight, ...
  std::int64_t width = 0;

  void declare(nn::ParameterSpecs& specs) const;

  // The cross entropy of the marked rows, one of each group: `marked` holds
  // their numbers in `rows`. Group g owns rows [offsets[g], offsets[g + 1]) and
  // is asked for by row g of `groups`.
  double loss(nn::Pass& pass, const nn::Variable& groups,
              const nn::Variable& rows, std::span<const std::int64_t> offsets,
              std::span<const std::int64_t> marked) const;

  // The probability of each row, computed in double.
  std::vector<double> probabilities(
      nn::Pass& pass, const nn::Variable& groups, const nn::Variable& rows,
      std::span<const std::int64_t> offsets) const;
};

}  // namespace regard::tasks
