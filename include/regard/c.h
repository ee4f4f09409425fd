// SPDX-License-Identifier: Apache-2.0
/* regard from C, and from every language that can call C: attention forward and
   backward, decoding with key-value caches, masks, and the multi-head attention
   layer. What each function computes, which shapes it takes and what a row that
   sees no key gives is said in the C++ headers (regard/attention/attention.h,
   backward.h, decode.h, kv_cache.h, mask/mask.h, nn/multi_head_attention.h);
   the results are the same, bit for bit.

   - A function that can fail returns a regard_status. If it is not REGARD_OK,
     regard_last_error() says in one line what was wrong, nothing was written,
     and no handle was made. No exception leaves the library.
   - A struct begins with its size: write `regard_tensor t = {.size = sizeof t}`
     and set what you need. What is 0 or NULL is the default. So a program that
   was built with an older header goes on working with a newer library; a newer
   program is refused by an older library only where it uses a member that the
   library does not know.
   - Handles are opaque, made by _create and the like, and given back by _free,
     which takes NULL, too.
   - Pointers that go in are read, or written, during the call, and not kept:
     only regard_mask_keep and _drop borrow their elements.
   - Calls may run on many threads at once; those that change a cache must be
     alone with it. */
#ifndef REGARD_C_H
#define REGARD_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REGARD_API __attribute__((visibility("default")))
#else
#define REGARD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- versions and errors ---- */

/* Rises when a program that was built before would no longer work. */
#define REGARD_ABI_VERSION 1
/* The REGARD_ABI_VERSION of the library that is loaded. */
REGARD_API int32_t regard_abi_version(void);
/* "0.1.0", of the library that is loaded. */
REGARD_API const char* regard_version(void);

typedef int32_t regard_status;
enum {
  REGARD_OK = 0,
  REGARD_INVALID_ARGUMENT = 1, /* the caller broke a rule */
  REGARD_IO_ERROR = 2,         /* a file, or memory, could not be had */
  REGARD_PARSE_ERROR = 3,      /* a file is not what its format demands */
  REGARD_OUT_OF_PAGES = 4,     /* of a paged cache: release some, try again */
  REGARD_INTERNAL_ERROR = 5    /* a mistake of the library's own */
};

/* What the last call of this thread that failed said, "" before the first: one
   line that names the function, the rule and what came. Valid until the next
   call of this thread that fails. */
REGARD_API const char* regard_last_error(void);

/* ---- tensors ---- */

typedef int32_t regard_dtype;
enum {
  REGARD_FLOAT32 = 0,
  REGARD_FLOAT64 = 1,
  REGARD_BFLOAT16 = 2, /* the upper 16 bits of a float32 */
  REGARD_FLOAT16 = 3,  /* IEEE 754 binary16 */
  REGARD_INT8 = 4,
  REGARD_BOOL = 5 /* one byte, 0 or 1 */
};

#define REGARD_MAX_RANK 4

/* Borrows elements. Strides count elements; the last must be 1, every other is
   free (0 broadcasts). If all are 0, the elements stand one after the other,
   last index fastest. */
typedef struct regard_tensor {
  size_t size; /* sizeof(regard_tensor) */
  void* data;  /* of an input, only read */
  regard_dtype dtype;
  int32_t rank;
  int64_t shape[REGARD_MAX_RANK];
  int64_t strides[REGARD_MAX_RANK];
} regard_tensor;

/* ---- threads ---- */

/* Worker threads of its own. Without one, calls share the process's. */
typedef struct regard_thread_pool regard_thread_pool;
/* `threads` counts the caller of each call. */
REGARD_API regard_status regard_thread_pool_create(int32_t threads,
                                                   regard_thread_pool** pool);
REGARD_API void regard_thread_pool_free(regard_thread_pool* pool);

/* ---- masks ---- */

/* Which (query, key) pairs are visible. */
typedef struct regard_mask regard_mask;

/* Where query 0 stands among the keys. */
typedef int32_t regard_alignment;
enum {
  REGARD_BOTTOM_RIGHT = 0, /* the last query at the last key */
  REGARD_TOP_LEFT = 1,     /* the first query at the first key */
  REGARD_AT_OFFSET = 2     /* the first query at key `offset` */
};

/* `offset` is that of REGARD_AT_OFFSET; the others do not read it. */
REGARD_API regard_status regard_mask_causal(regard_alignment alignment,
                                            int64_t offset, regard_mask** mask);
/* A negative width does not limit its side. */
REGARD_API regard_status regard_mask_window(int64_t left, int64_t right,
                                            regard_alignment alignment,
                                            int64_t offset, regard_mask** mask);
REGARD_API regard_status regard_mask_prefix(int64_t n,
                                            regard_alignment alignment,
                                            int64_t offset, regard_mask** mask);
/* kv_lengths and query_lengths are [batch]; query_lengths may be NULL. */
REGARD_API regard_status regard_mask_lengths(const int64_t* kv_lengths,
                                             const int64_t* query_lengths,
                                             int64_t batch, regard_mask** mask);
