// SPDX-License-Identifier: Apache-2.0
// The signatures and docstrings of the functions. Their examples are run by the
// tests.
#pragma once

namespace regard::python::docs {

inline constexpr const char* kAttentionSig =
    "def attention(q, k, v, *, mask: Mask | None = None, bias=None, "
    "scale: float | None = None, score: str = 'dot', "
    "softcap: float | None = None, sinks=None, alibi=None, "
    "head_scales=None, dropout: float = 0.0, seed: int | None = None, "
    "sequences=None, return_lse: bool = False, out=None, "
    "layout: str = 'bhld', compute: str = 'float32', "
    "threads: int | None = None)";
inline constexpr const char* kAttention = R"(
softmax(softcap(scale * q k^T) + bias, over the visible keys) v

q is [batch, heads, q_len, d_k], k is [batch, kv_heads, kv_len, d_k] and v is
[batch, kv_heads, kv_len, d_v]; kv_heads divides heads. All three may come
without batch, or with layout="blhd" as [batch, len, heads, dim]. They are
float32, float64, float16 or bfloat16 arrays (NumPy, PyTorch, ml_dtypes, or
whatever speaks DLPack on the CPU), read where they are. The result is
[batch, heads, q_len, d_v] of the same dtype, a PyTorch tensor where q is one,
else a NumPy array.

A row that sees no key gives zeros, never NaN. The bits of a row depend on its
own query, the keys that it sees and the options: not on the batch, the number
of threads or the padding.

mask         which pairs are visible; see regard.mask
bias         added to the scores, [batch or 1, heads or 1, q_len or 1, kv_len or
             1], leading ones may be left out; -inf hides a pair
scale        1 / sqrt(d_k) if not given
score        "dot", or "cosine" for (q . k) / (|q| |k|), whose scale is 1
softcap      scores become softcap * tanh(score / softcap), before the bias
sinks        [heads], one more logit in each row's denominator, without a value
alibi        [heads], slopes: adds -slope * distance
head_scales  [heads], multiplies scale: a learned temperature
dropout      of the weights; needs a seed. The same seed drops the same weights
sequences    offsets [0, ..., total] of sequences packed one after the other in
             a batch of 1, or a pair of them, of queries and of keys
return_lse   also return the log-sum-exp of each row, [batch, heads, q_len],
             which attention_backward needs
out          an array to write to, with contiguous rows; the memory from its
             first to its last element may not overlap that of the inputs
compute      "bfloat16" multiplies in bf16, where the processor is faster at that
threads      how many, the caller among them; one per core if not given

>>> import numpy as np, regard
>>> q = k = v = np.eye(3, dtype=np.float32).reshape(1, 1, 3, 3)
>>> regard.attention(q, k, v, mask=regard.mask.causal()).round(2)
array([[[[1.  , 0.  , 0.  ],
         [0.36, 0.64, 0.  ],
         [0.26, 0.26, 0.47]]]], dtype=float32)
)";

inline constexpr const char* kBackwardSig =
    "def attention_backward(d_out, q, k, v, out, lse, *, "
    "wanted=('q', 'k', 'v'), d_lse=None, mask: Mask | None = None, "
    "bias=None, scale: float | None = None, score: str = 'dot', "
    "softcap: float | None = None, sinks=None, alibi=None, "
    "head_scales=None, dropout: float = 0.0, seed: int | None = None, "
    "sequences=None, layout: str = 'bhld', compute: str = 'float32', "
    "threads: int | None = None)";
inline constexpr const char* kBackward = R"(
The gradients of attention, given that of its result.

Takes what `attention` took, its result `out` and its `lse` (return_lse=True).
Returns regard.Gradients with those that are wanted: of "q", "k", "v", "bias",
"alibi", "sinks" and "head_scales". Memory does not grow with q_len * kv_len;
dropout is drawn again from its seed.

>>> import numpy as np, regard
>>> q = k = v = np.eye(3, dtype=np.float32).reshape(1, 1, 3, 3)
>>> out, lse = regard.attention(q, k, v, return_lse=True)
>>> gradients = regard.attention_backward(np.ones_like(out), q, k, v, out, lse)
>>> gradients.v.round(2)[0, 0]
array([[1., 1., 1.],
       [1., 1., 1.],
       [1., 1., 1.]], dtype=float32)
)";

inline constexpr const char* kWeightsSig =
    "def attention_weights(q, k, *, rows=None, top_k: int | None = None, "
    "received: str | None = None, entropy: bool = False, "
    "heads: str = 'each', mask: Mask | None = None, bias=None, "
    "scale: float | None = None, score: str = 'dot', "
    "softcap: float | None = None, sinks=None, alibi=None, "
    "head_scales=None, sequences=None, layout: str = 'bhld', "
    "threads: int | None = None)";
inline constexpr const char* kWeights = R"(
The attention weights, or parts of them without all of them in memory.

Alone it returns all weights, [batch, heads, q_len, kv_len]. With top_k, received
or entropy it returns regard.WeightsParts with these instead, and the whole
matrix never exists.

rows      the queries wanted, in any order; all if not given
top_k     the largest weights of each row and their keys, largest first; places
          past the last weight above 0 hold key -1
received  "sum" or "mean": the weight that each key gets, over the rows
entropy   of each row, in nats
heads     "mean" averages the weights over the heads first

>>> import numpy as np, regard
>>> q = k = 4 * np.eye(3, dtype=np.float32).reshape(1, 1, 3, 3)
>>> parts = regard.attention_weights(q, k, top_k=1, entropy=True)
>>> parts.top_keys.ravel()
array([0, 1, 2])
>>> parts.entropy.shape
(1, 1, 3)
)";

inline constexpr const char* kWithWeightsSig =
    "def attention_with_weights(q, k, v, *, out=None, "
    "top_k: int | None = None, "
    "received: str | None = None, entropy: bool = False, "
    "heads: str = 'each', mask: Mask | None = None, bias=None, "
    "scale: float | None = None, score: str = 'dot', "
    "softcap: float | None = None, sinks=None, alibi=None, "
    "head_scales=None, dropout: float = 0.0, seed: int | None = None, "
    "sequences=None, layout: str = 'bhld', threads: int | None = None, "
    "compute: str = 'float32')";
inline constexpr const char* kWithWeights = R"(
`attention` and `attention_weights` in one pass: (out, weights).

Faster than one after the other. The weights are those before dropout; with
top_k, received or entropy they are regard.WeightsParts.

>>> import numpy as np, regard
>>> q = k = v = 4 * np.eye(3, dtype=np.float32).reshape(1, 1, 3, 3)
>>> out, weights = regard.attention_with_weights(q, k, v)
>>> weights.sum(-1).round(3).ravel()
array([1., 1., 1.], dtype=float32)
)";

inline constexpr const char* kExplainSig =
    "def explain(q, k, v, *, mask: Mask | None = None, bias=None, "
    "scale: float | None = None, score: str = 'dot', "
    "softcap: float | None = None, sinks=None, alibi=None, "
    "head_scales=None, dropout: float = 0.0, seed: int | None = None, "
    "sequences=None, layout: str = 'bhld', threads: int | None = None) "
    "-> Explanation";
inline constexpr const char* kExplain = R"(
How `attention` would run such a call; nothing is computed.

>>> import numpy as np, regard
>>> x = np.zeros((1, 8, 512, 64), np.float32)
>>> plan = regard.explain(x, x, x, mask=regard.mask.causal())
>>> plan.visible_pairs / plan.pairs
0.5009765625
)";

}  // namespace regard::python::docs
