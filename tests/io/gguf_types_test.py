#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of every GGUF type that is read, bit for bit those of the package gguf."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import SKIPPED, run_driver  # noqa: E402

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; this test compares with the package gguf")
    sys.exit(SKIPPED)

MODELS = pathlib.Path(os.environ.get("REGARD_MODELS", pathlib.Path.home() / ".cache/regard-models"))
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def random_blocks(kind, rows, columns, seed):
    """Any bits but for scales, which stay finite."""
    random = np.random.default_rng(seed)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.F32:
        return random.standard_normal((rows, columns), dtype=np.float32).view(np.uint8)
    halves = {"F16": [0], "BF16": [0], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0], "Q4_1": [0, 2], "Q5_1": [0, 2],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}[kind.name]
    for at in halves:  # an exponent that is not all ones
        blocks[:, at + 1] &= 0xBF
    return blocks.reshape(rows, -1)


class GgufTypes(unittest.TestCase):
    def expect_bits(self, path):
        ours = run_driver("language_driver", {}, {"gguf": path})
        reader = gguf.GGUFReader(path)
        self.assertEqual(set(ours), {tensor.name for tensor in reader.tensors})
        for tensor in reader.tensors:
            expected = np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            got = ours[tensor.name].numpy()
            self.assertEqual(got.view(np.uint32).tobytes(), expected.reshape(got.shape).view(np.uint32).tobytes(),
                             f"{tensor.name}, {tensor.tensor_type.name}")

    def test_random_blocks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "types.gguf"
            writer = gguf.GGUFWriter(path, "llama")
            for seed, name in enumerate(TYPES):
                kind = gguf.GGMLQuantizationType[name]
                writer.add_tensor(name, random_blocks(kind, 6, 512, seed), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            self.expect_bits(path)

    def test_real_models(self):
        paths = sorted(MODELS.glob("*/*.gguf"))
        if not paths:
            self.skipTest(f"{MODELS} has no GGUF file")
        for path in paths:
            with self.subTest(path.name):
                self.expect_bits(path)


if __name__ == "__main__":
    unittest.main()
