// SPDX-License-Identifier: Apache-2.0
#include "view/trace_store.h"

#include <algorithm>
#include <random>
#include <utility>

namespace regard::view {
namespace {

std::size_t bytes_with_rollouts(const Trace& trace) {
  std::size_t result = trace.bytes();
  for (const Section& section : trace.sections()) {
    if (!section.has_rollout()) continue;
    result += static_cast<std::size_t>(section.rows() * section.columns()) *
              sizeof(std::uint16_t);
  }
  return result;
}

// 128 bits that nobody can guess.
std::string random_id() {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) {
    std::uint32_t bits = device();
    for (int i = 0; i < 8; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

}  // namespace

StoredTrace::StoredTrace(Trace trace, std::string id)
    : trace_(std::move(trace)),
      id_(std::move(id)),
      bytes_(bytes_with_rollouts(trace_)) {}

const std::vector<std::uint16_t>& StoredTrace::rollout(std::int64_t section) {
  const std::lock_guard lock(mutex_);
  const auto found = rollouts_.find(section);
  if (found != rollouts_.end()) return found->second;
  return rollouts_.emplace(section, trace_.section(section).rollout())
      .first->second;
}

std::shared_ptr<StoredTrace> TraceStore::add(Trace trace) {
  auto stored = std::make_shared<StoredTrace>(std::move(trace), random_id());
  const std::lock_guard lock(mutex_);
  newest_first_.push_front(stored);
  bytes_ += stored->bytes();
  while ((bytes_ > most_bytes_ || newest_first_.size() > most_) &&
         newest_first_.size() > 1) {
    bytes_ -= newest_first_.back()->bytes();
    newest_first_.pop_back();
  }
  return stored;
}

std::shared_ptr<StoredTrace> TraceStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(newest_first_.begin(), newest_first_.end(),
                   [&id](const auto& stored) { return stored->id() == id; });
  if (found == newest_first_.end()) return nullptr;
  newest_first_.splice(newest_first_.begin(), newest_first_, found);
  return newest_first_.front();
}

}  // namespace regard::view
