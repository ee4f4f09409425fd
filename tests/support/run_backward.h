// SPDX-License-Identifier: Apache-2.0
// Calls attention_forward and attention_backward with a BackwardCase, in any
// storage type and memory layout, and measures the gradients against the
// reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "regard/attention/backward.h"
#include "support/reference_backward.h"
#include "support/run_attention.h"

namespace regard::test {

template <typename T>
struct ProducedGradients {
  std::vector<T> q, k, v;
  std::vector<RealFor<T>> bias, alibi_slopes, sinks, head_scales;
  bool gaps_are_untouched = true;
};

// visit(name, elements of each set), for anything that has the members.
template <typename Visit, typename... Sets>
void for_each_gradient(const Visit& visit, Sets&... sets) {
  visit("dq", sets.q...);
  visit("dk", sets.k...);
  visit("dv", sets.v...);
  visit("d_bias", sets.bias...);
  visit("d_alibi_slopes", sets.alibi_slopes...);
  visit("d_sinks", sets.sinks...);
  visit("d_head_scales", sets.head_scales...);
}

struct BackwardRun {
  Layout q = Layout::kContiguous;
  Layout kv = Layout::kContiguous;
  Layout out = Layout::kContiguous;
  Layout gradients = Layout::kContiguous;
  int threads = 1;
  // Which to ask for; the others come back as they were: NaN.
  bool want_q = true, want_k = true, want_v = true, want_rest = true;
  Compute compute = Compute::kFloat32;
};

// Everything that one call borrows. The gradients hold NaN before, so that one
// that is added to instead of written shows.
template <typename T>
class BackwardCall {
 public:
  using Real = RealFor<T>;

  BackwardCall(const BackwardCase& b, const BackwardRun& run)
      : c_(b.forward),
        run_(run),
        q_(c_.q_shape(), run.q, c_.q),
        k_(c_.k_shape(), run.kv, c_.k),
        v_(c_.v_shape(), run.kv, c_.v),
        out_(c_.out_shape(), run.out),
        d_out_(c_.out_shape(), run.out, b.d_out),
        d_q_(c_.q_shape(), run.gradients),
        d_k_(c_.k_shape(), run.gradients),
        d_v_(c_.v_shape(), run.gradients),
        d_bias_(bias_shape(), run.gradients),
        options_(c_),
        lse_(static_cast<std::size_t>(c_.rows() * c_.heads * c_.q_len) + 1),
        d_lse_(b.d_lse.begin(), b.d_lse.end()) {
    const Real nan = std::numeric_limits<Real>::quiet_NaN();
    slopes_.assign(c_.alibi_slopes.size(), nan);
    sinks_.assign(c_.sinks.size(), nan);
    scales_.assign(c_.head_scales.size(), nan);
    options.log_sum_exp = {lse_.data(), {c_.rows(), c_.heads, c_.q_len}};
    options.threads.count = run.threads;
    options.compute = run.compute;
    attention_forward(q_.const_view(), k_.const_view(), v_.const_view(),
                      out_.view(), options);
    inputs = {.q = q_.const_view(),
              .k = k_.const_view(),
              .v = v_.const_view(),
              .out = out_.const_view(),
              .d_out = d_out_.const_view(),
              .d_log_sum_exp = {}};
    if (!d_lse_.empty()) {
      inputs.d_log_sum_exp = {d_lse_.data(), {c_.rows(), c_.heads, c_.q_len}};
    }
    if (run.want_q) gradients.q = d_q_.view();
    if (run.want_k) gradients.k = d_k_.view();
    if (run.want_v) gradients.v = d_v_.view();
    if (run.want_rest) {
      if (c_.bias) gradients.bias = d_bias_.view();
      gradients.alibi_slopes = slopes_;
      gradients.sinks = sinks_;
      gradients.head_scales = scales_;
    }
  }
  BackwardCall(const BackwardCall&) = delete;
  BackwardCall& operator=(const BackwardCall&) = delete;

 private:
  const AttentionCase& c_;
  const BackwardRun run_;
  Stored<T> q_, k_, v_, out_, d_out_, d_q_, d_k_, d_v_;
  Stored<Real> d_bias_;
  CallOptions<Real> options_;
  std::vector<Real> lse_, d_lse_, slopes_, sinks_, scales_;

  Extents4 bias_shape() const { return c_.bias ? c_.bias->shape : Extents4{}; }

 public:
  BackwardInputs<T> inputs{};
  Gradients<T> gradients{};
  BasicAttentionOptions<Real>& options = options_.value;

