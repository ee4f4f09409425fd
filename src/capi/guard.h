// SPDX-License-Identifier: Apache-2.0
// The border that no exception crosses.
#pragma once

#include "regard/c.h"
#include "regard/core/error.h"

namespace regard::capi {

// The status of the exception that is being handled; its text is what
// regard_last_error() says from now on.
regard_status report_exception() noexcept;

template <typename Body>
regard_status guarded(const Body& body) noexcept {
  try {
    body();
    return REGARD_OK;
  } catch (...) {
    return report_exception();
  }
}

[[noreturn]] void refuse_null(const char* where, const char* name);

// For what must be passed.
template <typename T>
T& not_null(T* pointer, const char* where, const char* name) {
  if (pointer == nullptr) refuse_null(where, name);
  return *pointer;
}

// Writes a new handle to `*to`; null where `make` throws.
template <typename Handle, typename Make>
regard_status create(Handle** to, const char* where, const char* name,
                     const Make& make) noexcept {
  return guarded([&] {
    not_null(to, where, name) = nullptr;
    *to = new Handle{make()};
  });
}

}  // namespace regard::capi
