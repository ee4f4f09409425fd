// SPDX-License-Identifier: Apache-2.0
#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/checks.h"

namespace regard::detail {
namespace {

// Positions must fit the random generator's 32-bit counters.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 31;

void check_offsets(std::span<const std::int64_t> offsets, std::int64_t total,
                   const char* where, const char* name) {
  require(offsets.size() >= 2 || (offsets.size() == 1 && total == 0), where,
          name, " must hold one more entry than there are sequences; it has ",
          offsets.size());
  require(offsets.front() == 0 && offsets.back() == total, where, name,
          " must start at 0 and end at the packed length; it starts at ",
          offsets.front(), " and ends at ", offsets.back(), ", the length is ",
          total);
  require(std::is_sorted(offsets.begin(), offsets.end()), where, name,
          " must never fall");
}

std::int64_t longest_of(std::span<const std::int64_t> offsets) {
  std::int64_t length = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    length = std::max(length, offsets[i] - offsets[i - 1]);
  }
  return length;
}

}  // namespace

template <typename Real>
Problem<Real>::Problem(ConstElements q_view, ConstElements k_view,
                       ConstElements v_view,
                       const BasicAttentionOptions<Real>& call_options,
                       const char* caller)
    : q(q_view),
      k(k_view),
      v(v_view),
      options(call_options),
      where(caller),
      entries(q_view.extent(0)),
      heads(q_view.extent(1)),
      kv_heads(k_view.extent(1)),
      d_k(q_view.extent(3)),
      d_v(v_view.extent(3)) {
  check_shapes();
  group = kv_heads == 0 ? 0 : heads / kv_heads;
  const Longest longest = check_sequences();
  scale = checked_scale(options, d_k, where);
  check_score_options(options, heads, where);
  require(options.dropout.rate >= 0 && options.dropout.rate < 1, where,
          "the dropout rate must be in [0, 1); it is ", options.dropout.rate);
  check_bias(longest);
  if (!options.log_sum_exp.is_null()) {
    const auto& l = options.log_sum_exp;
    require(l.extent(0) == q.extent(0) && l.extent(1) == heads &&
                l.extent(2) == q.extent(2),
            where, "log_sum_exp must be [batch, heads, q_len]; it is ",
            ShapeText{l.shape()}, ", q is ", ShapeText{q.shape()});
  }
}

template <typename Real>
void Problem<Real>::check_shapes() const {
  const bool has_values =
      !(v.data() == nullptr && v.shape() == ConstElements::Extents{});
  require(
      q.extent(0) == k.extent(0) && (!has_values || q.extent(0) == v.extent(0)),
      where, "q, k and v must have the same batch; q is ", ShapeText{q.shape()},
      ", k is ", ShapeText{k.shape()}, ", v is ", ShapeText{v.shape()});
  require(
      (heads == 0 && kv_heads == 0) || (kv_heads > 0 && heads % kv_heads == 0),
      where, "kv_heads must divide heads; q is ", ShapeText{q.shape()},
      ", k is ", ShapeText{k.shape()});
  require(d_k == k.extent(3), where,
          "q and k must have the same last extent; q is ", ShapeText{q.shape()},
          ", k is ", ShapeText{k.shape()});
  if (has_values) {
    require(k.extent(1) == v.extent(1) && k.extent(2) == v.extent(2), where,
            "k and v must have the same heads and length; k is ",
            ShapeText{k.shape()}, ", v is ", ShapeText{v.shape()});
  }
  require(q.extent(2) < kMaxLength && k.extent(2) < kMaxLength, where,
          "lengths must be below 2^31; q is ", ShapeText{q.shape()}, ", k is ",
          ShapeText{k.shape()});
  const std::int64_t rows = q.extent(0) * q.extent(1) * q.extent(2);
  require(d_k > 0 || rows == 0 || k.extent(2) == 0, where,
          "d_k must be positive where there are keys to score; q is ",
          ShapeText{q.shape()});
}

