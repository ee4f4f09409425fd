// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "regard/tasks/captioner.h"
#include "regard/view/trace.h"

namespace regard::view {

// What a captioner looked at: sections encoder, decoder and cross. Axis
// "picture" has the places of the picture ("2,3": row 2, column 3) and the part
// of it that the model sees, "target" what each step of the decoder wrote,
// "read" what it read. The caption, in `target`, is the one that
// Captioner::caption() gives. Throws what Captioner::trace() throws, and
// InvalidArgument where the library was built without PNG.
Trace trace_caption(const tasks::Captioner& captioner,
                    const std::filesystem::path& picture,
                    const tasks::CaptionOptions& options = {});

}  // namespace regard::view
