// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace regard::python {
namespace {

// What we need of DLPack's stable C structures (dlpack.h, version 1).
struct DLDevice {
  std::int32_t type;
  std::int32_t id;
};
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // null: contiguous
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLExchangeApi {
  std::uint32_t major, minor;
  const DLExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, DLTensor* out);
  void* current_stream;
};
constexpr std::int32_t kDLCpu = 1;
constexpr int kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6;

const DLExchangeApi* find_exchange_api(PyTypeObject* type) {
  PyObject* capsule = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type),
                                             "__dlpack_c_exchange_api__");
  if (capsule == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const auto* api = static_cast<const DLExchangeApi*>(
      PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  Py_DECREF(capsule);  // the table is static
  if (api == nullptr) PyErr_Clear();
  const bool usable =
      api != nullptr && api->major == 1 && api->tensor_from_object != nullptr;
  return usable ? api : nullptr;
}

// The exchange functions of a type, or null. A program has few array types, and
// looking one up costs a microsecond: the last answers are remembered.
const DLExchangeApi* exchange_api(PyTypeObject* type) {
  struct Answer {
    PyTypeObject* type = nullptr;
    const DLExchangeApi* api = nullptr;
  };
  static Answer with, without;  // under the GIL
  if (type == with.type) return with.api;
  if (type == without.type) return nullptr;
  const DLExchangeApi* api = find_exchange_api(type);
  Answer& answer = api != nullptr ? with : without;
  // Held, so that no other type can come to stand at this address.
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Py_XDECREF(reinterpret_cast<PyObject*>(answer.type));
  answer = {type, api};
  return api;
}

bool dtype_of_dlpack(DLDataType type, DType& dtype) {
  if (type.lanes != 1) return false;
  if (type.code == kDLFloat && type.bits == 32) {
    dtype = DType::kFloat32;
  } else if (type.code == kDLFloat && type.bits == 64) {
    dtype = DType::kFloat64;
  } else if (type.code == kDLFloat && type.bits == 16) {
    dtype = DType::kFloat16;
  } else if (type.code == kDLBfloat && type.bits == 16) {
    dtype = DType::kBFloat16;
  } else if (type.code == kDLBool && type.bits == 8) {
    dtype = DType::kBool;
  } else if (type.code == kDLInt && type.bits == 64) {
    dtype = DType::kInt64;
  } else if (type.code == kDLInt && type.bits == 32) {
    dtype = DType::kInt32;
  } else if (type.code == kDLInt && type.bits == 8) {
    dtype = DType::kInt8;
  } else if (type.code == kDLUInt && type.bits == 8) {
    dtype = DType::kUInt8;
  } else {
    return false;
  }
  return true;
}

bool dtype_of_format(const char* format, Py_ssize_t item_size, DType& dtype) {
  if (format == nullptr) return false;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  switch (format[0]) {
    case 'f':
      dtype = DType::kFloat32;
      return true;
    case 'd':
      dtype = DType::kFloat64;
      return true;
    case 'e':
      dtype = DType::kFloat16;
      return true;
    case '?':
      dtype = DType::kBool;
      return true;
    case 'b':
      dtype = DType::kInt8;
      return true;
    case 'B':
      dtype = DType::kUInt8;
      return true;
    case 'i':
    case 'l':
    case 'q':
      dtype = item_size == 8 ? DType::kInt64 : DType::kInt32;
      return true;
    default:
      return false;
  }
}

// False for a field of records, whose elements are no whole number of elements
// apart, and for elements without a size.
bool has_whole_strides(const Py_buffer& buffer) {
  if (buffer.itemsize == 0) return false;
  for (int i = 0; i < buffer.ndim; ++i) {
    if (buffer.strides[i] % buffer.itemsize != 0) return false;
  }
  return true;
}

std::string dtype_text(nb::handle object) {
  if (!nb::hasattr(object, "dtype")) return "of another type";
  return nb::str(nb::object(object.attr("dtype"))).c_str();
}

// Whether the memory of such arrays holds their elements. That of a subclass of
// PyTorch's tensor may hold anything (a causal bias: nothing at all), that of a
// masked array what is masked too.
bool holds_its_elements(PyTypeObject* type) {
  // The last few that do: asking costs a microsecond.
  static std::array<PyTypeObject*, 4> known{};  // under the GIL
  static std::size_t next = 0;
  if (std::find(known.begin(), known.end(), type) != known.end()) return true;
  const nb::handle object(reinterpret_cast<PyObject*>(type));
  if (nb::hasattr(object, "__torch_function__")) {
    const std::string_view name = nb::type_name(object).c_str();
    if (name != "torch.Tensor" && name != "torch.nn.parameter.Parameter") {
      return false;
    }
  } else if (nb::hasattr(object, "mask") && nb::hasattr(object, "filled")) {
    return false;
  }
  // Held, so that no other type can come to stand at this address.
  Py_INCREF(object.ptr());
  Py_XDECREF(reinterpret_cast<PyObject*>(known[next]));
  known[next] = type;
  next = (next + 1) % known.size();
  return true;
}

// PyTorch negates x.conj().imag, and views like it, when somebody reads them:
// their memory has the other sign, and DLPack does not tell.
bool waits_for_its_sign(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr())) return false;
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object method = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!method.is_valid()) {
    PyErr_Clear();
    return false;
  }
  return nb::cast<bool>(method());
}