/* query_ids is [q_len], key_ids [kv_len]. */
REGARD_API regard_status regard_mask_documents(const int32_t* query_ids,
                                               int64_t q_len,
                                               const int32_t* key_ids,
                                               int64_t kv_len,
                                               regard_mask** mask);
/* REGARD_BOOL [batch or 1, heads or 1, q_len or 1, kv_len or 1]. keep: 1 is
   visible. drop: 1 is hidden. The elements must stay where they are until the
   mask, and every mask made from it, was given back. */
REGARD_API regard_status regard_mask_keep(const regard_tensor* pairs,
                                          regard_mask** mask);
REGARD_API regard_status regard_mask_drop(const regard_tensor* pairs,
                                          regard_mask** mask);
/* A new mask that shows what both show. */
REGARD_API regard_status regard_mask_and(const regard_mask* a,
                                         const regard_mask* b,
                                         regard_mask** mask);
REGARD_API void regard_mask_free(regard_mask* mask);

/* ---- attention ---- */

typedef int32_t regard_score;
enum { REGARD_DOT = 0, REGARD_COSINE = 1 };
typedef int32_t regard_compute;
enum { REGARD_COMPUTE_FLOAT32 = 0, REGARD_COMPUTE_BFLOAT16 = 1 };

/* "Real" is REGARD_FLOAT64 where q is, and REGARD_FLOAT32 everywhere else. */
typedef struct regard_attention_options {
  size_t size;             /* sizeof(regard_attention_options) */
  const regard_mask* mask; /* NULL: every pair is visible */
  regard_score score;
  regard_compute compute;
  int32_t has_scale;   /* not 0: `scale` counts */
  int32_t threads;     /* 0: one for each core */
  double scale;        /* else 1 / sqrt(d_k), or 1 for REGARD_COSINE */
  double softcap;      /* 0: none */
  double dropout_rate; /* in [0, 1) */
  uint64_t dropout_seed;
  const regard_tensor* head_scales;  /* Real [heads] */
  const regard_tensor* bias;         /* Real, rank 4 */
  const regard_tensor* alibi_slopes; /* Real [heads] */
  const regard_tensor* sinks;        /* Real [heads] */
  /* Real [batch, heads, q_len]: written by forward and decode, read by
     backward. */
  const regard_tensor* log_sum_exp;
  /* Packed sequences: [sequences + 1] each, and sequences > 0. */
  const int64_t* q_offsets;
  const int64_t* kv_offsets;
  int64_t sequences;
  regard_thread_pool* pool; /* NULL: the process's */
} regard_attention_options;

/* out = softmax(scale q k^T + bias, over the visible keys) v.
     q   [batch, heads,    q_len,  d_k]
     k   [batch, kv_heads, kv_len, d_k]
     v   [batch, kv_heads, kv_len, d_v]
     out [batch, heads,    q_len,  d_v]
   float32, float64, bfloat16 or float16, all four the same. options: NULL, or
   what is not the default. */
REGARD_API regard_status regard_attention_forward(
    const regard_tensor* q, const regard_tensor* k, const regard_tensor* v,
    const regard_tensor* out, const regard_attention_options* options);

/* weights = softmax(...), before dropout: Real [batch, heads, q_len, kv_len].
 */
REGARD_API regard_status regard_attention_weights(
    const regard_tensor* q, const regard_tensor* k,
    const regard_tensor* weights, const regard_attention_options* options);

typedef struct regard_backward_inputs {
  size_t size;                        /* sizeof(regard_backward_inputs) */
  const regard_tensor *q, *k, *v;     /* as in regard_attention_forward */
  const regard_tensor* out;           /* what it wrote */
  const regard_tensor* d_out;         /* the gradient of out */
  const regard_tensor* d_log_sum_exp; /* Real, or NULL */
} regard_backward_inputs;

/* Where the gradients go; NULL is not wanted. */
typedef struct regard_gradients {
  size_t size; /* sizeof(regard_gradients) */
  const regard_tensor *q, *k, *v;
  const regard_tensor *bias, *alibi_slopes, *sinks, *head_scales; /* Real */
} regard_gradients;

/* options: as in the forward call; log_sum_exp must hold what that wrote. */
REGARD_API regard_status regard_attention_backward(
    const regard_backward_inputs* inputs, const regard_gradients* gradients,
    const regard_attention_options* options);

/* ---- decoding ---- */

/* The keys and values of one attention layer, for sequences that grow. */
typedef struct regard_kv_cache regard_kv_cache;

typedef int32_t regard_kv_cache_kind;
enum { REGARD_CONTIGUOUS = 0, REGARD_RING = 1, REGARD_PAGED = 2 };

