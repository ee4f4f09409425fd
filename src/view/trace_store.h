// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "regard/view/trace.h"

namespace regard::view {

// A trace, and the rollouts that were asked for.
class StoredTrace {
 public:
  StoredTrace(Trace trace, std::string id);

  const Trace& trace() const { return trace_; }
  const std::string& id() const { return id_; }
  std::size_t bytes() const { return bytes_; }
  // Computed once.
  const std::vector<std::uint16_t>& rollout(std::int64_t section);

 private:
  Trace trace_;
  std::string id_;
  std::size_t bytes_;  // with all rollouts
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<std::uint16_t>> rollouts_;
};

// The traces of the last requests: at most so many, and as many as fit into so
// many bytes, but the newest in any case. Those in use stay until they are not.
class TraceStore {
 public:
  TraceStore(std::size_t most, std::size_t most_bytes)
      : most_(most), most_bytes_(most_bytes) {}

  std::shared_ptr<StoredTrace> add(Trace trace);
  std::shared_ptr<StoredTrace> find(const std::string& id);  // null: not there

 private:
  std::size_t most_;
  std::size_t most_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<std::shared_ptr<StoredTrace>> newest_first_;
};

}  // namespace regard::view
