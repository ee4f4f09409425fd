// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/attention.h"

#include <array>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "attention/untyped.h"
#include "dist/block.h"
#include "dist/by_sequence.h"
#include "mask/parts.h"
#include "regard/core/error.h"

namespace regard::dist {
namespace {

constexpr const char* kWhere = "dist::attention";

UntypedView<4> heads_of(UntypedView<4> view, Part heads) {
  view.data = static_cast<std::byte*>(view.data) +
              static_cast<std::size_t>(heads.begin * view.strides[1]) *
                  size_of(view.dtype);
  view.shape[1] = heads.size();
  return view;
}

UntypedView<4> writable(const ConstUntypedView<4>& view) {
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.strides};
}

// Who holds what. Heads are cut where the groups of key-value heads are.
class Cut {
 public:
  Cut(Communicator& ranks, std::int64_t heads, std::int64_t kv_heads,
      std::int64_t own_queries, std::int64_t own_keys)
      : ranks_(ranks), group_(heads / kv_heads), kv_heads_(kv_heads) {
    const std::array<std::int64_t, 2> own = {own_queries, own_keys};
    const auto all = gather_values(ranks, own);
    for (std::size_t what = 0; what < 2; ++what) {
      for (const auto& one : all) totals_[what] += one[what];
      for (int i = 0; i < ranks.size(); ++i) {
        const std::int64_t size =
            part_of(totals_[what], i, ranks.size()).size();
        const std::int64_t has = all[static_cast<std::size_t>(i)][what];
        require(has == size, kWhere, "rank ", i, " must hold ", size, " of ",
                totals_[what], what == 0 ? " queries" : " keys", "; it has ",
                has);
      }
    }
  }

  enum What { kQueries, kKeys };
  std::int64_t total(What what) const {
    return totals_[static_cast<std::size_t>(what)];
  }
  Part heads(What what, int rank) const {
    const Part part = part_of(kv_heads_, rank, ranks_.size());
    const std::int64_t each = what == kQueries ? group_ : 1;
    return {part.begin * each, part.end * each};
  }
  SequenceLengths lengths() const { return {totals_[0], totals_[1]}; }
  Part own_heads() const { return heads(kQueries, ranks_.rank()); }

  // Own positions with all heads to own heads with all positions.
  Block to_heads(const ConstUntypedView<4>& own, What what) const {
    std::vector<Block> packed;
    for (int i = 0; i < ranks_.size(); ++i) {
      const UntypedView<4> part = heads_of(writable(own), heads(what, i));
      packed.emplace_back(own.dtype, own.shape[2], own.shape[0], part.shape[1],
                          own.shape[3]);
      copy(as_const(part), packed.back().view());
    }
    Block whole(own.dtype, total(what), own.shape[0],
                heads(what, ranks_.rank()).size(), own.shape[3]);
    exchange(packed, whole, what, Direction::kToHeads);
    return whole;
  }

  // And back.
  void to_positions(Block& whole, const UntypedView<4>& own, What what) const {
    std::vector<Block> packed;
    for (int i = 0; i < ranks_.size(); ++i) {
      packed.emplace_back(own.dtype, own.shape[2], own.shape[0],
                          heads(what, i).size(), own.shape[3]);
    }
    exchange(packed, whole, what, Direction::kToPositions);
    for (int i = 0; i < ranks_.size(); ++i) {
      copy(packed[static_cast<std::size_t>(i)].const_view(),
           heads_of(own, heads(what, i)));
    }
  }

 private:
  enum class Direction { kToHeads, kToPositions };
  void exchange(std::vector<Block>& packed, Block& whole, What what,
                Direction direction) const {
    std::vector<std::span<const std::byte>> sends;
    std::vector<std::span<std::byte>> receives;
    for (int i = 0; i < ranks_.size(); ++i) {
      const auto of_rank = packed[static_cast<std::size_t>(i)].bytes();
      const auto of_whole = whole.bytes(part_of(total(what), i, ranks_.size()));
      sends.push_back(direction == Direction::kToHeads ? of_rank : of_whole);
      receives.push_back(direction == Direction::kToHeads ? of_whole : of_rank);
    }
    all_to_all(ranks_, sends, receives);
  }

