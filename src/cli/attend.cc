// SPDX-License-Identifier: Apache-2.0
// regard attend: the operation on tensors from files.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "cli/commands.h"
#include "cli/mask_text.h"
#include "cli/tensor_file.h"
#include "cli/usage_error.h"
#include "regard/attention/attention.h"
#include "regard/attention/weights.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

struct AttendFlags : AttentionFlags {
  Score score = Score::kDot;
  std::string dtype;
};

constexpr const char* kShapes =
    R"(Shapes: [len, width] or [batch, len, width], where --heads splits the width
(1 head if not given), or [batch, heads, len, head width], split already.
Query, key and value have the same number of dimensions. The value's heads may
be of another width. A file of [heads, len, head width] is a batch of one-head
sequences and gives the same numbers.)";

constexpr const char* kExamples =
    R"(Examples:
  regard attend
      a sentence through 8 heads with untrained weights, drawn on the screen
  regard attend -x x.npy --heads 8 --mask causal --out y.npy
      causal self attention
  regard attend -q q.npy -k memory.npy --heads 8 --weights w.npy --out y.npy
      cross attention; memory.npy is keys and values
  regard attend -x x.npy --mask causal,window=511:0 --show
      draw the weights of a sliding window of 512 keys)";

// heads as the files and flags say it: the second dimension of four, or what
// the user asks for.
std::int64_t heads_of(const Tensor& tensor, std::int64_t asked,
                      const char* flag) {
  if (tensor.rank() != 4) return asked == 0 ? 1 : asked;
  const std::int64_t heads = tensor.shape()[1];
  require(asked == 0 || asked == heads, "attend", flag, " is ", asked,
          ", but the tensor has ", heads,
          " heads: ", to_string(tensor.shape()));
  return heads;
}

// [batch, heads, len, head width] over the elements of a tensor, in place.
template <typename T>
TensorView<T, 4> split_heads(T* data, const Shape& shape, std::int64_t heads) {
  if (shape.size() == 4) {
    return {data, {shape[0], shape[1], shape[2], shape[3]}};
  }
  const std::int64_t batch = shape.size() == 3 ? shape[0] : 1;
  const std::int64_t len = shape[shape.size() - 2];
  const std::int64_t width = shape.back();
  require(width % heads == 0, "attend",
          "heads must divide the width; heads are ", heads, ", the tensor is ",
          to_string(shape));
  const std::int64_t dim = width / heads;
  return {data, {batch, heads, len, dim}, {len * width, dim, width, 1}};
}

template <typename T>
TensorView<const T, 4> split_heads(const Tensor& tensor, std::int64_t heads) {
  return split_heads(tensor.values<T>().data(), tensor.shape(), heads);
}

// What a type is computed in.
template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The operation on inputs of one type, and all that its options borrow.
class Attend {
 public:
  Attend(Inputs inputs, const AttendFlags& flags)
      : inputs_(std::move(inputs)),
        flags_(flags),
        mask_(parse_mask(flags.masks)) {
    if (!flags.bias.empty()) bias_ = load_numbers(flags.bias, "--bias");
    const Tensor& query = inputs_.query;
    const Tensor& key = inputs_.key();
    for (const Tensor* other : {&key, &inputs_.value()}) {
      require(other->rank() == query.rank(), "attend",
              "query, key and value must have the same number of dimensions; ",
              to_string(query.shape()), " and ", to_string(other->shape()));
    }
    require(query.rank() >= 2 && query.rank() <= 4, "attend",
            "an input is [len, width], [batch, len, width] or "
            "[batch, heads, len, head width]; it is ",
            to_string(query.shape()));
    heads_ = heads_of(query, flags.heads, "--heads");
    const std::int64_t same = query.rank() == 4 ? 0 : heads_;
    kv_heads_ = heads_of(key, flags.kv_heads != 0 ? flags.kv_heads : same,
                         "--kv-heads");
  }

  template <typename T>
  Tensor output() {
    using Real = RealOf<T>;
    const auto query = split_heads<T>(inputs_.query, heads_);
    const auto key = split_heads<T>(inputs_.key(), kv_heads_);
    const auto value = split_heads<T>(inputs_.value(), kv_heads_);
    Shape shape = inputs_.query.shape();
    shape.back() = value.extent(3) * (shape.size() == 4 ? 1 : heads_);
    Tensor out(dtype_of<T>(), shape);
    attention_forward(query, key, value,
                      split_heads(out.values<T>().data(), shape, heads_),
                      options<Real>());
    return out;
  }

  // [batch, heads, q_len, kv_len], without the batch if the query has none.
  template <typename T>
  Tensor weights() {
    using Real = RealOf<T>;
    const auto query = split_heads<T>(inputs_.query, heads_);
    const auto key = split_heads<T>(inputs_.key(), kv_heads_);
    Tensor weights(dtype_of<Real>(),
                   {query.extent(0), heads_, query.extent(2), key.extent(2)});
    attention_weights(query, key, weights.view<Real, 4>(), options<Real>());
    if (inputs_.query.rank() > 2) return weights;
    return std::move(weights).reshaped(
        {heads_, query.extent(2), key.extent(2)});
  }

