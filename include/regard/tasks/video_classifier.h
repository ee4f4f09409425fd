// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/clips.h"
#include "regard/tasks/example_task.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// How clips are changed while a model learns, so that it meets none twice. What
// is drawn is a pure function of the seed, the update and the clip.
struct ClipAugmentation {
  float crop = 0;       // of the clip's time that is left out, at most: [0, 1)
  bool mirror = false;  // left and right change places in half of the clips
  // Joints that change places, too.
  std::vector<std::pair<std::int64_t, std::int64_t>> mirror_pairs = {};
  float rotate = 0;   // radians at most, of joints, about each axis
  float stretch = 0;  // of joints, along each axis: by a factor of 1 +- this
  float noise = 0;    // deviation; of joints in sizes of the body, else in
                      // deviations of the number itself
  float hide = 0;     // joints, features or patches not seen in a clip: [0, 1)
};

struct VideoConfig {
  // vocab is the number of tokens of a frame, max_length frames times that;
  // set_sizes() says so.
  nn::EncoderConfig encoder;
  std::vector<std::string> labels;  // at least two, none twice
  ClipFormat format;
  std::int64_t frames = 32;  // at most; of a longer clip so many, evenly
  bool resample = false;     // a shorter clip becomes so many, too
  // A token also tells how each number changes until so many frames later.
  std::vector<std::int64_t> steps = {1};
  std::int64_t window = 1;  // frames that a token tells of: those around its
                            // own, an odd number
  std::int64_t patch = 8;   // pixels; of pictures, divides both sides
  // For training alone.
  float label_smoothing = 0.0f;
  ClipAugmentation augmentation;

  // Throws InvalidArgument for a format, frames, steps, a window or a patch
  // that make no sense.
  void set_sizes();
};

struct VideoData {
  std::vector<Tensor> clips;
  std::vector<std::int32_t> labels;

  std::int64_t size() const { return static_cast<std::int64_t>(clips.size()); }
};

// The clips that a table names, relative to its folder. Throws as load_clip()
// does, and InvalidArgument for a clip whose format is not the config's.
std::vector<Tensor> load_clips(const std::vector<std::string>& names,
                               const std::filesystem::path& folder,
                               const VideoPictures& pictures);
void check_format(const VideoConfig& config, const Tensor& clip,
                  const std::string& name);

// A linear layer (input.weight, input.bias) makes a vector of the numbers of
// each token; nn::Encoder and a linear layer (head.weight, head.bias) do the
// rest. Numbers are brought to mean 0 and deviation 1 by what the training
// clips have; finished_weights() folds that into the first layer. Borrows the
// data.
ExampleTask make_video_task(const VideoConfig& config,
                            const VideoData& training,
                            const VideoData& held_out, std::uint64_t seed,
                            Threads threads = {});

// What every head looked at in a clip. Its tokens are those of frame 0, then of
// frame 1, ...
struct VideoTrace {
  std::vector<LabelProbability> labels;  // most likely first
  std::vector<std::int64_t> frames;      // of the clip: those nearest to what
                                         // was read
  std::int64_t per_frame = 1;            // tokens
  Tensor encoder;                        // [layers, heads, tokens, tokens]
  Tensor pooling;                        // [heads, tokens]
};

// A model that says what clips show. It is a folder: config.json,
// model.safetensors.
class VideoClassifier {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or does not fit the other.
  // Matrices of products become what `weights` says; tables, norms and biases
  // stay float32. kAsStored is for folders that quantize_trained() wrote:
  // InvalidArgument for any other.
  static VideoClassifier load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  VideoClassifier(VideoConfig config, StateDict weights,
                  ops::WeightStorage storage = ops::WeightStorage::kFloat32);

  const VideoConfig& config() const { return config_; }
  // Of all weights, in memory.
  std::size_t weight_bytes() const { return weights_.bytes(); }

  // For each clip all labels, most likely first: the mean of what is said of
  // the whole clip and of views - 1 parts of it, each 85 % of its time, evenly
  // spread. The bits of a clip's probabilities depend on no other clip and on
  // no number of threads.
  std::vector<std::vector<LabelProbability>> classify(
      std::span<const Tensor> clips, std::int64_t views = 1,
      Threads threads = {}) const;

  // How it came to what classify() says of a whole clip.
  VideoTrace trace(const Tensor& clip, Threads threads = {}) const;

 private:
  // Row i: the probability of each label for clip i.
  std::vector<std::vector<float>> probabilities(std::span<const Tensor> clips,
                                                double first, double last,
                                                Threads threads) const;

  VideoConfig config_;
  nn::Encoder encoder_;
  nn::PackedParameters weights_;
};

// The weights as a VideoClassifier has them: what the task learnt, with what
// `training` told of the numbers folded into the first layer.
StateDict finished_weights(const VideoConfig& config, const VideoData& training,
                           const StateDict& learnt);
void save_video_classifier(const std::filesystem::path& folder,
                           const VideoConfig& config, const StateDict& weights,
                           DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const VideoConfig& config);

// For the settings of a training: how many, and a hash of them.
std::string summary_of(const VideoData& data);

}  // namespace regard::tasks
