# SPDX-License-Identifier: Apache-2.0
"""torch.nn.MultiheadAttention by regard: the same layer, no N x N matrix."""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core import attention as _forward
from .._core import attention_with_weights as _forward_with_weights
from .._core import linear as _linear
from .._core import linear_backward as _linear_backward
from . import _functional, _ops


_WHERE = "MultiheadAttention"


def _refuse(text: str):
    raise ValueError(f"{_WHERE}: {text}")


class _Pairs:
    """The masks of a call, in PyTorch's sense for this layer: True is hidden, floats are added.

    Bool masks stay as they are, so that a padding mask [batch, keys] is never
    blown up to pairs of queries and keys.
    """

    def __init__(self):
        self.parts: List[str] = []
        self.tensors: List[Tensor] = []
        self.bias: Optional[Tensor] = None

    def add(self, mask: Tensor, dtype: torch.dtype):
        if mask.dtype is torch.bool:
            self.parts.append(f'["drop", {{"tensor": {len(self.tensors)}}}]')
            self.tensors.append(mask)
        elif mask.is_floating_point():
            mask = mask.to(_ops.real_dtype(dtype))
            self.bias = mask if self.bias is None else self.bias + mask
        else:
            raise TypeError(f"MultiheadAttention: masks must be bool or float; got {mask.dtype}")

    def text(self) -> str:
        return "[" + ", ".join(self.parts) + "]" if self.parts else _ops.NO_MASK


def _read_masks(attn_mask, key_padding_mask, is_causal, sizes, appended, dtype) -> _Pairs:
    batch, heads, q_len, kv_len = sizes
    _functional.check_optional(_WHERE, attn_mask=attn_mask, key_padding_mask=key_padding_mask)
    pairs = _Pairs()
    if is_causal and attn_mask is None:
        _refuse("is_causal is a hint about attn_mask, which must be given with it")
    if is_causal and not appended:
        # What the hint promises, without reading the mask.
        pairs.parts.append('["causal", "top_left"]')
    elif attn_mask is not None:
        if attn_mask.shape == (q_len, kv_len):
            attn_mask = attn_mask[None, None]
        elif attn_mask.shape == (batch * heads, q_len, kv_len):
            attn_mask = attn_mask.unflatten(0, (batch, heads))
        else:
            _refuse("attn_mask must be [q_len, kv_len] or [batch * heads, q_len, kv_len]; it is "
                    f"{list(attn_mask.shape)}, q_len is {q_len}, kv_len is {kv_len}")
        pairs.add(F.pad(attn_mask, (0, appended)) if appended else attn_mask, dtype)
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, kv_len):
            _refuse(f"key_padding_mask must be [batch, kv_len]; it is "
                    f"{list(key_padding_mask.shape)}, batch is {batch}, kv_len is {kv_len}")
        padding = key_padding_mask[:, None, None]
        pairs.add(F.pad(padding, (0, appended)) if appended else padding, dtype)
    return pairs


def _project(query, key, value, weights, bias):
    """The three projections, [len, batch, width] each; one product where the input is one."""
    in_proj_weight, separate = weights
    if in_proj_weight is not None and query is key and key is value:
        return F.linear(query, in_proj_weight, bias).chunk(3, -1)
    parts = in_proj_weight.chunk(3) if in_proj_weight is not None else separate
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), parts, biases))


# Of one input, past PyTorch's dispatcher and tape: of a small layer, the many
# operators between its two products are most of the time.


