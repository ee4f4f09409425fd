// SPDX-License-Identifier: Apache-2.0
// What stands beside attention in a layer: the RMS norm and rotary positions.
#include "bind.h"
#include "options.h"
#include "regard/nn/norms.h"
#include "regard/nn/rotary.h"
#include "values.h"

namespace regard::python {
namespace {

constexpr const char* kNorm = "rms_norm";
constexpr const char* kNormSig =
    "def rms_norm(x, weight=None, *, epsilon: float = 1e-05, "
    "threads: int | None = None)";
constexpr const char* kNormDoc = R"(
x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension.

x is float32, of any shape; weight has the size of its last dimension, and is ones
if not given. The result is a PyTorch tensor where x is one, else a NumPy array.

>>> import numpy as np, regard
>>> regard.rms_norm(np.array([[3, 4]], np.float32), epsilon=0).round(3)
array([[0.849, 1.131]], dtype=float32)
)";

constexpr const char* kRotary = "rotary_embedding";
constexpr const char* kRotarySig =
    "def rotary_embedding(x, cos, sin, *, positions=None, "
    "interleaved: bool = False, layout: str = 'bhld', "
    "threads: int | None = None)";
constexpr const char* kRotaryDoc = R"(
Rotary positions (RoPE): pairs of elements rotate by the angle of their position.

x is float32, [batch, heads, len, dim], without batch or in layout="blhd"; cos and
sin are [places, half]. A pair (a, b) of x becomes (a cos - b sin, b cos + a sin);
the first 2 * half elements rotate, the others are copied.

positions    [batch or 1, len], the row of cos and sin of each token; 0, 1, 2... if
             not given
interleaved  pairs are elements (2 i, 2 i + 1), and not (i, i + half)

>>> import numpy as np, regard
>>> angle = np.array([[0], [np.pi / 2]], np.float32)
>>> x = np.array([[[[1, 2], [1, 2]]]], np.float32)
>>> regard.rotary_embedding(x, np.cos(angle), np.sin(angle)).round(3)
array([[[[ 1.,  2.],
         [-2.,  1.]]]], dtype=float32)
)";

Threads threads_of(nb::handle count, const char* where) {
  if (count.is_none()) return {};
  return {to_threads(count, where), nullptr};
}

void check_float(const Array& x, const char* where) {
  if (x.dtype() == DType::kFloat32) return;
  throw_type_error(where, "x must be float32; it is ", to_string(x.dtype()));
}

// All dimensions but the last as one.
template <typename T>
TensorView<T, 2> rows_of(const Array& array) {
  const std::int64_t dim = array.extent(array.rank() - 1);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < array.rank(); ++i) rows *= array.extent(i);
  return {static_cast<T*>(array.data()), {rows, dim}, {dim, 1}};
}

nb::object contiguous(nb::object x) {
  return is_torch_tensor(x) ? nb::object(x.attr("contiguous")())
                            : numpy("ascontiguousarray")(x);
}

nb::object rms_norm_door(nb::object x_object, nb::object weight_object,
                         float epsilon, nb::object threads) {
  refuse_gradient(x_object, kNorm, "x");
  Array x(x_object, kNorm, "x");
  check_float(x, kNorm);
  require(x.rank() >= 1, kNorm, "x must have at least 1 dimension");
  if (!x.is_contiguous()) {
    x_object = contiguous(x_object);
    x = Array(x_object, kNorm, "x");
  }
  Array weight;
  TensorView<const float, 1> weight_view{};
  if (!weight_object.is_none()) {
    refuse_gradient(weight_object, kNorm, "weight");
    weight = real_array<float>(weight_object, kNorm, "weight");
    require(weight.rank() == 1, kNorm, "weight must have 1 dimension; it is ",
            to_string(weight.shape()));
    weight_view = weight.view<const float, 1>();
  }
  nn::NormOptions options{};
  options.epsilon = epsilon;
  options.threads = threads_of(threads, kNorm);
  nb::object result = new_array(x_object, x.shape(), DType::kFloat32);
  const Array out(result, kNorm, "out", Array::Access::kWrite);
  run_released([&] {
    nn::rms_norm(rows_of<const float>(x), weight_view, rows_of<float>(out),
                 options);
  });
  return result;
}

TensorView<const float, 2> table_of(const Array& table, const char* name) {
  require(table.rank() == 2, kRotary, name, " must be [places, half]; it is ",
          to_string(table.shape()));
  return table.view<const float, 2>();
}

struct RotaryArguments {
  nb::object x, cos, sin, positions;
  bool interleaved = false;
  Layout layout = Layout::kBhld;
  Threads threads{};
};

nb::object rotate(const RotaryArguments& given) {
  refuse_gradient(given.x, kRotary, "x");
  refuse_gradient(given.cos, kRotary, "cos");
  refuse_gradient(given.sin, kRotary, "sin");
  Array x = input_array(given.x, kRotary, "x");
  check_float(x, kRotary);
  nb::object result = new_array(given.x, x.shape(), DType::kFloat32);
  Array out(result, kRotary, "out", Array::Access::kWrite);
  to_heads(x, given.layout, kRotary, "x");
  to_heads(out, given.layout, kRotary, "out");
  const Array cos = real_array<float>(given.cos, kRotary, "cos");
  const Array sin = real_array<float>(given.sin, kRotary, "sin");
  const auto cos_view = table_of(cos, "cos");
  const auto sin_view = table_of(sin, "sin");
  nn::RotaryOptions options{};
  options.threads = given.threads;
  if (given.interleaved) options.pairing = nn::RotaryPairing::kInterleaved;
  nb::object numbers;
  Array positions;
  if (!given.positions.is_none()) {
    numbers = as_integers(numpy("ascontiguousarray")(given.positions),
                          DType::kInt64, kRotary, "positions");
    positions = Array(numbers, kRotary, "positions");
    require(positions.rank() == 1 || positions.rank() == 2, kRotary,
            "positions must be [batch or 1, len]; it is ",
            to_string(positions.shape()));
    options.positions = positions.view<const std::int64_t, 2>();
  }
  run_released([&] {
    nn::rotary_forward(x.view<const float, 4>(), cos_view, sin_view,
                       out.view<float, 4>(), options);
  });
  return result;
}

nb::object rotary_door(nb::object x, nb::object cos, nb::object sin,
                       nb::object positions, bool interleaved,
                       const char* layout, nb::object threads) {
  const std::string_view word(layout);
  require(word == "bhld" || word == "blhd", kRotary,
          "layout must be 'bhld' or 'blhd'; got '", word, "'");
  return rotate({x, cos, sin, positions, interleaved,
                 word == "bhld" ? Layout::kBhld : Layout::kBlhd,
                 threads_of(threads, kRotary)});
}

}  // namespace

void bind_nn(nb::module_& m) {
  m.def("rms_norm", &rms_norm_door, nb::arg("x").none(),
        nb::arg("weight") = nb::none(), nb::kw_only(),
        nb::arg("epsilon") = 1e-5f, nb::arg("threads") = nb::none(),
        nb::sig(kNormSig), kNormDoc);
  m.def("rotary_embedding", &rotary_door, nb::arg("x").none(),
        nb::arg("cos").none(), nb::arg("sin").none(), nb::kw_only(),
        nb::arg("positions") = nb::none(), nb::arg("interleaved") = false,
        nb::arg("layout") = "bhld", nb::arg("threads") = nb::none(),
        nb::sig(kRotarySig), kRotaryDoc);
}

}  // namespace regard::python
