/* SPDX-License-Identifier: Apache-2.0 */
/* regard/c.h from C11: results against plain loops in double, and what wrong
   arguments give. Run with the path of a safetensors file to write and read. */
#include "regard/c.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int rule, int line, const char* what) {
  if (rule) return;
  ++failures;
  printf("line %d: %s; the last error is '%s'\n", line, what,
         regard_last_error());
}
#define EXPECT(rule) expect((rule), __LINE__, #rule)
#define OK(call) expect((call) == REGARD_OK, __LINE__, #call)

/* The call is refused with this status, and its message holds the text. */
static void expect_refused(regard_status status, regard_status wanted,
                           const char* text, int line) {
  if (status == wanted && strstr(regard_last_error(), text) != NULL) return;
  ++failures;
  printf(
      "line %d: status %d instead of %d, and the message is '%s' instead of "
      "'%s'\n",
      line, (int)status, (int)wanted, regard_last_error(), text);
}
#define REFUSED(call, text) \
  expect_refused((call), REGARD_INVALID_ARGUMENT, (text), __LINE__)

static regard_tensor tensor(void* data, regard_dtype dtype, int32_t rank, ...) {
  regard_tensor t = {
      .size = sizeof t, .data = data, .dtype = dtype, .rank = rank};
  va_list extents;
  va_start(extents, rank);
  for (int32_t i = 0; i < rank; ++i) t.shape[i] = va_arg(extents, int);
  va_end(extents);
  return t;
}

/* Numbers in [-1, 1), from one seed. */
static double next_number(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 40) / (double)(1u << 23) - 1.0;
}
static void fill(float* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = (float)next_number();
}

/* ---- the definition, in double: one batch entry, self lengths ---- */

enum { HEADS = 4, KV_HEADS = 2, LEN = 9, D = 6, DV = 5 };

typedef int (*visible_pair)(int query, int key);
static int all_visible(int query, int key) {
  (void)query;
  (void)key;
  return 1;
}
static int causal_visible(int query, int key) { return key <= query; }
static int windowed_visible(int query, int key) {
  return key <= query && key >= query - 2;
}

/* weights[LEN] of one query of one head, and the log of their denominator. */
static double weights_of(const float* q, const float* k, int head, int query,
                         visible_pair visible, double* weights) {
  const float* const keys = k + (head / (HEADS / KV_HEADS)) * LEN * D;
  double sum = 0;
  for (int j = 0; j < LEN; ++j) {
    double score = 0;
    for (int x = 0; x < D; ++x) {
      score += (double)q[(head * LEN + query) * D + x] * keys[j * D + x];
    }
    weights[j] = visible(query, j) ? exp(score / sqrt(D)) : 0.0;
    sum += weights[j];
  }
  for (int j = 0; j < LEN; ++j) weights[j] = sum > 0 ? weights[j] / sum : 0.0;
  return log(sum);
}

static void check_out(const float* q, const float* k, const float* v,
                      const float* out, visible_pair visible, int line) {
  double worst = 0;
  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < LEN; ++i) {
      double weights[LEN];
      weights_of(q, k, h, i, visible, weights);
      for (int c = 0; c < DV; ++c) {
        double expected = 0;
        for (int j = 0; j < LEN; ++j) {
          expected += weights[j] *
                      (double)v[((h / (HEADS / KV_HEADS)) * LEN + j) * DV + c];
        }
        worst = fmax(worst, fabs(expected - out[(h * LEN + i) * DV + c]));
      }
    }
  }
  expect(worst < 1e-6, line, "the output is that of plain loops");
}

static float q_data[HEADS * LEN * D], k_data[KV_HEADS * LEN * D],
    v_data[KV_HEADS * LEN * DV], out_data[HEADS * LEN * DV],
    lse_data[HEADS * LEN];
static regard_tensor q, k, v, out, lse;

