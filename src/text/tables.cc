// SPDX-License-Identifier: Apache-2.0
#include "text/tables.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

namespace regard::text {
namespace {

std::size_t hash_of(std::string_view piece) {
  return std::hash<std::string_view>()(piece);
}

std::size_t capacity_for(std::size_t expected) {
  return std::bit_ceil(std::max<std::size_t>(16, 2 * expected));
}

}  // namespace

PieceTable::PieceTable(std::size_t expected) : slots_(capacity_for(expected)) {}

// Where the piece is, or the empty slot where it would be.
std::size_t PieceTable::place(std::string_view piece, std::size_t hash) const {
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id == kNone) return i;
    if (slot.tag == tag && slot.length == piece.size() &&
        std::string_view(text_).substr(slot.begin, slot.length) == piece) {
      return i;
    }
  }
}

void PieceTable::insert(std::string_view piece, std::int32_t id) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  const std::size_t hash = hash_of(piece);
  Slot& slot = slots_[place(piece, hash)];
  if (slot.id != kNone) return;
  slot = {static_cast<std::uint32_t>(hash >> 32), id, text_.size(),
          static_cast<std::uint32_t>(piece.size())};
  text_ += piece;
  ++count_;
}

std::int32_t PieceTable::find(std::string_view piece) const {
  return slots_[place(piece, hash_of(piece))].id;
}

void PieceTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    const auto piece = std::string_view(text_).substr(slot.begin, slot.length);
    slots_[place(piece, hash_of(piece))] = slot;
  }
}

MergeTable::MergeTable(std::size_t expected)
    : slots_(capacity_for(expected)),
      mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())) {}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  const std::uint64_t key = key_of(left, right);
  std::size_t i = start_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kEmpty) ++count_;
  slots_[i] = {key, merge};
}

void MergeTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  --shift_;
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    insert(static_cast<std::int32_t>(slot.key >> 32),
           static_cast<std::int32_t>(slot.key & 0xFFFFFFFF), slot.merge);
  }
}

Trie::Trie(std::vector<Entry> entries) {
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.text < b.text; });
  std::fill(std::begin(first_), std::end(first_), kNowhere);
  nodes_.push_back({});
  labels_.push_back(0);
  // Level by level: a node's entries are a run of the sorted ones, and its
  // children lie side by side.
  struct Job {
    Node node;
    std::size_t begin, end, depth;
  };
  std::queue<Job> jobs;
  jobs.push({kRoot, 0, entries.size(), 0});
  while (!jobs.empty()) {
    Job job = jobs.front();
    jobs.pop();
    while (job.begin < job.end && entries[job.begin].text.size() == job.depth) {
      if (job.depth > 0) nodes_[job.node].id = entries[job.begin].id;
      ++job.begin;
    }
    nodes_[job.node].children = static_cast<Node>(nodes_.size());
    for (std::size_t i = job.begin; i < job.end;) {
      const char label = entries[i].text[job.depth];
      std::size_t end = i;
      while (end < job.end && entries[end].text[job.depth] == label) ++end;
      const auto child = static_cast<Node>(nodes_.size());
      nodes_.push_back({});
      labels_.push_back(static_cast<unsigned char>(label));
      ++nodes_[job.node].count;
      if (job.node == kRoot) first_[static_cast<unsigned char>(label)] = child;
      jobs.push({child, i, end, job.depth + 1});
      i = end;
    }
  }
}

Trie::Node Trie::walk(Node node, std::string_view text) const {
  for (const char c : text) {
    if (node == kNowhere) break;
    node = step(node, c);
  }
  return node;
}

Trie::Found Trie::longest(std::string_view text, Node node) const {
  Found found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = step(node, text[i]);
    if (node == kNowhere) break;
    if (id(node) != kNone) found = {id(node), i + 1};
  }
  return found;
}

}  // namespace regard::text
