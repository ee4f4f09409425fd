// SPDX-License-Identifier: Apache-2.0
// What stands behind the opaque handles of regard/c.h.
#pragma once

#include "regard/attention/kv_cache.h"
#include "regard/core/threads.h"
#include "regard/mask/mask.h"
#include "regard/nn/multi_head_attention.h"

struct regard_thread_pool {
  regard::ThreadPool pool;
};
struct regard_mask {
  regard::Mask mask;
};
struct regard_kv_cache {
  regard::KVCache cache;
};
struct regard_mha {
  regard::nn::MultiHeadAttention layer;
};
