# SPDX-License-Identifier: Apache-2.0
"""Attention over a sequence that is spread over the processes of torch.distributed."""

import ctypes
from typing import Optional

import torch
import torch.distributed as dist
from torch import Tensor

from .._core import Mask
from .._core import attention as _forward
from .._core import attention_backward as _backward
from . import _ops
from ._functional import attention, check_tensors, lowered

_WHERE = "context_parallel_attention"


class _Cut:
    """Who holds which positions and heads. Heads are cut where the groups of key-value heads are."""

    def __init__(self, group, lengths, kv_heads: int, heads_each: int):
        self.group, self.lengths = group, lengths
        self.rank, ranks = dist.get_rank(group), len(lengths)
        self.heads = [slice(kv_heads * i // ranks * heads_each, kv_heads * (i + 1) // ranks * heads_each)
                      for i in range(ranks)]
        self.counts = [part.stop - part.start for part in self.heads]

    def _sizes(self, batch: int, width: int):
        """Elements for each rank: of own positions with its heads, of its positions with own heads."""
        return ([self.lengths[self.rank] * batch * count * width for count in self.counts],
                [length * batch * self.counts[self.rank] * width for length in self.lengths])

    def to_heads(self, own: Tensor) -> Tensor:
        """[batch, all heads, own positions, width] -> [batch, own heads, all positions, width]."""
        batch, _, _, width = own.shape
        sends, receives = self._sizes(batch, width)
        # Positions first: what comes from a rank is then in one piece.
        packed = torch.cat([own[:, part].permute(2, 0, 1, 3).reshape(-1) for part in self.heads])
        whole = own.new_empty(sum(receives))
        dist.all_to_all_single(whole, packed, receives, sends, group=self.group)
        return whole.view(sum(self.lengths), batch, self.counts[self.rank], width).permute(1, 2, 0, 3)

    def to_positions(self, whole: Tensor) -> Tensor:
        """The way back."""
        batch, _, _, width = whole.shape
        receives, sends = self._sizes(batch, width)
        packed = whole.new_empty(sum(receives))
        dist.all_to_all_single(packed, whole.permute(2, 0, 1, 3).reshape(-1), receives, sends, group=self.group)
        parts = [part.view(self.lengths[self.rank], batch, count, width)
                 for part, count in zip(packed.split(receives), self.counts)]
        return torch.cat(parts, 2).permute(1, 2, 0, 3)


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own, cut):
        ctx.cut = cut
        return cut.to_heads(own)

    @staticmethod
    def backward(ctx, gradient):
        return _ToPositions.apply(gradient, ctx.cut), None


class _ToPositions(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole, cut):
        ctx.cut = cut
        return cut.to_positions(whole)

    @staticmethod
    def backward(ctx, gradient):
        return _ToHeads.apply(gradient, ctx.cut), None


class _Transport:
    """Carries bytes between the processes of a group, for the library."""

    def __init__(self, group):
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.sends, self.receives = [], []

    def _begin(self, under_way, start, other, address, count):
        memory = torch.frombuffer((ctypes.c_byte * count).from_address(address), dtype=torch.uint8)
        under_way.append((start(memory, dist.get_global_rank(self.group, other), group=self.group), memory))

    @staticmethod
    def _wait(under_way):
        for work, _ in under_way:
            work.wait()
        under_way.clear()

    def send(self, to, address, count):
        self._begin(self.sends, dist.isend, to, address, count)

    def receive(self, sender, address, count):
        self._begin(self.receives, dist.irecv, sender, address, count)

    def finish(self):
        self._wait(self.receives)
        self._wait(self.sends)

    def finish_receives(self):
        self._wait(self.receives)


