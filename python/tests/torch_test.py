# SPDX-License-Identifier: Apache-2.0
"""regard.torch beside PyTorch's own attention.

The truth is PyTorch's plain formula in double, the yardstick its own float32 result: ours may be
twice as far from the truth.
"""

import copy
import doctest
import pickle

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import pytest
import regard
import regard.torch
import torch
import torch.nn.functional as F
from regard.torch import _functional, _multihead, _ops, _use
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

ours = regard.torch.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def truth(*arguments, **keywords):
    def double(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            *map(double, arguments), **{name: double(x) for name, x in keywords.items()})


def error(a, b):
    return (a.double() - b.double()).abs().max().item()


def check(*arguments, **keywords):
    """Forward, against the truth."""
    out = ours(*arguments, **keywords)
    exact = truth(*arguments, **keywords)
    theirs = F.scaled_dot_product_attention(*arguments, **keywords)
    assert out.shape == exact.shape and out.dtype == arguments[0].dtype
    assert error(out, exact) <= 2 * error(theirs, exact) + 1e-6
    return out


SHAPES = {
    "2-D": [(7, 8), (9, 8), (9, 5)],
    "3-D": [(3, 7, 8), (3, 9, 8), (3, 9, 8)],
    "4-D": [(2, 4, 33, 16), (2, 4, 65, 16), (2, 4, 65, 24)],
    "5-D": [(2, 3, 4, 7, 8), (2, 3, 4, 9, 8), (2, 3, 4, 9, 8)],
    "6-D": [(2, 1, 2, 3, 7, 8), (2, 1, 2, 3, 9, 8), (2, 1, 2, 3, 9, 8)],
    "broadcast batch": [(4, 2, 7, 8), (1, 2, 9, 8), (4, 2, 9, 8)],
    "broadcast heads": [(2, 4, 7, 8), (2, 1, 9, 8), (2, 1, 9, 8)],
    "no keys": [(1, 2, 3, 8), (1, 2, 0, 8), (1, 2, 0, 8)],
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_dimensions(shapes, causal):
    q, k, v = (torch.randn(shape) for shape in shapes)
    if k.shape[-2] == 0:
        assert (ours(q, k, v) == 0).all()
        return
    check(q, k, v, is_causal=causal)
    check(q, k, v, scale=0.3)


MASKS = {
    "[L, S]": (7, 9), "[1, S]": (1, 9), "[L, 1]": (7, 1), "[B, 1, 1, S]": (2, 1, 1, 9),
    "[H, L, S]": (4, 7, 9), "[B, H, L, S]": (2, 4, 7, 9), "[1, 1, L, S]": (1, 1, 7, 9),
}


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_broadcast(shape, kind):
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8)
    mask = torch.rand(shape) > 0.3 if kind == "bool" else torch.randn(shape)
    if kind == "bool":
        mask[..., 0] = True
    check(q, k, v, attn_mask=mask)
    check(q, k, v, attn_mask=mask.expand(2, 4, 7, 9))


@pytest.mark.parametrize("dims, shape", [(2, (7, 9)), (3, (3, 7, 9)), (3, (1, 7, 9)), (3, (7, 9)),
                                         (5, (2, 3, 1, 7, 9)), (5, (3, 4, 7, 9)), (5, (1, 1, 1, 7, 9))])
def test_masks_of_other_dimensions(dims, shape):
    lead = {2: (), 3: (3,), 5: (2, 3, 4)}[dims]
    q, k = torch.randn(*lead, 7, 8), torch.randn(*lead, 9, 8)
    check(q, k, k, attn_mask=torch.randn(shape))
    mask = torch.rand(shape) > 0.3
    mask[..., 0] = True
    check(q, k, k, attn_mask=mask)


