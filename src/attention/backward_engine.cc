// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <thread>

#include "attention/backward_rows.h"
#include "regard/core/aligned_buffer.h"

namespace regard::detail {
namespace {

using kernels::BackwardHead;
using kernels::kGroupRows;
using kernels::kKeyBlock;

// Everything that the three passes keep about the rows that read one key-value
// head of one entry, laid out in one piece of memory.
class HeadWork {
 public:
  // `number` counts heads and entries together.
  HeadWork(const BackwardProblem<float>& problem,
           const EntryMasks<float>& masks, std::int64_t number,
           std::int64_t key_run)
      : b_(problem),
        p_(problem.forward),
        rows_(problem, masks, number / p_.kv_heads, number % p_.kv_heads) {
    head_.key_run = key_run;
  }

  std::size_t bytes() { return lay_out(nullptr); }

  void begin(std::byte* memory) {
    lay_out(memory);
    rows_.describe_head(head_);
    head_.stores_bias = b_.bias_of_pairs();
  }

  std::int64_t groups() const { return rows_.groups(); }
  std::int64_t key_runs() const {
    return (head_.kv_len + head_.key_run - 1) / head_.key_run;
  }

  // Pass 1, a group of rows.
  void prepare(std::int64_t group) {
    const std::int64_t first = group * kGroupRows;
    const std::int64_t last = std::min(rows_.count(), first + kGroupRows);
    rows_.describe_rows(first, last);
    std::int64_t begin = head_.kv_len;
    for (std::int64_t i = first; i < last; ++i) {
      const kernels::AttentionRow& row = rows_.row(i);
      if (row.begin < row.end) begin = std::min(begin, row.begin);
    }
    // The first run of keys that the group sees is the first to have its turn.
    new (turns_ + group) std::atomic<std::int64_t>(begin / head_.key_run);
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
    const std::int64_t begin = run * head.key_run;
    kernels::backward_keys(
        head, begin, std::min(begin + head.key_run, head.kv_len), scratch);
  }

  // Pass 3, a group of rows.
  void finish(std::int64_t group) { kernels::backward_finish(head_, group); }

  // Adds up what there is one of a head. Other entries and heads have sums of
  // their own.
  void sum_rows(HeadSums& sums) const { rows_.sum(head_, sums); }

 private:
  std::size_t lay_out(std::byte* base) {
    MemoryLayout memory(base);
    rows_.lay_out(memory);
    rows_.lay_out(memory, head_, BackwardParts::kRowsAndKeys);
    memory.take(turns_, groups());
    return memory.used();
  }

  const BackwardProblem<float>& b_;
  const Problem<float>& p_;
  BackwardRows rows_;
  BackwardHead head_{};
  std::atomic<std::int64_t>* turns_ = nullptr;
};

// Scratch for as many tasks as run at once, had before the first begins: a task
// that finds no memory would never have its turn, and those after it would wait
// for ever.
class SharedScratch {
 public:
  SharedScratch(std::size_t floats, int tasks) : tasks_(tasks) {
    stride_ = line_up(floats * sizeof(float));
  }

  std::size_t bytes() const {
    return static_cast<std::size_t>(tasks_) * (stride_ + sizeof(Taken));
  }

  void begin(std::byte* memory) {
    memory_ = memory;
    taken_ = reinterpret_cast<Taken*>(
        memory + static_cast<std::size_t>(tasks_) * stride_);
    for (int i = 0; i < tasks_; ++i) new (taken_ + i) Taken(false);
  }

  template <typename Body>
  void with(const Body& body) const {
    // There is always a free one, or soon.
    for (int i = 0;; i = (i + 1) % tasks_) {
      if (taken_[i].exchange(true, std::memory_order_acquire)) continue;
      body(reinterpret_cast<float*>(memory_ +
                                    static_cast<std::size_t>(i) * stride_));
      return taken_[i].store(false, std::memory_order_release);
    }
  }

 private:
  using Taken = std::atomic<bool>;
  int tasks_;
  std::size_t stride_ = 0;
  std::byte* memory_ = nullptr;
  Taken* taken_ = nullptr;
};

// Whether several heads or entries add to the same gradient of a bias.
bool shares_bias(const BackwardProblem<float>& b) {
  const auto& d = b.gradients.bias;
  return !d.is_null() && ((d.extent(0) == 1 && b.forward.entries > 1) ||
                          (d.extent(1) == 1 && b.forward.heads > 1));
}

// One head a task, all three passes: enough heads to keep the threads busy.
void run_by_heads(const BackwardProblem<float>& b,
                  const EntryMasks<float>& masks, Threads threads,
                  HeadSums& sums) {
  const Problem<float>& p = b.forward;
  const std::int64_t run = kernels::backward_key_run(p.d_k, p.d_v);
  const std::size_t floats =
      kernels::backward_scratch_floats(run, p.d_k, p.d_v);
  parallel_for(threads, p.entries * p.kv_heads, [&](std::int64_t task) {
    HeadWork work(b, masks, task, run);
    const std::size_t bytes = work.bytes();
    std::byte* const memory = thread_scratch(bytes + floats * sizeof(float));
    work.begin(memory);
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
void run_by_keys(const BackwardProblem<float>& b,
                 const EntryMasks<float>& masks, Threads threads,
                 HeadSums& sums) {
  const Problem<float>& p = b.forward;
  for (std::int64_t i = 0; i < p.entries * p.kv_heads; ++i) {
    // Short enough that every thread has some.
    const std::int64_t share = p.entry(i / p.kv_heads).kv_len /
                               (4 * threads.count) / kKeyBlock * kKeyBlock;
    const std::int64_t run = std::clamp<std::int64_t>(
        share, kKeyBlock, kernels::backward_key_run(p.d_k, p.d_v));
    const std::size_t floats =
        kernels::backward_scratch_floats(run, p.d_k, p.d_v);
    HeadWork work(b, masks, i, run);
    SharedScratch scratch(floats, threads.count);
    const std::size_t bytes = line_up(work.bytes());
    std::byte* const memory =
        thread_scratch(bytes + scratch.bytes(), Scratch::kCall);
    work.begin(memory);
    scratch.begin(memory + bytes);
    parallel_for(threads, work.groups(),
                 [&](std::int64_t g) { work.prepare(g); });
    parallel_for(threads, work.key_runs(), [&](std::int64_t k) {
      scratch.with(
          [&](float* memory_of_task) { work.run_keys(k, memory_of_task); });
    });
    parallel_for(threads, work.groups(),
                 [&](std::int64_t g) { work.finish(g); });
    work.sum_rows(sums);
  }
}

}  // namespace

void engine_backward(const BackwardProblem<float>& b,
                     const EntryMasks<float>& masks) {
  const Problem<float>& p = b.forward;
  HeadSums sums(p.entries, p.heads);
  if (p.entries > 0 && p.heads > 0) {
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

}  // namespace regard::detail
