// SPDX-License-Identifier: Apache-2.0
#include "regard/autograd/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/gradients.h"
#include "regard/core/error.h"
#include "support/reference_operations.h"
#include "support/refusal.h"

namespace regard::autograd {
namespace {

using test::refusal;

TEST(LinearGradient, IsThatOfTheDefinition) {
  check(
      {random_matrix(70, 5, 1), random_matrix(9, 5, 2), random_matrix(1, 9, 3)},
      [](Tape& tape, const Variables& v) {
        return linear(tape, v[0], v[1], v[2]);
      },
      [](const Matrices& m) {
        return testing::reference_linear(m[0], m[1], m[2]);
      });
}

// Values and gradients of an operation, one after the other.
std::vector<float> results(
    Compute compute, int threads, const std::vector<Tensor>& inputs,
    const Tensor& d_out,
    const std::function<Variable(Tape&, const Variables&)>& operation) {
  Tape tape(Record::kYes, {.count = threads}, dirty_pool(), compute);
  Variables variables;
  for (const Tensor& value : inputs) {
    variables.push_back(tape.input(value.view<float, 2>()));
  }
  std::vector<float> all;
  {
    const Variable out = operation(tape, variables);
    all.assign(out.data(), out.data() + out.rows() * out.columns());
    tape.backward(out, d_out.view<float, 2>());
  }
  for (const Variable& variable : variables) {
    const Tensor gradient = tape.gradient_of(variable);
    const auto values = gradient.values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// bf16 keeps 8 bits of each factor: near, not equal, and the bits are those of
// any number of threads.
void check_bf16(
    const std::vector<Tensor>& inputs, const Tensor& d_out,
    const std::function<Variable(Tape&, const Variables&)>& operation) {
  const auto in_float = results(Compute::kFloat32, 1, inputs, d_out, operation);
  const auto in_bf16 = results(Compute::kBFloat16, 1, inputs, d_out, operation);
  EXPECT_EQ(in_bf16, results(Compute::kBFloat16, 3, inputs, d_out, operation));
  ASSERT_EQ(in_bf16.size(), in_float.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < in_float.size(); ++i) {
    error += std::pow(in_bf16[i] - in_float[i], 2);
    size += std::pow(in_float[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0x1p-5);  // signs of ReLU may turn
  EXPECT_GT(std::sqrt(error / size), 0x1p-12);
}

TEST(LinearGradient, InBf16IsNearThatInFloat) {
  // More rows than are summed at once, and weights that are cut for threads.
  check_bf16({as_tensor(random_matrix(2100, 40, 1)),
              as_tensor(random_matrix(210, 40, 2)),
              as_tensor(random_matrix(1, 210, 3))},
             as_tensor(random_matrix(2100, 210, 4)),
             [](Tape& tape, const Variables& v) {
               // Twice, so that gradients are added to others.
               const Variable once = linear(tape, v[0], v[1], v[2]);
               return add(tape, once,
                          linear(tape, v[0], v[1], v[2],
                                 {.activation = Activation::kRelu}));
             });
}

// Self-attention of sentences, two heads of width 8.
std::function<Variable(Tape&, const Variables&)> heads_of(
    std::vector<std::int64_t> offsets) {
  return [offsets = std::move(offsets)](Tape& tape, const Variables& v) {
    PackedAttentionOptions options;
    options.heads = options.kv_heads = 2;
    options.head_dim = 8;
    options.q_offsets = options.kv_offsets = offsets;
    return attention(tape, {v[0], 0}, {v[0], 16}, {v[0], 32}, options);
  };
}

TEST(AttentionGradient, OfLongSentencesInBf16IsNearThatInFloat) {
  check_bf16({as_tensor(random_matrix(1040, 48, 5))},
             as_tensor(random_matrix(1040, 16, 6)), heads_of({0, 1000, 1040}));
}

TEST(AttentionGradient, OfShortSentencesStaysInFloat) {
  const std::vector<Tensor> inputs{as_tensor(random_matrix(70, 48, 5))};
  const Tensor d_out = as_tensor(random_matrix(70, 16, 6));
  const auto attend = heads_of({0, 40, 41, 70});
  EXPECT_EQ(results(Compute::kBFloat16, 2, inputs, d_out, attend),
            results(Compute::kFloat32, 2, inputs, d_out, attend));
}

TEST(LinearGradient, OfSomeRowsOfAWeightLeavesTheOthersAlone) {
  check(
      {random_matrix(6, 4, 1), random_matrix(9, 4, 2), random_matrix(1, 9, 3)},
      [](Tape& tape, const Variables& v) {
        return linear(tape, v[0], v[1], v[2], {.first = 2, .count = 5});
      },
      [](const Matrices& m) {
        const Matrix all = testing::reference_linear(m[0], m[1], m[2]);
        Matrix some(all.rows, 5);
        for (std::int64_t r = 0; r < all.rows; ++r) {
          for (std::int64_t c = 0; c < 5; ++c) some(r, c) = all(r, c + 2);
        }
        return some;
      });
}

TEST(LinearGradient, AddsUpWhereAVariableIsUsedTwice) {
  check(
      {random_matrix(6, 4, 1), random_matrix(4, 4, 2)},
      [](Tape& tape, const Variables& v) {
        const Variable once = linear(tape, v[0], v[1], {});
        return add(tape, v[0], linear(tape, once, v[1], {}));
      },
      [](const Matrices& m) {
        const Matrix once = testing::reference_linear(m[0], m[1], {});
        return testing::reference_add(
            m[0], testing::reference_linear(once, m[1], {}));
      });
}

struct Function {
  const char* name;
  Activation f;
  double (*definition)(double);
};

class ActivationGradient : public ::testing::TestWithParam<Function> {};

TEST_P(ActivationGradient, IsThatOfTheDefinition) {
  const Function p = GetParam();
  check(
      {random_matrix(7, 6, 4), random_matrix(19, 6, 5),
       random_matrix(1, 19, 6)},
      [&](Tape& tape, const Variables& v) {
        return linear(tape, v[0], v[1], v[2], {.activation = p.f});
      },
      [&](const Matrices& m) {
        return testing::map(testing::reference_linear(m[0], m[1], m[2]),
                            p.definition);
      });
}

TEST_P(ActivationGradient, IsThatOfTheDefinitionWithDropout) {
  const Function p = GetParam();
  check(
      {random_matrix(7, 6, 4), random_matrix(70, 6, 5)},
      [&](Tape& tape, const Variables& v) {
        return linear(tape, v[0], v[1], {},
                      {.activation = p.f, .dropout = {0.4f, 9, 3}});
      },
      [&](const Matrices& m) {
        return testing::reference_dropout(
            testing::map(testing::reference_linear(m[0], m[1], {}),
                         p.definition),
            double{0.4f}, 9, 3);
      });
}

INSTANTIATE_TEST_SUITE_P(
    Functions, ActivationGradient,
    ::testing::Values(
        Function{"Relu", Activation::kRelu,
                 [](double x) { return x > 0 ? x : 0; }},
        Function{"Gelu", Activation::kGelu, testing::reference_gelu},
        Function{"GeluTanh", Activation::kGeluTanh,
                 testing::reference_gelu_tanh},
        Function{"Silu", Activation::kSilu, testing::reference_silu},
        Function{"None", Activation::kNone, [](double x) { return x; }}),
    [](const auto& f) { return std::string(f.param.name); });

class GatedGradient : public ::testing::TestWithParam<Function> {};

// 600 columns, so that a gate is more than one part of activate_gated().
TEST_P(GatedGradient, IsThatOfTheDefinition) {
  const Function& p = GetParam();
  check(
      {random_matrix(5, 6, 7), random_matrix(600, 6, 8),
       random_matrix(1, 600, 9)},
      [&](Tape& tape, const Variables& v) {
        return linear(tape, v[0], v[1], v[2],
                      {.activation = p.f, .dropout = {0.25f, 4, 1}});
      },
      [&](const Matrices& m) {
        return testing::reference_dropout(
            testing::reference_gated(
                testing::reference_linear(m[0], m[1], m[2]), p.definition),
            0.25, 4, 1);
      });
}

INSTANTIATE_TEST_SUITE_P(
    Functions, GatedGradient,
    ::testing::Values(
        Function{"Swiglu", Activation::kSwiglu, testing::reference_silu},
        Function{"Geglu", Activation::kGeglu, testing::reference_gelu_tanh}),
    [](const auto& f) { return std::string(f.param.name); });

TEST(NormGradient, OfALayerNormIsThatOfTheDefinition) {
  check(
      {random_matrix(67, 11, 1), random_matrix(1, 11, 2),
       random_matrix(1, 11, 3)},
      [](Tape& tape, const Variables& v) {
        return norm(tape, v[0], {v[1], v[2], 1e-3f, Norm::kLayerNorm});
      },
      [](const Matrices& m) {
        return testing::reference_norm(m[0], m[1], m[2], double{1e-3f});
      });
}

TEST(NormGradient, OfAnRmsNormIsThatOfTheDefinition) {
  check(
      {random_matrix(6, 33, 1), random_matrix(1, 33, 2)},
      [](Tape& tape, const Variables& v) {
        return norm(tape, v[0], {v[1], {}, 1e-3f, Norm::kRmsNorm});
      },
      [](const Matrices& m) {
        return testing::reference_norm(m[0], m[1], {}, double{1e-3f});
      });
}

TEST(AddNormGradient, GoesThroughTheSumAndThroughTheNorm) {
  check(
      {random_matrix(66, 9, 1), random_matrix(66, 9, 2), random_matrix(1, 9, 3),
       random_matrix(1, 9, 4)},
      [](Tape& tape, const Variables& v) {
        const SumAndNorm both = add_norm(tape, v[0], v[1], {0.3f, 5, 2},
                                         {v[2], v[3], 1e-3f, Norm::kLayerNorm});
        return add(tape, both.sum, both.normed);
      },
      [](const Matrices& m) {
        const Matrix sum = testing::reference_add(
            m[0], testing::reference_dropout(m[1], double{0.3f}, 5, 2));
        return testing::reference_add(
            sum, testing::reference_norm(sum, m[2], m[3], double{1e-3f}));
      });
}

TEST(AddNormGradient, IsRightWhereOnlyTheNormIsUsed) {
  check(
      {random_matrix(5, 9, 1), random_matrix(5, 9, 2), random_matrix(1, 9, 3),
       random_matrix(1, 9, 4)},
      [](Tape& tape, const Variables& v) {
        return add_norm(tape, v[0], v[1], {},
                        {v[2], v[3], 1e-3f, Norm::kLayerNorm})
            .normed;
      },
      [](const Matrices& m) {
        return testing::reference_norm(testing::reference_add(m[0], m[1]), m[2],
                                       m[3], double{1e-3f});
      });
}

TEST(EmbeddingGradient, AddsUpOverTheTokens) {
  const std::vector<std::int32_t> tokens{3, 0, 3, 4, 3, 1};
  const std::vector<std::int64_t> offsets{0, 2, 6};
  const std::vector<std::int64_t> places{0, 1, 0, 1, 2, 3};
  check(
      {random_matrix(5, 70, 1), random_matrix(4, 70, 2)},
      [&](Tape& tape, const Variables& v) {
        return embedding(tape, v[0], tokens,
                         {2.5f, v[1], offsets, {0.2f, 8, 6}});
      },
      [&](const Matrices& m) {
        Matrix out(6, 70);
        for (std::int64_t r = 0; r < 6; ++r) {
          const auto i = static_cast<std::size_t>(r);
          for (std::int64_t c = 0; c < 70; ++c) {
            out(r, c) = 2.5 * m[0](tokens[i], c) + m[1](places[i], c);
          }
        }
        return testing::reference_dropout(out, double{0.2f}, 8, 6);
      });
}

TEST(RowsGradient, OfAMeanIsSharedByTheRowsOfASentence) {
  const std::vector<std::int64_t> offsets = {0, 1, 71, 73};
  check(
      {random_matrix(73, 5, 1)},
      [&](Tape& tape, const Variables& v) {
        return mean_rows(tape, v[0], offsets);
      },
      [&](const Matrices& m) {
        Matrix mean(3, 5);
        for (std::int64_t s = 0; s < 3; ++s) {
          const std::int64_t begin = offsets[static_cast<std::size_t>(s)];
          const std::int64_t end = offsets[static_cast<std::size_t>(s) + 1];
          for (std::int64_t r = begin; r < end; ++r) {
            for (std::int64_t c = 0; c < 5; ++c) {
              mean(s, c) += m[0](r, c) / static_cast<double>(end - begin);
            }
          }
        }
        return mean;
      });
}

TEST(MultiplyGradient, OfEachFactorIsTheOther) {
  check(
      {random_matrix(70, 5, 1), random_matrix(70, 5, 2)},
      [](Tape& tape, const Variables& v) { return multiply(tape, v[0], v[1]); },
      [](const Matrices& m) {
        Matrix out(70, 5);
        for (std::int64_t r = 0; r < 70; ++r) {
          for (std::int64_t c = 0; c < 5; ++c) {
            out(r, c) = m[0](r, c) * m[1](r, c);
          }
        }
        return out;
      });
}

TEST(RowsGradient, OfRowsThatComeTwiceAddsUp) {
  const std::vector<std::int32_t> rows = {2, 0, 2};
  check(
      {random_matrix(4, 5, 1)},
      [&](Tape& tape, const Variables& v) {
        return gather_rows(tape, v[0], rows);
      },
      [&](const Matrices& m) {
        Matrix out(3, 5);
        for (std::int64_t r = 0; r < 3; ++r) {
          for (std::int64_t c = 0; c < 5; ++c) {
            out(r, c) = m[0](rows[static_cast<std::size_t>(r)], c);
          }
        }
        return out;
      });
}

TEST(AttentionGradient, OfAFusedProjectionIsThatOfTheDefinition) {
  const std::vector<std::int64_t> offsets{0, 3, 4, 9};
  check(
      {random_matrix(9, 18, 1)},
      [&](Tape& tape, const Variables& v) {
        PackedAttentionOptions o;
        o.heads = o.kv_heads = 2;
        o.head_dim = 3;
        o.q_offsets = o.kv_offsets = offsets;
        o.mask = mask::causal();
        return attention(tape, {v[0], 0}, {v[0], 6}, {v[0], 12}, o);
      },
      [&](const Matrices& m) {
        return testing::reference_packed_attention(
            m[0], m[0], {2, 3, 0, 6, 12, offsets, offsets, true});
      });
}

TEST(AttentionGradient, IsZeroInColumnsThatBelongToNoHead) {
  const std::vector<std::int64_t> offsets{0, 3, 4, 9};
  check(
      {random_matrix(9, 22, 1)},
      [&](Tape& tape, const Variables& v) {
        PackedAttentionOptions o;
        o.heads = o.kv_heads = 2;
        o.head_dim = 3;
        o.q_offsets = o.kv_offsets = offsets;
        return attention(tape, {v[0], 1}, {v[0], 8}, {v[0], 15}, o);
      },
      [&](const Matrices& m) {
        return testing::reference_packed_attention(
            m[0], m[0], {2, 3, 1, 8, 15, offsets, offsets, false});
      });
}

TEST(AttentionGradient, AddsToWhatCameBefore) {
  const std::vector<std::int64_t> q_offsets{0, 3, 5};
  const std::vector<std::int64_t> kv_offsets{0, 4, 5};
  check(
      {random_matrix(5, 6, 1), random_matrix(5, 12, 2)},
      [&](Tape& tape, const Variables& v) {
        PackedAttentionOptions o;
        o.heads = o.kv_heads = 2;
        o.head_dim = 3;
        o.q_offsets = q_offsets;
        o.kv_offsets = kv_offsets;
        const Variable once =
            attention(tape, {v[0], 0}, {v[1], 0}, {v[1], 6}, o);
        const Variable twice =
            attention(tape, {once, 0}, {v[1], 0}, {v[1], 6}, o);
        return add(tape, once, twice);
      },
      [&](const Matrices& m) {
        const testing::ReferencePacked o{2, 3,         0,          0,
                                         6, q_offsets, kv_offsets, false};
        const Matrix once = testing::reference_packed_attention(m[0], m[1], o);
        return testing::reference_add(
            once, testing::reference_packed_attention(once, m[1], o));
      });
}

TEST(OperationRefusals, NameTheRule) {
  using ::testing::StartsWith;
  Tape tape;
  const Tensor a({3, 4}), b({2, 5}), row({1, 4});
  const Variable x = tape.input(a.view<float, 2>());
  const Variable w = tape.input(b.view<float, 2>());
  const Variable g = tape.input(row.view<float, 2>());
  EXPECT_THAT(refusal([&] { linear(tape, x, w, {}); }),
              StartsWith("autograd::linear: weight must be [out, in] with the "
                         "columns of x; it is [2, 5], x is [3, 4]"));
  EXPECT_THAT(refusal([&] { linear(tape, x, x, w); }),
              StartsWith("autograd::linear: bias must hold one value per row "
                         "of weight, which has 3; it has 5"));
  EXPECT_THAT(
      refusal([&] { linear(tape, x, x, {}, {.first = 2, .count = 2}); }),
      StartsWith("autograd::linear: the rows asked for must be rows of "
                 "weight, which has 3; first is 2, count is 2"));
  EXPECT_THAT(refusal([&] {
                linear(tape, x, x, {}, {.activation = Activation::kSwiglu});
              }),
              StartsWith("autograd::linear: a gated activation needs an even "
                         "number of columns; there are 3"));
  EXPECT_THAT(
      refusal([&] { linear(tape, x, x, {}, {.dropout = {1.0f}}); }),
      StartsWith("autograd::linear: the dropout rate must be in [0, 1); "
                 "it is 1"));
  EXPECT_THAT(refusal([&] { add(tape, x, w); }),
              StartsWith("autograd::add: both terms must have one shape; they "
                         "are [3, 4] and [2, 5]"));
  EXPECT_THAT(refusal([&] {
                norm(tape, x, {w, {}});
              }),
              StartsWith("autograd::norm: the norm's weight must be [1, 4]; it "
                         "is [2, 5]"));
  EXPECT_THAT(
      refusal([&] {
        norm(tape, x, {g, w});
      }),
      StartsWith("autograd::norm: the norm's bias must be [1, 4]; it is "
                 "[2, 5]"));
  EXPECT_THAT(refusal([&] {
                norm(tape, x, {g, g, 1e-5f, Norm::kRmsNorm});
              }),
              StartsWith("autograd::norm: RMS norm must have no bias"));
  EXPECT_THAT(refusal([&] {
                norm(tape, x, {g, g, -1.0f});
              }),
              StartsWith("autograd::norm: epsilon must not be negative; it is "
                         "-1"));
  const std::vector<std::int32_t> tokens{0, 3};
  EXPECT_THAT(refusal([&] { embedding(tape, x, tokens); }),
              StartsWith("autograd::embedding: a token must lie in 0 .. 2; got "
                         "3"));
  EXPECT_THAT(refusal([&] { gather_rows(tape, x, tokens); }),
              StartsWith("autograd::gather_rows: a row must lie in 0 .. 2; got "
                         "3"));
  const std::vector<std::int64_t> empty{0, 3, 3}, few{0, 2};
  EXPECT_THAT(refusal([&] { mean_rows(tape, x, empty); }),
              StartsWith("autograd::mean_rows: no sentence may be empty; "
                         "sentence 1 is"));
  EXPECT_THAT(refusal([&] { multiply(tape, x, w); }),
              StartsWith("autograd::multiply: a and b must have the same "
                         "shape; they are [3, 4] and [2, 5]"));
  EXPECT_THAT(refusal([&] { mean_rows(tape, x, few); }),
              StartsWith("autograd::mean_rows: offsets must start at 0 and end "
                         "at the 3 rows of x; they are"));
  const std::vector<std::int32_t> good{0, 2};
  const std::vector<std::int64_t> offsets{0, 1}, both{0, 2};
  EXPECT_THAT(refusal([&] {
                embedding(tape, x, good, {1.0f, w, both});
              }),
              StartsWith("autograd::embedding: positions must have the table's "
                         "4 columns; they have 5"));
  EXPECT_THAT(refusal([&] {
                embedding(tape, x, good, {1.0f, g, offsets});
              }),
              StartsWith("autograd::embedding: offsets must cover the tokens, "
                         "which are 2; they cover 1"));
  EXPECT_THAT(refusal([&] {
                embedding(tape, x, good, {1.0f, g, both});
              }),
              StartsWith("autograd::embedding: a sentence must have at most 1 "
                         "tokens, as there are positions; one has 2"));
  PackedAttentionOptions o;
  o.head_dim = 3;
  EXPECT_THAT(
      refusal([&] {
        attention(tape, {x, 2}, {x, 0}, {x, 0}, o);
      }),
      StartsWith("autograd::attention: q must have 3 columns from 2 on; "
                 "its matrix has 4"));
  o.head_dim = 2;
  EXPECT_THAT(
      refusal([&] {
        attention(tape, {x, 0}, {x, 2}, {x, 1}, o);
      }),
      StartsWith("autograd::attention: q and v must stand in columns of their "
                 "own; they have 2 from 0 on and 2 from 1 on"));
  EXPECT_THAT(refusal([&] { cross_entropy(tape, x, w, {}, good, 0); }),
              StartsWith("autograd::cross_entropy: weight must be [vocab, in] "
                         "with the columns of x; it is [2, 5], x is [3, 4]"));
  EXPECT_THAT(
      refusal([&] { cross_entropy(tape, x, x, w, good, 0); }),
      StartsWith("autograd::cross_entropy: bias must hold one value per "
                 "row of weight, which has 3; it has 5"));
  EXPECT_THAT(refusal([&] { cross_entropy(tape, x, x, {}, good, 0); }),
              StartsWith("autograd::cross_entropy: there must be one target a "
                         "row; x has 3 rows, targets are 2"));
  const std::vector<std::int32_t> three{0, 3, 1};
  EXPECT_THAT(
      refusal([&] { cross_entropy(tape, x, x, {}, three, 0); }),
      StartsWith("autograd::cross_entropy: a target must lie in 0 .. 2; "
                 "got 3"));
  EXPECT_THAT(refusal([&] { cross_entropy(tape, x, x, {}, three, 2); }),
              StartsWith("autograd::cross_entropy: label_smoothing must be in "
                         "[0, 1]; it is 2"));
}

}  // namespace
}  // namespace regard::autograd