  // What stands in the gradients now.
  ProducedGradients<T> take() {
    const auto intact = [&](auto& stored, const Extents4& shape) {
      return stored.gaps_are_untouched(shape, run_.gradients);
    };
    return {.q = d_q_.elements(),
            .k = d_k_.elements(),
            .v = d_v_.elements(),
            .bias = c_.bias ? d_bias_.elements() : std::vector<Real>{},
            .alibi_slopes = slopes_,
            .sinks = sinks_,
            .head_scales = scales_,
            .gaps_are_untouched =
                intact(d_q_, c_.q_shape()) && intact(d_k_, c_.k_shape()) &&
                intact(d_v_, c_.v_shape()) && intact(d_bias_, bias_shape())};
  }
};

// The forward pass, then the backward pass.
template <typename T>
ProducedGradients<T> run_backward(const BackwardCase& b,
                                  const BackwardRun& run = {}) {
  BackwardCall<T> call(b, run);
  attention_backward(call.inputs, call.gradients, call.options);
  return call.take();
}

// The same case with inputs that T and its options' type can hold.
template <typename T>
BackwardCase rounded_to(BackwardCase b) {
  b.forward = rounded_to<T>(b.forward);
  for (double& value : b.d_out) value = round_to_storage<T>(value);
  for (double& value : b.d_lse) {
    value = static_cast<double>(static_cast<RealFor<T>>(value));
  }
  return b;
}

// What is wrong with the gradients of a case, or nothing. Each may be at most
// twice as far from the truth as the plain loop in the type of arithmetic is,
// rounded to storage, and one unit in the last place of the sizes that are
// summed: terms may cancel, and where they cancel to nothing a plain loop is
// often exact by luck. The plain loop is handed what attention_backward is: out
// in storage, and the log-sum-exp.
template <typename T>
class GradientJudge {
 public:
  using Real = RealFor<T>;
  using Truth =
      std::conditional_t<std::is_same_v<T, double>, long double, double>;

  explicit GradientJudge(const BackwardCase& b) {
    ReferenceBackward<Truth> exact(b);
    exact_ = std::move(exact.result);
    sizes_ = std::move(exact.sizes);
    const auto forward = reference_attention<Real>(b.forward);
    ForwardGiven<Real> given{.out = forward.out, .lse = forward.lse};
    for (Real& value : given.out) {
      value = static_cast<Real>(round_to_storage<T>(to_double(value)));
    }
    // q, k and v come in storage; what an option has, in arithmetic.
    auto plain = reference_backward<Real>(b, &given);
    for (auto* values : {&plain.q, &plain.k, &plain.v}) {
      for (Real& value : *values) {
        value = static_cast<Real>(round_to_storage<T>(to_double(value)));
      }
    }
    plain_ = std::move(plain);
  }

  std::string complaint(const ProducedGradients<T>& got) {
    std::string text;
    const auto judge = [&](const char* name, const auto& ours,
                           const auto& exact, const auto& plain,
                           const auto& sizes) {
      Distance distance = measure(ours, exact, plain, name);
      distance.floor = to_double(std::numeric_limits<Real>::epsilon()) *
                       largest_magnitude(sizes);
      worst = std::max(worst, distance.ratio());
      if (!distance.within()) {
        text += std::string("\n  ") + name + ": " + distance.describe();
      }
    };
    for_each_gradient(judge, got, exact_, plain_, sizes_);
    if (!got.gaps_are_untouched) text += "\n  memory beside was written";
    return text;
  }

  double worst = 0;  // 1 is the limit

 private:
  ReferenceGradients<Truth> exact_, sizes_;
  ReferenceGradients<Real> plain_;
};

// Rounds the case to T, runs it and judges it; empty if all is well.
template <typename T>
std::string gradient_complaint(const BackwardCase& b,
                               const BackwardRun& run = {}) {
  const BackwardCase rounded = rounded_to<T>(b);
  const std::string text =
      GradientJudge<T>(rounded).complaint(run_backward<T>(rounded, run));
  return text.empty() ? text : b.forward.describe() + text;
}

// The names of the gradients whose bits differ.
template <typename T>
std::string different_bits(const ProducedGradients<T>& a,
                           const ProducedGradients<T>& b) {
  std::string names;
  for_each_gradient(
      [&](const char* name, const auto& x, const auto& y) {
        if (!same_bits(x, y)) {
          names += std::string(names.empty() ? "" : " ") + name;
        }
      },
      a, b);
  return names;
}

}  // namespace regard::test
