// SPDX-License-Identifier: Apache-2.0
// What an encoder reads of a clip: a row of numbers for each token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/tasks/video_classifier.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// The numbers of a token, where a change is that until each of the config's
// steps later:
//   features  a token per frame: the features, and how much each changes
//   joints    a token per frame: each joint seen from the middle of the body,
//             the middle itself, how each joint moves, and the distance of each
//             pair of joints. The middle of the clip is the origin, the size of
//             the body the unit.
//   pictures  a token per patch of a frame: its pixels, and how much each
//             changes; white is 1
// A window of more than one frame lays the numbers of each of them side by
// side, from the earliest on.
struct TokenSizes {
  std::int64_t per_frame = 1;
  std::int64_t width = 0;
};
TokenSizes token_sizes(const VideoConfig& config);

// Frames that are read of a clip: all, or the config's where there are more or
// clips are resampled.
std::int64_t frames_read(const VideoConfig& config, const Tensor& clip);

// When frame i of `count` is read, where the first is at `first` and the last
// at `last`, in frames of the clip.
double time_of_frame(std::int64_t i, std::int64_t count, double first,
                     double last);

// Of each number of one frame, over all tokens that are learnt from.
struct Standard {
  std::vector<float> mean, scale;
};
Standard standard_of(const VideoConfig& config, std::span<const Tensor> clips);
// The same for all numbers of a token.
Standard for_windows(const VideoConfig& config, const Standard& standard);

// Writes [tokens, width] of a part of the clip's time. `augment` changes the
// clip as the config says, a pure function of the seed. Without a standard
// numbers stay what they are.
struct TokenOptions {
  bool augment = false;
  std::uint64_t seed = 0;
  const Standard* standard = nullptr;
  double first = 0;  // of the clip's time, in [0, 1]
  double last = 1;
};
void write_tokens(const VideoConfig& config, const Tensor& clip,
                  const TokenOptions& options, float* tokens);

}  // namespace regard::tasks
