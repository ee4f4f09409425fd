# SPDX-License-Identifier: Apache-2.0
"""regard.attention and its company on NumPy arrays."""

import doctest
import copy
import inspect
import pickle
import pydoc
import sys

import support

if __name__ == "__main__":
    support.main(__file__)

import ml_dtypes
import numpy as np
import pytest
import regard
import regard._core
from support import max_error, plain_attention

SHAPES = {  # batch, heads, kv_heads, q_len, kv_len, d_k, d_v
    "one": (1, 1, 1, 1, 1, 8, 8),
    "odd": (2, 3, 3, 59, 97, 31, 17),
    "grouped": (2, 6, 2, 33, 65, 64, 64),
    "more queries than keys": (1, 2, 1, 70, 7, 16, 24),
}


def draw(shape, dtype=np.float32, seed=0):
    batch, heads, kv_heads, q_len, kv_len, d_k, d_v = shape
    rng = np.random.default_rng(seed)
    make = lambda *extents: rng.standard_normal(extents).astype(dtype)
    return (make(batch, heads, q_len, d_k), make(batch, kv_heads, kv_len, d_k),
            make(batch, kv_heads, kv_len, d_v))


def causal_keep(q_len, kv_len):
    return np.arange(kv_len) <= np.arange(q_len)[:, None] + kv_len - q_len


def check_exact(out, arguments, keywords):
    """At most twice as far from the truth as the definition in float."""
    exact = plain_attention(*(a.astype(np.float64) for a in arguments), **keywords)
    plain = plain_attention(*arguments, **keywords)
    assert max_error(out, exact) <= 2 * max_error(plain, exact) + 1e-6


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_as_exact_as_the_definition(name, causal):
    q, k, v = draw(SHAPES[name])
    keep = causal_keep(q.shape[2], k.shape[2]) if causal else None
    out = regard.attention(q, k, v, mask=regard.mask.causal() if causal else None)
    assert out.dtype == np.float32 and out.flags.c_contiguous
    check_exact(out, (q, k, v), {"keep": keep})


@pytest.mark.parametrize("options", [
    {"scale": 0.3}, {"softcap": 2.0}, {"sinks": True}, {"bias": True},
    {"scale": 0.3, "softcap": 2.0, "sinks": True, "bias": True}])
def test_options_mean_what_the_definition_says(options):
    q, k, v = draw(SHAPES["odd"])
    rng = np.random.default_rng(1)
    if "sinks" in options:
        options = {**options, "sinks": rng.standard_normal(3).astype(np.float32)}
    if "bias" in options:
        options = {**options, "bias": rng.standard_normal((3, 59, 97)).astype(np.float32)}
    check_exact(regard.attention(q, k, v, **options), (q, k, v), options)


def test_double_is_computed_in_double():
    q, k, v = draw(SHAPES["odd"], np.float64)
    out = regard.attention(q, k, v)
    assert out.dtype == np.float64
    assert max_error(out, plain_attention(q, k, v)) < 1e-14


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_stored_as_such_and_computed_in_float(dtype):
    q, k, v = draw(SHAPES["grouped"], dtype)
    out = regard.attention(q, k, v)
    assert out.dtype == dtype
    exact = plain_attention(*(a.astype(np.float64) for a in (q, k, v)))
    rounding = 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-11
    assert max_error(out.astype(np.float64), exact) <= rounding * np.abs(exact).max() + 1e-6


def test_layouts_and_missing_batch_give_the_same_bits():
    q, k, v = draw(SHAPES["grouped"])
    expected = regard.attention(q, k, v)
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v)]
    out = regard.attention(*swapped, layout="blhd")
    assert out.shape == (2, 33, 6, 64)
    np.testing.assert_array_equal(out.swapaxes(1, 2), expected)
    np.testing.assert_array_equal(regard.attention(*[a.swapaxes(1, 2) for a in swapped]), expected)
    np.testing.assert_array_equal(regard.attention(q[0], k[0], v[0]), expected[0])
    packed = np.concatenate([q, q, q], -1)  # rows of a packed qkv
    np.testing.assert_array_equal(regard.attention(packed[..., 64:128], k, v), expected)


def test_any_strides_are_read():
    q, k, v = draw(SHAPES["odd"])
    expected = regard.attention(q, k, v)
    fortran = [np.asfortranarray(a) for a in (q, k, v)]
    np.testing.assert_array_equal(regard.attention(*fortran), expected)
    np.testing.assert_array_equal(regard.attention(q[:, :, ::-1], k, v), expected[:, :, ::-1])


