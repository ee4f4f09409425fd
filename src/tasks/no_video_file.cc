// SPDX-License-Identifier: Apache-2.0
#include "regard/core/error.h"
#include "tasks/video_file.h"

namespace regard::tasks {

bool reads_video() { return false; }

Tensor read_video(const std::filesystem::path& path, const VideoPictures&) {
  throw_io_error("load_clip", "'", path.string(),
                 "' is no .npy file, and videos are not read: FFmpeg's "
                 "libraries were not there when this was built");
}

}  // namespace regard::tasks
