#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an example and compares what it prints with what its document says.

    run_example.py PROGRAM [EXPECTED]

EXPECTED is a file; where it does not exist, only the exit code counts. Blanks at
the ends of lines are not compared.
"""

import difflib
import pathlib
import subprocess
import sys


def tidy(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def main():
    done = subprocess.run(sys.argv[1:2], stdout=subprocess.PIPE, check=False,
                          stdin=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"the example ended with {done.returncode}")
    if len(sys.argv) < 3 or not pathlib.Path(sys.argv[2]).exists():
        return
    said = tidy(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    printed = tidy(done.stdout)
    if said != printed:
        print("\n".join(difflib.unified_diff(
            said, printed, "the document", "the program", lineterm="")))
        sys.exit("the document does not show what its example prints")


if __name__ == "__main__":
    main()
