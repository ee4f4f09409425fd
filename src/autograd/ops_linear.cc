// SPDX-License-Identifier: Apache-2.0
#include <cassert>

#include "autograd/element_dropout.h"
#include "autograd/packed_linear.h"
#include "ops/activate.h"
#include "ops/product.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

constexpr const char* kWhere = "autograd::linear";

// The epilogue of training: f and dropout. `inner` is x weight^T + bias [rows,
// width], or for ReLU, whose sign is enough, the same memory as `outer`.
struct TrainingEpilogue {
  Activation f = Activation::kNone;
  kernels::RowDropout dropout;
  std::int64_t width = 0;        // of inner
  std::int64_t outer_width = 0;  // of the result

  bool is_nothing() const { return f == Activation::kNone && !drops(dropout); }
  // Whether the inner values must be kept beside the result.
  bool keeps_inner() const {
    return f != Activation::kNone && f != Activation::kRelu;
  }

  void forward(const float* inner, float* outer, std::int64_t begin,
               std::int64_t end) const {
    const std::int64_t rows = end - begin;
    const float* const from = inner + begin * width;
    float* const to = outer + begin * outer_width;
    if (is_gated(f)) {
      for (std::int64_t r = 0; r < rows; ++r) {
        ops::activate_gated(f, from + r * width, from + r * width + outer_width,
                            outer_width, to + r * outer_width);
      }
    } else {
      ops::activate(f, from, rows * width, to);
    }
    drop(to, begin, end);
  }

  // d_inner from d_outer, which is overwritten; they may be one.
  void backward(const float* inner, float* d_outer, float* d_inner,
                std::int64_t begin, std::int64_t end) const {
    const std::int64_t rows = end - begin;
    drop(d_outer + begin * outer_width, begin, end);
    const float* const at = inner + begin * width;
    const float* const from = d_outer + begin * outer_width;
    float* const to = d_inner + begin * width;
    if (is_gated(f)) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const row = at + r * width;
        float* const d_row = to + r * width;
        ops::activate_gated_backward(f, row, row + outer_width,
                                     from + r * outer_width, outer_width, d_row,
                                     d_row + outer_width);
      }
    } else {
      ops::activate_backward(f, at, from, rows * width, to);
    }
  }

 private:
  void drop(float* rows, std::int64_t begin, std::int64_t end) const {
    if (!drops(dropout)) return;
    kernels::dropout_add({.rows = end - begin,
                          .width = outer_width,
                          .first_row = begin,
                          .x = rows,
                          .y = rows},
                         dropout);
  }
};

struct LinearStep {
  Tape* tape = nullptr;
  Variable x, weight, bias, out;
  std::shared_ptr<float> inner;  // see TrainingEpilogue
  TrainingEpilogue epilogue;
  std::int64_t first = 0;

  void operator()() const {
    std::shared_ptr<float> d_outer = tape->take_gradient(out);
    if (d_outer == nullptr) return;
    const std::int64_t rows = x.rows();
    const std::int64_t width = epilogue.width;
    std::shared_ptr<float> d_inner = d_outer;
    if (epilogue.width != epilogue.outer_width) {
      d_inner = tape->memory(rows * width);
    }
    const auto prepare = [&](std::int64_t begin, std::int64_t end) {
      if (epilogue.is_nothing()) return;
      epilogue.backward(inner.get(), d_outer.get(), d_inner.get(), begin, end);
    };
    const std::int64_t in = x.columns();
    const ops::ConstRows d_y{d_inner.get(), {rows, width}};
    const Tape::Target d_x = tape->gradient_target(x);
    if (d_x.data != nullptr) {
      const auto packed = ops::PackedWeights::transposed_for(
          rows, {weight.data() + first * in, {width, in}}, pack_options(*tape));
      ops::multiply_rows({.x = d_y,
                          .weight = &packed,
                          .y = {d_x.data, {rows, in}},
                          .add = d_x.add},
                         tape->threads(), prepare, ops::no_rows);
    } else {
      ops::over_row_blocks(tape->threads(), rows, ops::kRowBlock, prepare);
    }
    float* const d_weight = tape->gradient_sum(weight);
    float* const d_bias = tape->gradient_sum(bias);
    ops::WeightGradient gradient{
        .d_y = d_y, .x = x.value(), .products = products_of(*tape)};
    if (d_weight != nullptr) {
      gradient.d_weight = {d_weight + first * in, {width, in}};
    }
    if (d_bias != nullptr) gradient.d_bias = d_bias + first;
    ops::add_weight_gradient(gradient, tape->pool(), tape->threads());
  }
};