class _BySequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sinks, alibi, transport, options):
        ctx.transport, ctx.options = transport, options
        out, lse = _forward(q.detach(), k.detach(), v.detach(), out=_ops.empty_out(q, v), return_lse=True,
                            _ranks=transport, sinks=sinks, alibi=alibi, **options)
        ctx.save_for_backward(q, k, v, out, lse, sinks, alibi)
        return out

    @staticmethod
    @_ops.once_differentiable
    def backward(ctx, d_out):
        q, k, v, out, lse, sinks, alibi = ctx.saved_tensors
        wanted = ["q", "k", "v"]
        wanted += [name for name, given in (("sinks", sinks), ("alibi", alibi)) if given is not None]
        gradients = _backward(d_out.contiguous(), q.detach(), k.detach(), v.detach(), out.detach(), lse, wanted=wanted,
                              _ranks=ctx.transport, sinks=sinks, alibi=alibi, **ctx.options)

        def once(gradient):
            """The sum over the group is the gradient, as it is by heads."""
            return gradient if gradient is None or ctx.transport.rank == 0 else torch.zeros_like(gradient)

        return gradients.q, gradients.k, gradients.v, once(gradients.sinks), once(gradients.alibi), None, None


def context_parallel_attention(
    q: Tensor, k: Tensor, v: Tensor, *, group: Optional[dist.ProcessGroup] = None, mask: Optional[Mask] = None,
    scale: Optional[float] = None, score: str = "dot", softcap: Optional[float] = None,
    sinks: Optional[Tensor] = None, alibi: Optional[Tensor] = None, dropout: float = 0.0, seed: Optional[int] = None,
) -> Tensor:
    """`regard.torch.attention` of a sequence whose positions are spread over the processes of a group.

    Each process holds consecutive positions with all heads: q is [batch, heads, own queries, dim],
    k and v are [batch, kv_heads, own keys, dim], process 0 the first ones. mask counts the positions
    of the whole sequence; sinks and alibi are [heads], and their gradients on each process are a part:
    sum them over the group, as DistributedDataParallel does. dropout needs a seed, the same everywhere.

    With as many kv_heads as processes, and no dropout, two all-to-alls give each process some heads of
    the whole sequence and back, and lengths may differ. Otherwise keys travel, process i of n holds the
    positions from length * i // n on, and the type is not float64. The bits of out and of the gradients
    of q, k and v are those of one process. Works on gloo; every process of the group calls it.
    """
    check_tensors(_WHERE, q=q, k=k, v=v)
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(f"{_WHERE}: q, k and v must be [batch, heads, len, dim]; they have {q.dim()}, "
                         f"{k.dim()} and {v.dim()} dimensions")
    if not dist.is_initialized():
        raise RuntimeError(f"{_WHERE}: torch.distributed is not initialized; init_process_group starts it")
    ranks, heads, kv_heads = dist.get_world_size(group), q.shape[1], k.shape[1]
    if kv_heads < 1 or heads % kv_heads or v.shape[1] != kv_heads:
        raise ValueError(f"{_WHERE}: kv_heads must divide heads, and be those of v; q has {heads} heads, "
                         f"k {kv_heads}, v {v.shape[1]}")
    if dropout > 0 and seed is None:
        raise ValueError(f"{_WHERE}: dropout needs a seed, the same on every process")
    if kv_heads < ranks or dropout > 0:
        options = {"mask": mask, "scale": scale, "score": score, "softcap": softcap, "dropout": dropout, "seed": seed}
        return _BySequence.apply(*lowered(q, k, v), sinks, alibi, _Transport(group),
                                 {name: value for name, value in options.items() if value is not None})
    own = torch.tensor([q.shape[2], k.shape[2]], device="cpu")
    lengths = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(lengths, own, group=group)
    of_queries = _Cut(group, [int(n[0]) for n in lengths], kv_heads, heads // kv_heads)
    of_keys = _Cut(group, [int(n[1]) for n in lengths], kv_heads, 1)
    part = of_queries.heads[of_queries.rank]

    def some(values):
        return None if values is None else values[part]

    out = attention(_ToHeads.apply(q, of_queries), _ToHeads.apply(k, of_keys), _ToHeads.apply(v, of_keys),
                    mask=mask, scale=scale, score=score, softcap=softcap, sinks=some(sinks), alibi=some(alibi))
    return _ToPositions.apply(out, of_queries)
