# SPDX-License-Identifier: Apache-2.0
"""The operators regard::attention and regard::attention_backward.

Everything that PyTorch must know of our attention: its schema, how it is
differentiated, what shapes it gives (for compile and export), and how it is
mapped over a batch. The functions that people call are elsewhere. Where nobody
wants to see operators, the same functions are called past PyTorch's dispatcher.

A mask crosses the border of an operator as a text, with its arrays as tensors
beside it: `[["causal", "top_left"], ["keep", {"tensor": 0}]]`.
"""

import functools
import json
from typing import List, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .. import mask as masks
from .._core import Mask
from .._core import attention as _forward
from .._core import attention_backward as _backward
from .._core import attention_weights as _weights

NO_MASK = ""

_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_autocasts = torch._C._is_any_autocast_enabled
_is_mapped = torch._C._functorch.is_batchedtensor


def is_traced() -> bool:
    """Whether a transform, a mode or a tracer wants to see every operator."""
    return is_compiling() or _modes() > 0 or _transform() is not None or _tracing() is not None


def is_watched() -> bool:
    """Whether calls must go through operators: is_traced(), autocast or derivatives in forward mode."""
    return is_traced() or _autocasts() or forward_ad._current_level >= 0


def refuse_tangents(*arguments):
    """Refuses forward derivatives, which operators made by torch.library would drop without a word.

    What torch.func.vmap maps has its tangent behind the mapping, where the vmap rules come by.
    """
    if is_compiling() or forward_ad._current_level < 0:
        return
    for value in arguments:
        if (isinstance(value, Tensor) and not _is_mapped(value)
                and forward_ad.unpack_dual(value).tangent is not None):
            raise NotImplementedError("regard.torch: derivatives in forward mode (torch.func.jvp, "
                                      "dual tensors) are not supported")


class _Once(torch.autograd.Function):
    """A gradient that stops whoever differentiates it."""

    @staticmethod
    def forward(ctx, gradient):
        return gradient.clone()

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("regard.torch: second derivatives are not supported")


def once_differentiable(backward):
    """A backward pass whose gradients may not be differentiated again.

    PyTorch's decorator of this name lets pass what does not depend on the incoming gradient,
    and second derivatives through the inputs would be zero without a word.
    """

    @functools.wraps(backward)
    def wrapper(ctx, *d_outputs):
        with torch.no_grad():
            gradients = backward(ctx, *d_outputs)
        if not torch.is_grad_enabled():
            return gradients
        return tuple(None if gradient is None else _Once.apply(gradient.detach().requires_grad_())
                     for gradient in gradients)

    return wrapper


def describe_mask(mask: Optional[Mask]) -> Tuple[str, List[Tensor]]:
    """The text and the tensors of a mask."""
    if mask is None or not mask.parts:
        return NO_MASK, []
    tensors: List[Tensor] = []

    def argument(value):
        if value is None or isinstance(value, (int, str)):
            return value
        tensors.append(torch.as_tensor(value, device="cpu"))
        return {"tensor": len(tensors) - 1}

    text = json.dumps([[name, *map(argument, values)] for name, *values in mask.parts])
    return text, tensors


@functools.lru_cache(maxsize=256)
def _parse(text: str):
    return json.loads(text)


@functools.lru_cache(maxsize=256)
def _constant_mask(text: str) -> Mask:
    return _build(text, ())


def _build(text: str, tensors) -> Mask:
    def argument(value):
        return tensors[value["tensor"]] if isinstance(value, dict) else value

    mask = Mask()
    for name, *values in _parse(text):
        mask = mask & getattr(masks, name)(*map(argument, values))
    return mask


def build_mask(text: str, tensors) -> Optional[Mask]:
    """The inverse of describe_mask."""
    if text == NO_MASK:
        return None
    return _build(text, tensors) if tensors else _constant_mask(text)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """What biases and log-sum-exps of such elements are: what we compute in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def empty_out(q: Tensor, v: Tensor) -> Tensor:
    """The memory for an output, in the order of q's: [batch, len, heads, dim] stays so."""
    if q.stride(-1) != 1 or q.shape[-1] == 0:
        return q.new_empty(*q.shape[:-1], v.shape[-1])
    if q.shape[-1] == v.shape[-1]:
        return torch.empty_like(q)
    return torch.empty_like(q[..., :1].expand(*q.shape[:-1], v.shape[-1]))


