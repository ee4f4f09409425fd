// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <thread>

#include "attention/backward.h"
#include "attention/entry_masks.h"
#include "attention/row_blocks.h"
#include "kernels/attention_backward.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::AttentionDense;
using kernels::AttentionRow;
using kernels::BackwardHead;
using kernels::BackwardRow;
using kernels::kGroupRows;
using kernels::kKeyBlock;

// The rows that read one key-value head of one entry.
struct HeadIndex {
  std::int64_t index;
  std::int64_t kv_head;
};

// Everything that the three passes keep about one head, laid out in one piece
// of memory.
template <typename T>
class HeadWork {
 public:
  HeadWork(const BackwardProblem<T>& problem, const EntryMasks<T>& masks,
           std::int64_t key_run)
      : b_(problem), p_(problem.forward), masks_(masks) {
    head_.key_run = key_run;
  }

  // Bytes for a head with so many rows.
  std::size_t bytes(std::int64_t rows) const {
    HeadWork measured(b_, masks_, head_.key_run);
    return measured.lay_out(nullptr, rows);
  }

  void begin(HeadIndex at, std::byte* memory) {
    at_ = at;
    const Entry e = p_.entry(at.index);
    const std::int64_t rows = e.q_len * p_.group;
    lay_out(memory, rows);
    head_.block = describe_call(p_, at.index, at.kv_head);
    head_.block.rows = rows_;
    head_.block.dense = dense_;
    head_.block.dense_count = static_cast<int>(masks_.dense_parts());
    masks_.with(at.index, [&](const BoundMask& mask) {
      head_.block.same_keys = mask.ranges_are_full();
    });
    head_.row_count = rows;
    head_.backward_rows = backward_rows_;
    head_.kv_len = e.kv_len;
    head_.stores_bias = b_.bias_of_pairs();
    const Gradients<T>& g = b_.gradients;
    head_.d_k =
        g.k.is_null() ? nullptr : g.k.at(e.batch, at.kv_head, e.kv_begin);
    head_.d_v =
        g.v.is_null() ? nullptr : g.v.at(e.batch, at.kv_head, e.kv_begin);
    head_.d_k_stride = g.k.stride(2);
    head_.d_v_stride = g.v.stride(2);
  }

  std::int64_t groups() const {
    return (head_.row_count + kGroupRows - 1) / kGroupRows;
  }
  std::int64_t key_runs() const {
    return (head_.kv_len + head_.key_run - 1) / head_.key_run;
  }

  // Pass 1, a group of rows.
  void prepare(std::int64_t group) {
    masks_.with(at_.index,
                [&](const BoundMask& mask) { describe_group(group, mask); });
    kernels::backward_prepare(head_, group);
  }

  // Pass 2, a run of keys. Waits for the run before it, row group by row
  // group; that one has started earlier, so the wait ends.
  void run_keys(std::int64_t run, float* scratch) {
    const auto begin_turn = [&](std::int64_t group) {
      for (int spin = 0; turns_[group].load(std::memory_order_acquire) != run;
           ++spin) {
        if (spin > 1000) std::this_thread::yield();
      }
    };
    const auto end_turn = [&](std::int64_t group) {
      turns_[group].store(run + 1, std::memory_order_release);
    };
    const FunctionRef<void(std::int64_t)> begin_ref(begin_turn);
    const FunctionRef<void(std::int64_t)> end_ref(end_turn);
    BackwardHead head = head_;
    head.begin_turn = &begin_ref;
    head.end_turn = &end_ref;
    kernels::backward_keys(head, run, scratch);
  }

  // Pass 3, a group of rows.
  void finish(std::int64_t group) { kernels::backward_finish(head_, group); }

  // Adds up what there is one of a head. Other entries and heads have sums of
  // their own.
  void sum_rows(HeadSums& sums) const {
    sums.add_rows(b_, at_.index, at_.kv_head, head_);
  }

 private:
  std::size_t lay_out(std::byte* base, std::int64_t rows) {
    const std::int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
    const std::int64_t padded = groups * kGroupRows;
    const auto columns = [](std::int64_t n) { return (n + 15) / 16 * 16; };
    std::size_t used = 0;
    const auto take = [&]<typename U>(U*& to, std::int64_t count) {
      to = reinterpret_cast<U*>(base + (base == nullptr ? 0 : used));
      used += line_up(sizeof(U) * static_cast<std::size_t>(count));
    };
    take(head_.queries, padded * p_.d_k);
    take(head_.d_outs, padded * p_.d_v);
    take(head_.query_rows, padded * columns(p_.d_k));
    take(head_.d_out_rows, padded * columns(p_.d_v));
    take(head_.d_query_rows, padded * columns(p_.d_k));
    take(head_.log2_sums, padded);
    take(head_.deltas, padded);
    take(head_.d_slopes, padded);
    take(head_.d_row_biases, padded);
    if (!b_.gradients.head_scales.empty()) take(head_.d_scales, padded);
    take(head_.finite, groups);
    take(rows_, rows);
    take(backward_rows_, rows);
    take(turns_, groups);
    take(dense_, static_cast<std::int64_t>(masks_.dense_parts()));
    take(dense_rows_, rows * static_cast<std::int64_t>(masks_.dense_parts()));
    return used;
  }