static void check_forward(void) {
  OK(regard_attention_forward(&q, &k, &v, &out, NULL));
  check_out(q_data, k_data, v_data, out_data, all_visible, __LINE__);

  regard_mask *causal = NULL, *window = NULL, *both = NULL;
  OK(regard_mask_causal(REGARD_BOTTOM_RIGHT, 0, &causal));
  OK(regard_mask_window(2, -1, REGARD_BOTTOM_RIGHT, 0, &window));
  OK(regard_mask_and(causal, window, &both));
  regard_thread_pool* pool = NULL;
  OK(regard_thread_pool_create(2, &pool));
  regard_attention_options options = {.size = sizeof options,
                                      .mask = causal,
                                      .log_sum_exp = &lse,
                                      .threads = 2,
                                      .pool = pool};
  OK(regard_attention_forward(&q, &k, &v, &out, &options));
  check_out(q_data, k_data, v_data, out_data, causal_visible, __LINE__);
  double weights[LEN];
  EXPECT(fabs(weights_of(q_data, k_data, 3, 5, causal_visible, weights) -
              lse_data[3 * LEN + 5]) < 1e-6);

  options.mask = both;
  OK(regard_attention_forward(&q, &k, &v, &out, &options));
  check_out(q_data, k_data, v_data, out_data, windowed_visible, __LINE__);
  static float w[HEADS * LEN * LEN];
  const regard_tensor all = tensor(w, REGARD_FLOAT32, 4, 1, HEADS, LEN, LEN);
  OK(regard_attention_weights(&q, &k, &all, &options));
  weights_of(q_data, k_data, 2, 7, windowed_visible, weights);
  for (int j = 0; j < LEN; ++j) {
    EXPECT(fabs(weights[j] - w[(2 * LEN + 7) * LEN + j]) < 1e-6);
  }

  /* A dense mask of the same pairs. */
  static uint8_t bytes[LEN * LEN];
  for (int i = 0; i < LEN; ++i) {
    for (int j = 0; j < LEN; ++j) {
      bytes[i * LEN + j] = (uint8_t)windowed_visible(i, j);
    }
  }
  const regard_tensor pairs = tensor(bytes, REGARD_BOOL, 4, 1, 1, LEN, LEN);
  regard_mask* kept = NULL;
  OK(regard_mask_keep(&pairs, &kept));
  options.mask = kept;
  memset(out_data, 0, sizeof out_data);
  OK(regard_attention_forward(&q, &k, &v, &out, &options));
  check_out(q_data, k_data, v_data, out_data, windowed_visible, __LINE__);
  bytes[3] = 2;
  regard_mask* none = kept;
  REFUSED(regard_mask_drop(&pairs, &none),
          "regard_mask_drop: every byte of pairs must be 0 or 1");
  EXPECT(none == NULL);

  regard_mask_free(kept);
  regard_mask_free(causal);
  regard_mask_free(window);
  regard_mask_free(both);
  regard_mask_free(NULL);
  regard_thread_pool_free(pool);
}

/* The same numbers in double, with strides: [batch, len, heads, d]. */
static void check_doubles_and_strides(void) {
  static double dq[LEN * HEADS * D], dk[KV_HEADS * LEN * D],
      dv[KV_HEADS * LEN * DV], dout[HEADS * LEN * DV];
  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < LEN; ++i) {
      for (int x = 0; x < D; ++x) {
        dq[(i * HEADS + h) * D + x] = q_data[(h * LEN + i) * D + x];
      }
    }
  }
  for (int i = 0; i < KV_HEADS * LEN * D; ++i) dk[i] = k_data[i];
  for (int i = 0; i < KV_HEADS * LEN * DV; ++i) dv[i] = v_data[i];
  regard_tensor tq = tensor(dq, REGARD_FLOAT64, 4, 1, HEADS, LEN, D);
  tq.strides[0] = LEN * HEADS * D;
  tq.strides[1] = D;
  tq.strides[2] = HEADS * D;
  tq.strides[3] = 1;
  const regard_tensor tk = tensor(dk, REGARD_FLOAT64, 4, 1, KV_HEADS, LEN, D);
  const regard_tensor tv = tensor(dv, REGARD_FLOAT64, 4, 1, KV_HEADS, LEN, DV);
  const regard_tensor to = tensor(dout, REGARD_FLOAT64, 4, 1, HEADS, LEN, DV);
  OK(regard_attention_forward(&tq, &tk, &tv, &to, NULL));
  double worst = 0;
  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < LEN; ++i) {
      double weights[LEN];
      weights_of(q_data, k_data, h, i, all_visible, weights);
      for (int c = 0; c < DV; ++c) {
        double expected = 0;
        for (int j = 0; j < LEN; ++j) {
          expected +=
              weights[j] * dv[((h / (HEADS / KV_HEADS)) * LEN + j) * DV + c];
        }
        worst = fmax(worst, fabs(expected - dout[(h * LEN + i) * DV + c]));
      }
    }
  }
  EXPECT(worst < 1e-14);
}

