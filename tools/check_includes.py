#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every source against the rules that no compiler checks.

- An #include in include/ and src/ must be allowed by the table "who may include
  whom" in docs/architecture.md: the folders of the project, and the libraries
  from outside.
- Sources are ASCII, but for a grammar of Chinese, and start with an SPDX line (after
  #! where there is one).
- A file much longer than 600 lines earns a warning.

    check_includes.py [ROOT]
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(
    sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
).resolve()
SOURCE_SUFFIXES = {".h", ".c", ".cc", ".py", ".sh", ".cmake"}
SOURCE_NAMES = {"CMakeLists.txt", "run", "test"}
LONG = 700
CHINESE = pathlib.Path("tools/write_phrases.py")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
# Libraries are known by the first part of the path; these two are the system's.
SYSTEM = {"sys", "linux"}


def read_table(path):
    """The rows of the table whose first header is `folder`: name -> allowed."""
    table = {}
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == "folder":
            inside = True
            folders = cells.index("may include")
            libraries = cells.index("libraries")
        elif inside and not set(cells[0]) <= set("-: "):
            table[cells[0]] = (
                set(re.findall(r"\w+", cells[folders])),
                set(re.findall(r"\w+", cells[libraries])),
            )
    return table


def source_files():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.splitlines()]
    else:  # an unpacked archive
        paths = [
            p for p in ROOT.rglob("*")
            if "build" not in p.relative_to(ROOT).parts[:1]
        ]
    return sorted(
        p for p in paths
        if p.is_file() and (p.suffix in SOURCE_SUFFIXES or p.name in SOURCE_NAMES)
    )


def folder_of(path):
    """The folder whose row of the table rules the file, or None."""
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("include", "regard") and len(parts) > 3:
        return parts[2]
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return None


def check_include(folder, quote, name, table):
    """Says what is wrong with an include, or returns None."""
    folders, libraries = table[folder]
    parts = name.split("/")
    head = parts[1] if parts[0] == "regard" and len(parts) > 2 else parts[0]
    if quote == '"' and name == "regard/regard.h":
        return "the library must not include its own summary header"
    if name == "regard/c.h":
        head = "capi"  # its only header, and not below a folder
    if head in table and len(parts) > 1:
        if head != folder and head not in folders:
            return f"{folder} may not include {head}"
    elif len(parts) > 1 and head not in SYSTEM and head not in libraries:
        return f"{folder} may not use the library {head}"
    elif quote == '"' and len(parts) == 1:
        return "a project header is named with its folder"
    return None


def check_file(path, table):
    name = path.relative_to(ROOT)
    raw = path.read_bytes()
    lines = raw.decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.isascii() and name != CHINESE:
            yield f"{name}:{number}: not ASCII"
            break
    first = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
    if not first or "SPDX-License-Identifier: Apache-2.0" not in first[0]:
        yield f"{name}:1: the first line must be the SPDX line"
    if len(lines) > LONG:
        print(f"warning: {name} has {len(lines)} lines; cut it along a natural line")
    folder = folder_of(path)
    if folder is None or path.suffix not in {".h", ".cc"}:
        return
    if folder not in table:
        yield f"{name}: folder {folder} has no row in docs/architecture.md"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            wrong = check_include(folder, match[1], match[2], table)
            if wrong:
                yield f"{name}:{number}: {wrong}: {line.strip()}"


def main():
    table = read_table(ROOT / "docs" / "architecture.md")
    if "core" not in table:
        sys.exit("docs/architecture.md has no table with the columns "
                 "folder, may include, libraries")
    wrong = [w for path in source_files() for w in check_file(path, table)]
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
