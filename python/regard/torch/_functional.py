# SPDX-License-Identifier: Apache-2.0
"""Attention on torch tensors: the functions that people call."""

from typing import List, Optional, Tuple, Union

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .._core import Mask
from .._core import attention as _forward
from .._core import attention_with_weights as _forward_with_weights
from . import _ops

_CAUSAL_TOP_LEFT = '[["causal", "top_left"]]'
_KEEP = '[["keep", {"tensor": 0}]]'
_TENSOR_TYPES = (Tensor, torch.nn.Parameter)
_causal = _ops.build_mask(_CAUSAL_TOP_LEFT, ())
_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_autocasts = torch._C._is_any_autocast_enabled


def _is_watched() -> bool:
    """Whether a transform, a mode or a tracer wants to see every operator."""
    return (is_compiling() or _modes() > 0 or _transform() is not None
            or _tracing() is not None or _autocasts())


def _is_plain(*tensors: Optional[Tensor]) -> bool:
    """Whether our code may be called directly, past PyTorch's dispatcher.

    That saves several times the work of a small call. It is allowed where
    nobody else wants to know: no gradient, no tracing, no transform, no subclass.
    """
    if _is_watched():
        return False
    grad = torch.is_grad_enabled()
    for t in tensors:
        if t is None:
            continue
        if type(t) not in _TENSOR_TYPES or not t.is_cpu or (grad and t.requires_grad):
            return False
    return True


def check_tensors(where: str, **given):
    """Arrays of others have other methods: they would fail somewhere, with other words."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{where}: {name} must be a torch.Tensor; got {type(value).__name__}")


def draw_seed() -> Tensor:
    """A seed from torch's generator: torch.manual_seed makes it come again."""
    return torch.randint(torch.iinfo(torch.int64).max, (), dtype=torch.int64)


def attend(q, k, v, mask: str, mask_tensors: List[Tensor], bias=None, head_scales=None,
            alibi=None, sinks=None, q_offsets=None, kv_offsets=None, scale=None, score="dot",
            softcap=0.0, dropout=0.0, seed=None, compute="float32", return_lse=False):
    """4-D attention, directly where that is allowed, else as an operator."""
    if _is_plain(q, k, v, bias, head_scales, alibi, sinks, *mask_tensors):
        return _forward(
            q, k, v, out=_ops.empty_out(q, v), return_lse=return_lse, compute=compute,
            **_ops.keywords(mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets,
                            kv_offsets, scale, score, softcap, dropout, seed))
    out, lse = _ops.attention(
        q, k, v, mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
        scale, score, softcap, dropout, seed, compute)
    return (out, lse) if return_lse else out