/* sum of out * d_out, by plain loops: what the gradients are those of. */
static double loss(const float* d_out) {
  double sum = 0;
  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < LEN; ++i) {
      double weights[LEN];
      weights_of(q_data, k_data, h, i, causal_visible, weights);
      for (int c = 0; c < DV; ++c) {
        for (int j = 0; j < LEN; ++j) {
          sum += weights[j] * (double)d_out[(h * LEN + i) * DV + c] *
                 (double)v_data[((h / (HEADS / KV_HEADS)) * LEN + j) * DV + c];
        }
      }
    }
  }
  return sum;
}

static void check_gradient(const float* gradient, float* parameter, int n,
                           const float* d_out, int line) {
  for (int i = 0; i < n; i += 7) {
    const float kept = parameter[i];
    const float up = kept + 0.0078125f, down = kept - 0.0078125f;
    parameter[i] = up;
    const double above = loss(d_out);
    parameter[i] = down;
    const double below = loss(d_out);
    parameter[i] = kept;
    const double expected = (above - below) / ((double)up - (double)down);
    expect(fabs(expected - gradient[i]) < 1e-4, line,
           "the gradient is that of central differences");
  }
}

static void check_backward(void) {
  static float d_out_data[HEADS * LEN * DV], dq_data[HEADS * LEN * D],
      dk_data[KV_HEADS * LEN * D], dv_data[KV_HEADS * LEN * DV];
  fill(d_out_data, HEADS * LEN * DV);
  const regard_tensor d_out =
      tensor(d_out_data, REGARD_FLOAT32, 4, 1, HEADS, LEN, DV);
  const regard_tensor dq = tensor(dq_data, REGARD_FLOAT32, 4, 1, HEADS, LEN, D);
  const regard_tensor dk =
      tensor(dk_data, REGARD_FLOAT32, 4, 1, KV_HEADS, LEN, D);
  const regard_tensor dv =
      tensor(dv_data, REGARD_FLOAT32, 4, 1, KV_HEADS, LEN, DV);
  regard_mask* causal = NULL;
  OK(regard_mask_causal(REGARD_BOTTOM_RIGHT, 0, &causal));
  const regard_attention_options options = {
      .size = sizeof options, .mask = causal, .log_sum_exp = &lse};
  OK(regard_attention_forward(&q, &k, &v, &out, &options));
  regard_backward_inputs inputs = {.size = sizeof inputs,
                                   .q = &q,
                                   .k = &k,
                                   .v = &v,
                                   .out = &out,
                                   .d_out = &d_out};
  regard_gradients gradients = {
      .size = sizeof gradients, .q = &dq, .k = &dk, .v = &dv};
  OK(regard_attention_backward(&inputs, &gradients, &options));
  check_gradient(dq_data, q_data, HEADS * LEN * D, d_out_data, __LINE__);
  check_gradient(dk_data, k_data, KV_HEADS * LEN * D, d_out_data, __LINE__);
  check_gradient(dv_data, v_data, KV_HEADS * LEN * DV, d_out_data, __LINE__);

  REFUSED(regard_attention_backward(&inputs, NULL, &options),
          "gradients must not be NULL");
  REFUSED(regard_attention_backward(&inputs, &gradients, NULL),
          "options.log_sum_exp must hold what attention_forward wrote");
  inputs.d_out = NULL;
  REFUSED(regard_attention_backward(&inputs, &gradients, &options),
          "d_out must not be NULL");
  inputs.size = 8;
  REFUSED(regard_attention_backward(&inputs, &gradients, &options),
          "inputs.size must be the sizeof of its struct");
  regard_mask_free(causal);
}

