// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/weights.h"

#include <nanobind/stl/string.h>

#include "bind.h"
#include "docs.h"
#include "options.h"

namespace regard::python {
namespace {

constexpr const char* kWhere = "attention_weights";

// The keywords that only attention_weights has.
struct Wanted {
  nb::object rows;
  std::vector<std::int64_t> row_numbers;
  std::int64_t top_k = 0;
  std::string received;
  bool entropy = false;
  OverHeads heads = OverHeads::kEach;

  bool read(std::string_view name, nb::handle value) {
    const bool none = value.is_none();
    if (name == "rows") {
      if (!none) read_rows(value);
    } else if (name == "top_k") {
      if (!none) top_k = nb::cast<std::int64_t>(value);
      require(none || top_k >= 1, kWhere, "top_k must be at least 1; got ",
              top_k);
    } else if (name == "received") {
      if (!none) received = nb::cast<std::string>(value);
      require(none || received == "sum" || received == "mean", kWhere,
              "received must be 'sum' or 'mean'; got '", received, "'");
    } else if (name == "entropy") {
      entropy = nb::cast<bool>(value);
    } else if (name == "heads") {
      const auto word = nb::cast<std::string>(value);
      require(word == "each" || word == "mean", kWhere,
              "heads must be 'each' or 'mean'; got '", word, "'");
      heads = word == "mean" ? OverHeads::kMean : OverHeads::kEach;
    } else {
      return false;
    }
    return true;
  }

  void read_rows(nb::handle value) {
    rows = numpy("ascontiguousarray")(value, "int64");
    const Array array(rows, kWhere, "rows");
    require(array.rank() == 1 && array.size() > 0, kWhere,
            "rows must name at least one query, in one dimension; got ",
            to_string(array.shape()));
    const auto* first = static_cast<const std::int64_t*>(array.data());
    row_numbers.assign(first, first + array.size());
  }

  bool parts() const { return top_k > 0 || !received.empty() || entropy; }
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
    array = Array(object, kWhere, "result", Array::Access::kWrite);
  }
};

template <typename T>
nb::object weights_of(nb::handle q_object, const Array& q, const Array& k,
                      bool batched, const Wanted& wanted,
                      const Keywords& keywords) {
  using Real = RealOf<T>;
  const Options<Real> options(keywords, kWhere);
  const std::int64_t batch = q.extent(0);
  const std::int64_t heads = wanted.heads == OverHeads::kMean ? 1 : q.extent(1);
  const std::int64_t rows =
      wanted.row_numbers.empty()
          ? q.extent(2)
          : static_cast<std::int64_t>(wanted.row_numbers.size());
  const DType real = dtype_of<Real>();

  BasicWeightsRequest<Real> request{};
  request.rows = wanted.row_numbers;
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
  if (!wanted.received.empty()) {
    received = Result(q_object, batched, {batch, heads, k.extent(2)}, real);
    request.received = received.array.view<Real, 3>();
    request.received_over =
        wanted.received == "mean" ? OverRows::kMean : OverRows::kSum;
  }
  if (wanted.entropy) {
    entropy = Result(q_object, batched, {batch, heads, rows}, real);
    request.entropy = entropy.array.view<Real, 3>();
  }
  const auto q_view = q.view<const T, 4>();
  const auto k_view = k.view<const T, 4>();
  run_released(
      [&] { attention_weights(q_view, k_view, request, options.value); });
  if (!wanted.parts()) return weights.object;
  return nb::module_::import_("regard").attr("WeightsParts")(
      top_keys.object, top_weights.object, received.object, entropy.object);
}

nb::object attention_weights_door(nb::handle q_object, nb::handle k_object,
                                  nb::kwargs given) {
  Wanted wanted;
  const Keywords keywords(given, kWhere,
                          [&](std::string_view name, nb::handle value) {
                            return wanted.read(name, value);
                          });
  refuse_gradient(q_object, kWhere, "q");
  refuse_gradient(k_object, kWhere, "k");
  Array q = input_array(q_object, kWhere, "q");
  const bool batched = q.rank() == 4;
  to_heads(q, keywords.layout, kWhere, "q");
  const Array k = read_heads(k_object, keywords.layout, kWhere, "k");
  check_same_dtype(q, k, kWhere, "k");
  return with_elements(q.dtype(), kWhere, [&]<typename T>() {
    return weights_of<T>(q_object, q, k, batched, wanted, keywords);
  });
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def("attention_weights", &attention_weights_door, nb::arg("q").none(),
        nb::arg("k").none(), nb::arg("options"), nb::sig(docs::kWeightsSig),
        docs::kWeights);
}

}  // namespace regard::python
