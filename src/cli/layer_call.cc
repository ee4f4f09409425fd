// SPDX-License-Identifier: Apache-2.0
#include "cli/layer_call.h"

#include <utility>

#include "cli/mask_text.h"
#include "cli/tensor_file.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

// [len, width] is a batch of one.
TensorView<const float, 3> batched(const Tensor& tensor) {
  require(tensor.rank() == 2 || tensor.rank() == 3, "layer",
          "an input is [len, width] or [batch, len, width]; it is ",
          to_string(tensor.shape()));
  const Shape& shape = tensor.shape();
  const std::int64_t batch = tensor.rank() == 3 ? shape[0] : 1;
  return {tensor.values<float>().data(),
          {batch, shape[shape.size() - 2], shape.back()}};
}

std::vector<std::string> appended_labels(
    const nn::MultiHeadAttentionConfig& config) {
  std::vector<std::string> labels;
  if (config.bias_kv) labels.push_back("bias");
  if (config.add_zero_attn) labels.push_back("zero");
  return labels;
}

}  // namespace

void call_layer(const nn::MultiHeadAttention& layer, const Inputs& inputs,
                const AttentionFlags& flags, const std::string& caption) {
  const auto query = batched(inputs.query);
  const auto key = batched(inputs.key());
  const auto value = batched(inputs.value());
  const bool is_batched = inputs.query.rank() == 3;
  for (const Tensor* other : {&inputs.key(), &inputs.value()}) {
    require(other->rank() == inputs.query.rank(), "layer",
            "query, key and value must have the same number of dimensions; ",
            to_string(inputs.query.shape()), " and ",
            to_string(other->shape()));
  }
  const nn::MultiHeadAttentionConfig& config = layer.config();
  const OwnedMask mask = parse_mask(flags.masks);
  const bool wants_weights = !flags.weights.empty() || wants_picture(flags);
  const std::int64_t keys = key.extent(1) + layer.appended_keys();
  Shape shape = inputs.query.shape();
  shape.back() = config.model_dim;
  Tensor out(shape);
  Tensor weights(wants_weights ? Shape{query.extent(0), config.heads,
                                       query.extent(1), keys}
                               : Shape{0, 0, 0, 0});
  Tensor bias;
  nn::MultiHeadAttentionOptions options;
  options.mask = mask.mask;
  if (!flags.bias.empty()) {
    bias = converted(load_numbers(flags.bias, "--bias"), DType::kFloat32);
    options.bias = {bias.values<float>().data(),
                    broadcast_shape(bias, "--bias")};
  }
  options.softcap = static_cast<float>(flags.softcap);
  options.mode = flags.dropout > 0 ? nn::Mode::kTraining : nn::Mode::kInference;
  options.dropout_seed = flags.seed;
  if (wants_weights) options.weights = weights.view<float, 4>();
  options.threads = {.count = flags.threads};
  options.compute = flags.compute;
  layer.forward(query, key, value,
                {out.values<float>().data(),
                 {query.extent(0), query.extent(1), config.model_dim}},
                options);

  save_output(flags.out, "out", out);
  if (wants_picture(flags) && query.extent(0) > 0) {
    HeatMaps picture = make_picture({config.heads, query.extent(1), keys},
                                    flags, appended_labels(config));
    const auto all = weights.view<float, 4>();
    for (std::int64_t head = 0; head < config.heads; ++head) {
      for (std::int64_t i = 0; i < query.extent(1); ++i) {
        picture.add_row(head, i, all.at(0, head, i));
      }
    }
    print(caption + picture.draw());
  }
  if (!is_batched && wants_weights) {
    weights =
        std::move(weights).reshaped({config.heads, query.extent(1), keys});
  }
  save_output(flags.weights, "weights", weights);
}

}  // namespace regard::cli
