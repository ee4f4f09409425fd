// SPDX-License-Identifier: Apache-2.0
#include "regard/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace regard {
namespace {

template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DType, HasASizeAndAName) {
  const std::vector<std::pair<DType, std::pair<std::size_t, std::string>>> all =
      {{DType::kFloat32, {4, "float32"}},   {DType::kFloat64, {8, "float64"}},
       {DType::kBFloat16, {2, "bfloat16"}}, {DType::kFloat16, {2, "float16"}},
       {DType::kInt8, {1, "int8"}},         {DType::kUInt8, {1, "uint8"}},
       {DType::kInt32, {4, "int32"}},       {DType::kInt64, {8, "int64"}},
       {DType::kBool, {1, "bool"}}};
  for (const auto& [dtype, expected] : all) {
    EXPECT_EQ(size_of(dtype), expected.first);
    EXPECT_EQ(to_string(dtype), expected.second);
  }
}

TEST(DType, OutsideTheEnumerationIsRefused) {
  const auto unknown = static_cast<DType>(99);
  EXPECT_EQ(refusal([=] { size_of(unknown); }),
            "size_of: the dtype must be one of the known ones");
  EXPECT_EQ(to_string(unknown), "unknown");
}

template <typename T>
void expect_round_trip(const std::vector<T>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor tensor(std::span<const T>(values), {n});
  EXPECT_EQ(tensor.dtype(), dtype_of<T>());
  EXPECT_EQ(tensor.byte_count(), values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(tensor.values<T>()[i] == values[i]);
  }
}

TEST(Tensor, HoldsEveryType) {
  expect_round_trip<float>({1.5f, -2.0f});
  expect_round_trip<double>({1e300, -2.0});
  expect_round_trip<std::int8_t>({-128, 127});
  expect_round_trip<std::uint8_t>({0, 255});
  expect_round_trip<std::int32_t>({-1, 1 << 30});
  expect_round_trip<std::int64_t>({-1, std::int64_t{1} << 60});
  const std::array<bool, 2> flags{true, false};
  const Tensor b(std::span<const bool>(flags), {2});
  EXPECT_TRUE(b.values<bool>()[0]);
  EXPECT_FALSE(b.values<bool>()[1]);
  const std::array<BFloat16, 1> brain{BFloat16(1.0f)};
  EXPECT_EQ(
      Tensor(std::span<const BFloat16>(brain), {1}).values<BFloat16>()[0].bits,
      0x3f80);
  const std::array<Float16, 1> half{Float16(1.0f)};
  EXPECT_EQ(
      Tensor(std::span<const Float16>(half), {1}).values<Float16>()[0].bits,
      0x3c00);
}

TEST(Tensor, StartsWithZeros) {
  const Tensor tensor(DType::kInt64, {3, 5});
  EXPECT_EQ(tensor.size(), 15);
  EXPECT_EQ(tensor.rank(), 2);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 64, 0u);
  for (const std::int64_t value : tensor.values<std::int64_t>()) {
    EXPECT_EQ(value, 0);
  }
}

TEST(Tensor, ByDefaultIsAnEmptyRowOfFloats) {
  const Tensor tensor;
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.shape(), Shape{0});
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_TRUE(tensor.values<float>().empty());
}

TEST(Tensor, WithoutExtentsIsOneNumber) {
  const Tensor tensor({2.5f}, {});
  EXPECT_EQ(tensor.rank(), 0);
  EXPECT_EQ(tensor.size(), 1);
  EXPECT_EQ(tensor.values<float>()[0], 2.5f);
}

TEST(Tensor, CopiesItsElements) {
  Tensor a({1, 2, 3}, {3});
  Tensor b = a;
  b.values<float>()[0] = 9;
  EXPECT_EQ(a.values<float>()[0], 1);
  a = b;
  EXPECT_EQ(a.values<float>()[0], 9);
  EXPECT_NE(a.bytes(), b.bytes());
  const Tensor& same = a;
  a = same;
  EXPECT_EQ(a.values<float>()[2], 3);
}

TEST(Tensor, MovesWithoutACopy) {
  Tensor a({1, 2, 3}, {3});
  const std::byte* place = a.bytes();
  const Tensor b = std::move(a);
  EXPECT_EQ(b.bytes(), place);
  EXPECT_EQ(b.values<float>()[1], 2);
}

TEST(Tensor, GivesAViewOfItsElements) {
  Tensor tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  const TensorView<float, 2> view = tensor.view<float, 2>();
  EXPECT_EQ(view(1, 0), 4);
  view(1, 2) = 7;
  EXPECT_EQ(tensor.values<float>()[5], 7);
  const Tensor& fixed = tensor;
  EXPECT_EQ((fixed.view<float, 2>()(0, 2)), 3);
}

TEST(Tensor, RefusesAnotherTypeOrRankByName) {
  Tensor tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(refusal([&] { tensor.values<double>(); }),
            "Tensor: the elements are float32, not float64");
  EXPECT_EQ(refusal([&] { tensor.view<BFloat16, 2>(); }),
            "Tensor: the elements are float32, not bfloat16");
  EXPECT_EQ(refusal([&] { tensor.view<float, 3>(); }),
            "Tensor: the rank must be 3; shape is [2, 3]");
}

TEST(Tensor, RefusesAShapeThatIsNotThatOfTheValues) {
  EXPECT_EQ(refusal([] {
              Tensor({1, 2, 3}, {2, 2});
            }),
            "Tensor: the shape must hold as many elements as there are "
            "values; shape is [2, 2], values are 3");
  EXPECT_EQ(refusal([] {
              Tensor(Shape{2, -1});
            }),
            "element_count: no extent may be negative; shape is [2, -1]");
}

TEST(Tensor, IsReshapedWithoutACopy) {
  Tensor a({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::byte* place = a.bytes();
  const Tensor b = std::move(a).reshaped({3, 1, 2});
  EXPECT_EQ(b.shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(b.bytes(), place);
}

TEST(Tensor, IsOnlyReshapedToTheSameCount) {
  Tensor a({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(refusal([&] {
              std::move(a).reshaped({4, 2});
            }),
            "Tensor::reshaped: the element count must stay 6; from [2, 3] to "
            "[4, 2]");
  EXPECT_EQ(a.size(), 6);  // untouched
  EXPECT_EQ(a.values<float>()[5], 6);
}

TEST(StateDict, IsOrderedByName) {
  StateDict state;
  state["b"] = Tensor({1}, {1});
  state["a"] = Tensor({2}, {1});
  EXPECT_EQ(state.begin()->first, "a");
}

}  // namespace
}  // namespace regard