def attend_with_weights(q, k, v, mask: str, mask_tensors: List[Tensor], bias, mean: bool,
                        dropout=0.0, seed=None):
    """`attend` and the weights, [batch, heads or 1, q_len, kv_len]; one pass without gradients."""
    if _is_plain(q, k, v, bias, *mask_tensors):
        out, weights = _forward_with_weights(
            q, k, v, out=_ops.empty_out(q, v), heads="mean" if mean else "each",
            **_ops.keywords(mask, mask_tensors, bias, None, None, None, None, None, None, "dot",
                            0.0, dropout, seed))
        return out, weights.to(q.dtype)
    out = attend(q, k, v, mask, mask_tensors, bias, dropout=dropout, seed=seed)
    return out, _ops.attention_weights(q, k, mask, mask_tensors, bias, None, mean)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Optional[Mask] = None, bias: Optional[Tensor] = None,
    scale: Optional[float] = None, score: str = "dot", softcap: Optional[float] = None,
    sinks: Optional[Tensor] = None, alibi: Optional[Tensor] = None,
    head_scales: Optional[Tensor] = None, dropout: float = 0.0, seed: Optional[int] = None,
    sequences: Union[None, Tensor, Tuple[Tensor, Tensor]] = None, return_lse: bool = False,
    compute: str = "float32",
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """`regard.attention` with gradients: of q, k, v, bias, sinks, alibi and head_scales.

    q, k and v are [batch, heads, len, dim]; kv_heads divides heads. Masks are those
    of `regard.mask`, such as causal() & window(511, 0) & documents(ids). Without a
    seed, dropout draws one from torch's generator.

    >>> import torch, regard
    >>> q = torch.zeros(1, 2, 4, 8, requires_grad=True)
    >>> out = regard.torch.attention(q, q, q, mask=regard.mask.causal(), softcap=30.0)
    >>> out.sum().backward()
    >>> q.grad.shape
    torch.Size([1, 2, 4, 8])
    """
    check_tensors("attention", q=q, k=k, v=v)
    text, tensors = _ops.describe_mask(mask)
    real = _ops.real_dtype(q.dtype)

    def as_real(tensor):
        return tensor if tensor is None else tensor.to(real)

    if bias is not None:
        bias = as_real(bias)
        while bias.dim() < 4:
            bias = bias.unsqueeze(0)
    q_offsets, kv_offsets = sequences if isinstance(sequences, tuple) else (sequences, sequences)
    seed_tensor = None
    if dropout > 0.0:
        seed_tensor = draw_seed() if seed is None else torch.tensor(seed, dtype=torch.int64)
    return attend(q, k, v, text, tensors, bias, as_real(head_scales), as_real(alibi),
                   as_real(sinks), q_offsets, kv_offsets, scale, score, softcap or 0.0, dropout,
                   seed_tensor, compute, return_lse)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor,
    cu_seq_k: Optional[Tensor] = None, *, scale: Optional[float] = None,
    window_size: Tuple[int, int] = (-1, -1), enable_gqa: bool = False, dropout_p: float = 0.0,
) -> Tensor:
    """Attention of sequences packed one after the other, without padding.

    query, key and value are [total, heads, dim]; cu_seq_q and cu_seq_k are the
    offsets [0, ..., total], as in torch.nn.attention.varlen.varlen_attn. window_size
    (-1, 0) is causal, (-1, -1) shows everything; the last query of a sequence stands
    at its last key.

    >>> import torch, regard
    >>> q = torch.zeros(7, 2, 8)
    >>> regard.torch.varlen_attention(q, q, q, torch.tensor([0, 3, 7])).shape
    torch.Size([7, 2, 8])
    """
    check_tensors("varlen_attention", query=query, key=key, value=value)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError("varlen_attention: without enable_gqa, query and key must have the same "
                         f"heads; query is {list(query.shape)}, key is {list(key.shape)}")
    left, right = window_size
    mask = _ops.NO_MASK
    if left >= 0 or right >= 0:
        mask = f'[["window", {left}, {right}, "bottom_right"]]'

    def heads_first(tensor):
        return tensor.transpose(0, 1).unsqueeze(0)

    out = attend(heads_first(query), heads_first(key), heads_first(value), mask, [],
                  q_offsets=cu_seq_q, kv_offsets=cu_seq_q if cu_seq_k is None else cu_seq_k,
                  scale=scale, dropout=dropout_p, seed=draw_seed() if dropout_p > 0.0 else None)
    return out.squeeze(0).transpose(0, 1)


def _refuse(text: str):
    raise ValueError(f"scaled_dot_product_attention: {text}")


def _autocast(tensor):
    """In the lower precision, as PyTorch's own attention under autocast; double stays."""
    if tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _broadcast_heads(query, key, value, enable_gqa):
    """Makes q, k and v fit as PyTorch's products would: batch and heads of 1 are repeated."""
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads, kv_heads = query.shape[-3], max(key.shape[-3], value.shape[-3])
    if not enable_gqa and heads != kv_heads:
        if heads == 1:
            heads = kv_heads
        elif kv_heads != 1:
            _refuse("without enable_gqa, query and key must have the same heads; "
                    f"query is {list(query.shape)}, key is {list(key.shape)}")
    query = query.expand(*lead, heads, *query.shape[-2:])
    key = key.expand(*lead, kv_heads, *key.shape[-2:])
    value = value.expand(*lead, kv_heads, *value.shape[-2:])
    return query, key, value


