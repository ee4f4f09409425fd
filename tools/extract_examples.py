#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the C++ programs of the documents into sources that the build compiles.

    extract_examples.py OUT_DIR DOCUMENT...

Every fenced cpp block that has an `int main` becomes OUT_DIR/<document>_<n>.cc.
Where the block is followed by "Output:" and a fenced text block, that text goes
to OUT_DIR/<document>_<n>.txt: what the program must print. Prints the names, one
a line. Files that have not changed are left alone, so that nothing is rebuilt.
"""

import pathlib
import re
import sys

FENCE = re.compile(r"^```(\w*)\s*$")
OUTPUT_HEADS = {"Output:", "\u8f93\u51fa:", "\u8f93\u51fa\uff1a"}


def blocks(text):
    """Yields (kind, lines, line number); prose has kind None."""
    kind, lines, start = None, [], 1
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence:
            yield kind, lines, start
            kind = (fence[1] or "none") if kind is None else None
            lines, start = [], number + 1
        else:
            lines.append(line)
    if kind is not None:
        sys.exit(f"a fence that opens before line {start} is never closed")
    yield kind, lines, start


def examples(text):
    """Yields (source lines, line number, expected output or None)."""
    parts = list(blocks(text))
    for index, (kind, lines, start) in enumerate(parts):
        if kind != "cpp" or not any("int main" in line for line in lines):
            continue
        expected = None
        if index + 2 < len(parts):
            prose = [line for line in parts[index + 1][1] if line.strip()]
            following, output, _ = parts[index + 2]
            if following == "text":
                if len(prose) == 1 and prose[0].strip() in OUTPUT_HEADS:
                    expected = output
                elif not prose and output and output[0].strip() in OUTPUT_HEADS:
                    expected = output[1:]
        yield lines, start, expected


def write(path, text):
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    keep = set()
    for document in map(pathlib.Path, sys.argv[2:]):
        text = document.read_text(encoding="utf-8")
        for count, (lines, start, expected) in enumerate(examples(text), 1):
            stem = re.sub(r"\W", "_", document.stem)
            name = f"{stem}_{count}"
            # Errors of the compiler point at the document itself.
            head = f'#line {start} "{document}"\n'
            write(out / f"{name}.cc", head + "\n".join(lines) + "\n")
            keep.add(f"{name}.cc")
            if expected is not None:
                write(out / f"{name}.txt", "\n".join(expected) + "\n")
                keep.add(f"{name}.txt")
            print(name)
    for old in out.iterdir():
        if old.suffix in {".cc", ".txt"} and old.name not in keep:
            old.unlink()


if __name__ == "__main__":
    main()