typedef struct regard_kv_cache_options {
  size_t size; /* sizeof(regard_kv_cache_options) */
  regard_kv_cache_kind kind;
  regard_dtype storage; /* float32, bfloat16, float16 or int8 */
  int64_t sequences;
  int64_t kv_heads;
  int64_t d_k;
  int64_t d_v;         /* 0: d_k */
  int64_t reserve;     /* REGARD_CONTIGUOUS: tokens to make room for */
  int64_t window;      /* REGARD_RING: tokens that a query sees */
  int64_t first_kept;  /* REGARD_RING: and the first so many */
  int64_t page_tokens; /* REGARD_PAGED: a multiple of 16; 0: 64 */
  int64_t pages;       /* REGARD_PAGED */
} regard_kv_cache_options;

REGARD_API regard_status regard_kv_cache_create(
    const regard_kv_cache_options* options, regard_kv_cache** cache);
REGARD_API void regard_kv_cache_free(regard_kv_cache* cache);
/* Adds tokens to the end of n sequences, or of all in order where `sequences`
   is NULL: k float32 [n, kv_heads, tokens, d_k], v likewise. */
REGARD_API regard_status regard_kv_cache_append(regard_kv_cache* cache,
                                                const int64_t* sequences,
                                                int64_t n,
                                                const regard_tensor* k,
                                                const regard_tensor* v);
REGARD_API regard_status regard_kv_cache_length(const regard_kv_cache* cache,
                                                int64_t sequence,
                                                int64_t* length);
REGARD_API regard_status regard_kv_cache_truncate(regard_kv_cache* cache,
                                                  int64_t sequence,
                                                  int64_t length);
REGARD_API regard_status regard_kv_cache_release(regard_kv_cache* cache,
                                                 int64_t sequence);
REGARD_API regard_status regard_kv_cache_fork(regard_kv_cache* cache,
                                              int64_t from, int64_t to);
/* Beam search: sequence i becomes what sequence parents[i] was. */
REGARD_API regard_status regard_kv_cache_reorder(regard_kv_cache* cache,
                                                 const int64_t* parents,
                                                 int64_t n);
REGARD_API regard_status regard_kv_cache_resize(regard_kv_cache* cache,
                                                int64_t sequences);

/* The last q_len tokens of n sequences ask, or of all in order where
   `sequences` is NULL: q float32 [n, heads, q_len, d_k], out likewise. */
REGARD_API regard_status regard_attention_decode(
    const regard_tensor* q, const regard_kv_cache* cache,
    const int64_t* sequences, int64_t n, const regard_tensor* out,
    const regard_attention_options* options);

/* ---- the multi-head attention layer ---- */

/* Projections in, attention, projection out, with the parameters of PyTorch's
   MultiheadAttention under its names. */
typedef struct regard_mha regard_mha;

typedef struct regard_mha_config {
  size_t size; /* sizeof(regard_mha_config) */
  int64_t model_dim;
  int64_t heads;
  int64_t kv_heads;       /* 0: heads */
  int64_t key_dim;        /* 0: model_dim */
  int64_t value_dim;      /* 0: model_dim */
  int64_t head_dim;       /* 0: model_dim / heads */
  int64_t value_head_dim; /* 0: head_dim */
  int32_t no_bias;        /* not 0: projections without bias */
  int32_t bias_kv;
  int32_t add_zero_attn;
  regard_score score;
  int32_t has_scale; /* not 0: `scale` counts */
  int32_t reserved;  /* 0 */
  double scale;
} regard_mha_config;

/* Random parameters. */
REGARD_API regard_status regard_mha_create(const regard_mha_config* config,
                                           uint64_t seed, regard_mha** layer);
/* Parameters from a safetensors file, float32: those whose names begin with
   `prefix`, as "encoder.layers.0.self_attn."; NULL: all. */
REGARD_API regard_status regard_mha_load(const regard_mha_config* config,
                                         const char* path, const char* prefix,
                                         regard_mha** layer);
REGARD_API void regard_mha_free(regard_mha* layer);

typedef struct regard_mha_options {
  size_t size; /* sizeof(regard_mha_options) */
  const regard_mask* mask;
  const regard_tensor* bias;         /* rank 4 */
  const regard_tensor* alibi_slopes; /* [heads] */
  double softcap;
  regard_compute compute;
  int32_t threads;
  /* If given, written: [batch, heads, q_len, all_keys], and the mean over the
     heads, [batch, q_len, all_keys]. */
  const regard_tensor* weights;
  const regard_tensor* average_weights;
  regard_thread_pool* pool;
} regard_mha_options;

/* query [batch, q_len, model_dim], key [batch, kv_len, key_dim],
   value [batch, kv_len, value_dim], out [batch, q_len, model_dim], or all four
   without the batch; float32. key NULL: query; value NULL: key. */
REGARD_API regard_status regard_mha_forward(const regard_mha* layer,
                                            const regard_tensor* query,
                                            const regard_tensor* key,
                                            const regard_tensor* value,
                                            const regard_tensor* out,
                                            const regard_mha_options* options);

#ifdef __cplusplus
}
#endif

#endif
