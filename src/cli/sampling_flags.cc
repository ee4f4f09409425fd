// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_flags.h"

#include <cstdint>

#include "cli/checks.h"
#include "cli/usage_error.h"

namespace regard::cli {

void add_sampling_flags(App& app, tasks::Sampling& sampling) {
  constexpr const char* kGroup = "Sampling";
  app.add_option("--temperature", sampling.temperature,
                 "Divides the logits: above 1 more varied, below 1 more "
                 "predictable; 0: greedy, always the most likely token")
      ->type_name("T")
      ->check(real_between(0, 1e6))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--top-k", sampling.top_k,
                 "Sample from the K most likely tokens only; 0: from all")
      ->type_name("K")
      ->check(whole_between(0, 1000000000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option(
         "--top-p", sampling.top_p,
         "Sample from the fewest tokens with a total probability of at least P")
      ->type_name("P")
      ->check(real_above(0, 1))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--seed", sampling.seed, "The same seed samples the same text")
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
}

void check_sampling_flags(const tasks::Sampling& sampling) {
  if (sampling.temperature == 0 && (sampling.top_k > 0 || sampling.top_p < 1)) {
    throw UsageError(
        "--top-k and --top-p choose what a --temperature above 0 samples from; "
        "without it decoding is greedy");
  }
}

}  // namespace regard::cli
