#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scores in the card of the bundled translator are those it reaches.

The tests are made from files that do not come with the project; where they are absent
the test is skipped. CoVoST2 is translated
each time; the thousands of sentences of Tatoeba, which take minutes, by `./test scores`.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = os.environ["REGARD_PROGRAM"]
SOURCE = pathlib.Path(os.environ["REGARD_SOURCE_DIR"])
TEXTS = SOURCE.parent / "shared/data/translation"
SOURCES = TEXTS / "en_zh"
SKIPPED = 77
LANGUAGES = {"English": "en", "Chinese": "zh"}
# A row of the card: | CoVoST2 | English to Chinese | 999 | 12.34 | 12.34 |
ROW = re.compile(r"^\| (Tatoeba|CoVoST2) \| (English|Chinese) to (English|Chinese) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$",
                 re.MULTILINE)


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def scores(folder, test, source, target):
    """How many pairs, BLEU and chrF, as the card rounds them."""
    given, reference, output = folder / f"{test}.{source}", folder / f"{test}.{target}", folder / "output"
    output.write_text(run(PROGRAM, "translate", "--to", target, "--input", given), encoding="utf-8")
    tokens = "zh" if target == "zh" else "13a"
    found = json.loads(run(PROGRAM, "score", output, reference, "--tokenize", tokens, "--json"))
    pairs = len(given.read_text(encoding="utf-8").splitlines())
    return pairs, round(found["bleu"], 2), round(found["chrf"], 2)


def main():
    if not SOURCES.exists():
        print(f"skipped: the pairs to test with are not there ({SOURCES.name})")
        return SKIPPED
    card = (SOURCE / "models/en-zh/README.md").read_text(encoding="utf-8")
    stated = {(test, source): (int(pairs), float(bleu), float(chrf))
              for test, source, _, pairs, bleu, chrf in ROW.findall(card)}
    assert len(stated) == 4, f"the card states {stated}"
    if os.environ.get("REGARD_ALL_SCORES") != "1":
        stated = {row: scores for row, scores in stated.items() if row[0] == "CoVoST2"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(sys.executable, SOURCE / "tools/prepare_en_zh.py", "tests", SOURCES, folder)
        reached = {(test, source): scores(folder, test.lower(), LANGUAGES[source],
                                          "en" if source == "Chinese" else "zh")
                   for test, source in stated}
    print(reached)
    assert reached == stated, f"the card states {stated}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
