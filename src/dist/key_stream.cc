// SPDX-License-Identifier: Apache-2.0
#include "dist/key_stream.h"

#include <cstddef>
#include <span>
#include <utility>

#include "kernels/attention_forward.h"

namespace regard::dist {
namespace {

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

// The keys of one range, as they come: those before `done` were used; the
// others of `now` wait for the rest of their split, which is in `next`.
struct Stream {
  Part need;
  std::int64_t done;
  KeyWindow now, next;

  std::int64_t left() const { return now.end() - done; }

  // After `next` has come: which keys are ready.
  Part advance() {
    const Part waiting{done - now.begin, now.end() - now.begin};
    const Part at{0, waiting.size()};
    copy_bytes(now.k.bytes(waiting), next.k.bytes(at));
    copy_bytes(now.v.bytes(waiting), next.v.bytes(at));
    now = std::move(next);
    const std::int64_t end = now.end();
    const std::int64_t until =
        end == need.end ? end : end - end % kernels::kSplitKeys;
    const Part ready{done, std::max(done, until)};
    done = ready.end;
    return ready;
  }
};

class KeyTraffic {
 public:
  KeyTraffic(Communicator& ranks, const OwnKeys& keys,
             const std::vector<KeyNeeds>& needs)
      : ranks_(ranks), keys_(keys), needs_(needs) {
    for (std::size_t n = 0; n < streams_.size(); ++n) {
      Stream& stream = streams_[n];
      stream.need = needs[static_cast<std::size_t>(ranks.rank())][n];
      stream.done = stream.now.begin = stream.need.begin;
    }
  }

  void run(FunctionRef<void(KeyWindow&, Part)> use) {
    begin_pieces(0);
    for (int from = 0; from < ranks_.size(); ++from) {
      ranks_.finish();
      std::array<Part, 2> ready;
      for (std::size_t n = 0; n < ready.size(); ++n) {
        ready[n] = streams_[n].advance();
      }
      if (from + 1 < ranks_.size()) begin_pieces(from + 1);
      for (std::size_t n = 0; n < ready.size(); ++n) {
        if (ready[n].size() > 0) use(streams_[n].now, ready[n]);
      }
    }
  }

 private:
  // What rank `to` gets of the keys of rank `from`, for its range n.
  Part piece(int from, int to, std::size_t n) const {
    return intersection(part_of(keys_.length, from, ranks_.size()),
                        needs_[static_cast<std::size_t>(to)][n]);
  }

  // Makes room for what is left and the keys of `from`, which begin to come.
  void begin_pieces(int from) {
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    for (std::size_t n = 0; n < streams_.size(); ++n) {
      Stream& stream = streams_[n];
      const std::int64_t own = piece(from, ranks_.rank(), n).size();
      const Part at{stream.left(), stream.left() + own};
      stream.next = {stream.done, keys_.k.like(at.end), keys_.v.like(at.end)};
      if (from != ranks_.rank()) {
        receives.push_back({from, stream.next.k.bytes(at)});
        receives.push_back({from, stream.next.v.bytes(at)});
        continue;
      }
      const std::int64_t first =
          part_of(keys_.length, from, ranks_.size()).begin;
      for (int to = 0; to < ranks_.size(); ++to) {
        const Part part = piece(from, to, n);
        if (part.size() == 0) continue;
        const Part here{part.begin - first, part.end - first};
        if (to != from) {
          sends.push_back({to, keys_.k.bytes(here)});
          sends.push_back({to, keys_.v.bytes(here)});
        } else {
          copy_bytes(keys_.k.bytes(here), stream.next.k.bytes(at));
          copy_bytes(keys_.v.bytes(here), stream.next.v.bytes(at));
        }
      }
    }
    ranks_.start(sends, receives);
  }

  Communicator& ranks_;
  OwnKeys keys_;
  const std::vector<KeyNeeds>& needs_;
  std::array<Stream, 2> streams_{};
};

}  // namespace

void visit_keys(Communicator& ranks, const OwnKeys& keys,
                const std::vector<KeyNeeds>& needs,
                FunctionRef<void(KeyWindow&, Part)> use) {
  KeyTraffic(ranks, keys, needs).run(use);
}

}  // namespace regard::dist
