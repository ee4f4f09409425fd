// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/checks.h"
#include "attention/chosen_rows.h"
#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/weights_parts.h"
#include "attention/weights_source.h"
#include "regard/attention/weights.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {

template <typename T, int Rank>
void check_output(const TensorView<T, Rank>& view,
                  const std::array<std::int64_t, Rank>& wanted,
                  const char* where, const char* name) {
  if (view.is_null()) return;
  require(view.shape() == wanted, where, name, " must be ", to_string(wanted),
          "; it is ", to_string(view.shape()));
  check_rows_apart(view, where, name);
}

// One call: units of at most kMaxWeightRows rows of a head, or of all heads for
// their mean. Units run side by side in waves; what depends on the order of
// units is done between waves, so it does not depend on threads.
template <typename Real>
class WeightsJob {
 public:
  using Request = BasicWeightsRequest<Real>;
  using Visitor = FunctionRef<void(const WeightsBlock<Real>&)>;

  WeightsJob(const Problem<Real>& p, const Request& request)
      : p_(p), request_(request), rows_(p, request.rows) {
    const std::int64_t heads = mean() ? 1 : p.heads;
    const std::int64_t batch = p.q.extent(0);
    const std::int64_t count = rows_.count();
    require(!p.packed || request.weights.is_null(), p.where,
            "weights of packed sequences are not one array; stream them");
    check_output<Real, 4>(request.weights, {batch, heads, count, p.k.extent(2)},
                          p.where, "weights");
    check_output<std::int64_t, 4>(
        request.top_keys, {batch, heads, count, request.top_keys.extent(3)},
        p.where, "top_keys");
    check_output<Real, 4>(request.top_weights,
                          {batch, heads, count, request.top_weights.extent(3)},
                          p.where, "top_weights");
    require(request.top_keys.is_null() || request.top_weights.is_null() ||
                request.top_keys.shape() == request.top_weights.shape(),
            p.where, "top_keys and top_weights must be of one shape; they are ",
            to_string(request.top_keys.shape()), " and ",
            to_string(request.top_weights.shape()));
    check_output<Real, 3>(request.received, {batch, heads, p.k.extent(2)},
                          p.where, "received");
    check_output<Real, 3>(request.entropy, {batch, heads, count}, p.where,
                          "entropy");
  }

  bool asks_for_something() const {
    return !request_.weights.is_null() || asks_for_parts();
  }

  // `out`: see WeightsSource; its rows are those of the weights.
  void run(const Visitor* visit, const Elements& out = {}) {
    if (p_.entries == 0 || p_.heads == 0) return;
    const EntryMasks<Real> masks(p_);
    source_ = std::make_unique<WeightsSource<Real>>(p_, masks, out);
    make_units();
    clear_received();
    lay_out_slots(visit != nullptr);
    const std::int64_t units = std::ssize(units_);
    const int threads = threads_for(units);
    // Enough units that threads seldom wait for each other, few enough that
    // their rows stay in the cache.
    constexpr std::int64_t kWaveBytes = 2 << 20;
    std::int64_t wave = units;
    if (slot_size_ > 0) {
      wave = std::min(units, std::max<std::int64_t>(kWaveBytes / slot_bytes(),
                                                    2 * threads));
    }
    // A visitor may call what uses the thread's scratch.
    const auto bytes = static_cast<std::size_t>(wave * slot_bytes());
    if (visit != nullptr) visited_ = AlignedBuffer(bytes);
    slots_ = visit != nullptr ? visited_.data()
                              : thread_scratch(bytes, Scratch::kCall);
    for (std::int64_t from = 0; from < units; from += wave) {
      const std::int64_t to = std::min(units, from + wave);
      parallel_for({threads, p_.options.threads.pool}, to - from,
                   [&](std::int64_t i) { compute(at(from + i), slot(i)); });
      for (std::int64_t i = from; i < to; ++i) {
        if (!request_.received.is_null()) {
          add_received(at(i), slot(i - from) + received_at_);
        }
        if (visit != nullptr) show(at(i), slot(i - from), *visit);
      }
    }
    finish_received();
  }

 private:
  struct Unit {
    std::int64_t index, head, first, count;  // first: as rows_ numbers them
  };

  bool asks_for_parts() const {
    return !request_.top_keys.is_null() || !request_.top_weights.is_null() ||
           !request_.received.is_null() || !request_.entropy.is_null();
  }
  bool mean() const { return request_.heads == OverHeads::kMean; }
  const Unit& at(std::int64_t i) const {
    return units_[static_cast<std::size_t>(i)];
  }
  std::int64_t keys_of(const Unit& unit) const {
    return p_.entry(unit.index).kv_len;
  }

  void make_units() {
    for (std::int64_t index = 0; index < p_.entries; ++index) {
      for (std::int64_t head = 0; head < (mean() ? 1 : p_.heads); ++head) {
        const std::int64_t last = rows_.last(index);
        for (std::int64_t i = rows_.first(index); i < last;
             i += kMaxWeightRows) {
          units_.push_back({index, head, i,
                            std::min<std::int64_t>(kMaxWeightRows, last - i)});
        }
      }
    }
  }

  int threads_for(std::int64_t units) const {
    double pairs = 0;
    for (const Unit& unit : units_) {
      pairs += static_cast<double>(unit.count * keys_of(unit));
    }
    if (mean()) pairs *= static_cast<double>(p_.heads);
    if (2 * pairs * static_cast<double>(p_.d_k) < kSerialFlops) return 1;
    return thread_count(p_.options.threads, units);
  }