// What the framework said, without the frames of its own code.
std::string first_line(const nb::python_error& error) {
  const std::string text = nb::str(error.value()).c_str();
  return text.substr(0, text.find('\n'));
}

}  // namespace

Array::Array(nb::handle object, const char* where, const char* name,
             Access access) {
  const bool write = access == Access::kWrite;
  const char* const wanted =
      write ? " must be an array that can be written" : " must be an array";
  if (!holds_its_elements(Py_TYPE(object.ptr()))) {
    throw_type_error(
        where, name, wanted, "; got ", type_text(object),
        ", whose memory may mean something else than its elements");
  }
  if (waits_for_its_sign(object)) {
    if (write) {
      throw_type_error(where, name, wanted,
                       " in memory of the CPU; got a view whose sign is still "
                       "to be changed");
    }
    owner_ = object.attr("resolve_neg")();
    object = owner_;
  }
  try {
    if (!read_exchange(object) && !read_buffer(object, write) &&
        !read_bfloat16(object, write) && !read_capsule(object)) {
      throw_type_error(where, name, wanted, " in memory of the CPU; got ",
                       type_text(object));
    }
  } catch (nb::python_error& error) {
    // A meta tensor, a sparse one, one with a graph.
    if (!error.matches(PyExc_RuntimeError) &&
        !error.matches(PyExc_BufferError)) {
      throw;
    }
    throw_type_error(where, name, wanted, " in memory of the CPU; got ",
                     type_text(object), ": ", first_line(error));
  }
  if (!on_cpu_) {
    throw_type_error(where, name, " must be in memory of the CPU");
  }
  if (!known_dtype_) {
    throw_type_error(where, name,
                     " has elements that regard does not know; its dtype is ",
                     dtype_text(object));
  }
  if (size() == 0) {
    // The strides of nothing may be anything, also 0, which we read as
    // repeated; its address may be null, which we read as not given.
    alignas(double) static char nothing[sizeof(double)];
    if (data_ == nullptr) data_ = nothing;
    std::int64_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= std::max<std::int64_t>(shape_[i], 1);
    }
  }
}

Array::~Array() { release(); }

void Array::release() noexcept {
  if (has_buffer_) PyBuffer_Release(&buffer_);
  has_buffer_ = false;
}

Array::Array(Array&& other) noexcept { *this = std::move(other); }

Array& Array::operator=(Array&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = other.data_;
  dtype_ = other.dtype_;
  rank_ = other.rank_;
  known_dtype_ = other.known_dtype_;
  on_cpu_ = other.on_cpu_;
  shape_ = other.shape_;
  strides_ = other.strides_;
  buffer_ = other.buffer_;
  has_buffer_ = std::exchange(other.has_buffer_, false);
  owner_ = std::move(other.owner_);
  return *this;
}