def test_nothing_is_copied():
    """Inputs are read and out is written where they are."""
    q, k, v = draw(SHAPES["odd"])
    q.setflags(write=False)
    out = np.empty((2, 3, 59, 17), np.float32)
    result = regard.attention(q, k, v, out=out)
    assert result is out
    np.testing.assert_array_equal(out, regard.attention(q, k, v))
    wide = np.full((2, 3, 59, 40), 7, np.float32)
    regard.attention(q, k, v, out=wide[..., :17])
    np.testing.assert_array_equal(wide[..., :17], out)
    assert (wide[..., 17:] == 7).all()


def test_results_do_not_depend_on_threads():
    q, k, v = draw((2, 4, 4, 130, 300, 32, 32))
    expected = regard.attention(q, k, v, threads=1)
    for threads in (2, 3, None):
        np.testing.assert_array_equal(regard.attention(q, k, v, threads=threads), expected)


def test_log_sum_exp_is_that_of_the_scores():
    q, k, v = draw(SHAPES["odd"])
    _, lse = regard.attention(q, k, v, return_lse=True)
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k) / np.sqrt(31)
    np.testing.assert_allclose(lse, np.log(np.exp(scores).sum(-1)), rtol=1e-6)


def test_rows_that_see_no_key_are_zero():
    q, k, v = draw(SHAPES["odd"])
    out, lse = regard.attention(q, k, v, mask=regard.mask.lengths([0, 97]), return_lse=True)
    assert (out[0] == 0).all() and (lse[0] == -np.inf).all() and (out[1] != 0).any()


def test_masks_show_what_they_say():
    q, k, v = draw((2, 2, 2, 9, 12, 8, 8))
    i, j = np.arange(9)[:, None], np.arange(12)
    pairs = np.random.default_rng(2).random((2, 1, 9, 12)) > 0.4
    ids = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])
    key_ids = np.repeat([0, 1, 2], 4)
    masks = regard.mask
    for mask, keep in [
        (masks.causal(), j <= i + 3),
        (masks.causal("top_left"), j <= i),
        (masks.causal(1), j <= i + 1),
        (masks.window(2, 1), (j >= i + 3 - 2) & (j <= i + 3 + 1)),
        (masks.window(None, 0, "top_left"), j <= i),
        (masks.prefix(4), (j <= i + 3) | (j < 4)),
        (masks.lengths([5, 11]), (j < np.array([5, 11])[:, None])[:, None, None]),
        (masks.documents(ids, key_ids), ids[:, None] == key_ids),
        (masks.keep(pairs), pairs),
        (masks.drop(pairs[1, 0]), ~pairs[1, 0]),
        (masks.causal() & masks.keep(pairs), (j <= i + 3) & pairs),
        (masks.keep(np.broadcast_to(pairs[..., :1], pairs.shape)), pairs[..., :1]),
        (regard.Mask(), j < 12),
    ]:
        check_exact(regard.attention(q, k, v, mask=mask), (q, k, v), {"keep": keep})
        again = pickle.loads(pickle.dumps(mask))
        assert repr(again) == repr(mask) == repr(copy.deepcopy(mask))
        np.testing.assert_array_equal(regard.attention(q, k, v, mask=again),
                                      regard.attention(q, k, v, mask=mask))


def test_masks_keep_what_they_borrow_alive():
    q, k, v = draw((1, 1, 1, 64, 64, 8, 8))
    expected = regard.attention(q, k, v, mask=regard.mask.causal())
    mask = regard.mask.keep(np.tril(np.ones((64, 64), bool)))
    garbage = [np.zeros((64, 64), bool) for _ in range(100)]
    np.testing.assert_array_equal(regard.attention(q, k, v, mask=mask & regard.Mask()), expected)
    del garbage


def test_masks_print_as_they_are_written():
    masks = regard.mask
    assert repr(masks.causal() & masks.window(3, None)) == "causal() & window(3)"
    assert repr(masks.prefix(4, "top_left")) == "prefix(4, 'top_left')"
    assert repr(masks.lengths([5, 11])) == "lengths(<array of (2,)>)"
    assert repr(regard.Mask()) == "Mask()"


