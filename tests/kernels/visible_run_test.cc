// SPDX-License-Identifier: Apache-2.0
#include "kernels/visible_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::kernels {
namespace {

// What visible_run means, key by key.
VisibleRun plain_run(const bool* flags, std::int64_t begin, std::int64_t end,
                     bool visible_when) {
  while (begin < end && flags[begin] != visible_when) ++begin;
  while (begin < end && flags[end - 1] != visible_when) --end;
  return {begin, end,
          std::count(flags + begin, flags + end, visible_when) == end - begin};
}

TEST(VisibleRun, FindsWhatARowShowsOnEveryTarget) {
  Random random(3);
  test::on_every_simd_target([&](const std::string&) {
    for (int n = 0; n < 4000; ++n) {
      const auto keys = static_cast<std::int64_t>(1 + random.below(300));
      // Exactly as many bytes as keys: a sanitizer sees every step beyond.
      const auto flags =
          std::make_unique<bool[]>(static_cast<std::size_t>(keys));
      const auto range = [&] {
        const auto a = static_cast<std::int64_t>(random.below(keys + 1));
        const auto b = static_cast<std::int64_t>(random.below(keys + 1));
        return std::pair(std::min(a, b), std::max(a, b));
      };
      const auto [from, to] = range();
      std::fill(flags.get() + from, flags.get() + to, true);
      if (n % 3 == 0) flags[random.below(keys)] ^= true;
      const auto [begin, end] = range();
      for (const bool visible_when : {true, false}) {
        const VisibleRun want =
            plain_run(flags.get(), begin, end, visible_when);
        const VisibleRun got =
            visible_run(flags.get(), begin, end, visible_when);
        ASSERT_EQ(got.end - got.begin, want.end - want.begin);
        ASSERT_EQ(got.whole, want.whole);
        if (want.begin < want.end) {
          ASSERT_EQ(got.begin, want.begin);
        }
      }
    }
  });
}

}  // namespace
}  // namespace regard::kernels
