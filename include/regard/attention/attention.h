// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "regard/core/float16.h"
#include "regard/core/threads.h"
#include "regard/mask/mask.h"
#include "regard/tensor/tensor_view.h"
#include "regard/tensor/untyped_view.h"

namespace regard {

enum class Score {
  kDot,     // scale * (q . k), scale defaults to 1 / sqrt(d_k)
  kCosine,  // scale * (q . k) / (|q| |k|), scale defaults to 1; a zero vector
            // is similar to nothing: its scores are 0
};

// The arithmetic of attention_forward and attention_backward.
enum class Compute {
  // In float (double for double), the same bits on every machine.
  kFloat32,
  // What is multiplied is rounded to bf16: q, k, v, weights and gradients; sums
  // and the softmax stay in float. By tiles (AMX), VDPBF16PS or float, as the
  // machine has them: each has bits of its own, which depend on no thread,
  // batch or block. Not for double.
  kBFloat16,
};

// Weights are dropped after the softmax and the remaining ones divided by 1 -
// rate. Whether one is dropped is a pure function of (seed, batch, head, query,
// key).
struct Dropout {
  float rate = 0.0f;  // in [0, 1)
  std::uint64_t seed = 0;
};

// Sequences of different lengths laid one after the other, without padding.
// Sequence s owns the queries [q_offsets[s], q_offsets[s + 1]) and the keys
// [kv_offsets[s], kv_offsets[s + 1]). Offsets start at 0, never fall, and end
// at the packed length. Within a call each sequence is a batch entry of its
// own: masks, bias, ALiBi and dropout count batch = s and positions from its
// start.
struct Sequences {
  std::span<const std::int64_t> q_offsets{};
  std::span<const std::int64_t> kv_offsets{};
};

// What one attention does, beyond q, k and v. Real is float for float, BFloat16
// and Float16 elements, and double for double. Every member has an initialiser,
// so that {.mask = m} is free of warnings.
template <typename Real>
struct BasicAttentionOptions {
  Mask mask{};
  Score score = Score::kDot;
  std::optional<Real> scale{};
  // [heads], multiplies scale; a learned temperature. Empty: all 1.
  std::span<const Real> head_scales{};
  // Added to the scores: [batch or 1, heads or 1, q_len or 1, kv_len or 1].
  // -inf hides a pair. In packed calls, batch counts sequences and the last two
  // extents are 1 or at least the longest sequence's.
  TensorView<const Real, 4> bias{};
  // [heads]. Adds -slope * |p - key| where p = query + kv_len - q_len.
  std::span<const Real> alibi_slopes{};
  // Caps the scaled product before bias and ALiBi are added, as ONNX and
  // FlashAttention do: softcap * tanh(product / softcap). 0: none.
  Real softcap = 0;
  // [heads]. One more logit in each row's denominator, with no value.
  std::span<const Real> sinks{};
  Dropout dropout{};
  // Empty, or q and out are [1, heads, total_q, ...], k and v [1, kv_heads,
  // total_kv, ...]. Dense and document masks cannot be used with it.
  Sequences sequences{};
  // If given, [batch, heads, q_len], written: the natural logarithm of each
  // row's denominator, sink included; -inf where it is zero.
  TensorView<Real, 3> log_sum_exp{};
  Threads threads{};
  Compute compute = Compute::kFloat32;
};
using AttentionOptions = BasicAttentionOptions<float>;
using AttentionOptionsF64 = BasicAttentionOptions<double>;

// Borrows a Struct<float> or a Struct<double>, for the length of a call.
template <template <typename> class Struct>
class FloatOrDouble {
 public:
  FloatOrDouble(const Struct<float>& value)  // NOLINT: implicit on purpose
      : float_(&value) {}
  FloatOrDouble(const Struct<double>& value)  // NOLINT: implicit on purpose
      : double_(&value) {}

