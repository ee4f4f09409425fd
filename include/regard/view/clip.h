// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "regard/core/threads.h"
#include "regard/tasks/video_classifier.h"
#include "regard/tensor/tensor.h"
#include "regard/view/trace.h"

namespace regard::view {

struct ClipTraceOptions {
  std::string name = {};  // of the clip
  // What the frames show, a clip of pictures with as many frames; borrowed.
  // Null: the clip itself, of joints the first coordinate to the right and the
  // second down, of features a shade each.
  const Tensor* shown = nullptr;
  Threads threads{};
};

// What a model looked at in a clip: sections pooling, where that is attention,
// and encoder. Axis "clip" has the tokens of the frames that were read, with
// their pictures: "5" is frame 5 of the clip, "5: 2,3" its patch in row 2,
// column 3. `target` is the most likely label. Throws InvalidArgument for a
// clip that the model cannot read, and where the library was built without PNG.
Trace trace_clip(const tasks::VideoClassifier& model, const Tensor& clip,
                 const ClipTraceOptions& options = {});

}  // namespace regard::view
