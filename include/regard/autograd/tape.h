// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/core/threads.h"
#include "regard/ops/memory_pool.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::autograd {

using ops::MemoryPool;

class Tape;

// A matrix of floats that a tape knows: [rows, columns], contiguous. A small
// handle: copies share the values, which live as long as a handle or an
// operation that needs them for its gradient.
class Variable {
 public:
  Variable() = default;

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const float* data() const { return values_.get(); }
  float* mutable_data() { return values_.get(); }
  TensorView<const float, 2> value() const {
    return {values_.get(), {rows_, columns_}};
  }
  bool is_null() const { return values_ == nullptr; }
  bool needs_gradient() const { return slot_ >= 0; }

  // For those who write operations: the values alone, the values without the
  // gradient, and the place of the gradient without the values, so that a step
  // keeps no more than it needs.
  std::shared_ptr<float> share() const { return values_; }
  bool is_same(const Variable& other) const {
    return values_ == other.values_ && slot_ == other.slot_;
  }
  Variable without_gradient() const {
    Variable v = *this;
    v.slot_ = -1;
    return v;
  }
  Variable without_values() const {
    Variable v = *this;
    v.values_ = nullptr;
    return v;
  }

 private:
  friend class Tape;
  std::shared_ptr<float> values_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t slot_ = -1;  // where the tape keeps the gradient
};

enum class Record {
  kNo,   // values alone: memory is free as soon as its last handle goes
  kYes,  // what backward needs is kept
};

// Writes down what was done, to unwind it for the gradients. Operations
// (regard/autograd/operations.h) add to it; backward() goes through them in
// reverse, and gives back the memory of each as soon as it is done with it.
//
// The order of every sum is fixed, so no bit depends on the number of threads.
// With Compute::kBFloat16 both sides of matrix products, forward and backward,
// are rounded to bf16 and sums stay in float, as are those of attention to long
// sentences; values and gradients are float all the same.
class Tape {
 public:
  explicit Tape(Record record = Record::kYes, Threads threads = {},
                MemoryPool pool = {}, Compute compute = Compute::kFloat32);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool records() const { return record_ == Record::kYes; }
  Threads threads() const { return threads_; }
  Compute compute() const { return compute_; }
  MemoryPool& pool() { return pool_; }

  // Values that stand elsewhere and must outlive the tape. A tensor of rank 1
  // is one row. `gradient`, of the same shape, is added to; null: none.
  Variable parameter(const Tensor& value, Tensor* gradient);
  Variable constant(TensorView<const float, 2> value);
  // Its gradient is kept for gradient_of().
  Variable input(TensorView<const float, 2> value);

  // Starts from the gradient of `result` and unwinds everything. The tape is
  // empty then. What operations seeded themselves (the loss) is unwound with
  // it; without arguments nothing else is.
  void backward(const Variable& result, TensorView<const float, 2> d_result);
  void backward();

  // Of an input, after backward(): zeros if nothing depends on it.
  Tensor gradient_of(const Variable& input);

  // For those who write operations.

  // A new value of this shape, not initialised. Needs a gradient if the tape
  // records and `depends` says so.
  Variable result(std::int64_t rows, std::int64_t columns, bool depends);
  std::shared_ptr<float> memory(std::int64_t floats);
  // The closure runs once, in reverse order of these calls. It holds what it
  // needs, so nothing else is kept.
  void record(std::function<void()> backward);

  // Where the gradient of a variable goes. `add`: something is there already;
  // otherwise it must be written in full. data is null if none is wanted.
  struct Target {
    float* data = nullptr;
    bool add = false;
  };
  Target gradient_target(const Variable& of);
  // The same for those who can only add: zeros if nothing came yet.
  float* gradient_sum(const Variable& of);
  // The gradient that came to a result; null if none did. The slot is empty
  // afterwards.
  std::shared_ptr<float> take_gradient(const Variable& of);
  // Adds a whole gradient, whose memory the tape may keep: nobody else may use
  // it from here on.
  void give_gradient(const Variable& to, std::shared_ptr<float> gradient);

 private:
  struct Slot {
    std::int64_t floats = 0;
    std::shared_ptr<float> values;  // null: nothing came yet
    bool foreign = false;           // a parameter's own tensor
  };
  std::int64_t new_slot(std::int64_t floats);

  Record record_;
  Threads threads_;
  Compute compute_;
  MemoryPool pool_;
  std::vector<Slot> slots_;
  std::vector<std::function<void()>> steps_;
};

}  // namespace regard::autograd
