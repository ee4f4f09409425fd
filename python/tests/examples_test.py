# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/python run and end well."""

import pathlib
import subprocess
import sys

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import pytest

SCRIPTS = sorted((support.SOURCE / "examples" / "python").glob("*.py"))
ARGUMENTS = {"train_long": ["256", "4"]}  # small: it is the 16384 by default that takes long


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_example_runs(script: pathlib.Path):
    if "transformers" in script.read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, script, *ARGUMENTS.get(script.stem, [])],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples():
    assert len(SCRIPTS) >= 4
