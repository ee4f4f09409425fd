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
    give();
    receive(travel_.pieces[0]);
    for (std::size_t piece = 0; piece < travel_.pieces.size(); ++piece) {
      ranks_.finish_receives();
      std::array<Part, 2> ready;
      for (std::size_t n = 0; n < ready.size(); ++n) {
        ready[n] = streams_[n].advance(travel_.unit);
      }
      if (piece + 1 < travel_.pieces.size()) {
        receive(travel_.pieces[piece + 1]);
      }
      for (std::size_t n = 0; n < ready.size(); ++n) {
        if (ready[n].size() > 0) use(streams_[n].now, ready[n]);
      }
    }
  }

 private:
  // Some positions of an own piece.
  Window in_place(Part positions) const {
    const Window& window = **std::find_if(
        travel_.own.begin(), travel_.own.end(), [&](const Window* all) {
          return all->begin <= positions.begin && positions.end <= all->end();
        });
    Window part{positions.begin, {}};
    for (const Block& block : window.blocks) {
      part.blocks.push_back(block.part(
          {positions.begin - window.begin, positions.end - window.begin}));
    }
    return part;
  }

  // All own pieces, to all who want some of them, in the order in which they
  // are received.
  void give() {
    std::vector<Outgoing> sends;
    for (const auto& [owner, positions] : travel_.pieces) {
      if (owner != ranks_.rank()) continue;
      for (std::size_t n = 0; n < streams_.size(); ++n) {
        for (int to = 0; to < ranks_.size(); ++to) {
          const Part part = intersection(
              positions, travel_.needs[static_cast<std::size_t>(to)][n]);
          if (to == owner || part.size() == 0) continue;
          for (Block& block : in_place(part).blocks) {
            sends.push_back({to, block.bytes()});
          }
        }
      }
    }
    ranks_.start(sends, {});
  }

  // Makes room for what is left and a piece, which begins to come.
  void receive(const Travel::Piece& piece) {
    std::vector<Incoming> receives;
    for (Stream& stream : streams_) {
      const Part part = intersection(piece.positions, stream.need);
      const Part at{stream.left(), stream.left() + part.size()};
      const bool is_own = piece.owner == ranks_.rank() && part.size() > 0;
      if (is_own && at.begin == 0) {
        stream.next = in_place(part);
        continue;
      }
      stream.next = stream.now.like(stream.done, stream.done + at.end);
      if (part.size() == 0) continue;
      for (std::size_t i = 0; i < stream.next.blocks.size(); ++i) {
        const std::span<std::byte> to = stream.next.blocks[i].bytes(at);
        if (is_own) {
          copy_bytes(in_place(part).blocks[i].bytes(), to);
        } else {
          receives.push_back({piece.owner, to});
        }
      }
    }
    ranks_.start({}, receives);
  }

  Communicator& ranks_;
  const Travel& travel_;
  std::array<Stream, 2> streams_{};
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

void add_pieces(std::vector<Travel::Piece>& pieces, int owner, Part positions,
                std::int64_t unit) {
  constexpr std::int64_t kPositions = 4096;
  const std::int64_t step = (kPositions + unit - 1) / unit * unit;
  for (std::int64_t at = positions.begin; at < positions.end;) {
    const std::int64_t end = std::min(positions.end, (at / step + 1) * step);
    pieces.push_back({owner, {at, end}});
    at = end;
  }
}

std::vector<Travel::Piece> held_pieces(std::int64_t length, int ranks,
                                       std::int64_t unit) {
  std::vector<Travel::Piece> pieces;
  for (int i = 0; i < ranks; ++i) {
    add_pieces(pieces, i, part_of(length, i, ranks), unit);
  }
  return pieces;
}

void visit(Communicator& ranks, const Travel& travel,
           FunctionRef<void(Window&, Part)> use) {
  if (travel.pieces.empty()) return ranks.finish_receives();
  Visit(ranks, travel).run(use);
}

}  // namespace regard::dist
