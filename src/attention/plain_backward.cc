// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "attention/backward.h"
#include "attention/entry_masks.h"
#include "attention/plain_row.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

// One key-value head of one entry: rows one after the other.
template <typename Real>
class PlainHead {
 public:
  PlainHead(const BackwardProblem<Real>& b, const BoundMask& mask,
            std::int64_t index, std::int64_t kv_head, HeadSums& sums)
      : b_(b),
        p_(b.forward),
        mask_(mask),
        index_(index),
        kv_head_(kv_head),
        entry_(b.forward.entry(index)),
        sums_(sums),
        weights_(entry_.kv_len),
        factors_(entry_.kv_len),
        d_k_(entry_.kv_len * p_.d_k),
        d_v_(entry_.kv_len * p_.d_v),
        d_q_(p_.d_k) {}

  void run() {
    for (std::int64_t i = 0; i < entry_.q_len * p_.group; ++i) {
      run_row(i / p_.group, kv_head_ * p_.group + i % p_.group);
    }
    const GradientViews<Real>& g = b_.gradients;
    for (std::int64_t key = 0; key < entry_.kv_len; ++key) {
      write(d_k_.data() + key * p_.d_k, p_.d_k, g.k, kv_head_,
            entry_.kv_begin + key);
      write(d_v_.data() + key * p_.d_v, p_.d_v, g.v, kv_head_,
            entry_.kv_begin + key);
    }
  }

 private:
  void write(const Real* from, std::int64_t n, const Elements& to,
             std::int64_t head, std::int64_t at) const {
    if (to.is_null()) return;
    write_numbers(from, n, to, to.at(entry_.batch, head, at));
  }

  void run_row(std::int64_t query, std::int64_t head) {
    const PlainRow<Real> row{p_, mask_, entry_, index_, head, query};
    const std::int64_t at = entry_.q_begin + query;
    row.weights(weights_.data());
    std::fill(factors_.begin(), factors_.end(), Real{1});
    if (p_.options.dropout.rate > 0) row.drop(factors_.data());
    const auto numbers = [&](const ConstElements& of) {
      return Numbers<Real>(of, of.at(entry_.batch, head, at));
    };
    const Numbers<Real> out = numbers(b_.inputs.out);
    const Numbers<Real> d_out = numbers(b_.inputs.d_out);
    // A row that sees nothing, or only its sink, has nothing to multiply: d_out
    // may be NaN.
    const bool sees = std::any_of(weights_.begin(), weights_.end(),
                                  [](Real weight) { return weight != 0; });
    Real delta = sees ? dot(d_out, out, p_.d_v) : Real{0};
    if (!b_.inputs.d_log_sum_exp.is_null()) {
      delta -= b_.inputs.d_log_sum_exp(entry_.batch, head, at);
    }
    std::fill(d_q_.begin(), d_q_.end(), Real{0});
    for (std::int64_t key = 0; key < entry_.kv_len; ++key) {
      if (weights_[key] != 0) add_pair(row, key, d_out, delta);
    }
    write(d_q_.data(), p_.d_k, b_.gradients.q, head, at);
    if (!p_.options.sinks.empty() && std::isfinite(p_.options.sinks[head])) {
      const Real lse = p_.options.log_sum_exp(entry_.batch, head, at);
      sums_.sinks[sum_at(head)] -=
          std::exp(p_.options.sinks[head] - lse) * delta;
    }
  }

  void add_pair(const PlainRow<Real>& row, std::int64_t key,
                const Numbers<Real>& d_out, Real delta) {
    const Numbers<Real> v = row.v(key);
    const Real p = weights_[key];
    const Real factor = factors_[key];
    // forward: out += p * factor * v, unless dropped
    for (std::int64_t c = 0; c < p_.d_v && factor != 0; ++c) {
      d_v_[key * p_.d_v + c] += p * factor * d_out[c];
    }
    const Real d_p = factor == 0 ? Real{0} : factor * dot(d_out, v, p_.d_v);
    Real d_s = p * (d_p - delta);
    if (Real* d_bias = b_.d_bias_row(index_, row.head, row.query)) {
      d_bias[key * p_.bias_key_stride()] += d_s;
    }
    if (!p_.options.alibi_slopes.empty()) {
      sums_.slopes[sum_at(row.head)] -= d_s * row.distance(key);
    }
    if (p_.options.softcap > 0) {
      d_s *= softcap_slope(row.capped_product(key), p_.options.softcap);
    }
    add_score(row, key, d_s);
  }

  // forward: score = scale * (q . k), with q and k of length 1 for cosine
  // scores
  void add_score(const PlainRow<Real>& row, std::int64_t key, Real d_s) {
    const Numbers<Real> q = row.q(), k = row.k(key);
    const Real scale = p_.head_scale(row.head);
    Real* const d_key = d_k_.data() + key * p_.d_k;
    if (p_.options.score == Score::kCosine) {
      const PlainUnit<Real> q_unit(q, p_.d_k), k_unit(k, p_.d_k);
      if (q_unit.is_zero || k_unit.is_zero) return;
      const Real similarity = row.similarity(key);
      sums_.scales[sum_at(row.head)] += d_s * similarity * p_.scale;
      for (std::int64_t c = 0; c < p_.d_k; ++c) {
        const Real to_q = k_unit[c] - similarity * q_unit[c];
        const Real to_k = q_unit[c] - similarity * k_unit[c];
        d_q_[c] += d_s * scale * to_q * q_unit.inverse * q_unit.scale;
        d_key[c] += d_s * scale * to_k * k_unit.inverse * k_unit.scale;
      }
      return;
    }
    sums_.scales[sum_at(row.head)] += d_s * dot(q, k, p_.d_k) * p_.scale;
    for (std::int64_t c = 0; c < p_.d_k; ++c) {
      d_q_[c] += d_s * scale * k[c];
      d_key[c] += d_s * scale * q[c];
    }
  }

  std::size_t sum_at(std::int64_t head) const {
    return static_cast<std::size_t>(index_ * p_.heads + head);
  }

  const BackwardProblem<Real>& b_;
  const Problem<Real>& p_;
  const BoundMask& mask_;
  const std::int64_t index_, kv_head_;
  const Entry entry_;
  HeadSums& sums_;
  std::vector<Real> weights_, factors_, d_k_, d_v_, d_q_;
};

}  // namespace

template <typename Real>
void plain_backward(const BackwardProblem<Real>& b,
                    const EntryMasks<Real>& masks) {
  const Problem<Real>& p = b.forward;
  HeadSums sums(p.entries, p.heads);
  if (p.entries > 0 && p.heads > 0) {
    // Heads may add to the same bias: then one after the other.
    const Threads threads{
        b.gradients.bias.is_null() ? p.options.threads.count : 1,
        p.options.threads.pool};
    parallel_for(threads, p.entries * p.kv_heads, [&](std::int64_t task) {
      const std::int64_t index = task / p.kv_heads;
      masks.with(index, [&](const BoundMask& mask) {
        PlainHead<Real>(b, mask, index, task % p.kv_heads, sums).run();
      });
    });
  }
  sums.write(b.gradients);
}

template void plain_backward(const BackwardProblem<float>&,
                             const EntryMasks<float>&);
template void plain_backward(const BackwardProblem<double>&,
                             const EntryMasks<double>&);

}  // namespace regard::detail