/* Token after token gives what all at once with a causal mask does. */
static void check_decode(void) {
  static float one_out[HEADS * DV];
  regard_kv_cache_options options = {.size = sizeof options,
                                     .sequences = 1,
                                     .kv_heads = KV_HEADS,
                                     .d_k = D,
                                     .d_v = DV};
  regard_kv_cache* cache = NULL;
  OK(regard_kv_cache_create(&options, &cache));
  const regard_tensor to = tensor(one_out, REGARD_FLOAT32, 4, 1, HEADS, 1, DV);
  for (int t = 0; t < LEN; ++t) {
    regard_tensor tk =
        tensor(k_data + t * D, REGARD_FLOAT32, 4, 1, KV_HEADS, 1, D);
    regard_tensor tv =
        tensor(v_data + t * DV, REGARD_FLOAT32, 4, 1, KV_HEADS, 1, DV);
    regard_tensor tq =
        tensor(q_data + t * D, REGARD_FLOAT32, 4, 1, HEADS, 1, D);
    const int64_t k_steps[] = {KV_HEADS * LEN * D, LEN * D, D, 1};
    const int64_t v_steps[] = {KV_HEADS * LEN * DV, LEN * DV, DV, 1};
    const int64_t q_steps[] = {HEADS * LEN * D, LEN * D, D, 1};
    memcpy(tk.strides, k_steps, sizeof k_steps);
    memcpy(tv.strides, v_steps, sizeof v_steps);
    memcpy(tq.strides, q_steps, sizeof q_steps);
    const int64_t first = 0;
    OK(regard_kv_cache_append(cache, t % 2 == 0 ? NULL : &first, 1, &tk, &tv));
    OK(regard_attention_decode(&tq, cache, t % 2 == 0 ? NULL : &first, 1, &to,
                               NULL));
    for (int h = 0; h < HEADS; ++h) {
      double weights[LEN];
      weights_of(q_data, k_data, h, t, causal_visible, weights);
      for (int c = 0; c < DV; ++c) {
        double expected = 0;
        for (int j = 0; j < LEN; ++j) {
          expected +=
              weights[j] *
              (double)v_data[((h / (HEADS / KV_HEADS)) * LEN + j) * DV + c];
        }
        EXPECT(fabs(expected - one_out[h * DV + c]) < 1e-6);
      }
    }
  }
  int64_t length = -1;
  OK(regard_kv_cache_resize(cache, 2));
  OK(regard_kv_cache_fork(cache, 0, 1));
  OK(regard_kv_cache_truncate(cache, 1, 4));
  OK(regard_kv_cache_length(cache, 1, &length));
  EXPECT(length == 4);
  const int64_t parents[] = {1, 0};
  OK(regard_kv_cache_reorder(cache, parents, 2));
  OK(regard_kv_cache_length(cache, 1, &length));
  EXPECT(length == LEN);
  OK(regard_kv_cache_release(cache, 1));
  OK(regard_kv_cache_length(cache, 1, &length));
  EXPECT(length == 0);

  REFUSED(regard_kv_cache_length(cache, 7, &length), "7");
  REFUSED(regard_kv_cache_length(cache, 0, NULL), "length must not be NULL");
  REFUSED(regard_kv_cache_truncate(NULL, 0, 0), "cache must not be NULL");
  REFUSED(regard_kv_cache_reorder(cache, NULL, 2), "parents must not be NULL");
  REFUSED(regard_kv_cache_reorder(cache, parents, -1),
          "the number of parents must not be negative; it is -1");
  regard_kv_cache_free(cache);

  options.kind = REGARD_PAGED;
  options.pages = 1;
  options.page_tokens = 16;
  OK(regard_kv_cache_create(&options, &cache));
  static float many[KV_HEADS * 17 * D];
  const regard_tensor mk = tensor(many, REGARD_FLOAT32, 4, 1, KV_HEADS, 17, D);
  const regard_tensor mv = tensor(many, REGARD_FLOAT32, 4, 1, KV_HEADS, 17, DV);
  expect_refused(regard_kv_cache_append(cache, NULL, 0, &mk, &mv),
                 REGARD_OUT_OF_PAGES, "page", __LINE__);
  regard_kv_cache_free(cache);
  options.kind = 9;
  REFUSED(regard_kv_cache_create(&options, &cache),
          "kind must be one of regard_kv_cache_kind; it is 9");
  EXPECT(cache == NULL);
}

