// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/video_classifier.h"

#include <array>
#include <cmath>
#include <sstream>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/train/batches.h"
#include "tasks/classifier_parts.h"
#include "tasks/clip_tokens.h"
#include "tasks/model_folder.h"

namespace regard::tasks {
namespace {

constexpr const char* kKind = "regard video classifier";
constexpr const char* kWhere = "VideoClassifier";
constexpr const char* kLoad = "VideoClassifier::load";
constexpr std::array kKinds = {ClipKind::kFeatures, ClipKind::kJoints,
                               ClipKind::kPictures};

nn::Linear input_of(const VideoConfig& config) {
  return {"input", token_sizes(config).width, config.encoder.model_dim};
}

nn::Linear head_of(const VideoConfig& config) {
  return {"head", config.encoder.model_dim, std::ssize(config.labels)};
}

nn::ParameterSpecs specs_of(const VideoConfig& config,
                            const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  input_of(config).declare(specs);
  head_of(config).declare(specs);
  return specs;
}

void check_shape(const VideoConfig& c) {
  const Shape& frame = c.format.frame;
  const std::size_t rank = frame.size();
  bool fits = rank > 0;
  for (const std::int64_t extent : frame) {
    fits = fits && extent > 0 && extent <= 1 << 16;
  }
  if (c.format.kind == ClipKind::kFeatures) fits = fits && rank == 1;
  if (c.format.kind == ClipKind::kJoints) {
    fits = fits && rank == 2 && (frame[1] == 2 || frame[1] == 3) &&
           frame[0] <= 1024;  // their pairs are read
  }
  if (c.format.kind == ClipKind::kPictures) {
    fits = fits && (rank == 2 || (rank == 3 && frame[2] == 3));
  }
  require(fits, kWhere, "frames cannot be ", to_string(c.format));
  require(c.frames > 0, kWhere, "frames must be positive; there are ",
          c.frames);
  constexpr std::int64_t kMost = 4096;
  require(!c.steps.empty() && c.steps.size() <= 16, kWhere,
          "there must be 1 to 16 steps; there are ", c.steps.size());
  for (const std::int64_t step : c.steps) {
    require(step > 0 && step <= kMost, kWhere, "a step must be from 1 to ",
            kMost, " frames; one is ", step);
  }
  require(c.window > 0 && c.window <= 63 && c.window % 2 == 1, kWhere,
          "window must be an odd number of frames, at most 63; it is ",
          c.window);
  require(
      c.format.kind != ClipKind::kPictures ||
          (c.patch > 0 && frame[0] % c.patch == 0 && frame[1] % c.patch == 0),
      kWhere, "patch must divide height and width; it is ", c.patch,
      ", frames are ", to_string(c.format));
}

void check_augmentation(const VideoConfig& c) {
  const ClipAugmentation& a = c.augmentation;
  for (const float rate : {c.label_smoothing, a.crop, a.hide, a.stretch}) {
    require(
        rate >= 0 && rate < 1, kWhere,
        "label_smoothing, crop, hide and stretch must be in [0, 1); one is ",
        rate);
  }
  require(a.noise >= 0 && a.rotate >= 0, kWhere,
          "noise and rotate must not be negative; they are ", a.noise, " and ",
          a.rotate);
  const bool joints = c.format.kind == ClipKind::kJoints;
  require(joints || (a.rotate == 0 && a.stretch == 0 && a.mirror_pairs.empty()),
          kWhere,
          "rotate, stretch and mirror_pairs are for joints; frames are ",
          to_string(c.format));
  require(!a.mirror || c.format.kind != ClipKind::kFeatures, kWhere,
          "features have no left and right to mirror");
  for (const auto& [left, right] : a.mirror_pairs) {
    require(a.mirror, kWhere, "mirror_pairs go with mirror");
    for (const std::int64_t joint : {left, right}) {
      require(joint >= 0 && joint < c.format.frame[0], kWhere,
              "mirror_pairs must name joints, counted from 0; there are ",
              c.format.frame[0], ", one is ", joint);
    }
  }
}

const VideoConfig& checked(const VideoConfig& c) {
  check_labels(c.labels, kWhere);
  VideoConfig sized = c;
  sized.set_sizes();
  require(sized.encoder.vocab == c.encoder.vocab &&
              sized.encoder.max_length == c.encoder.max_length,
          kWhere, "the encoder must have ", sized.encoder.vocab,
          " tokens per frame and ", sized.encoder.max_length,
          " in all; it has ", c.encoder.vocab, " and ", c.encoder.max_length);
  check_augmentation(c);
  return c;
}

std::vector<std::int64_t> token_counts(const VideoConfig& config,
                                       std::span<const Tensor> clips) {
  std::vector<std::int64_t> counts;
  for (const Tensor& clip : clips) {
    counts.push_back(frames_read(config, clip) * token_sizes(config).per_frame);
  }
  return counts;
}

// What the encoder reads: rows of numbers, the layer that reads them, and the
// place of each token within its frame.
struct Embedded {
  nn::Variable x;
  nn::PackedTokens places;
};
Embedded embed_clips(const VideoConfig& config, const nn::Encoder& encoder,
                     nn::Pass& pass, std::span<const Tensor> clips,
                     std::span<const std::int64_t> chosen,
                     TokenOptions options) {
  const auto [per_frame, width] = token_sizes(config);
  nn::PackedTokens places;
  for (const std::int64_t i : chosen) {
    const Tensor& clip = clips[static_cast<std::size_t>(i)];
    for (std::int64_t f = 0; f < frames_read(config, clip); ++f) {
      for (std::int64_t p = 0; p < per_frame; ++p) {
        places.tokens.push_back(static_cast<std::int32_t>(p));
      }
    }
    places.offsets.push_back(places.size());
  }
  nn::Variable rows = pass.tape().result(places.size(), width, false);
  const std::uint64_t seed = options.seed;
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    // What is drawn for a clip depends on no other clip of the batch.
    options.seed = seed + 0x9E3779B97F4A7C15u *
                              (static_cast<std::uint64_t>(chosen[s]) + 1);
    write_tokens(config, clips[static_cast<std::size_t>(chosen[s])], options,
                 rows.mutable_data() + places.offsets[s] * width);
  }
  nn::Variable x = autograd::add(pass.tape(), encoder.embed(pass, places),
                                 input_of(config)(pass, rows));
  return {std::move(x), std::move(places)};
}

// A vector for each clip.
nn::Variable encode_clips(const VideoConfig& config, const nn::Encoder& encoder,
                          nn::Pass& pass, std::span<const Tensor> clips,
                          std::span<const std::int64_t> chosen,
                          const TokenOptions& options) {
  const auto [x, places] =
      embed_clips(config, encoder, pass, clips, chosen, options);
  return encoder.pool(pass, encoder.encode(pass, x, places), places);
}

}  // namespace

