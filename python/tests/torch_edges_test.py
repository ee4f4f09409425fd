# SPDX-License-Identifier: Apache-2.0
"""regard.torch where calls are unusual: tensor subclasses, nothing to compute, gradients of many at once."""

import importlib
import re
import warnings

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import numpy as np
import pytest
import regard
import regard.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils.checkpoint import checkpoint

ours = regard.torch.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def plain(*arguments, **keywords):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **keywords)


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


# Causal biases of PyTorch: tensors of a subclass, whose memory holds nothing.


def lower_right(q_len, kv_len):
    with warnings.catch_warnings():  # of NaN in rows that see nothing; ours are zero
        warnings.simplefilter("ignore")
        return causal_lower_right(q_len, kv_len)


CAUSAL = {"upper left": (causal_upper_left, 0), "lower right": (lower_right, None)}


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("q_len, kv_len", [(5, 5), (3, 7), (7, 3)])
@pytest.mark.parametrize("way", ["directly", "use()", "compiled", "compiled use()"])
def test_causal_biases_are_causal_masks(kind, q_len, kv_len, way):
    make, diagonal = CAUSAL[kind]
    diagonal = kv_len - q_len if diagonal is None else diagonal
    keep = torch.ones(q_len, kv_len, dtype=torch.bool).tril(diagonal)
    q, k, v = (torch.randn(2, 4, n, 8, requires_grad=True) for n in (q_len, kv_len, kv_len))
    bias = make(q_len, kv_len)
    call = ours
    if "use()" in way:
        def call(q, k, v, attn_mask):
            with regard.torch.use():
                return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
    if "compiled" in way:
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    out, expected = call(q, k, v, attn_mask=bias), plain(q, k, v, attn_mask=keep)
    assert close(out, expected)
    for mine, right in zip(torch.autograd.grad(out.square().sum(), (q, k, v)),
                           torch.autograd.grad(expected.square().sum(), (q, k, v))):
        assert close(mine, right)
    with torch.no_grad():
        assert close(call(q, k, v, attn_mask=bias), expected)


def test_causal_biases_must_fit():
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match="attn_mask is a causal bias for 4 queries and 5 keys; there are 5 and 5"):
        ours(q, q, q, attn_mask=causal_upper_left(4, 5))
    with pytest.raises(ValueError, match="attn_mask and is_causal may not be given together"):
        ours(q, q, q, attn_mask=causal_upper_left(5, 5), is_causal=True)


# Other subclasses, and arrays of others whose memory is not what they mean.


class Marked(torch.Tensor):
    pass


def masked_tensor(x):
    with warnings.catch_warnings():  # that it is a prototype
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(x, torch.ones_like(x, dtype=torch.bool))


SUBCLASSES = {
    "Marked": lambda x: x.as_subclass(Marked),
    "MaskedTensor": masked_tensor,
    "NestedTensor": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
}
LAYER = regard.torch.MultiheadAttention(8, 2)
X = torch.zeros(2, 3, 8)
DOORS = {
    "scaled_dot_product_attention: query": lambda bad: ours(bad(X), X, X),
    "scaled_dot_product_attention: key": lambda bad: ours(X, bad(X), X),
    "scaled_dot_product_attention: value": lambda bad: ours(X, X, bad(X)),
    "scaled_dot_product_attention: attn_mask": lambda bad: ours(X, X, X, attn_mask=bad(torch.zeros(3, 3))),
    "attention: q": lambda bad: regard.torch.attention(bad(X[None]), X[None], X[None]),
    "attention: bias": lambda bad: regard.torch.attention(X[None], X[None], X[None], bias=bad(torch.zeros(3, 3))),
    "attention: sinks": lambda bad: regard.torch.attention(X[None], X[None], X[None], sinks=bad(torch.zeros(2))),
    "varlen_attention: key": lambda bad: regard.torch.varlen_attention(X, bad(X), X, torch.tensor([0, 2])),
    "MultiheadAttention: key": lambda bad: LAYER(X, bad(X), X),
    "MultiheadAttention: attn_mask": lambda bad: LAYER(X[:, 0], X[:, 0], X[:, 0], attn_mask=bad(torch.zeros(2, 2))),
    "MultiheadAttention: key_padding_mask": lambda bad: LAYER(X, X, X, key_padding_mask=bad(torch.zeros(3, 2))),
    "attention_forward: k": lambda bad: regard.attention(X, bad(X), X),
    "attention_forward: bias": lambda bad: regard.attention(X, X, X, bias=bad(torch.zeros(3, 3))),
    "attention_weights: k": lambda bad: regard.attention_weights(X, bad(X)),
    "mask::keep: pairs": lambda bad: regard.mask.keep(bad(torch.ones(3, 3) > 0)),
}


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("door", DOORS)
def test_subclasses_are_refused_by_name(door, kind):
    if door == "attention: sinks" and kind == "NestedTensor":
        return  # there is none of one dimension
    with pytest.raises(TypeError, match=f"^{door} must .*") as refused:
        DOORS[door](SUBCLASSES[kind])
    assert kind in str(refused.value)