def test_packed_sequences_are_entries_of_their_own():
    q, k, v = draw((1, 2, 2, 12, 12, 8, 8))
    out = regard.attention(q, k, v, sequences=[0, 5, 12], mask=regard.mask.causal())
    first = regard.attention(q[:, :, :5], k[:, :, :5], v[:, :, :5], mask=regard.mask.causal())
    np.testing.assert_array_equal(out[:, :, :5], first)
    pair = regard.attention(q, k, v, sequences=([0, 5, 12], [0, 2, 12]))
    np.testing.assert_array_equal(pair[:, :, 5:],
                                  regard.attention(q[:, :, 5:], k[:, :, 2:], v[:, :, 2:]))


def test_dropout_comes_again_with_its_seed_and_keeps_the_mean():
    q, k, v = draw((1, 4, 4, 256, 256, 16, 16))
    v[...] = 1
    out = regard.attention(q, k, v, dropout=0.25, seed=3)
    np.testing.assert_array_equal(out, regard.attention(q, k, v, dropout=0.25, seed=3))
    assert (out != regard.attention(q, k, v, dropout=0.25, seed=4)).any()
    assert abs(out.mean() - 1) < 0.02


def test_gradients_are_those_of_central_differences():
    q, k, v = draw((1, 2, 1, 3, 4, 5, 3), np.float64)
    rng = np.random.default_rng(5)
    values = {"q": q, "k": k, "v": v, "bias": rng.standard_normal((1, 2, 3, 4)),
              "alibi": rng.random(2), "sinks": rng.standard_normal(2),
              "head_scales": rng.random(2) + 0.5}
    d_out = rng.standard_normal((1, 2, 3, 3))
    options = {"mask": regard.mask.causal(), "softcap": 3.0, "dropout": 0.2, "seed": 11}

    def loss():
        rest = {name: values[name] for name in ("bias", "alibi", "sinks", "head_scales")}
        return regard.attention(q, k, v, return_lse=True, **rest, **options)

    out, lse = loss()
    rest = {name: values[name] for name in ("bias", "alibi", "sinks", "head_scales")}
    gradients = regard.attention_backward(d_out, q, k, v, out, lse, wanted=tuple(values), **rest,
                                          **options)
    for name, value in values.items():
        given = getattr(gradients, name)
        assert given.shape == value.shape
        flat = value.reshape(-1)
        for index in range(flat.size):
            before = flat[index]
            flat[index] = before + 1e-5
            above = (loss()[0] * d_out).sum()
            flat[index] = before - 1e-5
            below = (loss()[0] * d_out).sum()
            flat[index] = before
            assert abs((above - below) / 2e-5 - given.reshape(-1)[index]) < 1e-7, (name, index)


def test_gradients_that_are_not_wanted_are_none():
    q, k, v = draw(SHAPES["odd"])
    out, lse = regard.attention(q, k, v, return_lse=True)
    gradients = regard.attention_backward(out, q, k, v, out, lse, wanted=["k"])
    assert gradients.k.shape == k.shape and gradients.q is None and gradients.bias is None


def test_weights_and_their_parts():
    q, k, v = draw((2, 3, 3, 7, 9, 8, 9))
    weights = regard.attention_weights(q, k)
    # With the unit matrix for values, attention gives the weights.
    eye = np.broadcast_to(np.eye(9, dtype=np.float32), (2, 3, 9, 9)).copy()
    assert max_error(weights, plain_attention(q, k, eye)) < 1e-6
    parts = regard.attention_weights(q, k, top_k=2, received="sum", entropy=True)
    np.testing.assert_array_equal(parts.top_keys, np.argsort(-weights, -1, kind="stable")[..., :2])
    np.testing.assert_array_equal(parts.top_weights, -np.sort(-weights, -1)[..., :2])
    np.testing.assert_allclose(parts.received, weights.sum(2), rtol=1e-5)
    np.testing.assert_allclose(parts.entropy, -(weights * np.log(weights)).sum(-1), rtol=1e-4)
    np.testing.assert_array_equal(regard.attention_weights(q, k, rows=[5, 1]), weights[:, :, [5, 1]])
    np.testing.assert_allclose(regard.attention_weights(q, k, heads="mean"),
                               weights.mean(1, keepdims=True), rtol=1e-5)
    mean = regard.attention_weights(q[0], k[0], received="mean").received
    np.testing.assert_allclose(mean, weights[0].mean(1), rtol=1e-5)


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
def test_attention_and_its_weights_in_one_pass(layout):
    q, k, v = draw((2, 4, 2, 7, 9, 8, 5))
    if layout == "blhd":
        q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    options = {"layout": layout, "mask": regard.mask.causal(), "softcap": 3.0}
    wanted = regard.attention(q, k, v, **options)
    out, weights = regard.attention_with_weights(q, k, v, **options)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(weights, regard.attention_weights(q, k, **options))
    place = np.empty_like(wanted)
    out, parts = regard.attention_with_weights(q, k, v, out=place, entropy=True, heads="mean", **options)
    assert out is place
    np.testing.assert_array_equal(out, wanted)
    alone = regard.attention_weights(q, k, entropy=True, heads="mean", **options)
    np.testing.assert_array_equal(parts.entropy, alone.entropy)
    single, _ = regard.attention_with_weights(q[0], k[0], v[0], **options)
    np.testing.assert_array_equal(single, wanted[0])