void VideoConfig::set_sizes() {
  check_shape(*this);
  encoder.vocab = token_sizes(*this).per_frame;
  encoder.max_length = frames * encoder.vocab;
}

std::vector<Tensor> load_clips(const std::vector<std::string>& names,
                               const std::filesystem::path& folder,
                               const VideoPictures& pictures) {
  std::vector<Tensor> clips;
  for (const std::string& name : names) {
    clips.push_back(load_clip(folder / name, pictures));
  }
  return clips;
}

void check_format(const VideoConfig& config, const Tensor& clip,
                  const std::string& name) {
  const ClipFormat format = format_of(clip, name);
  require(format == config.format, kWhere, "frames must be ",
          to_string(config.format), "; those of '", name, "' are ",
          to_string(format));
}

ExampleTask make_video_task(const VideoConfig& config,
                            const VideoData& training,
                            const VideoData& held_out, std::uint64_t seed,
                            Threads threads) {
  const nn::Encoder encoder(checked(config).encoder);
  ExampleTaskParts parts;
  parts.parameters = specs_of(config, encoder);
  parts.lengths = token_counts(config, training.clips);
  parts.held_out_lengths = token_counts(config, held_out.clips);
  const Standard standard = standard_of(config, training.clips);
  parts.loss = [=, &training, &held_out](nn::Pass& pass, Part part,
                                         std::span<const std::int64_t> examples,
                                         std::uint64_t draw) -> nn::LossSum {
    const bool learns = part == Part::kTraining;
    const VideoData& data = learns ? training : held_out;
    std::vector<std::int32_t> targets;
    for (const std::int64_t example : examples) {
      targets.push_back(data.labels[static_cast<std::size_t>(example)]);
    }
    const autograd::CrossEntropySum loss = autograd::cross_entropy(
        pass.tape(),
        encode_clips(config, encoder, pass, data.clips, examples,
                     {.augment = learns, .seed = draw, .standard = &standard}),
        pass.parameter("head.weight"), pass.parameter("head.bias"), targets,
        config.label_smoothing);
    return {loss.loss, loss.likelihood, std::ssize(targets)};
  };
  return {std::move(parts), seed, threads};
}

