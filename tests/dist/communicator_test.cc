// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

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

// Rank a sends b + 1 numbers to rank b; rank 0 gets none from anyone but one.
TEST(Communicator, AllToAllTakesAnySizes) {
  constexpr int kRanks = 4;
  const auto count = [](int from, int to) {
    return static_cast<std::size_t>(to == 0 && from != 2 ? 0 : from + 2 * to);
  };
  LocalRanks::run(kRanks, [&](Communicator& ranks) {
    std::array<std::vector<int>, kRanks> out, in;
    std::vector<std::span<const std::byte>> sends;
    std::vector<std::span<std::byte>> receives;
    std::int64_t sent = 0;
    for (int i = 0; i < kRanks; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out[at].resize(count(ranks.rank(), i));
      std::iota(out[at].begin(), out[at].end(), 1000 * ranks.rank() + 100 * i);
      in[at].resize(count(i, ranks.rank()));
      sends.push_back(std::as_bytes(std::span(out[at])));
      receives.push_back(std::as_writable_bytes(std::span(in[at])));
      if (i != ranks.rank()) sent += std::ssize(sends.back());
    }
    all_to_all(ranks, sends, receives);
    for (int i = 0; i < kRanks; ++i) {
      const std::vector<int>& got = in[static_cast<std::size_t>(i)];
      for (std::size_t n = 0; n < got.size(); ++n) {
        EXPECT_EQ(got[n], 1000 * i + 100 * ranks.rank() + static_cast<int>(n));
      }
    }
    EXPECT_EQ(ranks.bytes_sent(), sent);
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
