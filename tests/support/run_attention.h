// SPDX-License-Identifier: Apache-2.0
// Calls attention_forward with an AttentionCase, in any storage type and memory
// layout, and measures the result against the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "regard/attention/attention.h"
#include "support/attention_case.h"
#include "support/reference_attention.h"
#include "support/same_bits.h"

namespace regard::test {

template <typename T>
using RealFor = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The nearest value with so many bits of fraction, ties to even. Told here once
// more, because a result should not be judged by the conversion that made it.
inline double round_to(double value, int fraction_bits, int least_exponent,
                       double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) <= largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

template <typename T>
double round_to_storage(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return round_to(value, 7, -126, std::ldexp(255.0, 120));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return round_to(value, 10, -14, 65504.0);
  } else {
    return static_cast<double>(static_cast<T>(value));
  }
}

// The same case with inputs that T and its options' type can hold.
template <typename T>
AttentionCase rounded_to(AttentionCase c) {
  for (auto* values : {&c.q, &c.k, &c.v}) {
    for (double& value : *values) value = round_to_storage<T>(value);
  }
  const auto round_real = [](double value) {
    return static_cast<double>(static_cast<RealFor<T>>(value));
  };
  if (c.scale) c.scale = round_real(*c.scale);
  c.softcap = round_real(c.softcap);
  for (auto* values : {&c.head_scales, &c.alibi_slopes, &c.sinks}) {
    for (double& value : *values) value = round_real(value);
  }
  if (c.bias) {
    for (double& value : c.bias->values) value = round_real(value);
  }
  return c;
}

enum class Layout {
  kContiguous,    // [batch, heads, length, width]
  kLengthFirst,   // [batch, length, heads, width]
  kWithGaps,      // rows, heads and batches with room between them
  kPackedInRows,  // [batch, length, 3, heads, width], as a packed qkv
};

// Elements at home in a buffer with gaps. Gaps hold NaN: reading one shows.
template <typename T>
class Stored {
 public:
  Stored(const Extents4& shape, Layout layout) : shape_(shape) {
    const std::int64_t heads = shape[1], length = shape[2], width = shape[3];
    switch (layout) {
      case Layout::kContiguous:
        strides_ = {heads * length * width, length * width, width, 1};
        break;
      case Layout::kLengthFirst:
        strides_ = {length * heads * width, width, heads * width, 1};
        break;
      case Layout::kWithGaps:
        strides_[2] = width + 3;
        strides_[1] = length * strides_[2] + 5;
        strides_[0] = heads * strides_[1] + 1;
        strides_[3] = 1;
        break;
      case Layout::kPackedInRows:
        strides_ = {length * 3 * heads * width, width, 3 * heads * width, 1};
        break;
    }
    const std::int64_t span = std::max<std::int64_t>(
        {1, shape[0] * strides_[0], shape[2] * strides_[2]});
    const float gap = std::numeric_limits<float>::quiet_NaN();
    buffer_.assign(static_cast<std::size_t>(span) + 1, T(gap));
    buffer_.insert(buffer_.begin(), T(gap));
  }
  Stored(const Extents4& shape, Layout layout,
         const std::vector<double>& values)
      : Stored(shape, layout) {
    std::size_t n = 0;
    for_each([&](T& element) {
      if constexpr (std::is_same_v<T, double>) {
        element = values[n++];
      } else {
        element = T(static_cast<float>(values[n++]));
      }
    });
  }

  TensorView<T, 4> view() { return {buffer_.data() + 1, shape_, strides_}; }
  TensorView<const T, 4> const_view() {
    return {buffer_.data() + 1, shape_, strides_};
  }

  template <typename Body>
  void for_each(const Body& body) {
    for (std::int64_t b = 0; b < shape_[0]; ++b) {
      for (std::int64_t h = 0; h < shape_[1]; ++h) {
        for (std::int64_t i = 0; i < shape_[2]; ++i) {
          T* row = buffer_.data() + 1 + b * strides_[0] + h * strides_[1] +
                   i * strides_[2];
          for (std::int64_t d = 0; d < shape_[3]; ++d) body(row[d]);
        }
      }
    }
  }

