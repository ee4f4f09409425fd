# SPDX-License-Identifier: Apache-2.0
"""regard/c.h from Python's ctypes, against NumPy in double."""

import ctypes
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import unittest

try:
    import numpy as np
except ModuleNotFoundError:
    print("skipped: numpy is not there")
    sys.exit(77)

SOURCE = pathlib.Path(os.environ["REGARD_SOURCE_DIR"])
HEADER = (SOURCE / "include/regard/c.h").read_text(encoding="utf-8")
OK, INVALID_ARGUMENT, IO_ERROR = 0, 1, 2
DTYPES = {"float32": 0, "float64": 1, "bfloat16": 2, "float16": 3, "int8": 4, "bool": 5}


def load():
    for folder in (pathlib.Path(os.environ["REGARD_BINARY_DIR"], name) for name in ("shared", ".")):
        if (folder / "libregard.so").exists():
            library = ctypes.CDLL(str(folder / "libregard.so"))
            library.regard_last_error.restype = ctypes.c_char_p
            library.regard_version.restype = ctypes.c_char_p
            return library
    print("skipped: libregard.so is not built")
    sys.exit(77)


class Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * 4), ("strides", ctypes.c_int64 * 4)]


P = ctypes.POINTER(Tensor)


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("mask", ctypes.c_void_p), ("score", ctypes.c_int32),
                ("compute", ctypes.c_int32), ("has_scale", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("scale", ctypes.c_double), ("softcap", ctypes.c_double), ("dropout_rate", ctypes.c_double),
                ("dropout_seed", ctypes.c_uint64), ("head_scales", P), ("bias", P), ("alibi_slopes", P),
                ("sinks", P), ("log_sum_exp", P), ("q_offsets", ctypes.c_void_p),
                ("kv_offsets", ctypes.c_void_p), ("sequences", ctypes.c_int64), ("pool", ctypes.c_void_p)]


class BackwardInputs(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, P) for name in ("q", "k", "v", "out", "d_out", "d_lse")]


class Gradients(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, P) for name in ("q", "k", "v", "bias", "alibi_slopes", "sinks", "head_scales")]


class CacheOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("storage", ctypes.c_int32)] + [
        (name, ctypes.c_int64) for name in ("sequences", "kv_heads", "d_k", "d_v", "reserve", "window",
                                            "first_kept", "page_tokens", "pages")]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64) for name in ("model_dim", "heads", "kv_heads", "key_dim", "value_dim",
                                            "head_dim", "value_head_dim")] + [
        (name, ctypes.c_int32) for name in ("no_bias", "bias_kv", "add_zero_attn", "score", "has_scale",
                                            "reserved")] + [("scale", ctypes.c_double)]


def sized(kind, **members):
    return kind(ctypes.sizeof(kind), **members)


def tensor(array):
    steps = [step // array.itemsize for step in array.strides]
    return sized(Tensor, data=array.ctypes.data, dtype=DTYPES[str(array.dtype)], rank=array.ndim,
                 shape=(ctypes.c_int64 * 4)(*array.shape), strides=(ctypes.c_int64 * 4)(*steps))


def at(array):
    return ctypes.pointer(tensor(array))


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def attention(q, k, v, keep, bias=0.0):
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(float), group, 1) for x in (k, v))
    scores = q.astype(float) @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + bias
    return softmax(np.where(keep, scores, -np.inf)) @ v


