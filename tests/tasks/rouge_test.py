#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`regard score --metric rouge` against the package rouge-score: the same numbers on 1,000 pairs."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from rouge_score import rouge_scorer

PROGRAM = os.environ["REGARD_PROGRAM"]
SEED = 7
KINDS = ["rouge1", "rouge2", "rougeL"]

# Escapes, because sources are ASCII: what has small letters of another length or in ASCII, and what has none.
WORDS = [
    "the", "a", "Amanda", "baked", "cookies", "and", "will", "bring", "Jerry", "some", "tomorrow", "to", "don't", "3.5",
    "e-mail", ",", ".", "!", "<file_gif>", "U.S.", "\u212a", "\u0130stanbul", "caf\u00e9", "\u00c4pfel", "\u4f60\u597d",
    "\u00a0", "\u3000", "\u2026", "_", "A1b2",
]


def sentence(rng, most):
    words = [rng.choice(WORDS) for _ in range(rng.randint(0, most))]
    return rng.choice([" ", " ", "  ", ""]).join(words)


def altered(rng, text):
    """A summary that shares much with its reference."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    if rng.random() < 0.3:
        rng.shuffle(words)
    return " ".join(words)


def regard(said, wanted):
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, lines in [("said", said), ("wanted", wanted)]:
            path = pathlib.Path(folder, name)
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
            files.append(str(path))
        out = subprocess.run([PROGRAM, "score", "--metric", "rouge", "--json", *files], check=True, capture_output=True,
                             text=True)
    return json.loads(out.stdout)


def package(said, wanted):
    scorer = rouge_scorer.RougeScorer(KINDS, use_stemmer=False)
    scores = [scorer.score(w, s) for s, w in zip(said, wanted)]

    def mean(kind, field):
        return 100 * sum(getattr(score[kind], field) for score in scores) / len(scores)

    return {kind: {"precision": mean(kind, "precision"), "recall": mean(kind, "recall"), "f1": mean(kind, "fmeasure")}
            for kind in KINDS}


def main():
    rng = random.Random(SEED)
    differ = 0
    for corpus in range(50):
        wanted = [sentence(rng, 3 + corpus) for _ in range(20)]
        said = [altered(rng, w) if rng.random() < 0.8 else sentence(rng, 30) for w in wanted]
        ours, theirs = regard(said, wanted), package(said, wanted)
        for kind in KINDS:
            for field, value in theirs[kind].items():
                if abs(ours[kind][field] - value) > 1e-9 * max(1.0, value):
                    print(f"corpus {corpus}, {kind} {field}: regard {ours[kind][field]}, rouge-score {value}")
                    differ += 1
    print(f"1000 pairs, {differ} numbers differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