  std::vector<T> elements() {
    std::vector<T> all;
    all.reserve(volume(shape_));
    for_each([&](T& element) { all.push_back(element); });
    return all;
  }

  // True if nothing but the elements has been written since construction.
  bool gaps_are_untouched(const Extents4& shape, Layout layout) const {
    Stored fresh(shape, layout);
    Stored mine = *this;
    mine.for_each([](T& element) { element = T(0.0f); });
    fresh.for_each([](T& element) { element = T(0.0f); });
    return std::memcmp(mine.buffer_.data(), fresh.buffer_.data(),
                       mine.buffer_.size() * sizeof(T)) == 0;
  }

 private:
  Extents4 shape_;
  Extents4 strides_{};
  std::vector<T> buffer_;
};

// The options of a call; owns what they borrow, and so may not be moved.
template <typename Real>
class CallOptions {
 public:
  explicit CallOptions(const AttentionCase& c)
      : head_scales_(c.head_scales.begin(), c.head_scales.end()),
        alibi_slopes_(c.alibi_slopes.begin(), c.alibi_slopes.end()),
        sinks_(c.sinks.begin(), c.sinks.end()) {
    value.mask = c.mask.build();
    value.score = c.cosine ? Score::kCosine : Score::kDot;
    if (c.scale) value.scale = static_cast<Real>(*c.scale);
    value.head_scales = head_scales_;
    value.alibi_slopes = alibi_slopes_;
    value.sinks = sinks_;
    value.softcap = static_cast<Real>(c.softcap);
    value.dropout = {.rate = c.dropout_rate, .seed = c.dropout_seed};
    if (c.bias) {
      bias_.assign(c.bias->values.begin(), c.bias->values.end());
      bias_.push_back(0);  // so that an empty bias has an address
      value.bias = {bias_.data(), c.bias->shape};
    }
    value.sequences = {.q_offsets = c.q_offsets, .kv_offsets = c.kv_offsets};
  }
  CallOptions(const CallOptions&) = delete;
  CallOptions& operator=(const CallOptions&) = delete;

  BasicAttentionOptions<Real> value;

 private:
  std::vector<Real> head_scales_, alibi_slopes_, sinks_, bias_;
};

struct RunOptions {
  Layout q = Layout::kContiguous;
  Layout kv = Layout::kContiguous;
  Layout out = Layout::kContiguous;
  int threads = 1;
  Compute compute = Compute::kFloat32;
};

template <typename T>
struct Produced {
  std::vector<T> out;              // [rows, heads, q_len, d_v]
  std::vector<RealFor<T>> lse;     // [rows, heads, q_len]
  bool gaps_are_untouched = true;  // of out
};

// The names of the results whose bits differ.
template <typename T>
std::string different_bits(const Produced<T>& a, const Produced<T>& b) {
  return std::string(same_bits(a.out, b.out) ? "" : "out ") +
         (same_bits(a.lse, b.lse) ? "" : "log_sum_exp");
}

// Everything that one call borrows. Its options may be changed before it runs.
template <typename T>
class ForwardCall {
 public:
  using Real = RealFor<T>;

  explicit ForwardCall(const AttentionCase& c, const RunOptions& run = {})
      : c_(c),
        run_(run),
        q_(c.q_shape(), run.q, c.q),
        k_(c.k_shape(), run.kv, c.k),
        v_(c.v_shape(), run.kv, c.v),
        out_(c.out_shape(), run.out),
        lse_(static_cast<std::size_t>(c.rows() * c.heads * c.q_len),
             Real{12345}),
        options_(c) {
    options.log_sum_exp = {lse_.data(), {c.rows(), c.heads, c.q_len}};
    options.threads.count = run.threads;
    options.compute = run.compute;
  }
  ForwardCall(const ForwardCall&) = delete;
  ForwardCall& operator=(const ForwardCall&) = delete;

  Produced<T> run() {
    attention_forward(q_.const_view(), k_.const_view(), v_.const_view(),
                      out_.view(), options);
    return {.out = out_.elements(),
            .lse = lse_,
            .gaps_are_untouched =
                out_.gaps_are_untouched(c_.out_shape(), run_.out)};
  }

