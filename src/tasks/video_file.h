// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "regard/tasks/clips.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// A video as pictures. In video_file.cc by FFmpeg's libraries; in
// no_video_file.cc, where they are not there, it throws IoError.
Tensor read_video(const std::filesystem::path& path,
                  const VideoPictures& pictures);

}  // namespace regard::tasks
