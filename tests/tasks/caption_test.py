#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`regard sample caption`, `train caption` and `caption`, as users call them:
the model that comes with the program says what is drawn and looks where it is,
BLEU is sacreBLEU's, and a training that was stopped ends with the same bits."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import sacrebleu
    from PIL import Image
except ImportError as missing:
    print(f"{missing.name} is not here")
    sys.exit(77)

PROGRAM = os.environ["REGARD_PROGRAM"]
SOURCE = pathlib.Path(os.environ["REGARD_SOURCE_DIR"])
COLOURS = {"red": (220, 40, 40), "blue": (40, 80, 220), "green": (30, 150, 60), "yellow": (240, 200, 30),
           "purple": (140, 50, 170)}
GRID = 4


def regard(*arguments, code=0):
    ended = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    if ended.returncode != code:
        raise AssertionError(f"{arguments} ended with {ended.returncode}:\n{ended.stderr}")
    return ended


def cells_of(path, colour):
    """The cells of the grid in which there are pixels of a colour."""
    pixels = np.asarray(Image.open(path)).astype(int)
    found = np.abs(pixels - COLOURS[colour]).max(-1) <= 2
    size = pixels.shape[0] // GRID
    cells = found.reshape(GRID, size, GRID, size).sum((1, 3)).flatten()
    return [i for i, count in enumerate(cells) if count > 20]