def _split_heads(packed, shape, heads, batch_first):
    """[rows, parts * width] as views [batch, heads, len, head_dim], one for each part."""
    parts, order = packed.shape[1] // shape[2], (2, 0, 3, 1, 4) if batch_first else (2, 1, 3, 0, 4)
    split = packed.view(shape[0], shape[1], parts, heads, shape[2] // heads)
    return split.permute(order).unbind(0)


def _heads_of(packed, shape, heads, batch_first):
    """The same of a single part."""
    split = packed.view(shape[0], shape[1], heads, shape[2] // heads)
    return split.permute(0, 2, 1, 3) if batch_first else split.permute(1, 2, 0, 3)


def _options(mask, mask_tensors, bias, dropout, seed):
    """The keywords that say more than nothing: each costs a small call some time."""
    options = {"threads": torch.get_num_threads()}
    if mask != _ops.NO_MASK:
        options["mask"] = _ops.build_mask(mask, mask_tensors)
    if bias is not None:
        options["bias"] = bias
    if seed is not None:
        options["dropout"], options["seed"] = dropout, int(seed)
    return options


def _join_heads(parts, batch_first):
    """The inverse: [rows, parts * width]."""
    stacked = torch.stack(parts)
    rows = stacked.permute((1, 3, 0, 2, 4) if batch_first else (3, 1, 0, 2, 4))
    a, b, parts, heads, dim = rows.shape
    return rows.reshape(a * b, parts * heads * dim)


# For so few rows our products read the weights as they are and take less time than PyTorch's.
_FEW_ROWS = 16


def _are_few(x, *others):
    return x.shape[0] <= _FEW_ROWS and all(t is None or t.dtype is torch.float32 for t in (x, *others))


def _linear_rows(x, weight, bias):
    """F.linear of rows."""
    if _are_few(x, weight, bias):
        return _linear(x, weight, bias, torch.get_num_threads())
    return F.linear(x, weight, bias)


def _linear_gradients(d_y, x, weight, of_x, of_weight, of_bias):
    """The gradients of _linear_rows that are wanted, else None."""
    if _are_few(d_y, x, weight) and _ops.may_call_directly(d_y):
        return _linear_backward(d_y, x, weight, of_x, of_weight, of_bias, torch.get_num_threads())
    return (d_y @ weight if of_x else None, d_y.t() @ x if of_weight else None,
            d_y.sum(0) if of_bias else None)


class _SelfAttention(torch.autograd.Function):
    """in_proj, attention and out_proj of one input x, [batch, len, width] or [len, batch, width]."""

    @staticmethod
    def forward(ctx, x, in_weight, in_bias, out_weight, out_bias, heads, batch_first, mask,
                mask_tensors, bias, dropout, seed):
        rows = x.reshape(-1, x.shape[2])
        qkv = _linear_rows(rows, in_weight, in_bias)
        q, k, v = _split_heads(qkv, x.shape, heads, batch_first)
        attended = rows.new_empty(rows.shape)
        out = _heads_of(attended, x.shape, heads, batch_first)
        _, lse = _forward(q, k, v, out=out, return_lse=True,
                          **_options(mask, mask_tensors, bias, dropout, seed))
        ctx.save_for_backward(rows, qkv, attended, lse, in_weight, out_weight, bias, seed,
                              *mask_tensors)
        ctx.constants = x.shape, heads, batch_first, mask, dropout
        return _linear_rows(attended, out_weight, out_bias).view(x.shape)

    @staticmethod
    @_ops.once_differentiable
    def backward(ctx, d_result):
        rows, qkv, attended, lse, in_weight, out_weight, bias, seed, *mask_tensors = ctx.saved_tensors
        shape, heads, batch_first, mask, dropout = ctx.constants
        of_x, of_in_weight, of_in_bias, of_out_weight, of_out_bias, *_ = ctx.needs_input_grad
        d_x = d_in_weight = d_in_bias = None
        d_result = d_result.reshape(rows.shape)
        of_qkv = of_x or of_in_weight or of_in_bias
        d_attended, d_out_weight, d_out_bias = _linear_gradients(
            d_result, attended, out_weight, of_qkv, of_out_weight, of_out_bias)
        if of_qkv:
            q, k, v = _split_heads(qkv, shape, heads, batch_first)
            out = _heads_of(attended, shape, heads, batch_first)
            d_out = _heads_of(d_attended, shape, heads, batch_first)
            gradients = _ops.backward(
                d_out, None, out, lse, "q k v", q, k, v, mask, mask_tensors, bias, *[None] * 6,
                "dot", 0.0, dropout, seed, "float32")
            d_x, d_in_weight, d_in_bias = _linear_gradients(
                _join_heads(gradients, batch_first), rows, in_weight, of_x, of_in_weight, of_in_bias)
            d_x = d_x.view(shape) if of_x else None
        return d_x, d_in_weight, d_in_bias, d_out_weight, d_out_bias, *[None] * 7


def _attend_to_itself(x, parameters, heads, pairs: _Pairs, dropout, seed, need_weights, average):
    """The layer on one input [len, batch, width], where it may be called directly."""
    # A transposed [batch, len, width] is computed as it stands in memory.
    batch_first = x.stride(0) < x.stride(1)
    if batch_first:
        x = x.transpose(0, 1)
    weights = None
    options = (pairs.text(), pairs.tensors, pairs.bias)
    if _functional.needs_grad(x, *parameters):
        out = _SelfAttention.apply(x, *parameters, heads, batch_first, *options, dropout, seed)
    else:
        in_weight, in_bias, out_weight, out_bias = parameters
        rows = x.reshape(-1, x.shape[2])
        q, k, v = _split_heads(_linear_rows(rows, in_weight, in_bias), x.shape, heads, batch_first)
        attended = rows.new_empty(rows.shape)
        out = _heads_of(attended, x.shape, heads, batch_first)
        keywords = _options(*options, dropout, seed)
        if need_weights:
            _, weights = _forward_with_weights(
                q, k, v, out=out, heads="mean" if average else "each", **keywords)
            weights = weights.to(q.dtype)
        else:
            _forward(q, k, v, out=out, **keywords)
        out = _linear_rows(attended, out_weight, out_bias).view(x.shape)
    return (out.transpose(0, 1) if batch_first else out), weights


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Optional[Tensor], in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor],
    bias_v: Optional[Tensor], add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Optional[Tensor], training: bool = True,
    key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
    attn_mask: Optional[Tensor] = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Optional[Tensor] = None, k_proj_weight: Optional[Tensor] = None,
    v_proj_weight: Optional[Tensor] = None, static_k: Optional[Tensor] = None,
    static_v: Optional[Tensor] = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """`torch.nn.functional.multi_head_attention_forward`, by regard.

    static_k and static_v are PyTorch's to compute.
    """
    _functional.check_tensors(_WHERE, query=query, key=key, value=value)
    if static_k is not None or static_v is not None:
        return F.multi_head_attention_forward(
            query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k,
            bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training,
            key_padding_mask, need_weights, attn_mask, use_separate_proj_weight, q_proj_weight,
            k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights, is_causal)
    if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
        _refuse("query, key and value must all be [len, batch, dim] or [len, dim]; they are "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}")
    batched = query.dim() == 3
    one_input = query is key and key is value
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    q_len, batch, width = query.shape
    kv_len = key.shape[0]
    if width != embed_dim_to_check or width % num_heads:
        _refuse(f"query must have {embed_dim_to_check} columns, which {num_heads} heads divide; "
                f"it is {list(query.shape)}")
    appended = (bias_k is not None) + bool(add_zero_attn)
    pairs = _read_masks(attn_mask, key_padding_mask, is_causal, (batch, num_heads, q_len, kv_len),
                        appended, query.dtype)
    dropout = dropout_p if training else 0.0
    if not 0.0 <= dropout <= 1.0:
        _refuse(f"dropout_p must be in [0, 1]; it is {dropout}")
    drops_all = dropout >= 1.0
    dropout = 0.0 if drops_all else dropout
    seed = _functional.draw_seed() if dropout > 0.0 else None

    parameters = (in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias)
    if (one_input and not use_separate_proj_weight and not appended and not drops_all
            and width > 0 and _functional.is_direct(query, *parameters, pairs.bias, *pairs.tensors)
            and not _functional.needs_grad(pairs.bias)
            and not (need_weights and _functional.needs_grad(query, *parameters))):
        out, attention_weights = _attend_to_itself(
            query, parameters, num_heads, pairs, dropout, seed, need_weights, average_attn_weights)
    else:
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
        weights = (None, separate) if use_separate_proj_weight else (in_proj_weight, None)
        if one_input:
            key = value = query
        q, k, v = _project(query, key, value, weights, in_proj_bias)
        if bias_k is not None:
            k = torch.cat([k, bias_k.expand(1, batch, -1)])
            v = torch.cat([v, bias_v.expand(1, batch, -1)])
        if add_zero_attn:
            k = torch.cat([k, k.new_zeros(1, *k.shape[1:])])
            v = torch.cat([v, v.new_zeros(1, *v.shape[1:])])

        def heads_first(x):  # a view: [batch, heads, len, head_dim]
            return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)

        arguments = (heads_first(q), heads_first(k), heads_first(v), pairs.text(), pairs.tensors,
                     pairs.bias)
        attention_weights = None
        if need_weights:
            out, attention_weights = _functional.attend_with_weights(
                *arguments, average_attn_weights, dropout, seed)
        else:
            out = _functional.attend(*arguments, dropout=dropout, seed=seed)
        if drops_all:
            out = out * 0.0
        out = F.linear(out.permute(2, 0, 1, 3).flatten(-2), out_proj_weight, out_proj_bias)
    if attention_weights is not None and average_attn_weights:
        attention_weights = attention_weights.squeeze(1)
    if not batched:
        out = out.squeeze(1)
        attention_weights = None if attention_weights is None else attention_weights.squeeze(0)
    return out, attention_weights


