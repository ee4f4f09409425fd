// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "regard/tensor/tensor.h"

namespace regard::tasks {

// What the frames of a clip are. A clip is an array:
//   kFeatures  [frames, features], float32
//   kJoints    [frames, joints, coordinates], float32, 2 or 3 coordinates
//   kPictures  [frames, height, width] (grey) or [frames, height, width, 3]
//              (red, green, blue), uint8
enum class ClipKind { kFeatures, kJoints, kPictures };

struct ClipFormat {
  ClipKind kind = ClipKind::kFeatures;
  Shape frame;  // without the frames

  bool operator==(const ClipFormat&) const = default;
};

// "joints", and "32 x 32 x 3".
const char* name_of(ClipKind kind);
std::string to_string(const ClipFormat& format);

// Throws InvalidArgument for an array that is no clip: `name` says which.
ClipFormat format_of(const Tensor& clip, const std::string& name);

// The pictures that a video becomes, whatever its own size.
struct VideoPictures {
  std::int64_t height = 32;
  std::int64_t width = 32;
  bool color = false;
};

// A clip of a file. An .npy file holds the array itself: uint8 of three or four
// dimensions is pictures, any other type becomes float32. Any other file is
// read as a video, where FFmpeg's libraries were there when this was built: of
// a long one, every second, fourth, ... frame, so that at most 512 are kept.
// Throws IoError for a file that cannot be read, ParseError for one that is
// broken, has no frames, or numbers that are not finite, InvalidArgument for
// an array that is no clip; all texts name the file.
Tensor load_clip(const std::filesystem::path& path,
                 const VideoPictures& pictures = {});

// Can videos be read, or only .npy files?
bool reads_video();

}  // namespace regard::tasks
