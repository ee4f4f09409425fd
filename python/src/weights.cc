// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/weights.h"

#include <optional>
#include <vector>

#include "bind.h"
#include "docs.h"
#include "inputs.h"
#include "options.h"
#include "values.h"

namespace regard::python {
namespace {

constexpr const char* kWeights = "attention_weights";
constexpr const char* kWithWeights = "attention_with_weights";

// The keywords that say what is wanted of the weights.
struct Wanted {
  const char* where;
  std::vector<std::int64_t> rows{};
  std::int64_t top_k = 0;
  std::optional<OverRows> received{};
  bool entropy = false;
  OverHeads heads = OverHeads::kEach;

  bool read(std::string_view name, nb::handle value) {
    const bool none = value.is_none();
    if (name == "rows") {
      if (!none) {
        rows = to_integers(value, where, "rows");
        require(!rows.empty(), where, "rows must name at least one query");
      }
    } else if (name == "top_k") {
      if (!none) top_k = to_integer(value, where, name);
      require(none || top_k >= 1, where, "top_k must be at least 1; got ",
              top_k);
    } else if (name == "received") {
      if (!none) {
        received = to_choice<OverRows>(
            value, where, name,
            {{"sum", OverRows::kSum}, {"mean", OverRows::kMean}});
      }
    } else if (name == "entropy") {
      entropy = to_bool(value);
    } else if (name == "heads") {
      heads = to_choice<OverHeads>(
          value, where, name,
          {{"each", OverHeads::kEach}, {"mean", OverHeads::kMean}});
    } else {
      return false;
    }
    return true;
  }

  bool parts() const { return top_k > 0 || received || entropy; }
};

// A new array of a result, without the batch if q has none.
struct Result {
  nb::object object = nb::none();
  Array array;

  Result() = default;
  Result(nb::handle q, bool batched, std::vector<std::int64_t> shape,
         DType dtype) {
    if (!batched) shape.erase(shape.begin());
    object = new_array(q, shape, dtype);
    array = Array(object, kWeights, "result", Array::Access::kWrite);
  }
};

// run(request, options): attention_weights, with or without out.
template <typename Real, typename Run>
nb::object weights_of(nb::handle q_object, const Array& q, const Array& k,
                      bool batched, const Wanted& wanted,
                      const Keywords& keywords, const Run& run) {
  const Options<Real> options(keywords, wanted.where);
  const std::int64_t batch = q.extent(0);
  const std::int64_t heads = wanted.heads == OverHeads::kMean ? 1 : q.extent(1);
  const std::int64_t rows = wanted.rows.empty()
                                ? q.extent(2)
                                : static_cast<std::int64_t>(wanted.rows.size());
  const DType real = dtype_of<Real>();

  BasicWeightsRequest<Real> request{};
  request.rows = wanted.rows;
  request.heads = wanted.heads;
  Result weights, top_keys, top_weights, received, entropy;
  if (!wanted.parts()) {
    weights =
        Result(q_object, batched, {batch, heads, rows, k.extent(2)}, real);
    request.weights = weights.array.view<Real, 4>();
  }
  if (wanted.top_k > 0) {
    const std::vector<std::int64_t> shape{batch, heads, rows, wanted.top_k};
    top_keys = Result(q_object, batched, shape, DType::kInt64);
    top_weights = Result(q_object, batched, shape, real);
    request.top_keys = top_keys.array.view<std::int64_t, 4>();
    request.top_weights = top_weights.array.view<Real, 4>();
  }
  if (wanted.received) {
    received = Result(q_object, batched, {batch, heads, k.extent(2)}, real);
    request.received = received.array.view<Real, 3>();
    request.received_over = *wanted.received;
  }
  if (wanted.entropy) {
    entropy = Result(q_object, batched, {batch, heads, rows}, real);
    request.entropy = entropy.array.view<Real, 3>();
  }
  run_released([&] { run(request, options.value); });
  if (!wanted.parts()) return weights.object;
  return nb::module_::import_("regard").attr("WeightsParts")(
      top_keys.object, top_weights.object, received.object, entropy.object);
}

nb::object attention_weights_door(nb::handle q_object, nb::handle k_object,
                                  nb::kwargs given) {
  Wanted wanted{.where = kWeights};
  const Keywords keywords(given, kWeights,
                          [&](std::string_view name, nb::handle value) {
                            return wanted.read(name, value);
                          });
  refuse_gradient(q_object, kWeights, "q");
  refuse_gradient(k_object, kWeights, "k");
  keywords.refuse_gradients(kWeights);
  Array q = input_array(q_object, kWeights, "q");
  const bool batched = q.rank() == 4;
  to_heads(q, keywords.layout, kWeights, "q");
  const Array k = read_heads(k_object, keywords.layout, kWeights, "k");
  check_same_dtype(q, k, kWeights, "k");
  return with_elements(q.dtype(), kWeights, [&]<typename T>() {
    const auto q_view = q.view<const T, 4>();
    const auto k_view = k.view<const T, 4>();
    return weights_of<RealOf<T>>(q_object, q, k, batched, wanted, keywords,
                                 [&](const auto& request, const auto& options) {
                                   attention_weights(q_view, k_view, request,
                                                     options);
                                 });
  });
}

nb::object attention_with_weights_door(nb::handle q_object, nb::handle k_object,
                                       nb::handle v_object, nb::kwargs given) {
  Wanted wanted{.where = kWithWeights};
  nb::object result;
  const Keywords keywords(given, kWithWeights,
                          [&](std::string_view name, nb::handle value) {
                            if (name != "out") return wanted.read(name, value);
                            if (!value.is_none()) result = nb::borrow(value);
                            return true;
                          });
  const Inputs in(q_object, k_object, v_object, keywords.layout, kWithWeights);
  const bool given_out = result.is_valid();
  if (!given_out) {
    refuse_gradient(q_object, kWithWeights, "q");
    refuse_gradient(k_object, kWithWeights, "k");
    refuse_gradient(v_object, kWithWeights, "v");
    keywords.refuse_gradients(kWithWeights);
    result = new_array(q_object,
                       in.caller_shape(in.q.extent(1), in.q.extent(2),
                                       in.v.extent(3), keywords.layout),
                       in.q.dtype());
  }
  Array out = output_array(result, kWithWeights, "out");
  to_heads(out, keywords.layout, kWithWeights, "out");
  check_same_dtype(in.q, out, kWithWeights, "out");
  require(!given_out || !in.overlap(out), kWithWeights,
          "out may not overlap q, k or v");
  return with_elements(in.q.dtype(), kWithWeights, [&]<typename T>() {
    const auto q = in.q.view<const T, 4>();
    const auto k = in.k.view<const T, 4>();
    const auto v = in.v.view<const T, 4>();
    const auto out_view = out.view<T, 4>();
    const nb::object weights = weights_of<RealOf<T>>(
        q_object, in.q, in.k, in.batched, wanted, keywords,
        [&](const auto& request, const auto& options) {
          attention_with_weights(q, k, v, out_view, request, options);
        });
    return nb::object(nb::make_tuple(result, weights));
  });
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def("attention_weights", &attention_weights_door, nb::arg("q").none(),
        nb::arg("k").none(), nb::arg("options"), nb::sig(docs::kWeightsSig),
        docs::kWeights);
  m.def("attention_with_weights", &attention_with_weights_door,
        nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options"), nb::sig(docs::kWithWeightsSig), docs::kWithWeights);
}

}  // namespace regard::python