def test_explain_counts_the_pairs():
    q, k, v = draw((2, 3, 3, 100, 100, 16, 16))
    plan = regard.explain(q, k, v, mask=regard.mask.causal(), threads=1)
    assert plan.pairs == 2 * 3 * 100 * 100
    assert plan.visible_pairs == 2 * 3 * 100 * 101 // 2
    assert plan.threads == 1 and "pairs" in repr(plan)


def test_the_layer_computes_in_bf16_on_request():
    layer = regard.MultiHeadAttention(64, 4, seed=3)
    x = np.random.default_rng(5).normal(size=(2, 20, 64)).astype(np.float32)
    exact = layer(x, mask=regard.mask.causal())
    rounded = layer(x, mask=regard.mask.causal(), compute="bfloat16")
    error = np.abs(rounded - exact).max() / np.abs(exact).max()
    assert 1e-5 < error < 2e-2
    with pytest.raises(ValueError, match="compute in bf16 is for inference; a context for backward came"):
        layer(x, compute="bfloat16", keep_context=True)


def test_the_layer_computes_its_definition_and_its_gradients():
    layer = regard.MultiHeadAttention(8, 2, seed=1)
    state = {name: value.astype(np.float64) for name, value in layer.state_dict().items()}
    x = np.random.default_rng(3).standard_normal((2, 5, 8)).astype(np.float32)
    out, weights, context = layer(x, mask=regard.mask.causal(), weights="each", keep_context=True)
    projected = x @ state["in_proj_weight"].T + state["in_proj_bias"]
    q, k, v = (part.reshape(2, 5, 2, 4).swapaxes(1, 2) for part in np.split(projected, 3, -1))
    attended = plain_attention(q, k, v, keep=causal_keep(5, 5))
    expected = (attended.swapaxes(1, 2).reshape(2, 5, 8) @ state["out_proj.weight"].T
                + state["out_proj.bias"])
    assert max_error(out, expected) < 1e-6
    assert weights.shape == (2, 2, 5, 5)
    parameters, (d_x,) = layer.backward(context, np.ones_like(out))
    assert sorted(parameters) == sorted(state) and d_x.shape == x.shape
    np.testing.assert_allclose(parameters["out_proj.bias"], np.full(8, 10), rtol=1e-6)
    other = regard.MultiHeadAttention(8, 2, state_dict=layer.state_dict())
    np.testing.assert_array_equal(other(x, mask=regard.mask.causal()), out)
    with pytest.raises(ValueError, match="the parameter in_proj_.* is missing"):
        layer.load_state_dict({})


def test_decoding_gives_the_bits_of_attention():
    q, k, v = draw((2, 4, 2, 20, 20, 8, 8))
    expected = regard.attention(q, k, v, mask=regard.mask.causal())
    for options in ({}, {"kind": "paged", "pages": 8, "page_tokens": 16}):
        cache = regard.KVCache(2, 8, sequences=2, **options)
        cache.append(k[:, :, :12], v[:, :, :12])
        for token in range(12, 20):
            now = slice(token, token + 1)
            cache.append(k[:, :, now], v[:, :, now])
            out = regard.attention_decode(q[:, :, now], cache)
            np.testing.assert_array_equal(out, expected[:, :, now])
        assert cache.length(1) == 20 and cache.sequences == 2
        cache.reorder([1, 1])
        last = slice(19, 20)
        out = regard.attention_decode(q[:, :, last], cache)
        np.testing.assert_array_equal(out[1], expected[1:, :, last][0])
        cache.truncate(0, 5)
        other = regard.KVCache(2, 8)
        other.load_prefix(0, cache.prefix(0, 5))
        assert other.length(0) == 5


