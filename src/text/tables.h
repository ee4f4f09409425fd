// SPDX-License-Identifier: Apache-2.0
// The look-ups that take a tokenizer's time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regard::text {

inline constexpr std::int32_t kNone = -1;

// Text -> number, for texts that are never removed. Open addressing; the texts
// lie in one string.
class PieceTable {
 public:
  explicit PieceTable(std::size_t expected = 0);

  // The first number that a text gets stays.
  void insert(std::string_view piece, std::int32_t id);
  std::int32_t find(std::string_view piece) const;  // kNone
  std::size_t size() const { return count_; }

 private:
  struct Slot {
    std::uint32_t tag = 0;  // of the hash
    std::int32_t id = kNone;
    std::size_t begin = 0;
    std::uint32_t length = 0;
  };
  std::size_t place(std::string_view piece, std::size_t hash) const;
  void grow();

  std::vector<Slot> slots_;
  std::string text_;
  std::size_t count_ = 0;
};

// Two pieces -> the one that they become, and when.
struct Merge {
  std::uint32_t rank = 0;  // lower ones come first
  std::int32_t id = kNone;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t expected = 0);

  // The last merge of a pair stays.
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = start_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t start_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
  }
  void grow();

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, count_ = 0;
  int shift_ = 0;
};

// Pieces by their bytes: all that start a text are found in one walk.
class Trie {
 public:
  struct Entry {
    std::string_view text;
    std::int32_t id = 0;
  };
  Trie() : Trie(std::vector<Entry>()) {}
  // Of equal texts, the last stays; empty ones are left out.
  explicit Trie(std::vector<Entry> entries);

  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNowhere = 0xFFFFFFFF;

  Node step(Node node, char byte) const {
    const auto wanted = static_cast<unsigned char>(byte);
    if (node == kRoot) return first_[wanted];
    Node low = nodes_[node].children;
    Node high = low + nodes_[node].count;
    while (high - low > 8) {
      const Node middle = low + (high - low) / 2;
      (labels_[middle] <= wanted ? low : high) = middle;
    }
    for (; low < high; ++low) {
      if (labels_[low] == wanted) return low;
    }
    return kNowhere;
  }
  Node walk(Node node, std::string_view text) const;
  std::int32_t id(Node node) const { return nodes_[node].id; }  // or kNone

  // The longest piece that starts the text, from `node` on.
  struct Found {
    std::int32_t id = kNone;
    std::size_t length = 0;
  };
  Found longest(std::string_view text, Node node = kRoot) const;

 private:
  struct Inner {
    Node children = 0;
    std::uint32_t count = 0;
    std::int32_t id = kNone;
  };
  std::vector<Inner> nodes_;
  std::vector<unsigned char> labels_;  // by which a node is reached
  Node first_[256];                    // the root's children
};

}  // namespace regard::text
