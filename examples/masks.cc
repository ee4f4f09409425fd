// SPDX-License-Identifier: Apache-2.0
// Masks are built from named parts and joined by `&`: a pair is visible when
// every part says so. Draws some, and asks how much work they save.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "regard/regard.h"

namespace {

namespace mask = regard::mask;
constexpr std::int64_t kTokens = 10;

// One line a query: '#' where it sees the key. Returns how many pairs it sees.
std::int64_t draw(const char* name, const regard::Mask& which) {
  const regard::Tensor pairs =
      mask::visible_pairs(which, {1, 1, kTokens, kTokens});
  std::int64_t visible = 0;
  std::printf("%s\n", name);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j) {
      const bool sees = pairs.view<bool, 4>()(0, 0, i, j);
      std::printf("%s", sees ? " #" : " .");
      visible += sees;
    }
    std::printf("\n");
  }
  std::printf("\n");
  return visible;
}

}  // namespace

int main() {
  const std::vector<std::int32_t> document{0, 0, 0, 0, 1, 1, 1, 2, 2, 2};
  const std::vector<std::int64_t> real{8};
  bool right = true;
  right &= 55 == draw("causal()", mask::causal());
  right &= 27 ==
           draw("causal() & window(2, 0)", mask::causal() & mask::window(2, 0));
  right &= 61 == draw("prefix(4)", mask::prefix(4));
  right &= 22 == draw("causal() & documents({0,0,0,0,1,1,1,2,2,2})",
                      mask::causal() & mask::documents(document));
  right &= 52 == draw("causal() & lengths({8})",
                      mask::causal() & mask::lengths(real));

  // A matrix of your own says by its name what `true` means. Here every second
  // key is hidden from all queries: a mask of one row.
  regard::Tensor hidden(regard::DType::kBool, {1, 1, 1, kTokens});
  for (std::int64_t j = 1; j < kTokens; j += 2) {
    hidden.values<bool>()[j] = true;
  }
  right &= 30 == draw("causal() & drop(every second key)",
                      mask::causal() & mask::drop(hidden.view<bool, 4>()));

  // Blocks that nobody sees cost nothing, whatever the mask is made of.
  const regard::AttentionShape shape{.heads = 8,
                                     .kv_heads = 8,
                                     .q_len = 4096,
                                     .kv_len = 4096,
                                     .d_k = 64,
                                     .d_v = 64};
  const double all = regard::explain(shape).flops;
  const double some =
      regard::explain(shape, {.mask = mask::causal() & mask::window(511, 0)})
          .flops;
  std::printf("4096 tokens, causal in a window of 512: %.0f %% of the work\n",
              100 * some / all);
  return right ? 0 : 1;
}
