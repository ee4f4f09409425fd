// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace regard::python {

// One file each.
void bind_attention(nanobind::module_& m);
void bind_explain(nanobind::module_& m);
void bind_kv_cache(nanobind::module_& m);
void bind_layer(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_mask(nanobind::module_& m);
void bind_nn(nanobind::module_& m);
void bind_text_encoder(nanobind::module_& m);
void bind_view(nanobind::module_& m);
void bind_weights(nanobind::module_& m);

}  // namespace regard::python