def test_a_causal_bias_is_no_bias_elsewhere():
    bias = causal_upper_left(3, 3)
    for door in ("attention: bias", "attention_forward: bias", "mask::keep: pairs"):
        with pytest.raises(TypeError, match=f"^{door} must .*CausalBias"):
            DOORS[door](lambda _: bias)
    with pytest.raises(TypeError, match="^MultiheadAttention: attn_mask must .*CausalBias"):
        LAYER(X, X, X, attn_mask=causal_upper_left(2, 2))


def test_strided_nested_tensors_are_refused_and_left_to_pytorch_by_use():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 5, 8)])
        with pytest.raises(TypeError, match="query must not be a nested tensor"):
            ours(nested, nested, nested)
        with regard.torch.use():
            F.scaled_dot_product_attention(nested, nested, nested)


def test_parameters_buffers_and_fake_tensors_are_fine():
    q = torch.randn(1, 2, 3, 8)
    expected = plain(q, q, q)
    assert close(ours(nn.Parameter(q), nn.Buffer(q), q), expected)
    with torch.no_grad():
        assert close(ours(nn.Parameter(q), nn.Buffer(q), q, attn_mask=nn.Buffer(torch.zeros(3, 3))), expected)
        assert close(regard.attention(nn.Parameter(q), nn.Buffer(q), q), expected)
    from torch._subclasses import FakeTensorMode
    with FakeTensorMode() as mode:
        assert ours(mode.from_tensor(q), mode.from_tensor(q), mode.from_tensor(q)).shape == q.shape


def test_use_leaves_subclasses_to_pytorch():
    q = torch.randn(1, 2, 3, 8).as_subclass(Marked)
    with regard.torch.use():
        out = F.scaled_dot_product_attention(q, q, q)
    assert type(out) is Marked and close(out.as_subclass(torch.Tensor), plain(*[q.as_subclass(torch.Tensor)] * 3))


def test_masked_arrays_of_numpy_are_refused():
    x = np.zeros((1, 2, 3, 8), np.float32)
    with pytest.raises(TypeError, match="attention_forward: v must be an array; got numpy.ma.*MaskedArray"):
        regard.attention(x, x, np.ma.masked_array(x))


# Broadcast inputs and grouped heads, with and without a gradient: the small call takes another way.


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("shapes, keywords", [
    ([(2, 4, 3, 8), (2, 4, 5, 8), (2, 1, 5, 8)], {}),
    ([(2, 4, 3, 8), (2, 4, 5, 8), (1, 4, 5, 8)], {}),
    ([(1, 1, 3, 8), (1, 1, 5, 8), (2, 4, 5, 8)], {}),
    ([(2, 4, 3, 8), (2, 4, 5, 8), (4, 5, 8)], {}),
    ([(2, 4, 3, 8), (4, 5, 8), (5, 6)], {}),
    ([(6, 3, 8), (2, 5, 8), (2, 5, 8)], {"enable_gqa": True}),
    ([(2, 6, 3, 8), (2, 2, 5, 8), (2, 3, 5, 8)], {"enable_gqa": True}),
    ([(6, 3, 8), (1, 2, 5, 8), (2, 3, 5, 4)], {"enable_gqa": True}),
])
def test_inputs_broadcast_as_pytorchs(shapes, keywords, gradient):
    tensors = [torch.randn(shape, requires_grad=gradient) for shape in shapes]
    out, expected = ours(*tensors, **keywords), plain(*tensors, **keywords)
    assert close(out, expected)
    if gradient:
        for mine, right in zip(torch.autograd.grad(out.square().sum(), tensors),
                               torch.autograd.grad(expected.square().sum(), tensors)):
            assert close(mine, right)


