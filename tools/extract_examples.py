#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the C and C++ programs of the documents into sources that the build compiles.

    extract_examples.py OUT_DIR DOCUMENT...

Every fenced cpp block that has an `int main` becomes OUT_DIR/<document>_<n>.cc,
and so does one that has an `#include`, with an empty main: it must compile. A
fenced c block becomes <document>_<n>.c in the same way.
Where the block is followed by "Output:" and a fenced text block, that text goes
to OUT_DIR/<document>_<n>.txt: what the program must print. Prints the names of
the sources, one a line. Files that have not changed are left alone, so that nothing is rebuilt.
"""

import pathlib
import re
import sys

from documents import blocks, output_after

SUFFIXES = {"cpp": (".cc", "int main() {}"), "c": (".c", "int main(void) { return 0; }")}


def examples(text):
    """Yields (suffix, source lines, line number, expected output or None)."""
    parts = blocks(text)
    for index, (kind, lines, start) in enumerate(parts):
        if kind not in SUFFIXES:
            continue
        suffix, empty_main = SUFFIXES[kind]
        if any("int main" in line for line in lines):
            yield suffix, lines, start, output_after(parts, index)
        elif any(line.startswith("#include") for line in lines):
            yield suffix, [*lines, empty_main], start, None


def write(path, text):
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    keep = set()
    for document in map(pathlib.Path, sys.argv[2:]):
        try:
            found = list(examples(document.read_text(encoding="utf-8")))
        except ValueError as error:
            sys.exit(f"{document}: {error}")
        for count, (suffix, lines, start, expected) in enumerate(found, 1):
            stem = re.sub(r"\W", "_", document.stem)
            name = f"{stem}_{count}"
            # Errors of the compiler point at the document itself.
            head = f'#line {start} "{document}"\n'
            write(out / (name + suffix), head + "\n".join(lines) + "\n")
            keep.add(name + suffix)
            if expected is not None:
                write(out / f"{name}.txt", "\n".join(expected) + "\n")
                keep.add(f"{name}.txt")
            print(name + suffix)
    for old in out.iterdir():
        if old.suffix in {".c", ".cc", ".txt"} and old.name not in keep:
            old.unlink()


if __name__ == "__main__":
    main()