  Communicator& ranks_;
  std::int64_t group_, kv_heads_;
  std::array<std::int64_t, 2> totals_{};
};

// A mask that counts heads from heads.begin on.
Mask mask_of(const Mask& mask, Part heads) {
  Mask::Parts parts;
  for (const auto& part : mask.parts()) {
    const auto* dense = std::get_if<DensePart>(&part->what);
    if (dense == nullptr || dense->pairs.extent(1) == 1) {
      parts.push_back(part);
      continue;
    }
    const auto& pairs = dense->pairs;
    auto shape = pairs.shape();
    shape[1] = heads.size();
    parts.push_back(std::make_shared<Mask::Part>(
        Mask::Part{DensePart{{pairs.at(0, heads.begin), shape, pairs.strides()},
                             dense->visible_when}}));
  }
  return Mask(std::move(parts));
}

std::span<const float> some(std::span<const float> all, Part heads) {
  if (all.empty()) return all;
  return all.subspan(static_cast<std::size_t>(heads.begin),
                     static_cast<std::size_t>(heads.size()));
}

// The options of a call about some of the heads.
AttentionOptions options_of(const AttentionOptions& options, Part heads,
                            TensorView<float, 3> log_sum_exp) {
  AttentionOptions own = options;
  own.mask = mask_of(options.mask, heads);
  own.head_scales = some(options.head_scales, heads);
  own.alibi_slopes = some(options.alibi_slopes, heads);
  own.sinks = some(options.sinks, heads);
  if (options.bias.data() != nullptr && options.bias.extent(1) > 1) {
    auto shape = options.bias.shape();
    shape[1] = heads.size();
    own.bias = {options.bias.at(0, heads.begin), shape, options.bias.strides()};
  }
  own.log_sum_exp = log_sum_exp;
  return own;
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
  if (ranks.size() == 1) {
    return regard::attention_forward(q, k, v, out, options);
  }
  const Cut cut(ranks, q.shape[1], k.shape[1], q.shape[2], k.shape[2]);
  if (way_of(k.shape[1], ranks.size(), options) == Way::kBySequence) {
    return forward_by_sequence(ranks, q, k, v, out, cut.lengths(), options);
  }
  const Part heads = cut.own_heads();
  const std::int64_t batch = q.shape[0];
  Block all_q = cut.to_heads(q, Cut::kQueries);
  Block all_k = cut.to_heads(k, Cut::kKeys);
  Block all_v = cut.to_heads(v, Cut::kKeys);
  Block all_out(out.dtype, cut.total(Cut::kQueries), batch, heads.size(),
                out.shape[3]);
  const bool wants_rows = options.log_sum_exp.data() != nullptr;
  Tensor rows(Shape{batch, heads.size(), cut.total(Cut::kQueries)});
  regard::attention_forward(
      all_q.const_view(), all_k.const_view(), all_v.const_view(),
      all_out.view(),
      options_of(options, heads,
                 wants_rows ? rows.view<float, 3>() : TensorView<float, 3>{}));
  cut.to_positions(all_out, out, Cut::kQueries);
  if (!wants_rows) return;
  Block columns(DType::kFloat32, cut.total(Cut::kQueries), batch, heads.size(),
                1);
  copy(as_const(as_column(rows.view<float, 3>())), columns.view());
  cut.to_positions(columns, as_column(options.log_sum_exp), Cut::kQueries);
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
  const Cut cut(ranks, inputs.q.shape[1], inputs.k.shape[1], inputs.q.shape[2],
                inputs.k.shape[2]);
  if (way_of(inputs.k.shape[1], ranks.size(), options) == Way::kBySequence) {
    return backward_by_sequence(ranks, inputs, gradients, cut.lengths(),
                                options);
  }
  const Part heads = cut.own_heads();
  Block q = cut.to_heads(inputs.q, Cut::kQueries);
  Block k = cut.to_heads(inputs.k, Cut::kKeys);
  Block v = cut.to_heads(inputs.v, Cut::kKeys);
  Block out = cut.to_heads(inputs.out, Cut::kQueries);
  Block d_out = cut.to_heads(inputs.d_out, Cut::kQueries);
  Block columns =
      cut.to_heads(as_const(as_column(options.log_sum_exp)), Cut::kQueries);
  Tensor rows = as_rows(columns);
  const AttentionOptions own =
      options_of(options, heads, rows.view<float, 3>());
  Tensor d_rows;
  ConstUntypedView<3> d_log_sum_exp;
  if (!inputs.d_log_sum_exp.is_null()) {
    columns = cut.to_heads(as_column(inputs.d_log_sum_exp), Cut::kQueries);
    d_rows = as_rows(columns);
    d_log_sum_exp = ConstUntypedView<3>(d_rows.view<float, 3>());
  }

  // What is wanted, for the own heads of the whole sequence.
  const auto like = [](Block& block) {
    const UntypedView<4> view = block.view();
    return Block(view.dtype, view.shape[2], view.shape[0], view.shape[1],
                 view.shape[3]);
  };
  UntypedGradients whole;
  std::vector<std::pair<const UntypedView<4>*, Block>> wanted;
  wanted.reserve(3);
  const auto want = [&](const UntypedView<4>& gradient, Block& value,
                        UntypedView<4>& to) {
    if (gradient.is_null()) return;
    wanted.emplace_back(&gradient, like(value));
    to = wanted.back().second.view();
  };
  want(gradients.q, q, whole.q);
  want(gradients.k, k, whole.k);
  want(gradients.v, v, whole.v);
  const auto some_heads = [&](UntypedView<1> all) {
    if (all.is_null()) return all;
    all.data = static_cast<float*>(all.data) + heads.begin;
    all.shape[0] = heads.size();
    return all;
  };
  whole.alibi_slopes = some_heads(gradients.alibi_slopes);
  whole.sinks = some_heads(gradients.sinks);
  whole.head_scales = some_heads(gradients.head_scales);
  regard::attention_backward(
      UntypedBackwardInputs{.q = q.const_view(),
                            .k = k.const_view(),
                            .v = v.const_view(),
                            .out = out.const_view(),
                            .d_out = d_out.const_view(),
                            .d_log_sum_exp = d_log_sum_exp},
      whole, own);
  for (auto& [gradient, block] : wanted) {
    cut.to_positions(block, *gradient,
                     gradient == &gradients.q ? Cut::kQueries : Cut::kKeys);
  }
  for (const UntypedView<1>& all :
       {gradients.alibi_slopes, gradients.sinks, gradients.head_scales}) {
    if (all.is_null()) continue;
    std::vector<std::span<std::byte>> parts;
    for (int i = 0; i < ranks.size(); ++i) {
      const Part part = cut.heads(Cut::kQueries, i);
      parts.push_back(std::as_writable_bytes(
          std::span(static_cast<float*>(all.data) + part.begin,
                    static_cast<std::size_t>(part.size()))));
    }
    all_gather(ranks, parts);
  }
}

}  // namespace regard::dist