def test_heads_that_do_not_fit_are_refused_by_name():
    def shaped(*shape):
        return torch.zeros(*shape, 3, 8)

    with pytest.raises(ValueError, match=re.escape("heads of query, key and value must be the same, or 1; "
                                                   "query is [1, 4, 3, 8], key is [1, 4, 3, 8], value is [1, 2, 3, 8]")):
        ours(shaped(1, 4), shaped(1, 4), shaped(1, 2))
    for bad in ((1, 4), (1, 0)):
        with pytest.raises(ValueError, match="with enable_gqa, the heads of key and of value must divide"):
            ours(shaped(1, 6), shaped(*bad), shaped(1, 2), enable_gqa=True)
    with pytest.raises(ValueError, match="with enable_gqa, query, key and value must have heads"):
        ours(shaped(), shaped(), shaped(), enable_gqa=True)


# Nothing to compute.


EMPTY = {
    "batch": [(0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 6)],
    "heads": [(2, 0, 3, 4), (2, 0, 5, 4), (2, 0, 5, 6)],
    "q_len": [(2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 6)],
    "kv_len": [(2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 0, 6)],
    "d_v": [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 0)],
    "d_k": [(2, 2, 3, 0), (2, 2, 5, 0), (2, 2, 5, 6)],
    "d_k and d_v": [(2, 2, 3, 0), (2, 2, 5, 0), (2, 2, 5, 0)],
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("empty", EMPTY)
def test_empty_tensors_give_what_pytorch_gives(empty, dtype, gradient):
    tensors = [torch.randn(shape).to(dtype).requires_grad_(gradient) for shape in EMPTY[empty]]
    q_len, kv_len = tensors[0].shape[2], tensors[1].shape[2]
    for keywords in ({}, {"is_causal": True}, {"attn_mask": torch.ones(q_len, kv_len, dtype=torch.bool)},
                     {"attn_mask": torch.zeros(1, kv_len, dtype=dtype)}):
        out, expected = ours(*tensors, **keywords), plain(*tensors, **keywords)
        assert out.dtype == dtype and out.shape == expected.shape
        assert torch.allclose(out, expected, atol=1e-2 if dtype == torch.bfloat16 else 1e-6)
        if gradient:
            for mine, right in zip(torch.autograd.grad(out.sum(), tensors),
                                   torch.autograd.grad(expected.sum(), tensors)):
                assert mine.shape == right.shape and torch.allclose(mine, right, atol=1e-2)


EMPTY_ARRAYS = {name: shapes for name, shapes in EMPTY.items() if "d_k" not in name}
EMPTY_ARRAYS["heads of q"] = [(2, 0, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6)]


