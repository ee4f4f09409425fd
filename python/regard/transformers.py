# SPDX-License-Identifier: Apache-2.0
"""regard for Hugging Face: `attn_implementation="regard"`.

    import regard.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="regard")

Importing this module registers the name. It serves every model of transformers 5
that goes through its attention interface: encoders, decoders, both together, for
generation and for training. Softcap, windows, sinks and relative bias stay on the
fused path, and `output_attentions=True` works. A keyword that a model hands over
and that is not known here is refused, never ignored.
"""

import functools
from typing import List, Optional, Tuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # the first of version 5 hand output_attentions to every layer
    _active_collector = None

from ._core import attention_weights as _weights
from .torch import _ops
from .torch._functional import attend, draw_seed, is_direct, lowered, needs_grad

__all__ = ["VisiblePairs", "attention_forward", "attention_mask"]

# Models hand these to every layer. They steer what surrounds the attention, which
# has used them already: the mask is made from the positions, the cache is filled.
_NOT_OURS = frozenset({
    "cache_position", "deterministic", "logits_to_keep", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "position_ids",
    "return_dict", "use_cache",
})


def _refuse(text: str):
    raise ValueError(f"regard.transformers: {text}")


class _Visible:
    """The parts of a mask as they cross the border of an operator: a text, and tensors."""

    def __init__(self):
        self._parts: List[str] = []
        self.tensors: List[Tensor] = []

    def add(self, name: str, *values):
        # By hand, because torch.compile does not follow json.dumps.
        words = [f'"{name}"']
        for value in values:
            if isinstance(value, Tensor):
                words.append(f'{{"tensor": {len(self.tensors)}}}')
                self.tensors.append(value)
            elif isinstance(value, str):
                words.append(f'"{value}"')
            else:
                words.append("null" if value is None else f"{value}")
        self._parts.append(f"[{', '.join(words)}]")

    @property
    def text(self) -> str:
        return f"[{', '.join(self._parts)}]" if self._parts else _ops.NO_MASK


def _add_order(visible: _Visible, q_len: int, kv_len: int, is_causal: bool,
               sliding_window: Optional[int]):
    """What a call without a mask means: transformers leaves it out where causal says it all."""
    if is_causal:
        # More keys than queries are the empty places of a static cache, which come
        # last, or the past of a single query.
        align = "top_left" if q_len > 1 else "bottom_right"
        if q_len > 1:
            visible.add("causal", align)
        if sliding_window is not None and kv_len > sliding_window:
            visible.add("window", sliding_window - 1, None, align)
    elif sliding_window is not None and kv_len > sliding_window:
        _refuse("sliding_window in both directions needs an attention_mask; "
                f"sliding_window is {sliding_window}, there are {kv_len} keys and no mask")


def _check_packed(query: Tensor, offsets: Tensor, kv_offsets: Tensor, is_causal: bool):
    if query.shape[0] != 1:
        _refuse("cu_seq_lens_q needs a batch of 1, in which the sequences are packed; "
                f"query is {list(query.shape)}")
    if is_causal and not torch.equal(offsets, kv_offsets):
        _refuse("packed sequences that are causal must have the same cu_seq_lens_q and "
                "cu_seq_lens_k")


def _add_documents(visible: _Visible, query: Tensor, key: Tensor, offsets: Tensor, kv_offsets: Tensor):
    """Sequences packed one after the other see only themselves."""

    def ids(bounds, length):
        places = torch.arange(length, device=bounds.device)
        return torch.searchsorted(bounds[1:].to(places.dtype), places, right=True).int()

    visible.add("documents", ids(offsets, query.shape[2]), ids(kv_offsets, key.shape[2]))


def _split_mask(visible: _Visible, mask: Tensor, bias: Optional[Tensor]) -> Optional[Tensor]:
    """A bool mask says what is visible, a float one is added to the scores."""
    if mask.dim() != 4:
        _refuse("attention_mask must be [batch or 1, heads or 1, q_len or 1, kv_len]; it is "
                f"{list(mask.shape)}")
    if isinstance(mask, VisiblePairs):
        for part in mask.parts:
            visible.add(*part)
        return bias
    if mask.dtype is torch.bool:
        visible.add("keep", mask)
        return bias
    if not mask.is_floating_point():
        raise TypeError("regard.transformers: attention_mask must be bool or a float type; it is "
                        f"{mask.dtype}")
    return mask if bias is None else bias + mask


