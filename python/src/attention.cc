// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/attention.h"

#include <optional>

#include "bind.h"
#include "docs.h"
#include "inputs.h"
#include "options.h"
#include "ranks.h"
#include "regard/attention/backward.h"
#include "regard/dist/attention.h"
#include "values.h"

namespace regard::python {
namespace {

constexpr const char* kForward = "attention_forward";
constexpr const char* kBackward = "attention_backward";

// The calls, over the processes of `ranks` unless it is null.
template <typename T, typename Options>
void run_forward(PythonRanks* ranks, const TensorView<const T, 4>& q,
                 const TensorView<const T, 4>& k,
                 const TensorView<const T, 4>& v, const TensorView<T, 4>& out,
                 const Options& options) {
  if (ranks == nullptr) return attention_forward(q, k, v, out, options);
  if constexpr (std::is_same_v<T, double>) {
    require(false, kForward, "processes do not share a call on float64");
  } else {
    dist::attention_forward(*ranks, ConstUntypedView<4>(q),
                            ConstUntypedView<4>(k), ConstUntypedView<4>(v),
                            UntypedView<4>(out), options);
  }
}

template <typename T, typename Options>
void run_backward(PythonRanks* ranks, const BackwardInputs<T>& in,
                  const Gradients<T>& to, const Options& options) {
  if (ranks == nullptr) return attention_backward(in, to, options);
  if constexpr (std::is_same_v<T, double>) {
    require(false, kBackward, "processes do not share a call on float64");
  } else {
    dist::attention_backward(
        *ranks,
        UntypedBackwardInputs{
            .q = ConstUntypedView<4>(in.q),
            .k = ConstUntypedView<4>(in.k),
            .v = ConstUntypedView<4>(in.v),
            .out = ConstUntypedView<4>(in.out),
            .d_out = ConstUntypedView<4>(in.d_out),
            .d_log_sum_exp = ConstUntypedView<3>(in.d_log_sum_exp)},
        UntypedGradients{.q = UntypedView<4>(to.q),
                         .k = UntypedView<4>(to.k),
                         .v = UntypedView<4>(to.v),
                         .bias = UntypedView<4>(to.bias),
                         .alibi_slopes = UntypedView<1>(to.alibi_slopes),
                         .sinks = UntypedView<1>(to.sinks),
                         .head_scales = UntypedView<1>(to.head_scales)},
        options);
  }
}

nb::object attention(nb::handle q_object, nb::handle k_object,
                     nb::handle v_object, nb::kwargs given) {
  bool return_lse = false;
  nb::handle out_object{};
  std::optional<PythonRanks> ranks;
  const Keywords keywords(given, kForward,
                          [&](std::string_view name, nb::handle value) {
                            if (name == "out") {
                              if (!value.is_none()) out_object = value;
                            } else if (name == "return_lse") {
                              return_lse = to_bool(value);
                            } else if (name == "_ranks") {
                              ranks.emplace(value);
                            } else {
                              return false;
                            }
                            return true;
                          });
  const Inputs in(q_object, k_object, v_object, keywords.layout, kForward);

  nb::object result;
  if (out_object.is_valid()) {
    result = nb::borrow(out_object);
  } else {
    refuse_gradient(q_object, kForward, "q");
    refuse_gradient(k_object, kForward, "k");
    refuse_gradient(v_object, kForward, "v");
    keywords.refuse_gradients(kForward);
    result = new_array(q_object,
                       in.caller_shape(in.q.extent(1), in.q.extent(2),
                                       in.v.extent(3), keywords.layout),
                       in.q.dtype());
  }
  Array out = output_array(result, kForward, "out");
  to_heads(out, keywords.layout, kForward, "out");
  check_same_dtype(in.q, out, kForward, "out");
  if (out_object.is_valid()) {
    require(!in.overlap(out), kForward, "out may not overlap q, k or v");
  }

  return with_elements(in.q.dtype(), kForward, [&]<typename T>() -> nb::object {
    using Real = RealOf<T>;
    Options<Real> options(keywords, kForward);
    nb::object lse;
    Array lse_array;
    if (return_lse) {
      const std::int64_t shape[] = {in.q.extent(0), in.q.extent(1),
                                    in.q.extent(2)};
      const std::span<const std::int64_t> all(shape);
      lse = new_array(q_object, in.batched ? all : all.subspan(1),
                      dtype_of<Real>());
      lse_array = Array(lse, kForward, "lse", Array::Access::kWrite);
      options.value.log_sum_exp = lse_array.view<Real, 3>();
    }
    const auto q = in.q.view<const T, 4>();
    const auto k = in.k.view<const T, 4>();
    const auto v = in.v.view<const T, 4>();
    const auto out_view = out.view<T, 4>();
    run_released([&] {
      run_forward<T>(ranks ? &*ranks : nullptr, q, k, v, out_view,
                     options.value);
    });
    if (return_lse) return nb::make_tuple(result, lse);
    return result;
  });
}

// Which gradients are wanted, by name.
struct Wanted {
  bool q = true, k = true, v = true;
  bool bias = false, alibi = false, sinks = false, head_scales = false;

