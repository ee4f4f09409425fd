// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/attention.h"

#include <array>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "attention/checks.h"
#include "attention/untyped.h"
#include "dist/block.h"
#include "dist/by_heads.h"
#include "dist/by_sequence.h"
#include "mask/parts.h"
#include "regard/core/error.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention";

// The lengths of the whole sequence, of which every rank holds its part.
SequenceLengths gather_lengths(Communicator& ranks, std::int64_t own_queries,
                               std::int64_t own_keys) {
  const std::array<std::int64_t, 2> own = {own_queries, own_keys};
  const auto all = gather_values(ranks, own);
  std::array<std::int64_t, 2> totals{};
  for (std::size_t what = 0; what < 2; ++what) {
    for (const auto& one : all) totals[what] += one[what];
    for (int i = 0; i < ranks.size(); ++i) {
      const std::int64_t size = part_of(totals[what], i, ranks.size()).size();
      const std::int64_t has = all[static_cast<std::size_t>(i)][what];
      require(has == size, kWhere, "rank ", i, " must hold ", size, " of ",
              totals[what], what == 0 ? " queries" : " keys", "; it has ", has);
    }
  }
  return {totals[0], totals[1]};
}

void check(const ConstUntypedView<4>& q, const ConstUntypedView<4>& k,
           const ConstUntypedView<4>& v, const ConstUntypedView<4>& out,
           const AttentionOptions& options) {
  require(k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0 &&
              v.shape[1] == k.shape[1] && out.shape[1] == q.shape[1],
          kWhere,
          "kv_heads must divide heads, and v and out must have those "
          "of k and q; q has ",
          q.shape[1], ", k ", k.shape[1], ", v ", v.shape[1], ", out ",
          out.shape[1]);
  require(q.shape[0] == k.shape[0] && q.shape[0] == v.shape[0] &&
              q.shape[0] == out.shape[0] && k.shape[2] == v.shape[2] &&
              q.shape[2] == out.shape[2],
          kWhere,
          "batch, keys of k and v, and queries of q and out must agree");
  require(out.shape[3] == v.shape[3], kWhere,
          "out must be as wide as v; out is ", ShapeText{out.shape}, ", v is ",
          ShapeText{v.shape});
  const std::array<std::int64_t, 3> rows{q.shape[0], q.shape[1], q.shape[2]};
  require(options.log_sum_exp.is_null() || options.log_sum_exp.shape() == rows,
          kWhere, "log_sum_exp must be [batch, heads, own queries]; it is ",
          ShapeText{options.log_sum_exp.shape()}, ", q is ",
          ShapeText{q.shape});
  // What is cut by heads must have all of them; the rest is checked where it is
  // used.
  const auto has_all = [&q](std::int64_t count, const char* name) {
    require(count == q.shape[1], kWhere, name,
            " must have as many heads as q, ", q.shape[1], "; it has ", count);
  };
  for (const auto& [values, name] :
       {std::pair(options.head_scales, "head_scales"),
        std::pair(options.alibi_slopes, "alibi_slopes"),
        std::pair(options.sinks, "sinks")}) {
    if (!values.empty()) has_all(std::ssize(values), name);
  }
  if (options.bias.data() != nullptr && options.bias.extent(1) > 1) {
    has_all(options.bias.extent(1), "the bias");
  }
  for (const auto& part : options.mask.parts()) {
    const auto* dense = std::get_if<DensePart>(&part->what);
    if (dense != nullptr && dense->pairs.extent(1) > 1) {
      has_all(dense->pairs.extent(1), "a dense mask");
    }
  }
  for (const auto* view : {&q, &k, &v, &out}) {
    require(detail::is_computed_in_float(q.dtype) && view->dtype == q.dtype &&
                (view->strides[3] == 1 || view->shape[3] <= 1),
            kWhere,
            "q, k, v and out must have one type, float32, bfloat16 or "
            "float16, and a last stride of 1");
  }
}

