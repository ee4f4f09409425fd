// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "cli/screen.h"
#include "cli/text.h"
#include "regard/core/error.h"
#include "regard/mpi/mpi.h"

namespace regard::cli {
namespace {

// What Open MPI, and MPICH and its kin, tell the processes that they start.
int number_of(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return otherwise;
}

}  // namespace

Ranks::Ranks()
    : launched_(number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1)),
      rank_(number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0)) {}

Ranks::~Ranks() = default;

dist::Communicator& Ranks::communicator() {
  return communicator_ ? *communicator_ : dist::single_process();
}

void Ranks::start() {
  if (launched_ == 1) return;
  if (!mpi::available()) {
    throw_io_error("mpirun", "it started ", launched_,
                   " processes, and this regard was built without MPI "
                   "(Debian: libopenmpi-dev)");
  }
  mpi::Options options;
  options.on_lost = [this](int rank, double seconds) {
    std::fprintf(errors_,
                 "regard: rank %d has not answered for %.0f s: all ranks end\n",
                 rank, seconds);
    std::fflush(errors_);
  };
  communicator_ = mpi::start(options);
  rank_ = communicator_->rank();
  if (first()) return;
  // Everything that a command says is said by rank 0. Errors keep their way.
  errors_ = ::fdopen(::dup(STDERR_FILENO), "w");
  for (std::FILE* file : {stdout, stderr}) {
    if (std::freopen("/dev/null", "w", file) == nullptr) {
      throw_io_error("mpirun", "'/dev/null' cannot be opened");
    }
  }
}

void Ranks::end_all(int code, const std::string& line) {
  // A mistake that all ranks make is told once: by rank 0, which ends the
  // others while they wait.
  if (!first()) {
    if (!communicator_) return;
    const int turn = std::min(rank_, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(500 + 100 * turn));
  }
  std::fflush(stdout);
  const std::string who = first() ? "" : fmt::format("rank {}: ", rank_);
  std::fprintf(errors_, "regard: %s%s\n", who.c_str(),
               on_one_line(line).c_str());
  std::fflush(errors_);
  if (communicator_) mpi::abort(code);
}

void Ranks::check_threads(Threads threads) {
  if (!communicator_) return;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::int64_t here = 0;
  for (const auto& other : dist::gather_values(*communicator_, host)) {
    if (other == host) ++here;
  }
  const std::int64_t each =
      thread_count(threads, std::numeric_limits<std::int64_t>::max());
  const std::int64_t cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (here * each <= cores) return;
  const std::string line = fmt::format(
      "{} ranks of {} threads share the {} cores of this machine{}\n", here,
      each, cores,
      cores < here
          ? ""
          : fmt::format("; with --threads {} each has its own", cores / here));
  std::fputs(line.c_str(), stderr);
}

void print_answers(dist::Communicator& ranks, std::int64_t count,
                   std::int64_t part,
                   const std::function<std::string(dist::Part)>& answer) {
  const std::int64_t round = part * ranks.size();
  for (std::int64_t begin = 0; begin < count; begin += round) {
    const std::int64_t size = std::min(round, count - begin);
    const dist::Part share = dist::part_of(size, ranks.rank(), ranks.size());
    std::string text = answer({begin + share.begin, begin + share.end});
    const std::vector<std::size_t> sizes =
        dist::gather_values(ranks, text.size());
    std::vector<dist::Outgoing> sends;
    std::vector<dist::Incoming> receives;
    std::vector<std::string> texts(static_cast<std::size_t>(ranks.size()));
    if (ranks.rank() == 0) {
      for (int i = 1; i < ranks.size(); ++i) {
        std::string& other = texts[static_cast<std::size_t>(i)];
        other.resize(sizes[static_cast<std::size_t>(i)]);
        receives.push_back({i, std::as_writable_bytes(std::span(other))});
      }
    } else {
      sends.push_back({0, std::as_bytes(std::span(text))});
    }
    ranks.start(sends, receives);
    ranks.finish();
    if (ranks.rank() != 0) continue;
    texts[0] = std::move(text);
    for (const std::string& one : texts) print(one);
  }
}

}  // namespace regard::cli
