// SPDX-License-Identifier: Apache-2.0
// From the structs of regard/c.h to the types of the library, checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "capi/guard.h"
#include "capi/handles.h"
#include "regard/attention/attention.h"
#include "regard/c.h"
#include "regard/tensor/untyped_view.h"

namespace regard::capi {

// Where the members of a struct's first version end. Members that come later do
// not change it, and a struct that is smaller was never set.
template <typename Struct>
inline constexpr std::size_t kFirstSize = 0;
template <>
inline constexpr std::size_t kFirstSize<regard_tensor> =
    offsetof(regard_tensor, strides) + sizeof(regard_tensor::strides);
template <>
inline constexpr std::size_t kFirstSize<regard_attention_options> =
    offsetof(regard_attention_options, pool) +
    sizeof(regard_attention_options::pool);
template <>
inline constexpr std::size_t kFirstSize<regard_backward_inputs> =
    offsetof(regard_backward_inputs, d_log_sum_exp) +
    sizeof(regard_backward_inputs::d_log_sum_exp);
template <>
inline constexpr std::size_t kFirstSize<regard_gradients> =
    offsetof(regard_gradients, head_scales) +
    sizeof(regard_gradients::head_scales);
template <>
inline constexpr std::size_t kFirstSize<regard_kv_cache_options> =
    offsetof(regard_kv_cache_options, pages) +
    sizeof(regard_kv_cache_options::pages);
template <>
inline constexpr std::size_t kFirstSize<regard_mha_config> =
    offsetof(regard_mha_config, scale) + sizeof(regard_mha_config::scale);
template <>
inline constexpr std::size_t kFirstSize<regard_mha_options> =
    offsetof(regard_mha_options, pool) + sizeof(regard_mha_options::pool);

// The size of the caller's struct may be another than ours: what it lacks is 0,
// and what we lack must be 0. No struct comes near this size: one that is
// larger was never set.
inline constexpr std::size_t kMaxStruct = 4096;
struct KnownSizes {
  std::size_t first = 0;
  std::size_t now = 0;
};
void check_struct(const void* given, std::size_t size, const KnownSizes& known,
                  const char* where, const char* name);

template <typename Struct>
Struct read_struct(const Struct* given, const char* where, const char* name) {
  static_assert(kFirstSize<Struct> > 0 && kFirstSize<Struct> <= sizeof(Struct));
  const std::size_t size = not_null(given, where, name).size;
  check_struct(given, size, {kFirstSize<Struct>, sizeof(Struct)}, where, name);
  Struct ours{};
  std::memcpy(&ours, given, std::min(size, sizeof(Struct)));
  return ours;
}
// The defaults where there is none.
template <typename Struct>
Struct read_options(const Struct* given, const char* where) {
  return given == nullptr ? Struct{} : read_struct(given, where, "options");
}

DType dtype_of(regard_dtype dtype, const char* where, const char* name);
Score score_of(regard_score score, const char* where);
Compute compute_of(regard_compute compute, const char* where);
Threads threads_of(int32_t count, regard_thread_pool* pool, const char* where);

// `count` values that a pointer leads to.
void check_array(const void* values, std::int64_t count, const char* where,
                 const char* name);
template <typename T>
std::span<const T> span_of(const T* values, std::int64_t count,
                           const char* where, const char* name) {
  check_array(values, count, where, name);
  return {values, static_cast<std::size_t>(count)};
}

// A tensor with its strides filled in.
regard_tensor read_tensor(const regard_tensor* given, const char* where,
                          const char* name);
void check_dtype(DType came, DType wanted, const char* where, const char* name);
void check_rank(const regard_tensor& tensor, int rank, const char* where,
                const char* name);

template <int Rank>
UntypedView<Rank> to_view(const regard_tensor* given, const char* where,
                          const char* name) {
  const regard_tensor tensor = read_tensor(given, where, name);
  check_rank(tensor, Rank, where, name);
  UntypedView<Rank> view;
  view.data = tensor.data;
  view.dtype = dtype_of(tensor.dtype, where, name);
  std::copy_n(tensor.shape, Rank, view.shape.begin());
  std::copy_n(tensor.strides, Rank, view.strides.begin());
  return view;
}
template <int Rank>
ConstUntypedView<Rank> to_const_view(const regard_tensor* given,
                                     const char* where, const char* name) {
  const UntypedView<Rank> view = to_view<Rank>(given, where, name);
  return {view.data, view.dtype, view.shape, view.strides};
}

// Elements of one type; a null view where there is no tensor.
template <typename T, int Rank>
TensorView<T, Rank> typed_view(const regard_tensor* given, const char* where,
                               const char* name) {
  if (given == nullptr) return {};
  const UntypedView<Rank> view = to_view<Rank>(given, where, name);
  check_dtype(view.dtype, regard::dtype_of<std::remove_const_t<T>>(), where,
              name);
  return {static_cast<T*>(view.data), view.shape, view.strides};
}
// Contiguous elements of one dimension; empty where there is no tensor.
template <typename T>
std::span<T> typed_span(const regard_tensor* given, const char* where,
                        const char* name) {
  const auto view = typed_view<T, 1>(given, where, name);
  return {view.data(), static_cast<std::size_t>(view.size())};
}

// The options of a call in Real, and what they borrow.
template <typename Real>
BasicAttentionOptions<Real> options_of(const regard_attention_options* given,
                                       const char* where);

}  // namespace regard::capi