void check_gradient(const UntypedView<4>& gradient,
                    const ConstUntypedView<4>& of, const char* name) {
  require(gradient.is_null() ||
              (gradient.shape == of.shape && gradient.dtype == of.dtype &&
               (gradient.strides[3] == 1 || gradient.shape[3] <= 1)),
          kWhere, "the gradient of ", name, " must have its shape and type, ",
          "and a last stride of 1");
  require(!detail::may_overlap(gradient.shape, gradient.strides), kWhere,
          "the rows of the gradient of ", name,
          " must not overlap; its strides are ", ShapeText{gradient.strides});
}

}  // namespace

Way way_of(std::int64_t kv_heads, int ranks, const AttentionOptions& options) {
  // Dropout is drawn by the number of the head, which ranks would count from
  // their own.
  return kv_heads < ranks || options.dropout.rate > 0 ? Way::kBySequence
                                                      : Way::kByHeads;
}

void attention_forward(Communicator& ranks, ConstUntypedView<4> q,
                       ConstUntypedView<4> k, ConstUntypedView<4> v,
                       UntypedView<4> out, const AttentionOptions& options) {
  check(q, k, v, as_const(out), options);
  detail::check_rows_apart(detail::Elements(out), kWhere, "out");
  detail::check_rows_apart(options.log_sum_exp, kWhere, "log_sum_exp");
  if (ranks.size() == 1) {
    return regard::attention_forward(q, k, v, out, options);
  }
  const SequenceLengths lengths = gather_lengths(ranks, q.shape[2], k.shape[2]);
  if (way_of(k.shape[1], ranks.size(), options) == Way::kBySequence) {
    forward_by_sequence(ranks, q, k, v, out, lengths, options);
  } else {
    forward_by_heads(ranks, q, k, v, out, lengths, options);
  }
}

void attention_backward(Communicator& ranks,
                        const UntypedBackwardInputs& inputs,
                        const UntypedGradients& gradients,
                        const AttentionOptions& options) {
  check(inputs.q, inputs.k, inputs.v, inputs.out, options);
  require(gradients.bias.is_null(), kWhere,
          "the gradient of a bias is not taken over ranks");
  check_gradient(gradients.q, inputs.q, "q");
  check_gradient(gradients.k, inputs.k, "k");
  check_gradient(gradients.v, inputs.v, "v");
  require(inputs.d_log_sum_exp.is_null() ||
              (inputs.d_log_sum_exp.dtype == DType::kFloat32 &&
               inputs.d_log_sum_exp.shape == options.log_sum_exp.shape()),
          kWhere, "d_log_sum_exp must be float32, shaped as log_sum_exp is");
  for (const UntypedView<1>& all :
       {gradients.alibi_slopes, gradients.sinks, gradients.head_scales}) {
    require(
        all.is_null() ||
            (all.dtype == DType::kFloat32 && all.shape[0] == inputs.q.shape[1]),
        kWhere, "the gradients of per-head options must be float32 [heads]");
  }
  require(inputs.d_out.shape == inputs.out.shape &&
              inputs.d_out.dtype == inputs.out.dtype,
          kWhere, "d_out must be as out is");
  if (ranks.size() == 1) {
    return regard::attention_backward(inputs, gradients, options);
  }
  require(options.log_sum_exp.shape() ==
              std::array<std::int64_t, 3>{inputs.q.shape[0], inputs.q.shape[1],
                                          inputs.q.shape[2]},
          kWhere, "log_sum_exp must be what the forward call wrote");
  const SequenceLengths lengths =
      gather_lengths(ranks, inputs.q.shape[2], inputs.k.shape[2]);
  if (way_of(inputs.k.shape[1], ranks.size(), options) == Way::kBySequence) {
    backward_by_sequence(ranks, inputs, gradients, lengths, options);
  } else {
    backward_by_heads(ranks, inputs, gradients, lengths, options);
  }
}

}  // namespace regard::dist
