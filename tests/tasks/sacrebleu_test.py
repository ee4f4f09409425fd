#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`regard score` against sacreBLEU: the same numbers on the same files."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import sacrebleu

PROGRAM = os.environ["REGARD_PROGRAM"]
SEED = 5

# Escapes, because sources are ASCII: Chinese, German, Greek, Turkish, Cyrillic.
WORDS = [
    "the", "a", "Man", "dog", "rides", "bicycle", ",", ".", "!", "?", "1,000", "3.5", "1990-2000", "U.S.", "e-mail",
    "don't", "(left)", "[1]", "50%", "$5", "&quot;", "&amp;", "&lt;b&gt;", "<skipped>", "x/y", "a:b", "1.", ",5", "..",
    "\u4f60\u597d", "\u6211\u4eec", "\u3002", "\uff0c", "\u4e16\u754c", "ABC\u4e2d\u6587123", "\u20ac5", "\u2014",
    "Stra\u00dfe", "\u00c4pfel", "\u00d6l", "\u039b\u03cc\u03b3\u03bf\u03c2", "\u0130stanbul", "\u041c\u0418\u0420",
    "\u00a0", "\u3000", "\U00020001", "\u2605", "\u2026", "\u0660", "-", "5-", "-5", "a-b", "'s", "``", "''",
]


def sentence(rng, most):
    words = [rng.choice(WORDS) for _ in range(rng.randint(0, most))]
    return rng.choice(["", " "]) + rng.choice([" ", " ", "  ", ""]).join(words)


def altered(rng, text):
    """A translation that shares much with its reference."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 3)):
        if words:
            words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


def corpora(rng):
    for lines, most in [(1, 3), (1, 12), (5, 2), (40, 15), (300, 25)]:
        references = [sentence(rng, most) for _ in range(lines)]
        yield [altered(rng, r) for r in references], references
        yield [sentence(rng, most) for _ in range(lines)], references
    yield ["", ""], ["a b c d e", "f"]
    yield ["a b c d e"], [""]
    yield ["a b c d e f"], ["a b c d e f"]


def regard(hypotheses, references, options):
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, lines in [("hyp", hypotheses), ("ref", references)]:
            path = pathlib.Path(folder, name)
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
            files.append(str(path))
        out = subprocess.run([PROGRAM, "score", *files, "--json", *options], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def close(a, b):
    return abs(a - b) <= 1e-9 * max(1.0, abs(b))


def compare(hypotheses, references, tokens, lowercase):
    ours = regard(hypotheses, references, ["--tokenize", tokens] + ["--lowercase"] * lowercase)
    bleu = sacrebleu.BLEU(tokenize=tokens, lowercase=lowercase, force=True).corpus_score(hypotheses, [references])
    chrf = sacrebleu.CHRF(lowercase=lowercase).corpus_score(hypotheses, [references])
    right = (close(ours["bleu"], bleu.score) and close(ours["chrf"], chrf.score) and close(ours["brevity_penalty"], bleu.bp)
             and (ours["hypothesis_length"], ours["reference_length"]) == (bleu.sys_len, bleu.ref_len))
    if not right:
        print(f"{tokens} lowercase={lowercase}: regard {ours}\nsacreBLEU {bleu} ({bleu.score}), {chrf.score}")
        print("\n".join(f"  {h!r} | {r!r}" for h, r in list(zip(hypotheses, references))[:5]))
    return right


def main():
    rng = random.Random(SEED)
    failures = count = 0
    for hypotheses, references in corpora(rng):
        for tokens in ["13a", "none", "zh"]:
            for lowercase in [False, True]:
                count += 1
                failures += not compare(hypotheses, references, tokens, lowercase)
    print(f"{count} comparisons, {failures} differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
