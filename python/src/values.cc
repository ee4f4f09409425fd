// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <limits>

namespace regard::python {
namespace {

nb::object to_index(nb::handle value, const char* where,
                    std::string_view name) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    throw_type_error(where, name, " must be an integer; got ",
                     type_text(value));
  }
  return index;
}

}  // namespace

double to_double(nb::handle value, const char* where, std::string_view name) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw_type_error(where, name, " must be a number; got ", type_text(value));
  }
  return number;
}

std::int64_t to_integer(nb::handle value, const char* where,
                        std::string_view name) {
  const nb::object index = to_index(value, where, name);
  const long long number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    require(false, where, name, " must fit in int64; got ",
            nb::str(index).c_str());
  }
  return number;
}

std::uint64_t to_seed(nb::handle value, const char* where) {
  const nb::object index = to_index(value, where, "seed");
  const auto seed = PyLong_AsUnsignedLongLongMask(index.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return seed;
}

int to_threads(nb::handle value, const char* where) {
  const std::int64_t count = to_integer(value, where, "threads");
  require(count >= 1 && count <= std::numeric_limits<int>::max(), where,
          "threads must be at least 1, or None for one per core; got ", count);
  return static_cast<int>(count);
}

bool to_bool(nb::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

std::string_view to_text(nb::handle value, const char* where,
                         std::string_view name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    throw_type_error(where, name, " must be a string; got ", type_text(value));
  }
  return {text, static_cast<std::size_t>(size)};
}

nb::object as_integers(const nb::object& array, DType type, const char* where,
                       const char* name) {
  // An empty list has no type of its own.
  const nb::str kind(nb::object(array.attr("dtype").attr("kind")));
  if (*kind.c_str() != 'i' && *kind.c_str() != 'u' &&
      nb::cast<std::int64_t>(array.attr("size")) > 0) {
    throw_type_error(where, name, " must be integers; got ",
                     nb::str(nb::object(array.attr("dtype"))).c_str());
  }
  const std::string text(to_string(type));
  nb::object same = array.attr("astype")(text.c_str(), nb::arg("copy") = false);
  if (!same.is(array)) {
    require(nb::cast<bool>(numpy("array_equal")(same, array)), where, name,
            " must fit in ", text);
  }
  return same;
}

std::vector<std::int64_t> to_integers(nb::handle value, const char* where,
                                      const char* name) {
  const nb::object numbers = as_integers(numpy("ascontiguousarray")(value),
                                         DType::kInt64, where, name);
  const Array array(numbers, where, name);
  require(array.rank() == 1, where, name, " must have one dimension; got ",
          to_string(array.shape()));
  const auto* first = static_cast<const std::int64_t*>(array.data());
  return {first, first + array.size()};
}

}  // namespace regard::python
