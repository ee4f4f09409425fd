// SPDX-License-Identifier: Apache-2.0
// Video understanding: what is read of a clip, and a model that learns motion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/io/npy.h"
#include "regard/tasks/samples.h"
#include "regard/tasks/video_classifier.h"
#include "regard/train/training.h"
#include "support/refusal.h"
#include "tasks/clip_tokens.h"

namespace regard::tasks {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

VideoConfig config_of(ClipKind kind, Shape frame) {
  VideoConfig config;
  config.labels = {"no", "yes"};
  config.format = {kind, std::move(frame)};
  config.frames = 6;
  config.patch = 2;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 1;
  config.encoder.feed_forward_dim = 32;
  config.encoder.pooling = nn::Pooling::kAttention;
  config.set_sizes();
  return config;
}

std::vector<float> tokens_of(const VideoConfig& config, const Tensor& clip,
                             const TokenOptions& options = {}) {
  const TokenSizes sizes = token_sizes(config);
  std::vector<float> tokens(static_cast<std::size_t>(
      frames_read(config, clip) * sizes.per_frame * sizes.width));
  write_tokens(config, clip, options, tokens.data());
  return tokens;
}

TEST(ClipFormat, IsToldByShapeAndType) {
  const auto format = [](const Tensor& clip) {
    return to_string(format_of(clip, "x.npy"));
  };
  EXPECT_EQ(format(Tensor({4, 7})), "features 7");
  EXPECT_EQ(format(Tensor({4, 15, 2})), "joints 15 x 2");
  EXPECT_EQ(format(Tensor(DType::kUInt8, {4, 8, 2})), "pictures 8 x 2");
  EXPECT_EQ(format(Tensor(DType::kUInt8, {4, 8, 6, 3})), "pictures 8 x 6 x 3");
  EXPECT_EQ(test::refusal([&] {
              format(Tensor({4, 8, 5}));
            }),
            "load_clip: a clip must be [frames, features], [frames, joints, 2 "
            "or 3 coordinates], or pictures [frames, height, width] or "
            "[frames, height, width, 3] in uint8; 'x.npy' is float32 [4, 8, "
            "5]");
  EXPECT_THAT(test::refusal([&] {
                format(Tensor({0, 7}));
              }),
              StartsWith("load_clip: a clip must have frames"));
}

TEST(LoadClip, TakesNumbersOfAnyTypeAndRefusesThoseThatAreNotFinite) {
  const TemporaryFolder folder;
  Tensor whole(DType::kInt32, {2, 2});
  whole.values<std::int32_t>()[3] = -7;
  save_npy(folder / "whole.npy", whole);
  const Tensor clip = load_clip(folder / "whole.npy");
  EXPECT_THAT(clip.values<float>(), ElementsAre(0, 0, 0, -7));
  save_npy(folder / "nan.npy",
           Tensor({1, std::numeric_limits<float>::quiet_NaN()}, {1, 2}));
  EXPECT_THAT([&] { load_clip(folder / "nan.npy"); },
              ThrowsMessage<ParseError>(
                  HasSubstr("nan.npy' holds a number that is not finite")));
}

// By hand: each number, and the next frame's minus it; none after the last.
TEST(ClipTokens, OfFeaturesAreTheirValuesAndChanges) {
  const VideoConfig config = config_of(ClipKind::kFeatures, {2});
  EXPECT_THAT(tokens_of(config, Tensor({1, 10, 3, 5, 4, 5}, {3, 2})),
              ElementsAre(1, 10, 2, -5, 3, 5, 1, 0, 4, 5, 0, 0));
}

TEST(ClipTokens, OfALongClipAreSpreadEvenlyOverIt) {
  VideoConfig config = config_of(ClipKind::kFeatures, {1});
  config.frames = 3;
  // Six frames at 0, 2.5 and 5.
  const Tensor clip({0, 1, 4, 9, 16, 25}, {6, 1});
  EXPECT_THAT(tokens_of(config, clip), ElementsAre(0, 6.5, 6.5, 18.5, 25, 0));
  EXPECT_THAT(tokens_of(config, clip, {.first = 0.2, .last = 0.6}),
              ElementsAre(1, 3, 4, 5, 9, 0));
}

// By hand: the number, and what it is one and two frames later minus it.
TEST(ClipTokens, MayTellOfChangesOverSeveralSteps) {
  VideoConfig config = config_of(ClipKind::kFeatures, {1});
  config.steps = {1, 2};
  EXPECT_THAT(tokens_of(config, Tensor({0, 1, 4, 9}, {4, 1})),
              ElementsAre(0, 1, 4, 1, 3, 8, 4, 5, 5, 9, 0, 0));
}

// By hand: (1, 2), (3, 1) and (4, 0) are the numbers of the three frames.
TEST(ClipTokens, MayTellOfTheFramesAroundTheirs) {
  VideoConfig config = config_of(ClipKind::kFeatures, {1});
  config.window = 3;
  EXPECT_THAT(tokens_of(config, Tensor({1, 3, 4}, {3, 1})),
              ElementsAre(1, 2, 1, 2, 3, 1,  //
                          1, 2, 3, 1, 4, 0,  //
                          3, 1, 4, 0, 4, 0));
  // Of a picture's patches those of the same place.
  VideoConfig pictures = config_of(ClipKind::kPictures, {2, 4});
  Tensor clip(DType::kUInt8, {2, 2, 4});
  Random random(1);
  for (std::uint8_t& pixel : clip.values<std::uint8_t>()) {
    pixel = static_cast<std::uint8_t>(random.below(256));
  }
  const auto own = tokens_of(pictures, clip);
  pictures.window = 3;
  const auto around = tokens_of(pictures, clip);
  ASSERT_EQ(around.size(), 3 * own.size());
  const std::size_t width = own.size() / 4;
  for (std::size_t i = 0; i < width; ++i) {
    // Frame 1, patch 1: frame 0, its own, and its own once more.
    EXPECT_EQ(around[9 * width + i], own[width + i]);
    EXPECT_EQ(around[10 * width + i], own[3 * width + i]);
    EXPECT_EQ(around[11 * width + i], own[3 * width + i]);
  }
}

TEST(ClipTokens, OfAShortClipMayBeResampled) {
  VideoConfig config = config_of(ClipKind::kFeatures, {1});
  config.frames = 3;
  EXPECT_THAT(tokens_of(config, Tensor({0, 4}, {2, 1})),
              ElementsAre(0, 4, 4, 0));
  config.resample = true;
  EXPECT_THAT(tokens_of(config, Tensor({0, 4}, {2, 1})),
              ElementsAre(0, 2, 2, 2, 4, 0));
  EXPECT_THAT(tokens_of(config, Tensor({7}, {1, 1})),
              ElementsAre(7, 0, 7, 0, 7, 0));
}

// By hand: two joints that are 2 apart, so that each is 1 from the middle, and
// go 3 to the right; the middle of the clip is at (1.5, 0).
TEST(ClipTokens, OfJointsAreSeenFromTheBody) {
  const VideoConfig config = config_of(ClipKind::kJoints, {2, 2});
  const auto tokens =
      tokens_of(config, Tensor({0, -1, 0, 1, 3, -1, 3, 1}, {2, 2, 2}));
  EXPECT_THAT(
      tokens,
      Pointwise(FloatNear(1e-6f),
                {0.0, -1.0, 0.0, 1.0, -1.5, 0.0, 3.0, 0.0, 3.0, 0.0, 2.0,  //
                 0.0, -1.0, 0.0, 1.0, 1.5,  0.0, 0.0, 0.0, 0.0, 0.0, 2.0}));
  // Elsewhere and ten times as large is the same.
  Tensor far({0, -1, 0, 1, 3, -1, 3, 1}, {2, 2, 2});
  for (float& value : far.values<float>()) value = 10 * value + 100;
  EXPECT_THAT(tokens_of(config, far), Pointwise(FloatNear(1e-5f), tokens));
}

TEST(ClipTokens, OfPicturesArePatchAfterPatch) {
  VideoConfig config = config_of(ClipKind::kPictures, {2, 4});
  Tensor clip(DType::kUInt8, {2, 2, 4});
  for (int i = 0; i < 16; ++i) {
    clip.values<std::uint8_t>()[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(i < 8 ? 17 * i : 255);
  }
  ASSERT_EQ(token_sizes(config).per_frame, 2);
  auto tokens = tokens_of(config, clip);
  for (float& value : tokens) value *= 15;
  EXPECT_THAT(
      tokens,
      Pointwise(FloatNear(1e-5f),
                {0.0, 1.0,  4.0,  5.0,  15.0, 14.0, 11.0, 10.0, 2.0,  3.0, 6.0,
                 7.0, 13.0, 12.0, 9.0,  8.0,  15.0, 15.0, 15.0, 15.0, 0.0, 0.0,
                 0.0, 0.0,  15.0, 15.0, 15.0, 15.0, 0.0,  0.0,  0.0,  0.0}));
}

// Distances do not change in a mirror or under a rotation; all else does.
TEST(Augmentation, KeepsWhatItMustAndIsAFunctionOfTheSeed) {
  VideoConfig config = config_of(ClipKind::kJoints, {4, 3});
  config.augmentation.mirror = true;
  config.augmentation.mirror_pairs = {{1, 2}};
  config.augmentation.rotate = 1;
  Tensor clip({5, 4, 3});
  Random random(3);
  for (float& value : clip.values<float>()) value = random.normal();
  const auto plain = tokens_of(config, clip);
  const auto width = static_cast<std::size_t>(token_sizes(config).width);
  std::set<bool> mirrored;
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    const auto turned =
        tokens_of(config, clip, {.augment = true, .seed = seed});
    EXPECT_EQ(turned, tokens_of(config, clip, {.augment = true, .seed = seed}));
    EXPECT_NE(turned, plain);
    // Pairs 0-1, 0-2, 0-3, 1-2, 1-3, 2-3 of the first frame.
    const float* const was = plain.data() + width - 6;
    const float* const is = turned.data() + width - 6;
    const bool swapped = std::abs(is[0] - was[0]) > 1e-3f;
    mirrored.insert(swapped);
    const std::array<int, 6> from =
        swapped ? std::array{1, 0, 2, 3, 5, 4} : std::array{0, 1, 2, 3, 4, 5};
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(is[i], was[from[i]], 1e-4);
  }
  EXPECT_THAT(mirrored, ElementsAre(false, true));
}

TEST(Augmentation, HidesFeaturesWithTheirChangesAndMirrorsPictures) {
  VideoConfig config = config_of(ClipKind::kFeatures, {40});
  config.augmentation.hide = 0.5f;
  Tensor clip({3, 40});
  for (int i = 0; i < 120; ++i) {
    clip.values<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>(i * i + 1);
  }
  const auto tokens = tokens_of(config, clip, {.augment = true, .seed = 5});
  int hidden = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(tokens[i] == 0, tokens[80 + i] == 0);
    EXPECT_EQ(tokens[i] == 0, tokens[40 + i] == 0);
    hidden += tokens[i] == 0;
  }
  EXPECT_GT(hidden, 8);
  EXPECT_LT(hidden, 32);

