// SPDX-License-Identifier: Apache-2.0
// In place of mpi.cc where MPI is not there.
#include "regard/core/error.h"
#include "regard/mpi/mpi.h"

namespace regard::mpi {

bool available() { return false; }

std::unique_ptr<dist::Communicator> start(const Options&) {
  throw_io_error("mpi", "this build has no MPI (Debian: libopenmpi-dev)");
}

void abort(int) {}

}  // namespace regard::mpi