StateDict finished_weights(const VideoConfig& config, const VideoData& training,
                           const StateDict& learnt) {
  // W ((x - mean) scale) + b = (W scale) x + (b - (W scale) mean)
  const Standard standard =
      for_windows(config, standard_of(config, training.clips));
  StateDict weights = learnt;
  const auto bias = weights.at("input.bias").values<float>();
  const auto weight = weights.at("input.weight").values<float>();
  const std::size_t columns = standard.mean.size();
  for (std::size_t row = 0; row < bias.size(); ++row) {
    double sum = bias[row];
    for (std::size_t c = 0; c < columns; ++c) {
      float& w = weight[row * columns + c];
      w *= standard.scale[c];
      sum -= static_cast<double>(w) * standard.mean[c];
    }
    bias[row] = static_cast<float>(sum);
  }
  return weights;
}

VideoClassifier::VideoClassifier(VideoConfig config, StateDict weights,
                                 ops::WeightStorage storage)
    : config_(checked(config)),
      encoder_(config_.encoder),
      weights_(specs_of(config_, encoder_), std::move(weights), storage,
               kWhere) {}

std::vector<std::vector<float>> VideoClassifier::probabilities(
    std::span<const Tensor> clips, double first, double last,
    Threads threads) const {
  constexpr std::int64_t kTokens = 4096;  // at once
  std::vector<std::vector<float>> out(clips.size());
  autograd::MemoryPool pool;
  for (const std::vector<std::int64_t>& batch : train::make_batches(
           token_counts(config_, clips), {.tokens = kTokens}, 0)) {
    autograd::Tape tape(autograd::Record::kNo, threads, pool);
    nn::Pass pass(tape, weights_);
    const nn::Variable scores = head_of(config_)(
        pass, encode_clips(config_, encoder_, pass, clips, batch,
                           {.first = first, .last = last}));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float* const row = scores.value().at(static_cast<std::int64_t>(i));
      out[static_cast<std::size_t>(batch[i])] =
          softmax_of({row, config_.labels.size()});
    }
  }
  return out;
}

std::vector<std::vector<LabelProbability>> VideoClassifier::classify(
    std::span<const Tensor> clips, std::int64_t views, Threads threads) const {
  require(views > 0, kWhere, "views must be positive; there are ", views);
  for (std::size_t i = 0; i < clips.size(); ++i) {
    check_format(config_, clips[i], "clip " + std::to_string(i));
  }
  constexpr double kPart = 0.85;
  auto mean = probabilities(clips, 0, 1, threads);
  for (std::int64_t v = 1; v < views; ++v) {
    const double first = views == 2 ? (1 - kPart) / 2
                                    : (1 - kPart) * static_cast<double>(v - 1) /
                                          static_cast<double>(views - 2);
    const auto part = probabilities(clips, first, first + kPart, threads);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t l = 0; l < mean[i].size(); ++l) {
        mean[i][l] += part[i][l];
      }
    }
  }
  std::vector<std::vector<LabelProbability>> out;
  for (auto& row : mean) {
    for (float& value : row) value /= static_cast<float>(views);
    out.push_back(ranked(row));
  }
  return out;
}