/* ---- the layer ---- */

enum { WIDTH = 4, LAYER_HEADS = 2, TOKENS = 3 };

static void append_tensor(FILE* file, const float* values, size_t n) {
  fwrite(values, sizeof(float), n, file);
}

/* A safetensors file of one layer, whose names begin with "a.". */
static void write_layer(const char* path, const float* in_weight,
                        const float* in_bias, const float* out_weight,
                        const float* out_bias) {
  const char* const header =
      "{\"a.in_proj_weight\":{\"dtype\":\"F32\",\"shape\":[12,4],"
      "\"data_offsets\":[0,192]},"
      "\"a.in_proj_bias\":{\"dtype\":\"F32\",\"shape\":[12],"
      "\"data_offsets\":[192,240]},"
      "\"a.out_proj.weight\":{\"dtype\":\"F32\",\"shape\":[4,4],"
      "\"data_offsets\":[240,304]},"
      "\"a.out_proj.bias\":{\"dtype\":\"F32\",\"shape\":[4],"
      "\"data_offsets\":[304,320]}}";
  FILE* const file = fopen(path, "wb");
  if (file == NULL) {
    printf("cannot write %s\n", path);
    exit(1);
  }
  const uint64_t length = strlen(header);
  for (int i = 0; i < 8; ++i) fputc((int)(length >> (8 * i) & 255), file);
  fputs(header, file);
  append_tensor(file, in_weight, 48);
  append_tensor(file, in_bias, 12);
  append_tensor(file, out_weight, 16);
  append_tensor(file, out_bias, 4);
  fclose(file);
}

