// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "bind.h"
#include "models.h"
#include "regard/core/error.h"
#include "regard/core/team.h"
#include "regard/core/version.h"
#include "regard/kernels/targets.h"

// clang-format off
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
// clang-format on

namespace nb = nanobind;

namespace {

// PyTorch brings GNU OpenMP along and lets everybody see it.
bool work_with_openmp() {
  void* const parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  if (parallel == nullptr) return false;
  regard::use_external_threads(reinterpret_cast<regard::Team>(parallel));
  return true;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of regard. Use `import regard`.";
  // InvalidArgument is a std::invalid_argument, which is a ValueError already.
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const regard::IoError& e) {
      PyErr_SetString(PyExc_OSError, e.what());
    } catch (const regard::ParseError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  nb::set_leak_warnings(false);  // caches of other modules may outlive ours
  m.def("version", &regard::version);
  m.def("simd_target", &regard::simd_target,
        "The SIMD target in use, such as 'AVX3' (AVX-512) or 'AVX2'.");
  m.def("work_with_openmp", &work_with_openmp,
        "From here on calls run on the threads of GNU OpenMP, if the process "
        "has it. Says whether.");
  regard::python::bind_linear(m);
  regard::python::bind_mask(m);
  regard::python::bind_attention(m);
  regard::python::bind_weights(m);
  regard::python::bind_explain(m);
  regard::python::bind_layer(m);
  regard::python::bind_kv_cache(m);
  regard::python::bind_nn(m);
  regard::python::bind_text_encoder(m);
  regard::python::bind_language_model(m);
  regard::python::bind_translator(m);
  regard::python::bind_view(m);
}
