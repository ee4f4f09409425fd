// SPDX-License-Identifier: Apache-2.0
#include "dist/stream.h"

#include <cstddef>
#include <utility>

namespace regard::dist {
namespace {

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

// The positions of one range, as they come: those before `done` were used; the
// others of `now` wait for the rest of their unit, which is in `next`.
struct Stream {
  Part need;
  std::int64_t done;
  Window now, next;

  std::int64_t left() const { return now.end() - done; }

  // After `next` has come: which positions are ready.
  Part advance(std::int64_t unit) {
    const Part waiting{done - now.begin, now.end() - now.begin};
    for (std::size_t i = 0; i < now.blocks.size(); ++i) {
      copy_bytes(now.blocks[i].bytes(waiting),
                 next.blocks[i].bytes({0, waiting.size()}));
    }
    now = std::move(next);
    const std::int64_t end = now.end();
    const std::int64_t until = end == need.end ? end : end - end % unit;
    const Part ready{done, std::max(done, until)};
    done = ready.end;
    return ready;
  }
};

class Visit {
 public:
  Visit(Communicator& ranks, const Travel& travel)
      : ranks_(ranks), travel_(travel) {
    for (std::size_t n = 0; n < streams_.size(); ++n) {
      Stream& stream = streams_[n];
      stream.need = travel.needs[static_cast<std::size_t>(ranks.rank())][n];
      stream.done = stream.need.begin;
      stream.now = travel.own[0]->like(stream.done, stream.done);
    }
  }

  void run(FunctionRef<void(Window&, Part)> use) {
    begin_piece(0);
    for (std::size_t piece = 0; piece < travel_.pieces.size(); ++piece) {
      ranks_.finish();
      std::array<Part, 2> ready;
      for (std::size_t n = 0; n < ready.size(); ++n) {
        ready[n] = streams_[n].advance(travel_.unit);
      }
      if (piece + 1 < travel_.pieces.size()) begin_piece(piece + 1);
      for (std::size_t n = 0; n < ready.size(); ++n) {
        if (ready[n].size() > 0) use(streams_[n].now, ready[n]);
      }
    }
  }

 private:
  // Makes room for what is left and a piece, which begins to come.
  void begin_piece(std::size_t number) {
    const auto [owner, positions] = travel_.pieces[number];
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    for (std::size_t n = 0; n < streams_.size(); ++n) {
      Stream& stream = streams_[n];
      const std::int64_t wanted = intersection(positions, stream.need).size();
      const Part at{stream.left(), stream.left() + wanted};
      stream.next = stream.now.like(stream.done, stream.done + at.end);
      if (owner == ranks_.rank()) {
        give(number, n, at, sends);
        continue;
      }
      for (Block& block : stream.next.blocks) {
        receives.push_back({owner, block.bytes(at)});
      }
    }
    ranks_.start(sends, receives);
  }

  // An own piece, to all who want some of it for their range n; this rank's
  // `at` is for its own.
  void give(std::size_t number, std::size_t n, Part at,
            std::vector<Outgoing>& sends) {
    Window& window = *travel_.own[own_used_];
    if (n + 1 == streams_.size()) ++own_used_;
    for (int to = 0; to < ranks_.size(); ++to) {
      const Part part =
          intersection(travel_.pieces[number].positions,
                       travel_.needs[static_cast<std::size_t>(to)][n]);
      if (part.size() == 0) continue;
      const Part here{part.begin - window.begin, part.end - window.begin};
      for (std::size_t i = 0; i < window.blocks.size(); ++i) {
        const std::span<std::byte> bytes = window.blocks[i].bytes(here);
        if (to == ranks_.rank()) {
          copy_bytes(bytes, streams_[n].next.blocks[i].bytes(at));
        } else {
          sends.push_back({to, bytes});
        }
      }
    }
  }

  Communicator& ranks_;
  const Travel& travel_;
  std::array<Stream, 2> streams_{};
  std::size_t own_used_ = 0;
};

}  // namespace

Window Window::like(std::int64_t first, std::int64_t last) const {
  Window window{first, {}};
  for (const Block& block : blocks) {
    window.blocks.push_back(block.like(last - first));
  }
  return window;
}

Needs needs_of(Part a, Part b, std::int64_t unit) {
  Needs needs{a, b};
  for (Part& need : needs) {
    if (need.size() == 0) need = {0, 0};
    need.begin -= need.begin % unit;
  }
  if (needs[0].size() == 0 ||
      (needs[1].size() > 0 && needs[1].begin < needs[0].begin)) {
    std::swap(needs[0], needs[1]);
  }
  if (needs[1].size() > 0 && needs[1].begin <= needs[0].end) {
    needs[0] = joined(needs[0], needs[1]);
    needs[1] = {0, 0};
  }
  return needs;
}

std::vector<Travel::Piece> held_pieces(std::int64_t length, int ranks) {
  std::vector<Travel::Piece> pieces;
  for (int i = 0; i < ranks; ++i)
    pieces.push_back({i, part_of(length, i, ranks)});
  return pieces;
}

void visit(Communicator& ranks, const Travel& travel,
           FunctionRef<void(Window&, Part)> use) {
  Visit(ranks, travel).run(use);
}

}  // namespace regard::dist
