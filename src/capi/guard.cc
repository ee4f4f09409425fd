// SPDX-License-Identifier: Apache-2.0
#include "capi/guard.h"

#include <exception>
#include <new>
#include <string>

#include "regard/attention/kv_cache.h"
#include "regard/core/version.h"

namespace regard::capi {
namespace {

thread_local std::string last_error;

regard_status report(regard_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();  // no memory for the text: the status still tells
  }
  return status;
}

}  // namespace

void refuse_null(const char* where, const char* name) {
  detail::throw_composed<InvalidArgument>(where, {name, " must not be NULL"});
}

regard_status report_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return report(REGARD_INVALID_ARGUMENT, error.what());
  } catch (const OutOfPages& error) {
    return report(REGARD_OUT_OF_PAGES, error.what());
  } catch (const IoError& error) {
    return report(REGARD_IO_ERROR, error.what());
  } catch (const ParseError& error) {
    return report(REGARD_PARSE_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return report(REGARD_IO_ERROR, "regard: there is not enough memory");
  } catch (const std::exception& error) {
    return report(REGARD_INTERNAL_ERROR, error.what());
  } catch (...) {
    return report(REGARD_INTERNAL_ERROR, "regard: an unknown error");
  }
}

}  // namespace regard::capi

int32_t regard_abi_version(void) { return REGARD_ABI_VERSION; }

const char* regard_version(void) { return regard::version(); }

const char* regard_last_error(void) { return regard::capi::last_error.c_str(); }
