// SPDX-License-Identifier: Apache-2.0
#include "regard/autograd/tape.h"

#include <algorithm>
#include <utility>

#include "kernels/rows.h"
#include "ops/rows.h"
#include "regard/core/error.h"

namespace regard::autograd {
namespace {

// A borrowed pointer in the clothes of an owner.
std::shared_ptr<float> borrowed(const float* data) {
  // Never written through: Variable::mutable_data is for results.
  return {std::shared_ptr<void>(), const_cast<float*>(data)};
}

}  // namespace

Tape::Tape(Record record, Threads threads, MemoryPool pool, Compute compute)
    : record_(record),
      threads_(threads),
      compute_(compute),
      pool_(std::move(pool)) {}

Tape::~Tape() = default;

std::int64_t Tape::new_slot(std::int64_t floats) {
  slots_.push_back({floats, nullptr, false});
  return static_cast<std::int64_t>(slots_.size()) - 1;
}

Variable Tape::parameter(const Tensor& value, Tensor* gradient) {
  require(value.rank() == 1 || value.rank() == 2, "Tape::parameter",
          "a parameter must have one or two extents; it is ",
          ShapeText{value.shape()});
  Variable v;
  v.values_ = borrowed(value.values<float>().data());
  v.rows_ = value.rank() == 2 ? value.shape()[0] : 1;
  v.columns_ = value.shape().back();
  if (gradient != nullptr && records()) {
    require(gradient->shape() == value.shape(), "Tape::parameter",
            "the gradient must have the parameter's shape; it is ",
            ShapeText{gradient->shape()}, ", the parameter is ",
            ShapeText{value.shape()});
    v.slot_ = new_slot(value.size());
    slots_.back().values = borrowed(gradient->values<float>().data());
    slots_.back().foreign = true;
  }
  return v;
}

Variable Tape::constant(TensorView<const float, 2> value) {
  require(value.is_contiguous(), "Tape::constant",
          "the rows must follow each other; strides are ",
          ShapeText{value.strides()});
  Variable v;
  v.values_ = borrowed(value.data());
  v.rows_ = value.extent(0);
  v.columns_ = value.extent(1);
  return v;
}

Variable Tape::input(TensorView<const float, 2> value) {
  Variable v = constant(value);
  if (records()) v.slot_ = new_slot(value.size());
  return v;
}

Variable Tape::result(std::int64_t rows, std::int64_t columns, bool depends) {
  Variable v;
  v.values_ = pool_.take(rows * columns);
  v.rows_ = rows;
  v.columns_ = columns;
  if (records() && depends) v.slot_ = new_slot(rows * columns);
  return v;
}

std::shared_ptr<float> Tape::memory(std::int64_t floats) {
  return pool_.take(floats);
}

void Tape::record(std::function<void()> backward) {
  if (records()) steps_.push_back(std::move(backward));
}

Tape::Target Tape::gradient_target(const Variable& of) {
  if (of.slot_ < 0) return {};
  Slot& slot = slots_[static_cast<std::size_t>(of.slot_)];
  if (slot.values != nullptr) return {slot.values.get(), true};
  slot.values = pool_.take(slot.floats);
  return {slot.values.get(), false};
}

float* Tape::gradient_sum(const Variable& of) {
  const Target target = gradient_target(of);
  if (target.data != nullptr && !target.add) {
    std::fill_n(target.data, of.rows_ * of.columns_, 0.0f);
  }
  return target.data;
}

std::shared_ptr<float> Tape::take_gradient(const Variable& of) {
  if (of.slot_ < 0) return nullptr;
  return std::exchange(slots_[static_cast<std::size_t>(of.slot_)].values,
                       nullptr);
}

void Tape::give_gradient(const Variable& to, std::shared_ptr<float> gradient) {
  if (to.slot_ < 0) return;
  Slot& slot = slots_[static_cast<std::size_t>(to.slot_)];
  if (slot.values == nullptr) {
    slot.values = std::move(gradient);
    return;
  }
  constexpr std::int64_t kBlock = 1 << 15;
  ops::over_row_blocks(
      threads_, slot.floats, kBlock, [&](std::int64_t begin, std::int64_t end) {
        kernels::add_scaled(gradient.get() + begin, 1.0f, end - begin,
                            slot.values.get() + begin);
      });
}

void Tape::backward(const Variable& result,
                    TensorView<const float, 2> d_result) {
  require(result.needs_gradient(), "Tape::backward",
          "the result must depend on a parameter or an input");
  require(d_result.extent(0) == result.rows() &&
              d_result.extent(1) == result.columns(),
          "Tape::backward", "d_result must have the result's shape; it is ",
          ShapeText{d_result.shape()}, ", the result is [", result.rows(), ", ",
          result.columns(), "]");
  const Target target = gradient_target(result);
  for (std::int64_t r = 0; r < result.rows(); ++r) {
    const float* const row = d_result.at(r);
    float* const to = target.data + r * result.columns();
    for (std::int64_t c = 0; c < result.columns(); ++c) {
      to[c] = target.add ? to[c] + row[c] : row[c];
    }
  }
  backward();
}

void Tape::backward() {
  while (!steps_.empty()) {
    // The step's own memory goes as soon as it is done.
    const std::function<void()> step = std::move(steps_.back());
    steps_.pop_back();
    step();
  }
}

Tensor Tape::gradient_of(const Variable& input) {
  require(input.needs_gradient(), "Tape::gradient_of",
          "the variable must be an input of this tape");
  Tensor gradient({input.rows(), input.columns()});
  const Slot& slot = slots_[static_cast<std::size_t>(input.slot_)];
  if (slot.values != nullptr) {
    std::copy_n(slot.values.get(), slot.floats,
                gradient.values<float>().data());
  }
  return gradient;
}

}  // namespace regard::autograd
