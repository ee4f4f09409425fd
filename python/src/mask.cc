// SPDX-License-Identifier: Apache-2.0
#include "regard/mask/mask.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "options.h"
#include "values.h"

namespace regard::python {
namespace {

MaskObject make(Mask mask, nb::tuple part) {
  return {std::move(mask), nb::make_tuple(std::move(part)), {}};
}

// "bottom_right", "top_left", or the key at which the first query stands.
mask::Alignment to_alignment(nb::handle given, const char* where) {
  if (PyLong_Check(given.ptr())) {
    return mask::at_offset(to_integer(given, where, "align"));
  }
  std::string word;
  if (!nb::try_cast(given, word)) {
    throw_type_error(where,
                     "align must be 'bottom_right', 'top_left' or the key at "
                     "which the first query stands; got ",
                     type_text(given));
  }
  require(word == "bottom_right" || word == "top_left", where,
          "align must be 'bottom_right', 'top_left' or the key at which the "
          "first query stands; got '",
          word, "'");
  return word == "top_left" ? mask::kTopLeft : mask::kBottomRight;
}

MaskObject causal(nb::object align) {
  return make(mask::causal(to_alignment(align, "mask::causal")),
              nb::make_tuple("causal", align));
}

MaskObject window(std::optional<std::int64_t> left,
                  std::optional<std::int64_t> right, nb::object align) {
  return make(mask::window(left.value_or(-1), right.value_or(-1),
                           to_alignment(align, "mask::window")),
              nb::make_tuple("window", left, right, align));
}

MaskObject prefix(std::int64_t n, nb::object align) {
  return make(mask::prefix(n, to_alignment(align, "mask::prefix")),
              nb::make_tuple("prefix", n, align));
}

// A copy of a list of integers, and its values.
template <typename Int>
struct Integers {
  nb::object object;
  Array array;
  std::span<const Int> values{};

