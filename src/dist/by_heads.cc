// SPDX-License-Identifier: Apache-2.0
// Attention over ranks by heads: each rank gets some heads of the whole
// sequence, computes what one process would, and sends the results back to
// those who hold the positions.
#include "dist/by_heads.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "dist/block.h"
#include "mask/parts.h"
#include "regard/ops/memory_pool.h"

namespace regard::dist {
namespace {

template <typename View>
View some_heads(View view, Part heads) {
  using Byte = std::remove_pointer_t<decltype(view.data)>;
  using Bytes =
      std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
  view.data = static_cast<Bytes*>(view.data) +
              heads.begin * view.strides[1] *
                  static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[1] = heads.size();
  return view;
}

template <typename View>
View some_positions(View view, Part positions) {
  using Byte = std::remove_pointer_t<decltype(view.data)>;
  using Bytes =
      std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
  view.data = static_cast<Bytes*>(view.data) +
              positions.begin * view.strides[2] *
                  static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[2] = positions.size();
  return view;
}

UntypedView<4> writable(const ConstUntypedView<4>& view) {
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.strides};
}

// Some heads of all positions, [batch, heads, positions, width].
class Whole {
 public:
  Whole() = default;
  // Not initialised; the memory is the calling thread's pool's.
  Whole(DType dtype, std::array<std::int64_t, 4> shape) {
    const std::int64_t elements = shape[0] * shape[1] * shape[2] * shape[3];
    memory_ = ops::thread_memory_pool().take(
        (elements * static_cast<std::int64_t>(size_of(dtype)) + 3) / 4);
    view_ = {
        memory_.get(),
        dtype,
        shape,
        {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
  }
  const UntypedView<4>& view() const { return view_; }
  ConstUntypedView<4> const_view() const { return as_const(view_); }
  // Where the width is 1: [batch, heads, positions].
  TensorView<float, 3> rows() const {
    return {static_cast<float*>(view_.data),
            {view_.shape[0], view_.shape[1], view_.shape[2]}};
  }

 private:
  std::shared_ptr<float> memory_;
  UntypedView<4> view_;
};

// Messages between views of the same shape at two ranks. The rows of a head go
// from where they lie to where they are wanted, if they are long; otherwise all
// of a view goes in one message that is packed.
class Messages {
 public:
  void send(int to, const UntypedView<4>& view) {
    for_pieces(view, [&](const UntypedView<4>& piece) {
      if (is_dense(piece)) {
        sends_.push_back({to, bytes_of(piece)});
        return;
      }
      const Whole packed(piece.dtype, piece.shape);
      copy(as_const(piece), packed.view());
      sends_.push_back({to, bytes_of(packed.view())});
      packed_.push_back(packed);
    });
  }
  void receive(int from, const UntypedView<4>& view) {
    for_pieces(view, [&](const UntypedView<4>& piece) {
      if (is_dense(piece)) {
        receives_.push_back({from, bytes_of(piece)});
        return;
      }
      arriving_.emplace_back(Whole(piece.dtype, piece.shape), piece);
      receives_.push_back({from, bytes_of(arriving_.back().first.view())});
    });
  }
  void start(Communicator& ranks) {
    ranks.start(sends_, receives_);
    sends_.clear();
    receives_.clear();
  }
  // After finish_receives().
  void unpack() {
    for (const auto& [packed, to] : arriving_) copy(packed.const_view(), to);
    arriving_.clear();
  }

 private:
  template <typename Body>
  static void for_pieces(const UntypedView<4>& view, const Body& body) {
    constexpr std::int64_t kLong = 32 << 10;  // bytes
    if (view.shape[2] * view.shape[3] *
            static_cast<std::int64_t>(size_of(view.dtype)) <
        kLong) {
      return body(view);
    }
    for (std::int64_t b = 0; b < view.shape[0]; ++b) {
      for (std::int64_t h = 0; h < view.shape[1]; ++h) {
        UntypedView<4> piece = some_heads(view, {h, h + 1});
        piece.data = static_cast<std::byte*>(piece.data) +
                     b * view.strides[0] *
                         static_cast<std::int64_t>(size_of(view.dtype));
        piece.shape[0] = 1;
        body(piece);
      }
    }
  }
  static bool is_dense(const UntypedView<4>& view) {
    std::int64_t stride = 1;
    for (std::size_t i = 4; i-- > 0;) {
      if (view.shape[i] != 1 && view.strides[i] != stride) return false;
      stride *= view.shape[i];
    }
    return true;
  }
  static std::span<std::byte> bytes_of(const UntypedView<4>& view) {
    const auto& s = view.shape;
    return {static_cast<std::byte*>(view.data),
            static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]) *
                size_of(view.dtype)};
  }

  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
  std::vector<Whole> packed_;  // until all is over
  std::vector<std::pair<Whole, UntypedView<4>>> arriving_;
};

// Own positions with all heads to all positions with some heads, and back.
class Cut {
 public:
  Cut(Communicator& ranks, std::int64_t heads, std::int64_t kv_heads,
      const SequenceLengths& lengths)
      : ranks_(ranks),
        each_(heads / kv_heads),
        groups_(kv_heads, ranks.size(), lengths.queries),
        lengths_(lengths) {}

