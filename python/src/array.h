// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cassert>
#include <cstdint>
#include <string>

#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::python {

namespace nb = nanobind;

// The elements of a Python object, borrowed without a copy: whatever has the
// buffer protocol (NumPy), DLPack (PyTorch, JAX), or is NumPy's bfloat16 of
// ml_dtypes. Lives while the GIL is held; the memory may be used without it.
class Array {
 public:
  static constexpr int kMaxRank = 8;
  enum class Access { kRead, kWrite };

  Array() = default;
  // Throws TypeError, in the name of `where`, for what is not an array on the
  // CPU, or not one that can be written where that is wanted.
  Array(nb::handle object, const char* where, const char* name,
        Access access = Access::kRead);
  ~Array();
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;

  bool given() const { return data_ != nullptr || rank_ >= 0; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  std::int64_t extent(int dim) const { return shape_[dim]; }
  std::int64_t stride(int dim) const { return strides_[dim]; }
  void* data() const { return data_; }
  std::span<const std::int64_t> shape() const {
    return {shape_.data(), static_cast<std::size_t>(rank_ < 0 ? 0 : rank_)};
  }
  std::int64_t size() const;
  // True where the last stride is 1 or does not matter.
  bool rows_are_contiguous() const {
    return rank_ <= 0 || shape_[rank_ - 1] <= 1 || strides_[rank_ - 1] == 1;
  }
  bool is_contiguous() const;

  // A last extent that is repeated by a stride of 0 becomes 1, which masks and
  // biases read as "the same for all keys".
  void fold_repeated_keys() {
    if (rank_ > 0 && strides_[rank_ - 1] == 0) shape_[rank_ - 1] = 1;
  }
  // The same elements with one more extent of 1 at `dim`, or with two swapped.
  void insert_axis(int dim);
  void swap_axes(int a, int b);

  // Keeps an object alive as long as the array.
  void keep(nb::object owner) { owner_ = std::move(owner); }

  // A view; leading extents of 1 are added where the rank is smaller.
  template <typename T, int Rank>
  TensorView<T, Rank> view() const {
    assert(rank_ <= Rank);
    std::array<std::int64_t, Rank> shape, strides;
    shape.fill(1);
    strides.fill(0);
    for (int i = 0; i < rank_; ++i) {
      shape[Rank - rank_ + i] = shape_[i];
      strides[Rank - rank_ + i] = strides_[i];
    }
    return {static_cast<T*>(data_), shape, strides};
  }

 private:
  bool read_exchange(nb::handle object);
  bool read_buffer(nb::handle object, bool write);
  bool read_bfloat16(nb::handle object, bool write);
  bool read_capsule(nb::handle object);
  void take_dltensor(const void* dltensor);
  void release() noexcept;

  void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  int rank_ = -1;  // none given
  bool known_dtype_ = false;
  bool on_cpu_ = true;
  std::array<std::int64_t, kMaxRank> shape_{};
  std::array<std::int64_t, kMaxRank> strides_{};  // in elements
  Py_buffer buffer_{};
  bool has_buffer_ = false;
  nb::object owner_;
};

// An input: a copy where the elements of a row do not stand side by side.
Array input_array(nb::handle object, const char* where, const char* name);

// An output: refused where a copy would be needed, which nobody would read.
Array output_array(nb::handle object, const char* where, const char* name);

// numpy.<name>
nb::object numpy(const char* name);

// A new array of the kind of `like`: a torch tensor for a torch tensor, else
// NumPy's. Elements are not initialised.
nb::object new_array(nb::handle like, std::span<const std::int64_t> shape,
                     DType dtype);

// The name of an object's type, for messages.
std::string type_text(nb::handle object);

bool is_torch_tensor(nb::handle object);

// Throws TypeError for a torch tensor that PyTorch follows to differentiate,
// backward or forward: what we return would be cut off from it, without a word.
void refuse_gradient(nb::handle object, const char* where, const char* name);

// Raises Python's TypeError with the text of require().
template <typename... Parts>
[[noreturn]] void throw_type_error(const char* where, const Parts&... parts) {
  throw nb::type_error(detail::compose(where, {parts...}).c_str());
}

}  // namespace regard::python
