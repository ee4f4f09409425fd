// SPDX-License-Identifier: Apache-2.0
#include "ops/copying.h"

#include <algorithm>
#include <cmath>

namespace regard::ops {
namespace {

// log(1 / (1 + exp(-x))), without overflow.
double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

// log(exp(a) + exp(b)); b may be -infinity.
double log_add(double a, double b) {
  const double most = std::max(a, b);
  return most + std::log1p(std::exp(std::min(a, b) - most));
}

// c(w) of each token.
std::vector<double> masses(const CopySource& source, const float* weights) {
  std::vector<double> mass(source.tokens.size());
  for (std::size_t s = 0; s < source.slots.size(); ++s) {
    mass[static_cast<std::size_t>(source.slots[s])] +=
        static_cast<double>(weights[s]);
  }
  return mass;
}

}  // namespace

CopySource::CopySource(std::span<const std::int32_t> source)
    : tokens(source.begin(), source.end()) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  slots.reserve(source.size());
  for (const std::int32_t token : source) {
    slots.push_back(static_cast<std::int32_t>(
        std::lower_bound(tokens.begin(), tokens.end(), token) -
        tokens.begin()));
  }
}

void mix_copies(const CopySource& source, const float* weights, float gate,
                std::span<float> scores) {
  const std::vector<double> mass = masses(source, weights);
  const double log_sum = static_cast<double>(
      kernels::log_sum_exp_row(scores.data(), std::ssize(scores)));
  const double written = log_sigmoid(static_cast<double>(gate)) - log_sum;
  const double copied = log_sigmoid(-static_cast<double>(gate));
  std::vector<float> mixed(mass.size());
  for (std::size_t i = 0; i < mass.size(); ++i) {
    const float score = scores[static_cast<std::size_t>(source.tokens[i])];
    mixed[i] = static_cast<float>(log_add(written + static_cast<double>(score),
                                          copied + std::log(mass[i])));
  }
  const auto shift = static_cast<float>(written);
  for (float& score : scores) score += shift;
  for (std::size_t i = 0; i < mass.size(); ++i) {
    scores[static_cast<std::size_t>(source.tokens[i])] = mixed[i];
  }
}

// With share(w) as in kernels::cross_entropy_row and q(w) = (1 - g) c(w) /
// p(w), the part of p(w) that was copied (0 for what the source does not have):
//
//   loss       = -sum of share log p
//   Q          = sum of share q
//   d scores   = softmax (1 - Q) - share (1 - q)
//              = (softmax - share) (1 - Q) + share (q - Q)
//   d gate     = Q - (1 - g)
//   d attention scores = weight (Q - share q / c), at places that hold w
//
// Without smoothing share is 0 for all but the target.
kernels::CrossEntropyRow copy_cross_entropy_row(const CopyRow& row,
                                                std::int32_t target,
                                                float smoothing,
                                                kernels::WithGradient gradient,
                                                float& d_gate) {
  const CopySource& source = *row.source;
  const std::span<float> scores = row.scores;
  const auto score_of = [&](std::int32_t token) {
    return static_cast<double>(scores[static_cast<std::size_t>(token)]);
  };
  std::vector<double> mass = masses(source, row.weights);
  // The tokens of the source that count: all, or the target if it is there.
  std::size_t first = 0, last = mass.size();
  if (smoothing == 0) {
    const auto found =
        std::lower_bound(source.tokens.begin(), source.tokens.end(), target);
    first = static_cast<std::size_t>(found - source.tokens.begin());
    last = first + (first < last && source.tokens[first] == target ? 1 : 0);
  }
  std::vector<double> score, from_source;  // of the tokens that count: q
  for (std::size_t i = first; i < last; ++i) {
    score.push_back(score_of(source.tokens[i]));
  }
  const double target_score = score_of(target);
  kernels::CrossEntropyRow sum = kernels::cross_entropy_row(
      scores.data(), std::ssize(scores), target, smoothing, gradient);

  const double log_sum = sum.likelihood + target_score;
  const double written = log_sigmoid(static_cast<double>(row.gate));
  const double copied = log_sigmoid(-static_cast<double>(row.gate));
  const double other =
      static_cast<double>(smoothing) / static_cast<double>(scores.size());
  const auto share_of = [&](std::int32_t token) {
    return other + (token == target ? 1 - static_cast<double>(smoothing) : 0.0);
  };
  sum.loss -= written;
  sum.likelihood -= written;
  double all_copied = 0;  // Q
  for (std::size_t i = first; i < last; ++i) {
    const double share = share_of(source.tokens[i]);
    const double by_softmax = written + score[i - first] - log_sum;
    const double by_copy = copied + std::log(mass[i]);
    const double log_p = log_add(by_softmax, by_copy);
    sum.loss -= share * (log_p - by_softmax);
    if (source.tokens[i] == target) sum.likelihood -= log_p - by_softmax;
    from_source.push_back(std::exp(by_copy - log_p));
    all_copied += share * from_source.back();
  }
  if (gradient == kernels::WithGradient::kNo) return sum;

  const auto rest = static_cast<float>(1 - all_copied);
  const auto of_others = static_cast<float>(-other * all_copied);
  for (float& value : scores) value = value * rest + of_others;
  bool target_there = false;
  for (std::size_t i = first; i < last; ++i) {
    const std::int32_t token = source.tokens[i];
    const double share = share_of(token);
    const double q = from_source[i - first];
    scores[static_cast<std::size_t>(token)] +=
        static_cast<float>(share * (q - all_copied) + other * all_copied);
    target_there = target_there || token == target;
    // What the places of the token are asked to have more of.
    mass[i] = mass[i] > 0 ? share * q / mass[i] : 0.0;
  }
  std::fill(mass.begin(), mass.begin() + static_cast<std::ptrdiff_t>(first), 0);
  std::fill(mass.begin() + static_cast<std::ptrdiff_t>(last), mass.end(), 0);
  if (!target_there) {
    scores[static_cast<std::size_t>(target)] -=
        static_cast<float>((1 - static_cast<double>(smoothing)) * all_copied);
  }
  for (std::size_t s = 0; s < source.slots.size(); ++s) {
    row.weights[s] = static_cast<float>(
        static_cast<double>(row.weights[s]) *
        (all_copied - mass[static_cast<std::size_t>(source.slots[s])]));
  }
  d_gate = static_cast<float>(all_copied - std::exp(copied));
  return sum;
}

}  // namespace regard::ops