def _weights_are_wanted(asked: Optional[bool]) -> bool:
    """Not every model passes output_attentions on, but transformers knows what it collects."""
    collected = None if _active_collector is None else _active_collector.get()
    return bool(asked) or any("attentions" in name for name in collected or ())


def _attention_weights(query, key, visible: _Visible, bias, sinks, scale, softcap) -> Tensor:
    """The weights before dropout, in the dtype of the query."""
    if is_direct(query, key, bias, sinks, *visible.tensors) and not needs_grad(query, key, bias, sinks):
        weights = _weights(
            query, key, mask=_ops.build_mask(visible.text, visible.tensors), bias=bias,
            sinks=sinks, scale=scale, softcap=softcap, threads=torch.get_num_threads())
        return weights.to(query.dtype)
    # Attention to the unit vectors gives the weights, and has their gradient.
    units = torch.eye(key.shape[2], dtype=query.dtype, device=query.device)
    units = units.expand(*key.shape[:2], *units.shape)
    return attend(query, key, units, visible.text, visible.tensors, bias, sinks=sinks, scale=scale,
                  softcap=softcap)


def attention_forward(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Optional[Tensor], dropout: float = 0.0, scaling: Optional[float] = None,
    is_causal: Optional[bool] = None, softcap: Optional[float] = None,
    sliding_window: Optional[int] = None, s_aux: Optional[Tensor] = None,
    position_bias: Optional[Tensor] = None, cu_seq_lens_q: Optional[Tensor] = None,
    cu_seq_lens_k: Optional[Tensor] = None, output_attentions: Optional[bool] = None, **others,
) -> Tuple[Tensor, Optional[Tensor]]:
    """What the layers of transformers call. Returns [batch, q_len, heads, dim] and the weights.

    query is [batch, heads, q_len, dim], key and value [batch, kv_heads, kv_len, dim].
    attention_mask is bool (True is visible) or float (added). The weights are None
    unless they are asked for, and are those before dropout.
    """
    unknown = [name for name, given in others.items()
               if given is not None and name not in _NOT_OURS]
    if unknown:
        _refuse(f"'{type(module).__name__}' hands over {', '.join(sorted(unknown))}, which "
                "regard does not know; use attn_implementation='eager' for this model")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # Under autocast rotary positions leave query and key in float32, and value not.
    query, key, value = lowered(query, key, value)
    visible, bias = _Visible(), position_bias
    if attention_mask is None:
        _add_order(visible, query.shape[2], key.shape[2], is_causal, sliding_window)
    else:
        # A window is part of it: only the mask knows where the queries stand.
        if isinstance(attention_mask, VisiblePairs) and (
                attention_mask.is_filled() or
                attention_mask.shape[2:] != (query.shape[2], key.shape[2])):
            attention_mask = attention_mask.dense()
        bias = _split_mask(visible, attention_mask, bias)
    weights_are_wanted = _weights_are_wanted(output_attentions)
    offsets = kv_offsets = None
    if cu_seq_lens_q is not None:
        if cu_seq_lens_k is None:
            cu_seq_lens_k = cu_seq_lens_q
        _check_packed(query, cu_seq_lens_q, cu_seq_lens_k, is_causal)
        whole = cu_seq_lens_q[-1] == query.shape[2] and cu_seq_lens_k[-1] == key.shape[2]
        if whole and attention_mask is None and bias is None and not weights_are_wanted:
            # Each has the bits that it has alone: its keys are counted from its own first.
            offsets, kv_offsets = cu_seq_lens_q.to(torch.int64), cu_seq_lens_k.to(torch.int64)
        else:
            _add_documents(visible, query, key, cu_seq_lens_q, cu_seq_lens_k)

    real = _ops.real_dtype(query.dtype)
    bias = None if bias is None else bias.to(real)
    sinks = None if s_aux is None else s_aux.to(real)
    softcap = 0.0 if softcap is None else softcap
    out = attend(query, key, value, visible.text, visible.tensors, bias, sinks=sinks,
                 q_offsets=offsets, kv_offsets=kv_offsets, scale=scaling, softcap=softcap, dropout=dropout,
                 seed=draw_seed() if dropout > 0.0 else None)
    weights = None
    if weights_are_wanted:
        weights = _attention_weights(query, key, visible, bias, sinks, scaling, softcap)
    return out.transpose(1, 2).contiguous(), weights