def keywords(mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
              scale, score, softcap, dropout, seed):
    return {
        "mask": build_mask(mask, mask_tensors),
        "bias": bias,
        "head_scales": head_scales,
        "alibi": alibi,
        "sinks": sinks,
        "sequences": None if q_offsets is None else (q_offsets, kv_offsets),
        "scale": scale,
        "score": score,
        "softcap": softcap,
        "dropout": dropout,
        "seed": None if seed is None else int(seed),
        "threads": torch.get_num_threads(),
    }


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: str, mask_tensors: List[Tensor],
    bias: Optional[Tensor], head_scales: Optional[Tensor],
    alibi: Optional[Tensor], sinks: Optional[Tensor],
    q_offsets: Optional[Tensor], kv_offsets: Optional[Tensor],
    scale: Optional[float], score: str, softcap: float,
    dropout: float, seed: Optional[Tensor], compute: str,
) -> Tuple[Tensor, Tensor]:
    out = empty_out(q, v)
    _, lse = _forward(
        q, k, v, out=out, return_lse=True, compute=compute,
        **keywords(mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
                    scale, score, softcap, dropout, seed))
    return out, lse


attention = torch.library.custom_op(
    "regard::attention", _attend, mutates_args=(), device_types="cpu")


@attention.register_fake
def _(q, k, v, mask, mask_tensors, bias, head_scales, alibi, sinks,
      q_offsets, kv_offsets, scale, score, softcap, dropout,
      seed, compute):
    return empty_out(q, v), q.new_empty(q.shape[:-1], dtype=real_dtype(q.dtype))


# The inputs that can have a gradient, in the order of the schema.
_DIFFERENTIABLE = ("q", "k", "v", "bias", "head_scales", "alibi", "sinks")


def _attend_backward(
    d_out: Tensor, d_lse: Optional[Tensor], out: Tensor, lse: Tensor, wanted: str,
    q: Tensor, k: Tensor, v: Tensor, mask: str, mask_tensors: List[Tensor],
    bias: Optional[Tensor], head_scales: Optional[Tensor],
    alibi: Optional[Tensor], sinks: Optional[Tensor],
    q_offsets: Optional[Tensor], kv_offsets: Optional[Tensor],
    scale: Optional[float], score: str, softcap: float,
    dropout: float, seed: Optional[Tensor], compute: str,
) -> List[Tensor]:
    names = wanted.split()
    gradients = _backward(
        d_out, q, k, v, out, lse, d_lse=d_lse, wanted=names, compute=compute,
        **keywords(mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
                    scale, score, softcap, dropout, seed))
    return [getattr(gradients, name) for name in names]


attention_backward = torch.library.custom_op(
    "regard::attention_backward", _attend_backward, mutates_args=(), device_types="cpu")


@attention_backward.register_fake
def _(d_out, d_lse, out, lse, wanted, q, k, v, mask, mask_tensors, bias, head_scales,
      alibi, sinks, q_offsets, kv_offsets, scale, score,
      softcap, dropout, seed, compute):
    inputs = {"q": q, "k": k, "v": v, "bias": bias, "head_scales": head_scales,
              "alibi": alibi, "sinks": sinks}
    return [inputs[name].new_empty(inputs[name].shape) for name in wanted.split()]


def _setup_context(ctx, inputs, output):
    (q, k, v, mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets,
     scale, score, softcap, dropout, seed, compute) = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, bias, head_scales, alibi, sinks, q_offsets, kv_offsets, seed,
                          out, lse, *mask_tensors)
    ctx.constants = (mask, scale, score, softcap, dropout, compute)
    ctx.mask_count = len(mask_tensors)
    ctx.set_materialize_grads(False)


def backward(d_out, d_lse, *arguments) -> List[Tensor]:
    """attention_backward of what autograd hands over, directly where that is allowed."""
    if is_watched() or torch.is_grad_enabled():  # the operator refuses second derivatives
        refuse_tangents(d_out, d_lse, *arguments)
        return attention_backward(d_out, d_lse, *arguments)
    if _is_batched(d_out) or (d_lse is not None and _is_batched(d_lse)):
        return _backward_of_each(d_out, d_lse, *arguments)
    return _attend_backward(d_out, d_lse, *arguments)


