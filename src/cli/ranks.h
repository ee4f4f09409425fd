// SPDX-License-Identifier: Apache-2.0
// Several processes of the program at one work, as mpirun starts them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "regard/core/threads.h"
#include "regard/dist/communicator.h"

namespace regard::cli {

class Ranks {
 public:
  // The environment tells whether mpirun started this process, and of how many
  // it is one. Nothing else happens before start().
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int launched() const { return launched_; }  // 1 without mpirun
  bool first() const { return rank_ == 0; }

  // Where there are several: starts MPI, and lets rank 0 alone print. Throws
  // IoError where the program was built without MPI.
  void start();
  // This process alone before start().
  dist::Communicator& communicator();

  // One line for an error, and the end of all ranks.
  void end_all(int code, const std::string& line);

  // Warns, on rank 0, where the ranks of a machine have more threads than it
  // has cores. All ranks call it.
  void check_threads(Threads threads);

 private:
  int launched_ = 1;
  int rank_ = 0;
  std::FILE* errors_ = stderr;
  std::unique_ptr<dist::Communicator> communicator_;
};

// Each rank answers its share of `count` inputs, in parts of at most `part` for
// each rank at a time, and rank 0 prints all answers in the order of the
// inputs.
void print_answers(dist::Communicator& ranks, std::int64_t count,
                   std::int64_t part,
                   const std::function<std::string(dist::Part)>& answer);

}  // namespace regard::cli
