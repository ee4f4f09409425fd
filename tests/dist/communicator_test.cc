// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "regard/core/error.h"
#include "support/local_ranks.h"

namespace regard::dist {
namespace {

using regard::testing::LocalRanks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Communicator, BroadcastReachesEveryRank) {
  LocalRanks::run(5, [](Communicator& ranks) {
    EXPECT_EQ(broadcast_value(ranks, 3, 100 + ranks.rank()), 103);
  });
}

TEST(Communicator, AllGatherIsByRank) {
  LocalRanks::run(4, [](Communicator& ranks) {
    EXPECT_EQ(gather_values(ranks, 10 * ranks.rank()),
              (std::vector<int>{0, 10, 20, 30}));
  });
}

TEST(Communicator, OneProcessIsAlone) {
  Communicator& alone = single_process();
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(broadcast_value(alone, 0, 7), 7);
  EXPECT_EQ(gather_values(alone, 7), std::vector<int>{7});
  EXPECT_EQ(alone.bytes_sent(), 0);
}

TEST(Communicator, RefusesRanksThatAreNotThere) {
  std::array<std::byte, 4> bytes{};
  const Outgoing send{1, bytes};
  EXPECT_THAT(
      [&] {
        single_process().start({&send, 1}, {});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("one of 1 ranks")));
}

}  // namespace
}  // namespace regard::dist
