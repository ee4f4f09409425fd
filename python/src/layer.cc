// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "bind.h"
#include "options.h"
#include "regard/nn/multi_head_attention.h"
#include "state_dict.h"
#include "values.h"

namespace regard::python {
namespace {

using nn::MultiHeadAttention;
using nn::MultiHeadAttentionConfig;
using nn::MultiHeadAttentionContext;
using nn::MultiHeadAttentionGradients;
using nn::MultiHeadAttentionOptions;

constexpr const char* kWhere = "MultiHeadAttention";

// An input [batch, len, dim] or [len, dim], float32.
Array read_input(nb::handle object, const char* name) {
  Array array = input_array(object, kWhere, name);
  if (array.dtype() != DType::kFloat32) {
    throw_type_error(kWhere, name, " must be float32; it is ",
                     to_string(array.dtype()));
  }
  require(array.rank() == 2 || array.rank() == 3, kWhere, name,
          " must be [batch, len, dim] or [len, dim]; it is ",
          to_string(array.shape()));
  return array;
}

// What a forward call leaves for backward, with everything that it borrows.
struct Context {
  MultiHeadAttentionContext saved;
  Array query, key, value;
  std::vector<nb::object> objects;
  std::shared_ptr<Options<float>> options;
  bool one_input = false;
};

MultiHeadAttentionConfig read_config(std::int64_t model_dim, std::int64_t heads,
                                     nb::kwargs given) {
  MultiHeadAttentionConfig config{};
  config.model_dim = model_dim;
  config.heads = heads;
  for (const auto& [key, value] : given) {
    const std::string_view name = to_text(key, kWhere, "a keyword");
    std::int64_t* const size = name == "kv_heads"    ? &config.kv_heads
                               : name == "key_dim"   ? &config.key_dim
                               : name == "value_dim" ? &config.value_dim
                               : name == "head_dim"  ? &config.head_dim
                               : name == "value_head_dim"
                                   ? &config.value_head_dim
                                   : nullptr;
    bool* const flag = name == "bias"            ? &config.bias
                       : name == "bias_kv"       ? &config.bias_kv
                       : name == "add_zero_attn" ? &config.add_zero_attn
                                                 : nullptr;
    if (size != nullptr) {
      *size = to_integer(value, kWhere, name);
    } else if (flag != nullptr) {
      *flag = to_bool(value);
    } else if (name == "dropout") {
      config.dropout = static_cast<float>(to_double(value, kWhere, name));
    } else if (name == "scale") {
      if (!value.is_none()) {
        config.scale = static_cast<float>(to_double(value, kWhere, name));
      }
    } else if (name == "score") {
      config.score =
          to_choice<Score>(value, kWhere, name,
                           {{"dot", Score::kDot}, {"cosine", Score::kCosine}});
    } else if (name != "seed" && name != "state_dict") {
      throw_type_error(kWhere, "there is no keyword '", name, "'");
    }
  }
  return config;
}

void construct(MultiHeadAttention* self, std::int64_t model_dim,
               std::int64_t heads, nb::kwargs given) {
  const MultiHeadAttentionConfig config = read_config(model_dim, heads, given);
  if (given.contains("state_dict") && !given["state_dict"].is_none()) {
    const nb::object state = given["state_dict"];
    if (!nb::isinstance<nb::dict>(state)) {
      throw_type_error(kWhere, "state_dict must be a dict; got ",
                       type_text(state));
    }
    new (self) MultiHeadAttention(
        config, to_state_dict(nb::borrow<nb::dict>(state), kWhere));
    return;
  }
  const std::uint64_t seed =
      given.contains("seed") ? to_seed(given["seed"], kWhere) : 0;
  new (self) MultiHeadAttention(config, seed);
}

// Which weights a call also returns.
enum class Weights { kEach, kMean };

// The keywords that only a layer's call has.
struct LayerCall {
  bool training = false;
  bool keep_context = false;
  std::optional<Weights> weights{};