  enum What { kQueries, kKeys };
  std::int64_t length(What what) const {
    return what == kQueries ? lengths_.queries : lengths_.keys;
  }
  // Of a group.
  Part heads(What what, int rank, int group) const {
    const Part part = groups_.kv_heads(rank, group);
    const std::int64_t each = what == kQueries ? each_ : 1;
    return {part.begin * each, part.end * each};
  }
  Part own_heads(int group) const {
    return heads(kQueries, ranks_.rank(), group);
  }

  // Room for the own heads of a group, of all positions.
  Whole room_like(const ConstUntypedView<4>& own, What what, int group) const {
    return {own.dtype,
            {own.shape[0], heads(what, ranks_.rank(), group).size(),
             length(what), own.shape[3]}};
  }
  // The same, and what belongs there comes.
  Whole to_heads(const ConstUntypedView<4>& own, What what, int group) {
    const Whole whole = room_like(own, what, group);
    exchange(writable(own), whole.view(), what, group, Way::kToHeads);
    return whole;
  }
  // Results to those who hold the positions.
  void to_positions(const Whole& whole, const UntypedView<4>& own, What what,
                    int group) {
    exchange(own, whole.view(), what, group, Way::kToPositions);
  }

  // One group after the other: bring(group) and give(group) begin messages by
  // the functions above, compute(group) has what bring() asked for.
  template <typename Bring, typename Compute, typename Give>
  void run(const Bring& bring, const Compute& compute, const Give& give) {
    bring(0);
    messages_.start(ranks_);
    for (int g = 0; g < groups_.count(); ++g) {
      ranks_.finish_receives();
      messages_.unpack();
      if (g + 1 < groups_.count()) bring(g + 1);
      if (g > 0) give(g - 1);
      messages_.start(ranks_);
      if (own_heads(g).size() > 0) compute(g);
    }
    give(groups_.count() - 1);
    messages_.start(ranks_);
    ranks_.finish();
    messages_.unpack();
  }
  int groups() const { return groups_.count(); }

 private:
  enum class Way { kToHeads, kToPositions };
  void exchange(const UntypedView<4>& own, const UntypedView<4>& whole,
                What what, int group, Way way) {
    for (int i = 0; i < ranks_.size(); ++i) {
      const UntypedView<4> here = some_heads(own, heads(what, i, group));
      const UntypedView<4> there =
          some_positions(whole, part_of(length(what), i, ranks_.size()));
      if (i == ranks_.rank()) {
        way == Way::kToHeads ? copy(as_const(here), there)
                             : copy(as_const(there), here);
        continue;
      }
      messages_.send(i, way == Way::kToHeads ? here : there);
      messages_.receive(i, way == Way::kToHeads ? there : here);
    }
  }