class CInterface(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(5)

    def ok(self, status):
        self.assertEqual(status, OK, LIB.regard_last_error())

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype("float32")

    def mask(self, function, *arguments):
        mask = ctypes.c_void_p()
        self.ok(getattr(LIB, "regard_mask_" + function)(*arguments, ctypes.byref(mask)))
        self.addCleanup(LIB.regard_mask_free, mask)
        return mask

    def test_the_structs_are_as_large_as_in_c(self):
        # A size that is another is refused, so every call below tests it, too.
        self.assertEqual(LIB.regard_abi_version(), int(re.search(r"REGARD_ABI_VERSION (\d+)", HEADER)[1]))

    def test_every_function_of_the_header_is_there(self):
        names = set(re.findall(r"\b(regard_\w+)\(", HEADER))
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertTrue(hasattr(LIB, name), name)

    def test_forward_with_mask_bias_and_any_strides(self):
        q = self.normal(2, 7, 4, 8).swapaxes(1, 2)
        k, v = self.normal(2, 2, 11, 8), self.normal(2, 2, 11, 5)
        bias, out = self.normal(1, 4, 7, 11), np.zeros((2, 4, 7, 5), "float32")
        lse = np.zeros((2, 4, 7), "float32")
        mask = self.mask("causal", 0, ctypes.c_int64(0))
        options = sized(Options, mask=mask, bias=at(bias), log_sum_exp=at(lse))
        self.ok(LIB.regard_attention_forward(at(q), at(k), at(v), at(out), ctypes.byref(options)))
        keep = np.arange(11) <= np.arange(7)[:, None] + 4
        np.testing.assert_allclose(out, attention(q, k, v, keep, bias), atol=2e-6)
        scores = q.astype(float) @ np.repeat(k, 2, 1).swapaxes(2, 3) / np.sqrt(8) + bias
        np.testing.assert_allclose(lse, np.log(np.where(keep, np.exp(scores), 0).sum(-1)), atol=3e-6)

    def test_bfloat16_and_float16_are_read_as_such(self):
        q, k, v = self.normal(1, 2, 5, 4), self.normal(1, 2, 5, 4), self.normal(1, 2, 5, 4)
        halves = [x.astype("float16") for x in (q, k, v)]
        out = np.zeros_like(halves[0])
        self.ok(LIB.regard_attention_forward(*map(at, halves), at(out), None))
        np.testing.assert_allclose(out, attention(*halves, True), atol=2e-3)
        # bfloat16 is the upper half of a float32.
        cut = [(x.view("uint32") & 0xffff0000).view("float32") for x in (q, k, v)]
        words = [(x.view("uint32") >> 16).astype("uint16") for x in cut]
        result = np.zeros(q.shape, "uint16")
        views = []
        for array in (*words, result):
            view = sized(Tensor, data=array.ctypes.data, dtype=DTYPES["bfloat16"], rank=4,
                         shape=(ctypes.c_int64 * 4)(*array.shape))
            views.append(ctypes.byref(view))
        self.ok(LIB.regard_attention_forward(*views, None))
        shown = (result.astype("uint32") << 16).view("float32")
        np.testing.assert_allclose(shown, attention(*cut, True), atol=2e-2)

    def test_backward(self):
        q, k, v = (self.normal(1, 2, 6, 4).astype("float64") for _ in range(3))
        d_out = self.normal(1, 2, 6, 4).astype("float64")
        out, lse = np.zeros_like(q), np.zeros((1, 2, 6))
        dq, dk, dv = (np.zeros_like(x) for x in (q, k, v))
        options = sized(Options, log_sum_exp=at(lse))
        self.ok(LIB.regard_attention_forward(at(q), at(k), at(v), at(out), ctypes.byref(options)))
        inputs = sized(BackwardInputs, q=at(q), k=at(k), v=at(v), out=at(out), d_out=at(d_out))
        gradients = sized(Gradients, q=at(dq), k=at(dk), v=at(dv))
        self.ok(LIB.regard_attention_backward(ctypes.byref(inputs), ctypes.byref(gradients),
                                              ctypes.byref(options)))
        w = softmax(q @ k.swapaxes(2, 3) / 2)
        dw = d_out @ v.swapaxes(2, 3)
        ds = w * (dw - (w * dw).sum(-1, keepdims=True)) / 2
        np.testing.assert_allclose(dv, w.swapaxes(2, 3) @ d_out, atol=1e-13)
        np.testing.assert_allclose(dq, ds @ k, atol=1e-13)
        np.testing.assert_allclose(dk, ds.swapaxes(2, 3) @ q, atol=1e-13)

    def test_decoding_with_a_cache(self):
        k, v, q = self.normal(2, 2, 20, 8), self.normal(2, 2, 20, 8), self.normal(2, 4, 3, 8)
        options = sized(CacheOptions, sequences=2, kv_heads=2, d_k=8)
        cache = ctypes.c_void_p()
        self.ok(LIB.regard_kv_cache_create(ctypes.byref(options), ctypes.byref(cache)))
        self.addCleanup(LIB.regard_kv_cache_free, cache)
        self.ok(LIB.regard_kv_cache_append(cache, None, ctypes.c_int64(0), at(k), at(v)))
        out = np.zeros_like(q)
        mask = sized(Options, mask=self.mask("causal", 0, ctypes.c_int64(0)))
        self.ok(LIB.regard_attention_decode(at(q), cache, None, ctypes.c_int64(0), at(out), ctypes.byref(mask)))
        keep = np.arange(20) <= np.arange(3)[:, None] + 17
        np.testing.assert_allclose(out, attention(q, k, v, keep), atol=2e-6)

    def test_the_layer_from_a_file(self):
        width, heads = 8, 2
        parameters = {"in_proj_weight": self.normal(24, 8), "in_proj_bias": self.normal(24),
                      "out_proj.weight": self.normal(8, 8), "out_proj.bias": self.normal(8)}
        header, data = {}, b""
        for name, array in parameters.items():
            begin, data = len(data), data + array.tobytes()
            header["layers.0." + name] = {"dtype": "F32", "shape": list(array.shape),
                                          "data_offsets": [begin, len(data)]}
        text = json.dumps(header).encode()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "layer.safetensors")
            path.write_bytes(struct.pack("<Q", len(text)) + text + data)
            config = sized(Config, model_dim=width, heads=heads)
            layer = ctypes.c_void_p()
            self.ok(LIB.regard_mha_load(ctypes.byref(config), str(path).encode(), b"layers.0.",
                                        ctypes.byref(layer)))
        self.addCleanup(LIB.regard_mha_free, layer)
        x = self.normal(3, 5, width)
        out = np.zeros_like(x)
        self.ok(LIB.regard_mha_forward(layer, at(x), None, None, at(out), None))
        qkv = x.astype(float) @ parameters["in_proj_weight"].T + parameters["in_proj_bias"]
        q, k, v = (part.reshape(3, 5, heads, 4).swapaxes(1, 2) for part in np.split(qkv, 3, -1))
        mixed = attention(q, k, v, True).swapaxes(1, 2).reshape(3, 5, width)
        expected = mixed @ parameters["out_proj.weight"].T + parameters["out_proj.bias"]
        np.testing.assert_allclose(out, expected, atol=1e-5)

    def test_wrong_arguments_give_a_status_and_a_message(self):
        q = self.normal(1, 1, 2, 4)
        status = LIB.regard_attention_forward(at(q), None, at(q), at(q), None)
        self.assertEqual(status, INVALID_ARGUMENT)
        self.assertEqual(LIB.regard_last_error(), b"regard_attention_forward: k must not be NULL")
        wrong = tensor(q)
        wrong.size = 3
        status = LIB.regard_attention_forward(ctypes.byref(wrong), at(q), at(q), at(q), None)
        self.assertEqual(status, INVALID_ARGUMENT)
        self.assertIn(b"q.size must be the sizeof of its struct", LIB.regard_last_error())
        config = sized(Config, model_dim=8, heads=2)
        layer = ctypes.c_void_p(1)
        status = LIB.regard_mha_load(ctypes.byref(config), b"/no/such/file", None, ctypes.byref(layer))
        self.assertEqual((status, layer.value), (IO_ERROR, None))
        self.assertIn(b"/no/such/file", LIB.regard_last_error())


if __name__ == "__main__":
    LIB = load()
    unittest.main()