  Integers(nb::handle given, const char* where, const char* name)
      : object(
            as_integers(numpy("array")(given), dtype_of<Int>(), where, name)) {
    array = Array(object, where, name);
    require(array.rank() == 1, where, name, " must have one dimension; got ",
            to_string(array.shape()));
    values = {static_cast<const Int*>(array.data()),
              static_cast<std::size_t>(array.size())};
  }
};

MaskObject lengths(nb::object keys, nb::object queries) {
  const Integers<std::int64_t> kv(keys, "mask::lengths", "lengths");
  if (queries.is_none()) {
    return make(mask::lengths(kv.values),
                nb::make_tuple("lengths", kv.object, nb::none()));
  }
  const Integers<std::int64_t> q(queries, "mask::lengths", "queries");
  return make(mask::lengths(kv.values, q.values),
              nb::make_tuple("lengths", kv.object, q.object));
}

MaskObject documents(nb::object ids, nb::object keys) {
  const Integers<std::int32_t> q(ids, "mask::documents", "ids");
  if (keys.is_none()) {
    return make(mask::documents(q.values),
                nb::make_tuple("documents", q.object, nb::none()));
  }
  const Integers<std::int32_t> kv(keys, "mask::documents", "keys");
  return make(mask::documents(q.values, kv.values),
              nb::make_tuple("documents", q.object, kv.object));
}

MaskObject dense(nb::object pairs, const char* name, const char* where,
                 Mask (*part)(TensorView<const bool, 4>)) {
  // Checked here, because Array takes other types too.
  auto array = std::make_shared<Array>(pairs, where, "pairs");
  if (array->dtype() != DType::kBool) {
    throw_type_error(where, "pairs must be bool; they are ",
                     to_string(array->dtype()));
  }
  array->fold_repeated_keys();
  if (!array->rows_are_contiguous()) {
    *array = input_array(pairs, where, "pairs");
  }
  require(array->rank() <= 4, where,
          "pairs must have at most 4 dimensions; got ",
          to_string(array->shape()));
  MaskObject object =
      make(part(array->view<const bool, 4>()), nb::make_tuple(name, pairs));
  object.borrowed = {std::move(array)};
  return object;
}

MaskObject keep(nb::object pairs) {
  return dense(std::move(pairs), "keep", "mask::keep", &mask::keep);
}

MaskObject drop(nb::object pairs) {
  return dense(std::move(pairs), "drop", "mask::drop", &mask::drop);
}

MaskObject join(const MaskObject& a, const MaskObject& b) {
  MaskObject both{a.mask & b.mask, nb::tuple(a.parts + b.parts), a.borrowed};
  both.borrowed.insert(both.borrowed.end(), b.borrowed.begin(),
                       b.borrowed.end());
  return both;
}

// "causal() & window(511, 0)": arguments that are the default at the end are
// left out, arrays are told by their size.
std::string text_of(const MaskObject& mask) {
  if (mask.parts.size() == 0) return "Mask()";
  std::string text;
  for (const nb::handle part : mask.parts) {
    const auto fields = nb::borrow<nb::tuple>(part);
    const auto is_default = [](nb::handle field) {
      return field.is_none() ||
             (nb::isinstance<nb::str>(field) &&
              std::string_view(nb::borrow<nb::str>(field).c_str()) ==
                  "bottom_right");
    };
    std::size_t last = fields.size();
    while (last > 1 && is_default(fields[last - 1])) --last;
    if (!text.empty()) text += " & ";
    text += nb::str(nb::object(fields[0])).c_str();
    text += "(";
    for (std::size_t i = 1; i < last; ++i) {
      const nb::object field = fields[i];
      if (i > 1) text += ", ";
      text += nb::hasattr(field, "shape")
                  ? std::string("<array of ") +
                        nb::str(nb::object(nb::tuple(field.attr("shape"))))
                            .c_str() +
                        ">"
                  : nb::repr(field).c_str();
    }
    text += ")";
  }
  return text;
}

}  // namespace

void bind_mask(nb::module_& m) {
  nb::class_<MaskObject>(m, "Mask", R"(Which (query, key) pairs are visible.

Built from named parts and joined by `&`: a pair is visible when every part says
so. `Mask()` shows everything. See `regard.mask`.

>>> import regard
>>> regard.mask.causal() & regard.mask.window(511, 0)
causal() & window(511, 0)
)")
      .def("__init__",
           [](MaskObject* self) {
             new (self) MaskObject{{}, nb::tuple(), {}};
           })
      .def("__and__", &join, nb::is_operator())
      // `a and b` would be b alone.
      .def("__bool__",
           [](const MaskObject&) -> bool {
             throw_type_error("Mask",
                              "a mask is neither true nor false; masks are "
                              "joined by &, not by 'and'");
           })
      .def("__repr__", &text_of)
      .def("__reduce__",
           [](const MaskObject& self) {
             return nb::make_tuple(
                 nb::module_::import_("regard.mask").attr("from_parts"),
                 nb::make_tuple(self.parts));
           })
      .def_prop_ro(
          "parts", [](const MaskObject& self) { return self.parts; },
          "The parts: a tuple of (name, arguments...) each.");
  m.def("causal", &causal, nb::arg("align") = "bottom_right",
        nb::sig("def causal(align: str | int = 'bottom_right') -> Mask"),
        R"(A query sees the keys up to its own position.

By default the last query stands at the last key. align="top_left" lets the first
query stand at the first key, as PyTorch's is_causal does; a number is the key at
which the first query stands.

>>> import regard
>>> regard.mask.causal("top_left")
causal('top_left')
)");
  m.def("window", &window, nb::arg("left").none(), nb::arg("right").none(),
        nb::arg("align") = "bottom_right",
        nb::sig("def window(left: int | None, right: int | None, "
                "align: str | int = 'bottom_right') -> Mask"),
        "A query at p sees the keys p - left .. p + right. None: no limit.");
  m.def(
      "prefix", &prefix, nb::arg("n"), nb::arg("align") = "bottom_right",
      nb::sig("def prefix(n: int, align: str | int = 'bottom_right') -> Mask"),
      "All see the first n keys, and the others causally.");
  m.def("lengths", &lengths, nb::arg("keys").none(),
        nb::arg("queries") = nb::none(),
        nb::sig("def lengths(keys, queries=None) -> Mask"),
        "Padding at the end: batch entry b has keys[b] keys, and queries[b] "
        "queries.\nRows of padded queries see nothing, and give zeros.");
  m.def("documents", &documents, nb::arg("ids").none(),
        nb::arg("keys") = nb::none(),
        nb::sig("def documents(ids, keys=None) -> Mask"),
        "A query sees the keys of its own document: ids [q_len], keys "
        "[kv_len].\nWithout keys, they are the ids. Keys of one document stand "
        "together.");
  m.def("keep", &keep, nb::arg("pairs").none(),
        nb::sig("def keep(pairs) -> Mask"),
        "Visible where the bool array is True. [batch or 1, heads or 1, q_len "
        "or 1,\nkv_len or 1]; leading ones may be left out. Borrowed, not "
        "copied.");
  m.def("drop", &drop, nb::arg("pairs").none(),
        nb::sig("def drop(pairs) -> Mask"),
        "Hidden where the bool array is True; otherwise as keep.");
}

}  // namespace regard::python
