// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

void check(const RotaryConfig& c, std::int64_t positions) {
  constexpr const char* kWhere = "rotary_table";
  require(c.rotary_dim >= 0 && c.rotary_dim % 2 == 0, kWhere,
          "rotary_dim must be even and not negative; it is ", c.rotary_dim);
  require(positions >= 0, kWhere, "positions must not be negative; got ",
          positions);
  require(std::isfinite(c.base) && c.base > 1, kWhere,
          "base must be finite and above 1; it is ", c.base);
  require(std::isfinite(c.factor) && c.factor >= 1, kWhere,
          "factor must be finite and at least 1; it is ", c.factor);
  require(c.scaling != RotaryScaling::kNone || c.factor == 1, kWhere,
          "a factor needs a scaling; it is ", c.factor);
  require(c.scaling != RotaryScaling::kNtk || c.rotary_dim > 2, kWhere,
          "NTK scaling needs a rotary_dim above 2; it is ", c.rotary_dim);
  const bool trained =
      c.scaling == RotaryScaling::kYarn || c.scaling == RotaryScaling::kLlama3;
  require(!trained || c.trained_length > 0, kWhere,
          "trained_length must be positive for this scaling; it is ",
          c.trained_length);
  require(c.scaling != RotaryScaling::kYarn ||
              (c.beta_slow > 0 && c.beta_fast >= c.beta_slow &&
               std::isfinite(c.beta_fast)),
          kWhere, "0 < beta_slow <= beta_fast must hold; they are ",
          c.beta_slow, " and ", c.beta_fast);
  require(std::isfinite(c.attention_factor) && c.attention_factor >= 0, kWhere,
          "attention_factor must be finite and not negative; it is ",
          c.attention_factor);
  require(c.scaling != RotaryScaling::kLlama3 ||
              (c.low_frequency > 0 && c.high_frequency > c.low_frequency &&
               std::isfinite(c.high_frequency)),
          kWhere, "0 < low_frequency < high_frequency must hold; they are ",
          c.low_frequency, " and ", c.high_frequency);
  if (c.divisors.empty()) return;
  require(c.scaling == RotaryScaling::kNone, kWhere,
          "divisors are a scaling of their own; there is another");
  require(std::ssize(c.divisors) == c.rotary_dim / 2, kWhere,
          "there must be a divisor for each of ", c.rotary_dim / 2,
          " pairs; got ", c.divisors.size());
  for (const float divisor : c.divisors) {
    require(std::isfinite(divisor) && divisor > 0, kWhere,
            "divisors must be finite and positive; there is ", divisor);
  }
}

// The pair, as a real number, that rotates `turns` times in trained_length.
double pair_that_rotates(const RotaryConfig& c, double turns) {
  const double length = static_cast<double>(c.trained_length);
  return static_cast<double>(c.rotary_dim) *
         std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(c.base));
}

// How much of pair i's own frequency is kept, the rest being slowed down.
double yarn_share(const RotaryConfig& c, std::int64_t i) {
  const double last = static_cast<double>(c.rotary_dim - 1);
  const double low =
      std::max(0.0, std::floor(pair_that_rotates(c, c.beta_fast)));
  double high = std::min(last, std::ceil(pair_that_rotates(c, c.beta_slow)));
  if (high == low) high += 0.001;  // a step, not a division by zero
  const double ramp = (static_cast<double>(i) - low) / (high - low);
  return 1.0 - std::clamp(ramp, 0.0, 1.0);
}

double llama3_share(const RotaryConfig& c, double frequency) {
  const double waves = static_cast<double>(c.trained_length) * frequency /
                       (2 * std::numbers::pi);
  return std::clamp(
      (waves - c.low_frequency) / (c.high_frequency - c.low_frequency), 0.0,
      1.0);
}

double frequency_of(const RotaryConfig& c, std::int64_t i) {
  const double dim = static_cast<double>(c.rotary_dim);
  const double exponent = -2.0 * static_cast<double>(i) / dim;
  if (c.scaling == RotaryScaling::kNtk) {
    const double base = c.base * std::pow(c.factor, dim / (dim - 2.0));
    return std::pow(base, exponent);
  }
  const double own = std::pow(c.base, exponent);
  if (!c.divisors.empty()) {
    return own / static_cast<double>(c.divisors[static_cast<std::size_t>(i)]);
  }
  double share = 0.0;  // kLinear
  if (c.scaling == RotaryScaling::kNone) share = 1.0;
  if (c.scaling == RotaryScaling::kYarn) share = yarn_share(c, i);
  if (c.scaling == RotaryScaling::kLlama3) share = llama3_share(c, own);
  return share * own + (1.0 - share) * (own / c.factor);
}

double amplitude_of(const RotaryConfig& c) {
  if (c.scaling != RotaryScaling::kYarn) return 1.0;
  if (c.attention_factor > 0) return c.attention_factor;
  return 0.1 * std::log(c.factor) + 1.0;
}

