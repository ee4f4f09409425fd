# SPDX-License-Identifier: Apache-2.0
"""Attention on torch tensors: the functions that people call."""

import math
from typing import List, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from .._core import Mask
from .._core import attention as _forward
from .._core import attention_with_weights as _forward_with_weights
from . import _ops

_CAUSAL_TOP_LEFT = '[["causal", "top_left"]]'
_CAUSAL_BOTTOM_RIGHT = '[["causal", "bottom_right"]]'
_KEEP = '[["keep", {"tensor": 0}]]'
_TENSOR_TYPES = (Tensor, torch.nn.Parameter)
# Behind which PyTorch traces: their operators are ours too.
_TRACED_TYPES = (FakeTensor, FunctionalTensor)
OUR_TYPES = (*_TENSOR_TYPES, *_TRACED_TYPES, CausalBias)
_causal = _ops.build_mask(_CAUSAL_TOP_LEFT, ())
is_watched = _ops.is_watched


def is_direct(*tensors: Optional[Tensor]) -> bool:
    """Whether our code may be called directly, past PyTorch's dispatcher.

    That saves several times the work of a small call. It is allowed where
    nobody else wants to know: no tracing, no transform, no subclass.
    """
    if is_watched():
        return False
    for t in tensors:
        if t is not None and (type(t) not in _TENSOR_TYPES or not t.is_cpu):
            return False
    return True


def needs_grad(*tensors: Optional[Tensor]) -> bool:
    """Whether PyTorch will want to differentiate."""
    if torch.is_grad_enabled():
        for t in tensors:
            if t is not None and t.requires_grad:
                return True
    return False


def check_tensors(where: str, **given):
    """Refuses by name what is no tensor, and subclasses: their memory may mean something else.

    Arrays of others have other methods: they would fail somewhere, with other words.
    """
    for name, value in given.items():
        if type(value) not in _TENSOR_TYPES and not isinstance(value, _TRACED_TYPES):
            if not isinstance(value, Tensor):
                raise TypeError(f"{where}: {name} must be a torch.Tensor; got {type(value).__name__}")
            raise TypeError(f"{where}: {name} must be a torch.Tensor and not of a subclass, whose "
                            f"memory may mean something else; got {type(value).__name__}")
        if value.is_nested:
            raise TypeError(f"{where}: {name} must not be a nested tensor")


def check_optional(where: str, **given):
    """check_tensors of those that were given."""
    for name, value in given.items():
        if value is not None:
            check_tensors(where, **{name: value})


def draw_seed() -> Tensor:
    """A seed from torch's generator: torch.manual_seed makes it come again."""
    return torch.randint(torch.iinfo(torch.int64).max, (), dtype=torch.int64, device="cpu")


