#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a document, as a reader would who types them in.

    run_document.py DOCUMENT

All ```python blocks run in order and see each other's names. Where "Output:" and
a fenced text block follow, the block must print that text; blanks at the ends of
lines are not compared. A block that is not to be run has no language.
"""

import contextlib
import difflib
import io
import pathlib
import sys

from documents import blocks, output_after


def tidy(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def main():
    document = pathlib.Path(sys.argv[1])
    parts = blocks(document.read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    for index, (kind, lines, start) in enumerate(parts):
        if kind != "python":
            continue
        # Blank lines before it, so that a traceback points at the document.
        code = compile("\n" * (start - 1) + "\n".join(lines), str(document), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)  # pylint: disable=exec-used
        expected = output_after(parts, index)
        if expected is not None and tidy("\n".join(expected)) != tidy(printed.getvalue()):
            print("\n".join(difflib.unified_diff(tidy("\n".join(expected)), tidy(printed.getvalue()),
                                                 "the document", "the block", lineterm="")))
            sys.exit(f"{document}:{start}: the document does not show what this block prints")


if __name__ == "__main__":
    main()
