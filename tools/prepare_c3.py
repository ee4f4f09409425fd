#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""C3 as `regard train answer --answers choices` reads it: prepare_c3.py FROM TO

FROM holds c3-d-train.json, c3-m-train.json and the same of dev and test, or each
with .gz; they are read and not changed. TO gets train.jsonl, dev.jsonl and
test.jsonl, dialogues (d) before other texts (m).
"""

import argparse
import gzip
import json
import pathlib


def read(path):
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        return json.loads(gzip.decompress(packed.read_bytes()).decode("utf-8"))
    return json.loads(path.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, metavar="FROM")
    parser.add_argument("to", type=pathlib.Path, metavar="TO")
    flags = parser.parse_args()
    flags.to.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev", "test"):
        count = 0
        with (flags.to / f"{part}.jsonl").open("w", encoding="utf-8") as out:
            for kind in "dm":
                for lines, questions, _ in read(flags.source / f"c3-{kind}-{part}.json"):
                    for asked in questions:
                        row = {
                            "context": "\n".join(lines),
                            "question": asked["question"],
                            "choices": asked["choice"],
                            "answer": asked["answer"],
                        }
                        out.write(json.dumps(row, ensure_ascii=False) + "\n")
                        count += 1
        print(f"{part}: {count} questions")


if __name__ == "__main__":
    main()
