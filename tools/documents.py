# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a document, and what it says that they print."""

import re

FENCE = re.compile(r"^```(\w*)\s*$")
OUTPUT_HEADS = {"Output:", "\u8f93\u51fa:", "\u8f93\u51fa\uff1a"}


def blocks(text):
    """(kind, lines, number of the first line) in order; prose has kind None."""
    found = []
    kind, lines, start = None, [], 1
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence:
            found.append((kind, lines, start))
            kind = (fence[1] or "none") if kind is None else None
            lines, start = [], number + 1
        else:
            lines.append(line)
    if kind is not None:
        raise ValueError(f"a fence that opens before line {start} is never closed")
    found.append((kind, lines, start))
    return found


def output_after(parts, index):
    """What block `index` must print: the text block after "Output:", or None."""
    if index + 2 >= len(parts):
        return None
    prose = [line.strip() for line in parts[index + 1][1] if line.strip()]
    kind, lines, _ = parts[index + 2]
    says_so = len(prose) == 1 and prose[0] in OUTPUT_HEADS
    return lines if kind == "text" and says_so else None
