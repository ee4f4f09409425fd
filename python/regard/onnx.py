# SPDX-License-Identifier: Apache-2.0
"""regard for ONNX: Attention, RotaryEmbedding and RMSNormalization of the standard.

    import onnx.reference, regard.onnx
    evaluator = onnx.reference.ReferenceEvaluator("model.onnx", new_ops=regard.onnx.ops)
    evaluator.run(None, inputs)

Attention is that of opsets 23 and 24, with the windows of 25. The softmax is computed
in float32 at least, in float64 where softmax_precision or the inputs say so.
"""

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from . import attention, attention_weights, mask, rms_norm, rotary_embedding

__all__ = ["Attention", "RMSNormalization", "RotaryEmbedding", "ops"]

# What qk_matmul_output_mode asks for.
_SCORES, _CAPPED, _BIASED, _WEIGHTS = range(4)

_PRECISIONS = {None, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16,
               onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}


def _require(condition, text):
    if not condition:
        raise ValueError(text)


def _by_head(name, tensor, heads):
    """[batch, heads, len, dim], a view of [batch, len, heads * dim] where it is that."""
    if tensor.ndim == 4:
        _require(heads is None or heads == tensor.shape[1],
                 f"Attention: {name} has the shape {tensor.shape}, which is not that of {heads} "
                 "heads")
        return tensor
    _require(tensor.ndim == 3, f"Attention: {name} must have 3 or 4 dimensions; it is "
                               f"{tensor.shape}")
    _require(heads, f"Attention: {name} has 3 dimensions and needs q_num_heads and kv_num_heads")
    batch, length, width = tensor.shape
    _require(width % heads == 0,
             f"Attention: {name} has the shape {tensor.shape}, which {heads} heads do not divide")
    return tensor.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _add_past(past, new):
    return new if past is None else np.concatenate((past, new), axis=2)


def _band(q_len, kv_len, causal, left, right, past, kv_lengths):
    """The mask of is_causal, the windows and nonpad_kv_seqlen."""
    if left is None and right is None and not causal:
        return mask.Mask() if kv_lengths is None else mask.lengths(kv_lengths)
    if kv_lengths is None:
        band = mask.causal(past) if causal else mask.Mask()
        return band if left is None and right is None else band & mask.window(left, right, past)
    # The last query stands at the last key that is not padding: elsewhere in each entry.
    place = (kv_lengths[:, None] - q_len + np.arange(q_len))[:, None, :, None]
    keys = np.arange(kv_len)
    pairs = keys < kv_lengths[:, None, None, None]
    if causal:
        pairs = pairs & (keys <= place)
    if left is not None:
        pairs = pairs & (keys >= place - left)
    if right is not None:
        pairs = pairs & (keys <= place + right)
    return mask.keep(pairs)


def _pad_mask(attn_mask, kv_len):
    """Keys that the mask does not speak of are hidden."""
    missing = kv_len - attn_mask.shape[-1]
    _require(missing >= 0, f"Attention: attn_mask has the shape {attn_mask.shape}, for {kv_len} "
                           "keys")
    if missing == 0:
        return attn_mask
    hidden = False if attn_mask.dtype == np.bool_ else -np.inf
    return np.pad(attn_mask, [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)],
                  constant_values=hidden)


def _scores(q, k, scale, softcap):
    """scale * q k^T, capped. The log-sum-exp of a row that sees one key is its score."""
    batch, heads, q_len, _ = q.shape
    kv_heads, kv_len = k.shape[1:3]
    scores = np.empty((batch, heads, q_len, kv_len), np.result_type(q.dtype, np.float32))
    if scores.size == 0:
        return scores
    value = np.zeros((kv_len, kv_heads, 1, 1), q.dtype)
    for entry in range(batch):  # each key is a batch entry of its own
        queries = np.broadcast_to(q[entry], (kv_len, *q.shape[1:]))
        keys = k[entry].transpose(1, 0, 2)[:, :, None]
        _, lse = attention(queries, keys, value, scale=scale, softcap=softcap, return_lse=True)
        scores[entry] = lse.transpose(1, 2, 0)
    return scores


def _matmul_output(mode, q, k, *, scale, softcap, **options):
    """What the fourth output shows of the way to the weights."""
    if mode == _WEIGHTS:
        return attention_weights(q, k, scale=scale, softcap=softcap, **options)
    scores = _scores(q, k, scale, softcap if mode != _SCORES else 0.0)
    if mode != _BIASED:
        return scores
    # Queries of zeros give every key that is visible the same weight.
    visible = attention_weights(np.zeros_like(q), k, mask=options["mask"]) > 0
    bias = 0.0 if options["bias"] is None else options["bias"]
    return np.where(visible, scores + bias, -np.inf)


