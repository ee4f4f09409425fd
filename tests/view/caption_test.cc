// SPDX-License-Identifier: Apache-2.0
#include "regard/view/caption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "regard/pictures/picture.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::filesystem::path kShapes = REGARD_SOURCE_DIR "/examples/shapes.png";

tasks::Captioner shapes() {
  return tasks::Captioner::load(REGARD_SOURCE_DIR "/models/shapes");
}

TEST(Caption, IsTheOneThatTheCaptionerGivesWithWhereEachWordLooked) {
  const tasks::Captioner model = shapes();
  const tasks::Caption said =
      model.caption({&kShapes, 1}, {.align = true}).front();
  const Trace trace = trace_caption(model, kShapes);
  EXPECT_EQ(trace.source, "shapes.png");
  EXPECT_EQ(trace.target, said.text);
  EXPECT_EQ(trace.start().section, 2);
  ASSERT_EQ(trace.axes().size(), 3u);
  std::vector<std::string> pieces = said.pieces;
  pieces.push_back("</s>");
  EXPECT_EQ(trace.axes()[1].tokens, pieces);
  EXPECT_EQ(trace.axes()[2].tokens.front(), "<s>");

  // The mean of the heads of the last layer, which caption() has from its
  // search.
  const Section& cross = trace.section(2);
  EXPECT_EQ(cross.config().name, "cross");
  const std::int64_t heads = cross.config().heads;
  for (std::size_t word = 0; word < said.pieces.size(); ++word) {
    for (std::size_t place = 0; place < 16; ++place) {
      double sum = 0;
      for (std::int64_t head = 0; head < heads; ++head) {
        sum += cross.codes(cross.layers() - 1, head)[word * 16 + place];
      }
      EXPECT_NEAR(sum / 65535 / static_cast<double>(heads),
                  said.alignment[word][place], 2e-5);
    }
  }
}

// The picture is a red circle at the top, in column 3 of 4.
TEST(Caption, OfARedCircleLooksAtTheRedCircle) {
  const Trace trace = trace_caption(shapes(), kShapes);
  const auto& words = trace.axes()[1].tokens;
  const auto& places = trace.axes()[0].tokens;
  const auto red = std::find(words.begin(), words.end(), "red");
  ASSERT_NE(red, words.end());
  const Section& cross = trace.section(2);
  std::vector<double> seen(places.size());
  for (std::int64_t head = 0; head < cross.config().heads; ++head) {
    const auto codes = cross.codes(cross.layers() - 1, head);
    for (std::size_t k = 0; k < seen.size(); ++k) {
      seen[k] +=
          codes[static_cast<std::size_t>(red - words.begin()) * seen.size() +
                k];
    }
  }
  const auto most = std::max_element(seen.begin(), seen.end());
  EXPECT_EQ(places[static_cast<std::size_t>(most - seen.begin())], "1,3");
}

TEST(Caption, HoldsThePartOfThePictureThatTheModelSees) {
  const Trace trace = trace_caption(shapes(), kShapes);
  ASSERT_TRUE(trace.axes()[0].pictures.has_value());
  const AxisPictures& held = *trace.axes()[0].pictures;
  EXPECT_EQ(held.rows, 4);
  EXPECT_EQ(held.columns, 4);
  ASSERT_EQ(held.images.size(), 1u);
  EXPECT_GT(trace.bytes(), held.images[0].size());
  const pictures::Picture shown = pictures::decode_picture(
      std::as_bytes(std::span(held.images[0])), "held");
  EXPECT_EQ(shown.rgb, pictures::read_picture(kShapes).rgb);
  const auto header = nlohmann::json::parse(header_json(trace, ""));
  EXPECT_EQ(header["axes"][0]["pictures"]["rows"], 4);
  EXPECT_THAT(header["axes"][0]["pictures"]["images"][0].get<std::string>(),
              ::testing::StartsWith("iVBORw0KGgo"));
  EXPECT_FALSE(header["axes"][1].contains("pictures"));
}

TEST(Caption, OfAPictureThatIsNoneIsRefused) {
  EXPECT_THAT([] { trace_caption(shapes(), "not-there.png"); },
              ThrowsMessage<IoError>(HasSubstr("not-there.png")));
}

TEST(Trace, RefusesPicturesWithoutATokenForEachPlace) {
  Trace trace;
  EXPECT_THAT(
      [&] {
        trace.add_axis({"picture", {"1,1"}, AxisPictures{1, 2, {"x"}}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("'picture' must have a token for each of 1 x 1 x 2 places; "
                    "it has 1")));
}

}  // namespace
}  // namespace regard::view