// The epilogue of x weight^T + bias for rows [first, first + width) of all.
TrainingEpilogue epilogue_of(const LinearOptions& options, std::int64_t width,
                             std::int64_t all) {
  require(options.first >= 0 && width >= 0 && options.first + width <= all,
          kWhere, "the rows asked for must be rows of weight, which has ", all,
          "; first is ", options.first, ", count is ", options.count);
  const bool halves = is_gated(options.activation);
  require(!halves || width % 2 == 0, kWhere,
          "a gated activation needs an even number of columns; there are ",
          width);
  return {options.activation, row_dropout(options.dropout, kWhere), width,
          halves ? width / 2 : width};
}

struct LinearResult {
  Variable out;
  std::shared_ptr<float> inner;  // see TrainingEpilogue
};
LinearResult multiply(Tape& tape, const Variable& x,
                      const ops::PackedWeights& weight, const float* bias,
                      const TrainingEpilogue& epilogue, bool depends) {
  const std::int64_t rows = x.rows();
  LinearResult result{tape.result(rows, epilogue.outer_width, depends), {}};
  float* const outer = result.out.mutable_data();
  float* product = outer;
  if (epilogue.keeps_inner()) {
    result.inner = tape.memory(rows * epilogue.width);
    product = result.inner.get();
  }
  ops::multiply_rows({.x = x.value(),
                      .weight = &weight,
                      .bias = bias,
                      .y = {product, {rows, epilogue.width}}},
                     tape.threads(), ops::no_rows,
                     [&](std::int64_t begin, std::int64_t end) {
                       if (epilogue.is_nothing()) return;
                       epilogue.forward(product, outer, begin, end);
                     });
  return result;
}

}  // namespace

Variable linear(Tape& tape, const Variable& x, const Variable& weight,
                const Variable& bias, const LinearOptions& options) {
  require(weight.columns() == x.columns(), kWhere,
          "weight must be [out, in] with the columns of x; it is [",
          weight.rows(), ", ", weight.columns(), "], x is [", x.rows(), ", ",
          x.columns(), "]");
  const TrainingEpilogue epilogue = epilogue_of(
      options,
      options.count < 0 ? weight.rows() - options.first : options.count,
      weight.rows());
  require(bias.is_null() || bias.columns() == weight.rows(), kWhere,
          "bias must hold one value per row of weight, which has ",
          weight.rows(), "; it has ", bias.columns());
  LinearResult result;
  {
    const auto packed = ops::PackedWeights::pack_for(
        x.rows(),
        {weight.data() + options.first * x.columns(),
         {epilogue.width, x.columns()}},
        pack_options(tape));
    result = multiply(
        tape, x, packed, bias.is_null() ? nullptr : bias.data() + options.first,
        epilogue,
        x.needs_gradient() || weight.needs_gradient() || bias.needs_gradient());
  }
  const Variable& out = result.out;
  if (!out.needs_gradient()) return out;
  LinearStep step{&tape,
                  x,
                  weight,
                  bias,
                  out.without_values(),
                  std::move(result.inner),
                  epilogue,
                  options.first};
  if (options.activation == Activation::kRelu) step.inner = out.share();
  tape.record(std::move(step));
  return out;
}

Variable linear(Tape& tape, const Variable& x, const ops::PackedWeights& weight,
                const Variable& bias, const LinearOptions& options) {
  assert(!tape.records());
  const std::int64_t width = weight.out();
  require(weight.in() == x.columns(), kWhere,
          "weight must be [out, in] with the columns of x; it is [", width,
          ", ", weight.in(), "], x is [", x.rows(), ", ", x.columns(), "]");
  require(options.count < 0 || options.count == width, kWhere,
          "the rows asked for must be those that were packed, ", width,
          "; count is ", options.count);
  require(bias.is_null() || options.first + width <= bias.columns(), kWhere,
          "bias must hold one value per row of weight, ", options.first + width,
          "; it has ", bias.columns());
  return multiply(tape, x, weight,
                  bias.is_null() ? nullptr : bias.data() + options.first,
                  epilogue_of(options, width, options.first + width), false)
      .out;
}

}  // namespace regard::autograd