def lowered(*tensors: Tensor):
    """Under autocast in its lower precision, as PyTorch's own attention; double stays."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    lower = torch.get_autocast_dtype("cpu")
    return [t.to(lower) if t.is_floating_point() and t.dtype is not torch.float64 else t for t in tensors]


def attend(q, k, v, mask: str, mask_tensors: List[Tensor], bias=None, head_scales=None,
            alibi=None, sinks=None, q_offsets=None, kv_offsets=None, scale=None, score="dot",
            softcap=0.0, dropout=0.0, seed=None, compute="float32", return_lse=False):
    """4-D attention, directly where that is allowed, else as an operator."""
    inputs = (q, k, v, bias, head_scales, alibi, sinks)
    if is_direct(*inputs, *mask_tensors):
        if not needs_grad(*inputs):
            return _forward(
                q, k, v, out=_ops.empty_out(q, v), return_lse=return_lse, compute=compute,
                **_ops.keywords(mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets,
                                kv_offsets, scale, score, softcap, dropout, seed))
        operator = _ops.Attention.apply
    else:
        _ops.refuse_tangents(*inputs)
        operator = _ops.attention
    out, lse = operator(
        q, k, v, mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
        scale, score, softcap, dropout, seed, compute)
    return (out, lse) if return_lse else out


def attend_with_weights(q, k, v, mask: str, mask_tensors: List[Tensor], bias, mean: bool,
                        dropout=0.0, seed=None):
    """`attend` and the weights, [batch, heads or 1, q_len, kv_len]; one pass without gradients."""
    if is_direct(q, k, v, bias, *mask_tensors) and not needs_grad(q, k, v, bias):
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
    sequences: Union[None, Tensor, Sequence[int], Tuple[Tensor, Tensor]] = None, return_lse: bool = False,
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
    check_optional("attention", bias=bias, sinks=sinks, alibi=alibi, head_scales=head_scales)
    q, k, v = lowered(q, k, v)
    text, tensors = _ops.describe_mask(mask)
    real = _ops.real_dtype(q.dtype)

    def as_real(tensor):
        return tensor if tensor is None else tensor.to(real)

    if bias is not None:
        bias = as_real(bias)
        while bias.dim() < 4:
            bias = bias.unsqueeze(0)
    pair = sequences if isinstance(sequences, tuple) else (sequences, sequences)
    q_offsets, kv_offsets = [offsets if offsets is None or isinstance(offsets, Tensor)
                             else torch.as_tensor(offsets, device="cpu") for offsets in pair]
    seed_tensor = None
    if dropout > 0.0:
        seed_tensor = draw_seed() if seed is None else torch.tensor(seed, dtype=torch.int64, device="cpu")
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
    query, key, value = lowered(query, key, value)
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


_SDPA = "scaled_dot_product_attention"


def _refuse(text: str):
    raise ValueError(f"scaled_dot_product_attention: {text}")


def _broadcast(a, b):
    """The shape of both, as PyTorch broadcasts; None where they do not fit."""
    if len(a) < len(b):
        a, b = b, a
    shape = list(a)
    for i in range(-len(b), 0):
        if a[i] != b[i] and a[i] != 1 and b[i] != 1:
            return None
        shape[i] = b[i] if a[i] == 1 else a[i]
    return tuple(shape)


def _share_heads(query, key, value):
    """For enable_gqa: key and value get the same heads, which divide those of query."""
    if min(query.dim(), key.dim(), value.dim()) < 3:
        _refuse("with enable_gqa, query, key and value must have heads: at least 3 dimensions; "
                + _shapes(query, key, value))
    heads, of_key, of_value = query.shape[-3], key.shape[-3], value.shape[-3]
    if of_key == of_value == heads:
        return key, value
    if not of_key or not of_value or heads % of_key or heads % of_value:
        _refuse("with enable_gqa, the heads of key and of value must divide those of query; "
                + _shapes(query, key, value))
    both = math.lcm(of_key, of_value) if of_key != of_value else of_key
    if of_key != both:
        key = key.repeat_interleave(both // of_key, -3)
    if of_value != both:
        value = value.repeat_interleave(both // of_value, -3)
    return key, value


def _shapes(query, key, value):
    return f"query is {list(query.shape)}, key is {list(key.shape)}, value is {list(value.shape)}"


def _fit(query, key, value, attn_mask, enable_gqa):
    """[batch, heads, len, dim] of each as PyTorch's products broadcast them, and a mask to go with
    them; the shape of all that precedes len in the result."""
    if min(query.dim(), key.dim(), value.dim()) < 2:
        _refuse("query, key and value must have at least 2 dimensions; " + _shapes(query, key, value))
    leads = query.shape[:-2], key.shape[:-2], value.shape[:-2]
    kv_heads = None
    if enable_gqa:
        key, value = _share_heads(query, key, value)
        kv_heads = key.shape[-3]
        heads = leads[0][-1]
        leads = leads[0], (*key.shape[:-3], heads), (*value.shape[:-3], heads)
    pairs = _broadcast(leads[0], leads[1])
    lead = None if pairs is None else _broadcast(pairs, leads[2])
    if lead is None and enable_gqa:
        _refuse("the batch of query, key and value must be the same, or 1; "
                + _shapes(query, key, value))
    if lead is None:
        _refuse("without enable_gqa, batch and heads of query, key and value must be the same, or 1; "
                + _shapes(query, key, value))
    if attn_mask is not None:
        pairs = (*pairs, query.shape[-2], key.shape[-2])
        if attn_mask.dim() > len(pairs) or _broadcast(pairs, attn_mask.shape) != pairs:
            _refuse(f"attn_mask must broadcast to {list(pairs)}; it is {list(attn_mask.shape)}")
    all_heads = lead[-1] if lead else 1
    if kv_heads is None:
        # One head of keys and values for all of query's is grouped heads.
        one = all(len(each) == 0 or each[-1] == 1 for each in leads[1:])
        kv_heads = 1 if one and all_heads else all_heads

    def four(tensor, heads):
        shape = (*lead[:-1], heads, *tensor.shape[-2:])
        if tensor.shape != shape:
            tensor = tensor.expand(shape)
        if len(shape) == 4:
            return tensor
        return tensor.flatten(0, -4) if len(shape) > 4 else tensor.unsqueeze(0)

    if attn_mask is not None:
        while attn_mask.dim() < max(len(lead) + 2, 4):
            attn_mask = attn_mask.unsqueeze(0)
        if len(lead) > 2:
            if any(extent != 1 for extent in attn_mask.shape[:-3]):
                attn_mask = attn_mask.expand(*lead[:-1], *attn_mask.shape[-3:])
            attn_mask = attn_mask.flatten(0, -4)
    return four(query, all_heads), four(key, kv_heads), four(value, kv_heads), attn_mask, lead


def _causal_mask(bias: CausalBias, q_len: int, kv_len: int) -> str:
    """What torch.nn.attention.bias.causal_upper_left and causal_lower_right say: their memory is empty."""
    if (bias.seq_len_q, bias.seq_len_kv) != (q_len, kv_len):
        _refuse(f"attn_mask is a causal bias for {bias.seq_len_q} queries and {bias.seq_len_kv} keys; "
                f"there are {q_len} and {kv_len}")
    upper_left = bias.variant == CausalVariant.UPPER_LEFT
    return _CAUSAL_TOP_LEFT if upper_left else _CAUSAL_BOTTOM_RIGHT


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, by regard.

    The same arguments: 2-D to N-D inputs that broadcast; attn_mask is bool (True is
    visible), float (added to the scores, with a gradient), or causal_upper_left or
    causal_lower_right of torch.nn.attention.bias, and broadcasts; is_causal lets the
    first query see the first key; dropout_p draws from torch's generator. Every case
    runs in memory that grows with the length and not its square, forward and
    backward. One difference: a row that sees no key gives zeros, never NaN.

    >>> import torch, regard.torch
    >>> q = torch.zeros(2, 8, 16, 64)
    >>> regard.torch.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    torch.Size([2, 8, 16, 64])
    """
    check_tensors(_SDPA, query=query, key=key, value=value)
    if attn_mask is None and dropout_p == 0.0 and query.dim() == 4:
        # The common small call: as few steps as there can be.
        shape, kv_shape = query.shape, key.shape
        if (len(kv_shape) == 4 and value.shape == kv_shape and shape[:2] == kv_shape[:2] and shape[3] == kv_shape[3] != 0
                and query.stride(3) == 1 and is_direct(query, key, value)
                and not needs_grad(query, key, value)):
            return _forward(query, key, value, out=torch.empty_like(query), scale=scale,
                            mask=_causal if is_causal else None,
                            threads=torch.get_num_threads())
    if is_causal and attn_mask is not None:
        _refuse("attn_mask and is_causal may not be given together")
    if not 0.0 <= dropout_p <= 1.0:
        _refuse(f"dropout_p must be in [0, 1]; it is {dropout_p}")
    mask, mask_tensors, bias = _CAUSAL_TOP_LEFT if is_causal else _ops.NO_MASK, [], None
    if isinstance(attn_mask, CausalBias):
        mask, attn_mask = _causal_mask(attn_mask, query.shape[-2], key.shape[-2]), None
    if attn_mask is not None:
        check_tensors(_SDPA, attn_mask=attn_mask)
    query, key, value = lowered(query, key, value)
    query, key, value, attn_mask, lead = _fit(query, key, value, attn_mask, enable_gqa)
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            mask, mask_tensors = _KEEP, [attn_mask]
        elif attn_mask.is_floating_point():
            bias = attn_mask.to(_ops.real_dtype(query.dtype))
        else:
            raise TypeError("scaled_dot_product_attention: attn_mask must be bool or a float type; "
                            f"it is {attn_mask.dtype}")
    if query.shape[-1] == 0 and key.shape[-1] == 0:
        # Products of nothing are 0: all visible keys weigh the same.
        query, key, scale = F.pad(query, (0, 1)), F.pad(key, (0, 1)), 1.0
    drops_all = dropout_p == 1.0
    dropout = 0.0 if drops_all else dropout_p
    seed = draw_seed() if dropout > 0.0 else None
    out = attend(query, key, value, mask, mask_tensors, bias, scale=scale, dropout=dropout,
                  seed=seed)
    if drops_all:
        out = out * 0.0
    return out if len(lead) == 2 else out.reshape(*lead, *out.shape[-2:])
