// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/explain.h"

#include <nanobind/stl/string.h>

#include "bind.h"
#include "docs.h"
#include "options.h"

namespace regard::python {
namespace {

constexpr const char* kWhere = "explain";

Explanation explain_door(nb::handle q_object, nb::handle k_object,
                         nb::handle v_object, nb::kwargs given) {
  const Keywords keywords(given, kWhere);
  const Array q = read_heads(q_object, keywords.layout, kWhere, "q");
  const Array k = read_heads(k_object, keywords.layout, kWhere, "k");
  const Array v = read_heads(v_object, keywords.layout, kWhere, "v");
  check_same_dtype(q, k, kWhere, "k");
  check_same_dtype(q, v, kWhere, "v");
  const Options<float> options(keywords, kWhere);
  return with_elements(q.dtype(), kWhere, [&]<typename T>() {
    return explain(
        attention_shape<T>(q.view<const T, 4>(), k.view<const T, 4>(),
                           v.view<const T, 4>()),
        options.value);
  });
}

}  // namespace

void bind_explain(nb::module_& m) {
  nb::class_<Explanation>(m, "Explanation",
                          "How a call of `attention` runs; see `explain`.")
      .def_prop_ro(
          "fused",
          [](const Explanation& e) { return e.path == AttentionPath::kFused; })
      .def_ro("simd_target", &Explanation::simd_target)
      .def_ro("threads", &Explanation::threads)
      .def_ro("rows", &Explanation::rows)
      .def_ro("row_blocks", &Explanation::row_blocks)
      .def_ro("rows_per_block", &Explanation::rows_per_block)
      .def_ro("splits", &Explanation::splits)
      .def_ro("tile_rows", &Explanation::tile_rows)
      .def_ro("tile_keys", &Explanation::tile_keys)
      .def_ro("full_tiles", &Explanation::full_tiles)
      .def_ro("mixed_tiles", &Explanation::mixed_tiles)
      .def_ro("skipped_tiles", &Explanation::skipped_tiles)
      .def_ro("pairs", &Explanation::pairs)
      .def_ro("visible_pairs", &Explanation::visible_pairs)
      .def_ro("visited_pairs", &Explanation::visited_pairs)
      .def_ro("flops", &Explanation::flops)
      .def_ro("scratch_bytes", &Explanation::scratch_bytes)
      .def("__repr__", [](const Explanation& e) { return to_string(e); });
  m.def("explain", &explain_door, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("options"), nb::sig(docs::kExplainSig),
        docs::kExplain);
}

}  // namespace regard::python
