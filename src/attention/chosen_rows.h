// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/problem.h"

namespace regard::detail {

// The rows asked for, sorted by entry; within one, as they were asked for.
template <typename Real>
class ChosenRows {
 public:
  ChosenRows(const Problem<Real>& p, std::span<const std::int64_t> rows) {
    const std::int64_t q_len = p.q.extent(2);
    for (const std::int64_t row : rows) {
      require(row >= 0 && row < q_len, p.where, "rows must lie in [0, ", q_len,
              "); one is ", row);
    }
    const std::int64_t count = rows.empty() ? q_len : std::ssize(rows);
    places_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      places_[i] = {rows.empty() ? place : rows[i], place};
    }
    starts_.assign(1, 0);
    if (p.packed) {
      sort_by_sequence(p);
    } else {
      starts_.push_back(count);
    }
    for (const Place& place : places_) queries_.push_back(place.query);
    local_ = queries_;
    for (std::int64_t s = 0; p.packed && s < p.entries; ++s) {
      for (std::int64_t i = first(s); i < last(s); ++i) {
        local_[static_cast<std::size_t>(i)] -= p.entry(s).q_begin;
      }
    }
  }

  std::int64_t count() const { return std::ssize(places_); }
  // The rows of an entry are numbers [first, last) of what follows.
  std::int64_t first(std::int64_t entry) const { return starts_[of(entry)]; }
  std::int64_t last(std::int64_t entry) const { return starts_[of(entry) + 1]; }
  // Where a row stands in the request.
  std::int64_t place(std::int64_t number) const {
    return places_[static_cast<std::size_t>(number)].place;
  }
  // As the caller counts queries, and from the entry's first.
  const std::int64_t* queries() const { return queries_.data(); }
  const std::int64_t* local_queries() const { return local_.data(); }

 private:
  struct Place {
    std::int64_t query, place;
  };

  std::size_t of(std::int64_t entry) const {
    return starts_.size() == 2 ? 0 : static_cast<std::size_t>(entry);
  }

  void sort_by_sequence(const Problem<Real>& p) {
    const auto& offsets = p.options.sequences.q_offsets;
    const auto sequence_of = [&](const Place& place) {
      return std::upper_bound(offsets.begin(), offsets.end(), place.query);
    };
    std::stable_sort(places_.begin(), places_.end(),
                     [&](const Place& a, const Place& b) {
                       return sequence_of(a) < sequence_of(b);
                     });
    for (std::int64_t s = 0; s < p.entries; ++s) {
      const auto end = std::partition_point(
          places_.begin() + starts_.back(), places_.end(),
          [&](const Place& place) {
            return place.query < offsets[static_cast<std::size_t>(s) + 1];
          });
      starts_.push_back(end - places_.begin());
    }
  }

  std::vector<Place> places_;
  std::vector<std::int64_t> starts_, queries_, local_;
};

}  // namespace regard::detail
