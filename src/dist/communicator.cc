// SPDX-License-Identifier: Apache-2.0
#include "regard/dist/communicator.h"

#include "regard/core/error.h"

namespace regard::dist {
namespace {

class SingleProcess : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void finish() override {}
  void finish_receives() override {}

 protected:
  void begin(const Outgoing&) override {}
  void begin(const Incoming&) override {}
};

void check(const Communicator& ranks, int other) {
  require(other >= 0 && other < ranks.size() && other != ranks.rank(),
          "Communicator::start", "a message is from one of ", ranks.size(),
          " ranks to another; this is rank ", ranks.rank(), ", the other is ",
          other);
}

}  // namespace

void Communicator::start(std::span<const Outgoing> sends,
                         std::span<const Incoming> receives) {
  for (const Outgoing& send : sends) check(*this, send.to);
  for (const Incoming& receive : receives) check(*this, receive.from);
  for (const Incoming& receive : receives) {
    if (!receive.bytes.empty()) begin(receive);
  }
  for (const Outgoing& send : sends) {
    if (send.bytes.empty()) continue;
    begin(send);
    bytes_sent_ += std::ssize(send.bytes);
  }
}

Communicator& single_process() {
  static SingleProcess process;
  return process;
}

Part part_of(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

void broadcast(Communicator& ranks, int root, std::span<std::byte> bytes) {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (ranks.rank() == root) {
    for (int i = 0; i < ranks.size(); ++i) {
      if (i != root) sends.push_back({i, bytes});
    }
  } else {
    receives.push_back({root, bytes});
  }
  ranks.start(sends, receives);
  ranks.finish();
}

void all_gather(Communicator& ranks,
                std::span<const std::span<std::byte>> parts) {
  const std::span<const std::byte> mine =
      parts[static_cast<std::size_t>(ranks.rank())];
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int i = 0; i < ranks.size(); ++i) {
    if (i == ranks.rank()) continue;
    sends.push_back({i, mine});
    receives.push_back({i, parts[static_cast<std::size_t>(i)]});
  }
  ranks.start(sends, receives);
  ranks.finish();
}

}  // namespace regard::dist