def test_grouped_heads():
    q, k, v = torch.randn(2, 6, 7, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    check(q, k, v, enable_gqa=True)
    check(q, k, v, enable_gqa=True, attn_mask=torch.randn(7, 9))
    with pytest.raises(ValueError, match="without enable_gqa, batch and heads of query, key and value must be the same"):
        ours(q, k, v)


def test_rows_that_see_nothing_are_zero_with_zero_gradients():
    q, k, v = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[3] = False
    out = ours(q, k, v, attn_mask=mask)
    out.sum().backward()
    assert (out[:, :, 3] == 0).all() and (q.grad[:, :, 3] == 0).all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    bias = torch.zeros(5, 5).masked_fill(~mask, -torch.inf)
    assert torch.equal(ours(q, k, v, attn_mask=bias), out)


def test_masks_of_the_smallest_float_hide():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    hidden = torch.zeros(5, 5)
    hidden[:, 3:] = torch.finfo(torch.float32).min
    check(q, k, v, attn_mask=hidden)
    hidden[2] = torch.finfo(torch.float32).min  # a row without a key to prefer
    assert ours(q, k, v, attn_mask=hidden).isfinite().all()


@pytest.mark.parametrize("dtype, rounding", [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_half_types(dtype, rounding):
    q, k, v = (torch.randn(2, 4, 65, 32).to(dtype).requires_grad_() for _ in range(3))
    out = ours(q, k, v, is_causal=True)
    exact = truth(q, k, v, is_causal=True)
    assert out.dtype == dtype
    assert error(out, exact) <= rounding * exact.abs().max().item() + 1e-6
    masked = ours(q, k, v, attn_mask=torch.zeros(65, 65, dtype=dtype))
    masked.float().sum().backward()
    assert q.grad.dtype == dtype and q.grad.isfinite().all()


def test_autocast_lowers_the_precision_as_pytorch_does():
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        out = ours(q, q.half(), q)
        assert out.dtype == F.scaled_dot_product_attention(q, q, q).dtype == torch.float16
        assert ours(q.double(), q.double(), q.double()).dtype == torch.float64
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32
    assert torch.equal(out, ours(q.half(), q.half(), q.half()))


def test_memory_order_of_the_query_is_kept():
    q = torch.randn(2, 7, 4, 8).transpose(1, 2)
    out = check(q, q, q)
    assert out.transpose(1, 2).is_contiguous()
    packed = torch.randn(2, 7, 3, 4, 8)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    assert check(q, k, v).transpose(1, 2).is_contiguous()


def test_any_strides():
    q, k, v = (torch.randn(2, 4, 8, 7).transpose(-1, -2) for _ in range(3))
    check(q, k, v)
    check(q[:, ::2], k[:, ::2], v[:, ::2])
    check(q, k, v, attn_mask=torch.randn(7, 7).t())


@pytest.mark.parametrize("case", ["plain", "causal", "bool", "float", "gqa", "d_v"])
def test_gradients_are_as_exact_as_pytorchs(case):
    q = torch.randn(2, 4, 65, 32)
    k, v = torch.randn(2, 4, 65, 32), torch.randn(2, 4, 65, 32)
    keywords = {}
    mask = None
    if case == "causal":
        keywords["is_causal"] = True
    elif case == "bool":
        keywords["attn_mask"] = torch.rand(2, 1, 65, 65) > 0.3
    elif case == "float":
        mask = torch.randn(1, 4, 65, 65)
    elif case == "gqa":
        k, v = k[:, :2], v[:, :2]
        keywords["enable_gqa"] = True
    elif case == "d_v":
        v = torch.randn(2, 4, 65, 48)
    d_out = torch.randn(2, 4, 65, v.shape[-1])

    def gradients(function, dtype):
        leaves = [t.to(dtype).clone().requires_grad_() for t in (q, k, v, mask) if t is not None]
        given = {"attn_mask": leaves[3]} if mask is not None else {}
        out = function(*leaves[:3], **given, **keywords)
        return torch.autograd.grad(out, leaves, d_out.to(dtype))

    exact = gradients(truth, torch.float64)
    with sdpa_kernel(SDPBackend.MATH):
        theirs = gradients(F.scaled_dot_product_attention, torch.float32)
    for mine, other, right in zip(gradients(ours, torch.float32), theirs, exact):
        assert mine.shape == right.shape
        assert error(mine, right) <= 2 * error(other, right) + 1e-6 * right.abs().max().item()


def doubles(*shapes):
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_gradcheck_in_double():
    q, k, v, bias = doubles((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (2, 3, 5))
    assert torch.autograd.gradcheck(ours, (q, k, v, bias))
    assert torch.autograd.gradcheck(lambda q, k, v: ours(q, k, v, is_causal=True), (q, k, v))


def test_gradcheck_of_every_option():
    q, k, v, bias, sinks, alibi, scales = doubles(
        (1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 3), (1, 2, 3, 5), (2,), (2,), (2,))

    def call(q, k, v, bias, sinks, alibi, scales):
        return regard.torch.attention(
            q, k, v, bias=bias, sinks=sinks, alibi=alibi, head_scales=scales, softcap=2.0,
            mask=regard.mask.causal(), dropout=0.3, seed=5, return_lse=True)

    assert torch.autograd.gradcheck(call, (q, k, v, bias, sinks, alibi, scales))


def test_packed_sequences():
    q, k, v = doubles((7, 2, 4), (7, 2, 4), (7, 2, 3))
    offsets = torch.tensor([0, 3, 7], dtype=torch.int32)
    packed = regard.torch.varlen_attention(q, k, v, offsets, window_size=(-1, 0))
    for begin, end in ((0, 3), (3, 7)):
        part = [t[begin:end].transpose(0, 1) for t in (q, k, v)]
        assert error(packed[begin:end].transpose(0, 1), truth(*part, is_causal=True)) < 1e-14
    assert torch.autograd.gradcheck(
        lambda q, k, v: regard.torch.varlen_attention(q, k, v, offsets), (q, k, v))
    with pytest.raises(ValueError, match="without enable_gqa"):
        regard.torch.varlen_attention(q, k[:, :1], v[:, :1], offsets)


def test_dropout_follows_torchs_generator():
    q = torch.randn(2, 4, 64, 16)
    v = torch.ones(2, 4, 64, 16)
    torch.manual_seed(3)
    first = ours(q, q, v, dropout_p=0.25)
    second = ours(q, q, v, dropout_p=0.25)
    torch.manual_seed(3)
    assert torch.equal(ours(q, q, v, dropout_p=0.25), first)
    assert not torch.equal(first, second)
    assert abs(first.mean().item() - 1) < 0.02
    assert (ours(q, q, v, dropout_p=1.0) == 0).all()
    leaf = q.clone().requires_grad_()
    torch.manual_seed(3)
    assert torch.equal(ours(leaf, q, v, dropout_p=0.25), first)


def test_dropped_weights_are_dropped_in_backward_too():
    q, k, v = doubles((1, 1, 4, 4), (1, 1, 6, 4), (1, 1, 6, 4))

    def call(q, k, v):
        torch.manual_seed(9)
        return ours(q, k, v, dropout_p=0.4)

    assert torch.autograd.gradcheck(call, (q, k, v))


def operator_arguments(**changes):
    q, k, v, bias = doubles((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (1, 1, 3, 5))
    arguments = {
        "q": q, "k": k, "v": v, "mask": '[["keep", {"tensor": 0}]]',
        "mask_tensors": [torch.rand(3, 5) > 0.3], "bias": bias, "head_scales": None,
        "alibi": None, "sinks": None, "q_offsets": None, "kv_offsets": None, "scale": None,
        "score": "dot", "softcap": 0.0, "dropout": 0.0, "seed": None, "compute": "float32"}
    return tuple({**arguments, **changes}.values())


@pytest.mark.parametrize("changes", [
    {}, {"mask": "", "mask_tensors": []}, {"dropout": 0.3, "seed": torch.tensor(7)},
    {"mask": '[["causal", "top_left"]]', "mask_tensors": [], "softcap": 3.0}],
    ids=["mask", "none", "dropout", "causal"])
def test_opcheck(changes):
    torch.library.opcheck(_ops.attention, operator_arguments(**changes))


def test_opcheck_of_the_weights():
    q, k, bias = doubles((1, 4, 3, 4), (1, 2, 5, 4), (1, 4, 3, 1))
    torch.library.opcheck(_ops.attention_weights, (q, k, "", [], bias, 0.4, True))
    assert torch.autograd.gradcheck(
        lambda q, k, b: _ops.attention_weights(q, k, "", [], b, 0.4, True), (q, k, bias))
    assert torch.autograd.gradcheck(
        lambda q, k, b: _ops.attention_weights(q, k, "", [], b, None, False), (q, k, bias))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = regard.torch.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        attended, _ = self.attention(x, x, x, need_weights=False)
        heads = attended.unflatten(-1, (4, 8)).transpose(1, 2)
        return ours(heads, heads, heads, is_causal=True)


def test_torch_compile_without_a_break():
    block = Block()
    compiled = torch.compile(copy.deepcopy(block), fullgraph=True, backend="aot_eager")
    for length in (5, 9, 13):  # the later ones with symbolic sizes
        x = torch.randn(2, length, 32)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected = block(mine)
        out = compiled(theirs)
        assert torch.allclose(out, expected, atol=1e-6)
        out.square().sum().backward()
        expected.square().sum().backward()
        assert torch.allclose(theirs.grad, mine.grad, atol=1e-5)


def test_torch_compile_draws_dropout():
    call = torch.compile(lambda q: ours(q, q, q, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    q = torch.randn(1, 2, 8, 8)
    torch.manual_seed(1)
    first = call(q)
    torch.manual_seed(1)
    assert torch.equal(call(q), first)


def test_torch_export():
    block = Block().eval()
    x = torch.randn(2, 6, 32)
    exported = torch.export.export(block, (x,))
    assert torch.equal(exported.module()(x), block(x))


def test_vmap_over_a_batch():
    q, k, v = (torch.randn(3, 2, 4, 6, 8, requires_grad=True) for _ in range(3))
    bias = torch.randn(6, 6, requires_grad=True)
    mapped = torch.func.vmap(lambda q, k, v: ours(q, k, v, bias))(q, k, v)
    expected = F.scaled_dot_product_attention(q, k, v, bias)
    assert torch.allclose(mapped, expected, atol=1e-6)
    leaves = (q, k, v, bias)
    for mine, other in zip(torch.autograd.grad(mapped.square().sum(), leaves),
                           torch.autograd.grad(expected.square().sum(), leaves)):
        assert torch.allclose(mine, other, atol=1e-4)
    keep = torch.rand(3, 6, 6) > 0.3
    mapped = torch.func.vmap(lambda q, m: ours(q, q, q, m))(q, keep)
    assert torch.allclose(mapped, ours(q, q, q, keep[:, None, None]), atol=1e-6)


def test_meta_tensors_have_shapes():
    q = torch.empty(2, 4, 7, 8, device="meta")
    assert ours(q, q, q).shape == q.shape


def test_views_whose_sign_is_still_to_be_changed_are_read_as_they_count():
    q, k, v, g = (torch.randn(1, 2, 5, 8) for _ in range(4))

    # The same numbers; the memory behind them has the other sign.
    column = torch.complex(torch.zeros(1, 2, 5, 1), -v[..., :1]).conj().imag
    assert column.is_neg() and torch.equal(column, v[..., :1])
    assert torch.equal(regard.attention(q, k, column), regard.attention(q, k, v[..., :1]))

    def late(x):
        return torch._neg_view(-x)

    expected = ours(q, k, v)
    assert torch.equal(ours(late(q), k, v), expected)
    assert torch.equal(ours(q, late(k), late(v)), expected)
    assert torch.equal(regard.attention(q, late(k), v), regard.attention(q, k, v))
    bias = torch.randn(5, 5)
    for wide in (bias, bias.double()):
        assert torch.equal(regard.attention(q, k, v, bias=late(wide)),
                           regard.attention(q, k, v, bias=bias))
    leaf = q.clone().requires_grad_()
    ours(leaf, late(k), v).backward(late(g))
    other = q.clone().requires_grad_()
    ours(other, k, v).backward(g)
    assert torch.equal(leaf.grad, other.grad)
    with pytest.raises(TypeError, match="out must be an array that can be written .* still to be"):
        regard.attention(q, k, v, out=late(torch.empty_like(q)))


@pytest.mark.parametrize("make", [lambda x: x.to("meta"), lambda x: x.to_sparse()], ids=["meta", "sparse"])
def test_tensors_without_plain_memory_are_refused_with_pytorchs_reason(make):
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(TypeError) as refused:
        regard.attention(q, make(q), q)
    text = str(refused.value)
    assert text.startswith("attention_forward: k must be an array in memory of the CPU; got torch.Tensor: ")
    assert "\n" not in text


def test_refusals():
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(ValueError, match="attn_mask and is_causal may not be given together"):
        ours(q, q, q, attn_mask=torch.ones(3, 3), is_causal=True)
    with pytest.raises(ValueError, match=r"dropout_p must be in \[0, 1\]; it is 1.5"):
        ours(q, q, q, dropout_p=1.5)
    with pytest.raises(TypeError, match="attn_mask must be bool or a float type; it is torch.int64"):
        ours(q, q, q, attn_mask=torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="query, key and value must have at least 2 dimensions"):
        ours(q, q[0, 0, 0], q)
    with pytest.raises(ValueError, match=r"attn_mask must broadcast to \[1, 2, 3, 3\]; it is \[1, 1, 1, 3, 3\]"):
        ours(q, q, q, attn_mask=torch.ones(1, 1, 1, 3, 3))
    with pytest.raises(ValueError, match="q and k must have the same last extent"):
        ours(q, q[..., :4], q)
    leaf = q.double().requires_grad_()
    with pytest.raises(ValueError, match="compute in bf16 is for float, bf16 and fp16"):
        regard.torch.attention(leaf, leaf, leaf, compute="bfloat16")


def test_bf16_compute_has_its_own_gradients():
    torch.manual_seed(4)
    leaves = [torch.randn(2, 3, 70, 40).to(torch.bfloat16).float().requires_grad_() for _ in range(3)]
    d_out = torch.randn(2, 3, 70, 40).to(torch.bfloat16).float()

    def gradients(**options):
        out = regard.torch.attention(*leaves, mask=regard.mask.causal(), **options)
        return (out.detach(), *torch.autograd.grad(out, leaves, d_out))

    for exact, rounded in zip(gradients(), gradients(compute="bfloat16")):
        error = (exact - rounded).abs().max() / exact.abs().max()
        assert 1e-5 < error < 2e-2


LAYERS = [{}, {"batch_first": True}, {"add_bias_kv": True}, {"add_zero_attn": True},
          {"kdim": 24, "vdim": 20}, {"bias": False}]
LAYER_MASKS = ["none", "bool", "float 3-D", "padding", "padding and bool", "float padding", "causal"]


def layer_case(options, mask, batched):
    lengths, batch = (5, 6), 3
    shape = lambda length, width: (
        ((batch, length, width) if options.get("batch_first") else (length, batch, width))
        if batched else (length, width))
    q_len, kv_len = lengths if mask != "causal" else (5, 5)
    query = torch.randn(shape(q_len, 32))
    key = torch.randn(shape(kv_len, options.get("kdim", 32)))
    value = torch.randn(shape(kv_len, options.get("vdim", 32)))
    entries = batch if batched else 1
    hidden = torch.rand(q_len, kv_len) > 0.6
    hidden[:, 0] = False
    padding = torch.rand(entries, kv_len) > 0.6
    padding[:, 0] = False
    padding = padding if batched else padding[0]
    keywords = {
        "none": {}, "bool": {"attn_mask": hidden},
        "float 3-D": {"attn_mask": torch.randn(entries * 4, q_len, kv_len)},
        "padding": {"key_padding_mask": padding},
        "padding and bool": {"key_padding_mask": padding, "attn_mask": hidden},
        "float padding": {"key_padding_mask": torch.zeros(padding.shape).masked_fill(
            padding, -torch.inf), "attn_mask": torch.randn(q_len, kv_len)},
        "causal": {"attn_mask": nn.Transformer.generate_square_subsequent_mask(q_len),
                   "is_causal": True},
    }[mask]
    return (query, key, value), keywords


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("mask", LAYER_MASKS)
@pytest.mark.parametrize("options", LAYERS, ids=[str(o) for o in LAYERS])
def test_the_layer_is_pytorchs(options, mask, batched):
    theirs = nn.MultiheadAttention(32, 4, **options)
    mine = regard.torch.MultiheadAttention(32, 4, **options)
    mine.load_state_dict(theirs.state_dict())
    arguments, keywords = layer_case(options, mask, batched)
    appended = "add_bias_kv" in options or "add_zero_attn" in options
    for average in (True, False):
        expected, weights = theirs(*arguments, average_attn_weights=average, **keywords)
        out, my_weights = mine(*arguments, average_attn_weights=average, **keywords)
        assert out.shape == expected.shape and torch.allclose(out, expected, atol=2e-6)
        assert my_weights.shape == weights.shape and torch.allclose(my_weights, weights, atol=2e-6)
    fast, none = mine(*arguments, need_weights=False, **keywords)
    assert none is None and torch.allclose(fast, out, atol=2e-6)
    with regard.torch.use():
        if not (mask == "causal" and appended):  # where PyTorch hides the appended keys
            routed, _ = theirs(*arguments, need_weights=False, **keywords)
            assert torch.allclose(routed, out, atol=2e-6)
    leaves = list(theirs.parameters())
    theirs_grad = torch.autograd.grad(expected.square().sum(), leaves, allow_unused=True)
    mine_grad = torch.autograd.grad(fast.square().sum(), list(mine.parameters()), allow_unused=True)
    for a, b in zip(mine_grad, theirs_grad):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_the_layers_weights_have_a_gradient():
    theirs, mine = nn.MultiheadAttention(16, 2), regard.torch.MultiheadAttention(16, 2)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 2, 16, requires_grad=True)
    gradients = [torch.autograd.grad(layer(x, x, x)[1].square().sum(), x)[0] for layer in (theirs, mine)]
    assert torch.allclose(*gradients, atol=1e-6)


def test_the_layer_refuses_masks_that_do_not_fit():
    layer, x = regard.torch.MultiheadAttention(16, 2), torch.randn(5, 3, 16)
    with pytest.raises(ValueError, match=r"attn_mask must be \[q_len, kv_len\]"):
        layer(x, x, x, attn_mask=torch.zeros(5, 4))
    with pytest.raises(ValueError, match=r"key_padding_mask must be \[batch, kv_len\]"):
        layer(x, x, x, key_padding_mask=torch.zeros(5, 3))
    with pytest.raises(ValueError, match="is_causal is a hint about attn_mask"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(TypeError, match="masks must be bool or float; got torch.int64"):
        layer(x, x, x, attn_mask=torch.zeros(5, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="query must have 16 columns"):
        layer(torch.randn(5, 3, 8), x, x)


def test_the_layer_can_be_copied_and_pickled():
    layer = regard.torch.MultiheadAttention(16, 2)
    x = torch.randn(5, 3, 16)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x, x, x)[0], layer(x, x, x)[0])
    assert layer.state_dict().keys() == nn.MultiheadAttention(16, 2).state_dict().keys()


@pytest.mark.parametrize("training", [False, True])
def test_use_routes_models_as_they_are(training, monkeypatch):
    calls = []
    for theirs, mine in list(_use._OURS.items()):
        def counted(*arguments, mine=mine, **keywords):
            calls.append(mine.__name__)
            return mine(*arguments, **keywords)
        monkeypatch.setitem(_use._OURS, theirs, counted)
    model = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True).train(training)
    source, target = torch.randn(2, 7, 32), torch.randn(2, 5, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.set_grad_enabled(training):
        expected = model(source, target, tgt_mask=mask)
        with regard.torch.use():
            out = model(source, target, tgt_mask=mask)
    assert calls == ["multi_head_attention_forward"] * 6
    assert torch.allclose(out, expected, atol=1e-5)
    calls.clear()
    with regard.torch.use(), regard.torch.use():
        F.scaled_dot_product_attention(source, source, source)
        nn.functional.scaled_dot_product_attention(query=source, key=source, value=source)
    F.scaled_dot_product_attention(source, source, source)
    assert calls == ["scaled_dot_product_attention"] * 2


def test_parameters_work():
    q = torch.randn(1, 2, 3, 8)
    expected = ours(q, q, q)
    with torch.no_grad():
        assert torch.equal(ours(nn.Parameter(q), q, q), expected)
    with torch.inference_mode():
        assert torch.equal(ours(q.clone(), q, q), expected)


def test_the_numpy_door_takes_tensors():
    q = torch.randn(1, 2, 3, 8)
    out = regard.attention(q, q, q, mask=regard.mask.keep(torch.ones(3, 3, dtype=torch.bool)))
    assert isinstance(out, torch.Tensor) and torch.equal(out, ours(q, q, q))
    half = q.bfloat16()
    assert regard.attention(half, half, half).dtype == torch.bfloat16
    leaf = q.clone().requires_grad_()
    with pytest.raises(TypeError, match="k requires a gradient, which would be lost here"):
        regard.attention(q, leaf, q)
    with pytest.raises(TypeError, match="attention_weights: q requires a gradient"):
        regard.attention_weights(leaf, q)
    with torch.no_grad():
        assert torch.equal(regard.attention(q, leaf, q), out)


@pytest.mark.parametrize("call, words", [
    (lambda x, t: regard.torch.attention(x, x, x), "attention: q must be a torch.Tensor; got ndarray"),
    (lambda x, t: regard.torch.attention(t, t, None), "attention: v must be a torch.Tensor; got NoneType"),
    (lambda x, t: regard.torch.scaled_dot_product_attention(t, x, t),
     "scaled_dot_product_attention: key must be a torch.Tensor; got ndarray"),
    (lambda x, t: regard.torch.varlen_attention(x[0], t[0], t[0], torch.tensor([0, 2])),
     "varlen_attention: query must be a torch.Tensor; got ndarray"),
    (lambda x, t: regard.torch.MultiheadAttention(8, 2)(x[0], t[0], t[0]),
     "MultiheadAttention: query must be a torch.Tensor; got ndarray"),
])
def test_what_is_no_tensor_is_refused_by_name(call, words):
    t = torch.zeros(1, 2, 3, 8)
    with pytest.raises(TypeError, match=words):
        call(t.numpy(), t)


@pytest.mark.parametrize("module", [_functional, _multihead, _use])
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0