Q = np.zeros((1, 2, 3, 8), np.float32)
ROWS = np.zeros((1, 1, 6, 8), np.float32)
REFUSALS = [
    (ValueError, "attention_forward: k and v must have the same heads and length; "
     r"k is \[1, 2, 3, 8\], v is \[1, 2, 2, 8\]",
     lambda: regard.attention(Q, Q, Q[:, :, :2])),
    (ValueError, r"attention_forward: q must be \[batch, heads, len, dim\] or \[heads, len, dim\]; "
     r"it is \[3, 8\]", lambda: regard.attention(Q[0, 0], Q, Q)),
    (ValueError, r"\[batch, len, heads, dim\]",
     lambda: regard.attention(Q[0, 0], Q, Q, layout="blhd")),
    (TypeError, "attention_forward: q must be float32, float64, float16 or bfloat16; it is int64",
     lambda: regard.attention(*[Q.astype(np.int64)] * 3)),
    (TypeError, "attention_forward: k must have the dtype of q; q is float32, k is float64",
     lambda: regard.attention(Q, Q.astype(np.float64), Q)),
    (TypeError, "attention_forward: v must be an array in memory of the CPU; got NoneType",
     lambda: regard.attention(Q, Q, None)),
    (TypeError, "q has elements that regard does not know; its dtype is complex64",
     lambda: regard.attention(Q.astype(np.complex64), Q, Q)),
    (TypeError, r"mask must be a regard.Mask: regard.mask.keep\(array\) shows",
     lambda: regard.attention(Q, Q, Q, mask=np.ones((3, 3), bool))),
    (TypeError, "bias must hold numbers; a bool array is a mask",
     lambda: regard.attention(Q, Q, Q, bias=np.ones((3, 3), bool))),
    (ValueError, "each extent of bias must be 1 or that of",
     lambda: regard.attention(Q, Q, Q, bias=np.zeros((3, 4)))),
    (TypeError, "attention_forward: there is no keyword 'casual'",
     lambda: regard.attention(Q, Q, Q, casual=True)),
    (ValueError, "score must be 'dot' or 'cosine'; got 'sine'",
     lambda: regard.attention(Q, Q, Q, score="sine")),
    (ValueError, "layout must be 'bhld' or 'blhd'", lambda: regard.attention(Q, Q, Q, layout="x")),
    (TypeError, "scale must be a number; got str", lambda: regard.attention(Q, Q, Q, scale="1")),
    (ValueError, "dropout needs a seed", lambda: regard.attention(Q, Q, Q, dropout=0.1)),
    (ValueError, r"the dropout rate must be in \[0, 1\)",
     lambda: regard.attention(Q, Q, Q, dropout=1.0, seed=1)),
    (ValueError, "threads must be at least 1, or None", lambda: regard.attention(Q, Q, Q, threads=0)),
    (TypeError, "threads must be an integer", lambda: regard.attention(Q, Q, Q, threads=1.5)),
    (ValueError, "out may not overlap q, k or v", lambda: regard.attention(Q, Q, Q, out=Q)),
    (ValueError, "out must be", lambda: regard.attention(Q, Q, Q, out=np.zeros((1, 2, 4, 8), "f4"))),
    (TypeError, "out must be an array that can be written",
     lambda: regard.attention(Q, Q, Q, out=np.broadcast_to(np.float32(0), (1, 2, 3, 8)))),
    (ValueError, "sinks must hold one value per head", lambda: regard.attention(Q, Q, Q, sinks=[1.0])),
    (ValueError, "a tuple of 3", lambda: regard.attention(Q, Q, Q, sequences=([0], [0], [0]))),
    (ValueError, "align must be 'bottom_right', 'top_left' or", lambda: regard.mask.causal("left")),
    (TypeError, "align must be", lambda: regard.mask.causal(1.5)),
    (TypeError, "pairs must be bool; they are float32", lambda: regard.mask.keep(Q)),
    (TypeError, "lengths must be integers; got float64", lambda: regard.mask.lengths([1.5])),
    (TypeError, "lengths must be integers; got <U2", lambda: regard.mask.lengths("ab")),
    (ValueError, "mask::documents: ids must fit in int32", lambda: regard.mask.documents([0, 2**32])),
    (ValueError, "mask::lengths: lengths must fit in int64", lambda: regard.mask.lengths([2**63])),
    (TypeError, "Mask: a mask is neither true nor false; masks are joined by &, not by 'and'",
     lambda: regard.mask.causal() and regard.mask.window(3, 0)),
    (ValueError, "there is no part 'eval'", lambda: regard.mask.from_parts([("eval", "1")])),
    (ValueError, "attention_backward: wanted may name q, k, v",
     lambda: regard.attention_backward(Q, Q, Q, Q, Q, Q[..., 0], wanted=["x"])),
    (ValueError, "the gradient of bias is wanted, but no bias was given",
     lambda: regard.attention_backward(Q, Q, Q, Q, Q, Q[..., 0], wanted=["bias"])),
    (ValueError, "attention_weights: top_k must be at least 1",
     lambda: regard.attention_weights(Q, Q, top_k=0)),
    (ValueError, "attention_with_weights: top_k must be at least 1",
     lambda: regard.attention_with_weights(Q, Q, Q, top_k=0)),
    (ValueError, "attention_with_weights: rows must be empty",
     lambda: regard.attention_with_weights(Q, Q, Q, rows=[0])),
    (ValueError, "attention_with_weights: out may not overlap",
     lambda: regard.attention_with_weights(Q, Q, Q, out=Q)),
    (ValueError, "received must be 'sum' or 'mean'",
     lambda: regard.attention_weights(Q, Q, received="all")),
    (ValueError, "heads must be 'each' or 'mean'",
     lambda: regard.attention_weights(Q, Q, heads="max")),
    (TypeError, "MultiHeadAttention: there is no keyword 'head'",
     lambda: regard.MultiHeadAttention(8, 2, head=3)),
    (TypeError, "query must be float32; it is float64",
     lambda: regard.MultiHeadAttention(8, 2)(np.zeros((3, 8)))),
    (ValueError, "the rest belongs to the layer",
     lambda: regard.MultiHeadAttention(8, 2)(Q[0], scale=2.0)),
    (TypeError, "KVCache: there is no keyword 'size'", lambda: regard.KVCache(2, 8, size=1)),
    (ValueError, "KVCache: storage must be 'float32' or 'bfloat16' or 'float16' or 'int8'; got 'int4'",
     lambda: regard.KVCache(2, 8, storage="int4")),
    # Elements without a size, or that are no whole number of elements apart.
    (TypeError, r"q has elements that regard does not know; its dtype is \[\]",
     lambda: regard.attention(np.zeros(Q.shape, dtype=[]), Q, Q)),
    (TypeError, r"k has elements that regard does not know; its dtype is \|V0",
     lambda: regard.attention(Q, np.zeros(Q.shape, "V0"), Q)),
    (TypeError, "q has elements that regard does not know; its dtype is bfloat16",
     lambda: regard.attention(np.zeros(Q.shape, [("x", ml_dtypes.bfloat16), ("y", "u1")])["x"], Q, Q)),
    (ValueError, r"attention_backward: d_lse must be \[batch, heads, q_len\]; it is \[1, 2, 3, 1\]",
     lambda: regard.attention_backward(Q, Q, Q, Q, Q, Q[..., 0], d_lse=np.ones((1, 2, 3, 1), np.float32))),
    (TypeError, "attention_weights: rows must be integers; got bool",
     lambda: regard.attention_weights(Q, Q, rows=np.array([True, False, True]))),
    (TypeError, "attention_weights: rows must be integers; got float64",
     lambda: regard.attention_weights(Q, Q, rows=[1.9])),
    (ValueError, r"attention_weights: rows must have one dimension; got \[1, 1\]",
     lambda: regard.attention_weights(Q, Q, rows=[[1]])),
    (ValueError, "attention_weights: rows must name at least one query",
     lambda: regard.attention_weights(Q, Q, rows=[])),
    (TypeError, "attention_forward: sequences must be integers; got float64",
     lambda: regard.attention(Q, Q, Q, sequences=[0, 1.5, 3])),
    (TypeError, "attention_decode: sequences must be integers; got float64",
     lambda: regard.attention_decode(Q[:, :, :1], regard.KVCache(2, 8), sequences=[0.5])),
    # An out that could only be written by way of a copy, or that is read as well.
    (ValueError, "attention_forward: the elements of a row of out must be contiguous; its last stride is 6",
     lambda: regard.attention(Q, Q, Q, out=np.zeros_like(Q, order="F"))),
    (ValueError, "attention_with_weights: the elements of a row of out must be contiguous",
     lambda: regard.attention_with_weights(Q, Q, Q, out=np.zeros_like(Q, order="F"))),
    (ValueError, "attention_decode: the elements of a row of out must be contiguous",
     lambda: regard.attention_decode(Q[:, :, :1], regard.KVCache(2, 8),
                                     out=np.zeros((1, 2, 1, 8), np.float32, order="F"))),
    (ValueError, "out may not overlap q, k or v",
     lambda: regard.attention(ROWS[:, :, 5:1:-1], ROWS[:, :, :4].copy(), ROWS[:, :, :4].copy(),
                              out=ROWS[:, :, :4])),
    # Values of another type.
    (TypeError, "attention_weights: heads must be a string; got int",
     lambda: regard.attention_weights(Q, Q, heads=0)),
    (TypeError, "attention_weights: received must be a string; got int",
     lambda: regard.attention_weights(Q, Q, received=1)),
    (TypeError, "attention_weights: top_k must be an integer; got float",
     lambda: regard.attention_weights(Q, Q, top_k=1.5)),
    (TypeError, "attention_backward: each name in wanted must be a string; got int",
     lambda: regard.attention_backward(Q, Q, Q, Q, Q, Q[..., 0], wanted=[1])),
    (TypeError, "MultiHeadAttention: kv_heads must be an integer; got NoneType",
     lambda: regard.MultiHeadAttention(8, 2, kv_heads=None)),
    (TypeError, "MultiHeadAttention: dropout must be a number; got str",
     lambda: regard.MultiHeadAttention(8, 2, dropout="0.1")),
    (TypeError, "MultiHeadAttention: state_dict must be a dict; got list",
     lambda: regard.MultiHeadAttention(8, 2, state_dict=[])),
    (TypeError, "KVCache: reserve must be an integer; got str", lambda: regard.KVCache(2, 8, reserve="1")),
    (ValueError, "KVCache: reserve must fit in int64; got 18446744073709551616",
     lambda: regard.KVCache(2, 8, reserve=2**64)),
    (TypeError, "KVCache: kind must be a string; got int", lambda: regard.KVCache(2, 8, kind=1)),
]


