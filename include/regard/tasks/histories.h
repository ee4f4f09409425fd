// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace regard::tasks {

// Items, by their numbers, in the order in which a user took them.
using ItemList = std::span<const std::int32_t>;

// The histories of many users, one after the other: in memory, or in a file
// that is mapped and of which no more is in memory than is read. Copies share
// the file.
class Histories {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = ItemList;
    using difference_type = std::ptrdiff_t;
    using pointer = const ItemList*;
    using reference = ItemList;

    Iterator() = default;
    Iterator(const Histories* of, std::size_t at) : of_(of), at_(at) {}
    ItemList operator*() const { return (*of_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {of_, at_++}; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const Histories* of_ = nullptr;
    std::size_t at_ = 0;
  };

  Histories() = default;
  Histories(std::initializer_list<std::vector<std::int32_t>> lists);
  // List i is items[offsets[i]] to items[offsets[i + 1]], in memory that
  // `owner` keeps. The offsets begin with 0 and never fall.
  Histories(std::vector<std::int64_t> offsets, const std::int32_t* items,
            std::shared_ptr<const void> owner);

  std::size_t size() const { return offsets_.size() - 1; }
  bool empty() const { return size() == 0; }
  ItemList operator[](std::size_t i) const {
    return {items() + offsets_[i],
            static_cast<std::size_t>(offsets_[i + 1] - offsets_[i])};
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  // In memory alone.
  void push_back(ItemList list);

  friend bool operator==(const Histories& a, const Histories& b);

 private:
  const std::int32_t* items() const {
    return owner_ ? elsewhere_ : own_.data();
  }

  std::vector<std::int64_t> offsets_ = {0};
  std::vector<std::int32_t> own_;
  const std::int32_t* elsewhere_ = nullptr;
  std::shared_ptr<const void> owner_;
};

// For the settings of a training: how many, and a hash of them.
std::string summary_of(const Histories& histories);

}  // namespace regard::tasks
