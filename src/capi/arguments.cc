// SPDX-License-Identifier: Apache-2.0
#include "capi/arguments.h"

namespace regard::capi {

void check_struct(const void* given, std::size_t size, const KnownSizes& known,
                  const char* where, const char* name) {
  require(size >= known.first && size <= kMaxStruct, where, name,
          ".size must be the sizeof of its struct, at least ", known.first,
          "; it is ", size);
  if (size <= known.now) return;
  const auto* const bytes = static_cast<const unsigned char*>(given);
  require(std::all_of(bytes + known.now, bytes + size,
                      [](unsigned char byte) { return byte == 0; }),
          where, name,
          " sets a member that this library, which is older, does not know");
}

DType dtype_of(regard_dtype dtype, const char* where, const char* name) {
  constexpr std::array kTypes{DType::kFloat32,  DType::kFloat64,
                              DType::kBFloat16, DType::kFloat16,
                              DType::kInt8,     DType::kBool};
  require(dtype >= 0 && dtype < std::ssize(kTypes), where, "the dtype of ",
          name, " must be one of regard_dtype; it is ", dtype);
  return kTypes[static_cast<std::size_t>(dtype)];
}

Score score_of(regard_score score, const char* where) {
  require(score == REGARD_DOT || score == REGARD_COSINE, where,
          "score must be REGARD_DOT or REGARD_COSINE; it is ", score);
  return score == REGARD_DOT ? Score::kDot : Score::kCosine;
}

Compute compute_of(regard_compute compute, const char* where) {
  require(
      compute == REGARD_COMPUTE_FLOAT32 || compute == REGARD_COMPUTE_BFLOAT16,
      where,
      "compute must be REGARD_COMPUTE_FLOAT32 or REGARD_COMPUTE_BFLOAT16; "
      "it is ",
      compute);
  return compute == REGARD_COMPUTE_FLOAT32 ? Compute::kFloat32
                                           : Compute::kBFloat16;
}

Threads threads_of(int32_t count, regard_thread_pool* pool, const char* where) {
  require(count >= 0, where, "threads must not be negative; it is ", count);
  return {count, pool == nullptr ? nullptr : &pool->pool};
}

void check_array(const void* values, std::int64_t count, const char* where,
                 const char* name) {
  require(count >= 0, where, "the number of ", name,
          " must not be negative; it is ", count);
  if (count > 0) not_null(static_cast<const char*>(values), where, name);
}

void check_dtype(DType came, DType wanted, const char* where,
                 const char* name) {
  require(came == wanted, where, name, " must be ", to_string(wanted),
          "; it is ", to_string(came));
}

namespace {

std::int64_t elements_of(std::span<const std::int64_t> shape, const char* where,
                         const char* name) {
  try {
    return element_count(shape);
  } catch (const InvalidArgument&) {
    require(false, where, "the elements of ", name,
            " must fit in 63 bits of bytes; its shape is ", ShapeText{shape});
  }
  return 0;
}

}  // namespace

regard_tensor read_tensor(const regard_tensor* given, const char* where,
                          const char* name) {
  regard_tensor tensor = read_struct(given, where, name);
  require(tensor.rank >= 1 && tensor.rank <= REGARD_MAX_RANK, where,
          "the rank of ", name, " must be from 1 to ", REGARD_MAX_RANK,
          "; it is ", tensor.rank);
  const auto rank = static_cast<std::size_t>(tensor.rank);
  const std::span<const std::int64_t> shape(tensor.shape, rank);
  require(std::all_of(shape.begin(), shape.end(),
                      [](std::int64_t extent) { return extent >= 0; }),
          where, "no extent of ", name, " may be negative; its shape is ",
          ShapeText{shape});
  // Where there is data, too: below, products of extents become strides.
  const std::int64_t elements = elements_of(shape, where, name);
  require(tensor.data != nullptr || elements == 0, where, "the data of ", name,
          " must not be NULL; its shape is ", ShapeText{shape});
  const std::span strides(tensor.strides, rank);
  if (std::all_of(strides.begin(), strides.end(),
                  [](std::int64_t stride) { return stride == 0; })) {
    std::int64_t stride = 1;
    for (std::size_t i = rank; i-- > 0; stride *= shape[i]) {
      strides[i] = stride;
    }
  }
  require(strides.back() == 1 || shape.back() <= 1, where,
          "the last stride of ", name, " must be 1; its strides are ",
          ShapeText{strides});
  return tensor;
}

void check_rank(const regard_tensor& tensor, int rank, const char* where,
                const char* name) {
  require(tensor.rank == rank, where, name, " must have rank ", rank,
          "; it has rank ", tensor.rank);
}

template <typename Real>
BasicAttentionOptions<Real> options_of(const regard_attention_options* given,
                                       const char* where) {
  const regard_attention_options from = read_options(given, where);
  BasicAttentionOptions<Real> to;
  if (from.mask != nullptr) to.mask = from.mask->mask;
  to.score = score_of(from.score, where);
  to.compute = compute_of(from.compute, where);
  if (from.has_scale != 0) to.scale = static_cast<Real>(from.scale);
  to.softcap = static_cast<Real>(from.softcap);
  to.dropout = {static_cast<float>(from.dropout_rate), from.dropout_seed};
  to.head_scales =
      typed_span<const Real>(from.head_scales, where, "head_scales");
  to.bias = typed_view<const Real, 4>(from.bias, where, "bias");
  to.alibi_slopes =
      typed_span<const Real>(from.alibi_slopes, where, "alibi_slopes");
  to.sinks = typed_span<const Real>(from.sinks, where, "sinks");
  to.log_sum_exp = typed_view<Real, 3>(from.log_sum_exp, where, "log_sum_exp");
  require(from.sequences >= 0 && from.sequences < INT32_MAX, where,
          "sequences must be from 0 to 2^31 - 2; it is ", from.sequences);
  if (from.sequences > 0 || from.q_offsets != nullptr ||
      from.kv_offsets != nullptr) {
    require(from.sequences > 0, where,
            "sequences must be positive where there are offsets; it is 0");
    to.sequences = {
        span_of(from.q_offsets, from.sequences + 1, where, "q_offsets"),
        span_of(from.kv_offsets, from.sequences + 1, where, "kv_offsets")};
  }
  to.threads = threads_of(from.threads, from.pool, where);
  return to;
}

template BasicAttentionOptions<float> options_of(
    const regard_attention_options*, const char*);
template BasicAttentionOptions<double> options_of(
    const regard_attention_options*, const char*);

}  // namespace regard::capi
