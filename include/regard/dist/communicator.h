// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace regard::dist {

// A message to a rank, and one from a rank. Both ends know its size.
struct Outgoing {
  int to;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from;
  std::span<std::byte> bytes;
};

// Processes that compute together, each with a number, its rank. What an
// implementation must do is to carry bytes; MPI's is in regard/mpi/mpi.h. All
// ranks make the calls that belong together in the same order, each from one
// thread. A rank that cannot go on ends the others: by MPI_Abort, or by
// whatever its implementation has.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send and to receive. Messages from one rank to another arrive in
  // the order in which they were begun. The memory must stay, and what is
  // received must not be read, until finish() returns. Empty messages are not
  // sent. Throws InvalidArgument for a rank that is not there, or is this one.
  void start(std::span<const Outgoing> sends,
             std::span<const Incoming> receives);
  // Waits for everything that was begun.
  virtual void finish() = 0;
  // Waits for what is received alone: what is sent may still be under way.
  virtual void finish_receives() = 0;

  // Since the start, by this rank.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  double seconds_waited() const { return seconds_waited_; }

 protected:
  virtual void begin(const Outgoing& send) = 0;
  virtual void begin(const Incoming& receive) = 0;
  double seconds_waited_ = 0;  // in finish() and finish_receives()

 private:
  std::int64_t bytes_sent_ = 0;
};

// This process, by itself.
Communicator& single_process();

// Which part of `count` things is a rank's: [begin, end), in order, as equal as
// can be.
struct Part {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};
Part part_of(std::int64_t count, int rank, int ranks);

// The bytes of rank `root` reach all ranks.
void broadcast(Communicator& ranks, int root, std::span<std::byte> bytes);

// Part i of `parts` is rank i's, and reaches all the others.
void all_gather(Communicator& ranks,
                std::span<const std::span<std::byte>> parts);

// One value of every rank, by rank.
template <typename T>
std::vector<T> gather_values(Communicator& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(ranks.size()));
  all[static_cast<std::size_t>(ranks.rank())] = mine;
  std::vector<std::span<std::byte>> parts;
  for (T& one : all)
    parts.push_back(std::as_writable_bytes(std::span(&one, 1)));
  all_gather(ranks, parts);
  return all;
}

// The value of rank `root`.
template <typename T>
T broadcast_value(Communicator& ranks, int root, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast(ranks, root, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace regard::dist