  // A slot holds what one unit of a wave needs: rows, unless they go straight
  // to the caller; the sums of its rows.
  void lay_out_slots(bool visited) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < (p_.packed ? p_.entries : 1); ++i) {
      longest = std::max(longest, p_.entry(i).kv_len);
    }
    constexpr std::int64_t kLine = AlignedBuffer::kAlignment / sizeof(Real);
    pitch_ = (longest + kLine - 1) / kLine * kLine;
    const bool rows =
        request_.weights.is_null() && (visited || asks_for_parts());
    if (request_.weights.is_null() && !rows) units_.clear();
    received_at_ = rows ? kMaxWeightRows * pitch_ : 0;
    slot_size_ = received_at_ + (request_.received.is_null() ? 0 : pitch_);
  }
  std::int64_t slot_bytes() const {
    return slot_size_ * static_cast<std::int64_t>(sizeof(Real));
  }
  Real* slot(std::int64_t i) {
    return reinterpret_cast<Real*>(slots_) + i * slot_size_;
  }

  WeightRows<Real> rows_of(const Unit& unit, Real* slot) const {
    if (request_.weights.is_null()) return {slot, pitch_};
    return {request_.weights.at(unit.index, unit.head, unit.first),
            request_.weights.stride(2)};
  }

  void compute(const Unit& unit, Real* slot) const {
    const std::int64_t keys = keys_of(unit);
    const WeightRows<Real> rows = rows_of(unit, slot);
    const RowsOfHead wanted{unit.index,
                            unit.head,
                            {rows_.local_queries() + unit.first,
                             static_cast<std::size_t>(unit.count)}};
    if (mean()) {
      source_->write_mean(wanted, rows);
    } else {
      source_->write(wanted, rows);
    }
    take_parts(unit, rows, keys);
    if (!request_.received.is_null()) {
      Real* const sums = slot + received_at_;
      std::copy(rows[0], rows[0] + keys, sums);
      for (std::int64_t i = 1; i < unit.count; ++i) {
        const Real* const row = rows[i];
        for (std::int64_t key = 0; key < keys; ++key) sums[key] += row[key];
      }
    }
  }

  void take_parts(const Unit& unit, WeightRows<Real> rows,
                  std::int64_t keys) const {
    const std::int64_t batch = p_.packed ? 0 : unit.index;
    const bool keys_wanted = !request_.top_keys.is_null();
    const bool weights_wanted = !request_.top_weights.is_null();
    TopWeights<Real> top;
    for (std::int64_t i = 0; i < unit.count; ++i) {
      const std::int64_t place = rows_.place(unit.first + i);
      if (!request_.entropy.is_null()) {
        request_.entropy(batch, unit.head, place) = row_entropy(rows[i], keys);
      }
      if (keys_wanted || weights_wanted) {
        top.write(rows[i], keys,
                  keys_wanted ? request_.top_keys.extent(3)
                              : request_.top_weights.extent(3),
                  keys_wanted ? request_.top_keys.at(batch, unit.head, place)
                              : nullptr,
                  weights_wanted
                      ? request_.top_weights.at(batch, unit.head, place)
                      : nullptr);
      }
    }
  }

  void show(const Unit& unit, Real* slot, const Visitor& visit) const {
    const WeightRows<Real> rows = rows_of(unit, slot);
    visit({.batch = unit.index,
           .head = unit.head,
           .queries = {rows_.queries() + unit.first,
                       static_cast<std::size_t>(unit.count)},
           .weights = {
               rows.data, {unit.count, keys_of(unit)}, {rows.stride, 1}}});
  }

  // ---- received, summed in double over the units of one entry and head ----

  void clear_received() {
    const auto& r = request_.received;
    if (r.is_null()) return;
    for (std::int64_t b = 0; b < r.extent(0); ++b) {
      for (std::int64_t h = 0; h < r.extent(1); ++h) {
        std::fill(r.at(b, h), r.at(b, h) + r.extent(2), Real{0});
      }
    }
  }

  void add_received(const Unit& unit, const Real* sums) {
    if (sum_of_ != nullptr &&
        (sum_of_->index != unit.index || sum_of_->head != unit.head)) {
      finish_received();
    }
    const std::int64_t keys = keys_of(unit);
    if (sum_of_ == nullptr) {
      sums_.assign(static_cast<std::size_t>(keys), 0.0);
      sum_of_ = &unit;
    }
    for (std::int64_t key = 0; key < keys; ++key) {
      sums_[static_cast<std::size_t>(key)] += static_cast<double>(sums[key]);
    }
  }

  void finish_received() {
    if (sum_of_ == nullptr) return;
    const std::int64_t index = sum_of_->index;
    const double scale =
        request_.received_over == OverRows::kMean
            ? 1.0 / static_cast<double>(rows_.last(index) - rows_.first(index))
            : 1.0;
    Real* const to =
        request_.received.at(p_.packed ? 0 : index, sum_of_->head) +
        p_.entry(index).kv_begin;
    for (std::size_t key = 0; key < sums_.size(); ++key) {
      to[key] = static_cast<Real>(sums_[key] * scale);
    }
    sum_of_ = nullptr;
  }

  const Problem<Real> p_;
  const Request request_;
  const ChosenRows<Real> rows_;
  std::unique_ptr<WeightsSource<Real>> source_;
  std::vector<Unit> units_;
  // Of a slot, in elements.
  std::int64_t pitch_ = 0, received_at_ = 0, slot_size_ = 0;
  std::byte* slots_ = nullptr;
  AlignedBuffer visited_;
  const Unit* sum_of_ = nullptr;  // what sums_ holds the keys of
  std::vector<double> sums_;
};

}  // namespace regard::detail