def _four_dims(query, key, value, attn_mask):
    """[batch, heads, len, dim] of each, from 2-D to N-D; the mask to go with them."""
    dims = query.dim()
    if dims < 2 or key.dim() != dims or value.dim() != dims:
        _refuse("query, key and value must have the same number of dimensions, at least 2; "
                f"query is {list(query.shape)}, key is {list(key.shape)}, "
                f"value is {list(value.shape)}")
    if attn_mask is not None and attn_mask.dim() > max(dims, 2):
        _refuse("attn_mask must not have more dimensions than query; "
                f"it is {list(attn_mask.shape)}, query is {list(query.shape)}")
    if dims == 2:
        return query[None, None], key[None, None], value[None, None], attn_mask
    if dims == 3:
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
        return query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), attn_mask
    return query, key, value, attn_mask


def _flatten_batch(query, key, value, attn_mask):
    """One batch dimension of several."""
    lead = query.shape[:-3]
    if attn_mask is not None and attn_mask.dim() > 3:
        if all(extent == 1 for extent in attn_mask.shape[:-3]):
            attn_mask = attn_mask.reshape(1, *attn_mask.shape[-3:])
        else:
            attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, -4)
    return query.flatten(0, -4), key.flatten(0, -4), value.flatten(0, -4), attn_mask


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, by regard.

    The same arguments: 2-D to N-D inputs; attn_mask is bool (True is visible) or
    float (added to the scores, with a gradient), and broadcasts; is_causal lets the
    first query see the first key; dropout_p draws from torch's generator. Every case
    runs in memory that grows with the length and not its square, forward and
    backward. One difference: a row that sees no key gives zeros, never NaN.

    >>> import torch, regard.torch
    >>> q = torch.zeros(2, 8, 16, 64)
    >>> regard.torch.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    torch.Size([2, 8, 16, 64])
    """
    check_tensors("scaled_dot_product_attention", query=query, key=key, value=value)
    if attn_mask is None and dropout_p == 0.0 and query.dim() == 4:
        # The common small call: as few steps as there can be.
        batch, heads, _, dim = query.shape
        if (key.shape[:2] == (batch, heads) and value.shape[3] == dim and query.stride(3) == 1
                and _is_plain(query, key, value)):
            return _forward(query, key, value, out=torch.empty_like(query), scale=scale,
                            mask=_causal if is_causal else None,
                            threads=torch.get_num_threads())
    mask, mask_tensors, bias = _CAUSAL_TOP_LEFT if is_causal else _ops.NO_MASK, [], None
    if is_causal and attn_mask is not None:
        _refuse("attn_mask and is_causal may not be given together")
    if not 0.0 <= dropout_p <= 1.0:
        _refuse(f"dropout_p must be in [0, 1]; it is {dropout_p}")
    if torch.is_autocast_enabled("cpu"):
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
    shape = query.shape
    query, key, value, attn_mask = _four_dims(query, key, value, attn_mask)
    query, key, value = _broadcast_heads(query, key, value, enable_gqa)
    lead = query.shape[:-2]
    if query.dim() > 4:
        query, key, value, attn_mask = _flatten_batch(query, key, value, attn_mask)
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            mask, mask_tensors = _KEEP, [attn_mask]
        elif attn_mask.is_floating_point():
            bias = attn_mask.to(_ops.real_dtype(query.dtype))
            while bias.dim() < 4:
                bias = bias.unsqueeze(0)
        else:
            raise TypeError("scaled_dot_product_attention: attn_mask must be bool or a float type; "
                            f"it is {attn_mask.dtype}")
    drops_all = dropout_p == 1.0
    dropout = 0.0 if drops_all else dropout_p
    seed = draw_seed() if dropout > 0.0 else None
    out = attend(query, key, value, mask, mask_tensors, bias, scale=scale, dropout=dropout,
                  seed=seed)
    if drops_all:
        out = out * 0.0
    if len(shape) == 4:
        return out
    if len(shape) < 4:
        return out.squeeze(1) if len(shape) == 3 else out[0, 0]
    return out.reshape(*lead, *out.shape[-2:])
