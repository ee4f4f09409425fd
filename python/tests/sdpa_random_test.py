# SPDX-License-Identifier: Apache-2.0
"""regard.torch's scaled_dot_product_attention beside PyTorch's, on calls drawn at random.

Values and gradients are held against PyTorch's plain formula in double, with the shape, the dtype and
whether there is a graph; what PyTorch refuses must be refused. Sizes of 0 and 1, inputs of 2 to 5
dimensions that broadcast in every way, masks of every shape that fits and some that do not, grouped
heads, causal masks, scales, all dtypes and strides are drawn together.
"""

import random

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import pytest
import regard.torch
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# By dtype: what an error may be, of the largest value there is. Half types round every score's share.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
SEEDS = 12
CALLS = 100


class Call:
    """The arguments of one call, drawn."""

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.generator = torch.Generator().manual_seed(draw.getrandbits(32))
        self.dtype = draw.choices(list(TOLERANCES), [2, 4, 1, 1])[0]
        some = [0, 1, 2, 3] if draw.random() < 0.2 else [1, 2, 3]
        lead = [draw.choice(some) for _ in range(draw.choice([0, 1, 2, 2, 2, 3]))]
        q_len, kv_len = (draw.choice([1, 2, 5, 17, 0] if draw.random() < 0.2 else [1, 2, 5, 17]) for _ in "qk")
        d_k, d_v = (draw.choice([1, 3, 8, 0] if draw.random() < 0.2 else [1, 3, 8]) for _ in "kv")
        if draw.random() < 0.5:
            d_v = d_k
        leads = [self.part_of(lead) for _ in "qkv"]
        self.keywords = {}
        if lead and draw.random() < 0.25:
            self.keywords["enable_gqa"] = True
            heads = draw.choice([1, 2, 3])
            for each, factor in zip(leads, (6, draw.choice([1, 2, 3, 6]), draw.choice([1, 2, 3, 6]))):
                each[-1:] = [heads * factor if draw.random() < 0.95 else 5]
        lens = [q_len, kv_len, kv_len]
        dims = [d_k, d_k, d_v]
        if draw.random() < 0.03:
            draw.choice([lens, dims])[draw.randrange(3)] += 1
        self.tensors = [self.tensor((*each, n, d)) for each, n, d in zip(leads, lens, dims)]
        if draw.random() < 0.3:
            self.keywords["scale"] = draw.choice([0.5, 1.0, 0.0, -0.7])
        self.mask = None
        kind = draw.choice(["none", "causal", "bool", "float"])
        if kind == "causal":
            self.keywords["is_causal"] = True
        elif kind != "none":
            self.mask = self.pairs(lead if not self.keywords.get("enable_gqa") else leads[0], lens, kind)
            if draw.random() < 0.02:
                self.keywords["is_causal"] = True

    def part_of(self, lead):
        """The same, or with fewer dimensions, or ones, or seldom what does not fit."""
        mine = list(lead)
        for i in range(len(mine)):
            chance = self.draw.random()
            if chance < 0.15:
                mine[i] = 1
            elif chance < 0.17:
                mine[i] += 1
        drop = self.draw.choice([0, 0, 0, 0, 1, 2])
        return mine[min(drop, len(mine)):]

    def pairs(self, lead, lens, kind):
        shape = self.part_of([*lead, *lens[:2]]) if self.draw.random() < 0.97 else [1, *lead, *lens[:2]]
        if kind == "bool":
            return torch.rand(shape, generator=self.generator) > 0.3
        mask = torch.randn(shape, generator=self.generator)
        if self.draw.random() < 0.3:
            mask = mask.masked_fill(mask > 0.8, -torch.inf)
        mask = mask.to(self.draw.choice([self.dtype, torch.float32]) if self.dtype != torch.float64 else self.dtype)
        return mask.requires_grad_(self.draw.random() < 0.5)

    def tensor(self, shape):
        order = self.draw.choice(["plain", "plain", "rows apart", "transposed"])
        if order == "rows apart":
            made = torch.randn((*shape[:-1], shape[-1] + 2), generator=self.generator).to(self.dtype)[..., 1:-1]
        elif order == "transposed":
            made = torch.randn((*shape[:-2], shape[-1], shape[-2]), generator=self.generator)
            made = made.to(self.dtype).transpose(-1, -2)
        else:
            made = torch.randn(shape, generator=self.generator).to(self.dtype)
        return made.requires_grad_(self.draw.random() < 0.5)

    def wants_gradients(self):
        return any(t is not None and t.requires_grad for t in (*self.tensors, self.mask))

    def __repr__(self):
        def text(t):
            return f"{list(t.shape)}{' with gradient' if t.requires_grad else ''}, strides {t.stride()}"

        parts = [*map(text, self.tensors), f"{self.dtype}", f"{self.keywords}"]
        if self.mask is not None:
            parts.append(f"mask {text(self.mask)} of {self.mask.dtype}")
        return "; ".join(parts)


