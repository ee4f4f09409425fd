// SPDX-License-Identifier: Apache-2.0
// The doors: what all of them do is in weights_job.h.
#include "regard/attention/weights.h"

#include <type_traits>

#include "attention/engine.h"
#include "attention/weights_job.h"

namespace regard {
namespace {

using detail::Problem;
using detail::RealOf;
using detail::WeightsJob;

template <typename T>
void forward_with_weights(TensorView<const T, 4> q, TensorView<const T, 4> k,
                          TensorView<const T, 4> v, TensorView<T, 4> out,
                          const BasicWeightsRequest<RealOf<T>>& request,
                          const detail::OptionsOf<T>& options) {
  const char* where = "attention_with_weights";
  const Problem<T> problem(q, k, v, options, where);
  problem.check_out(out);
  require(
      request.rows.empty(), where,
      "rows must be empty, because out has a row for every query; rows has ",
      request.rows.size());
  WeightsJob<T> job(problem, request);
  const bool in_one_pass = !std::is_same_v<T, double> &&
                           detail::engine_available() &&
                           options.compute == Compute::kFloat32 &&
                           problem.k.extent(2) > 0 && job.asks_for_something();
  if (in_one_pass) return job.run(nullptr, out);
  attention_forward(q, k, v, out, options);
  job.run(nullptr);
}

template <typename T>
void all_weights(TensorView<const T, 4> q, TensorView<const T, 4> k,
                 TensorView<RealOf<T>, 4> weights,
                 const detail::OptionsOf<T>& options) {
  const char* where = "attention_weights";
  const Problem<T> problem(q, k, {}, options, where);
  require(!problem.packed, where, "packed sequences are not supported");
  require(
      weights.extent(0) == q.extent(0) && weights.extent(1) == q.extent(1) &&
          weights.extent(2) == q.extent(2) && weights.extent(3) == k.extent(2),
      where, "weights must be [batch, heads, q_len, kv_len]; weights is ",
      to_string(weights.shape()), ", q is ", to_string(q.shape()), ", k is ",
      to_string(k.shape()));
  WeightsJob<T>(problem, {.weights = weights}).run(nullptr);
}

}  // namespace

void attention_weights(TensorView<const float, 4> q,
                       TensorView<const float, 4> k,
                       TensorView<float, 4> weights,
                       const AttentionOptions& options) {
  all_weights<float>(q, k, weights, options);
}
void attention_weights(TensorView<const float, 4> q,
                       TensorView<const float, 4> k,
                       const WeightsRequest& request,
                       const AttentionOptions& options) {
  WeightsJob<float>(Problem<float>(q, k, {}, options, "attention_weights"),
                    request)
      .run(nullptr);
}
void stream_attention_weights(TensorView<const float, 4> q,
                              TensorView<const float, 4> k,
                              WeightsVisitor visit,
                              const WeightsRequest& request,
                              const AttentionOptions& options) {
  WeightsJob<float>(
      Problem<float>(q, k, {}, options, "stream_attention_weights"), request)
      .run(&visit);
}

void attention_with_weights(TensorView<const float, 4> q,
                            TensorView<const float, 4> k,
                            TensorView<const float, 4> v,
                            TensorView<float, 4> out,
                            const WeightsRequest& request,
                            const AttentionOptions& options) {
  forward_with_weights<float>(q, k, v, out, request, options);
}

void attention_weights(TensorView<const BFloat16, 4> q,
                       TensorView<const BFloat16, 4> k,
                       TensorView<float, 4> weights,
                       const AttentionOptions& options) {
  all_weights<BFloat16>(q, k, weights, options);
}
void attention_weights(TensorView<const BFloat16, 4> q,
                       TensorView<const BFloat16, 4> k,
                       const WeightsRequest& request,
                       const AttentionOptions& options) {
  WeightsJob<BFloat16>(
      Problem<BFloat16>(q, k, {}, options, "attention_weights"), request)
      .run(nullptr);
}
void stream_attention_weights(TensorView<const BFloat16, 4> q,
                              TensorView<const BFloat16, 4> k,
                              WeightsVisitor visit,
                              const WeightsRequest& request,
                              const AttentionOptions& options) {
  WeightsJob<BFloat16>(
      Problem<BFloat16>(q, k, {}, options, "stream_attention_weights"), request)
      .run(&visit);
}

void attention_with_weights(TensorView<const BFloat16, 4> q,
                            TensorView<const BFloat16, 4> k,
                            TensorView<const BFloat16, 4> v,
                            TensorView<BFloat16, 4> out,
                            const WeightsRequest& request,
                            const AttentionOptions& options) {
  forward_with_weights<BFloat16>(q, k, v, out, request, options);
}

void attention_weights(TensorView<const Float16, 4> q,
                       TensorView<const Float16, 4> k,
                       TensorView<float, 4> weights,
                       const AttentionOptions& options) {
  all_weights<Float16>(q, k, weights, options);
}
void attention_weights(TensorView<const Float16, 4> q,
                       TensorView<const Float16, 4> k,
                       const WeightsRequest& request,
                       const AttentionOptions& options) {
  WeightsJob<Float16>(Problem<Float16>(q, k, {}, options, "attention_weights"),
                      request)
      .run(nullptr);
}
void stream_attention_weights(TensorView<const Float16, 4> q,
                              TensorView<const Float16, 4> k,
                              WeightsVisitor visit,
                              const WeightsRequest& request,
                              const AttentionOptions& options) {
  WeightsJob<Float16>(
      Problem<Float16>(q, k, {}, options, "stream_attention_weights"), request)
      .run(&visit);
}

void attention_with_weights(TensorView<const Float16, 4> q,
                            TensorView<const Float16, 4> k,
                            TensorView<const Float16, 4> v,
                            TensorView<Float16, 4> out,
                            const WeightsRequest& request,
                            const AttentionOptions& options) {
  forward_with_weights<Float16>(q, k, v, out, request, options);
}

void attention_weights(TensorView<const double, 4> q,
                       TensorView<const double, 4> k,
                       TensorView<double, 4> weights,
                       const AttentionOptionsF64& options) {
  all_weights<double>(q, k, weights, options);
}
void attention_weights(TensorView<const double, 4> q,
                       TensorView<const double, 4> k,
                       const WeightsRequestF64& request,
                       const AttentionOptionsF64& options) {
  WeightsJob<double>(Problem<double>(q, k, {}, options, "attention_weights"),
                     request)
      .run(nullptr);
}
void stream_attention_weights(TensorView<const double, 4> q,
                              TensorView<const double, 4> k,
                              WeightsVisitorF64 visit,
                              const WeightsRequestF64& request,
                              const AttentionOptionsF64& options) {
  WeightsJob<double>(
      Problem<double>(q, k, {}, options, "stream_attention_weights"), request)
      .run(&visit);
}

void attention_with_weights(TensorView<const double, 4> q,
                            TensorView<const double, 4> k,
                            TensorView<const double, 4> v,
                            TensorView<double, 4> out,
                            const WeightsRequestF64& request,
                            const AttentionOptionsF64& options) {
  forward_with_weights<double>(q, k, v, out, request, options);
}

}  // namespace regard
