// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/histories.h"

#include <algorithm>
#include <utility>

#include "regard/core/error.h"

namespace regard::tasks {

Histories::Histories(std::initializer_list<std::vector<std::int32_t>> lists) {
  for (const auto& list : lists) push_back(list);
}

Histories::Histories(std::vector<std::int64_t> offsets,
                     const std::int32_t* items,
                     std::shared_ptr<const void> owner)
    : offsets_(std::move(offsets)),
      elsewhere_(items),
      owner_(std::move(owner)) {}

void Histories::push_back(ItemList list) {
  require(!owner_, "Histories::push_back",
          "the histories of a file stay as they are");
  own_.insert(own_.end(), list.begin(), list.end());
  offsets_.push_back(std::ssize(own_));
}

bool operator==(const Histories& a, const Histories& b) {
  if (a.offsets_ != b.offsets_) return false;
  return std::equal(a.items(), a.items() + a.offsets_.back(), b.items());
}

}  // namespace regard::tasks
