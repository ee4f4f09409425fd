// SPDX-License-Identifier: Apache-2.0
// Without utf8proc and PCRE2 there are no tokenizers, and no regard.load.
#include "bind.h"
#include "models.h"

namespace regard::python {

void bind_language_model(nanobind::module_&) {}
void bind_text_encoder(nanobind::module_&) {}
void bind_translator(nanobind::module_&) {}

}  // namespace regard::python