static void check_layer(const char* path) {
  float in_weight[48], in_bias[12], out_weight[16], out_bias[4];
  float x[TOKENS * WIDTH], y[TOKENS * WIDTH];
  fill(in_weight, 48);
  fill(in_bias, 12);
  fill(out_weight, 16);
  fill(out_bias, 4);
  fill(x, TOKENS * WIDTH);
  write_layer(path, in_weight, in_bias, out_weight, out_bias);

  regard_mha_config config = {
      .size = sizeof config, .model_dim = WIDTH, .heads = LAYER_HEADS};
  regard_mha* layer = NULL;
  OK(regard_mha_load(&config, path, "a.", &layer));
  const regard_tensor tx = tensor(x, REGARD_FLOAT32, 2, TOKENS, WIDTH);
  const regard_tensor ty = tensor(y, REGARD_FLOAT32, 2, TOKENS, WIDTH);
  OK(regard_mha_forward(layer, &tx, NULL, NULL, &ty, NULL));

  double qkv[TOKENS][12], heads[TOKENS][WIDTH];
  for (int t = 0; t < TOKENS; ++t) {
    for (int r = 0; r < 12; ++r) {
      qkv[t][r] = in_bias[r];
      for (int c = 0; c < WIDTH; ++c) {
        qkv[t][r] += (double)in_weight[r * WIDTH + c] * x[t * WIDTH + c];
      }
    }
  }
  for (int h = 0; h < LAYER_HEADS; ++h) {
    for (int i = 0; i < TOKENS; ++i) {
      double weights[TOKENS], sum = 0;
      for (int j = 0; j < TOKENS; ++j) {
        double score = 0;
        for (int c = 2 * h; c < 2 * h + 2; ++c) {
          score += qkv[i][c] * qkv[j][WIDTH + c];
        }
        weights[j] = exp(score / sqrt(2.0));
        sum += weights[j];
      }
      for (int c = 2 * h; c < 2 * h + 2; ++c) {
        heads[i][c] = 0;
        for (int j = 0; j < TOKENS; ++j) {
          heads[i][c] += weights[j] / sum * qkv[j][2 * WIDTH + c];
        }
      }
    }
  }
  for (int t = 0; t < TOKENS; ++t) {
    for (int r = 0; r < WIDTH; ++r) {
      double expected = out_bias[r];
      for (int c = 0; c < WIDTH; ++c) {
        expected += (double)out_weight[r * WIDTH + c] * heads[t][c];
      }
      EXPECT(fabs(expected - y[t * WIDTH + r]) < 1e-5);
    }
  }

  REFUSED(regard_mha_forward(NULL, &tx, NULL, NULL, &ty, NULL),
          "layer must not be NULL");
  REFUSED(regard_mha_forward(layer, &tx, NULL, NULL, NULL, NULL),
          "out must not be NULL");
  REFUSED(regard_mha_forward(layer, &q, NULL, NULL, &ty, NULL),
          "query must be [batch, q_len, model_dim] or [q_len, model_dim]; its "
          "rank is 4");
  regard_mha_free(layer);

  REFUSED(regard_mha_load(&config, path, "b.", &layer),
          "has no parameter whose name begins with 'b.'");
  EXPECT(layer == NULL);
  REFUSED(regard_mha_load(&config, NULL, NULL, &layer),
          "path must not be NULL");
  expect_refused(regard_mha_load(&config, "no/such/file", NULL, &layer),
                 REGARD_IO_ERROR, "no/such/file", __LINE__);
  config.heads = 3;
  REFUSED(regard_mha_create(&config, 0, &layer), "heads must divide model_dim");
  config.heads = 2;
  OK(regard_mha_create(&config, 0, &layer));
  regard_mha_free(layer);
  FILE* const broken = fopen(path, "wb");
  fputs("12345678 this is no safetensors file", broken);
  fclose(broken);
  expect_refused(regard_mha_load(&config, path, NULL, &layer),
                 REGARD_PARSE_ERROR, path, __LINE__);
  remove(path);
}

