// SPDX-License-Identifier: Apache-2.0
// A program outside the project, which knows the installed package alone.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "regard/regard.h"

int main() {
  // Equal keys share the attention, so the output is the mean of the values.
  const regard::Tensor q({1, 0}, {1, 1, 1, 2});
  const regard::Tensor k({1, 1, 1, 1}, {1, 1, 2, 2});
  const regard::Tensor v({2, 4, 6, 8}, {1, 1, 2, 2});
  regard::Tensor out({1, 1, 1, 2});
  regard::attention_forward(q.view<float, 4>(), k.view<float, 4>(),
                            v.view<float, 4>(), out.view<float, 4>());
  const auto values = out.values<float>();
  std::printf("%s %g %g\n", regard::version(), values[0], values[1]);
  const bool right = std::abs(values[0] - 4) < 1e-5f &&
                     std::abs(values[1] - 6) < 1e-5f &&
                     std::strcmp(regard::version(), EXPECTED_VERSION) == 0;
  return right ? 0 : 1;
}