class Captions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.shapes = pathlib.Path(cls.folder.name) / "shapes"
        regard("sample", "caption", "--out", cls.shapes, "--seed", 7)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def rows(self, name):
        lines = (self.shapes / name).read_text().splitlines()
        self.assertEqual(lines[0], "picture\tcaption")
        return [line.split("\t") for line in lines[1:]]

    def path(self, name):
        return self.shapes / "pictures" / name

    def some(self, count, name="some.tsv", more=()):
        """A table of the first pictures of the test, as a file."""
        rows = self.rows("test.tsv")[:count]
        path = pathlib.Path(self.folder.name) / name
        path.write_text("picture\tcaption\n" + "".join("\t".join(row) + "\n" for row in [*rows, *more]))
        return path, rows

    def test_the_sample_draws_what_it_says(self):
        rows = self.rows("train.tsv")
        self.assertEqual(len(rows), 3000)
        self.assertEqual(len(set(name for name, _ in rows)), 3000)
        words = {"a": 1, "two": 2, "three": 3}
        for name, caption in rows[:100]:
            groups = re.split(" above | left of ", caption)
            drawn = {}
            for group in groups:
                number, colour, _ = group.split()
                drawn[colour] = drawn.get(colour, 0) + words[number]
            for colour in COLOURS:
                self.assertEqual(len(cells_of(self.path(name), colour)), drawn.get(colour, 0), caption)
            if len(drawn) == 2:
                (first, second) = (cells_of(self.path(name), group.split()[1]) for group in groups)
                place = (lambda c: c // GRID) if " above " in caption else (lambda c: c % GRID)
                self.assertLess(max(map(place, first)), min(map(place, second)), caption)

    def test_the_model_that_comes_along_is_nearly_always_right(self):
        path, _ = self.some(200)
        score = json.loads(regard("caption", "--score", path, "--pictures", self.shapes / "pictures", "--json").stdout)
        right = sum(said == row[1] for said, row in zip(score["captions"], self.rows("test.tsv")))
        self.assertGreaterEqual(right, 190)

    def test_words_look_at_what_they_name(self):
        names = [row[0] for row in self.rows("test.tsv")[:60]]
        ended = regard("caption", "--json", *(self.path(name) for name in names))
        looked = []
        for name, line in zip(names, ended.stdout.splitlines()):
            answer = json.loads(line)
            words = answer["words"]
            self.assertEqual(" ".join(w["word"] for w in words), answer["caption"])
            for word, kind in zip(words, words[1:]):
                self.assertEqual(len(word["looked"]), GRID * GRID)
                self.assertAlmostEqual(sum(word["looked"]), 1, 4)
                if word["word"] in COLOURS:
                    cells = cells_of(self.path(name), word["word"])
                    for part in (word, kind):  # "red", "circle"
                        looked.append(sum(part["looked"][i] for i in cells))
        # Shapes of a colour have one to three of 16 cells, six at most.
        self.assertGreater(np.mean(looked), 0.5)

    def test_bleu_is_that_of_sacrebleu(self):
        rows = self.rows("test.tsv")[:25]
        other = self.rows("valid.tsv")
        # Two captions more for each, some near and some far, one longer.
        more = [(name, text.replace("a ", "one ")) for name, text in rows]
        more += [(name, other[i][1] + " and more , as said .") for i, (name, _) in enumerate(rows)]
        path, _ = self.some(25, "many.tsv", more)
        for beam in (1, 3):
            ours = json.loads(regard("caption", "--score", path, "--pictures", self.shapes / "pictures", "--beam", beam,
                                     "--max-length", 7, "--json").stdout)
            truths = [[text for name, text in [*rows, *more] if name == wanted] for wanted, _ in rows]
            for order in range(1, 5):
                theirs = sacrebleu.BLEU(lowercase=True, max_ngram_order=order).corpus_score(
                    ours["captions"], [list(t) for t in zip(*truths)])
                self.assertAlmostEqual(ours["bleu"][order - 1], theirs.score, 9)
            self.assertEqual((ours["words"], ours["reference_words"]), (theirs.sys_len, theirs.ref_len))

    def training(self, out, *more, code=0):
        path, _ = self.some(40)
        return regard("train", "caption", "--pictures", self.shapes / "pictures", "--captions", path, "--valid-share",
                      0.2, "--side", 24, "--patch", 6, "--dim", 16, "--ffn", 32, "--heads", 2, "--decoder-layers", 1,
                      "--dropout", 0.1, "--warmup", 4, "--batch-tokens", 64, "--out", out, *more, code=code)

    def test_a_training_goes_on_to_the_same_bits(self):
        folder = pathlib.Path(self.folder.name)
        self.training(folder / "whole", "--updates", 12, "--schedule", "constant", "--validate-every", 6)
        self.training(folder / "parts", "--updates", 6, "--schedule", "constant", "--validate-every", 6)
        self.training(folder / "parts", "--updates", 12, "--schedule", "constant", "--validate-every", 6, "--threads",
                      1, "--resume")
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            self.assertEqual((folder / "whole" / name).read_bytes(), (folder / "parts" / name).read_bytes(), name)
        picture = self.path("0001.png")
        answer = regard("caption", "--model", folder / "whole", picture, "--show").stdout
        self.assertGreater(len(answer.splitlines()), 20)

    def test_what_is_wrong_is_said(self):
        folder = pathlib.Path(self.folder.name)
        for options, words in (
                (["--features", "mobilenet-v2"], "--network goes with"),
                (["--side", "25"], "--side must be a multiple of --patch; it is 25"),
                (["--positions", "rotary"], "--positions must be sinusoidal")):
            path, _ = self.some(3)
            ended = regard("train", "caption", "--pictures", self.shapes, "--captions", path, "--out", folder / "no",
                           *options, code=2)
            self.assertIn(words, ended.stderr)
        ended = regard("train", "caption", "--pictures", self.shapes, "--captions", path, "--out", folder / "no", code=1)
        self.assertIn(self.rows("test.tsv")[0][0], ended.stderr)  # it is in another folder
        self.assertFalse((folder / "no").exists())
        self.assertIn("give pictures", regard("caption", code=2).stderr)
        (folder / "text.png").write_text("no picture")
        self.assertIn("it begins like none of them", regard("caption", folder / "text.png", code=1).stderr)

    def test_the_example(self):
        ended = regard("caption", SOURCE / "examples" / "shapes.png")
        self.assertEqual(ended.stdout, "a red circle above two blue squares\n")


if __name__ == "__main__":
    unittest.main()
