// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "array.h"
#include "regard/attention/attention.h"

namespace regard::python {

// A mask as Python holds it: with the parts it was made of, for repr() and
// pickle, and the arrays that its dense parts borrow from.
struct MaskObject {
  Mask mask{};
  nb::tuple parts{};  // of (name, arguments...)
  std::vector<std::shared_ptr<Array>> borrowed{};
};

enum class Layout { kBhld, kBlhd };

// The keywords of a call, before the type of its elements is known. One reader
// for every function: each says which it takes beyond those of attention.
struct Keywords {
  Mask mask{};
  Score score = Score::kDot;
  Compute compute = Compute::kFloat32;
  Layout layout = Layout::kBhld;
  std::optional<double> scale{};
  double softcap = 0;
  double dropout = 0;
  std::optional<std::uint64_t> seed{};
  int threads = 0;
  nb::handle bias{}, head_scales{}, alibi{}, sinks{}, sequences{};

  // Throws TypeError for a keyword that is unknown or of the wrong type,
  // ValueError for a wrong value. `own` takes those that only this function
  // has: it returns false for what it does not know.
  Keywords(nb::kwargs given, const char* where,
           FunctionRef<bool(std::string_view, nb::handle)> own);
  Keywords(nb::kwargs given, const char* where);

  // refuse_gradient of the arrays that are added to or multiply scores.
  void refuse_gradients(const char* where) const;
};

// The options of the library, and what they borrow.
template <typename Real>
class Options {
 public:
  Options(const Keywords& keywords, const char* where);
  BasicAttentionOptions<Real> value{};

 private:
  std::span<const Real> per_head(nb::handle given, const char* where,
                                 const char* name);
  void read_sequences(nb::handle given, const char* where);

  std::vector<Array> arrays_;
};
extern template class Options<float>;
extern template class Options<double>;

// q, k, v and the like: [batch, heads, len, dim], or [heads, len, dim], or with
// heads and len swapped. Becomes [batch, heads, len, dim].
Array read_heads(nb::handle object, Layout layout, const char* where,
                 const char* name);

void to_heads(Array& array, Layout layout, const char* where, const char* name);

// Floats or doubles in memory; lists and arrays of the other types that DType
// knows are converted. A last extent that a stride of 0 repeats may be folded
// to 1.
enum class Repeats { kKept, kFolded };
template <typename Real>
Array real_array(nb::handle object, const char* where, const char* name,
                 Repeats repeats = Repeats::kKept);

// Throws TypeError where `array` is of another type than q.
void check_same_dtype(const Array& q, const Array& array, const char* where,
                      const char* name);

// Calls work.operator()<T>() with the type of the elements, float, double,
// BFloat16 or Float16; TypeError for another.
template <typename Work>
auto with_elements(DType dtype, const char* where, const Work& work) {
  switch (dtype) {
    case DType::kFloat32:
      return work.template operator()<float>();
    case DType::kFloat64:
      return work.template operator()<double>();
    case DType::kBFloat16:
      return work.template operator()<BFloat16>();
    case DType::kFloat16:
      return work.template operator()<Float16>();
    default:
      break;
  }
  throw_type_error(where,
                   "q must be float32, float64, float16 or bfloat16; it is ",
                   to_string(dtype));
}

template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Runs `work` without the GIL. Ctrl-C ends it between two tasks.
void run_released(FunctionRef<void()> work);

}  // namespace regard::python
