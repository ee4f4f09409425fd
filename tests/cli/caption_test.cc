// SPDX-License-Identifier: Apache-2.0
// regard caption --view and --export, as users meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/run_program.h"

namespace regard::test {
namespace {

using ::regard::testing::read_text;
using ::regard::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kShapes = REGARD_SOURCE_DIR "/examples/shapes.png";

TEST(CaptionPage, HoldsThePictureAndTheWords) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "shapes.html").string();
  const Ended ended = run_regard({"caption", kShapes, "--export", file});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "a red circle above two blue squares\npage -> " + file + "\n");
  EXPECT_THAT(read_text(file),
              AllOf(HasSubstr("\"pictures\":{\"rows\":4,\"columns\":4"),
                    HasSubstr("\"source\":\"shapes.png\""),
                    HasSubstr("regard-block-2-0-3")));
}

TEST(CaptionCommand, TakesFilesWhoseNamesAreNotUtf8) {
  const TemporaryFolder folder;
  const std::string file = folder.path().string() + "/\xff.png";
  std::filesystem::copy_file(kShapes, file);
  const Ended ended = run_regard({"caption", "--json", file});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("/\uFFFD.png\""),
                               HasSubstr("a red circle above two blue")));
}

TEST(CaptionPage, ShowsOnePictureAndRefusesWhatGoesWithNone) {
  const Ended two = run_regard({"caption", kShapes, kShapes, "--view"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("--view and --export show one picture"));
  const Ended json =
      run_regard({"caption", kShapes, "--json", "--export", "x.html"});
  EXPECT_EQ(json.code, 2);
  const Ended port = run_regard({"caption", kShapes, "--port", "0"});
  EXPECT_EQ(port.code, 2);
  EXPECT_THAT(port.err,
              HasSubstr("--host, --port and --no-open go with --view"));
  const Ended heads =
      run_regard({"caption", kShapes, "--view", "--heads", "0"});
  EXPECT_EQ(heads.code, 2);
  EXPECT_THAT(heads.err,
              HasSubstr("--layers and --heads choose what --export writes"));
}

}  // namespace
}  // namespace regard::test
