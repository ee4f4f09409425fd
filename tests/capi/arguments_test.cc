// SPDX-License-Identifier: Apache-2.0
#include "capi/arguments.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "io/files.h"
#include "regard/core/error.h"

namespace regard::capi {
namespace {

// A struct that got one more member after its first version.
struct Grown {
  std::size_t size;
  std::int64_t old;
  std::int64_t newer;
};

}  // namespace

template <>
inline constexpr std::size_t kFirstSize<Grown> = offsetof(Grown, newer);

namespace {

TEST(ReadStruct, TakesThatOfAProgramWithAnOlderHeader) {
  Grown given{.size = offsetof(Grown, newer), .old = 5, .newer = 7};
  const Grown read = read_struct(&given, "call", "options");
  EXPECT_EQ(read.old, 5);
  EXPECT_EQ(read.newer, 0) << "what lies behind an older struct is not of it";
  given.size = sizeof(Grown);
  EXPECT_EQ(read_struct(&given, "call", "options").newer, 7);
  given.size = offsetof(Grown, newer) - 1;
  EXPECT_EQ(regard::testing::text_of<InvalidArgument>(
                [&] { read_struct(&given, "call", "options"); }),
            "call: options.size must be the sizeof of its struct, at least 16; "
            "it is 15");
}

// They never change: programs of then are out there.
TEST(ReadStruct, KnowsTheSizesOfTheFirstVersion) {
  if (sizeof(void*) != 8) GTEST_SKIP() << "the numbers are those of 64 bits";
  EXPECT_EQ(kFirstSize<regard_tensor>, 88u);
  EXPECT_EQ(kFirstSize<regard_attention_options>, 136u);
  EXPECT_EQ(kFirstSize<regard_backward_inputs>, 56u);
  EXPECT_EQ(kFirstSize<regard_gradients>, 64u);
  EXPECT_EQ(kFirstSize<regard_kv_cache_options>, 88u);
  EXPECT_EQ(kFirstSize<regard_mha_config>, 96u);
  EXPECT_EQ(kFirstSize<regard_mha_options>, 72u);
}

}  // namespace
}  // namespace regard::capi