_is_batched = torch._C._functorch.is_legacy_batchedtensor


def may_call_directly(gradient: Tensor) -> bool:
    """Whether a backward pass may go past the dispatcher: nobody differentiates or maps it again."""
    return not (is_watched() or torch.is_grad_enabled() or _is_batched(gradient))


def _backward_of_each(d_out, d_lse, *arguments) -> List[Tensor]:
    """The gradients of many d_out at once: for `is_grads_batched`, which has a vmap of its own."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()

    def entries(tensor, count=1):  # of what is not batched, `count` times the same
        return None if tensor is None else torch._remove_batch_dim(tensor, level, count, 0)

    d_outs, d_lses = entries(d_out), entries(d_lse)
    count = len(d_outs) if d_lses is None else max(len(d_outs), len(d_lses))
    d_outs, d_lses = entries(d_out, count), entries(d_lse, count)
    gradients = [_attend_backward(d_outs[i], None if d_lses is None else d_lses[i], *arguments)
                 for i in range(count)]
    return [torch._add_batch_dim(torch.stack(each), 0, level) for each in zip(*gradients)]


def _differentiate(ctx, d_out, d_lse):
    (q, k, v, bias, head_scales, alibi, sinks, q_offsets, kv_offsets, seed, out, lse,
     *mask_tensors) = ctx.saved_tensors
    mask, scale, score, softcap, dropout, compute = ctx.constants
    needed = dict(zip(
        ("q", "k", "v", "mask", "mask_tensors", "bias", "head_scales", "alibi", "sinks"),
        ctx.needs_input_grad))
    wanted = [name for name in _DIFFERENTIABLE if needed[name]]
    gradients = {}
    if wanted and not (d_out is None and d_lse is None):
        if d_out is None:
            d_out = torch.zeros_like(out)
        values = backward(
            d_out, d_lse, out, lse, " ".join(wanted), q, k, v, mask, mask_tensors, bias,
            head_scales, alibi, sinks, q_offsets, kv_offsets, scale, score, softcap, dropout, seed,
            compute)
        gradients = dict(zip(wanted, values))
    get = gradients.get
    return (get("q"), get("k"), get("v"), None, None, get("bias"),
            get("head_scales"), get("alibi"), get("sinks"), *[None] * 8)


def _differentiate_operator(ctx, d_out, d_lse):
    gradients = _differentiate(ctx, d_out, d_lse)
    # A list of tensors has a list of gradients here. (Checkpoints let saved tensors be read once.)
    return (*gradients[:4], [None] * ctx.mask_count, *gradients[5:])


attention.register_autograd(_differentiate_operator, setup_context=_setup_context)


class Attention(torch.autograd.Function):
    """regard::attention past the dispatcher, which costs several times a small call."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _attend(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


# The weights: where they are asked for, the N x N matrix exists anyway.


@torch.library.custom_op("regard::attention_weights", mutates_args=(), device_types="cpu")
def attention_weights(
    q: Tensor, k: Tensor, mask: str, mask_tensors: List[Tensor], bias: Optional[Tensor],
    scale: Optional[float], mean: bool,
) -> Tensor:
    weights = _weights(q, k, mask=build_mask(mask, mask_tensors), bias=bias, scale=scale,
                       heads="mean" if mean else "each", threads=torch.get_num_threads())
    return weights.to(q.dtype)


@attention_weights.register_fake
def _(q, k, mask, mask_tensors, bias, scale, mean):
    return q.new_empty(q.shape[0], 1 if mean else q.shape[1], q.shape[2], k.shape[2])


def _setup_weights(ctx, inputs, output):
    q, k, mask, mask_tensors, bias, scale, mean = inputs
    ctx.save_for_backward(q, k, bias, *mask_tensors)
    ctx.constants = (mask, scale, mean)