class Attention(OpRun):
    """Attention of opset 23 and later."""

    op_domain = ""

    def _run(self, Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None,
             scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softmax_precision=None,
             softcap=0.0, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1):
        left, right = left_window_size, right_window_size
        _require(left >= -1 and right >= -1, "Attention: left_window_size and right_window_size "
                 f"must be -1 or more; they are {left} and {right}")
        _require(qk_matmul_output_mode in range(4), "Attention: qk_matmul_output_mode must be 0 to "
                 f"3; it is {qk_matmul_output_mode}")
        _require(softmax_precision in _PRECISIONS, "Attention: softmax_precision must be a float "
                 f"type; it is {softmax_precision}")
        _require((past_key is None) == (past_value is None),
                 "Attention: past_key and past_value must be given together")
        _require(past_key is None or nonpad_kv_seqlen is None,
                 "Attention: nonpad_kv_seqlen and past_key may not be given together")

        q = _by_head("Q", Q, q_num_heads)
        key = _add_past(past_key, _by_head("K", K, kv_num_heads))
        value = _add_past(past_value, _by_head("V", V, kv_num_heads))
        dtype = self._dtype(Q, V, softmax_precision)
        q, k, v = (tensor.astype(dtype, copy=False) for tensor in (q, key, value))
        q_len, kv_len = q.shape[2], k.shape[2]
        options = dict(scale=scale, softcap=softcap, bias=None, mask=_band(
            q_len, kv_len, is_causal, None if left < 0 else left, None if right < 0 else right,
            0 if past_key is None else past_key.shape[2], nonpad_kv_seqlen))
        if attn_mask is not None:
            attn_mask = _pad_mask(attn_mask, kv_len)
            if attn_mask.dtype == np.bool_:
                options["mask"] = options["mask"] & mask.keep(attn_mask)
            else:
                options["bias"] = attn_mask
        outputs = [self._attend(Q.ndim, q, k, v, options).astype(Q.dtype, copy=False), key, value]
        if len(self.onnx_node.output) > 3:
            shown = _matmul_output(qk_matmul_output_mode, q, k, **options)
            outputs.append(shown.astype(Q.dtype, copy=False))
        return tuple(outputs[:max(1, len(self.onnx_node.output))])

    @staticmethod
    def _dtype(Q, V, softmax_precision):
        """What to compute in: the type of the inputs, or a wider one."""
        if softmax_precision == onnx.TensorProto.DOUBLE:
            return np.float64
        return Q.dtype if Q.dtype == V.dtype else np.result_type(Q.dtype, V.dtype, np.float32)

    @staticmethod
    def _attend(dims, q, k, v, options):
        batch, heads, q_len, _ = q.shape
        if dims == 4:
            return attention(q, k, v, **options)
        out = np.empty((batch, q_len, heads, v.shape[3]), q.dtype)
        attention(q, k, v, out=out.transpose(0, 2, 1, 3), **options)
        return out.reshape(batch, q_len, -1)


class RotaryEmbedding(OpRun):
    """RotaryEmbedding of opset 23 and later."""

    op_domain = ""

    def _run(self, X, cos_cache, sin_cache, position_ids=None, interleaved=0,
             rotary_embedding_dim=0, num_heads=0):
        x = X
        if X.ndim == 3:
            _require(num_heads and X.shape[2] % num_heads == 0,
                     "RotaryEmbedding: X has 3 dimensions and needs num_heads that divide the last; "
                     f"it is {X.shape}, num_heads is {num_heads}")
            x = X.reshape(*X.shape[:2], num_heads, X.shape[2] // num_heads)
        rotated = rotary_embedding_dim or x.shape[3]
        for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache)):
            _require(2 * cache.shape[-1] == rotated, f"RotaryEmbedding: {name} must have "
                     f"{rotated} / 2 columns; it is {cache.shape}")
        if position_ids is None:  # every token has a row of its own
            batch, length, half = cos_cache.shape
            position_ids = np.arange(batch * length).reshape(batch, length)
            cos_cache, sin_cache = (c.reshape(-1, half) for c in (cos_cache, sin_cache))
        out = rotary_embedding(
            x.astype(np.float32, copy=False), cos_cache, sin_cache, positions=position_ids,
            interleaved=bool(interleaved), layout="blhd" if X.ndim == 3 else "bhld")
        return (out.reshape(X.shape).astype(X.dtype, copy=False),)


class RMSNormalization(OpRun):
    """RMSNormalization of opset 23 and later; computed in float32, as stash_type 1 says."""

    op_domain = ""

    def _run(self, X, scale, axis=-1, epsilon=1e-5, stash_type=1):
        _require(stash_type == 1, "RMSNormalization: stash_type must be 1, which is float32; it is "
                 f"{stash_type}")
        _require(-X.ndim <= axis < X.ndim, f"RMSNormalization: axis must be in "
                 f"[{-X.ndim}, {X.ndim}); it is {axis}")
        shape = X.shape[axis % X.ndim:]
        rows = X.reshape(-1, int(np.prod(shape))).astype(np.float32, copy=False)
        if scale.ndim <= len(shape):
            weight = np.broadcast_to(scale, shape).astype(np.float32).reshape(-1)
            out = rms_norm(rows, weight, epsilon=epsilon).reshape(X.shape)
        else:  # a scale that differs between rows
            out = rms_norm(rows, epsilon=epsilon).reshape(X.shape) * scale
        return (out.astype(X.dtype, copy=False),)


ops = [Attention, RotaryEmbedding, RMSNormalization]
