// SPDX-License-Identifier: Apache-2.0
#include "regard/pictures/picture.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>

#include "io/files.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::text_of;

bool has_png() { return known_formats().find("PNG") != std::string::npos; }

// libpng itself ends at a million pixels a side unless it is told otherwise.
TEST(EncodePng, WritesPicturesOfEverySize) {
  if (!has_png()) GTEST_SKIP() << "this build has no PNG";
  Picture picture(1000001, 1);
  for (std::size_t i = 0; i < picture.rgb.size(); ++i) {
    picture.rgb[i] = static_cast<std::uint8_t>(i * 7);
  }
  const std::string png = encode_png(picture);
  const Picture again =
      decode_picture(std::as_bytes(std::span(png.data(), png.size())), "it");
  EXPECT_EQ(again.width, picture.width);
  EXPECT_EQ(again.height, picture.height);
  EXPECT_EQ(again.rgb, picture.rgb);
}

TEST(Picture, IsRefusedWhereItsPixelsAreNotThere) {
  const auto refused = [](const Picture& picture) {
    return text_of<InvalidArgument>([&] { encode_png(picture); });
  };
  EXPECT_EQ(refused({}), "encode_png: a picture must have pixels; it is 0 x 0");
  Picture picture(4, 3);
  picture.height = 4;
  const std::string rule = "rgb must have 3 values for each of 4 x 4 pixels; ";
  EXPECT_EQ(refused(picture), "encode_png: " + rule + "it has 36");
  EXPECT_EQ(text_of<InvalidArgument>([&] { resize(picture, 2, 2); }),
            "resize: " + rule + "it has 36");
  EXPECT_EQ(text_of<InvalidArgument>([&] { resize_and_crop(picture, 2); }),
            "resize_and_crop: " + rule + "it has 36");
  picture.rgb.resize(49);
  EXPECT_EQ(refused(picture), "encode_png: " + rule + "it has 49");
  // The product of the two sides is 12 in 64 bits.
  picture.rgb.resize(36);
  picture.width = (std::int64_t{1} << 62) + 3;
  picture.height = 4;
  EXPECT_NE(refused(picture), "nothing was thrown");
}

// A pipe that nobody writes to would be waited for.
TEST(ReadPicture, RefusesWhatMayNeverEnd) {
  const TemporaryFolder folder;
  const std::string pipe = (folder / "pipe.png").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(
      text_of<IoError>([&] { read_picture(pipe); }),
      "read_picture: cannot read '" + pipe + "': it is not a regular file");
}

}  // namespace
}  // namespace regard::pictures
