// SPDX-License-Identifier: Apache-2.0
#include "autograd/element_dropout.h"
#include "autograd/products.h"
#include "kernels/activations.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

constexpr const char* kWhere = "autograd::linear";

kernels::Activation kernel_of(Activation f) {
  switch (f) {
    case Activation::kGelu:
      return kernels::Activation::kGelu;
    case Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case Activation::kSilu:
    case Activation::kSwiglu:
      return kernels::Activation::kSilu;
    default:
      return kernels::Activation::kRelu;
  }
}

// What stands behind the product: f and dropout. `inner` is x weight^T + bias
// [rows, width], or for ReLU, whose sign is enough, the same memory as `outer`.
struct Behind {
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
    if (f == Activation::kSwiglu) {
      for (std::int64_t r = 0; r < rows; ++r) {
        kernels::swiglu(from + r * width, from + r * width + outer_width,
                        outer_width, to + r * outer_width);
      }
    } else if (f != Activation::kNone) {
      kernels::activate(kernel_of(f), from, rows * width, to);
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
    if (f == Activation::kSwiglu) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const row = at + r * width;
        float* const d_row = to + r * width;
        kernels::swiglu_backward(
            {row, row + outer_width, from + r * outer_width, d_row,
             d_row + outer_width},
            outer_width);
      }
    } else if (f != Activation::kNone) {
      kernels::activate_backward(kernel_of(f), at, from, rows * width, to);
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
  std::shared_ptr<float> inner;  // see Behind
  Behind behind;
  std::int64_t first = 0;

  void operator()() const {
    std::shared_ptr<float> d_outer = tape->take_gradient(out);
    if (d_outer == nullptr) return;
    const std::int64_t rows = x.rows();
    const std::int64_t width = behind.width;
    std::shared_ptr<float> d_inner = d_outer;
    if (behind.width != behind.outer_width) {
      d_inner = tape->memory(rows * width);
    }
    const auto prepare = [&](std::int64_t begin, std::int64_t end) {
      if (behind.is_nothing()) return;
      behind.backward(inner.get(), d_outer.get(), d_inner.get(), begin, end);
    };
    const ConstRows d_y{d_inner.get(), rows, width, width};
    const Tape::Target d_x = tape->gradient_target(x);
    if (d_x.data != nullptr) {
      const std::shared_ptr<float> packed =
          pack_for_backward({weight.data() + first * x.columns(), width,
                             x.columns(), x.columns()},
                            tape->pool(), tape->threads());
      multiply({.x = d_y,
                .packed = packed.get(),
                .y = {d_x.data, rows, x.columns(), x.columns()},
                .add = d_x.add},
               tape->threads(), prepare);
    } else {
      over_row_blocks(tape->threads(), rows, 64, prepare);
    }
    float* const d_weight = tape->gradient_sum(weight);
    float* const d_bias = tape->gradient_sum(bias);
    add_weight_gradient(
        {.d_y = d_y,
         .x = {x.data(), rows, x.columns(), x.columns()},
         .d_weight =
             d_weight == nullptr ? nullptr : d_weight + first * x.columns(),
         .d_weight_stride = x.columns(),
         .d_bias = d_bias == nullptr ? nullptr : d_bias + first},
        tape->pool(), tape->threads());
  }
};

}  // namespace

Variable linear(Tape& tape, const Variable& x, const Variable& weight,
                const Variable& bias, const LinearOptions& options) {
  const std::int64_t width =
      options.count < 0 ? weight.rows() - options.first : options.count;
  require(weight.columns() == x.columns(), kWhere,
          "weight must be [out, in] with the columns of x; it is [",
          weight.rows(), ", ", weight.columns(), "], x is [", x.rows(), ", ",
          x.columns(), "]");
  require(options.first >= 0 && width >= 0 &&
              options.first + width <= weight.rows(),
          kWhere, "the rows asked for must be rows of weight, which has ",
          weight.rows(), "; first is ", options.first, ", count is ",
          options.count);
  require(bias.is_null() || bias.columns() == weight.rows(), kWhere,
          "bias must hold one value a row of weight, which has ", weight.rows(),
          "; it has ", bias.columns());
  const bool halves = options.activation == Activation::kSwiglu;
  require(!halves || width % 2 == 0, kWhere,
          "SwiGLU needs an even number of columns; there are ", width);

  Behind behind{options.activation, row_dropout(options.dropout, kWhere), width,
                halves ? width / 2 : width};
  const std::int64_t rows = x.rows();
  const bool depends =
      x.needs_gradient() || weight.needs_gradient() || bias.needs_gradient();
  Variable out = tape.result(rows, behind.outer_width, depends);
  std::shared_ptr<float> inner;
  if (behind.keeps_inner()) inner = tape.memory(rows * width);
  float* const product = inner == nullptr ? out.mutable_data() : inner.get();
  float* const outer = out.mutable_data();
  {
    const std::shared_ptr<float> packed =
        pack_for_forward({weight.data() + options.first * x.columns(), width,
                          x.columns(), x.columns()},
                         tape.pool(), tape.threads());
    multiply({.x = {x.data(), rows, x.columns(), x.columns()},
              .packed = packed.get(),
              .bias = bias.is_null() ? nullptr : bias.data() + options.first,
              .y = {product, rows, width, width}},
             tape.threads(), no_rows,
             [&](std::int64_t begin, std::int64_t end) {
               if (behind.is_nothing()) return;
               behind.forward(product, outer, begin, end);
             });
  }
  if (!out.needs_gradient()) return out;
  LinearStep step{&tape,
                  x,
                  weight,
                  bias,
                  out.without_values(),
                  std::move(inner),
                  behind,
                  options.first};
  if (options.activation == Activation::kRelu) step.inner = out.share();
  tape.record(std::move(step));
  return out;
}

}  // namespace regard::autograd
