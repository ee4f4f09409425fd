// SPDX-License-Identifier: Apache-2.0
#include "view/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace regard::view {
namespace {

using std::chrono::milliseconds;

// How often a connection that waits looks whether it should.
constexpr milliseconds kStep{50};
// What a client may still send while it reads why it was refused.
constexpr std::int64_t kMostDrained = std::int64_t{1} << 20;
constexpr milliseconds kDrainTime{500};
constexpr milliseconds kShortDrainTime{20};  // others wait to be accepted

}  // namespace

Connection::Connection(socket_t socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits) {}

Connection::~Connection() { ::close(socket_); }

void Connection::end_unread(milliseconds patience) {
  ::shutdown(socket_, SHUT_WR);
  const auto until = Clock::now() + patience;
  std::int64_t drained = 0;
  while (drained < kMostDrained && wait(POLLIN, until)) {
    const ssize_t got =
        ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    drained += got;
  }
}

bool Connection::wait(short events, Clock::time_point until) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(
        until - Clock::now() + milliseconds(1));
    if (left.count() <= 0) return false;
    pollfd poll_socket{socket_, events, 0};
    const int ready = ::poll(&poll_socket, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::wait_for_request(const std::function<bool()>& may_wait) {
  const auto until = Clock::now() + limits_.idle;
  while (begin_ == end_ &&
         !wait(POLLIN, std::min(until, Clock::now() + kStep))) {
    if (Clock::now() >= until || !may_wait()) return false;
  }
  read_until_ = Clock::now() + limits_.patience;
  left_ = limits_.head_bytes + limits_.body_bytes;
  writing_ = false;
  return true;
}

bool Connection::is_readable() const {
  return begin_ < end_ || wait(POLLIN, read_until_);
}

bool Connection::is_writable() const {
  return wait(POLLOUT, Clock::now() + limits_.patience);
}

ssize_t Connection::read(char* to, size_t size) {
  const ssize_t got = receive(to, size);
  if (got <= 0) broken_ = true;
  return got;
}

ssize_t Connection::receive(char* to, size_t size) {
  if (begin_ == end_) {
    if (!wait(POLLIN, read_until_)) return -1;
    const ssize_t got =
        ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
  }
  size = std::min(size, end_ - begin_);
  if (static_cast<std::int64_t>(size) > left_) return -1;
  left_ -= static_cast<std::int64_t>(size);
  std::memcpy(to, buffer_.data() + begin_, size);
  begin_ += size;
  return static_cast<ssize_t>(size);
}

ssize_t Connection::write(const char* from, size_t size) {
  // A client has as long to read an answer as it had to ask.
  if (!std::exchange(writing_, true)) {
    write_until_ = Clock::now() + limits_.patience;
  }
  if (!wait(POLLOUT, write_until_)) return -1;
  return ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Nobody asks who calls: the address proves nothing.
void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}
void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

BoundedQueue::BoundedQueue(int threads, int most_waiting,
                           std::function<void(bool)> overflow)
    : most_waiting_(static_cast<std::size_t>(most_waiting)),
      overflow_(std::move(overflow)) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

void BoundedQueue::enqueue(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() < most_waiting_) {
      tasks_.push_back(std::move(task));
      changed_.notify_one();
      return;
    }
  }
  overflow_(true);
  task();
  overflow_(false);
}

bool BoundedQueue::has_waiting() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size() > free_threads_;
}

void BoundedQueue::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      ++free_threads_;
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      --free_threads_;
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void BoundedQueue::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

BoundedServer::BoundedServer(ConnectionLimits limits, std::string busy)
    : limits_(limits), busy_(std::move(busy)) {
  new_task_queue = [this] {
    queue_ = new BoundedQueue(
        limits_.connections, limits_.waiting, [this](bool begins) {
          refusing_ = begins ? std::this_thread::get_id() : std::thread::id();
        });
    return queue_;
  };
}

void BoundedServer::serve() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    serving_ = true;
  }
  listen_after_bind();
  serving_ = false;
}

void BoundedServer::end() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_.exchange(true)) return;
  }
  // httplib's stop() does nothing before it listens.
  while (serving_ && !is_running())
    std::this_thread::sleep_for(milliseconds(1));
  if (serving_) stop();
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, limits_);
  if (refusing_ == std::this_thread::get_id()) {
    refuse(connection);
    return false;
  }
  const auto may_wait = [this] { return !stopping_ && !queue_->has_waiting(); };
  for (std::size_t count = 1; count <= kMostRequestsOfOne; ++count) {
    if (stopping_ || !connection.wait_for_request(may_wait)) break;
    // Until look_at() has seen the request: what follows a head that could not
    // be read would be taken for requests of their own.
    bool goes_on = false;
    bool closed = false;
    const auto look_at = [this, &goes_on](httplib::Request& request) {
      // Ranges would be cut from the answer as often as the request names them,
      // and packing costs more than a loopback saves.
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
      goes_on = may_go_on(request);
    };
    bool answered = false;
    try {
      answered = process_request(connection, count == kMostRequestsOfOne,
                                 closed, look_at);
    } catch (const std::exception&) {
      // Of httplib itself, at a request that it did not expect.
    }
    if (!answered || !goes_on || connection.is_broken()) {
      connection.end_unread(kDrainTime);
      break;
    }
    if (closed) break;
  }
  return true;
}

void BoundedServer::refuse(Connection& connection) const {
  // It is a few hundred bytes, which fit into any socket's buffer.
  (void)connection.write(busy_.data(), busy_.size());
  connection.end_unread(kShortDrainTime);
}

}  // namespace regard::view
