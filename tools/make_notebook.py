#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a notebook of a document: NAME.md becomes NAME.ipynb beside it.

    make_notebook.py [--check] DOCUMENT...

Python blocks become code cells, and the text that the document shows as their
output becomes the output of the cell: the tests run the blocks and compare
(run_document.py). Everything else becomes Markdown; C++ programs fold. --check
writes nothing and fails where a notebook is not what its document makes.
"""

import json
import pathlib
import re
import sys

from documents import OUTPUT_HEADS, blocks, output_after


def lines_of(text):
    return text.strip("\n").splitlines(keepends=True)


def markdown_cells(text, notebooks):
    """A cell for each heading. Links to a document that has a notebook go there."""
    for stem in notebooks:
        text = text.replace(f"]({stem}.md)", f"]({stem}.ipynb)")
    for part in re.split(r"^(?=#+ )", text, flags=re.M):
        if part.strip():
            yield {"cell_type": "markdown", "metadata": {}, "source": lines_of(part)}


def fenced(kind, lines):
    return "\n".join(["```" + kind.replace("none", ""), *lines, "```"])


def cells_of(text, notebooks):
    parts = blocks(text)
    prose, cells, count, shown = "", [], 0, set()
    for index, (kind, lines, _) in enumerate(parts):
        output = output_after(parts, index)
        if index in shown:  # the output of the block before, shown with it
            continue
        if kind == "python":
            cells += markdown_cells(prose, notebooks)
            prose, count = "", count + 1
            cells.append({
                "cell_type": "code", "execution_count": count, "metadata": {},
                "source": lines_of("\n".join(lines)),
                "outputs": [] if output is None else [{
                    "name": "stdout", "output_type": "stream",
                    "text": [line + "\n" for line in output]}]})
        elif kind == "cpp" and output is not None:
            (head,) = (line for line in parts[index + 1][1] if line.strip() in OUTPUT_HEADS)
            prose += "\n".join(["<details><summary>C++</summary>", "", fenced("cpp", lines), "",
                                head, "", fenced("text", output), "", "</details>", ""])
        else:
            prose += "\n".join(lines) if kind is None else fenced(kind, lines)
            prose += "\n"
        if kind in ("python", "cpp") and output is not None:
            shown |= {index + 1, index + 2}
    return cells + list(markdown_cells(prose, notebooks))


def notebook(text, notebooks):
    cells = cells_of(text, notebooks)
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    book = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}},
        "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main():
    check = "--check" in sys.argv[1:]
    documents = [pathlib.Path(name) for name in sys.argv[1:] if name != "--check"]
    stems = [document.stem for document in documents]
    for document in documents:
        text = notebook(document.read_text(encoding="utf-8"), stems)
        path = document.with_suffix(".ipynb")
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not what {document.name} makes; tools/make_notebook.py {document} mends it")


if __name__ == "__main__":
    main()