std::int64_t Array::size() const {
  std::int64_t count = 1;
  for (int i = 0; i < rank_; ++i) count *= shape_[i];
  return count;
}

bool Array::is_contiguous() const {
  std::int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    if (shape_[i] > 1 && strides_[i] != stride) return false;
    stride *= shape_[i];
  }
  return true;
}

void Array::insert_axis(int dim) {
  for (int i = rank_; i > dim; --i) {
    shape_[i] = shape_[i - 1];
    strides_[i] = strides_[i - 1];
  }
  shape_[dim] = 1;
  strides_[dim] = 0;
  ++rank_;
}

void Array::swap_axes(int a, int b) {
  std::swap(shape_[a], shape_[b]);
  std::swap(strides_[a], strides_[b]);
}

void Array::take_dltensor(const void* dltensor) {
  const auto& tensor = *static_cast<const DLTensor*>(dltensor);
  on_cpu_ = tensor.device.type == kDLCpu;
  known_dtype_ =
      tensor.ndim < kMaxRank && dtype_of_dlpack(tensor.dtype, dtype_);
  if (!on_cpu_ || !known_dtype_) {
    rank_ = 0;
    return;
  }
  rank_ = tensor.ndim;
  data_ = tensor.data == nullptr
              ? nullptr
              : static_cast<char*>(tensor.data) + tensor.byte_offset;
  std::int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    shape_[i] = tensor.shape[i];
    strides_[i] = tensor.strides != nullptr ? tensor.strides[i] : stride;
    stride *= shape_[i];
  }
}

bool Array::read_exchange(nb::handle object) {
  const DLExchangeApi* api = exchange_api(Py_TYPE(object.ptr()));
  if (api == nullptr) return false;
  DLTensor tensor{};
  if (api->tensor_from_object(object.ptr(), &tensor) != 0) {
    throw nb::python_error();  // the reason is the framework's to tell
  }
  take_dltensor(&tensor);
  return true;
}

bool Array::read_buffer(nb::handle object, bool write) {
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  const int flags = write ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    PyErr_Clear();
    return false;
  }
  has_buffer_ = true;
  data_ = buffer_.buf;
  rank_ = 0;
  known_dtype_ = false;
  if (buffer_.ndim >= kMaxRank || !has_whole_strides(buffer_)) return true;
  known_dtype_ = dtype_of_format(buffer_.format, buffer_.itemsize, dtype_);
  rank_ = buffer_.ndim;
  for (int i = 0; i < rank_; ++i) {
    shape_[i] = buffer_.shape[i];
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  return true;
}

// NumPy does not lend elements of dtypes from outside; as uint16 it does, and
// those are the same bytes.
bool Array::read_bfloat16(nb::handle object, bool write) {
  if (!nb::hasattr(object, "view") || dtype_text(object) != "bfloat16") {
    return false;
  }
  owner_ = object.attr("view")("uint16");
  if (!read_buffer(owner_, write)) return false;
  dtype_ = DType::kBFloat16;
  known_dtype_ = rank_ == buffer_.ndim;  // that it is uint16 is no obstacle
  return true;
}

