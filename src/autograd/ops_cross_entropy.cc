// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "autograd/copies.h"
#include "autograd/packed_linear.h"
#include "kernels/cross_entropy.h"
#include "kernels/gemm.h"
#include "ops/product.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

constexpr const char* kWhere = "autograd::cross_entropy";

// Rows whose scores one task makes and uses up: about 5 MB of them.
std::int64_t rows_at_once(std::int64_t vocab) {
  constexpr std::int64_t kScores = 5 << 18;
  return std::clamp<std::int64_t>(
      kScores / std::max<std::int64_t>(vocab, 1) / kernels::kGemmRowGrain *
          kernels::kGemmRowGrain,
      kernels::kGemmRowGrain, kernels::kGemmBlockRows);
}

// One call: the scores exist for `chunk` rows at a time.
class Projection {
 public:
  // `copies` may be null.
  Projection(Tape& tape, const Variable& x, const Variable& weight,
             const Variable& bias, const Copies* copies)
      : tape_(tape), x_(x), weight_(weight), bias_(bias), copies_(copies) {
    const ops::PackOptions pack = pack_options(tape);
    forward_ = ops::PackedWeights::pack(weight.value(), pack);
    if (x.needs_gradient()) {
      backward_ = ops::PackedWeights::pack_transposed(weight.value(), pack);
      d_x_ = tape.gradient_target(x);
    }
    d_weight_ = tape.gradient_sum(weight);
    d_bias_ = tape.gradient_sum(bias);
    stride_ = ops::padded_stride(weight.rows());
    block_ = rows_at_once(weight.rows());
  }

  CrossEntropySum run(std::span<const std::int32_t> targets, float smoothing) {
    const std::int64_t rows = x_.rows();
    // Whole chains of the product that makes the gradient of the weight: its
    // bits depend on where they begin, and must not depend on threads.
    const std::int64_t chunk = std::min(
        rows, ops::blocks_of(
                  block_ * std::max(1, thread_count(tape_.threads(), rows)),
                  kernels::kGemmChain) *
                  kernels::kGemmChain);
    const std::shared_ptr<float> scores = tape_.memory(chunk * stride_);
    std::vector<kernels::CrossEntropyRow> losses(targets.size());
    for (std::int64_t first = 0; first < rows; first += chunk) {
      const std::int64_t count = std::min(chunk, rows - first);
      // Blocks of equal size, so that no thread is left with a rest.
      const std::int64_t blocks = (count + block_ - 1) / block_;
      const std::int64_t block = (count + blocks - 1) / blocks;
      ops::over_row_blocks(tape_.threads(), count, block,
                           [&](std::int64_t begin, std::int64_t end) {
                             run_rows(first + begin, first + end,
                                      scores.get() + begin * stride_, targets,
                                      smoothing, losses);
                           });
      if (d_weight_ == nullptr && d_bias_ == nullptr) continue;
      const std::int64_t in = x_.columns();
      ops::WeightGradient gradient{
          .d_y = ops::columns(scores.get(), count, weight_.rows(), stride_),
          .x = {x_.data() + first * in, {count, in}},
          .d_bias = d_bias_,
          .products = products_of(tape_)};
      if (d_weight_ != nullptr) {
        gradient.d_weight = {d_weight_, {weight_.rows(), in}};
      }
      ops::add_weight_gradient(gradient, tape_.pool(), tape_.threads());
    }
    CrossEntropySum sum;
    for (const kernels::CrossEntropyRow& row : losses) {
      sum.loss += row.loss;
      sum.likelihood += row.likelihood;
    }
    return sum;
  }

 private:
  // 1. The scores of some rows. 2. The loss, and the scores' gradient in their
  // place. 3. The gradient of x.
  void run_rows(std::int64_t begin, std::int64_t end, float* scores,
                std::span<const std::int32_t> targets, float smoothing,
                std::vector<kernels::CrossEntropyRow>& losses) const {
    const std::int64_t in = x_.columns();
    const std::int64_t vocab = weight_.rows();
    const ops::Rows y = ops::columns(scores, end - begin, vocab, stride_);
    forward_.multiply({x_.data() + begin * in, {end - begin, in}}, 0,
                      bias_.data(), y, kernels::Start::kZero);
    const bool learns = d_weight_ != nullptr || d_x_.data != nullptr ||
                        d_bias_ != nullptr ||
                        (copies_ != nullptr && tape_.records());
    const auto gradient =
        learns ? kernels::WithGradient::kYes : kernels::WithGradient::kNo;
    for (std::int64_t r = begin; r < end; ++r) {
      float* const row = scores + (r - begin) * stride_;
      const std::int32_t target = targets[static_cast<std::size_t>(r)];
      losses[static_cast<std::size_t>(r)] =
          copies_ == nullptr
              ? kernels::cross_entropy_row(row, vocab, target, smoothing,
                                           gradient)
              : copies_->row(r, {row, static_cast<std::size_t>(vocab)}, target,
                             smoothing, gradient);
    }
    if (d_x_.data == nullptr) return;
    backward_.multiply(
        y, 0, nullptr, {d_x_.data + begin * in, {end - begin, in}},
        d_x_.add ? kernels::Start::kResult : kernels::Start::kZero);
  }

  Tape& tape_;
  const Variable &x_, &weight_, &bias_;
  const Copies* copies_;
  ops::PackedWeights forward_, backward_;  // weight, and for d_x
  Tape::Target d_x_;
  float* d_weight_ = nullptr;
  float* d_bias_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t block_ = 0;
};

}  // namespace

CrossEntropySum cross_entropy(Tape& tape, const Variable& x,
                              const Variable& weight, const Variable& bias,
                              std::span<const std::int32_t> targets,
                              float label_smoothing,
                              const CopyAttention& copy) {
  require(weight.columns() == x.columns(), kWhere,
          "weight must be [vocab, in] with the columns of x; it is [",
          weight.rows(), ", ", weight.columns(), "], x is [", x.rows(), ", ",
          x.columns(), "]");
  require(bias.is_null() || bias.columns() == weight.rows(), kWhere,
          "bias must hold one value per row of weight, which has ",
          weight.rows(), "; it has ", bias.columns());
  require(static_cast<std::int64_t>(targets.size()) == x.rows(), kWhere,
          "there must be one target a row; x has ", x.rows(),
          " rows, targets are ", targets.size());
  require(label_smoothing >= 0 && label_smoothing <= 1, kWhere,
          "label_smoothing must be in [0, 1]; it is ", label_smoothing);
  for (const std::int32_t target : targets) {
    require(target >= 0 && target < weight.rows(), kWhere,
            "a target must lie in 0 .. ", weight.rows() - 1, "; got ", target);
  }
  if (!copy.q.is_null()) check(copy, x.rows(), weight.rows());
  if (targets.empty()) return {};
  std::optional<Copies> copies;
  if (!copy.q.is_null()) copies.emplace(tape, copy);
  const CrossEntropySum sum =
      Projection(tape, x, weight, bias, copies ? &*copies : nullptr)
          .run(targets, label_smoothing);
  if (copies && tape.records()) copies->add_gradients();
  return sum;
}

}  // namespace regard::autograd
