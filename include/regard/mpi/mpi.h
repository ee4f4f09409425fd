// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "regard/dist/communicator.h"

// Ranks that mpirun started. A library of its own, regard::mpi, which links
// MPI.
namespace regard::mpi {

struct Options {
  // A rank from which nothing came for so long has stopped or cannot be
  // reached: the one that notices calls `on_lost` and ends all by MPI_Abort. A
  // thread of each rank says every second that it is there, whatever the rank
  // is at work on.
  double timeout_seconds = 8;
  std::function<void(int rank, double seconds)> on_lost = {};
};

// Whether there is MPI in this build.
bool available();

// Starts MPI; once in a process. Destroyed, it waits for all ranks and ends
// MPI. Throws IoError where MPI cannot start, or this build has none.
std::unique_ptr<dist::Communicator> start(const Options& options = {});

// Ends all ranks at once. Returns where MPI has not started.
void abort(int exit_code);

}  // namespace regard::mpi
