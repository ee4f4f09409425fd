# SPDX-License-Identifier: Apache-2.0
"""regard.load: pretrained encoders in Python, with the bits of the program."""

import os
import subprocess
import sys

import support

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(support.SOURCE / "tests" / "support"))
if __name__ == "__main__":
    support.main(__file__, needs=["torch", "transformers"])

import numpy as np
import pytest
import regard
import small_encoders

TEXTS = small_encoders.LINES + ["", "it", " ".join(small_encoders.LINES * 9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    model, tokenizer = small_encoders.families()["bert"]
    small_encoders.randomize(model, 3).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_vectors_have_the_bits_of_the_program(folder, tmp_path):
    program = os.environ.get("REGARD_PROGRAM")
    if not program:
        pytest.skip("the program is not built")
    lines, out = tmp_path / "in.txt", tmp_path / "out.npy"
    lines.write_text("".join(text + "\n" for text in TEXTS), encoding="utf-8")
    subprocess.run([program, "embed", "--model", folder, "--input", lines, "--out", out], check=True)
    model = regard.load(folder)
    vectors = model.encode(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (len(TEXTS), model.config["embedding_dim"])
    assert np.array_equal(vectors, np.load(out))
    for threads in (1, 2):
        assert np.array_equal(model.encode(tuple(TEXTS), threads=threads), vectors)
    assert np.array_equal(model.encode(TEXTS[2]), vectors[2])
    assert model.encode([]).shape == (0, 48)


def test_weights_of_fewer_bits_have_the_bits_of_the_program(folder, tmp_path):
    program = os.environ.get("REGARD_PROGRAM")
    if not program:
        pytest.skip("the program is not built")
    exact = regard.load(folder).encode(TEXTS[0])
    for weights in ("bfloat16", "int8", "int4"):
        out = tmp_path / f"{weights}.npy"
        subprocess.run([program, "embed", "--model", folder, "--weights", weights, "--out", out, TEXTS[0]], check=True)
        vector = regard.load(folder, weights=weights).encode(TEXTS[0])
        assert np.array_equal(vector, np.load(out)[0]) and not np.array_equal(vector, exact)


def test_a_trace_has_every_layer_and_head(folder):
    model = regard.load(folder)
    trace = model.trace(TEXTS[0])
    n = len(trace.tokens)
    assert trace.tokens[0] == "[CLS]" and trace.words[0] == -1 and len(trace.words) == n
    assert trace.hidden_states.shape == (4, n, 48)
    assert trace.weights.shape == (3, 4, n, n)
    np.testing.assert_allclose(trace.weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(trace.hidden_states[-1].mean(0), model.encode(TEXTS[0]), atol=1e-5)


def test_refuses_what_it_cannot_do(folder, tmp_path):
    with pytest.raises(OSError, match="is not there; a model is a folder or a file in GGUF"):
        regard.load(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match=r"model_type 'vit'; read are encoders \(bert"):
        regard.load(tmp_path)
    model = regard.load(str(folder))
    with pytest.raises(ValueError, match="the model's prompts are none; got 'query'"):
        model.encode("a", prompt="query")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        model.encode("a", threads=0)
    with pytest.raises(TypeError):
        model.encode([1])


def test_needs_no_torch(folder):
    code = ("import sys, regard; regard.load(sys.argv[1]).encode('a');"
            "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