  VideoConfig pictures = config_of(ClipKind::kPictures, {2, 4, 3});
  pictures.augmentation.mirror = true;
  Tensor color(DType::kUInt8, {1, 2, 4, 3});
  for (int i = 0; i < 24; ++i) {
    color.values<std::uint8_t>()[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(i);
  }
  const auto plain = tokens_of(pictures, color);
  std::uint64_t seed = 1;
  auto other = plain;
  while (other == plain) {
    other = tokens_of(pictures, color, {.augment = true, .seed = seed++});
  }
  // The first pixel is now the last of the row, its colors in their order.
  EXPECT_THAT(std::vector(other.begin(), other.begin() + 3),
              Pointwise(FloatNear(1e-6f), {9 / 255.0, 10 / 255.0, 11 / 255.0}));
}

// The first number goes up, or down; no frame tells which.
VideoData ramps(std::uint64_t seed, int count) {
  Random random(seed);
  VideoData data;
  for (int i = 0; i < count; ++i) {
    const std::int64_t frames = 3 + random.below(6);
    Tensor clip({frames, 3});
    const float slope = i % 2 == 0 ? 0.5f : -0.5f;
    const float start = random.uniform(-2, 2);
    for (std::int64_t f = 0; f < frames; ++f) {
      float* const row = clip.values<float>().data() + 3 * f;
      row[0] = 100 + start + slope * static_cast<float>(f);
      row[1] = random.normal();
      row[2] = 7;
    }
    data.clips.push_back(std::move(clip));
    data.labels.push_back(i % 2);
  }
  return data;
}

struct Quiet : train::Observer {};

TEST(VideoClassifier, LearnsMotionAndAClipHasItsBitsAloneAndAfterTheDisk) {
  const VideoConfig config = config_of(ClipKind::kFeatures, {3});
  const VideoData training = ramps(1, 60);
  const VideoData held_out = ramps(2, 20);
  ExampleTask task = make_video_task(config, training, held_out, 1);
  train::TrainingOptions options;
  options.max_updates = 60;
  options.batch_tokens = 200;
  options.schedule.kind = train::ScheduleKind::kConstant;
  options.schedule.peak = 0.01;
  const TemporaryFolder folder;
  Quiet quiet;
  train::train(task, options, folder / "training", train::Start::kNew, quiet);
  const StateDict weights =
      finished_weights(config, training, task.parameters());
  const VideoClassifier model(config, weights);
  const auto all = model.classify(held_out.clips);
  double likelihood = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].front().label, held_out.labels[i]) << i;
    for (const LabelProbability& one : all[i]) {
      if (one.label == held_out.labels[i]) {
        likelihood -= std::log(static_cast<double>(one.probability));
      }
    }
  }
  // The finished weights say of raw numbers what the task says of standardised
  // ones.
  EXPECT_NEAR(likelihood, task.validate().likelihood, 1e-2);

  std::filesystem::create_directory(folder / "model");
  save_video_classifier(folder / "model", config, weights);
  const auto loaded = VideoClassifier::load(folder / "model");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto alone =
        loaded.classify({&held_out.clips[i], 1}, 1, {.count = 1}).front();
    for (std::size_t l = 0; l < alone.size(); ++l) {
      EXPECT_EQ(alone[l].label, all[i][l].label);
      EXPECT_EQ(alone[l].probability, all[i][l].probability);
    }
  }
  // A folder whose files do not fit each other says so.
  VideoConfig wider = config;
  wider.format.frame = {4};
  save_video_classifier(folder / "model", wider, weights);
  EXPECT_THAT(
      [&] { VideoClassifier::load(folder / "model"); },
      ThrowsMessage<ParseError>(AllOf(HasSubstr("do not fit each other"),
                                      HasSubstr("input.weight"))));
  // Parts of a ramp are ramps.
  const auto views = loaded.classify(held_out.clips, 4);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(views[i].front().label, held_out.labels[i]);
    EXPECT_NE(views[i].front().probability, all[i].front().probability);
  }
}