 private:
  const AttentionCase& c_;
  const RunOptions run_;
  Stored<T> q_, k_, v_, out_;
  std::vector<Real> lse_;
  CallOptions<Real> options_;

 public:
  BasicAttentionOptions<Real>& options = options_.value;
};

template <typename T>
Produced<T> run_attention(const AttentionCase& c, const RunOptions& run = {}) {
  return ForwardCall<T>(c, run).run();
}

inline double to_double(float value) { return value; }
inline double to_double(double value) { return value; }
inline double to_double(long double value) {
  return static_cast<double>(value);
}
inline double to_double(BFloat16 value) { return static_cast<float>(value); }
inline double to_double(Float16 value) { return static_cast<float>(value); }

// How far a result is from the truth, and how far a plain loop is.
struct Distance {
  double ours = 0;
  double plain = 0;
  double floor = 1e-6;
  std::string wrong;  // a NaN or infinity that should not be, or is missing

  // 1 is the limit.
  double ratio() const { return ours / (2 * plain + floor); }
  bool within() const { return wrong.empty() && ratio() <= 1; }
  std::string describe() const {
    if (!wrong.empty()) return wrong;
    return "error " + std::to_string(ours * 1e6) + "e-6, a plain loop's " +
           std::to_string(plain * 1e6) + "e-6";
  }
};

inline bool same_kind(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return !(std::isinf(a) || std::isinf(b)) || a == b;
}

template <typename Got, typename Exact, typename Plain>
Distance measure(const std::vector<Got>& got, const std::vector<Exact>& exact,
                 const std::vector<Plain>& plain, const char* name) {
  Distance distance;
  if (got.size() != exact.size()) distance.wrong = "another size";
  for (std::size_t n = 0; n < got.size() && distance.wrong.empty(); ++n) {
    const double a = to_double(got[n]);
    const double truth = static_cast<double>(exact[n]);
    if (!same_kind(a, truth)) {
      distance.wrong = std::string(name) + "[" + std::to_string(n) + "] is " +
                       std::to_string(a) + ", should be " +
                       std::to_string(truth);
    } else if (std::isfinite(truth)) {
      // In the width of the truth: a double would lose what we look for.
      const Exact ours = static_cast<Exact>(a) - exact[n];
      distance.ours = std::max(distance.ours, std::abs(to_double(ours)));
      const Exact loop = static_cast<Exact>(plain[n]) - exact[n];
      if (std::isfinite(loop)) {
        distance.plain = std::max(distance.plain, std::abs(to_double(loop)));
      }
    }
  }
  return distance;
}

struct Judgement {
  Distance out, lse;
  bool gaps_are_untouched = true;

  bool good() const {
    return out.within() && lse.within() && gaps_are_untouched;
  }
  bool is_finite() const {
    return out.wrong.empty() && lse.wrong.empty() && gaps_are_untouched;
  }
  double ratio() const { return std::max(out.ratio(), lse.ratio()); }
  std::string describe() const {
    return "out: " + out.describe() + "; log-sum-exp: " + lse.describe() +
           (gaps_are_untouched ? "" : "; memory beside out was written");
  }
};

inline double largest_magnitude(const auto& values) {
  double largest = 1;
  for (const auto value : values) {
    const double magnitude = std::abs(to_double(value));
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  return largest;
}

// The largest sum of the magnitudes that make a visible pair's score: its
// products |q_d k_d|, scaled, its bias and its ALiBi term.
inline double largest_score_sum(const AttentionCase& c) {
  double largest = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const AttentionCase::Entry e = c.entry(b);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      double scale = c.scale.value_or(
          c.cosine ? 1 : 1 / std::sqrt(static_cast<double>(c.d_k)));
      if (!c.head_scales.empty()) scale *= c.head_scales[h];
      for (std::int64_t i = 0; i < e.sizes.q_len; ++i) {
        const double* q = c.q.data() + c.query_at(e, h, i, c.d_k);
        for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
          if (!c.mask.visible(e.sizes, b, h, i, j)) continue;
          const double* k = c.k.data() + c.key_at(e, h, j, c.d_k);
          double sum = 0;
          for (std::int64_t d = 0; d < c.d_k; ++d) sum += std::abs(q[d] * k[d]);
          sum = c.cosine ? std::abs(scale) : sum * std::abs(scale);
          if (c.bias) {
            const double bias = c.bias->values[c.bias->place(b, h, i, j)];
            if (std::isfinite(bias)) sum += std::abs(bias);
          }
          if (!c.alibi_slopes.empty()) {
            const std::int64_t place = i + e.sizes.kv_len - e.sizes.q_len;
            sum += std::abs(c.alibi_slopes[h] * static_cast<double>(place - j));
          }
          if (std::isfinite(sum)) largest = std::max(largest, sum);
        }
      }
    }
  }
  return largest;
}