@pytest.mark.parametrize("kind, text, call", REFUSALS, ids=[text for _, text, _ in REFUSALS])
def test_mistakes_are_refused_with_a_reason(kind, text, call):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("yes, no", [(np.True_, np.False_), (1, 0)])
def test_flags_are_what_python_takes_for_true(yes, no):
    out, lse = regard.attention(Q, Q, Q, return_lse=yes)
    assert lse.shape == out.shape[:3]
    assert isinstance(regard.attention(Q, Q, Q, return_lse=no), np.ndarray)
    assert regard.attention_weights(Q, Q, entropy=yes).entropy.shape == Q.shape[:3]
    assert "in_proj_bias" not in regard.MultiHeadAttention(8, 2, bias=no).state_dict()
    with pytest.raises(ValueError, match="truth value of an array"):
        regard.attention(Q, Q, Q, return_lse=Q)


@pytest.mark.parametrize("module", [regard, regard.mask, regard._core])
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(module)
    runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
    if module is regard._core:  # whose members doctest does not find by itself
        for name in dir(module):
            runner.run(parser.get_doctest(getattr(module, name).__doc__ or "", {}, name, None, 0))
        results = runner.summarize()
    assert results.attempted > 0 and results.failed == 0


def test_everything_public_teaches():
    """A docstring that says more than the signature, with the true one before it."""
    for module in (regard, regard.mask):
        for name in module.__all__:
            text = inspect.getdoc(getattr(module, name))
            assert text and len(text.split()) > 6, name
            assert "**options" not in text and "object | None" not in text, name
    assert "softcap" in regard.attention.__doc__ and "softcap" in pydoc.render_doc(regard.attention)
    for name in ("attention", "attention_backward", "attention_weights", "attention_with_weights", "explain"):
        assert ">>> " in getattr(regard, name).__doc__, name


def test_importing_needs_numpy_alone():
    import subprocess
    code = ("import sys, regard; "
            "print(sorted({'torch', 'transformers', 'onnx', 'ml_dtypes'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