// Whatever a token tells of, the finished weights say of raw numbers what the
// task says of standardised ones, before and after the disk.
TEST(VideoClassifier, KeepsStepsWindowsAndResampling) {
  VideoConfig config = config_of(ClipKind::kFeatures, {3});
  config.steps = {1, 3};
  config.window = 5;
  config.resample = true;
  const VideoData training = ramps(1, 12);
  const VideoData held_out = ramps(2, 8);
  ExampleTask task = make_video_task(config, training, held_out, 1);
  const TemporaryFolder folder;
  save_video_classifier(folder / ".", config,
                        finished_weights(config, training, task.parameters()));
  const auto model = VideoClassifier::load(folder / ".");
  double likelihood = 0;
  const auto said = model.classify(held_out.clips);
  for (std::size_t i = 0; i < said.size(); ++i) {
    for (const LabelProbability& one : said[i]) {
      if (one.label == held_out.labels[i]) {
        likelihood -= std::log(static_cast<double>(one.probability));
      }
    }
  }
  EXPECT_NEAR(likelihood, task.validate().likelihood, 1e-3);
}

TEST(VideoTask, DrawsForAClipWhateverElseIsInTheBatch) {
  VideoConfig config = config_of(ClipKind::kFeatures, {3});
  config.augmentation.noise = 0.5f;
  config.augmentation.crop = 0.5f;
  const VideoData training = ramps(1, 4);
  ExampleTask task = make_video_task(config, training, {}, 1);
  const auto loss = [&](std::vector<std::int64_t> examples,
                        std::uint64_t seed) {
    StateDict gradients;
    return task.loss_and_gradients(examples, seed, gradients).loss;
  };
  EXPECT_NEAR(loss({0, 3}, 7), loss({0}, 7) + loss({3}, 7), 1e-6);
  EXPECT_NEAR(loss({3, 0}, 7), loss({0, 3}, 7), 1e-6);
  EXPECT_NE(loss({0}, 7), loss({0}, 8));
}

