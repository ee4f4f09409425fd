// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <string>
#include <utility>

#include "regard/core/interrupt.h"
#include "values.h"

namespace regard::python {
namespace {

Mask to_mask(nb::handle value, const char* where) {
  const MaskObject* object = nullptr;
  if (!nb::try_cast(value, object) || object == nullptr) {
    throw_type_error(
        where,
        "mask must be a regard.Mask: regard.mask.keep(array) shows "
        "where an array is True, regard.mask.drop(array) hides "
        "there; got ",
        type_text(value));
  }
  return object->mask;
}

// `sequences` is one array of offsets, or a pair (of queries, of keys).
std::span<const std::int64_t> offsets_of(nb::handle given,
                                         std::vector<Array>& arrays,
                                         const char* where) {
  nb::object offsets = as_integers(numpy("ascontiguousarray")(given),
                                   DType::kInt64, where, "sequences");
  Array array(offsets, where, "sequences");
  require(array.rank() == 1, where,
          "sequences must be offsets in one dimension; got ",
          to_string(array.shape()));
  const auto view = array.view<const std::int64_t, 1>();
  array.keep(std::move(offsets));
  arrays.push_back(std::move(array));
  return {view.data(), static_cast<std::size_t>(view.size())};
}

}  // namespace

Keywords::Keywords(nb::kwargs given, const char* where)
    : Keywords(given, where,
               [](std::string_view, nb::handle) { return false; }) {}

Keywords::Keywords(nb::kwargs given, const char* where,
                   FunctionRef<bool(std::string_view, nb::handle)> own) {
  for (const auto& [key, value] : given) {
    const std::string_view name = to_text(key, where, "a keyword");
    const bool none = value.is_none();
    if (own(name, value)) continue;
    if (name == "mask") {
      if (!none) mask = to_mask(value, where);
    } else if (name == "threads") {
      if (!none) threads = to_threads(value, where);
    } else if (name == "scale") {
      if (!none) scale = to_double(value, where, name);
    } else if (name == "bias") {
      if (!none) bias = value;
    } else if (name == "dropout") {
      dropout = to_double(value, where, name);
    } else if (name == "seed") {
      if (!none) seed = to_seed(value, where);
    } else if (name == "softcap") {
      if (!none) softcap = to_double(value, where, name);
    } else if (name == "sinks") {
      if (!none) sinks = value;
    } else if (name == "alibi") {
      if (!none) alibi = value;
    } else if (name == "head_scales") {
      if (!none) head_scales = value;
    } else if (name == "sequences") {
      if (!none) sequences = value;
    } else if (name == "score") {
      score =
          to_choice<Score>(value, where, name,
                           {{"dot", Score::kDot}, {"cosine", Score::kCosine}});
    } else if (name == "compute") {
      compute = to_choice<Compute>(
          value, where, name,
          {{"float32", Compute::kFloat32}, {"bfloat16", Compute::kBFloat16}});
    } else if (name == "layout") {
      layout =
          to_choice<Layout>(value, where, name,
                            {{"bhld", Layout::kBhld}, {"blhd", Layout::kBlhd}});
    } else {
      throw_type_error(where, "there is no keyword '", name, "'");
    }
  }
  require(!(dropout > 0) || seed, where,
          "dropout needs a seed, so that the same weights can be dropped "
          "again; give seed=");
}

void Keywords::refuse_gradients(const char* where) const {
  const std::pair<nb::handle, const char*> arrays[] = {
      {bias, "bias"},
      {head_scales, "head_scales"},
      {alibi, "alibi"},
      {sinks, "sinks"}};
  for (const auto& [array, name] : arrays) {
    if (array.is_valid()) refuse_gradient(array, where, name);
  }
}

template <typename Real>
Options<Real>::Options(const Keywords& keywords, const char* where) {
  arrays_.reserve(6);  // views into them must stay
  value.mask = keywords.mask;
  value.score = keywords.score;
  value.compute = keywords.compute;
  if (keywords.scale) value.scale = static_cast<Real>(*keywords.scale);
  value.softcap = static_cast<Real>(keywords.softcap);
  value.dropout = {static_cast<float>(keywords.dropout),
                   keywords.seed.value_or(0)};
  value.threads = {keywords.threads, nullptr};
  value.head_scales = per_head(keywords.head_scales, where, "head_scales");
  value.alibi_slopes = per_head(keywords.alibi, where, "alibi");
  value.sinks = per_head(keywords.sinks, where, "sinks");
  if (keywords.bias.is_valid()) {
    Array array =
        real_array<Real>(keywords.bias, where, "bias", Repeats::kFolded);
    require(array.rank() <= 4, where,
            "bias must have at most 4 dimensions; got ",
            to_string(array.shape()));
    value.bias = array.view<const Real, 4>();
    arrays_.push_back(std::move(array));
  }
  if (keywords.sequences.is_valid()) read_sequences(keywords.sequences, where);
}

template <typename Real>
void Options<Real>::read_sequences(nb::handle given, const char* where) {
  if (PyTuple_Check(given.ptr())) {
    const auto pair = nb::borrow<nb::tuple>(given);
    require(pair.size() == 2, where,
            "sequences must be offsets, or a pair of offsets; got a tuple of ",
            pair.size());
    value.sequences.q_offsets = offsets_of(pair[0], arrays_, where);
    value.sequences.kv_offsets = offsets_of(pair[1], arrays_, where);
    return;
  }
  value.sequences.q_offsets = offsets_of(given, arrays_, where);
  value.sequences.kv_offsets = value.sequences.q_offsets;
}

template <typename Real>
std::span<const Real> Options<Real>::per_head(nb::handle given,
                                              const char* where,
                                              const char* name) {
  if (!given.is_valid()) return {};
  Array array = real_array<Real>(given, where, name);
  require(array.rank() == 1 && array.size() > 0, where, name,
          " must hold one value per head; got ", to_string(array.shape()));
  const std::span<const Real> values{static_cast<const Real*>(array.data()),
                                     static_cast<std::size_t>(array.size())};
  arrays_.push_back(std::move(array));
  return values;
}

template class Options<float>;
template class Options<double>;

template <typename Real>
Array real_array(nb::handle object, const char* where, const char* name,
                 Repeats repeats) {
  if (nb::hasattr(object, "__dlpack__")) {
    Array array(object, where, name);
    if (array.dtype() == DType::kBool) {
      throw_type_error(where, name,
                       " must hold numbers; a bool array is a mask: see "
                       "regard.mask.keep and regard.mask.drop");
    }
    if (repeats == Repeats::kFolded) array.fold_repeated_keys();
    if (array.dtype() == dtype_of<Real>() && array.rows_are_contiguous()) {
      return array;
    }
  }
  nb::object source = nb::borrow(object);
  if (is_torch_tensor(object)) {  // NumPy does not know bfloat16
    source =
        object.attr("detach")().attr("double")().attr("resolve_neg")().attr(
            "numpy")();
  }
  nb::object copy = numpy("ascontiguousarray")(
      source, std::string(to_string(dtype_of<Real>())).c_str());
  Array made(copy, where, name);
  made.keep(std::move(copy));
  return made;
}
template Array real_array<float>(nb::handle, const char*, const char*, Repeats);
template Array real_array<double>(nb::handle, const char*, const char*,
                                  Repeats);

Array read_heads(nb::handle object, Layout layout, const char* where,
                 const char* name) {
  Array array = input_array(object, where, name);
  to_heads(array, layout, where, name);
  return array;
}

void to_heads(Array& array, Layout layout, const char* where,
              const char* name) {
  require(
      array.rank() == 3 || array.rank() == 4, where, name,
      layout == Layout::kBhld
          ? " must be [batch, heads, len, dim] or [heads, len, dim]; it is "
          : " must be [batch, len, heads, dim] or [len, heads, dim]; it is ",
      to_string(array.shape()));
  if (array.rank() == 3) array.insert_axis(0);
  if (layout == Layout::kBlhd) array.swap_axes(1, 2);
}

void check_same_dtype(const Array& q, const Array& array, const char* where,
                      const char* name) {
  if (q.dtype() == array.dtype()) return;
  throw_type_error(where, name, " must have the dtype of q; q is ",
                   to_string(q.dtype()), ", ", name, " is ",
                   to_string(array.dtype()));
}

void run_released(FunctionRef<void()> work) {
  const auto ctrl_c = [] {
    const nb::gil_scoped_acquire held;
    return PyErr_CheckSignals() != 0;  // leaves the exception set
  };
  try {
    const nb::gil_scoped_release released;
    const InterruptScope scope(ctrl_c);
    work();
  } catch (const Interrupted&) {
    throw nb::python_error();
  }
}

}  // namespace regard::python