static void check_wrong_arguments(void) {
  REFUSED(regard_attention_forward(NULL, &k, &v, &out, NULL),
          "regard_attention_forward: q must not be NULL");
  REFUSED(regard_attention_forward(&q, &k, &v, NULL, NULL),
          "regard_attention_forward: out must not be NULL");
  regard_tensor wrong = k;
  wrong.size = 0;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "regard_attention_forward: k.size must be the sizeof of its struct");
  wrong.size = (size_t)-1;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL), "k.size");
  wrong = k;
  wrong.shape[2] = -1;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "no extent of k may be negative; its shape is [1, 2, -1, 6]");
  wrong.shape[2] = INT64_MAX;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "regard_attention_forward: the elements of k must fit in 63 bits of "
          "bytes; its shape is [1, 2, 9223372036854775807, 6]");
  wrong = k;
  wrong.data = NULL;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "the data of k must not be NULL");
  wrong = k;
  wrong.rank = 3;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "k must have rank 4; it has rank 3");
  wrong.rank = 1000000;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "the rank of k must be from 1 to 4");
  wrong = k;
  wrong.dtype = 77;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "the dtype of k must be one of regard_dtype; it is 77");
  wrong.dtype = REGARD_FLOAT64;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "k must be float32 where q is float32; it is float64");
  wrong = k;
  wrong.strides[0] = wrong.strides[3] = 2;
  REFUSED(regard_attention_forward(&q, &wrong, &v, &out, NULL),
          "the last stride of k must be 1");

  /* A struct of a newer library: larger, and no trouble while its new members
     are 0. */
  struct {
    regard_attention_options known;
    int64_t newer;
  } options = {.known = {.size = sizeof options}};
  OK(regard_attention_forward(&q, &k, &v, &out, &options.known));
  options.newer = 1;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &options.known),
          "options sets a member that this library, which is older, does not "
          "know");
  regard_attention_options known = {.size = sizeof known, .threads = -1};
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known),
          "threads must not be negative; it is -1");
  known.threads = 0;
  known.score = 5;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known), "score must be");
  known.score = REGARD_DOT;
  known.sequences = -3;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known),
          "sequences must be from 0 to 2^31 - 2; it is -3");
  known.sequences = INT64_MAX;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known), "sequences");
  known.sequences = 1;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known),
          "q_offsets must not be NULL");
  known.sequences = 0;
  known.bias = &lse;
  REFUSED(regard_attention_forward(&q, &k, &v, &out, &known),
          "bias must have rank 4; it has rank 3");

  regard_mask* mask = NULL;
  REFUSED(regard_mask_causal(REGARD_TOP_LEFT, 0, NULL),
          "mask must not be NULL");
  REFUSED(regard_mask_causal(12, 0, &mask), "alignment must be one of");
  REFUSED(regard_mask_lengths(NULL, NULL, 2, &mask),
          "kv_lengths must not be NULL");
  REFUSED(regard_mask_lengths(NULL, NULL, -2, &mask),
          "the number of kv_lengths must not be negative; it is -2");
  REFUSED(regard_mask_documents(NULL, 1, NULL, 1, &mask),
          "query_ids must not be NULL");
  REFUSED(regard_mask_prefix(-1, 0, 0, &mask), "n must not be negative");
  REFUSED(regard_mask_keep(NULL, &mask), "pairs must not be NULL");
  REFUSED(regard_mask_keep(&q, &mask), "pairs must be bool; it is float32");
  REFUSED(regard_mask_and(NULL, NULL, &mask), "a must not be NULL");
  EXPECT(mask == NULL);
  regard_thread_pool* pool = NULL;
  REFUSED(regard_thread_pool_create(0, &pool), "threads");
  REFUSED(regard_thread_pool_create(1, NULL), "pool must not be NULL");
  regard_thread_pool_free(NULL);
  regard_kv_cache_free(NULL);
  regard_mha_free(NULL);
  /* And all goes on. */
  OK(regard_attention_forward(&q, &k, &v, &out, NULL));
}

int main(int count, char** arguments) {
  EXPECT(strcmp(regard_last_error(), "") == 0);
  EXPECT(regard_abi_version() == REGARD_ABI_VERSION);
  EXPECT(strlen(regard_version()) >= 5);
  fill(q_data, HEADS * LEN * D);
  fill(k_data, KV_HEADS * LEN * D);
  fill(v_data, KV_HEADS * LEN * DV);
  q = tensor(q_data, REGARD_FLOAT32, 4, 1, HEADS, LEN, D);
  k = tensor(k_data, REGARD_FLOAT32, 4, 1, KV_HEADS, LEN, D);
  v = tensor(v_data, REGARD_FLOAT32, 4, 1, KV_HEADS, LEN, DV);
  out = tensor(out_data, REGARD_FLOAT32, 4, 1, HEADS, LEN, DV);
  lse = tensor(lse_data, REGARD_FLOAT32, 3, 1, HEADS, LEN);
  check_forward();
  check_doubles_and_strides();
  check_backward();
  check_decode();
  check_wrong_arguments();
  check_layer(count > 1 ? arguments[1] : "c_api_test.safetensors");
  if (failures == 0) printf("all right\n");
  return failures == 0 ? 0 : 1;
}