  // Null where it is the other one.
  template <typename Real>
  const Struct<Real>* get_if() const {
    if constexpr (std::is_same_v<Real, double>) {
      return double_;
    } else {
      return float_;
    }
  }

 private:
  const Struct<float>* float_ = nullptr;
  const Struct<double>* double_ = nullptr;
};
using AttentionOptionsRef = FloatOrDouble<BasicAttentionOptions>;

namespace detail {

template <typename T>
concept AttentionElement =
    std::is_same_v<T, float> || std::is_same_v<T, BFloat16> ||
    std::is_same_v<T, Float16> || std::is_same_v<T, double>;

// float, BFloat16 and Float16 are computed in float, double in double.
template <typename T>
using RealOf =
    std::conditional_t<std::is_same_v<std::remove_const_t<T>, double>, double,
                       float>;
template <typename T>
using OptionsOf = BasicAttentionOptions<RealOf<T>>;

// The other arguments of a call whose q is a TensorView<Q, 4>. Only q says what
// Q is, so that views of mutable elements and {data, shape} go for the others.
template <typename Q>
requires AttentionElement<std::remove_const_t<Q>>
using LikeQ = std::type_identity_t<TensorView<const Q, 4>>;
template <typename Q>
using OutLikeQ = std::type_identity_t<TensorView<std::remove_const_t<Q>, 4>>;

}  // namespace detail

// out = softmax(softcap(scale * q k^T) + bias, over the visible keys) v, for
// each batch and head on its own.
//
//   q   [batch, heads,    q_len,  d_k]
//   k   [batch, kv_heads, kv_len, d_k]   kv_heads divides heads: head h reads
//   v   [batch, kv_heads, kv_len, d_v]   key-value head h / (heads / kv_heads)
//   out [batch, heads,    q_len,  d_v]   may not overlap the inputs
//
// Any extent may be zero except d_k when there are keys to score. A row that
// sees no key (all masked, all scores -inf, or kv_len 0) yields zeros. NaN and
// infinities reach exactly the rows that see them. Storage may be float,
// BFloat16, Float16 (computed in float) or double (computed in double). Memory
// beyond the arguments does not grow with q_len * kv_len.
//
// Throws InvalidArgument if shapes or options disagree; out is then untouched.
template <typename Q>
void attention_forward(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       detail::LikeQ<Q> v, detail::OutLikeQ<Q> out,
                       const detail::OptionsOf<Q>& options = {});

// The same where the types of elements are known at run time: all views of one
// type, options in double for double and in float for all others.
void attention_forward(ConstUntypedView<4> q, ConstUntypedView<4> k,
                       ConstUntypedView<4> v, UntypedView<4> out,
                       AttentionOptionsRef options);

template <typename Q>
void attention_forward(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       detail::LikeQ<Q> v, detail::OutLikeQ<Q> out,
                       const detail::OptionsOf<Q>& options) {
  attention_forward(ConstUntypedView<4>(q), ConstUntypedView<4>(k),
                    ConstUntypedView<4>(v), UntypedView<4>(out),
                    AttentionOptionsRef(options));
}

// A bias view [1, heads, q_len, kv_len] of a relative-position table
// [heads, q_len + kv_len - 1]: bias(h, i, j) = table(h, j - i + q_len - 1).
// Nothing is copied: the rows of the view overlap.
template <typename Real>
TensorView<const Real, 4> relative_bias(TensorView<const Real, 2> table,
                                        std::int64_t q_len,
                                        std::int64_t kv_len) {
  require(
      q_len > 0 && kv_len > 0 && table.extent(1) == q_len + kv_len - 1,
      "relative_bias", "the table must be [heads, q_len + kv_len - 1]; it is ",
      to_string(table.shape()), ", q_len is ", q_len, ", kv_len is ", kv_len);
  return {table.data() + q_len - 1,
          {1, table.extent(0), q_len, kv_len},
          {0, table.stride(0), -1, 1}};
}

}  // namespace regard
