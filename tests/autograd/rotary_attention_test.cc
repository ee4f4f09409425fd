// SPDX-License-Identifier: Apache-2.0
// Attention on the tape with rotary positions, which turn its matrix in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/gradients.h"
#include "regard/autograd/operations.h"
#include "support/refusal.h"

namespace regard::autograd {
namespace {

using test::refusal;

// (a, b) turns to (a cos - b sin, b cos + a sin), halves of a head paired.
Matrix rotated(Matrix x, std::int64_t heads, std::int64_t dim,
               const std::vector<std::int64_t>& offsets) {
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    for (std::int64_t r = offsets[s - 1]; r < offsets[s]; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          const double angle =
              0.3 * static_cast<double>((r - offsets[s - 1]) * (i + 1));
          double& a = x(r, h * dim + i);
          double& b = x(r, h * dim + i + dim / 2);
          const double before = a;
          a = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + before * std::sin(angle);
        }
      }
    }
  }
  return x;
}

// The same turns, as attention takes them, for heads of width 4.
struct Turns {
  explicit Turns(std::int64_t places)
      : cos(Shape{places, 2}), sin(Shape{places, 2}) {
    for (std::int64_t place = 0; place < places; ++place) {
      for (std::int64_t i = 0; i < 2; ++i) {
        const double angle = 0.3 * static_cast<double>(place * (i + 1));
        cos.view<float, 2>()(place, i) = static_cast<float>(std::cos(angle));
        sin.view<float, 2>()(place, i) = static_cast<float>(std::sin(angle));
      }
    }
  }
  PackedAttentionOptions options() const {
    PackedAttentionOptions o;
    o.heads = o.kv_heads = 2;
    o.head_dim = 4;
    o.rotary_cos = cos.view<float, 2>();
    o.rotary_sin = sin.view<float, 2>();
    return o;
  }
  Tensor cos, sin;
};

TEST(AttentionGradient, GoesBackThroughTheTurnOfRotaryPositions) {
  const std::vector<std::int64_t> offsets{0, 3, 7};
  const Turns turns(4);
  // The projection's result is rotated where it stands, so it must not be an
  // input itself.
  check(
      {random_matrix(7, 3, 1), random_matrix(24, 3, 2)},
      [&](Tape& tape, const Variables& v) {
        PackedAttentionOptions o = turns.options();
        o.q_offsets = o.kv_offsets = offsets;
        const Variable qkv = linear(tape, v[0], v[1], {});
        return attention(tape, {qkv, 0}, {qkv, 8}, {qkv, 16}, o);
      },
      [&](const Matrices& m) {
        // q and k are four heads side by side.
        const Matrix qkv =
            rotated(testing::reference_linear(m[0], m[1], {}), 4, 4, offsets);
        return testing::reference_packed_attention(
            qkv, qkv, {2, 4, 0, 8, 16, offsets, offsets, false});
      });
}

TEST(AttentionGradient, WithoutOffsetsIsThatOfOneSentence) {
  const std::vector<std::int64_t> offsets{0, 7};
  const Turns turns(7);
  for (const bool turned : {false, true}) {
    check(
        {random_matrix(7, 3, 1), random_matrix(24, 3, 2)},
        [&](Tape& tape, const Variables& v) {
          PackedAttentionOptions o = turns.options();
          if (!turned) o.rotary_cos = o.rotary_sin = {};
          o.mask = mask::causal();
          const Variable qkv = linear(tape, v[0], v[1], {});
          return attention(tape, {qkv, 0}, {qkv, 8}, {qkv, 16}, o);
        },
        [&](const Matrices& m) {
          const Matrix qkv = testing::reference_linear(m[0], m[1], {});
          const Matrix in = turned ? rotated(qkv, 4, 4, offsets) : qkv;
          return testing::reference_packed_attention(
              in, in, {2, 4, 0, 8, 16, offsets, offsets, true});
        });
  }
}

TEST(OperationRefusals, OfRotaryAttentionLeaveTheMatrixAsItWas) {
  const Turns turns(16);
  Tape tape;
  Variable qkv = tape.result(5, 24, false);
  std::fill_n(qkv.mutable_data(), 5 * 24, 2.0f);
  using Offsets = std::vector<std::int64_t>;
  const auto refused = [&](const Offsets& q_offsets, const Offsets& kv_offsets,
                           const Mask& mask = {}) {
    PackedAttentionOptions o = turns.options();
    o.q_offsets = q_offsets;
    o.kv_offsets = kv_offsets;
    o.mask = mask;
    std::string text = refusal([&] {
      attention(tape, {qkv, 0}, {qkv, 8}, {qkv, 16}, o);
    });
    EXPECT_EQ(std::count(qkv.data(), qkv.data() + 5 * 24, 2.0f), 5 * 24);
    return text;
  };
  using ::testing::StartsWith;
  const Offsets good{0, 2, 5};
  for (const Offsets& bad : {Offsets{0, 9}, Offsets{1, 5}, Offsets{0, 2, 4}}) {
    EXPECT_THAT(refused(bad, good),
                StartsWith("autograd::attention: sequences.q_offsets must "
                           "start at 0 and end at the packed length"));
    EXPECT_THAT(refused(good, bad),
                StartsWith("autograd::attention: sequences.kv_offsets must "
                           "start at 0 and end at the packed length"));
  }
  EXPECT_THAT(refused(good, {}),
              StartsWith("autograd::attention: sequences.kv_offsets must hold "
                         "one more entry than there are sequences; it has 0"));
  EXPECT_THAT(refused({0, 4, 2, 5}, {0, 4, 4, 5}),
              StartsWith("autograd::attention: sequences.q_offsets must never "
                         "fall"));
  EXPECT_THAT(refused(good, {0, 5}),
              StartsWith("autograd::attention: q_offsets and kv_offsets must "
                         "be equally long; they have 3 and 2"));
  EXPECT_THAT(refused(good, good, mask::lengths({2, 4})),
              StartsWith("autograd::attention: a mask's key length must lie in "
                         "[0, 3]; that of batch entry 1 is 4"));
}

}  // namespace
}  // namespace regard::autograd