bool Array::read_capsule(nb::handle object) {
  // A buffer that was refused, because it is read-only, would be refused again.
  if (PyObject_CheckBuffer(object.ptr())) return false;
  if (!nb::hasattr(object, "__dlpack__")) return false;
  PyObject* capsule = PyObject_CallMethod(object.ptr(), "__dlpack__", nullptr);
  if (capsule == nullptr) throw nb::python_error();
  // Not consumed: the capsule's own destructor frees the tensor, after us.
  owner_ = nb::steal(capsule);
  const auto* managed = static_cast<const DLManagedTensor*>(
      PyCapsule_GetPointer(capsule, "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  take_dltensor(&managed->tensor);
  return true;
}

std::string type_text(nb::handle object) {
  // Not tp_name, which the stable ABI does not show.
  return nb::type_name(object.type()).c_str();
}

bool is_torch_tensor(nb::handle object) {
  return exchange_api(Py_TYPE(object.ptr())) != nullptr &&
         nb::hasattr(object, "data_ptr");
}

namespace {

bool requires_gradient(nb::handle tensor) {
  return nb::cast<bool>(tensor.attr("requires_grad")) &&
         nb::cast<bool>(
             nb::module_::import_("torch").attr("is_grad_enabled")());
}

// Whether a derivative in forward mode goes along.
bool has_tangent(nb::handle tensor) {
  // Never released: at exit the interpreter may be gone before us.
  static PyObject* const module =
      nb::module_::import_("torch.autograd.forward_ad").release().ptr();
  const nb::handle forward(module);
  if (nb::cast<int>(forward.attr("_current_level")) < 0) return false;
  const nb::object unpacked = forward.attr("unpack_dual")(tensor);
  return !nb::object(unpacked.attr("tangent")).is_none();
}

}  // namespace

void refuse_gradient(nb::handle object, const char* where, const char* name) {
  if (!is_torch_tensor(object)) return;
  if (requires_gradient(object)) {
    throw_type_error(where, name,
                     " requires a gradient, which would be lost here; "
                     "regard.torch has functions that keep it");
  }
  if (has_tangent(object)) {
    throw_type_error(where, name,
                     " has a tangent, which would be lost here: derivatives "
                     "in forward mode are not supported");
  }
}

Array input_array(nb::handle object, const char* where, const char* name) {
  Array array(object, where, name);
  if (array.rows_are_contiguous()) return array;
  nb::object copy = nb::hasattr(object, "contiguous")
                        ? nb::object(object.attr("contiguous")())
                        : numpy("ascontiguousarray")(object);
  Array made(copy, where, name);
  made.keep(std::move(copy));
  return made;
}

Array output_array(nb::handle object, const char* where, const char* name) {
  Array array(object, where, name, Array::Access::kWrite);
  if (!array.rows_are_contiguous()) {
    require(false, where, "the elements of a row of ", name,
            " must be contiguous; its last stride is ",
            array.stride(array.rank() - 1));
  }
  return array;
}

nb::object numpy(const char* name) {
  // Never released: at exit the interpreter may be gone before us.
  static PyObject* const module = nb::module_::import_("numpy").release().ptr();
  return nb::handle(module).attr(name);
}

namespace {

nb::tuple shape_tuple(std::span<const std::int64_t> shape) {
  nb::list extents;
  for (const std::int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

// torch.empty(extents, dtype=dtype), on the CPU whatever the default device is.
nb::object torch_empty(const nb::tuple& extents, DType dtype) {
  // Never released, as numpy(); a dtype is looked up when it is first wanted.
  static PyObject* const torch = nb::module_::import_("torch").release().ptr();
  static PyObject* const empty =
      nb::object(nb::handle(torch).attr("empty")).release().ptr();
  static std::array<PyObject*, 16> dtypes{};  // under the GIL
  PyObject*& torch_dtype = dtypes.at(static_cast<std::size_t>(dtype));
  if (torch_dtype == nullptr) {
    const std::string name(to_string(dtype));
    torch_dtype =
        nb::object(nb::handle(torch).attr(name.c_str())).release().ptr();
  }
  return nb::handle(empty)(extents, nb::arg("dtype") = nb::handle(torch_dtype),
                           nb::arg("device") = "cpu");
}

}  // namespace

nb::object new_array(nb::handle like, std::span<const std::int64_t> shape,
                     DType dtype) {
  const nb::tuple extents = shape_tuple(shape);
  if (is_torch_tensor(like)) return torch_empty(extents, dtype);
  static PyObject* const empty = numpy("empty").release().ptr();
  if (dtype == DType::kBFloat16) {
    return nb::handle(empty)(extents, like.attr("dtype"));
  }
  static PyObject* const float32 = numpy("dtype")("float32").release().ptr();
  if (dtype == DType::kFloat32)
    return nb::handle(empty)(extents, nb::handle(float32));
  return nb::handle(empty)(extents, std::string(to_string(dtype)).c_str());
}

}  // namespace regard::python
