#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Splits pairs of sentences into train, valid and test, always in the same way.

    split_pairs.py PAIRS.tsv FOLDER [--test 0.03] [--valid 0.02]

PAIRS.tsv has the source, a tab, the target, perhaps a tab and more, which is
left out; it may be gzipped. A pair falls where a hash of its source sentence
(64-bit FNV-1a over UTF-8, modulo 10000) puts it, so all translations of a
sentence stay together, and neither order nor machine matters. Pairs of the
training part whose target stands in the valid or test part, too, are dropped:
no side of a test pair is seen in training, in either direction. Repeated pairs
are kept once. Writes train.tsv, valid.tsv and test.tsv.
"""

import argparse
import gzip
import pathlib

PARTS = 10000


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def read_pairs(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
        for line in lines:
            fields = [field.strip() for field in line.rstrip("\r\n").split("\t")]
            if len(fields) >= 2 and fields[0] and fields[1]:
                yield fields[0], fields[1]


def split(pairs, test, valid):
    parts = {"test": [], "valid": [], "train": []}
    for pair in dict.fromkeys(pairs):
        place = fnv1a(pair[0]) % PARTS
        name = "test" if place < test * PARTS else "valid" if place < (test + valid) * PARTS else "train"
        parts[name].append(pair)
    seen = {target for name in ("test", "valid") for _, target in parts[name]}
    parts["train"] = [pair for pair in parts["train"] if pair[1] not in seen]
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("pairs", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--test", type=float, default=0.03)
    parser.add_argument("--valid", type=float, default=0.02)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in split(read_pairs(args.pairs), args.test, args.valid).items():
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (args.folder / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(pairs)} pairs")


if __name__ == "__main__":
    main()
