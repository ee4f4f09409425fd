#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scores in the card of the bundled translator are those it reaches.

The test part is split off again from the pairs it was trained on, which do not
come with the project; where they are absent the test is skipped.
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
PAIRS = SOURCE.parent / "shared/data/translation/tatoeba_en_zh/cmn.txt.gz"
SKIPPED = 77
# A row of the card: | English to Chinese | 12.34 | 12.34 |
ROW = re.compile(r"^\| (English|Chinese) to (?:English|Chinese) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)


def run(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def scores(folder, to, sources, references):
    """BLEU and chrF of the bundled translator, as the card rounds them."""
    given, reference, output = folder / "given", folder / "reference", folder / "output"
    given.write_text("".join(line + "\n" for line in sources), encoding="utf-8")
    reference.write_text("".join(line + "\n" for line in references), encoding="utf-8")
    output.write_text(run(PROGRAM, "translate", "--to", to, "--input", given), encoding="utf-8")
    tokens = "zh" if to == "zh" else "13a"
    found = json.loads(run(PROGRAM, "score", output, reference, "--tokenize", tokens, "--json"))
    return round(found["bleu"], 2), round(found["chrf"], 2)


def main():
    if not PAIRS.exists():
        print(f"skipped: the pairs of Tatoeba are not there ({PAIRS.name})")
        return SKIPPED
    card = (SOURCE / "models/en-zh/README.md").read_text(encoding="utf-8")
    stated = {source: (float(bleu), float(chrf)) for source, bleu, chrf in ROW.findall(card)}
    assert set(stated) == {"English", "Chinese"}, f"the card states {stated}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(sys.executable, SOURCE / "tools/split_pairs.py", PAIRS, folder)
        lines = (folder / "test.tsv").read_text(encoding="utf-8").splitlines()
        english, chinese = zip(*(line.split("\t") for line in lines))
        reached = {
            "English": scores(folder, "zh", english, chinese),
            "Chinese": scores(folder, "en", chinese, english),
        }
    print(f"{len(lines)} pairs: {reached}")
    assert reached == stated, f"the card states {stated}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
