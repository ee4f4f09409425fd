// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "regard/dist/communicator.h"

namespace regard::python {

// Processes that Python connects: an object with rank and size, and with
// send(to, address, bytes), receive(from, address, bytes), finish() and
// finish_receives(). See regard/torch/_distributed.py.
class PythonRanks : public dist::Communicator {
 public:
  explicit PythonRanks(nanobind::handle transport)
      : transport_(nanobind::borrow(transport)),
        rank_(nanobind::cast<int>(transport.attr("rank"))),
        size_(nanobind::cast<int>(transport.attr("size"))) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void finish() override { wait("finish"); }
  void finish_receives() override { wait("finish_receives"); }

 protected:
  void begin(const dist::Outgoing& send) override {
    const nanobind::gil_scoped_acquire gil;
    transport_.attr("send")(send.to,
                            reinterpret_cast<std::uintptr_t>(send.bytes.data()),
                            send.bytes.size());
  }
  void begin(const dist::Incoming& receive) override {
    const nanobind::gil_scoped_acquire gil;
    transport_.attr("receive")(
        receive.from, reinterpret_cast<std::uintptr_t>(receive.bytes.data()),
        receive.bytes.size());
  }

 private:
  void wait(const char* function) {
    const auto start = std::chrono::steady_clock::now();
    const nanobind::gil_scoped_acquire gil;
    transport_.attr(function)();
    seconds_waited_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
  }

  nanobind::object transport_;
  int rank_, size_;
};

}  // namespace regard::python