def _differentiate_weights(ctx, d_weights):
    q, k, bias, *mask_tensors = ctx.saved_tensors
    mask, scale, mean = ctx.constants
    heads, kv_heads = q.shape[1], k.shape[1]
    weights = attention_weights(q, k, mask, mask_tensors, bias, scale, False)
    if mean:
        d_weights = d_weights.expand(weights.shape) / heads
    # weights = softmax(s): d_s = weights * (d_weights - sum(d_weights * weights))
    d_s = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True))
    d_bias = None
    if bias is not None:
        summed = [i for i in range(4) if bias.shape[i] == 1 and d_s.shape[i] != 1]
        d_bias = (d_s.sum(summed, keepdim=True) if summed else d_s).to(bias.dtype)
    d_s = d_s * (q.shape[-1] ** -0.5 if scale is None else scale)
    repeated = k.repeat_interleave(heads // kv_heads, 1) if kv_heads != heads else k
    d_q = d_s @ repeated
    d_k = d_s.transpose(-2, -1) @ q
    if kv_heads != heads:
        d_k = d_k.unflatten(1, (kv_heads, heads // kv_heads)).sum(2)
    return d_q, d_k, None, [None] * len(mask_tensors), d_bias, None, None


attention_weights.register_autograd(_differentiate_weights, setup_context=_setup_weights)


# torch.func.vmap: the mapped dimension becomes part of the batch where that means
# the same, else entry follows entry. The bits are the same.


def _fold(tensor, dim, count):
    """[count, batch, ...] as one batch."""
    if dim is None:
        tensor = tensor.expand(count, *tensor.shape)
    else:
        tensor = tensor.movedim(dim, 0)
    return tensor.flatten(0, 1)


def _fold_pairs(tensor, dim, count, batch):
    """The same for a mask or a bias, whose dimensions may be fewer, or 1."""
    if tensor is None:
        return None
    tensor = tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    while tensor.dim() < 5:
        tensor = tensor.unsqueeze(1)
    return tensor.expand(count, batch, *tensor.shape[2:]).flatten(0, 1)


def _folds(mask, dropout, per_head_dims, offsets):
    """Whether nothing but q, k, v and pairs of them tells one entry of the batch from another."""
    return (dropout == 0.0 and offsets is None and all(dim is None for dim in per_head_dims)
            and not any(name in ("lengths", "documents") for name, *_ in (_parse(mask) if mask else ())))


def _entry(value, dim, i):
    if isinstance(value, (list, tuple)):
        return [_entry(v, d, i) for v, d in zip(value, dim or [None] * len(value))]
    return value if dim is None else value.select(dim, i)


def _map(operator, info, in_dims, arguments):
    """One entry after the other."""
    results = [operator(*map(_entry, arguments, in_dims, [i] * len(arguments)))
               for i in range(info.batch_size)]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    stacked = [torch.stack(each) for each in zip(*results)]
    kind = type(results[0])
    return kind(stacked), kind([0] * len(stacked))


@attention.register_vmap
def _(info, in_dims, *arguments):
    refuse_tangents(*arguments)
    (q, k, v, mask, mask_tensors, bias, head_scales, alibi, sinks, q_offsets, kv_offsets, scale,
     score, softcap, dropout, seed, compute) = arguments
    if not _folds(mask, dropout, in_dims[6:9], q_offsets):
        return _map(attention, info, in_dims, arguments)
    count = info.batch_size
    batch = q.shape[0 if in_dims[0] is None else (1 if in_dims[0] == 0 else 0)]
    tensor_dims = in_dims[4] or [None] * len(mask_tensors)
    out, lse = attention(
        _fold(q, in_dims[0], count), _fold(k, in_dims[1], count), _fold(v, in_dims[2], count),
        mask, [_fold_pairs(t, dim, count, batch) for t, dim in zip(mask_tensors, tensor_dims)],
        _fold_pairs(bias, in_dims[5], count, batch), head_scales, alibi, sinks, None, None, scale,
        score, softcap, dropout, None, compute)
    return (out.unflatten(0, (count, batch)), lse.unflatten(0, (count, batch))), (0, 0)


@attention_backward.register_vmap
def _(info, in_dims, *arguments):
    return _map(attention_backward, info, in_dims, arguments)


@attention_weights.register_vmap
def _(info, in_dims, *arguments):
    return _map(attention_weights, info, in_dims, arguments)
