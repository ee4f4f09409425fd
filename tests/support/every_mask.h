// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/mask_spec.h"

namespace regard::test {

struct NamedMask {
  std::string name;
  std::function<MaskSpec(const PairSizes&, Rng&)> build;
};

// Every kind of mask, every shape of a dense one, and some of them together.
inline std::vector<NamedMask> every_mask() {
  using Sizes = const PairSizes&;
  const auto dense = [](Sizes s, Rng& rng, int ones) {
    return random_bools(rng,
                        {ones & 1 ? 1 : s.batch, ones & 2 ? 1 : s.heads,
                         ones & 4 ? 1 : s.q_len, ones & 8 ? 1 : s.kv_len},
                        0.5);
  };
  std::vector<NamedMask> all{
      {"None", [](Sizes, Rng&) { return MaskSpec{}; }},
      {"Causal", [](Sizes, Rng&) { return causal_spec(); }},
      {"CausalTopLeft",
       [](Sizes, Rng&) { return causal_spec(mask::kTopLeft); }},
      {"CausalBeforeAllKeys",
       [](Sizes, Rng&) { return causal_spec(mask::at_offset(-20)); }},
      {"CausalAfterAllKeys",
       [](Sizes s, Rng&) { return causal_spec(mask::at_offset(s.kv_len)); }},
      {"WindowBothSides", [](Sizes, Rng&) { return window_spec(5, 3); }},
      {"WindowLeftOnly", [](Sizes, Rng&) { return window_spec(17, -1); }},
      {"WindowRightOnly", [](Sizes, Rng&) { return window_spec(-1, 50); }},
      {"WindowOfOne", [](Sizes, Rng&) { return window_spec(0, 0); }},
      {"CausalWindow",
       [](Sizes, Rng&) { return causal_spec() & window_spec(60, 0); }},
      {"Prefix", [](Sizes, Rng&) { return prefix_spec(11); }},
      {"PrefixOfZero", [](Sizes, Rng&) { return prefix_spec(0); }},
      {"Lengths",
       [](Sizes s, Rng& rng) {
         return lengths_spec(random_lengths(rng, s.batch, s.kv_len));
       }},
      {"LengthsOfZero",
       [](Sizes s, Rng&) {
         return lengths_spec(
             std::vector<std::int64_t>(static_cast<std::size_t>(s.batch)));
       }},
      {"LengthsOfQueriesToo",
       [](Sizes s, Rng& rng) {
         auto keys = random_lengths(rng, s.batch, s.kv_len);
         return lengths_spec(std::move(keys),
                             random_lengths(rng, s.batch, s.q_len));
       }},
      {"Documents", [](Sizes s, Rng& rng) { return random_documents(rng, s); }},
      {"DenseCausalDocumentsLengths",
       [=](Sizes s, Rng& rng) {
         return keep_spec(dense(s, rng, 1)) & causal_spec() &
                random_documents(rng, s) &
                lengths_spec(random_lengths(rng, s.batch, s.kv_len));
       }},
      {"KeepAndDrop", [=](Sizes s, Rng& rng) {
         return keep_spec(dense(s, rng, 0)) & drop_spec(dense(s, rng, 7));
       }}};
  for (int ones = 0; ones < 16; ++ones) {
    all.push_back(
        {"KeepBroadcast" + std::to_string(ones),
         [=](Sizes s, Rng& rng) { return keep_spec(dense(s, rng, ones)); }});
    all.push_back(
        {"DropBroadcast" + std::to_string(ones),
         [=](Sizes s, Rng& rng) { return drop_spec(dense(s, rng, ones)); }});
  }
  return all;
}

}  // namespace regard::test
