// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/attention/explain.h"
#include "regard/dist/attention.h"

namespace regard::dist {

// What one rank sends in a call.
struct Traffic {
  std::int64_t bytes = 0;
  // Of these, what travels while the ranks that get it compute: all but the
  // first piece of what comes one piece after the other, or the first heads and
  // the last results.
  std::int64_t hidden_bytes = 0;
};

// A call over ranks.
struct SpreadCall {
  std::vector<Traffic> sent{};  // by rank
  double flops = 0;             // of all ranks
  std::int64_t bytes() const;   // of all ranks
  std::int64_t hidden_bytes() const;
};

// How attention over ranks would run.
struct SpreadExplanation {
  AttentionShape shape{};
  int ranks = 1;
  Way way = Way::kByHeads;
  std::string reason{};  // of the way
  SpreadCall forward{}, backward{};
};

// What attention_forward and attention_backward over so many ranks do with a
// call of these sizes: nothing is computed. Gradients are those of q, k and v.
// options.log_sum_exp is sent back if it is not null. Takes time in proportion
// to the queries. Throws InvalidArgument where these would.
SpreadExplanation explain(const AttentionShape& shape,
                          const AttentionOptions& options, int ranks);

// A few lines for a terminal, each ended.
std::string to_string(const SpreadExplanation& explanation);

}  // namespace regard::dist
