// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/decoding.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/pictures/mobilenet.h"
#include "regard/tasks/example_task.h"
#include "regard/tasks/picture_features.h"
#include "regard/tasks/score.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

struct CaptionerConfig {
  PictureFeatures pictures;
  // The sizes of both sides: vocab is that of the words, `layers` those of the
  // encoder, which reads the places of a picture. Positions, which are not
  // rotary, are those of the words; max_length is of a caption. Pooling and
  // shared_layers mean nothing.
  nn::EncoderConfig layers;
  std::int64_t decoder_layers = 2;
  float label_smoothing = 0.0f;  // for training alone, in [0, 1)
};

// Pictures and their captions.
struct CaptionTable {
  std::vector<std::string> pictures;               // names, each once
  std::vector<std::vector<std::string>> captions;  // of each, one or more
};
// A table with the columns `picture` and `caption`, a line per caption. Throws
// what text::read_table() throws.
CaptionTable read_captions(const std::filesystem::path& path);

// The same as the model reads it. A caption is cut at max_length - 1 pieces.
struct CaptionData {
  std::vector<std::vector<std::vector<std::int32_t>>> captions;
  FeatureSet features;

  std::int64_t size() const { return std::ssize(captions); }
};
CaptionData encode_captions(const CaptionTable& table,
                            const text::Tokenizer& tokenizer,
                            const CaptionerConfig& config, FeatureSet features);

// Learns the captions word by word. An example is a picture with all its
// captions, which share what the encoder makes of it. Borrows the data.
ExampleTask make_caption_task(const CaptionerConfig& config,
                              const CaptionData& training,
                              const CaptionData& held_out, std::uint64_t seed,
                              Threads threads = {});

struct CaptionOptions {
  std::int64_t beam = 1;  // 1 is greedy
  // Scores are divided by length^penalty, from -10 to 10.
  double length_penalty = 1;
  std::int64_t max_length = 0;  // in pieces; 0 means that of training
  bool align = false;           // keep where each piece looked
  Threads threads = {};
};

struct Caption {
  std::string text;
  double score = 0;  // log-probability / length^penalty
  // Where asked for: the pieces, and how much each looked at each place of the
  // picture, the mean of the heads of the last layer.
  std::vector<std::string> pieces;
  std::vector<std::vector<float>> alignment;  // [pieces][places]
};

// What every head looked at while a caption was written. Its source are the
// places of the picture, row by row.
struct CaptionTrace {
  std::string text;
  std::vector<std::string> written;  // by each step, the end too
  std::vector<std::string> read;     // by each step: what was written before
  nn::AttentionTrace weights;
};

// A model that says what is in a picture. It is a folder: config.json,
// model.safetensors, the tokenizer's file and, where it looks through
// MobileNetV2, features.safetensors.
class Captioner {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; tables, norms, biases and
  // MobileNetV2 stay float32. kAsStored is for folders that quantize_trained()
  // wrote: InvalidArgument for any other.
  static Captioner load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  Captioner(const CaptionerConfig& config,
            std::optional<pictures::MobileNetV2> network,
            std::unique_ptr<text::Tokenizer> tokenizer, StateDict weights,
            ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~Captioner();
  Captioner(Captioner&&) noexcept;
  Captioner& operator=(Captioner&&) noexcept;

  const CaptionerConfig& config() const;
  // Of all weights, in memory; without MobileNetV2.
  std::size_t weight_bytes() const;

  // A caption for each file. It depends on no other file and no number of
  // threads. Throws what pictures::read_picture() throws, and InvalidArgument
  // for options that make no sense.
  std::vector<Caption> caption(std::span<const std::filesystem::path> files,
                               const CaptionOptions& options = {}) const;

  // The caption of one file, and how it came about. Throws what caption()
  // throws.
  CaptionTrace trace(const std::filesystem::path& file,
                     const CaptionOptions& options = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// BLEU-1 to BLEU-4 of captions against all that was said of each picture, in
// lower case.
BleuScore score_captions(std::span<const std::string> captions,
                         const CaptionTable& truth);

void save_captioner(const std::filesystem::path& folder,
                    const CaptionerConfig& config,
                    const pictures::MobileNetV2* network,
                    const text::Tokenizer& tokenizer, const StateDict& weights,
                    DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const CaptionerConfig& config);

}  // namespace regard::tasks