TEST(VideoClassifier, RefusesWhatMakesNoSense) {
  const auto refusal = [](VideoConfig config) {
    return test::refusal([&] { make_video_task(config, {}, {}, 1); });
  };
  VideoConfig config = config_of(ClipKind::kFeatures, {3});
  config.augmentation.rotate = 0.1f;
  EXPECT_EQ(refusal(config),
            "VideoClassifier: rotate, stretch and mirror_pairs are for joints; "
            "frames are features 3");
  config.augmentation = {.mirror = true};
  EXPECT_THAT(refusal(config), HasSubstr("no left and right to mirror"));
  config = config_of(ClipKind::kJoints, {3, 2});
  config.augmentation.mirror = true;
  config.augmentation.mirror_pairs = {{1, 3}};
  EXPECT_THAT(refusal(config), HasSubstr("there are 3, one is 3"));
  config.augmentation = {.hide = 1};
  EXPECT_THAT(refusal(config), HasSubstr("must be in [0, 1); one is 1"));
  config = config_of(ClipKind::kPictures, {4, 4});
  config.patch = 3;
  EXPECT_THAT(test::refusal([&] { config.set_sizes(); }),
              HasSubstr("patch must divide height and width; it is 3"));
  VideoConfig even = config_of(ClipKind::kFeatures, {3});
  even.window = 2;
  EXPECT_THAT(refusal(even), HasSubstr("window must be an odd number of frames,"
                                       " at most 63; it is 2"));
  even.window = 1;
  even.steps = {1, 0};
  EXPECT_THAT(refusal(even),
              HasSubstr("a step must be from 1 to 4096 frames; one is 0"));
  config.patch = 4;
  EXPECT_THAT(refusal(config),
              HasSubstr("must have 1 tokens per frame and 6 in all; it has 4 "
                        "and 24"));
  config = config_of(ClipKind::kJoints, {3, 2});
  EXPECT_EQ(test::refusal([&] {
              check_format(config, Tensor({2, 4, 2}), "x");
            }),
            "VideoClassifier: frames must be joints 3 x 2; those of 'x' are "
            "joints 4 x 2");
}

TEST(SampleOfShapes, IsAFunctionOfTheSeedAndHasNoClipTwice) {
  const auto files = make_sample("video", 1);
  const auto again = make_sample("video", 1);
  ASSERT_EQ(files.size(), 454u);  // 450 clips, three tables and a README
  std::set<std::string> clips;
  for (std::size_t f = 0; f < files.size(); ++f) {
    EXPECT_EQ(files[f].text, again[f].text);
    if (!files[f].name.ends_with(".npy")) continue;
    clips.insert(files[f].text);
    const Tensor clip = parse_npy(std::as_bytes(std::span(files[f].text)));
    EXPECT_EQ(to_string(format_of(clip, files[f].name)), "pictures 24 x 24");
  }
  EXPECT_EQ(clips.size(), 450u);
  EXPECT_NE(make_sample("video", 2).front().text, files.front().text);
}

}  // namespace
}  // namespace regard::tasks
