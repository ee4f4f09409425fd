// SPDX-License-Identifier: Apache-2.0
#include "regard/view/clip.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "regard/pictures/picture.h"
#include "view/layer_part.h"

namespace regard::view {
namespace {

using pictures::Picture;

constexpr std::int64_t kSide = 96;  // of what is drawn

// Colours as they are; grey from the darkest to the brightest of the clip.
Picture picture_of(const Tensor& clip, std::int64_t frame) {
  const Shape& shape = clip.shape();
  const bool color = shape.size() == 4;
  const auto all = clip.values<std::uint8_t>();
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  const int from = color || *least == *most ? 0 : *least;
  const int to = color || *least == *most ? 255 : *most;
  Picture picture(shape[2], shape[1]);
  const std::size_t first =
      static_cast<std::size_t>(frame) * picture.rgb.size() / (color ? 1 : 3);
  for (std::size_t i = 0; i < picture.rgb.size(); ++i) {
    const int value = all[first + (color ? i : i / 3)];
    picture.rgb[i] =
        static_cast<std::uint8_t>((value - from) * 255 / (to - from));
  }
  return picture;
}

struct Range {
  float least = 0, most = 0;
  // From 0 to 1.
  double place(float value) const {
    return most > least ? static_cast<double>((value - least) / (most - least))
                        : 0.5;
  }
};

// Of every stride-th number.
Range range_of(const Tensor& clip, std::int64_t first, std::int64_t stride) {
  const auto all = clip.values<float>();
  Range range{all[static_cast<std::size_t>(first)],
              all[static_cast<std::size_t>(first)]};
  for (std::int64_t i = first; i < std::ssize(all); i += stride) {
    const float value = all[static_cast<std::size_t>(i)];
    range.least = std::min(range.least, value);
    range.most = std::max(range.most, value);
  }
  return range;
}

Picture blank() {
  Picture picture(kSide, kSide);
  std::fill(picture.rgb.begin(), picture.rgb.end(), std::uint8_t{255});
  return picture;
}

// A dot for each joint, where it is among all of the clip.
Picture joints_of(const Tensor& clip, std::int64_t frame) {
  const std::int64_t joints = clip.shape()[1];
  const std::int64_t coordinates = clip.shape()[2];
  Range x = range_of(clip, 0, coordinates);
  Range y = range_of(clip, 1, coordinates);
  // One unit is as long both ways.
  const float more = (x.most - x.least) - (y.most - y.least);
  Range& shorter = more > 0 ? y : x;
  shorter.least -= std::abs(more) / 2;
  shorter.most += std::abs(more) / 2;
  constexpr std::int64_t kRadius = 3;
  constexpr std::int64_t kRoom = kSide - 1 - 4 * kRadius;
  Picture picture = blank();
  for (std::int64_t j = 0; j < joints; ++j) {
    const float* const joint =
        clip.values<float>().data() + (frame * joints + j) * coordinates;
    const auto at = [](double place) {
      return 2 * kRadius + std::llround(place * static_cast<double>(kRoom));
    };
    const std::int64_t column = at(x.place(joint[0]));
    const std::int64_t row = at(y.place(joint[1]));
    for (std::int64_t dy = -kRadius; dy <= kRadius; ++dy) {
      for (std::int64_t dx = -kRadius; dx <= kRadius; ++dx) {
        if (dx * dx + dy * dy > kRadius * kRadius) continue;
        std::uint8_t* const pixel = picture.at(row + dy, column + dx);
        pixel[0] = 29;
        pixel[1] = 95;
        pixel[2] = 138;
      }
    }
  }
  return picture;
}

// A square of shades, one for each feature: dark is the largest of the clip.
Picture features_of(const Tensor& clip, std::int64_t frame) {
  const std::int64_t count = clip.shape()[1];
  const Range range = range_of(clip, 0, 1);
  const auto across = static_cast<std::int64_t>(
      std::ceil(std::sqrt(static_cast<double>(count))));
  Picture picture = blank();
  for (std::int64_t y = 0; y < kSide; ++y) {
    for (std::int64_t x = 0; x < kSide; ++x) {
      const std::int64_t i = y * across / kSide * across + x * across / kSide;
      if (i >= count) continue;
      const double dark = range.place(
          clip.values<float>()[static_cast<std::size_t>(frame * count + i)]);
      std::fill_n(picture.at(y, x), 3,
                  static_cast<std::uint8_t>(std::lround(255 * (1 - dark))));
    }
  }
  return picture;
}

Picture frame_of(const Tensor& clip, std::int64_t frame) {
  switch (tasks::format_of(clip, "clip").kind) {
    case tasks::ClipKind::kPictures:
      return picture_of(clip, frame);
    case tasks::ClipKind::kJoints:
      return joints_of(clip, frame);
    default:
      return features_of(clip, frame);
  }
}

Axis frames_axis(const tasks::VideoConfig& config,
                 const tasks::VideoTrace& seen, const Tensor& shown) {
  AxisPictures pictures;
  if (config.format.kind == tasks::ClipKind::kPictures) {
    pictures.rows = config.format.frame[0] / config.patch;
    pictures.columns = config.format.frame[1] / config.patch;
  }
  Axis axis{"clip", {}};
  for (const std::int64_t frame : seen.frames) {
    pictures.images.push_back(pictures::encode_png(frame_of(shown, frame)));
    const std::string name = std::to_string(frame + 1);
    for (std::int64_t i = 0; i < seen.per_frame; ++i) {
      axis.tokens.push_back(
          seen.per_frame == 1
              ? name
              : name + ": " + std::to_string(i / pictures.columns + 1) + "," +
                    std::to_string(i % pictures.columns + 1));
    }
  }
  axis.pictures = std::move(pictures);
  return axis;
}

}  // namespace

Trace trace_clip(const tasks::VideoClassifier& model, const Tensor& clip,
                 const ClipTraceOptions& options) {
  const tasks::VideoConfig& config = model.config();
  const tasks::VideoTrace seen = model.trace(clip, options.threads);
  const Tensor& shown = options.shown != nullptr ? *options.shown : clip;
  require(shown.shape()[0] == clip.shape()[0], "view::trace_clip",
          "what is shown must have the ", clip.shape()[0],
          " frames of the clip; it has ", shown.shape()[0]);
  Trace trace;
  trace.source = options.name;
  trace.target =
      config.labels[static_cast<std::size_t>(seen.labels.front().label)];
  const std::size_t frames = trace.add_axis(frames_axis(config, seen, shown));
  const std::int64_t heads = config.encoder.heads;
  if (config.encoder.pooling == nn::Pooling::kAttention) {
    const std::size_t label = trace.add_axis({"label", {trace.target}});
    Section& pooling =
        trace.add_section({"pooling", label, frames, heads, false});
    pooling.add_layer({seen.pooling.view<float, 2>().at(0),
                       {heads, 1, seen.pooling.shape()[1]}});
  }
  Section& encoder =
      trace.add_section({"encoder", frames, frames, heads, true});
  for (std::int64_t layer = 0; layer < config.encoder.layers; ++layer) {
    encoder.add_layer(layer_part(seen.encoder, layer));
  }
  trace.set_start({.section = 0});
  return trace;
}

}  // namespace regard::view
