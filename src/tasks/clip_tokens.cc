// SPDX-License-Identifier: Apache-2.0
#include "tasks/clip_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "regard/core/random.h"

namespace regard::tasks {
namespace {

std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

// Frames [count, size] at even times of [first, last], in frames of the clip:
// between two frames linearly, of pictures the nearest.
struct Frames {
  std::int64_t count = 0;
  std::int64_t size = 0;
  std::vector<float> values;

  float* at(std::int64_t frame) { return values.data() + frame * size; }
  const float* at(std::int64_t frame) const {
    return values.data() + frame * size;
  }
};

Frames sampled(const VideoConfig& config, const Tensor& clip, double first,
               double last) {
  Frames frames;
  frames.count = frames_read(config, clip);
  frames.size = count_of(config.format.frame);
  frames.values.resize(static_cast<std::size_t>(frames.count * frames.size));
  const bool pictures = config.format.kind == ClipKind::kPictures;
  for (std::int64_t f = 0; f < frames.count; ++f) {
    const double time = time_of_frame(f, frames.count, first, last);
    float* const to = frames.at(f);
    if (pictures) {
      const auto* const from =
          clip.values<std::uint8_t>().data() + std::llround(time) * frames.size;
      for (std::int64_t i = 0; i < frames.size; ++i) {
        to[i] = static_cast<float>(from[i]) * (1.0f / 255);
      }
      continue;
    }
    const auto before = static_cast<std::int64_t>(time);
    const std::int64_t after = std::min(before + 1, clip.shape()[0] - 1);
    const auto share = static_cast<float>(time - static_cast<double>(before));
    const float* const all = clip.values<float>().data();
    const float* const a = all + before * frames.size;
    const float* const b = all + after * frames.size;
    for (std::int64_t i = 0; i < frames.size; ++i) {
      to[i] = a[i] + (b[i] - a[i]) * share;
    }
  }
  return frames;
}

// The middle of a frame's joints.
template <int kCoordinates>
void middle_of(const float* joints, std::int64_t count, float* middle) {
  float sum[kCoordinates] = {};
  for (std::int64_t j = 0; j < count; ++j) {
    for (int c = 0; c < kCoordinates; ++c) {
      sum[c] += joints[j * kCoordinates + c];
    }
  }
  for (int c = 0; c < kCoordinates; ++c) {
    middle[c] = sum[c] / static_cast<float>(count);
  }
}
void middle_of(const float* joints, std::int64_t count,
               std::int64_t coordinates, float* middle) {
  coordinates == 2 ? middle_of<2>(joints, count, middle)
                   : middle_of<3>(joints, count, middle);
}

// The middle of all frames becomes the origin, and the root of the mean square
// of the joints' distances from the middle of their frame 1.
void normalise(Frames& frames, std::int64_t coordinates) {
  const std::int64_t joints = frames.size / coordinates;
  std::vector<double> origin(static_cast<std::size_t>(coordinates));
  double square = 0;
  float middle[3];
  for (std::int64_t f = 0; f < frames.count; ++f) {
    const float* const frame = frames.at(f);
    middle_of(frame, joints, coordinates, middle);
    for (std::int64_t j = 0; j < frames.size; j += coordinates) {
      for (std::int64_t c = 0; c < coordinates; ++c) {
        const double away = frame[j + c] - middle[c];
        square += away * away;
      }
    }
    for (std::int64_t c = 0; c < coordinates; ++c) {
      origin[static_cast<std::size_t>(c)] += middle[c];
    }
  }
  const double size =
      std::sqrt(square / static_cast<double>(frames.count * joints));
  const double scale = size > 0 ? 1 / size : 1;
  for (double& from : origin) from /= static_cast<double>(frames.count);
  float* const values = frames.values.data();
  for (std::int64_t j = 0; j < frames.count * frames.size; j += coordinates) {
    for (std::int64_t c = 0; c < coordinates; ++c) {
      const double from = origin[static_cast<std::size_t>(c)];
      values[j + c] = static_cast<float>((values[j + c] - from) * scale);
    }
  }
}

// In [-most, most).
float around_zero(Random& random, float most) {
  return most * (2 * random.uniform() - 1);
}

// A random rotation about each axis, then a stretch along each.
void turn_and_stretch(Frames& frames, std::int64_t coordinates,
                      const ClipAugmentation& how, Random& random) {
  float matrix[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  for (std::int64_t a = 1; a < coordinates; ++a) {
    for (std::int64_t b = 0; b < a; ++b) {
      const float angle = around_zero(random, how.rotate);
      const float cos = std::cos(angle);
      const float sin = std::sin(angle);
      for (auto& row : matrix) {
        const float x = row[a];
        const float y = row[b];
        row[a] = x * cos + y * sin;
        row[b] = y * cos - x * sin;
      }
    }
  }
  for (std::int64_t c = 0; c < coordinates; ++c) {
    const float factor = 1 + around_zero(random, how.stretch);
    for (auto& row : matrix) row[c] *= factor;
  }
  for (std::int64_t j = 0; j < std::ssize(frames.values); j += coordinates) {
    float* const point = frames.values.data() + j;
    float rotated[3] = {};
    for (std::int64_t c = 0; c < coordinates; ++c) {
      for (std::int64_t k = 0; k < coordinates; ++k) {
        rotated[c] += point[k] * matrix[k][c];
      }
    }
    std::copy_n(rotated, coordinates, point);
  }
}

// Left and right of the first coordinate, or of a picture.
void mirror(Frames& frames, const VideoConfig& config) {
  const Shape& shape = config.format.frame;
  if (config.format.kind == ClipKind::kPictures) {
    const std::int64_t channels = shape.size() == 3 ? 3 : 1;
    const std::int64_t row = shape[1] * channels;
    for (std::int64_t r = 0; r < std::ssize(frames.values); r += row) {
      float* const first = frames.values.data() + r;
      std::reverse(first, first + row);
      for (std::int64_t p = 0; p < row; p += channels) {
        std::reverse(first + p, first + p + channels);
      }
    }
    return;
  }
  const std::int64_t coordinates = shape[1];
  for (std::int64_t j = 0; j < std::ssize(frames.values); j += coordinates) {
    frames.values[static_cast<std::size_t>(j)] *= -1;
  }
  for (const auto& [left, right] : config.augmentation.mirror_pairs) {
    for (std::int64_t f = 0; f < frames.count; ++f) {
      std::swap_ranges(frames.at(f) + left * coordinates,
                       frames.at(f) + (left + 1) * coordinates,
                       frames.at(f) + right * coordinates);
    }
  }
}

// A joint that is hidden stands in the middle of the body.
void hide_joints(Frames& frames, std::int64_t coordinates, float rate,
                 Random& random) {
  const std::int64_t joints = frames.size / coordinates;
  std::vector<std::int64_t> hidden;
  for (std::int64_t j = 0; j < joints; ++j) {
    if (random.uniform() < rate) hidden.push_back(j);
  }
  float middle[3];
  for (std::int64_t f = 0; f < frames.count; ++f) {
    middle_of(frames.at(f), joints, coordinates, middle);
    for (const std::int64_t j : hidden) {
      std::copy_n(middle, coordinates, frames.at(f) + j * coordinates);
    }
  }
}

// How much some numbers of frame f, those from `begin` on, change until each
// of the steps later; after the last frame nothing changes.
struct Changes {
  const Frames& frames;
  std::span<const std::int64_t> steps;

  float* put(std::int64_t f, std::int64_t begin, std::int64_t count,
             std::size_t step, float* to) const {
    const std::int64_t later = std::min(f + steps[step], frames.count - 1);
    const float* const now = frames.at(f) + begin;
    const float* const then = frames.at(later) + begin;
    for (std::int64_t i = 0; i < count; ++i) *to++ = then[i] - now[i];
    return to;
  }
  float* put_all(std::int64_t f, float* to) const {
    for (std::size_t s = 0; s < steps.size(); ++s) {
      to = put(f, 0, frames.size, s, to);
    }
    return to;
  }
};

// How far each joint is from each that follows it; returns the end. `planes`
// [kCoordinates][count] is room for each coordinate of all joints by itself,
// so that the compiler can take many joints at once.
template <int kCoordinates>
float* put_distances(const float* joints, std::int64_t count, float* planes,
                     float* to) {
  for (std::int64_t j = 0; j < count; ++j) {
    for (int c = 0; c < kCoordinates; ++c) {
      planes[c * count + j] = joints[j * kCoordinates + c];
    }
  }
  for (std::int64_t a = 0; a < count; ++a) {
    const float* const after = planes + a + 1;
    const std::int64_t pairs = count - a - 1;
    for (std::int64_t b = 0; b < pairs; ++b) {
      float square = 0;
      for (int c = 0; c < kCoordinates; ++c) {
        const float d = planes[c * count + a] - after[c * count + b];
        square += d * d;
      }
      to[b] = std::sqrt(square);
    }
    to += pairs;
  }
  return to;
}

void put_joints(const Frames& frames, const Changes& changes,
                std::int64_t coordinates, float* to) {
  const std::int64_t joints = frames.size / coordinates;
  float middle[3];
  std::vector<float> planes(static_cast<std::size_t>(frames.size));
  for (std::int64_t f = 0; f < frames.count; ++f) {
    const float* const now = frames.at(f);
    middle_of(now, joints, coordinates, middle);
    for (std::int64_t j = 0; j < frames.size; j += coordinates) {
      for (std::int64_t c = 0; c < coordinates; ++c) {
        *to++ = now[j + c] - middle[c];
      }
    }
    to = std::copy_n(middle, coordinates, to);
    to = changes.put_all(f, to);
    to = coordinates == 2 ? put_distances<2>(now, joints, planes.data(), to)
                          : put_distances<3>(now, joints, planes.data(), to);
  }
}

void put_features(const Frames& frames, const Changes& changes, float* to) {
  for (std::int64_t f = 0; f < frames.count; ++f) {
    to = std::copy_n(frames.at(f), frames.size, to);
    to = changes.put_all(f, to);
  }
}

void put_patches(const Frames& frames, const Changes& changes,
                 const Shape& shape, std::int64_t patch, float* to) {
  const std::int64_t channels = shape.size() == 3 ? 3 : 1;
  const std::int64_t row = shape[1] * channels;
  const std::int64_t run = patch * channels;  // of a patch's row
  for (std::int64_t f = 0; f < frames.count; ++f) {
    for (std::int64_t y = 0; y < shape[0]; y += patch) {
      for (std::int64_t x = 0; x < row; x += run) {
        for (std::int64_t r = y; r < y + patch; ++r) {
          to = std::copy_n(frames.at(f) + r * row + x, run, to);
        }
        for (std::size_t s = 0; s < changes.steps.size(); ++s) {
          for (std::int64_t r = y; r < y + patch; ++r) {
            to = changes.put(f, r * row + x, run, s, to);
          }
        }
      }
    }
  }
}

// The tokens of frames, as they are.
void put_tokens(const VideoConfig& config, const Frames& frames,
                float* tokens) {
  const Changes changes{frames, config.steps};
  switch (config.format.kind) {
    case ClipKind::kFeatures:
      return put_features(frames, changes, tokens);
    case ClipKind::kJoints:
      return put_joints(frames, changes, config.format.frame[1], tokens);
    case ClipKind::kPictures:
      return put_patches(frames, changes, config.format.frame, config.patch,
                         tokens);
  }
}

// The numbers of a token before its neighbours are laid beside it.
TokenSizes own_sizes(const VideoConfig& config) {
  const Shape& shape = config.format.frame;
  const std::int64_t size = count_of(shape);
  const std::int64_t kept = size * (1 + std::ssize(config.steps));
  switch (config.format.kind) {
    case ClipKind::kFeatures:
      return {1, kept};
    case ClipKind::kJoints:
      return {1, kept + shape[1] + shape[0] * (shape[0] - 1) / 2};
    case ClipKind::kPictures: {
      const std::int64_t patches =
          shape[0] / config.patch * (shape[1] / config.patch);
      return {patches, kept / patches};
    }
  }
  return {};
}

// Beside each token those of its place in the frames around it; before the
// first frame and after the last one these stand still.
void put_windows(const VideoConfig& config, std::int64_t frames,
                 const std::vector<float>& own, float* to) {
  const auto [per_frame, width] = own_sizes(config);
  const std::int64_t reach = config.window / 2;
  for (std::int64_t f = 0; f < frames; ++f) {
    for (std::int64_t p = 0; p < per_frame; ++p) {
      for (std::int64_t w = f - reach; w <= f + reach; ++w) {
        const std::int64_t frame = std::clamp<std::int64_t>(w, 0, frames - 1);
        to = std::copy_n(own.data() + (frame * per_frame + p) * width, width,
                         to);
      }
    }
  }
}

// What is drawn of standardised tokens: a hidden number or patch is the mean.
void disturb(const VideoConfig& config, std::int64_t frames, Random& random,
             float* tokens) {
  const auto [per_frame, width] = own_sizes(config);
  const ClipAugmentation& how = config.augmentation;
  const bool pictures = config.format.kind == ClipKind::kPictures;
  if (how.noise > 0) {
    for (std::int64_t i = 0; i < frames * per_frame * width; ++i) {
      tokens[i] += how.noise * random.normal();
    }
  }
  if (how.hide == 0) return;
  // A feature goes with its changes.
  const std::int64_t things =
      pictures ? per_frame : count_of(config.format.frame);
  for (std::int64_t thing = 0; thing < things; ++thing) {
    if (random.uniform() >= how.hide) continue;
    for (std::int64_t f = 0; f < frames; ++f) {
      float* const frame = tokens + f * per_frame * width;
      if (pictures) {
        std::fill_n(frame + thing * width, width, 0.0f);
      } else {
        for (std::int64_t i = thing; i < width; i += things) frame[i] = 0;
      }
    }
  }
}

}  // namespace

double time_of_frame(std::int64_t i, std::int64_t count, double first,
                     double last) {
  if (count == 1) return first;
  return first + (last - first) * static_cast<double>(i) /
                     static_cast<double>(count - 1);
}

TokenSizes token_sizes(const VideoConfig& config) {
  TokenSizes sizes = own_sizes(config);
  sizes.width *= config.window;
  return sizes;
}

std::int64_t frames_read(const VideoConfig& config, const Tensor& clip) {
  return config.resample ? config.frames
                         : std::min(config.frames, clip.shape()[0]);
}

void write_tokens(const VideoConfig& config, const Tensor& clip,
                  const TokenOptions& options, float* tokens) {
  const ClipAugmentation& how = config.augmentation;
  const bool joints = config.format.kind == ClipKind::kJoints;
  Random random(options.seed);
  double first = options.first;
  double share = options.last - first;
  if (options.augment) {
    const double left_out = static_cast<double>(how.crop * random.uniform());
    first += share * left_out * static_cast<double>(random.uniform());
    share *= 1 - left_out;
  }
  const auto end = static_cast<double>(clip.shape()[0] - 1);
  Frames frames =
      sampled(config, clip, first * end, std::min(1.0, first + share) * end);
  if (joints) normalise(frames, config.format.frame[1]);
  if (options.augment) {
    if (how.mirror && random.uniform() < 0.5f) mirror(frames, config);
    if (joints) {
      const std::int64_t coordinates = config.format.frame[1];
      turn_and_stretch(frames, coordinates, how, random);
      if (how.noise > 0) {
        for (float& value : frames.values) value += how.noise * random.normal();
      }
      hide_joints(frames, coordinates, how.hide, random);
    }
  }
  const auto [per_frame, width] = own_sizes(config);
  std::vector<float> apart;  // where windows are laid over them
  float* own = tokens;
  if (config.window > 1) {
    apart.resize(static_cast<std::size_t>(frames.count * per_frame * width));
    own = apart.data();
  }
  put_tokens(config, frames, own);
  if (options.standard != nullptr) {
    const float* const mean = options.standard->mean.data();
    const float* const scale = options.standard->scale.data();
    for (std::int64_t t = 0; t < frames.count * per_frame; ++t) {
      float* const token = own + t * width;
      for (std::int64_t i = 0; i < width; ++i) {
        token[i] = (token[i] - mean[i]) * scale[i];
      }
    }
  }
  if (options.augment && !joints) disturb(config, frames.count, random, own);
  if (config.window > 1) put_windows(config, frames.count, apart, tokens);
}

Standard standard_of(const VideoConfig& all, std::span<const Tensor> clips) {
  VideoConfig config = all;
  config.window = 1;  // a number is the same wherever it stands in a window
  const auto [per_frame, width] = token_sizes(config);
  const auto columns = static_cast<std::size_t>(width);
  std::vector<double> sum(columns);
  std::vector<double> square(columns);
  std::int64_t rows = 0;
  std::vector<float> tokens;
  for (const Tensor& clip : clips) {
    const std::int64_t count = frames_read(config, clip) * per_frame;
    tokens.resize(static_cast<std::size_t>(count * width));
    write_tokens(config, clip, {}, tokens.data());
    for (std::size_t token = 0; token < tokens.size(); token += columns) {
      for (std::size_t c = 0; c < columns; ++c) {
        const double value = tokens[token + c];
        sum[c] += value;
        square[c] += value * value;
      }
    }
    rows += count;
  }
  Standard standard;
  std::vector<double> deviation(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    const double mean = sum[c] / static_cast<double>(rows);
    standard.mean.push_back(static_cast<float>(mean));
    deviation[c] = std::sqrt(
        std::max(0.0, square[c] / static_cast<double>(rows) - mean * mean));
  }
  // A number that hardly ever changes, such as a pixel at the edge, must not
  // become the loudest of all.
  const double least =
      0.1 * std::accumulate(deviation.begin(), deviation.end(), 0.0) /
      static_cast<double>(width);
  for (const double of : deviation) {
    const double divisor = std::max(of, least);
    standard.scale.push_back(divisor > 0 ? static_cast<float>(1 / divisor)
                                         : 1.0f);
  }
  return standard;
}

Standard for_windows(const VideoConfig& config, const Standard& standard) {
  Standard all;
  for (std::int64_t w = 0; w < config.window; ++w) {
    all.mean.insert(all.mean.end(), standard.mean.begin(), standard.mean.end());
    all.scale.insert(all.scale.end(), standard.scale.begin(),
                     standard.scale.end());
  }
  return all;
}

}  // namespace regard::tasks
