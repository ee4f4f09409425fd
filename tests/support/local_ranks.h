// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "regard/dist/communicator.h"

namespace regard::testing {

// Ranks that are threads of this process: messages are copied to a mailbox.
class LocalRanks {
 public:
  // Calls `body` once for each rank, each on a thread of its own. Where one
  // throws, the others are woken, and what it threw is thrown here.
  static void run(int size,
                  const std::function<void(dist::Communicator&)>& body) {
    Mail mail;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&mail, &body, rank, size] {
        Rank self(mail, rank, size);
        try {
          body(self);
        } catch (...) {
          const std::lock_guard lock(mail.mutex);
          if (!mail.failure) mail.failure = std::current_exception();
          mail.arrived.notify_all();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (mail.failure) std::rethrow_exception(mail.failure);
  }

 private:
  struct Mail {
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes;
    std::exception_ptr failure;
  };

  class Rank : public dist::Communicator {
   public:
    Rank(Mail& mail, int rank, int size)
        : mail_(mail), rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void finish() override { finish_receives(); }  // sends are copies
    void finish_receives() override {
      for (const dist::Incoming& message : pending_) {
        std::unique_lock lock(mail_.mutex);
        auto& box = mail_.boxes[{message.from, rank_}];
        mail_.arrived.wait(
            lock, [&] { return !box.empty() || mail_.failure != nullptr; });
        if (box.empty()) throw std::runtime_error("another rank failed");
        const std::vector<std::byte> bytes = std::move(box.front());
        box.pop_front();
        if (bytes.size() != message.bytes.size()) {
          throw std::runtime_error("a message has another size");
        }
        std::memcpy(message.bytes.data(), bytes.data(), bytes.size());
      }
      pending_.clear();
    }

   protected:
    void begin(const dist::Outgoing& send) override {
      const std::lock_guard lock(mail_.mutex);
      mail_.boxes[{rank_, send.to}].emplace_back(send.bytes.begin(),
                                                 send.bytes.end());
      mail_.arrived.notify_all();
    }
    void begin(const dist::Incoming& receive) override {
      pending_.push_back(receive);
    }

   private:
    Mail& mail_;
    int rank_, size_;
    std::vector<dist::Incoming> pending_;
  };
};

}  // namespace regard::testing