  void describe_group(std::int64_t group, const BoundMask& mask) {
    const Entry e = p_.entry(at_.index);
    const Gradients<T>& g = b_.gradients;
    const std::int64_t first = group * kGroupRows;
    const std::int64_t last = std::min(head_.row_count, first + kGroupRows);
    std::int64_t begin = head_.kv_len;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t query = i / p_.group;
      const std::int64_t head = at_.kv_head * p_.group + i % p_.group;
      const std::int64_t at = e.q_begin + query;
      rows_[i] = describe_row<T>(p_, mask, at_.index, head, query, nullptr);
      if (rows_[i].begin < rows_[i].end)
        begin = std::min(begin, rows_[i].begin);
      backward_rows_[i] = {
          .out = b_.inputs.out.at(e.batch, head, at),
          .d_out = b_.inputs.d_out.at(e.batch, head, at),
          .d_lse = b_.inputs.d_log_sum_exp.is_null()
                       ? nullptr
                       : b_.inputs.d_log_sum_exp.at(e.batch, head, at),
          .d_q = g.q.is_null() ? nullptr : g.q.at(e.batch, head, at),
          .d_bias = b_.d_bias_row(at_.index, head, query),
      };
      for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
        dense_rows_[static_cast<std::int64_t>(part) * head_.row_count + i] =
            mask.dense()[part].row(at_.index, head, query);
      }
    }
    if (group == 0) {
      for (std::size_t part = 0; part < masks_.dense_parts(); ++part) {
        dense_[part] = {
            dense_rows_ + static_cast<std::int64_t>(part) * head_.row_count,
            mask.dense()[part].visible_when};
      }
    }
    // The first run of keys that the group sees is the first to have its turn.
    new (turns_ + group) std::atomic<std::int64_t>(begin / head_.key_run);
  }

  const BackwardProblem<T>& b_;
  const Problem<T>& p_;
  const EntryMasks<T>& masks_;
  HeadIndex at_{};
  BackwardHead head_{};
  AttentionRow* rows_ = nullptr;
  BackwardRow* backward_rows_ = nullptr;
  std::atomic<std::int64_t>* turns_ = nullptr;
  AttentionDense* dense_ = nullptr;
  const bool** dense_rows_ = nullptr;
};

// Whether several heads or entries add to the same gradient of a bias.
template <typename T>
bool shares_bias(const BackwardProblem<T>& b) {
  const auto& d = b.gradients.bias;
  return !d.is_null() && ((d.extent(0) == 1 && b.forward.entries > 1) ||
                          (d.extent(1) == 1 && b.forward.heads > 1));
}

// One head a task, all three passes: enough heads to keep the threads busy.
template <typename T>
void run_by_heads(const BackwardProblem<T>& b, const EntryMasks<T>& masks,
                  Threads threads, HeadSums& sums) {
  const Problem<T>& p = b.forward;
  const std::int64_t run = kernels::backward_key_run(p.d_k, p.d_v);
  const std::size_t floats =
      kernels::backward_scratch_floats(run, p.d_k, p.d_v);
  parallel_for(threads, p.entries * p.kv_heads, [&](std::int64_t task) {
    HeadWork<T> work(b, masks, run);
    const HeadIndex at{task / p.kv_heads, task % p.kv_heads};
    const std::size_t bytes = work.bytes(p.entry(at.index).q_len * p.group);
    std::byte* const memory = thread_scratch(bytes + floats * sizeof(float));
    work.begin(at, memory);
    auto* const scratch = reinterpret_cast<float*>(memory + bytes);
    for (std::int64_t g = 0; g < work.groups(); ++g) work.prepare(g);
    for (std::int64_t k = 0; k < work.key_runs(); ++k) {
      work.run_keys(k, scratch);
    }
    for (std::int64_t g = 0; g < work.groups(); ++g) work.finish(g);
    work.sum_rows(sums);
  });
}

// One head after the other, its blocks of keys side by side: few heads, or
// heads that add to the same bias.
template <typename T>
void run_by_keys(const BackwardProblem<T>& b, const EntryMasks<T>& masks,
                 Threads threads, HeadSums& sums) {
  const Problem<T>& p = b.forward;
  for (std::int64_t i = 0; i < p.entries * p.kv_heads; ++i) {
    const HeadIndex at{i / p.kv_heads, i % p.kv_heads};
    // Short enough that every thread has some.
    const std::int64_t share =
        p.entry(at.index).kv_len / (4 * threads.count) / kKeyBlock * kKeyBlock;
    const std::int64_t run = std::clamp<std::int64_t>(
        share, kKeyBlock, kernels::backward_key_run(p.d_k, p.d_v));
    const std::size_t floats =
        kernels::backward_scratch_floats(run, p.d_k, p.d_v);
    HeadWork<T> work(b, masks, run);
    work.begin(at, thread_scratch(work.bytes(p.entry(at.index).q_len * p.group),
                                  Scratch::kCall));
    parallel_for(threads, work.groups(),
                 [&](std::int64_t g) { work.prepare(g); });
    parallel_for(threads, work.key_runs(), [&](std::int64_t k) {
      work.run_keys(
          k, reinterpret_cast<float*>(thread_scratch(floats * sizeof(float))));
    });
    parallel_for(threads, work.groups(),
                 [&](std::int64_t g) { work.finish(g); });
    work.sum_rows(sums);
  }
}

}  // namespace

template <typename T>
void engine_backward(const BackwardProblem<T>& b) {
  const Problem<T>& p = b.forward;
  HeadSums sums(p.entries, p.heads);
  if (p.entries > 0 && p.heads > 0) {
    const EntryMasks<T> masks(p);
    const int count = threads_for(p, 6 * p.d_k + 4 * p.d_v);
    const Threads threads{count, p.options.threads.pool};
    const bool many = count == 1 || p.entries * p.kv_heads >= 4 * count;
    if (many && !shares_bias(b)) {
      run_by_heads(b, masks, threads, sums);
    } else {
      run_by_keys(b, masks, threads, sums);
    }
  }
  sums.write(b.gradients);
}

template void engine_backward(const BackwardProblem<float>&);
template void engine_backward(const BackwardProblem<BFloat16>&);
template void engine_backward(const BackwardProblem<Float16>&);

}  // namespace regard::detail