  bool read(std::string_view name, nb::handle value) {
    if (name == "training") {
      training = to_bool(value);
    } else if (name == "keep_context") {
      keep_context = to_bool(value);
    } else if (name == "weights") {
      if (value.is_none()) return true;
      weights = to_choice<Weights>(
          value, kWhere, name,
          {{"each", Weights::kEach}, {"mean", Weights::kMean}});
    } else {
      return false;
    }
    return true;
  }
};

nb::object call(const MultiHeadAttention& self, nb::object query,
                nb::object key, nb::object value, nb::kwargs given) {
  LayerCall wanted;
  const Keywords keywords(given, kWhere,
                          [&](std::string_view name, nb::handle item) {
                            return wanted.read(name, item);
                          });
  require(!keywords.scale && !keywords.sinks.is_valid() &&
              !keywords.head_scales.is_valid() &&
              !keywords.sequences.is_valid() && keywords.dropout == 0,
          kWhere,
          "a call takes mask, bias, alibi, softcap, compute, seed and threads; "
          "the rest belongs to the layer");
  const bool dropping = wanted.training && self.config().dropout > 0;
  require(!dropping || keywords.seed, kWhere,
          "training with dropout needs a seed, a new one for each step");
  if (key.is_none()) key = query;
  if (value.is_none()) value = key;
  refuse_gradient(query, kWhere, "query");
  refuse_gradient(key, kWhere, "key");
  refuse_gradient(value, kWhere, "value");
  keywords.refuse_gradients(kWhere);

  auto context = std::make_unique<Context>();
  context->one_input = key.is(query) && value.is(query);
  context->objects = {query, key, value};
  for (const auto& [name, item] : given) {
    context->objects.push_back(nb::borrow(item));
  }
  context->query = read_input(query, "query");
  context->key = read_input(key, "key");
  context->value = read_input(value, "value");
  context->options = std::make_shared<Options<float>>(keywords, kWhere);
  const auto& common = context->options->value;
  const Array& q = context->query;
  const bool batched = q.rank() == 3;
  require(context->key.rank() == q.rank() && context->value.rank() == q.rank(),
          kWhere, "query, key and value must all have a batch, or none");

  std::vector<std::int64_t> shape(q.shape().begin(), q.shape().end());
  shape.back() = self.config().model_dim;
  const nb::object out = new_array(query, shape, DType::kFloat32);
  const Array out_array(out, kWhere, "out", Array::Access::kWrite);

  MultiHeadAttentionOptions options{};
  options.mask = common.mask;
  options.bias = common.bias;
  options.alibi_slopes = common.alibi_slopes;
  options.softcap = common.softcap;
  options.threads = common.threads;
  options.compute = common.compute;
  options.mode = wanted.training ? nn::Mode::kTraining : nn::Mode::kInference;
  options.dropout_seed = keywords.seed.value_or(0);
  if (wanted.keep_context) options.context = &context->saved;

  nb::object weights = nb::none();
  Array weights_array;
  if (wanted.weights) {
    const int axis = batched ? 1 : 0;
    std::vector<std::int64_t> extents;
    if (batched) extents.push_back(q.extent(0));
    if (wanted.weights == Weights::kEach) {
      extents.push_back(self.config().heads);
    }
    extents.push_back(q.extent(axis));
    extents.push_back(context->key.extent(axis) + self.appended_keys());
    weights = new_array(query, extents, DType::kFloat32);
    weights_array = Array(weights, kWhere, "weights", Array::Access::kWrite);
    if (wanted.weights == Weights::kEach) {
      options.weights = weights_array.view<float, 4>();
    } else {
      options.average_weights = weights_array.view<float, 3>();
    }
  }
  const auto query_view = q.view<const float, 3>();
  const auto key_view = context->key.view<const float, 3>();
  const auto value_view = context->value.view<const float, 3>();
  const auto out_view = out_array.view<float, 3>();
  run_released([&] {
    self.forward(query_view, key_view, value_view, out_view, options);
  });
  if (!wanted.keep_context && weights.is_none()) return out;
  nb::list results;
  results.append(out);
  if (!weights.is_none()) results.append(weights);
  if (wanted.keep_context) {
    results.append(nb::cast(context.release(), nb::rv_policy::take_ownership));
  }
  return nb::tuple(results);
}

nb::tuple backward(const MultiHeadAttention& self, const Context& context,
                   nb::object d_out) {
  const Array d_out_array = read_input(d_out, "d_out");
  nb::list gradients;
  std::vector<Array> arrays;
  const int inputs = context.one_input ? 1 : 3;
  const Array* const of[] = {&context.query, &context.key, &context.value};
  for (int i = 0; i < inputs; ++i) {
    nb::object gradient =
        new_array(context.objects[i], of[i]->shape(), DType::kFloat32);
    arrays.emplace_back(gradient, kWhere, "gradient", Array::Access::kWrite);
    gradients.append(gradient);
  }
  MultiHeadAttentionGradients wanted{};
  wanted.query = arrays[0].view<float, 3>();
  // One input three times gets the sum of its three gradients.
  wanted.key = arrays[context.one_input ? 0 : 1].view<float, 3>();
  wanted.value = arrays[context.one_input ? 0 : 2].view<float, 3>();
  const auto d_out_view = d_out_array.view<const float, 3>();
  StateDict parameters;
  run_released(
      [&] { parameters = self.backward(context.saved, d_out_view, wanted); });
  return nb::make_tuple(to_dict(parameters), nb::tuple(gradients));
}

}  // namespace

void bind_layer(nb::module_& m) {
  nb::class_<Context>(m, "LayerContext",
                      "What a call of MultiHeadAttention leaves for backward.");
  nb::class_<MultiHeadAttention>(
      m, "MultiHeadAttention",
      R"(Multi-head attention as in "Attention Is All You Need", in NumPy arrays.

Parameters have the names and shapes of torch.nn.MultiheadAttention's, so its
state dict can be loaded. Keywords: kv_heads, key_dim, value_dim, head_dim,
value_head_dim, bias, bias_kv, add_zero_attn, dropout, score, scale; seed draws
the first parameters, state_dict gives them.

>>> import numpy as np, regard
>>> layer = regard.MultiHeadAttention(8, 2, seed=1)
>>> x = np.ones((1, 5, 8), np.float32)
>>> layer(x, mask=regard.mask.causal()).shape
(1, 5, 8)
>>> sorted(layer.state_dict())
['in_proj_bias', 'in_proj_weight', 'out_proj.bias', 'out_proj.weight']
)")
      .def("__init__", &construct, nb::arg("model_dim"), nb::arg("heads"),
           nb::arg("config"),
           nb::sig("def __init__(self, model_dim: int, heads: int, *, "
                   "kv_heads: int = 0, key_dim: int = 0, value_dim: int = 0, "
                   "head_dim: int = 0, value_head_dim: int = 0, "
                   "bias: bool = True, bias_kv: bool = False, "
                   "add_zero_attn: bool = False, dropout: float = 0.0, "
                   "score: str = 'dot', scale: float | None = None, "
                   "seed: int = 0, state_dict: dict | None = None) -> None"))
      .def("__call__", &call, nb::arg("query"), nb::arg("key") = nb::none(),
           nb::arg("value") = nb::none(), nb::arg("options"),
           nb::sig("def __call__(self, query, key=None, value=None, *, "
                   "mask: Mask | None = None, bias=None, alibi=None, "
                   "softcap: float | None = None, training: bool = False, "
                   "seed: int | None = None, weights: str | None = None, "
                   "keep_context: bool = False, compute: str = 'float32', "
                   "threads: int | None = None)"),
           R"(The output, [batch, q_len, model_dim] or without batch.

Without key and value it is self attention. weights="each" or "mean" also returns
the weights of each head or their mean; keep_context=True also returns what
backward needs. compute="bfloat16" rounds inputs and weights to bf16 where they
are multiplied, which is faster on processors with such products; not with
keep_context.)")
      .def("backward", &backward, nb::arg("context"), nb::arg("d_out"),
           R"(The gradients: (of the parameters by name, of the inputs).

The inputs are (query,) for self attention, else (query, key, value).)")
      .def(
          "state_dict",
          [](const MultiHeadAttention& self) {
            return to_dict(self.parameters());
          },
          "The parameters, copied.")
      .def(
          "load_state_dict",
          [](MultiHeadAttention& self, nb::dict state) {
            self.set_parameters(to_state_dict(state, kWhere));
          },
          nb::arg("state_dict"), "Takes new parameters, all of them.");
}

}  // namespace regard::python
