// SPDX-License-Identifier: Apache-2.0
#include "dist/chunks.h"

#include <algorithm>
#include <cstring>

#include "dist/stream.h"

namespace regard::dist {
namespace {

enum class Way { kToWorker, kToHolder };

// Messages between two ranks go in the order of the chunks.
void exchange(Communicator& ranks, const Chunks& chunks, Block& held,
              std::array<Block, 2>& worked_on, Way way) {
  const int rank = ranks.rank();
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  const auto move = [&](int holder, int worker, std::size_t n) {
    const Part part = part_of(chunks.length, holder, chunks.ranks());
    const Part chunk = chunks.of(worker)[n];
    const Part both = intersection(part, chunk);
    if (both.size() == 0) return;
    const Part in_held{both.begin - part.begin, both.end - part.begin};
    const Part in_chunk{both.begin - chunk.begin, both.end - chunk.begin};
    if (holder == worker) {
      auto from = held.bytes(in_held), to = worked_on[n].bytes(in_chunk);
      if (way == Way::kToHolder) std::swap(from, to);
      if (from.data() == to.data()) return;  // in place
      std::memcpy(to.data(), from.data(), from.size());
    } else if ((way == Way::kToWorker) == (holder == rank)) {
      sends.push_back(holder == rank
                          ? Outgoing{worker, held.bytes(in_held)}
                          : Outgoing{holder, worked_on[n].bytes(in_chunk)});
    } else {
      receives.push_back(holder == rank
                             ? Incoming{worker, held.bytes(in_held)}
                             : Incoming{holder, worked_on[n].bytes(in_chunk)});
    }
  };
  for (int other = 0; other < chunks.ranks(); ++other) {
    for (std::size_t n = 0; n < 2; ++n) {
      move(rank, other, n);
      if (other != rank) move(other, rank, n);
    }
  }
  ranks.start(sends, receives);
}

// Where this rank works on its chunks of `held`.
std::array<Block, 2> places(Communicator& ranks, const Chunks& chunks,
                            const Block& held) {
  const Part own = part_of(chunks.length, ranks.rank(), chunks.ranks());
  std::array<Block, 2> places;
  for (std::size_t n = 0; n < 2; ++n) {
    const Part chunk = chunks.of(ranks.rank())[n];
    const bool is_own = own.begin <= chunk.begin && chunk.end <= own.end;
    places[n] =
        is_own ? held.part({chunk.begin - own.begin, chunk.end - own.begin})
               : held.like(chunk.size());
  }
  return places;
}

// To write to: in place, or room for as much.
Block writable_block(const UntypedView<4>& view) {
  if (lies_as_block(view)) return Block(view);
  return Block(view.dtype, view.shape[2], view.shape[0], view.shape[1],
               view.shape[3]);
}

}  // namespace

Chunks::Chunks(std::int64_t positions, int ranks, std::int64_t unit)
    : length(positions) {
  const std::int64_t units = (length + unit - 1) / unit;
  for (int i = 0; i < 2 * ranks; ++i) {
    const Part part = part_of(units, i, 2 * ranks);
    parts.push_back({std::min(part.begin * unit, length),
                     std::min(part.end * unit, length)});
  }
}

int Chunks::worker(std::size_t chunk) const {
  const int c = static_cast<int>(chunk);
  return std::min(c, 2 * ranks() - 1 - c);
}

std::array<std::size_t, 2> Chunks::numbers(int rank) const {
  const auto early = static_cast<std::size_t>(rank);
  return {early, parts.size() - 1 - early};
}

std::array<Part, 2> Chunks::of(int rank) const {
  const auto [early, late] = numbers(rank);
  return {parts[early], parts[late]};
}

Fetched room_for(Communicator& ranks, const Chunks& chunks,
                 const ConstUntypedView<4>& held) {
  const Block own = packed(held);
  return {own, places(ranks, chunks, own)};
}

void begin_fetch(Communicator& ranks, const Chunks& chunks, Fetched& fetched) {
  exchange(ranks, chunks, fetched.held, fetched.worked_on, Way::kToWorker);
}

std::array<Block, 2> room_for_results(Communicator& ranks, const Chunks& chunks,
                                      const UntypedView<4>& held) {
  return places(ranks, chunks, writable_block(held));
}

GivenBack::GivenBack(Communicator& ranks, const Chunks& chunks,
                     std::array<Block, 2>& worked_on,
                     const UntypedView<4>& held)
    : own_(writable_block(held)), held_(held) {
  exchange(ranks, chunks, own_, worked_on, Way::kToHolder);
}

void GivenBack::put() {
  if (!lies_as_block(held_)) copy(own_.const_view(), held_);
}

}  // namespace regard::dist