@pytest.mark.parametrize("empty", EMPTY_ARRAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_empty_arrays_of_numpy(empty, dtype):
    q, k, v = (np.ones(shape, dtype) for shape in EMPTY_ARRAYS[empty])
    shape = (*q.shape[:3], v.shape[3])
    for keywords in ({}, {"mask": regard.mask.causal()},
                     {"mask": regard.mask.keep(np.ones((1, k.shape[2]), bool))},
                     {"mask": regard.mask.drop(np.zeros((q.shape[2], k.shape[2]), bool))},
                     {"bias": np.zeros((1, k.shape[2]), np.float32)}):
        out, lse = regard.attention(q, k, v, return_lse=True, **keywords)
        assert out.shape == shape and (out == 0).all() and lse.shape == shape[:3]
        gradients = regard.attention_backward(np.ones_like(out), q, k, v, out, lse, **keywords)
        for gradient, given in zip(gradients, (q, k, v)):
            assert gradient.shape == given.shape and (gradient == 0).all()
    weights = regard.attention_weights(q, k)
    assert weights.shape == (*q.shape[:3], k.shape[2])
    # PyTorch's tensors of such arrays.
    if q.shape[1] == k.shape[1]:
        assert ours(*map(torch.from_numpy, (q, k, v))).shape == shape


def test_a_layer_on_nothing():
    theirs, mine = nn.MultiheadAttention(8, 2), regard.torch.MultiheadAttention(8, 2)
    mine.load_state_dict(theirs.state_dict())
    for shape in ((0, 2, 8), (3, 0, 8)):
        x = torch.zeros(shape, requires_grad=True)
        out, _ = mine(x, x, x, need_weights=False)
        assert out.shape == shape
        out.sum().backward()
        assert x.grad.shape == shape


# Gradients of many at once.


def doubles(*shapes):
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_gradients_of_many_at_once():
    tensors = doubles((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (3, 5))
    d_outs = torch.randn(6, 1, 2, 3, 3, dtype=torch.float64)
    expected = torch.autograd.grad(plain(*tensors), tensors, d_outs, is_grads_batched=True)
    out = ours(*tensors)
    for mine, right in zip(torch.autograd.grad(out, tensors, d_outs, is_grads_batched=True), expected):
        assert close(mine, right)
    out = ours(*tensors)
    mapped = torch.func.vmap(lambda d: torch.autograd.grad(out, tensors, d, retain_graph=True))(d_outs)
    for mine, right in zip(mapped, expected):
        assert close(mine, right)


@pytest.mark.parametrize("call", [
    lambda q, k, v, b: ours(q, k, v, b),
    lambda q, k, v, b: regard.torch.attention(q, k, v, bias=b, softcap=2.0, dropout=0.3, seed=5, return_lse=True),
    lambda q, k, v, b: regard.torch.attention(
        q, k, v, bias=b, sinks=q[0, :, 0, 0], mask=regard.mask.lengths([4])),
], ids=["plain", "dropout and lse", "sinks"])
def test_gradcheck_with_batched_gradients(call):
    tensors = doubles((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3), (1, 1, 3, 5))
    assert torch.autograd.gradcheck(call, tensors, check_batched_grad=True)


def test_gradients_of_many_at_once_through_a_layer():
    layer = regard.torch.MultiheadAttention(8, 2, dtype=torch.float64)
    x = torch.randn(5, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, x, x, need_weights=False)[0], x, check_batched_grad=True)


def test_jacobians():
    q, k, v = doubles((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3))
    expected = torch.autograd.functional.jacobian(plain, (q, k, v))
    for mine, right in zip(torch.autograd.functional.jacobian(ours, (q, k, v), vectorize=True), expected):
        assert close(mine, right)


def test_vmap_where_entries_must_stay_apart():
    q, k, v = (torch.randn(3, 2, 4, 6, 8) for _ in range(3))

    def padded(q, k, v):
        return regard.torch.attention(q, k, v, mask=regard.mask.lengths([4, 6]))

    mapped = torch.func.vmap(padded)(q, k, v)
    assert torch.equal(mapped, torch.stack([padded(*each) for each in zip(q, k, v)]))
    sinks = torch.randn(3, 4)
    mapped = torch.func.vmap(lambda q, s: regard.torch.attention(q, q, q, sinks=s))(q, sinks)
    assert torch.equal(mapped, torch.stack([regard.torch.attention(a, a, a, sinks=s) for a, s in zip(q, sinks)]))
    ones = torch.ones_like(v)
    drawn = torch.func.vmap(lambda q, v: ours(q, q, v, dropout_p=0.5), randomness="different")(q, ones)
    same = torch.func.vmap(lambda v: ours(q[0], q[0], v, dropout_p=0.5), randomness="same")(ones)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(same[0], same[1])


def test_second_derivatives_are_refused():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(ours(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        gradient.sum().backward()
    layer, x = regard.torch.MultiheadAttention(8, 2), torch.randn(5, 3, 8, requires_grad=True)
    for loss in (torch.Tensor.sum, lambda out: out.square().sum()):
        for leaf in (x, layer.in_proj_weight, layer.out_proj.weight):
            out, _ = layer(x, x, x, need_weights=False)
            (gradient,) = torch.autograd.grad(loss(out), leaf, create_graph=True)
            with pytest.raises(RuntimeError, match="regard.torch: second derivatives are not supported"):
                gradient.square().sum().backward()


def test_forward_mode_is_refused():
    q, k, v, tangent = (torch.randn(2, 2, 3, 8) for _ in range(4))
    expected = ours(q, k, v)
    layer = regard.torch.MultiheadAttention(8, 2)

    def mapped(q):
        return torch.func.vmap(lambda q, k, v: ours(q[None], k[None], v[None]))(q, k, v)

    def itself(q):
        x = q[0]
        return layer(x, x, x)[0]

    def routed(q):
        with regard.torch.use():
            return F.scaled_dot_product_attention(q, k, v)

    calls = [lambda q: ours(q, k, v), lambda q: ours(k, k, v, q[0, 0, :, :3]), routed, mapped, itself,
             lambda q: regard.torch.attention(k, q, v, softcap=2.0),
             lambda q: layer(q[0], k[0], v[0], need_weights=False)[0]]
    for call in calls:
        with pytest.raises(NotImplementedError, match="regard.torch: derivatives in forward mode"):
            torch.func.jvp(call, (q,), (tangent,))
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="derivatives in forward mode"):
            call(forward_ad.make_dual(q, tangent))
    leaf = q.clone().requires_grad_()
    out = ours(leaf, k, v)
    with forward_ad.dual_level():
        assert torch.equal(ours(q, k, v), expected)  # what has no tangent is computed
        with pytest.raises(NotImplementedError, match="derivatives in forward mode"):
            torch.autograd.grad(out, leaf, forward_ad.make_dual(torch.ones_like(out), tangent))
        with pytest.raises(TypeError, match="attention_forward: k has a tangent, which would be lost here"):
            regard.attention(q, forward_ad.make_dual(k, tangent), v)


def test_what_is_changed_between_forward_and_backward_is_noticed():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    mask = torch.ones(3, 3, dtype=torch.bool)
    out = ours(q, q, q, attn_mask=mask)
    mask[0] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# Autocast, checkpoints, default devices.


def test_all_of_attention_follows_autocast():
    q, offsets = torch.randn(1, 2, 5, 8), torch.tensor([0, 2, 5])
    packed = q[0].transpose(0, 1)
    half = q.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(regard.torch.attention(q, half, q), ours(half, half, half))
        out = regard.torch.varlen_attention(packed, packed.bfloat16(), packed, offsets)
        assert torch.equal(out, regard.torch.varlen_attention(*[packed.bfloat16()] * 3, offsets))


@pytest.mark.parametrize("mask", [None, torch.ones(4, 4, dtype=torch.bool).tril()], ids=["none", "bool"])
def test_checkpoints_and_autocast_go_together(mask):
    x = torch.randn(1, 2, 4, 8, requires_grad=True)

    def call(x):
        return ours(x, x, x, mask)

    gradients = []
    with torch.autocast("cpu", torch.bfloat16):
        for out in (call(x), checkpoint(call, x, use_reentrant=False)):
            gradients += torch.autograd.grad(out.float().square().sum(), x)
    assert torch.equal(*gradients)


def test_a_default_device_is_not_ours():
    q, x = torch.randn(1, 2, 5, 8, requires_grad=True), torch.randn(5, 3, 16, requires_grad=True)
    layer = regard.torch.MultiheadAttention(16, 2, dropout=0.5)
    mask = regard.mask.lengths([4])
    with torch.device("meta"):
        for out in (ours(q, q, q, dropout_p=0.5), layer(x, x, x, need_weights=False)[0], layer(x, x, x)[0],
                    regard.torch.attention(q, q, q, mask=mask, dropout=0.5, seed=3),
                    regard.torch.attention(q, q, q, sequences=[0, 2, 5])):
            out.sum().backward()
            assert out.device.type == "cpu"
        assert regard.attention(q.detach(), q.detach(), q.detach()).device.type == "cpu"
    assert q.grad.isfinite().all() and x.grad.isfinite().all()


def test_offsets_may_be_a_list():
    q, k, v = doubles((1, 2, 12, 4), (1, 2, 12, 4), (1, 2, 12, 3))
    outs = [regard.torch.attention(q, k, v, sequences=sequences)
            for sequences in ([0, 5, 12], ([0, 5, 12], [0, 5, 12]), torch.tensor([0, 5, 12]))]
    first, *others = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in outs]
    for gradients in others:
        assert all(torch.equal(a, b) for a, b in zip(first, gradients))


def test_an_older_pytorch_is_refused(monkeypatch):
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    with pytest.raises(ImportError, match="regard.torch: PyTorch must be 2.10 or newer; it is "):
        importlib.reload(regard.torch)


# Doors that return no graph.


def door_call(name, leaf):
    """A call of the NumPy door with one argument that leaf(*shape) makes."""
    q = torch.rand(1, 2, 3, 8)

    def of(kind, *shape):
        return leaf(*shape) if name.endswith(": " + kind) else torch.rand(*shape)

    door = name.split(":")[0]
    if door == "rms_norm":
        return regard.rms_norm(of("x", 2, 8), of("weight", 8))
    if door == "rotary_embedding":
        return regard.rotary_embedding(of("x", 1, 2, 3, 8), of("cos", 3, 4), of("sin", 3, 4))
    if door == "MultiHeadAttention":
        return regard.MultiHeadAttention(8, 2)(of("query", 2, 3, 8), of("key", 2, 3, 8), of("value", 2, 3, 8),
                                               bias=of("bias", 3, 3), alibi=of("alibi", 2))
    cache = regard.KVCache(2, 8)
    if door == "KVCache":
        return cache.append(of("k", 1, 2, 3, 8), of("v", 1, 2, 3, 8))
    options = {"bias": of("bias", 3, 3), "sinks": of("sinks", 2), "alibi": of("alibi", 2),
               "head_scales": of("head_scales", 2)}
    if door == "attention_decode":
        cache.append(q, q)
        return regard.attention_decode(of("q", 1, 2, 3, 8), cache, **options)
    if door == "attention_weights":
        return regard.attention_weights(q, q, **options)
    return {"attention_forward": regard.attention,
            "attention_with_weights": regard.attention_with_weights}[door](q, q, q, **options)


SCORE_ARRAYS = ("bias", "sinks", "alibi", "head_scales")
CUT_OFF = [f"{door}: {name}" for door, names in {
    "attention_forward": SCORE_ARRAYS, "attention_weights": SCORE_ARRAYS, "attention_with_weights": SCORE_ARRAYS,
    "attention_decode": ("q", *SCORE_ARRAYS), "rms_norm": ("x", "weight"), "rotary_embedding": ("x", "cos", "sin"),
    "MultiHeadAttention": ("query", "key", "value", "bias", "alibi"), "KVCache::append": ("k", "v")}.items()
    for name in names]


@pytest.mark.parametrize("name", CUT_OFF)
def test_gradients_are_not_lost_without_a_word(name):
    def leaf(*shape):
        return torch.rand(*shape, requires_grad=True)

    with pytest.raises(TypeError, match=f"^{name} requires a gradient, which would be lost here"):
        door_call(name, leaf)
    with torch.no_grad():
        door_call(name, leaf)


# The layer.


# The products of so few rows in float32 are ours.
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "padding", "dropout"])
@pytest.mark.parametrize("frozen", ["nothing", "in_proj", "all but x", "x"])
def test_the_layer_on_one_input_has_pytorchs_gradients(batch_first, mask, frozen, dtype, tolerance):
    theirs = nn.MultiheadAttention(16, 4, batch_first=batch_first, dtype=dtype,
                                   dropout=0.5 if mask == "dropout" else 0.0)
    mine = regard.torch.MultiheadAttention(16, 4, batch_first=batch_first, dtype=dtype,
                                           dropout=0.5 if mask == "dropout" else 0.0)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn((3, 5, 16) if batch_first else (5, 3, 16), dtype=dtype)
    keywords = {"bool": {"attn_mask": torch.rand(5, 5) > 0.7}, "float": {"attn_mask": torch.randn(5, 5).to(dtype)},
                "padding": {"key_padding_mask": torch.rand(3, 5) > 0.7}}.get(mask, {})
    for value in keywords.values():
        value[..., 0] = 0
    for layer in (theirs, mine):
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(frozen in ("nothing", "x") or (frozen == "in_proj" and "in_proj" not in name))
    gradients = []
    for layer in (theirs, mine):
        leaf = x.clone().requires_grad_(frozen != "x")
        if mask == "dropout":
            if layer is theirs:
                continue
            torch.manual_seed(3)
            # One pattern, whatever way is taken: with the weights it is another one.
            out, weights = layer(leaf, leaf, leaf, need_weights=True)
            assert weights.shape == (3, 5, 5)
            other = torch.autograd.grad(out.square().sum(), [t for t in (leaf, *layer.parameters()) if t.requires_grad])
            torch.manual_seed(3)
        else:
            other = None
        out, _ = layer(leaf, leaf, leaf, need_weights=False, **keywords)
        leaves = [t for t in (leaf, *layer.parameters()) if t.requires_grad]
        gradients.append(torch.autograd.grad(out.square().sum(), leaves))
        if other is not None:
            gradients.append(other)
    for a, b in zip(*gradients, strict=True):
        assert a.shape == b.shape and torch.allclose(a, b, atol=tolerance)