def attempt(function, call: Call, dtype):
    """(result, gradients), or None and the error."""

    def at(tensor):
        if tensor is None or not tensor.is_floating_point():
            return tensor
        return tensor if dtype is None else tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    leaves = [at(t) for t in call.tensors]
    mask = at(call.mask)
    wanted = [t for t in (*leaves, mask) if t is not None and t.requires_grad]
    try:
        out = function(*leaves, attn_mask=mask, **call.keywords)
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        return None, error
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    gradients = torch.autograd.grad(out, wanted, d_out, materialize_grads=True) if out.requires_grad else []
    return out, gradients


def plain(*arguments, **keywords):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **keywords)


def formula(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """The definition. PyTorch looks neither at masks nor at other sizes where something is empty, and whether it
    takes a mask of fewer than two dimensions depends on those of query."""
    if enable_gqa:
        counts = [t.shape[-3] for t in (query, key, value)]
        if not counts[1] or not counts[2] or counts[0] % counts[1] or counts[0] % counts[2]:
            if not counts[0] == counts[1] == counts[2]:
                raise ValueError("heads")
        else:
            key, value = (t.repeat_interleave(counts[0] // t.shape[-3], -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * ((query.shape[-1] or 1) ** -0.5 if scale is None else scale)
    if is_causal and attn_mask is not None:
        raise ValueError("two masks")
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        if torch.broadcast_shapes(attn_mask.shape, scores.shape) != scores.shape:
            raise ValueError("mask")
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros(attn_mask.shape, dtype=scores.dtype).masked_fill(~attn_mask, -torch.inf)
        scores = scores + attn_mask
    return torch._safe_softmax(scores, -1) @ value


def near(mine, exact, tolerance):
    if mine.shape != exact.shape:
        return False
    if mine.numel() == 0:
        return True
    scale = max(1.0, exact.abs().max().item())
    return (mine.double() - exact).abs().max().item() <= tolerance * scale  # false for NaN


@pytest.mark.parametrize("seed", range(SEEDS))
def test_values_gradients_and_refusals_are_pytorchs(seed):
    draw = random.Random(seed)
    compared = refused = 0
    for number in range(CALLS):
        call = Call(draw)
        odd = any(t.numel() == 0 for t in call.tensors) or (call.mask is not None and call.mask.dim() < 2)
        reference = formula if odd else plain
        exact, exact_gradients = attempt(reference, call, torch.float64)
        mine, gradients = attempt(regard.torch.scaled_dot_product_attention, call, None)
        where = f"call {number} of seed {seed}: {call}"
        if exact is None:
            assert mine is None, f"{where}\nPyTorch refuses: {exact_gradients}"
            assert isinstance(gradients, (ValueError, TypeError)), f"{where}\nbut said {gradients!r}"
            refused += 1
            continue
        assert mine is not None, f"{where}\nrefused: {gradients!r}"
        assert mine.dtype == call.dtype and mine.requires_grad == call.wants_gradients(), where
        tolerance = TOLERANCES[call.dtype]
        assert near(mine.detach(), exact.detach(), tolerance), f"{where}\n{mine}\n{exact}"
        for got, right in zip(gradients, exact_gradients, strict=True):
            assert near(got, right, 4 * tolerance), f"{where}\ngradients: {got}\n{right}"
        compared += 1
    assert compared > CALLS // 2 and refused > 0  # the draw is worth something
