// SPDX-License-Identifier: Apache-2.0
// The linear layer that regard.torch's layers are made with.
#include "regard/nn/linear.h"
#include "bind.h"
#include "options.h"

namespace regard::python {
namespace {

constexpr const char* kForward = "linear";
constexpr const char* kBackward = "linear_backward";

template <int kRank>
TensorView<const float, kRank> input(const Array& array, const char* where,
                                     const char* name) {
  if (array.dtype() != DType::kFloat32) {
    throw_type_error(where, name, " must be float32; it is ",
                     to_string(array.dtype()));
  }
  require(array.rank() == kRank, where, name, " must have ", kRank,
          " dimensions; it is ", to_string(array.shape()));
  return array.view<const float, kRank>();
}

nb::object linear(nb::handle x_object, nb::handle weight_object,
                  nb::handle bias_object, int threads) {
  const Array x = input_array(x_object, kForward, "x");
  const Array weight = input_array(weight_object, kForward, "weight");
  const auto x_view = input<2>(x, kForward, "x");
  const auto weight_view = input<2>(weight, kForward, "weight");
  Array bias;
  TensorView<const float, 1> bias_view{};
  if (!bias_object.is_none()) {
    bias = input_array(bias_object, kForward, "bias");
    bias_view = input<1>(bias, kForward, "bias");
  }
  const std::array shape{x.extent(0), weight.extent(0)};
  nb::object result = new_array(x_object, shape, DType::kFloat32);
  const Array y(result, kForward, "y", Array::Access::kWrite);
  const auto y_view = y.view<float, 2>();
  run_released([&] {
    nn::linear_forward(x_view, weight_view, bias_view, y_view,
                       {.count = threads});
  });
  return result;
}

// A gradient that is wanted: a new array, or None.
struct Gradient {
  Gradient(bool wanted, nb::handle like, std::span<const std::int64_t> shape)
      : object(wanted ? new_array(like, shape, DType::kFloat32) : nb::none()) {
    if (wanted) array = Array(object, kBackward, "gradient", kWrite);
  }
  template <int kRank>
  TensorView<float, kRank> view() const {
    return array.given() ? array.view<float, kRank>()
                         : TensorView<float, kRank>{};
  }

  static constexpr Array::Access kWrite = Array::Access::kWrite;
  nb::object object;
  Array array;
};

nb::tuple linear_backward(nb::handle d_y_object, nb::handle x_object,
                          nb::handle weight_object, bool of_x, bool of_weight,
                          bool of_bias, int threads) {
  const Array d_y = input_array(d_y_object, kBackward, "d_y");
  const Array x = input_array(x_object, kBackward, "x");
  const Array weight = input_array(weight_object, kBackward, "weight");
  const auto d_y_view = input<2>(d_y, kBackward, "d_y");
  const auto x_view = input<2>(x, kBackward, "x");
  const auto weight_view = input<2>(weight, kBackward, "weight");
  const Gradient d_x(of_x, x_object, x.shape());
  const Gradient d_weight(of_weight, x_object, weight.shape());
  const Gradient d_bias(of_bias, x_object, weight.shape().first(1));
  const nn::LinearGradients gradients{d_x.view<2>(), d_weight.view<2>(),
                                      d_bias.view<1>()};
  run_released([&] {
    nn::linear_backward(d_y_view, x_view, weight_view, gradients,
                        {.count = threads});
  });
  return nb::make_tuple(d_x.object, d_weight.object, d_bias.object);
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def("linear", &linear, nb::arg("x"), nb::arg("weight"),
        nb::arg("bias").none(), nb::arg("threads"),
        "x weight^T + bias, with x [rows, in] and weight [out, in].");
  m.def("linear_backward", &linear_backward, nb::arg("d_y"), nb::arg("x"),
        nb::arg("weight"), nb::arg("of_x"), nb::arg("of_weight"),
        nb::arg("of_bias"), nb::arg("threads"),
        "The gradients of linear that are wanted, None for the others.");
}

}  // namespace regard::python