struct Call {
  const char* where;
  void (*rotate)(const kernels::Rope&) noexcept;
};

void check(const char* where, const TensorView<const float, 4>& x,
           const TensorView<const float, 2>& cos,
           const TensorView<const float, 2>& sin,
           const TensorView<float, 4>& out, const RotaryOptions& options) {
  require(out.shape() == x.shape(), where,
          "both sides must have the same shape; they are ",
          ShapeText{x.shape()}, " and ", ShapeText{out.shape()});
  require(cos.shape() == sin.shape(), where,
          "cos and sin must have the same shape; they are ",
          ShapeText{cos.shape()}, " and ", ShapeText{sin.shape()});
  require(
      2 * cos.extent(1) <= x.extent(3), where,
      "the tables rotate twice their width of elements, which must fit in a "
      "vector; they are ",
      ShapeText{cos.shape()}, ", the vectors are ", ShapeText{x.shape()});
  const auto& positions = options.positions;
  const std::int64_t len = x.extent(2);
  if (positions.is_null()) {
    require(len <= cos.extent(0) || x.size() == 0, where,
            "each position needs a row of the tables; len is ", len,
            ", the tables are ", ShapeText{cos.shape()});
    return;
  }
  require((positions.extent(0) == x.extent(0) || positions.extent(0) == 1) &&
              positions.extent(1) == len,
          where, "positions must be [", x.extent(0), " or 1, ", len,
          "]; they are ", ShapeText{positions.shape()});
  for (std::int64_t b = 0; b < positions.extent(0); ++b) {
    for (std::int64_t i = 0; i < len; ++i) {
      const std::int64_t position = positions(b, i);
      require(position >= 0 && position < cos.extent(0), where,
              "each position needs a row of the tables; position ", position,
              " came, the tables are ", ShapeText{cos.shape()});
    }
  }
}

void rotate_all(const Call& call, const TensorView<const float, 4>& x,
                const TensorView<const float, 2>& cos,
                const TensorView<const float, 2>& sin,
                const TensorView<float, 4>& out, const RotaryOptions& options) {
  check(call.where, x, cos, sin, out, options);
  if (x.size() == 0) return;
  const std::int64_t len = x.extent(2);
  const std::int64_t tokens = x.extent(0) * len;
  const auto pairs = options.pairing == RotaryPairing::kInterleaved
                         ? kernels::RopePairs::kInterleaved
                         : kernels::RopePairs::kHalfSplit;
  // Fewer elements are done before another thread has woken up.
  constexpr std::int64_t kWorthATask = 1 << 15;
  const std::int64_t each = x.extent(1) * x.extent(3);
  const std::int64_t block = std::max<std::int64_t>(1, kWorthATask / each);
  const std::int64_t tasks = (tokens + block - 1) / block;
  parallel_for(options.threads, tasks, [&](std::int64_t task) {
    const std::int64_t end = std::min(tokens, (task + 1) * block);
    for (std::int64_t t = task * block; t < end; ++t) {
      const std::int64_t b = t / len, i = t % len;
      std::int64_t position = i;
      if (!options.positions.is_null()) {
        position =
            options.positions(options.positions.extent(0) == 1 ? 0 : b, i);
      }
      call.rotate({.pairs = pairs,
                   .heads = x.extent(1),
                   .dim = x.extent(3),
                   .half = cos.extent(1),
                   .x = x.at(b, std::int64_t{0}, i),
                   .x_stride = x.stride(1),
                   .cos = cos.at(position),
                   .sin = sin.at(position),
                   .y = out.at(b, std::int64_t{0}, i),
                   .y_stride = out.stride(1)});
    }
  });
}

}  // namespace

RotaryTable rotary_table(const RotaryConfig& config, std::int64_t positions) {
  check(config, positions);
  const std::int64_t half = config.rotary_dim / 2;
  RotaryTable table{Tensor({positions, half}), Tensor({positions, half})};
  if (positions == 0) return table;  // however wide it would be
  const auto cos = table.cos.view<float, 2>();
  const auto sin = table.sin.view<float, 2>();
  const double amplitude = amplitude_of(config);
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = frequency_of(config, i);
    for (std::int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos(p, i) = static_cast<float>(amplitude * std::cos(angle));
      sin(p, i) = static_cast<float>(amplitude * std::sin(angle));
    }
  }
  return table;
}

void rotary_forward(TensorView<const float, 4> x,
                    TensorView<const float, 2> cos,
                    TensorView<const float, 2> sin, TensorView<float, 4> out,
                    const RotaryOptions& options) {
  rotate_all({"rotary_forward", kernels::rope}, x, cos, sin, out, options);
}

void rotary_backward(TensorView<const float, 4> d_out,
                     TensorView<const float, 2> cos,
                     TensorView<const float, 2> sin, TensorView<float, 4> d_x,
                     const RotaryOptions& options) {
  rotate_all({"rotary_backward", kernels::rope_inverse}, d_out, cos, sin, d_x,
             options);
}

}  // namespace regard::nn
