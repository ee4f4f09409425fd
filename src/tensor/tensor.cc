// SPDX-License-Identifier: Apache-2.0
#include "regard/tensor/tensor.h"

#include <cstring>
#include <utility>

namespace regard {
namespace {

AlignedBuffer copy_of(const std::byte* data, std::size_t bytes) {
  AlignedBuffer copy(bytes);
  if (bytes > 0) std::memcpy(copy.data(), data, bytes);
  return copy;
}

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return 1;
  }
  throw InvalidArgument("size_of: the dtype must be one of the known ones");
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt8:
      return "int8";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      buffer_(byte_count()) {
  if (byte_count() > 0) std::memset(buffer_.data(), 0, byte_count());
}

Tensor::Tensor(const Tensor& other)
    : dtype_(other.dtype_),
      shape_(other.shape_),
      size_(other.size_),
      buffer_(copy_of(other.bytes(), other.byte_count())) {}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor Tensor::reshaped(Shape shape) && {
  require(element_count(shape) == size_, "Tensor::reshaped",
          "the element count must stay ", size_, "; from ", ShapeText{shape_},
          " to ", ShapeText{shape});
  Tensor result = std::move(*this);
  result.shape_ = std::move(shape);
  return result;
}

void Tensor::check_dtype(DType wanted) const {
  require(dtype_ == wanted, "Tensor", "the elements are ",
          regard::to_string(dtype_), ", not ", regard::to_string(wanted));
}

void Tensor::check_rank(int wanted) const {
  require(rank() == wanted, "Tensor", "the rank must be ", wanted,
          "; shape is ", ShapeText{shape_});
}

}  // namespace regard