@pytest.mark.parametrize("length", [5, 20])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
def test_the_layer_takes_inputs_whose_rows_are_columns_in_memory(length, batched, gradient):
    """What a convolution gives, as a sequence."""
    theirs = nn.MultiheadAttention(16, 2, batch_first=True)
    mine = regard.torch.MultiheadAttention(16, 2, batch_first=True)
    mine.load_state_dict(theirs.state_dict())
    channels = torch.randn(1, 16, length) if batched else torch.randn(16, length)
    x = channels.mT.requires_grad_(gradient)
    with torch.set_grad_enabled(gradient):
        expected = theirs(x, x, x)[0]
        with regard.torch.use():
            routed = theirs(x, x, x, need_weights=False)[0]
        for out in (mine(x, x, x)[0], mine(x, x, x, need_weights=False)[0], routed):
            assert close(out, expected)
            if gradient:
                leaves = [x, *theirs.parameters()] if out is routed else [x, *mine.parameters()]
                for a, b in zip(torch.autograd.grad(out.square().sum(), leaves),
                                torch.autograd.grad(expected.square().sum(), [x, *theirs.parameters()],
                                                    retain_graph=True)):
                    assert torch.allclose(a, b, atol=1e-4)


def test_dropout_rates_that_make_no_sense_are_refused():
    x = torch.randn(5, 3, 16)
    for rate in (-0.5, 1.5):
        layer = regard.torch.MultiheadAttention(16, 2, dropout=rate)
        with pytest.raises(ValueError, match=rf"MultiheadAttention: dropout_p must be in \[0, 1\]; it is {rate}"):
            layer(x, x, x, need_weights=False)
        layer.eval()(x, x, x)


