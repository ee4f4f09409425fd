// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/picture_features.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "io/files.h"
#include "regard/core/error.h"

namespace regard::tasks {
namespace {

// The names come from a table that others may have written.
TEST(FeatureSet, RefusesAPictureThatMayNeverEnd) {
  const regard::testing::TemporaryFolder folder;
  const std::string name = "pipe.png";
  const std::string path = (folder / name).string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const FeatureReader reader(PictureFeatures{.side = 48, .patch = 12});
  EXPECT_EQ(regard::testing::text_of<IoError>([&] {
              FeatureSet::make(reader, folder.path(), {&name, 1}, "");
            }),
            "FeatureSet: cannot read '" + path + "': it is not a regular file");
}

}  // namespace
}  // namespace regard::tasks