class VisiblePairs(Tensor):
    """A bool mask, [batch, 1, q_len, kv_len], that nobody has filled yet.

    It knows the `parts` of a `regard.mask` that say the same, such as ("causal", 5),
    and that is all that `attention_forward` reads. A model that looks at its elements,
    slices it, computes with it or writes to it gets those of an ordinary tensor, which
    is made then and is what `attention_forward` reads from there on.
    """

    @staticmethod
    def __new__(cls, shape, parts, make_dense):
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device="cpu")

    def __init__(self, shape, parts, make_dense):
        self.parts = parts
        self._make_dense = make_dense
        self._dense = None

    def dense(self) -> Tensor:
        """The ordinary tensor."""
        if self._dense is None:
            self._dense = self._make_dense()
        return self._dense

    def is_filled(self) -> bool:
        """Whether there is an ordinary tensor, which somebody may have written to."""
        return self._dense is not None

    def __repr__(self):
        return f"VisiblePairs({list(self.shape)}, {self.parts})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        def filled(value):
            return value.dense() if isinstance(value, cls) else value

        return function(*tree_map(filled, arguments), **tree_map(filled, keywords or {}))


def _name_parts(rule, offset: int) -> Optional[list]:
    """The parts of a mask that are this rule of transformers; None where it is another.

    The first query stands at the key `offset`. Rules are functions, made by functions
    of masking_utils: what they enclose are their numbers, or the rules that they join.
    """
    if rule is masking_utils.causal_mask_function:
        return [("causal", offset)]
    if rule is masking_utils.bidirectional_mask_function:
        return []
    if getattr(rule, "__module__", None) != masking_utils.__name__ or not rule.__closure__:
        return None
    maker = rule.__qualname__.split(".")[0]
    enclosed = rule.__closure__[0].cell_contents
    if maker == "sliding_window_overlay":
        return [("window", enclosed - 1, None, offset)]
    if maker == "sliding_window_bidirectional_overlay":
        return [("window", enclosed, enclosed, offset)]
    if maker != "and_masks":
        return None
    named = [_name_parts(part, offset) for part in enclosed]
    return None if None in named else [part for parts in named for part in parts]


def _padding_parts(padding: Optional[Tensor], kv_len: int, kv_offset: int) -> list:
    """Hides the keys that are padding, of a mask [batch, so many tokens] of transformers."""
    padding = masking_utils.prepare_padding_mask(padding, kv_len, kv_offset)
    if padding is None:
        return []
    padding = padding[:, kv_offset:kv_offset + kv_len].bool()
    return [] if padding.all() else [("keep", padding[:, None, None, :])]


def attention_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset=0, kv_offset: int = 0,
    mask_function=masking_utils.causal_mask_function, attention_mask: Optional[Tensor] = None,
    device="cpu", **others,
) -> Optional[Tensor]:
    """The mask that transformers hands from a model to its layers; N x N only if it must be.

    Causal, windows and padding become VisiblePairs. What has other rules, or is traced,
    or has a static cache, which is made for compiled models, is what "sdpa" would get: a
    bool tensor, or None.
    """
    def make_dense(**skips):
        return masking_utils.sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            device=device, **dict(others, **skips))

    parts = None
    if not (_ops.is_traced() or isinstance(q_offset, Tensor)) and torch.device(device).type == "cpu":
        parts = _name_parts(mask_function, q_offset - kv_offset)
    if parts is None:
        return make_dense()
    parts += _padding_parts(attention_mask, kv_length, kv_offset)
    return VisiblePairs((batch_size, 1, q_length, kv_length), parts, functools.partial(
        make_dense, allow_is_causal_skip=False, allow_is_bidirectional_skip=False))


AttentionInterface.register("regard", attention_forward)
AttentionMaskInterface.register("regard", attention_mask)