def test_static_keys_and_values_are_pytorchs():
    layer = nn.MultiheadAttention(16, 4)
    x = torch.randn(5, 3, 16)
    static = torch.randn(12, 7, 4)
    arguments = (x, x, x, 16, 4, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
                 layer.out_proj.weight, layer.out_proj.bias)
    expected, weights = F.multi_head_attention_forward(*arguments, static_k=static, static_v=static)
    with regard.torch.use():
        routed = F.multi_head_attention_forward(*arguments, static_k=static, static_v=static)
    direct = regard.torch.multi_head_attention_forward(*arguments, static_k=static, static_v=static)
    for out, my_weights in (routed, direct):
        assert torch.equal(out, expected) and torch.equal(my_weights, weights)


def test_torch_jit_script_calls_the_layer():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = regard.torch.MultiheadAttention(16, 4)

        def forward(self, x: torch.Tensor):
            out, weights = self.attention(x, x, x)
            return out + x

    block, x = Block(), torch.randn(5, 3, 16)
    with warnings.catch_warnings():  # that it is deprecated
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(block)
        assert torch.equal(scripted(x), block(x))
        alone = torch.jit.script(block.attention)
        assert torch.equal(alone(x, x, x)[0], block.attention(x, x, x)[0])
        with pytest.raises(RuntimeError, match="Could not export Python function call"):
            scripted.save("/dev/null")
