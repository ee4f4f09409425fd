// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/clips.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/npy.h"
#include "tasks/video_file.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "load_clip";

template <typename T>
Tensor floats_of(const Tensor& tensor) {
  Tensor out(tensor.shape());
  const auto from = tensor.values<T>();
  std::transform(from.begin(), from.end(), out.values<float>().begin(),
                 [](T value) { return static_cast<float>(value); });
  return out;
}

Tensor as_float32(Tensor tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return tensor;
    case DType::kFloat64:
      return floats_of<double>(tensor);
    case DType::kBFloat16:
      return floats_of<BFloat16>(tensor);
    case DType::kFloat16:
      return floats_of<Float16>(tensor);
    case DType::kInt8:
      return floats_of<std::int8_t>(tensor);
    case DType::kUInt8:
      return floats_of<std::uint8_t>(tensor);
    case DType::kInt32:
      return floats_of<std::int32_t>(tensor);
    case DType::kInt64:
      return floats_of<std::int64_t>(tensor);
    case DType::kBool:
      return floats_of<bool>(tensor);
  }
  return tensor;
}

}  // namespace

const char* name_of(ClipKind kind) {
  switch (kind) {
    case ClipKind::kFeatures:
      return "features";
    case ClipKind::kJoints:
      return "joints";
    case ClipKind::kPictures:
      return "pictures";
  }
  return "";
}

std::string to_string(const ClipFormat& format) {
  std::string text = name_of(format.kind);
  for (std::size_t i = 0; i < format.frame.size(); ++i) {
    text += (i == 0 ? " " : " x ") + std::to_string(format.frame[i]);
  }
  return text;
}

ClipFormat format_of(const Tensor& clip, const std::string& name) {
  const Shape& shape = clip.shape();
  ClipFormat format;
  const bool pictures = clip.dtype() == DType::kUInt8;
  const std::int64_t last = shape.empty() ? 0 : shape.back();
  if (pictures && (clip.rank() == 3 || (clip.rank() == 4 && last == 3))) {
    format.kind = ClipKind::kPictures;
  } else if (!pictures && clip.rank() == 3 && (last == 2 || last == 3)) {
    format.kind = ClipKind::kJoints;
  } else {
    require(!pictures && clip.rank() == 2, kWhere,
            "a clip must be [frames, features], [frames, joints, 2 or 3 "
            "coordinates], or pictures [frames, height, width] or [frames, "
            "height, width, 3] in uint8; '",
            name, "' is ", to_string(clip.dtype()), " ", ShapeText{shape});
  }
  require(clip.size() > 0, kWhere,
          "a clip must have frames, and they must hold something; '", name,
          "' is ", ShapeText{shape});
  format.frame.assign(shape.begin() + 1, shape.end());
  return format;
}

Tensor load_clip(const std::filesystem::path& path,
                 const VideoPictures& pictures) {
  if (path.extension() != ".npy") return read_video(path, pictures);
  Tensor clip = load_npy(path);
  if (clip.dtype() != DType::kUInt8 || clip.rank() < 3) {
    clip = as_float32(std::move(clip));
    const auto values = clip.values<float>();
    if (!std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); })) {
      throw_parse_error(kWhere, "'", path.string(),
                        "' holds a number that is not finite");
    }
  }
  format_of(clip, path.string());
  return clip;
}

}  // namespace regard::tasks