// Whether the call is packed, and then the sequences' offsets.
template <typename Real>
typename Problem<Real>::Longest Problem<Real>::check_sequences() {
  const Sequences& s = options.sequences;
  packed = !s.q_offsets.empty() || !s.kv_offsets.empty();
  if (!packed) return {q.extent(2), k.extent(2)};
  require(q.extent(0) == 1, where, "packed sequences need a batch of 1; q is ",
          ShapeText{q.shape()});
  check_offsets(s.q_offsets, q.extent(2), where, "sequences.q_offsets");
  check_offsets(s.kv_offsets, k.extent(2), where, "sequences.kv_offsets");
  require(s.q_offsets.size() == s.kv_offsets.size(), where,
          "q_offsets and kv_offsets must be equally long; they have ",
          s.q_offsets.size(), " and ", s.kv_offsets.size());
  entries = static_cast<std::int64_t>(s.q_offsets.size()) - 1;
  return {longest_of(s.q_offsets), longest_of(s.kv_offsets)};
}

template <typename Real>
void Problem<Real>::check_bias(const Longest& longest) const {
  const auto& b = options.bias;
  if (b.is_null()) return;
  const auto fits = [this](std::int64_t extent, std::int64_t wanted) {
    return extent == 1 || (packed ? extent >= wanted : extent == wanted);
  };
  require((b.extent(0) == 1 || b.extent(0) == entries) &&
              (b.extent(1) == 1 || b.extent(1) == heads) &&
              fits(b.extent(2), longest.q) && fits(b.extent(3), longest.kv),
          where,
          "each extent of bias must be 1 or that of [batch, heads, q_len, "
          "kv_len]; bias is ",
          ShapeText{b.shape()}, ", they are [", entries, ", ", heads, ", ",
          longest.q, ", ", longest.kv, "]");
}

template <typename Real>
void Problem<Real>::check_out(const Elements& out) const {
  require(out.extent(0) == q.extent(0) && out.extent(1) == heads &&
              out.extent(2) == q.extent(2) && out.extent(3) == d_v,
          where, "out must be [batch, heads, q_len, d_v]; out is ",
          ShapeText{out.shape()}, ", q is ", ShapeText{q.shape()}, ", v is ",
          ShapeText{v.shape()});
  check_rows_apart(out, where, "out");
  check_rows_apart(options.log_sum_exp, where, "log_sum_exp");
}

template <typename Real>
Entry Problem<Real>::entry(std::int64_t index) const {
  if (!packed) return {index, 0, 0, q.extent(2), k.extent(2)};
  const auto& s = options.sequences;
  const auto i = static_cast<std::size_t>(index);
  return {0, s.q_offsets[i], s.kv_offsets[i],
          s.q_offsets[i + 1] - s.q_offsets[i],
          s.kv_offsets[i + 1] - s.kv_offsets[i]};
}

template <typename Real>
int threads_for(const Problem<Real>& p, std::int64_t flops_per_pair) {
  double pairs = 0;
  for (std::int64_t i = 0; i < (p.packed ? p.entries : 1); ++i) {
    if (p.entries == 0) break;
    const Entry e = p.entry(i);
    pairs += static_cast<double>(e.q_len) * static_cast<double>(e.kv_len);
  }
  if (!p.packed) pairs *= static_cast<double>(p.entries);
  const double flops = pairs * static_cast<double>(p.heads * flops_per_pair);
  if (flops < kSerialFlops) return 1;
  return thread_count(p.options.threads, p.heads * p.q.extent(2));
}

ConstElements hollow_view(DType dtype,
                          const std::array<std::int64_t, 4>& extents) {
  static const double element{};
  return ConstElements(
      ConstUntypedView<4>(&element, dtype, extents, {0, 0, 0, 1}));
}

std::uint32_t dropout_threshold(float rate) {
  const double words = std::round(static_cast<double>(rate) * 4294967296.0);
  return words >= 4294967295.0 ? std::numeric_limits<std::uint32_t>::max()
                               : static_cast<std::uint32_t>(words);
}

template struct Problem<float>;
template int threads_for(const Problem<float>&, std::int64_t);
template struct Problem<double>;
template int threads_for(const Problem<double>&, std::int64_t);

}  // namespace regard::detail
