// SPDX-License-Identifier: Apache-2.0
#include "kernels/norms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "support/every_path.h"
#include "support/reference_norms.h"

namespace regard::kernels {
namespace {

using testing::ReferenceNorm;

struct Problem {
  std::int64_t rows, dim;
  bool centred;
  bool plain = false;  // no gamma, no beta
};

std::string name_of(const Problem& p) {
  return std::string(p.centred ? "layer_" : "rms_") + std::to_string(p.rows) +
         "x" + std::to_string(p.dim) + (p.plain ? "_plain" : "");
}

constexpr float kEps = 1e-5f;
constexpr std::int64_t kGap = 3;  // between the rows, never to be written
constexpr float kMark = 12345.0f;

// What the header promises for a sum: chains, then halves onto halves.
float sum_in_chains(const std::vector<float>& terms_a,
                    const std::vector<float>& terms_b) {
  std::vector<float> chains(static_cast<std::size_t>(kNormChains));
  for (std::size_t i = 0; i < terms_a.size(); ++i) {
    float& chain = chains[i % chains.size()];
    chain = std::fma(terms_a[i], terms_b[i], chain);
  }
  for (std::size_t half = chains.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

template <typename To>
std::vector<To> as(const std::vector<float>& from) {
  return {from.begin(), from.end()};
}

double worst(const std::vector<float>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return most;
}

class NormsTest : public ::testing::TestWithParam<Problem> {
 protected:
  struct Result {
    std::vector<float> y, mean, rstd, d_x, d_gamma, d_beta;
    bool operator==(const Result&) const = default;
  };

  void SetUp() override {
    Random random(11);
    const auto draw = [&](std::int64_t n, float shift) {
      std::vector<float> v;
      for (std::int64_t i = 0; i < n; ++i) v.push_back(random.normal() + shift);
      return v;
    };
    const Problem& p = GetParam();
    x_ = draw(p.rows * p.dim, 2.0f);
    d_y_ = draw(p.rows * p.dim, 0.0f);
    gamma_ = p.plain ? std::vector<float>(p.dim, 1.0f) : draw(p.dim, 1.0f);
    beta_ = p.plain || !p.centred ? std::vector<float>(p.dim, 0.0f)
                                  : draw(p.dim, 0.0f);
  }

  std::vector<float> spread(const std::vector<float>& rows) const {
    const Problem& p = GetParam();
    std::vector<float> v(static_cast<std::size_t>(p.rows * (p.dim + kGap)),
                         kMark);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      std::copy_n(rows.begin() + r * p.dim, p.dim,
                  v.begin() + r * (p.dim + kGap));
    }
    return v;
  }
  std::vector<float> gathered(const std::vector<float>& v) const {
    const Problem& p = GetParam();
    std::vector<float> rows;
    for (std::int64_t r = 0; r < p.rows; ++r) {
      const auto begin = v.begin() + r * (p.dim + kGap);
      rows.insert(rows.end(), begin, begin + p.dim);
      EXPECT_TRUE(std::all_of(begin + p.dim, begin + p.dim + kGap,
                              [](float f) { return f == kMark; }))
          << "written past row " << r;
    }
    return rows;
  }

  // `cut` rows, and columns of the parameter gradients, at a time.
  Result run(std::int64_t cut, bool in_place) const {
    const Problem& p = GetParam();
    const std::int64_t stride = p.dim + kGap;
    std::vector<float> x = spread(x_), d_y = spread(d_y_);
    std::vector<float> y = in_place ? x : spread(std::vector<float>(x_.size()));
    std::vector<float> d_x =
        in_place ? d_y : spread(std::vector<float>(x_.size()));
    const std::vector<float> kept = x;
    Result result;
    result.mean.resize(p.rows);
    result.rstd.resize(p.rows);
    result.d_gamma.resize(p.dim);
    result.d_beta.resize(p.dim);
    for (std::int64_t r = 0; r < p.rows; r += cut) {
      Norm norm{.rows = std::min(cut, p.rows - r),
                .dim = p.dim,
                .x = (in_place ? y : x).data() + r * stride,
                .x_stride = stride,
                .gamma = p.plain ? nullptr : gamma_.data(),
                .beta = p.plain ? nullptr : beta_.data(),
                .eps = kEps,
                .y = y.data() + r * stride,
                .y_stride = stride,
                .mean = result.mean.data() + r,
                .rstd = result.rstd.data() + r};
      p.centred ? layer_norm(norm) : rms_norm(norm);
    }
    NormBackward backward{.rows = p.rows,
                          .dim = p.dim,
                          .x = kept.data(),
                          .x_stride = stride,
                          .gamma = p.plain ? nullptr : gamma_.data(),
                          .mean = p.centred ? result.mean.data() : nullptr,
                          .rstd = result.rstd.data(),
                          .d_y = (in_place ? d_x : d_y).data(),
                          .d_y_stride = stride,
                          .d_x = d_x.data(),
                          .d_x_stride = stride};
    for (std::int64_t c = 0; c < p.dim; c += cut) {
      norm_parameter_gradients(backward, c, std::min(c + cut, p.dim),
                               result.d_gamma.data(), result.d_beta.data());
    }
    p.centred ? layer_norm_backward(backward) : rms_norm_backward(backward);
    result.y = gathered(y);
    result.d_x = gathered(d_x);
    return result;
  }

  template <typename Real>
  ReferenceNorm<Real> reference() const {
    const Problem& p = GetParam();
    return {static_cast<std::size_t>(p.rows),
            static_cast<std::size_t>(p.dim),
            p.centred,
            Real(kEps),
            as<Real>(x_),
            as<Real>(gamma_),
            as<Real>(beta_)};
  }

  std::vector<float> x_, d_y_, gamma_, beta_;
};

TEST_P(NormsTest, IsAsExactAsTheDefinition) {
  const auto exact = reference<double>();
  const auto plain = reference<float>();
  const auto exact_y = exact.forward();
  const auto exact_d = exact.backward(as<double>(d_y_));
  const auto plain_d = plain.backward(d_y_);
  test::on_every_simd_target([&](const std::string&) {
    const Result got = run(1000, false);
    EXPECT_LE(worst(got.y, exact_y),
              2 * worst(plain.forward(), exact_y) + 1e-6);
    EXPECT_LE(worst(got.d_x, exact_d.d_x),
              2 * worst(plain_d.d_x, exact_d.d_x) + 1e-6);
    EXPECT_LE(worst(got.d_gamma, exact_d.d_gamma),
              2 * worst(plain_d.d_gamma, exact_d.d_gamma) + 1e-6);
    EXPECT_LE(worst(got.d_beta, exact_d.d_beta),
              2 * worst(plain_d.d_beta, exact_d.d_beta) + 1e-6);
  });
}

TEST_P(NormsTest, CutsPlacesAndVectorWidthsChangeNoBit) {
  const Result whole = run(1000, false);
  test::on_every_simd_target([&](const std::string& target) {
    if (!test::fuses_products(target)) return;
    EXPECT_EQ(run(1, false), whole);
    EXPECT_EQ(run(5, true), whole);
    EXPECT_EQ(run(1000, true), whole);
  });
}

TEST_P(NormsTest, TheSumRunsInThePromisedOrder) {
  const Problem& p = GetParam();
  if (p.centred || p.dim == 0) return;  // one sum tells for all
  if (!test::fuses_products(simd_target())) {
    GTEST_SKIP() << simd_target() << " has no fused multiply-add";
  }
  const Result got = run(1000, false);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::vector<float> row(x_.begin() + r * p.dim,
                                 x_.begin() + (r + 1) * p.dim);
    const float sum = sum_in_chains(row, row);
    EXPECT_EQ(got.rstd[r],
              1.0f / std::sqrt(sum / static_cast<float>(p.dim) + kEps));
  }
}

TEST_P(NormsTest, TheReferenceGradientIsTheSlopeOfTheReference) {
  const Problem& p = GetParam();
  if (p.rows * p.dim > 700) return;  // smaller ones tell for all
  auto norm = reference<double>();
  const auto d_y = as<double>(d_y_);
  const auto gradients = norm.backward(d_y);
  const auto loss = [&] {
    const auto y = norm.forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * d_y[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& at,
                         const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double old = at[i];
      at[i] = old + 1e-5;
      const double above = loss();
      at[i] = old - 1e-5;
      const double below = loss();
      at[i] = old;
      ASSERT_NEAR((above - below) / 2e-5, gradient[i],
                  1e-5 * (1 + std::abs(gradient[i])));
    }
  };
  // A row of one element has a slope that turns within the step.
  if (p.dim > 1) check(norm.x, gradients.d_x);
  check(norm.gamma, gradients.d_gamma);
  check(norm.beta, gradients.d_beta);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, NormsTest,
    ::testing::Values(
        Problem{1, 1, false}, Problem{3, 7, false}, Problem{2, 31, false},
        Problem{2, 32, false}, Problem{2, 33, false}, Problem{5, 59, false},
        Problem{4, 64, false, true}, Problem{200, 97, false},
        Problem{3, 288, false}, Problem{2, 1000, false}, Problem{0, 8, false},
        Problem{3, 0, false}, Problem{3, 7, true}, Problem{2, 31, true},
        Problem{2, 32, true}, Problem{2, 33, true}, Problem{5, 59, true},
        Problem{4, 64, true, true}, Problem{200, 97, true},
        Problem{65, 130, true}, Problem{2, 1000, true}, Problem{0, 8, true},
        Problem{3, 0, true}),
    [](const auto& problem) { return name_of(problem.param); });

}  // namespace
}  // namespace regard::kernels