  // The weights of the first batch entry, drawn as they are computed.
  template <typename T>
  void draw() {
    using Real = RealOf<T>;
    const auto query = split_heads<T>(inputs_.query, heads_);
    const auto key = split_heads<T>(inputs_.key(), kv_heads_);
    HeatMaps picture =
        make_picture({heads_, query.extent(2), key.extent(2)}, flags_);
    const auto visit = [&picture](const WeightsBlock<Real>& block) {
      if (block.batch != 0) return;
      for (std::int64_t i = 0; i < block.weights.extent(0); ++i) {
        picture.add_row(block.head, block.queries[static_cast<std::size_t>(i)],
                        block.weights.at(i));
      }
    };
    stream_attention_weights(query, key, visit, {}, options<Real>());
    print(picture.draw());
  }

 private:
  template <typename Real>
  BasicAttentionOptions<Real> options() {
    BasicAttentionOptions<Real> options;
    options.mask = mask_.mask;
    options.score = flags_.score;
    if (flags_.scale) options.scale = static_cast<Real>(*flags_.scale);
    options.softcap = static_cast<Real>(flags_.softcap);
    options.dropout = {static_cast<float>(flags_.dropout), flags_.seed};
    options.threads = {.count = flags_.threads};
    options.compute = flags_.compute;
    if (bias_) {
      bias_ = converted(*std::move(bias_), dtype_of<Real>());
      options.bias = {bias_->values<Real>().data(),
                      broadcast_shape(*bias_, "--bias")};
    }
    return options;
  }

  Inputs inputs_;
  const AttendFlags& flags_;
  OwnedMask mask_;
  std::optional<Tensor> bias_;
  std::int64_t heads_ = 1;
  std::int64_t kv_heads_ = 1;
};

// All inputs in one type: what the user asks for, or what they are.
DType unify(Inputs& inputs, const std::string& asked) {
  if (asked.empty()) {
    const Inputs& all = inputs;
    const DType dtype = all.query.dtype();
    for (const Tensor* tensor : {&all.query, &all.key(), &all.value()}) {
      require(tensor->dtype() == dtype && is_floating(dtype), "attend",
              "query, key and value must be of one floating type; they hold ",
              to_string(dtype), " and ", to_string(tensor->dtype()),
              "; convert them by --dtype");
    }
    return dtype;
  }
  const DType dtype = parse_dtype(asked);
  inputs.query = converted(std::move(inputs.query), dtype);
  for (std::optional<Tensor>* own : {&inputs.own_key, &inputs.own_value}) {
    if (*own) *own = converted(**std::move(own), dtype);
  }
  return dtype;
}

template <typename T>
void run_typed(Attend& attend, const AttendFlags& flags) {
  // The output is computed even if only the weights are wanted: it checks all
  // shapes.
  save_output(flags.out, "out", attend.output<T>());
  if (!flags.weights.empty()) {
    save_output(flags.weights, "weights", attend.weights<T>());
  }
  if (wants_picture(flags)) attend.draw<T>();
}

void run_attend(const AttendFlags& flags) {
  check_flags(flags);
  if (!has_inputs(flags)) {
    if (!flags.dtype.empty()) {
      throw UsageError("--dtype is for tensors from files");
    }
    return run_attention_demonstration(flags, flags.score);
  }
  Inputs inputs = load_inputs(flags);
  const DType dtype = unify(inputs, flags.dtype);
  Attend attend(std::move(inputs), flags);
  switch (dtype) {
    case DType::kFloat64:
      return run_typed<double>(attend, flags);
    case DType::kBFloat16:
      return run_typed<BFloat16>(attend, flags);
    case DType::kFloat16:
      return run_typed<Float16>(attend, flags);
    default:
      return run_typed<float>(attend, flags);
  }
}

}  // namespace

Command add_attend(App& program) {
  const auto flags = std::make_shared<AttendFlags>();
  App* app = program.add_subcommand(
      "attend", "Attention over tensors; without files, a demonstration");
  app->footer(fmt::format("{}\n\n{}\n\n{}", kShapes, kMaskHelp, kExamples));
  add_input_flags(*app, *flags);
  add_operation_flags(*app, *flags);
  app->add_choice<Score>("--score", flags->score,
                         {{"dot", Score::kDot}, {"cosine", Score::kCosine}},
                         "dot or cosine")
      ->type_name("KIND")
      ->group("Attention");
  app->add_option("--dtype", flags->dtype,
                  "Convert the inputs to float32, bfloat16, float16 or "
                  "float64; they stay what they are if not given")
      ->type_name("TYPE")
      ->check(check_dtype)
      ->group("Attention");
  add_output_flags(*app, *flags);
  return {app, [flags] { run_attend(*flags); }};
}

}  // namespace regard::cli
