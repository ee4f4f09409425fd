# SPDX-License-Identifier: Apache-2.0
"""rms_norm and rotary_embedding beside their formulas in double."""

import doctest

import support

if __name__ == "__main__":
    support.main(__file__)

import numpy as np
import pytest
import regard


def rotate(x, cos, sin, interleaved=False):
    """x [..., len, dim] in double, cos and sin [..., len, half]."""
    half = cos.shape[-1]
    a, b = ((x[..., 0:2 * half:2], x[..., 1:2 * half:2]) if interleaved
            else (x[..., :half], x[..., half:2 * half]))
    rotated = x.astype(np.float64)
    first, second = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        rotated[..., 0:2 * half:2], rotated[..., 1:2 * half:2] = first, second
    else:
        rotated[..., :half], rotated[..., half:2 * half] = first, second
    return rotated


def numbers(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(7,), (3, 16), (2, 3, 5), (0, 4), (2, 1)])
def test_rms_norm_is_its_formula(shape):
    x, weight = 3 * numbers(*shape), numbers(shape[-1])
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide ** 2).mean(-1, keepdims=True) + 0.1)
    assert np.allclose(regard.rms_norm(x, epsilon=0.1), expected, atol=1e-6, rtol=0)
    assert np.allclose(regard.rms_norm(x, weight, epsilon=0.1, threads=2), expected * weight,
                       atol=2e-6, rtol=0)


def test_rms_norm_reads_any_strides():
    x = numbers(6, 10)
    for view in (x.T, x[::2], x[:, ::3], np.broadcast_to(x[0], (4, 10))):
        assert np.array_equal(regard.rms_norm(view), regard.rms_norm(view.copy()))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("half", [4, 3])
def test_rotary_embedding_is_its_formula(half, interleaved):
    x, angles = numbers(2, 3, 5, 8), 6 * numbers(11, half)
    cos, sin = np.cos(angles), np.sin(angles)
    plain = regard.rotary_embedding(x, cos, sin, interleaved=interleaved)
    assert np.allclose(plain, rotate(x, cos[:5], sin[:5], interleaved), atol=1e-6, rtol=0)
    places = np.array([[10, 0, 3, 3, 7], [1, 2, 3, 4, 5]])
    expected = rotate(x, cos[places][:, None], sin[places][:, None], interleaved)
    got = regard.rotary_embedding(x, cos, sin, positions=places, interleaved=interleaved, threads=2)
    assert np.allclose(got, expected, atol=1e-6, rtol=0)


def test_rotary_embedding_takes_both_layouts_and_no_batch():
    x, angles = numbers(2, 3, 5, 8), numbers(5, 4)
    cos, sin = np.cos(angles), np.sin(angles)
    expected = regard.rotary_embedding(x, cos, sin)
    blhd = regard.rotary_embedding(x.transpose(0, 2, 1, 3).copy(), cos, sin, layout="blhd")
    assert np.array_equal(blhd.transpose(0, 2, 1, 3), expected)
    assert np.array_equal(regard.rotary_embedding(x[1], cos, sin), expected[1])
    assert np.array_equal(regard.rotary_embedding(x, cos, sin, positions=range(5)), expected)


def test_tensors_give_tensors():
    torch = pytest.importorskip("torch")
    x, table = numbers(2, 3, 5, 8), numbers(5, 4)
    norm = regard.rms_norm(torch.from_numpy(x), torch.ones(8))
    rotated = regard.rotary_embedding(*map(torch.from_numpy, (x, table, table)))
    assert isinstance(norm, torch.Tensor) and isinstance(rotated, torch.Tensor)
    assert np.array_equal(norm.numpy(), regard.rms_norm(x))
    assert np.array_equal(rotated.numpy(), regard.rotary_embedding(x, table, table))


def test_wrong_arguments_are_refused():
    x, table = numbers(2, 3, 5, 8), numbers(5, 4)
    turn = regard.rotary_embedding
    for call, kind, text in (
            (lambda: regard.rms_norm(x.astype(np.float64)), TypeError,
             "rms_norm: x must be float32; it is float64"),
            (lambda: regard.rms_norm(None), TypeError,
             "rms_norm: x must be an array in memory of the CPU; got NoneType"),
            (lambda: regard.rms_norm(np.zeros((), np.float32)), ValueError,
             "rms_norm: x must have at least 1 dimension"),
            (lambda: regard.rms_norm(x, table), ValueError,
             r"rms_norm: weight must have 1 dimension; it is \[5, 4\]"),
            (lambda: regard.rms_norm(x, table[0]), ValueError,
             r"rms_norm: weight must be \[8\]; it is \[4\]"),
            (lambda: regard.rms_norm(x, threads=0), ValueError,
             "rms_norm: threads must be at least 1, or None for one per core; got 0"),
            (lambda: regard.rms_norm(x, threads=1.5), TypeError,
             "rms_norm: threads must be an integer; got float"),
            (lambda: turn(x.astype(np.float16), table, table), TypeError,
             "rotary_embedding: x must be float32; it is float16"),
            (lambda: turn(x[0, 0], table, table), ValueError,
             r"rotary_embedding: x must be \[batch, heads, len, dim\] or \[heads, len, dim\]; it "
             r"is \[5, 8\]"),
            (lambda: turn(x, table[0], table), ValueError,
             r"rotary_embedding: cos must be \[places, half\]; it is \[4\]"),
            (lambda: turn(x, table, table[0]), ValueError,
             r"rotary_embedding: sin must be \[places, half\]; it is \[4\]"),
            (lambda: turn(x, table, table, positions=[0.5]), TypeError,
             "rotary_embedding: positions must be integers; got float64"),
            (lambda: turn(x, table, table, positions=np.zeros((1, 1, 5), int)), ValueError,
             r"rotary_embedding: positions must be \[batch or 1, len\]; it is \[1, 1, 5\]"),
            (lambda: turn(x, table, table, positions=[[0, 1, 2, 3, 5]]), ValueError,
             "rotary_forward: each position needs a row of the tables; position 5 came"),
            (lambda: turn(x, table, table, layout="hbld"), ValueError,
             "rotary_embedding: layout must be 'bhld' or 'blhd'; got 'hbld'"),
            (lambda: turn(x, table, table, threads=-1), ValueError,
             "rotary_embedding: threads must be at least 1, or None for one per core; got -1")):
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.parametrize("function", [regard.rms_norm, regard.rotary_embedding])
def test_the_example_of_the_docstring_runs(function):
    example = doctest.DocTestParser().get_doctest(function.__doc__, {}, function.__name__, None, 0)
    results = doctest.DocTestRunner().run(example)
    assert results.attempted > 0 and results.failed == 0
