// SPDX-License-Identifier: Apache-2.0
#include "regard/core/threads.h"

#include "capi/guard.h"
#include "capi/handles.h"

regard_status regard_thread_pool_create(int32_t threads,
                                        regard_thread_pool** pool) {
  constexpr const char* kWhere = "regard_thread_pool_create";
  return regard::capi::guarded([&] {
    regard::capi::not_null(pool, kWhere, "pool") = nullptr;
    *pool = new regard_thread_pool{regard::ThreadPool(threads)};
  });
}

void regard_thread_pool_free(regard_thread_pool* pool) { delete pool; }
