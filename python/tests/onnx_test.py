# SPDX-License-Identifier: Apache-2.0
"""The operators of regard.onnx against the ONNX standard's own cases and reference."""


import support

if __name__ == "__main__":
    support.main(__file__, needs=["onnx"])

import numpy as np
import onnx
import pytest
import regard
import regard.onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

CASES = support.SOURCE / "../shared/peer-tests/onnx-attention"
COUNTS = {"attention": 47, "rms_normalization": 19, "rotary_embedding": 8}


def folders():
    return sorted(CASES.glob("test_*")) if CASES.is_dir() else []


def tensors(folder, kind):
    files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"),
                   key=lambda file: int(file.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]


def test_all_cases_of_the_standard_are_there():
    if not folders():
        pytest.skip("the cases of the ONNX standard are not on this machine")
    for kind, count in COUNTS.items():
        assert sum(folder.name.startswith(f"test_{kind}") for folder in folders()) == count


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_case_of_the_standard(folder):
    model = onnx.load(folder / "model.onnx")
    names = [value.name for value in model.graph.input]
    inputs = dict(zip(names, tensors(folder, "input")))
    evaluator = ReferenceEvaluator(model, new_ops=regard.onnx.ops)
    assert type(evaluator.rt_nodes_[0]) in regard.onnx.ops
    got, expected = evaluator.run(None, inputs), tensors(folder, "output")
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected):
        assert mine.dtype == theirs.dtype
        tolerance = 2e-3 if theirs.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(mine, theirs, atol=tolerance, rtol=1e-5)


def model_of(op, inputs, outputs, opset, **attributes):
    """A graph of one node; None stands for an input that is left out."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(op, names, outputs, **attributes)
    given = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items() if value is not None]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
               for name in outputs]
    return helper.make_model(helper.make_graph([node], "one node", given, results),
                             opset_imports=[helper.make_opsetid("", opset)])


def run(op, inputs, outputs, opset, new_ops, **attributes):
    evaluator = ReferenceEvaluator(model_of(op, inputs, outputs, opset, **attributes),
                                   new_ops=new_ops)
    return evaluator.run(None, {name: v for name, v in inputs.items() if v is not None})


def attend(opset=24, outputs=("Y",), shapes=None, new_ops=regard.onnx.ops, **given):
    """Runs Attention on random q, k, v; keywords are inputs where they are arrays, or attributes."""
    generator = np.random.default_rng(5)
    shapes = shapes or [(2, 4, 5, 8), (2, 2, 9, 8), (2, 2, 9, 6)]
    inputs = dict(zip("QKV", (generator.standard_normal(s).astype(np.float32) for s in shapes)))
    optional = ["attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    present = [name for name in optional if name in given]
    for name in optional[:optional.index(present[-1]) + 1] if present else []:
        inputs[name] = given.pop(name, None)
    return run("Attention", inputs, list(outputs), opset, new_ops, **given)


def compare(**given):
    """Against the arithmetic of the standard's own evaluator."""
    expected, got = attend(new_ops=None, **given), attend(**given)
    assert len(expected) == len(got)
    for theirs, mine in zip(expected, got):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-5)


ALL_OUTPUTS = ("Y", "present_key", "present_value", "qk")
LENGTHS = np.array([9, 3], np.int64)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("left, right", [(-1, -1), (2, -1), (-1, 1), (0, 0), (3, 2)])
def test_windows_of_opset_25(left, right, causal):
    window = dict(left_window_size=left, right_window_size=right, is_causal=causal, opset=25)
    compare(**window)
    compare(**window, nonpad_kv_seqlen=LENGTHS)
    past = np.random.default_rng(6).standard_normal((2, 2, 2, 4, 8)).astype(np.float32)
    compare(**window, past_key=past[0], past_value=past[1], outputs=ALL_OUTPUTS,
            shapes=[(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)], qk_matmul_output_mode=2)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_qk_matmul_output_with_lengths_and_softcap(mode, causal):
    outputs = ("Y", "", "", "qk")
    evaluator = dict(outputs=outputs, nonpad_kv_seqlen=LENGTHS, qk_matmul_output_mode=mode,
                     is_causal=causal, softcap=1.5)
    if mode == 0:  # the standard's evaluator gives the capped scores here too
        inputs = np.random.default_rng(5)
        q, k = (inputs.standard_normal(s).astype(np.float32)
                for s in ((2, 4, 5, 8), (2, 2, 9, 8)))
        expected = q @ k.repeat(2, axis=1).swapaxes(-1, -2) / np.sqrt(np.float32(8))
        np.testing.assert_allclose(attend(**evaluator)[-1], expected, atol=1e-5, rtol=0)
    else:
        compare(**evaluator)


