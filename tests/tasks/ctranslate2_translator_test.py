# SPDX-License-Identifier: Apache-2.0
"""OPUS-MT and a small model of letters: what CTranslate2 in float32 says, we say."""

import gzip
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
try:
    import ctranslate2
    import sentencepiece
except ImportError as error:
    print(f"skipped: {error}; this test compares with CTranslate2")
    sys.exit(SKIPPED)

PROGRAM = os.environ.get("REGARD_PROGRAM", "build/dev/bin/regard")
SHARED = pathlib.Path(os.environ.get("REGARD_SOURCE_DIR", ".")) / "../shared"
OPUS = pathlib.Path.home() / ".cache/regard-models/opus-mt-zh-en"
LETTERS = SHARED / "models/ctranslate2-aren"
SENTENCES = SHARED / "data/translation/en_zh/test_tatoeba.tsv.gz"
# For BLEU every fifth of 9,810 sentences is taken; 1 takes all.
PAIRS_APART = int(os.environ.get("REGARD_PAIRS_APART", "5"))


def ours(folder, lines, beam, *options):
    done = subprocess.run([PROGRAM, "translate", "--whole", "--model", folder, "--beam", str(beam), *options],
                          input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def ours_of_file(lines, *options):
    """Many lines, greedily: of a file, lines as long as each other are taken together, which saves a third."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "lines")
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return ours(OPUS, [], 1, "--input", str(path), "--batch", "128", *options)


class SaysTheSame(unittest.TestCase):
    def compare(self, folder, model, pieces, text_of, lines):
        translator = ctranslate2.Translator(str(model), compute_type="float32", intra_threads=1)
        for beam in (1, 5):
            # We let a model say nothing.
            theirs = translator.translate_batch(pieces, beam_size=beam, length_penalty=1, max_batch_size=32,
                                                min_decoding_length=0)
            expected = [text_of([piece for piece in found.hypotheses[0] if piece != "<unk>"]) for found in theirs]
            self.assertEqual(ours(folder, lines, beam), expected)

    def test_opus_mt(self):
        for path in (OPUS, SENTENCES):
            if not path.exists():
                self.skipTest(f"{path} is not there")
        cutter = sentencepiece.SentencePieceProcessor(model_file=str(OPUS / "sentencepiece.model"))
        with gzip.open(SENTENCES, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t")[1] for line in file][::40]
        # We copy a sign that the pieces do not know, CTranslate2 does not.
        lines = [line for line in lines if cutter.unk_id() not in cutter.encode(line)][:200]
        self.assertEqual(len(lines), 200)
        self.compare(OPUS, OPUS / "model", [cutter.encode(line, out_type=str) for line in lines],
                     lambda pieces: "".join(pieces).replace("\u2581", " ").strip(), lines)

    def test_int8_is_as_good_as_float32(self):
        for path in (OPUS, SENTENCES):
            if not path.exists():
                self.skipTest(f"{path} is not there")
        try:
            import sacrebleu
        except ImportError as error:
            self.skipTest(str(error))
        with gzip.open(SENTENCES, "rt", encoding="utf-8") as file:
            pairs = [line.rstrip("\n").split("\t")[:2] for line in file][::PAIRS_APART]
        english, chinese = zip(*pairs)
        bleu = {}
        for weights in ("float32", "int8"):
            found = ours_of_file(chinese, "--weights", weights)
            bleu[weights] = sacrebleu.corpus_bleu(found, [list(english)]).score
        print(f"{len(pairs)} sentences: BLEU {bleu['float32']:.2f} in float32, {bleu['int8']:.2f} in int8")
        self.assertGreaterEqual(bleu["int8"], bleu["float32"] - 0.3)

    def test_letters(self):
        for kind in ("", "-i16", "-i8"):
            folder = LETTERS / ("aren-transliteration" + kind)
            if not folder.exists():
                self.skipTest(f"{folder} is not there")
            letters = (folder / "source_vocabulary.txt").read_text(encoding="utf-8").split("\n")[3:-1]
            draw = random.Random(1)
            lines = [" ".join(draw.choices(letters, k=draw.randint(1, 12))) for _ in range(200)]
            self.compare(folder, folder, [line.split() for line in lines], " ".join, lines)


if __name__ == "__main__":
    unittest.main()
