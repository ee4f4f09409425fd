// SPDX-License-Identifier: Apache-2.0
// cpp-httplib with limits that it does not have: a time for a whole request, a
// size for its head, and a number of connections.
#pragma once

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace regard::view {

inline constexpr std::size_t kMostRequestsOfOne = 1000;  // connection

struct ConnectionLimits {
  std::int64_t head_bytes = 0;
  std::int64_t body_bytes = 0;
  int connections = 1;
  int waiting = 0;
  std::chrono::milliseconds patience{};
  std::chrono::milliseconds idle{};
};

// The bytes of one connection.
class Connection : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(socket_t socket, const ConnectionLimits& limits);
  ~Connection() override;  // closes it

  // Ends it with an answer to a request that was not read to its end. A socket
  // that is closed with bytes unread resets the connection, and the answer is
  // lost with them. So: no more to say, then read for a while.
  void end_unread(std::chrono::milliseconds patience);

  // Waits for the first byte of the next request, while `may_wait`. False: none
  // will come.
  bool wait_for_request(const std::function<bool()>& may_wait);

  // Did a read fail? What comes after that is the rest of the request that was
  // given up, and no request of its own.
  bool is_broken() const { return broken_; }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events, Clock::time_point until) const;
  ssize_t receive(char* to, size_t size);

  socket_t socket_;
  const ConnectionLimits& limits_;
  Clock::time_point read_until_;
  Clock::time_point write_until_;
  bool writing_ = false;
  bool broken_ = false;
  std::int64_t left_ = 0;  // bytes that the request may still have
  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// A fixed number of threads, and a queue that is not longer than it may be.
class BoundedQueue : public httplib::TaskQueue {
 public:
  // A task that finds the queue full runs at once in enqueue's thread, between
  // overflow(true) and overflow(false).
  BoundedQueue(int threads, int most_waiting,
               std::function<void(bool)> overflow);
  ~BoundedQueue() override { shutdown(); }

  void enqueue(std::function<void()> task) override;
  void shutdown() override;
  // Does a task wait that no thread is free for?
  bool has_waiting() const;

 private:
  void work();

  std::size_t most_waiting_;
  std::function<void(bool)> overflow_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t free_threads_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class BoundedServer : public httplib::Server {
 public:
  // Connections beyond the limits get `busy`, a whole response.
  BoundedServer(ConnectionLimits limits, std::string busy);
  // Serves until end(), or not at all where that came before.
  void serve();
  void end();

  // Of each request, before it is routed: may the connection go on after it?
  std::function<bool(const httplib::Request&)> may_go_on;

 private:
  bool process_and_close_socket(socket_t socket) override;
  void refuse(Connection& connection) const;

  ConnectionLimits limits_;
  std::string busy_;
  BoundedQueue* queue_ = nullptr;  // httplib owns it
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::atomic<bool> serving_{false};
  // The thread that accepts, while it refuses.
  std::atomic<std::thread::id> refusing_{};
};

}  // namespace regard::view