  Communicator& ranks_;
  std::int64_t each_;  // heads of a key-value head
  HeadGroups groups_;
  SequenceLengths lengths_;
  Messages messages_;
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

UntypedView<1> some(UntypedView<1> all, Part heads) {
  if (all.is_null()) return all;
  all.data = static_cast<float*>(all.data) + heads.begin;
  all.shape[0] = heads.size();
  return all;
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

}  // namespace

HeadGroups::HeadGroups(std::int64_t kv_heads, int ranks, std::int64_t q_len)
    : kv_heads_(kv_heads), ranks_(ranks) {
  // Short sequences have not enough to do for one head at a time.
  constexpr std::int64_t kMost = 4, kLongEnough = 2048;
  const std::int64_t most_heads = (kv_heads + ranks - 1) / ranks;
  count_ =
      q_len < kLongEnough ? 1 : static_cast<int>(std::min(kMost, most_heads));
}

Part HeadGroups::kv_heads(int rank, int group) const {
  const Part all = part_of(kv_heads_, rank, ranks_);
  const Part part = part_of(all.size(), group, count_);
  return {all.begin + part.begin, all.begin + part.end};
}

void forward_by_heads(Communicator& ranks, ConstUntypedView<4> q,
                      ConstUntypedView<4> k, ConstUntypedView<4> v,
                      UntypedView<4> out, const SequenceLengths& lengths,
                      const AttentionOptions& options) {
  struct Group {
    Whole q, k, v, out, rows;
  };
  const bool wants_rows = options.log_sum_exp.data() != nullptr;
  const UntypedView<4> rows =
      wants_rows ? as_column(options.log_sum_exp) : UntypedView<4>{};
  Cut cut(ranks, q.shape[1], k.shape[1], lengths);
  std::vector<Group> groups(static_cast<std::size_t>(cut.groups()));
  const auto at = [&](int g) -> Group& {
    return groups[static_cast<std::size_t>(g)];
  };
  cut.run(
      [&](int g) {
        at(g).q = cut.to_heads(q, Cut::kQueries, g);
        at(g).k = cut.to_heads(k, Cut::kKeys, g);
        at(g).v = cut.to_heads(v, Cut::kKeys, g);
        at(g).out = cut.room_like(as_const(out), Cut::kQueries, g);
        if (wants_rows) {
          at(g).rows = cut.room_like(as_const(rows), Cut::kQueries, g);
        }
      },
      [&](int g) {
        Group& group = at(g);
        regard::attention_forward(
            group.q.const_view(), group.k.const_view(), group.v.const_view(),
            group.out.view(),
            options_of(
                options, cut.own_heads(g),
                wants_rows ? group.rows.rows() : TensorView<float, 3>{}));
        group.q = group.k = group.v = Whole();
      },
      [&](int g) {
        cut.to_positions(at(g).out, out, Cut::kQueries, g);
        if (wants_rows) {
          cut.to_positions(at(g).rows, rows, Cut::kQueries, g);
        }
      });
}

void backward_by_heads(Communicator& ranks, const UntypedBackwardInputs& inputs,
                       const UntypedGradients& gradients,
                       const SequenceLengths& lengths,
                       const AttentionOptions& options) {
  struct Group {
    Whole q, k, v, out, d_out, rows, d_rows, d_q, d_k, d_v;
  };
  const bool has_d_rows = !inputs.d_log_sum_exp.is_null();
  Cut cut(ranks, inputs.q.shape[1], inputs.k.shape[1], lengths);
  std::vector<Group> groups(static_cast<std::size_t>(cut.groups()));
  const auto at = [&](int g) -> Group& {
    return groups[static_cast<std::size_t>(g)];
  };
  cut.run(
      [&](int g) {
        Group& group = at(g);
        group.q = cut.to_heads(inputs.q, Cut::kQueries, g);
        group.k = cut.to_heads(inputs.k, Cut::kKeys, g);
        group.v = cut.to_heads(inputs.v, Cut::kKeys, g);
        group.out = cut.to_heads(inputs.out, Cut::kQueries, g);
        group.d_out = cut.to_heads(inputs.d_out, Cut::kQueries, g);
        group.rows = cut.to_heads(as_const(as_column(options.log_sum_exp)),
                                  Cut::kQueries, g);
        if (has_d_rows) {
          group.d_rows =
              cut.to_heads(as_column(inputs.d_log_sum_exp), Cut::kQueries, g);
        }
        // What is wanted.
        if (!gradients.q.is_null()) {
          group.d_q = cut.room_like(inputs.q, Cut::kQueries, g);
        }
        if (!gradients.k.is_null()) {
          group.d_k = cut.room_like(inputs.k, Cut::kKeys, g);
        }
        if (!gradients.v.is_null()) {
          group.d_v = cut.room_like(inputs.v, Cut::kKeys, g);
        }
      },
      [&](int g) {
        Group& group = at(g);
        const Part heads = cut.own_heads(g);
        UntypedGradients some_gradients;
        some_gradients.q = group.d_q.view();
        some_gradients.k = group.d_k.view();
        some_gradients.v = group.d_v.view();
        some_gradients.alibi_slopes = some(gradients.alibi_slopes, heads);
        some_gradients.sinks = some(gradients.sinks, heads);
        some_gradients.head_scales = some(gradients.head_scales, heads);
        regard::attention_backward(
            UntypedBackwardInputs{
                .q = group.q.const_view(),
                .k = group.k.const_view(),
                .v = group.v.const_view(),
                .out = group.out.const_view(),
                .d_out = group.d_out.const_view(),
                .d_log_sum_exp = has_d_rows
                                     ? ConstUntypedView<3>(group.d_rows.rows())
                                     : ConstUntypedView<3>{}},
            some_gradients, options_of(options, heads, group.rows.rows()));
        group.q = group.k = group.v = group.out = group.d_out = group.rows =
            group.d_rows = Whole();
      },
      [&](int g) {
        Group& group = at(g);
        if (!gradients.q.is_null()) {
          cut.to_positions(group.d_q, gradients.q, Cut::kQueries, g);
        }
        if (!gradients.k.is_null()) {
          cut.to_positions(group.d_k, gradients.k, Cut::kKeys, g);
        }
        if (!gradients.v.is_null()) {
          cut.to_positions(group.d_v, gradients.v, Cut::kKeys, g);
        }
      });
  const std::int64_t each = inputs.q.shape[1] / inputs.k.shape[1];
  for (const UntypedView<1>& all :
       {gradients.alibi_slopes, gradients.sinks, gradients.head_scales}) {
    if (all.is_null()) continue;
    std::vector<std::span<std::byte>> parts;
    for (int i = 0; i < ranks.size(); ++i) {
      const Part part = part_of(inputs.k.shape[1], i, ranks.size());
      parts.push_back(std::as_writable_bytes(
          std::span(static_cast<float*>(all.data) + part.begin * each,
                    static_cast<std::size_t>(part.size() * each))));
    }
    all_gather(ranks, parts);
  }
}

}  // namespace regard::dist