// What a case should give. A result may be at most twice as far from the truth
// as the plain loop in the type of arithmetic is, rounded to storage, and 1e-6
// (of the largest value). Where that fails, the plain loop is tried in other
// orders too: one order can be lucky when few rows and huge scores decide.
template <typename T>
class Reference {
 public:
  using Truth =
      std::conditional_t<std::is_same_v<T, double>, long double, double>;

  explicit Reference(const AttentionCase& c)
      : case_(c),
        exact_(reference_attention<Truth>(c)),
        plain_(rounded_plain(0)) {}

  Judgement judge(const Produced<T>& produced) const {
    Judgement judgement = compare(produced, plain_);
    constexpr std::uint64_t kOrders = 16;
    for (std::uint64_t order = 1; order < kOrders; ++order) {
      if (judgement.good() || !judgement.is_finite()) break;
      const Judgement other = compare(produced, rounded_plain(order));
      judgement.out.plain = std::max(judgement.out.plain, other.out.plain);
      judgement.lse.plain = std::max(judgement.lse.plain, other.lse.plain);
    }
    // A result may hang on one score or two, and a score is known to a rounding
    // of what it is summed from. Where few scores decide, a plain loop can be
    // luckier than that: its products of bf16 inputs are exact, and so is the
    // sum of a single one.
    if (!judgement.good()) {
      const double rounding =
          largest_score_sum(case_) * std::numeric_limits<RealFor<T>>::epsilon();
      judgement.lse.floor += rounding;
      judgement.out.floor += rounding * largest_magnitude(case_.v);
    }
    return judgement;
  }

  // The rule without any leniency: twice the error of one plain loop. Luck
  // breaks it now and then, as the second says: another plain loop, which adds
  // in another order, held to the first.
  bool within_one_plain_loop(const Produced<T>& produced) const {
    return compare(produced, plain_).good();
  }
  bool another_plain_loop_is_within() const {
    const Plain other = rounded_plain(1);
    Produced<RealFor<T>> produced;
    produced.out = other.out;
    produced.lse = other.lse;
    return compare(produced, plain_).good();
  }

 private:
  using Plain = ReferenceResult<RealFor<T>>;

  Plain rounded_plain(std::uint64_t order) const {
    Plain plain = reference_attention<RealFor<T>>(case_, order);
    for (auto& value : plain.out) {
      value = static_cast<RealFor<T>>(round_to_storage<T>(to_double(value)));
    }
    return plain;
  }

  template <typename U>
  Judgement compare(const Produced<U>& produced, const Plain& plain) const {
    const double floor = std::is_same_v<T, double> ? 1e-15 : 1e-6;
    Judgement judgement{
        .out = measure(produced.out, exact_.out, plain.out, "out"),
        .lse = measure(produced.lse, exact_.lse, plain.lse, "log_sum_exp"),
        .gaps_are_untouched = produced.gaps_are_untouched};
    judgement.out.floor = floor * largest_magnitude(exact_.out);
    judgement.lse.floor = floor * largest_magnitude(exact_.lse);
    return judgement;
  }

  AttentionCase case_;
  ReferenceResult<Truth> exact_;
  Plain plain_;
};

template <typename T>
Judgement judge(const AttentionCase& c, const Produced<T>& produced) {
  return Reference<T>(c).judge(produced);
}

// Rounds the case to T, runs it and judges it.
template <typename T>
Judgement try_case(const AttentionCase& c, const RunOptions& run = {}) {
  const AttentionCase rounded = rounded_to<T>(c);
  return judge<T>(rounded, run_attention<T>(rounded, run));
}

}  // namespace regard::test
