#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unity_groups.py RECORD SIZE FILE...: which files may be compiled as one.

Prints a line for each group of 2 to SIZE files: their places in the list, from 0.
Two files go together if neither has a word that is a name in the other's anonymous
namespace, nor includes a header that declares such a name: then no name means
anything else than in a file by itself. Files that define macros stay alone, and so
do kernels. RECORD keeps the groups, so that a file that is changed or new moves no
other: what was together stays so as long as it may.
"""

import functools
import pathlib
import re
import sys

WORD = re.compile(r"[A-Za-z_]\w*")
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# What a line at the margin declares: a word before its arguments, members, value or end.
DECLARED = re.compile(r"(?<![\w:])([A-Za-z_]\w*)(?=\s*(?:[({=;\[]|:(?!:)|$))")
KEYWORDS = {"bool", "char", "const", "decltype", "double", "final", "float", "int", "namespace", "noexcept", "operator",
            "requires", "static_assert", "void"}
TEST = re.compile(r"(?:TYPED_)?TEST(?:_[FP])?\(|(?:INSTANTIATE|TYPED_TEST_SUITE)\w*\(")
ALONE = re.compile(r"^\s*#\s*(?:define|undef|pragma)\b|^using namespace|\bHWY_|hwy/", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ROOT = pathlib.Path(__file__).resolve().parents[1]


def declared(line):
    """What a line declares at the margin, as a list of one name or none."""
    if line[:1] in ("", " ", "}", "#") or TEST.match(line):
        return []
    return [word for word in DECLARED.findall(line) if word not in KEYWORDS][:1]


@functools.cache
def names_of_header(name):
    """What a header of the project and those that it includes declare."""
    for folder in ("include", "src", "tests"):
        path = ROOT / folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            names = {word for line in NOT_CODE.sub(" ", text).split("\n") for word in declared(line)}
            return names.union(*map(names_of_header, INCLUDE.findall(text)))
    return set()


class Source:
    def __init__(self, path):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        self.alone = bool(ALONE.search(text))
        # The end of the namespace is known by its comment.
        code = NOT_CODE.sub(lambda found: found[0] if found[0] == "// namespace" else " ", text)
        self.words = set(WORD.findall(code)).union(*map(names_of_header, INCLUDE.findall(text)))
        self.names = set()
        hidden = False
        for line in code.split("\n"):
            if line.startswith(("namespace {", "}  // namespace")):
                hidden = line[0] == "n"
            elif hidden or line.startswith("static "):
                self.names.update(declared(line))

    def fits(self, other):
        return not (self.alone or other.alone or self.names & other.words or other.names & self.words)


def main():
    record, size, paths = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    sources = {path: Source(path) for path in paths}
    before = [line.split("\t") for line in record.read_text().splitlines()] if record.exists() else []
    groups = []
    for known in before:
        group = []
        for path in known:
            if path in sources and all(sources[path].fits(sources[other]) for other in group):
                group.append(path)
        groups.append(group)
    placed = {path for group in groups for path in group}
    # Those that fit least choose first.
    misfits = {path: sum(not sources[path].fits(other) for other in sources.values()) for path in paths}
    for path in sorted(set(paths) - placed, key=lambda path: (-misfits[path], path)):
        for group in groups:
            if len(group) < size and all(sources[path].fits(sources[other]) for other in group):
                group.append(path)
                break
        else:
            groups.append([path])
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join("\t".join(group) + "\n" for group in groups if group))
    place = {path: str(i) for i, path in enumerate(paths)}
    for group in groups:
        if len(group) > 1:
            print(" ".join(place[path] for path in group))


if __name__ == "__main__":
    main()
