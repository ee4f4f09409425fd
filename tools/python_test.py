#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a Python test with the interpreter of build/venv.

    python_test.py VENV SCRIPT [ARGS...]

Ends with 77, which ctest reads as "skipped", where the packages that the tests
compare with are not installed. ./test installs them.
"""

import os
import pathlib
import sys

SKIPPED = 77


def main():
    venv, script = map(pathlib.Path, sys.argv[1:3])
    if "__main__" not in script.read_text(encoding="utf-8"):
        sys.exit(f"{script} would run nothing: it has no __main__ part")
    if not (venv / ".complete").exists():
        print(f"skipped: {venv} is not there; ./test makes it where PyPI can be reached")
        sys.exit(SKIPPED)
    python = str(venv / "bin" / "python")
    os.execv(python, [python, str(script), *sys.argv[3:]])


if __name__ == "__main__":
    main()