VideoTrace VideoClassifier::trace(const Tensor& clip, Threads threads) const {
  VideoTrace trace;
  trace.labels = classify({&clip, 1}, 1, threads).front();
  trace.per_frame = token_sizes(config_).per_frame;
  const std::int64_t count = frames_read(config_, clip);
  for (std::int64_t f = 0; f < count; ++f) {
    trace.frames.push_back(std::llround(
        time_of_frame(f, count, 0, static_cast<double>(clip.shape()[0] - 1))));
  }
  autograd::Tape tape(autograd::Record::kNo, threads);
  nn::Pass pass(tape, weights_);
  const std::int64_t only = 0;
  const auto [x, places] =
      embed_clips(config_, encoder_, pass, {&clip, 1}, {&only, 1}, {});
  nn::Encoder::Attention seen =
      encoder_.attention(pass, x, places, {}, OverHeads::kEach);
  trace.encoder = std::move(seen.layers);
  trace.pooling = std::move(seen.pooling);
  return trace;
}

VideoClassifier VideoClassifier::load(const std::filesystem::path& folder,
                                      ops::WeightStorage weights) {
  ModelFolder model = load_model_without_tokenizer(folder, kKind, kLoad);
  weights = model.weights_as(weights, kLoad);
  const text::Field field = model.field();
  VideoConfig config;
  config.encoder = encoder_from(field["encoder"]);
  field["labels"].for_each(
      [&](const text::Field& label) { config.labels.push_back(label.text()); });
  const std::string& kind = field["clips"].text();
  bool known = false;
  for (const ClipKind one : kKinds) {
    if (kind != name_of(one)) continue;
    config.format.kind = one;
    known = true;
  }
  if (!known) field["clips"].expect("features, joints or pictures");
  field["frame"].for_each([&](const text::Field& extent) {
    config.format.frame.push_back(extent.count());
  });
  config.frames = field["frames"].count();
  config.patch = field["patch"].count();
  // Models of before had one step, one frame and no choice.
  config.resample = field.flag("resample", false);
  if (field.has("window")) config.window = field["window"].count();
  if (field.has("steps")) {
    config.steps.clear();
    field["steps"].for_each(
        [&](const text::Field& step) { config.steps.push_back(step.count()); });
  }
  return fitted(folder, kLoad, [&] {
    return VideoClassifier(std::move(config), std::move(model.weights),
                           weights);
  });
}

std::string config_to_json(const VideoConfig& config) {
  return Json{{"kind", kKind},
              {"labels", config.labels},
              {"clips", name_of(config.format.kind)},
              {"frame", config.format.frame},
              {"frames", config.frames},
              {"patch", config.patch},
              {"resample", config.resample},
              {"steps", config.steps},
              {"window", config.window},
              {"encoder", to_json(config.encoder)}}
      .dump();
}

void save_video_classifier(const std::filesystem::path& folder,
                           const VideoConfig& config, const StateDict& weights,
                           DType stored) {
  save_model_folder(folder, Json::parse(config_to_json(config)), weights,
                    stored);
}

std::string summary_of(const VideoData& data) {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x100000001B3u;
  };
  for (const Tensor& clip : data.clips) {
    for (const std::int64_t extent : clip.shape()) {
      mix(static_cast<std::uint64_t>(extent));
    }
    for (std::size_t i = 0; i < clip.byte_count(); ++i) {
      mix(static_cast<std::uint64_t>(clip.bytes()[i]));
    }
  }
  for (const std::int32_t label : data.labels) {
    mix(static_cast<std::uint64_t>(label));
  }
  std::ostringstream out;
  out << data.size() << " clips (hash " << std::hex << hash << ")";
  return out.str();
}

}  // namespace regard::tasks