class MultiheadAttention(torch.nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` by regard: same constructor, calls and state dict.

    Without need_weights no N x N matrix exists, in training neither. Differences: a
    query that sees no key has an attention of zero, where PyTorch gives NaN; and
    the weights that are returned are those before dropout.

    >>> import torch, regard.torch
    >>> layer = regard.torch.MultiheadAttention(64, 4, batch_first=True)
    >>> x = torch.zeros(2, 10, 64)
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([2, 10, 64]), torch.Size([2, 10, 10]))
    """

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor,
        key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
        attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        return self._attend(query, key, value, key_padding_mask, need_weights, attn_mask,
                            average_attn_weights, is_causal)

    @torch.jit.ignore  # torch.jit.script calls it as it is
    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Optional[Tensor],
        need_weights: bool, attn_mask: Optional[Tensor], average_attn_weights: bool,
        is_causal: bool,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        # Before anything of theirs is asked; nested ones are PyTorch's.
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if not isinstance(tensor, Tensor):
                _functional.check_tensors(_WHERE, **{name: tensor})
        if query.device.type not in ("cpu", "meta") or query.is_nested:
            return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask,
                                   average_attn_weights, is_causal)
        swap = self.batch_first and query.dim() == 3
        if swap:
            same = (query is key, key is value)
            query = query.transpose(0, 1)
            key = query if same[0] else key.transpose(0, 1)
            value = key if same[1] else value.transpose(0, 1)
        out, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal)
        return (out.transpose(0, 1) if swap else out), weights