@pytest.mark.parametrize("shape", [(9,), (5, 9), (4, 5, 9), (2, 1, 1, 9), (2, 4, 5, 9), (5, 6)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_every_shape(shape, kind):
    generator = np.random.default_rng(7)
    mask = generator.standard_normal(shape).astype(np.float32)
    mask = mask > -0.5 if kind == "bool" else mask
    # The standard's evaluator takes the number of queries from the mask, if causal.
    spread = np.broadcast_to(mask, (*shape[:-2], 5, shape[-1])).copy()
    for causal in (0, 1):
        given = dict(is_causal=causal, outputs=("Y", "", "", "qk"), qk_matmul_output_mode=3)
        expected = attend(**given, attn_mask=spread, new_ops=None)
        for mine, theirs in zip(attend(**given, attn_mask=mask), expected):
            np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-5)


def test_rows_that_see_nothing_are_zero():
    y, _, _, weights = attend(attn_mask=np.zeros((5, 9), np.bool_), outputs=ALL_OUTPUTS,
                              qk_matmul_output_mode=3)
    assert not y.any() and not weights.any()


@pytest.mark.parametrize("precision", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_softmax_precision_is_a_floor(precision):
    (plain,), (precise,) = attend(), attend(softmax_precision=precision)
    assert precise.dtype == np.float32
    np.testing.assert_allclose(precise, plain, atol=1e-6, rtol=0)
    assert np.array_equal(precise, plain) == (precision != TensorProto.DOUBLE)


def test_three_dimensions_are_four_with_the_heads_side_by_side():
    shapes = [(2, 5, 32), (2, 9, 16), (2, 9, 12)]
    compare(shapes=shapes, q_num_heads=4, kv_num_heads=2, is_causal=1, outputs=ALL_OUTPUTS)


def test_half_precision_and_mixed_types():
    generator = np.random.default_rng(8)
    q, k, v = (generator.standard_normal((1, 2, 6, 8)) for _ in range(3))
    exact = regard.attention(q, k, v)
    for q_type, v_type in ((np.float16, np.float16), (np.float16, np.float32),
                           (np.float32, np.float16)):
        inputs = dict(Q=q.astype(q_type), K=k.astype(q_type), V=v.astype(v_type))
        (y,) = run("Attention", inputs, ["Y"], 24, regard.onnx.ops)
        assert y.dtype == q_type
        np.testing.assert_allclose(y, exact, atol=4e-3, rtol=0)


@pytest.mark.parametrize("shape, axis, scale", [
    ((2, 3, 4), -1, (4,)), ((2, 3, 4), 1, (3, 4)), ((2, 3, 4), 1, (4,)), ((2, 3, 4), 2, (1,)),
    ((2, 3, 4), 2, (2, 3, 4)), ((5, 7), 0, (5, 7))])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rms_normalization_broadcasts_its_scale(shape, axis, scale, dtype):
    generator = np.random.default_rng(9)
    inputs = dict(X=generator.standard_normal(shape).astype(dtype),
                  scale=generator.standard_normal(scale).astype(dtype))
    (expected,), (got,) = (run("RMSNormalization", inputs, ["Y"], 23, new_ops, axis=axis)
                           for new_ops in (None, regard.onnx.ops))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, atol=1e-6 if dtype == np.float32 else 5e-3)


def test_attention_refuses_what_makes_no_sense():
    past = np.zeros((2, 2, 4, 8), np.float32)
    for given, text in (
            (dict(opset=25, left_window_size=-2), "left_window_size and right_window_size must be "
                                                  "-1 or more; they are -2 and -1"),
            (dict(qk_matmul_output_mode=4), "qk_matmul_output_mode must be 0 to 3; it is 4"),
            (dict(softmax_precision=7), "softmax_precision must be a float type; it is 7"),
            (dict(past_key=past), "past_key and past_value must be given together"),
            (dict(past_key=past, past_value=past, nonpad_kv_seqlen=LENGTHS),
             "nonpad_kv_seqlen and past_key may not be given together"),
            (dict(q_num_heads=8), r"Q has the shape \(2, 4, 5, 8\), which is not that of 8 heads"),
            (dict(shapes=[(2, 5, 32), (2, 9, 16), (2, 9, 16)]),
             "Q has 3 dimensions and needs q_num_heads and kv_num_heads"),
            (dict(shapes=[(2, 5, 32), (2, 9, 16), (2, 9, 16)], q_num_heads=5, kv_num_heads=2),
             r"Q has the shape \(2, 5, 32\), which 5 heads do not divide"),
            (dict(shapes=[(5, 32)] * 3), r"Q must have 3 or 4 dimensions; it is \(5, 32\)"),
            (dict(attn_mask=np.zeros((5, 10), np.float32)),
             r"attn_mask has the shape \(5, 10\), for 9 keys")):
        with pytest.raises(ValueError, match="^Attention: " + text):
            attend(**given)


def test_the_other_two_refuse_what_makes_no_sense():
    x, table = np.zeros((1, 2, 8), np.float32), np.zeros((4, 2), np.float32)
    places = np.zeros((1, 2), np.int64)
    inputs = dict(X=x, cos_cache=table, sin_cache=table, position_ids=places)
    with pytest.raises(ValueError, match="RotaryEmbedding: X has 3 dimensions and needs num_heads"):
        run("RotaryEmbedding", inputs, ["Y"], 23, regard.onnx.ops)
    with pytest.raises(ValueError, match=r"cos_cache must have 8 / 2 columns; it is \(4, 2\)"):
        run("RotaryEmbedding", inputs, ["Y"], 23, regard.onnx.ops, num_heads=1)
    inputs = dict(X=x, scale=np.ones(8, np.float32))
    with pytest.raises(ValueError, match="stash_type must be 1, which is float32; it is 11"):
        run("RMSNormalization", inputs, ["Y"], 23, regard.onnx.ops, stash_type=11)
    with pytest.raises(ValueError, match=r"axis must be in \[-3, 3\); it is 3"):
        run("RMSNormalization", inputs, ["Y"], 23, regard.onnx.ops, axis=3)
