// SPDX-License-Identifier: Apache-2.0
#include "regard/mpi/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "regard/core/error.h"

namespace regard::mpi {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int kData = 1;
constexpr int kHere = 2;
constexpr int kGoodbye = 3;
// Seconds that a rank asks again and again before it sleeps in between: a core
// that was given away may come back after a time slice of several milliseconds.
// Where ranks share cores, it is another one's that it keeps.
constexpr double kShortWait = 1e-3;
constexpr double kShortWaitOnSharedCores = 1e-4;
constexpr double kLongestSleep = 1e-3;
// MPI counts in int; longer messages go in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30;

// MPI is called by one thread at a time (MPI_THREAD_SERIALIZED): the one that
// computes, and the one that says that this rank is there. So nobody ever
// waits inside MPI, which would keep the other out: all waiting is asking
// again.
class MpiCommunicator : public dist::Communicator {
 public:
  explicit MpiCommunicator(const Options& options) : options_(options) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized != 0) throw_io_error("mpi", "MPI was started already");
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) !=
        MPI_SUCCESS) {
      throw_io_error("mpi", "MPI cannot start");
    }
    if (provided < MPI_THREAD_SERIALIZED) {
      throw_io_error("mpi", "this MPI cannot be called from two threads");
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    if (size_ > 1 &&
        ranks_of_machine() >
            static_cast<int>(std::thread::hardware_concurrency())) {
      short_wait_ = kShortWaitOnSharedCores;
    }
    if (size_ > 1) watch_ = std::thread([this] { watch(); });
  }

  ~MpiCommunicator() override {
    // The others may still compute: until all are here, each is watched.
    if (size_ > 1) {
      dist::gather_values(*this, char{0});
      {
        const std::lock_guard lock(wake_mutex_);
        leaving_ = true;
      }
      wake_.notify_all();
      watch_.join();
    }
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void finish() override {
    wait_for(receives_);
    wait_for(sends_);
  }
  void finish_receives() override { wait_for(receives_); }

 protected:
  void begin(const dist::Outgoing& send) override {
    const std::lock_guard lock(mutex_);
    if (sends_.empty()) wake_.notify_one();
    for (std::size_t at = 0; at < send.bytes.size(); at += kPiece) {
      const auto count =
          static_cast<int>(std::min(kPiece, send.bytes.size() - at));
      MPI_Isend(send.bytes.data() + at, count, MPI_BYTE, send.to, kData,
                MPI_COMM_WORLD, &sends_.emplace_back());
    }
  }
  void begin(const dist::Incoming& receive) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < receive.bytes.size(); at += kPiece) {
      const auto count =
          static_cast<int>(std::min(kPiece, receive.bytes.size() - at));
      MPI_Irecv(receive.bytes.data() + at, count, MPI_BYTE, receive.from, kData,
                MPI_COMM_WORLD, &receives_.emplace_back());
    }
  }

 private:
  static int ranks_of_machine() {
    MPI_Comm machine;
    int count = 1;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &machine);
    MPI_Comm_size(machine, &count);
    MPI_Comm_free(&machine);
    return count;
  }

  // Asks MPI, which moves everything that is under way; where all of these
  // are done, they are forgotten. Holds mutex_.
  static bool all_done(std::vector<MPI_Request>& requests) {
    int done = 1;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                MPI_STATUSES_IGNORE);
    if (done != 0) requests.clear();
    return done != 0;
  }

  void wait_for(std::vector<MPI_Request>& requests) {
    const auto ask = [&] {
      const std::lock_guard lock(mutex_);
      return all_done(requests);
    };
    if (ask()) return;
    const Clock::time_point start = Clock::now();
    for (;;) {
      // Short waits cost a core; long ones cost it to whoever else is on it.
      // A sleep, and no yield, which gives a whole time slice away.
      const double waited = seconds_since(start);
      if (waited >= short_wait_) {
        std::this_thread::sleep_for(std::chrono::duration<double>(
            std::min(waited / 16, kLongestSleep)));
      }
      if (ask()) break;
    }
    seconds_waited_ += seconds_since(start);
  }

  // What travels while this rank computes goes on when MPI is asked: how long
  // until it is to be asked again. A question that took long has moved some of
  // it, and the next ones will, too.
  Clock::duration move_on() {
    constexpr auto kMoved = std::chrono::microseconds(10);
    constexpr auto kMost = std::chrono::microseconds(500);
    const Clock::time_point start = Clock::now();
    for (Clock::time_point before = start;;) {
      {
        const std::lock_guard lock(mutex_);
        const bool received = all_done(receives_);
        if (all_done(sends_) && received) return std::chrono::milliseconds(100);
      }
      const Clock::time_point now = Clock::now();
      if (now - before < kMoved) return std::chrono::milliseconds(2);
      if (now - start > kMost) return std::chrono::microseconds(200);
      before = now;
    }
  }

  // Each rank watches the one before it, so that two messages a second go from
  // and to a rank, however many there are.
  void watch() {
    const int before = (rank_ + size_ - 1) % size_;
    const int after = (rank_ + 1) % size_;
    Clock::time_point heard = Clock::now();
    Clock::time_point looked = heard;
    Clock::time_point said = heard - std::chrono::seconds(1);
    bool left = false;
    std::unique_lock waiting(wake_mutex_);
    while (!leaving_) {
      if (seconds_since(looked) > 3) {
        heard = Clock::now();  // it was this process that stood still
      }
      looked = Clock::now();
      if (seconds_since(said) >= 1) {
        said = Clock::now();
        send(after, kHere);
      }
      switch (last_message(before)) {
        case kGoodbye:
          left = true;
          break;
        case kHere:
          heard = Clock::now();
          break;
      }
      if (!left && seconds_since(heard) > options_.timeout_seconds) {
        if (options_.on_lost) {
          options_.on_lost(before, seconds_since(heard));
        }
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      wake_.wait_for(waiting, move_on());
    }
    send(after, kGoodbye);
    // Messages that nobody takes would be left when MPI ends.
    while (!left) {
      left = last_message(before) == kGoodbye;
      if (!left) wake_.wait_for(waiting, std::chrono::milliseconds(1));
    }
  }

  void send(int to, int tag) {
    const std::lock_guard lock(mutex_);
    MPI_Request request;
    MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }

  // Takes all that has come: what it says, or 0 for nothing.
  int last_message(int from) {
    const std::lock_guard lock(mutex_);
    int said = 0;
    for (const int tag : {kHere, kGoodbye}) {
      for (;;) {
        int there = 0;
        MPI_Iprobe(from, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (there == 0) break;
        MPI_Recv(nullptr, 0, MPI_BYTE, from, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        said = tag;
      }
    }
    return said;
  }

  Options options_;
  int rank_ = 0;
  int size_ = 1;
  double short_wait_ = kShortWait;
  std::mutex mutex_;  // MPI's
  std::vector<MPI_Request> sends_, receives_;
  std::mutex wake_mutex_;  // of leaving_
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread watch_;
};

}  // namespace

bool available() { return true; }

std::unique_ptr<dist::Communicator> start(const Options& options) {
  return std::make_unique<MpiCommunicator>(options);
}

void abort(int exit_code) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
}

}  // namespace regard::mpi
