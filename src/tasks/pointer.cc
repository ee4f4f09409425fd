// SPDX-License-Identifier: Apache-2.0
#include "tasks/pointer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace regard::tasks {
namespace {

nn::Linear query_of(const Pointer& p) {
  return {p.name + ".query", p.width, p.width};
}
nn::Linear key_of(const Pointer& p) {
  // A bias would add the same to every score of a group.
  return {p.name + ".key", p.width, p.width, false};
}

// Values of our own that nothing is learnt about.
nn::Variable filled(autograd::Tape& tape, std::int64_t rows, float value) {
  nn::Variable out = tape.result(rows, 1, false);
  std::fill_n(out.mutable_data(), rows, value);
  return out;
}

}  // namespace

void Pointer::declare(nn::ParameterSpecs& specs) const {
  query_of(*this).declare(specs);
  key_of(*this).declare(specs);
}

// The loss of copying, where nothing is written from the vocabulary: its two
// tokens are "marked" and "not marked", and the gate is shut.
double Pointer::loss(nn::Pass& pass, const nn::Variable& groups,
                     const nn::Variable& rows,
                     std::span<const std::int64_t> offsets,
                     std::span<const std::int64_t> marked) const {
  autograd::Tape& tape = pass.tape();
  const std::int64_t count = groups.rows();
  constexpr float kShut = -60.0f;  // exp(-60) of the probability is written
  std::vector<std::int64_t> single(static_cast<std::size_t>(count) + 1);
  std::iota(single.begin(), single.end(), 0);
  std::vector<std::int32_t> source(static_cast<std::size_t>(rows.rows()), 0);
  for (const std::int64_t row : marked)
    source[static_cast<std::size_t>(row)] = 1;
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(count), 1);
  autograd::CopyAttention copy;
  copy.gate = filled(tape, count, kShut);
  copy.q = query_of(*this)(pass, groups);
  copy.k = key_of(*this)(pass, rows);
  copy.source = source;
  copy.q_offsets = single;
  copy.kv_offsets = offsets;
  return autograd::cross_entropy(tape, filled(tape, count, 0.0f),
                                 filled(tape, 2, 0.0f), {}, targets, 0.0f, copy)
      .loss;
}

std::vector<double> Pointer::probabilities(
    nn::Pass& pass, const nn::Variable& groups, const nn::Variable& rows,
    std::span<const std::int64_t> offsets) const {
  const nn::Variable q = query_of(*this)(pass, groups);
  const nn::Variable k = key_of(*this)(pass, rows);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  std::vector<double> out(static_cast<std::size_t>(rows.rows()));
  for (std::size_t g = 0; g + 1 < offsets.size(); ++g) {
    const auto begin = out.begin() + offsets[g];
    const auto end = out.begin() + offsets[g + 1];
    const float* const query = q.value().at(static_cast<std::int64_t>(g));
    for (std::int64_t r = offsets[g]; r < offsets[g + 1]; ++r) {
      const float* const key = k.value().at(r);
      double score = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        score += static_cast<double>(query[i]) * static_cast<double>(key[i]);
      }
      out[static_cast<std::size_t>(r)] = scale * score;
    }
    const double most = *std::max_element(begin, end);
    double sum = 0;
    for (auto at = begin; at != end; ++at) sum += * at = std::exp(*at - most);
    for (auto at = begin; at != end; ++at) *at /= sum;
  }
  return out;
}

}  // namespace regard::tasks
