// SPDX-License-Identifier: Apache-2.0
#include "cli/tensor_file.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/npy.h"
#include "regard/io/safetensors.h"

namespace regard::cli {
namespace {

constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kSafetensors = ".safetensors";

template <typename To, typename From>
Tensor converted_elements(const Tensor& tensor) {
  // Half floats are made from and into float; all else is a plain cast.
  constexpr bool kFromHalf = sizeof(From) == 2;
  constexpr bool kToHalf = sizeof(To) == 2;
  Tensor result(dtype_of<To>(), tensor.shape());
  const auto from = tensor.values<From>();
  std::transform(from.begin(), from.end(), result.values<To>().begin(),
                 [](From value) {
                   if constexpr (kFromHalf) {
                     return static_cast<To>(static_cast<float>(value));
                   } else if constexpr (kToHalf) {
                     return To(static_cast<float>(value));
                   } else {
                     return static_cast<To>(value);
                   }
                 });
  return result;
}

template <typename To>
Tensor converted_to(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return converted_elements<To, float>(tensor);
    case DType::kFloat64:
      return converted_elements<To, double>(tensor);
    case DType::kBFloat16:
      return converted_elements<To, BFloat16>(tensor);
    case DType::kFloat16:
      return converted_elements<To, Float16>(tensor);
    case DType::kInt8:
      return converted_elements<To, std::int8_t>(tensor);
    case DType::kUInt8:
      return converted_elements<To, std::uint8_t>(tensor);
    case DType::kInt32:
      return converted_elements<To, std::int32_t>(tensor);
    case DType::kInt64:
      return converted_elements<To, std::int64_t>(tensor);
    case DType::kBool:
      break;
  }
  throw InvalidArgument("a tensor of bool has no numbers to convert");
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMost ? text + ", ..." : text;
}

}  // namespace

TensorPlace parse_place(const std::string& text) {
  if (text.ends_with(kNpy)) return {text, "", false};
  if (text.ends_with(kSafetensors)) return {text, "", true};
  const std::size_t colon = text.rfind(std::string(kSafetensors) + ":");
  require(colon != std::string::npos, "tensor file",
          "the name must end in .npy, .safetensors or .safetensors:TENSOR; "
          "got '",
          text, "'");
  const std::size_t end = colon + kSafetensors.size();
  return {text.substr(0, end), text.substr(end + 1), true};
}

std::string check_place(const std::string& text) {
  try {
    parse_place(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

Tensor load_tensor(const std::string& text) {
  const TensorPlace place = parse_place(text);
  if (!place.is_safetensors) return load_npy(place.path);
  const SafetensorsFile file = SafetensorsFile::open(place.path);
  const std::vector<std::string> names = file.names();
  if (!place.name.empty()) return file.tensor(place.name);
  require(names.size() == 1, "tensor file", "'", text, "' holds ", names.size(),
          " tensors; choose one by FILE.safetensors:NAME",
          names.empty() ? "" : ", of ", list_of(names));
  return file.tensor(names.front());
}

void save_tensor(const std::string& text, const std::string& name,
                 const Tensor& tensor) {
  const TensorPlace place = parse_place(text);
  if (place.is_safetensors) {
    StateDict state;
    state.emplace(place.name.empty() ? name : place.name, tensor);
    save_safetensors(place.path, state);
  } else if (tensor.dtype() == DType::kBFloat16) {
    save_npy(place.path, converted(tensor, DType::kFloat32));
  } else {
    save_npy(place.path, tensor);
  }
}

void check_can_save(const std::string& text) {
  check_can_write(parse_place(text).path);
}

void check_can_write(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(folder, error)) {
    throw_io_error("output", "'", folder.string(), "' is not a folder");
  }
  if (std::filesystem::is_directory(path, error)) {
    throw_io_error("output", "'", path.string(), "' is a folder");
  }
}

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

Tensor converted(Tensor tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  switch (dtype) {
    case DType::kFloat32:
      return converted_to<float>(tensor);
    case DType::kFloat64:
      return converted_to<double>(tensor);
    case DType::kBFloat16:
      return converted_to<BFloat16>(tensor);
    case DType::kFloat16:
      return converted_to<Float16>(tensor);
    default:
      break;
  }
  throw InvalidArgument("a tensor cannot be converted to " +
                        std::string(to_string(dtype)));
}

DType parse_dtype(const std::string& name) {
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    if (to_string(dtype) == name) return dtype;
  }
  throw InvalidArgument(
      "the type must be float32, bfloat16, float16 or float64; got '" + name +
      "'");
}

std::string check_dtype(const std::string& name) {
  try {
    parse_dtype(name);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::array<std::int64_t, 4> broadcast_shape(const Tensor& tensor,
                                            const char* what) {
  require(tensor.rank() <= 4, what, "at most four dimensions; it is ",
          to_string(tensor.shape()));
  std::array<std::int64_t, 4> shape = {1, 1, 1, 1};
  std::copy(tensor.shape().begin(), tensor.shape().end(),
            shape.end() - tensor.rank());
  return shape;
}

}  // namespace regard::cli
