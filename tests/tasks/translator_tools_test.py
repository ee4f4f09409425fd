#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tools that change a translator before it is trained further: what they keep, they keep exactly."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from safetensors.numpy import load_file

PROGRAM = os.environ["REGARD_PROGRAM"]
SOURCE = pathlib.Path(os.environ["REGARD_SOURCE_DIR"])
MODEL = SOURCE / "models/en-zh"
SENTENCES = "Good morning.\nWhere is the station?\nI would like a cup of tea.\n"


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


def translations(model):
    done = run(PROGRAM, "translate", "--model", model, "--beam", "2", input=SENTENCES)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TranslatorTools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"

    def test_wider_blocks_translate_as_before(self):
        done = run(sys.executable, SOURCE / "tools/widen_translator.py", MODEL, "1536", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.out / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["model"]["feed_forward_dim"], 1536)
        weights = load_file(self.out / "model.safetensors")
        self.assertEqual(weights["encoder.layers.0.linear1.weight"].shape, (1536, 256))
        self.assertGreater(weights["encoder.layers.0.linear1.weight"][-1].std(), 0)
        self.assertEqual(translations(self.out), translations(MODEL))

    def test_blocks_are_not_made_narrower(self):
        done = run(sys.executable, SOURCE / "tools/widen_translator.py", MODEL, "8", self.out)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("must be above", done.stderr)
        self.assertFalse(self.out.exists())

    def test_the_same_pieces_translate_as_before(self):
        done = run(sys.executable, SOURCE / "tools/change_pieces.py", MODEL, MODEL, self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(translations(self.out), translations(MODEL))


if __name__ == "__main__":
    unittest.main()
