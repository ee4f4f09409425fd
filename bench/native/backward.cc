// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bench.h"

namespace regard::bench {
namespace {

// One backward pass, fp32. Mirrored by bench/backward.py.
struct BackwardCase {
  AttentionCase forward;
  Array lse;  // [batch, heads, q_len, 1]
  Array d_out, d_q, d_k, d_v;
  Array bias, d_bias;  // data is null: none
  std::int32_t with_forward;
};

// The largest differences of dq, dk, dv and d_bias of one head from the
// definition in double (infinite for NaN), and the largest true values.
struct BackwardComparison {
  double error[4], magnitude[4];
};

class Step {
 public:
  explicit Step(const BackwardCase& c)
      : inputs_{.q = view<float>(c.forward.q),
                .k = view<float>(c.forward.k),
                .v = view<float>(c.forward.v),
                .out = view<float>(c.forward.out),
                .d_out = view<float>(c.d_out),
                .d_log_sum_exp = {}},
        gradients_{.q = view<float>(c.d_q),
                   .k = view<float>(c.d_k),
                   .v = view<float>(c.d_v),
                   .bias = view<float>(c.d_bias),
                   .alibi_slopes = {},
                   .sinks = {},
                   .head_scales = {}},
        out_(view<float>(c.forward.out)) {
    if (c.forward.mask == MaskKind::kCausal) options_.mask = mask::causal();
    options_.dropout = {c.forward.dropout_rate, c.forward.dropout_seed};
    options_.bias = view<float>(c.bias);
    options_.log_sum_exp = {static_cast<float*>(c.lse.data),
                            {c.lse.shape[0], c.lse.shape[1], c.lse.shape[2]}};
    options_.threads.count = c.forward.threads;
  }

  void forward() const {
    attention_forward(inputs_.q, inputs_.k, inputs_.v, out_, options_);
  }
  void backward() const { attention_backward(inputs_, gradients_, options_); }

 private:
  BackwardInputs<float> inputs_;
  Gradients<float> gradients_;
  TensorView<float, 4> out_;
  AttentionOptions options_;
};

// ---- the definition, one head in double ----

using Matrix = std::vector<double>;

Matrix head_of(const Array& a, std::int64_t b, std::int64_t h) {
  Matrix m;
  m.reserve(static_cast<std::size_t>(a.shape[2] * a.shape[3]));
  for (std::int64_t i = 0; i < a.shape[2]; ++i) {
    const float* row = view<float>(a).at(b, h, i);
    m.insert(m.end(), row, row + a.shape[3]);
  }
  return m;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add(double* to, double factor, const double* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

class HeadTruth {
 public:
  HeadTruth(const BackwardCase& c, std::int64_t b, std::int64_t h)
      : c_(c),
        q_(head_of(c.forward.q, b, h)),
        k_(head_of(c.forward.k, b, h)),
        v_(head_of(c.forward.v, b, h)),
        d_out_(head_of(c.d_out, b, h)),
        d_q(q_.size()),
        d_k(k_.size()),
        d_v(v_.size()) {
    if (c.bias.data != nullptr) {
      bias_ = head_of(c.bias, 0, h);
      d_bias.resize(bias_.size());
    }
    for (std::int64_t i = 0; i < c.forward.q.shape[2]; ++i) add_row(i);
  }

 private:
  const BackwardCase& c_;
  const Matrix q_, k_, v_, d_out_;
  Matrix bias_;

  void add_row(std::int64_t i) {
    const std::int64_t width = c_.forward.k.shape[3];
    const std::int64_t value_width = c_.forward.v.shape[3];
    const std::int64_t kv_len = c_.forward.k.shape[2];
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const auto [begin, end] = visible_keys(c_.forward, i);
    Matrix p(static_cast<std::size_t>(kv_len)), d_p(p.size());
    const double* q = q_.data() + i * width;
    const double* d_out = d_out_.data() + i * value_width;
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = begin; j < end; ++j) {
      p[j] = scale * dot(q, k_.data() + j * width, width);
      if (!bias_.empty()) p[j] += bias_[i * kv_len + j];
      top = std::max(top, p[j]);
    }
    double sum = 0, along = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      sum += p[j] = std::exp(p[j] - top);
    }
    for (std::int64_t j = begin; j < end; ++j) {
      p[j] /= sum;
      d_p[j] = dot(d_out, v_.data() + j * value_width, value_width);
      along += p[j] * d_p[j];
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const double d_s = p[j] * (d_p[j] - along);
      add(d_v.data() + j * value_width, p[j], d_out, value_width);
      add(d_q.data() + i * width, scale * d_s, k_.data() + j * width, width);
      add(d_k.data() + j * width, scale * d_s, q, width);
      if (!d_bias.empty()) d_bias[i * kv_len + j] = d_s;
    }
  }

 public:
  Matrix d_q, d_k, d_v, d_bias;
};

void compare(const Matrix& got, const Matrix& truth, double& error,
             double& magnitude) {
  error = magnitude = 0;
  for (std::size_t n = 0; n < truth.size(); ++n) {
    const double difference = got[n] - truth[n];
    error = std::max(error, std::isfinite(difference)
                                ? std::abs(difference)
                                : std::numeric_limits<double>::infinity());
    magnitude = std::max(magnitude, std::abs(truth[n]));
  }
}

}  // namespace
}  // namespace regard::bench

using regard::bench::BackwardCase;
using regard::bench::BackwardComparison;

// The forward pass that the backward pass belongs to.
extern "C" double regard_bench_backward_prepare(const BackwardCase* c) {
  return regard::bench::guarded([&] {
    regard::bench::Step(*c).forward();
    return 0.0;
  });
}

// Seconds that `calls` calls took, with the forward pass or without.
extern "C" double regard_bench_backward(const BackwardCase* c,
                                        std::int64_t calls) {
  return regard::bench::guarded([&] {
    const regard::bench::Step step(*c);
    return regard::bench::timed(calls, [&] {
      if (c->with_forward != 0) step.forward();
      step.backward();
    });
  });
}

// Compares the gradients of one head with the definition, without dropout.
extern "C" double regard_bench_compare_backward(const BackwardCase* c,
                                                std::int64_t batch,
                                                std::int64_t head,
                                                BackwardComparison* result) {
  using regard::bench::compare;
  using regard::bench::head_of;
  return regard::bench::guarded([&] {
    const regard::bench::HeadTruth truth(*c, batch, head);
    *result = {};
    compare(head_of(c->d_q, batch, head), truth.d_q, result->error[0],
            result->magnitude[0]);
    compare(head_of(c->d_k, batch, head), truth.d_k, result->error[1],
            result->magnitude[1]);
    compare(head_of(c->d_v, batch, head), truth.d_v, result->error[2],
            result->magnitude[2]);
    if (c->d_bias.data != nullptr) {
      compare(head_of(c->d_bias, 0, head), truth.d_bias, result->error[3],
              result->magnitude[3]);
    }
    return 0.0;
  });
}
