#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SAMSum as `regard train summarize` reads it: prepare_samsum.py SAMSUM.zip TO

The zip holds samsum/train.csv, validation.csv and test.csv (id, dialogue,
summary); it is read and not changed. TO gets train.jsonl, valid.jsonl and
test.jsonl with `text` and `summary`, and the baseline Longest-3 of the test:
longest3.txt, the three longest lines of each dialogue in their order, with the
names of who said them, beside references.txt.
"""

import argparse
import csv
import io
import json
import pathlib
import zipfile


def cleaned(text):
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def longest3(dialogue):
    lines = dialogue.splitlines()
    said = [line.split(": ", 1)[-1] for line in lines]
    chosen = sorted(sorted(range(len(lines)), key=lambda i: (-len(said[i]), i))[:3])
    return " ".join(lines[i] for i in chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, metavar="SAMSUM.zip")
    parser.add_argument("to", type=pathlib.Path, metavar="TO")
    flags = parser.parse_args()
    flags.to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(flags.source) as archive:
        for part, name in (("train", "train"), ("valid", "validation"), ("test", "test")):
            text = archive.read(f"samsum/{name}.csv").decode("utf-8")
            rows = [(cleaned(row["dialogue"]), " ".join(row["summary"].split()))
                    for row in csv.DictReader(io.StringIO(text, newline=""))]
            kept = [(dialogue, summary) for dialogue, summary in rows if dialogue and summary]
            with open(flags.to / f"{part}.jsonl", "w", encoding="utf-8") as out:
                for dialogue, summary in kept:
                    out.write(json.dumps({"text": dialogue, "summary": summary}, ensure_ascii=False) + "\n")
            print(f"{part}: {len(kept)} dialogues, {len(rows) - len(kept)} left out as blank")
            if part == "test":
                (flags.to / "longest3.txt").write_text("".join(longest3(d) + "\n" for d, _ in kept), encoding="utf-8")
                (flags.to / "references.txt").write_text("".join(s + "\n" for _, s in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
