// SPDX-License-Identifier: Apache-2.0
// Positions on their way to the rank that works on them, and results back.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dist/block.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

// A sequence is worked on in twice as many chunks as there are ranks: each
// works on an early and a late one, so that under a causal mask all have as
// much to do. Each holds part_of(length).
struct Chunks {
  // Cut at multiples of `unit`.
  Chunks(std::int64_t positions, int ranks, std::int64_t unit);

  std::int64_t length;
  std::vector<Part> parts;  // in the order of the sequence
  int ranks() const { return static_cast<int>(parts.size()) / 2; }
  int worker(std::size_t chunk) const;
  // The two chunks of a rank.
  std::array<std::size_t, 2> numbers(int rank) const;
  std::array<Part, 2> of(int rank) const;
};

// The chunks that this rank works on, of what it holds: in place where a chunk
// is its own.
struct Fetched {
  Block held;
  std::array<Block, 2> worked_on;
};
// Room for them; and the messages that bring them, which nobody waits for yet.
Fetched room_for(Communicator& ranks, const Chunks& chunks,
                 const ConstUntypedView<4>& held);
void begin_fetch(Communicator& ranks, const Chunks& chunks, Fetched& fetched);

// Room for results, in place where a chunk is of what this rank holds.
std::array<Block, 2> room_for_results(Communicator& ranks, const Chunks& chunks,
                                      const UntypedView<4>& held);
// Results to those who hold them, in two steps, so that several travel
// together: begins, and what has come after finish() is put where it is wanted.
class GivenBack {
 public:
  GivenBack(Communicator& ranks, const Chunks& chunks,
            std::array<Block, 2>& worked_on, const UntypedView<4>& held);
  void put();

 private:
  Block own_;
  UntypedView<4> held_;
};

}  // namespace regard::dist