  void read(nb::handle names) {
    q = k = v = false;
    for (const nb::handle name : nb::iter(names)) {
      const std::string_view word =
          to_text(name, kBackward, "each name in wanted");
      bool* const field = word == "q"             ? &q
                          : word == "k"           ? &k
                          : word == "v"           ? &v
                          : word == "bias"        ? &bias
                          : word == "alibi"       ? &alibi
                          : word == "sinks"       ? &sinks
                          : word == "head_scales" ? &head_scales
                                                  : nullptr;
      require(field != nullptr, kBackward,
              "wanted may name q, k, v, bias, alibi, sinks and head_scales; "
              "got '",
              word, "'");
      *field = true;
    }
  }
};

// A new array for a gradient, and the view to write it through.
struct Gradient {
  nb::object object = nb::none();
  Array array;

  void like(nb::handle q_object, std::span<const std::int64_t> shape,
            DType dtype) {
    object = new_array(q_object, shape, dtype);
    array = Array(object, kBackward, "gradient", Array::Access::kWrite);
  }
  template <typename T>
  std::span<T> span() const {
    return {static_cast<T*>(array.data()),
            static_cast<std::size_t>(array.size())};
  }
};

struct BackwardCall {
  nb::handle d_out, q, k, v, out, lse;
  nb::handle d_lse{};
  Wanted wanted{};
  PythonRanks* ranks = nullptr;
};

template <typename T>
nb::object backward(const BackwardCall& call, const Inputs& in,
                    const Keywords& keywords) {
  using Real = RealOf<T>;
  const Array out = read_heads(call.out, keywords.layout, kBackward, "out");
  const Array d_out =
      read_heads(call.d_out, keywords.layout, kBackward, "d_out");
  check_same_dtype(in.q, out, kBackward, "out");
  check_same_dtype(in.q, d_out, kBackward, "d_out");
  const Array lse = real_array<Real>(call.lse, kBackward, "lse");
  require(lse.rank() == 2 || lse.rank() == 3, kBackward,
          "lse must be [batch, heads, q_len]; it is ", to_string(lse.shape()));
  Array d_lse, whole_bias;
  Options<Real> options(keywords, kBackward);
  // attention_backward only reads it.
  options.value.log_sum_exp = lse.view<Real, 3>();

  BackwardInputs<T> inputs{};
  inputs.q = in.q.view<const T, 4>();
  inputs.k = in.k.view<const T, 4>();
  inputs.v = in.v.view<const T, 4>();
  inputs.out = out.view<const T, 4>();
  inputs.d_out = d_out.view<const T, 4>();
  if (call.d_lse.is_valid()) {
    d_lse = real_array<Real>(call.d_lse, kBackward, "d_lse");
    require(d_lse.rank() == 2 || d_lse.rank() == 3, kBackward,
            "d_lse must be [batch, heads, q_len]; it is ",
            to_string(d_lse.shape()));
    inputs.d_log_sum_exp = d_lse.view<const Real, 3>();
  }

  Gradient gq, gk, gv, gbias, galibi, gsinks, gscales;
  Gradients<T> gradients{};
  const auto make = [&](Gradient& gradient, const Array& like) {
    gradient.like(call.q,
                  in.caller_shape(like.extent(1), like.extent(2),
                                  like.extent(3), keywords.layout),
                  in.q.dtype());
    to_heads(gradient.array, keywords.layout, kBackward, "gradient");
    return gradient.array.template view<T, 4>();
  };
  if (call.wanted.q) gradients.q = make(gq, in.q);
  if (call.wanted.k) gradients.k = make(gk, in.k);
  if (call.wanted.v) gradients.v = make(gv, in.v);
  if (call.wanted.bias) {
    require(keywords.bias.is_valid(), kBackward,
            "the gradient of bias is wanted, but no bias was given");
    // Repeated keys are not folded: each has a gradient of its own.
    whole_bias = real_array<Real>(keywords.bias, kBackward, "bias");
    options.value.bias = whole_bias.template view<const Real, 4>();
    gbias.like(call.q, whole_bias.shape(), dtype_of<Real>());
    gradients.bias = gbias.array.template view<Real, 4>();
  }
  const auto make_heads = [&](Gradient& gradient, std::span<const Real> values,
                              const char* name) {
    require(!values.empty(), kBackward, "the gradient of ", name,
            " is wanted, but none were given");
    const std::int64_t heads[] = {static_cast<std::int64_t>(values.size())};
    gradient.like(call.q, heads, dtype_of<Real>());
    return gradient.template span<Real>();
  };
  if (call.wanted.alibi) {
    gradients.alibi_slopes =
        make_heads(galibi, options.value.alibi_slopes, "alibi");
  }
  if (call.wanted.sinks) {
    gradients.sinks = make_heads(gsinks, options.value.sinks, "sinks");
  }
  if (call.wanted.head_scales) {
    gradients.head_scales =
        make_heads(gscales, options.value.head_scales, "head_scales");
  }
  run_released(
      [&] { run_backward<T>(call.ranks, inputs, gradients, options.value); });
  // Never released: at exit the interpreter may be gone before us.
  static PyObject* const result =
      nb::object(nb::module_::import_("regard").attr("Gradients"))
          .release()
          .ptr();
  return nb::handle(result)(gq.object, gk.object, gv.object, gbias.object,
                            galibi.object, gsinks.object, gscales.object);
}

nb::object attention_backward_door(nb::handle d_out, nb::handle q, nb::handle k,
                                   nb::handle v, nb::handle out, nb::handle lse,
                                   nb::kwargs given) {
  BackwardCall call{d_out, q, k, v, out, lse};
  std::optional<PythonRanks> ranks;
  const Keywords keywords(given, kBackward,
                          [&](std::string_view name, nb::handle value) {
                            if (name == "wanted") {
                              call.wanted.read(value);
                            } else if (name == "d_lse") {
                              if (!value.is_none()) call.d_lse = value;
                            } else if (name == "_ranks") {
                              call.ranks = &ranks.emplace(value);
                            } else {
                              return false;
                            }
                            return true;
                          });
  const Inputs in(q, k, v, keywords.layout, kBackward);
  return with_elements(in.q.dtype(), kBackward, [&]<typename T>() {
    return backward<T>(call, in, keywords);
  });
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &attention, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("options"), nb::sig(docs::kAttentionSig),
        docs::kAttention);
  m.def("attention_backward", &attention_backward_door, nb::arg("d_out").none(),
        nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("out").none(), nb::arg("lse").none(), nb::arg("options"),
        nb::sig(docs::kBackwardSig), docs::kBackward);
}

}  // namespace regard::python
