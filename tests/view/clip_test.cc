// SPDX-License-Identifier: Apache-2.0
#include "regard/view/clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/pictures/picture.h"
#include "regard/tasks/clips.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

pictures::Picture image_of(const Trace& trace, std::size_t frame) {
  return pictures::decode_picture(
      std::as_bytes(std::span(trace.axes()[0].pictures->images.at(frame))),
      "image");
}

// Every row of every head adds up to 1.
void expect_shares(const Section& section) {
  const auto columns = static_cast<std::size_t>(section.columns());
  for (std::int64_t layer = 0; layer < section.layers(); ++layer) {
    for (std::int64_t head = 0; head < section.config().heads; ++head) {
      const auto codes = section.codes(layer, head);
      for (std::size_t row = 0; row < codes.size(); row += columns) {
        double sum = 0;
        for (const std::uint16_t code : codes.subspan(row, columns)) {
          sum += code / 65535.0;
        }
        EXPECT_NEAR(sum, 1, 2e-3);
      }
    }
  }
}

TEST(Clip, OfPicturesHasItsFramesAndTheirPatches) {
  const auto model =
      tasks::VideoClassifier::load(REGARD_SOURCE_DIR "/models/clips");
  const Tensor clip =
      tasks::load_clip(REGARD_SOURCE_DIR "/examples/shapes/orbits.npy");
  const Trace trace = trace_clip(model, clip, {.name = "orbits.npy"});
  EXPECT_EQ(trace.source, "orbits.npy");
  EXPECT_EQ(trace.target, "orbits");
  ASSERT_EQ(trace.sections().size(), 2u);
  EXPECT_EQ(trace.section(0).config().name, "pooling");
  EXPECT_EQ(trace.section(0).rows(), 1);
  EXPECT_EQ(trace.section(1).config().name, "encoder");
  EXPECT_EQ(trace.section(1).layers(), 2);
  expect_shares(trace.section(0));
  expect_shares(trace.section(1));
  const Axis& axis = trace.axes()[0];
  ASSERT_TRUE(axis.pictures.has_value());
  EXPECT_EQ(axis.pictures->rows, 3);
  EXPECT_EQ(axis.pictures->columns, 3);
  EXPECT_THAT(axis.pictures->images,
              SizeIs(static_cast<std::size_t>(clip.shape()[0])));
  EXPECT_EQ(axis.tokens[0], "1: 1,1");
  EXPECT_EQ(axis.tokens[9 + 5], "2: 2,3");
  const pictures::Picture second = image_of(trace, 1);
  // Grey from the darkest to the brightest of the clip.
  const auto pixels = clip.values<std::uint8_t>();
  const int least = *std::min_element(pixels.begin(), pixels.end());
  const int most = *std::max_element(pixels.begin(), pixels.end());
  for (std::size_t i = 0; i < 24 * 24; ++i) {
    EXPECT_EQ(second.rgb[3 * i],
              (pixels[24 * 24 + i] - least) * 255 / (most - least));
  }
}

TEST(Clip, ShowsLargerPicturesOfTheSameFrames) {
  const auto model =
      tasks::VideoClassifier::load(REGARD_SOURCE_DIR "/models/clips");
  const Tensor clip =
      tasks::load_clip(REGARD_SOURCE_DIR "/examples/shapes/left.npy");
  const std::int64_t frames = clip.shape()[0];
  const Tensor large(DType::kUInt8, {frames, 48, 64, 3});
  const Trace trace = trace_clip(model, clip, {.shown = &large});
  EXPECT_EQ(image_of(trace, 0).width, 64);
  EXPECT_EQ(image_of(trace, 0).height, 48);
  const Tensor fewer(DType::kUInt8, {frames - 1, 48, 64, 3});
  EXPECT_THAT([&] { trace_clip(model, clip, {.shown = &fewer}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "frames of the clip; it has " + std::to_string(frames - 1))));
}

// A model that learnt nothing.
tasks::VideoClassifier untrained(tasks::ClipKind kind, Shape frame,
                                 nn::Pooling pooling) {
  tasks::VideoConfig config;
  config.labels = {"no", "yes"};
  config.format = {kind, std::move(frame)};
  config.frames = 4;
  config.encoder.model_dim = 16;
  config.encoder.heads = 2;
  config.encoder.layers = 1;
  config.encoder.feed_forward_dim = 16;
  config.encoder.pooling = pooling;
  config.set_sizes();
  tasks::VideoData data;
  Shape shape = config.format.frame;
  shape.insert(shape.begin(), 4);
  for (std::int32_t label : {0, 1}) {
    data.clips.emplace_back(shape);
    data.labels.push_back(label);
  }
  return {config, tasks::make_video_task(config, data, data, 1).parameters()};
}

Tensor random_clip(Shape shape) {
  Random random(3);
  Tensor clip(std::move(shape));
  for (float& value : clip.values<float>()) value = random.normal();
  return clip;
}

TEST(Clip, OfJointsDrawsThemAndNamesTheFramesThatWereRead) {
  const auto model =
      untrained(tasks::ClipKind::kJoints, {3, 2}, nn::Pooling::kAttention);
  Tensor clip = random_clip({7, 3, 2});
  // The first joint of the first frame is left of and above all others.
  clip.values<float>()[0] = -50;
  clip.values<float>()[1] = -50;
  const Trace trace = trace_clip(model, clip);
  EXPECT_THAT(trace.axes()[0].tokens, ElementsAre("1", "3", "5", "7"));
  EXPECT_THAT(trace.axes()[0].pictures->images, SizeIs(4));
  EXPECT_EQ(trace.section(0).columns(), 4);
  const pictures::Picture first = image_of(trace, 0);
  EXPECT_EQ(first.at(6, 6)[0], 29);  // the dot
  EXPECT_EQ(image_of(trace, 1).at(6, 6)[0], 255);
}

TEST(Clip, OfFeaturesHasShadesAndNoPoolingWhereThereIsNone) {
  const auto model =
      untrained(tasks::ClipKind::kFeatures, {5}, nn::Pooling::kMean);
  const Trace trace = trace_clip(model, random_clip({3, 5}));
  ASSERT_EQ(trace.sections().size(), 1u);
  EXPECT_EQ(trace.section(0).config().name, "encoder");
  EXPECT_THAT(trace.axes()[0].tokens, ElementsAre("1", "2", "3"));
  expect_shares(trace.section(0));
}

}  // namespace
}  // namespace regard::view
