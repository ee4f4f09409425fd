# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of every document run, and print what the document says."""

import pathlib
import re
import subprocess
import sys

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import pytest

TOOLS = support.SOURCE / "tools"
DOCUMENTS = sorted(path for folder in (".", "docs", "docs/adr", "models/en-zh")
                   for path in (support.SOURCE / folder).glob("*.md")
                   if "```python" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_blocks_run(document: pathlib.Path, tmp_path):
    text = document.read_text(encoding="utf-8")
    for package in ("onnx", "transformers"):
        if re.search(rf"^(from|import) {package}\b", text, re.MULTILINE):
            pytest.importorskip(package)
    done = subprocess.run([sys.executable, TOOLS / "run_document.py", document], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_documents():
    assert {"README.md", "README.zh-CN.md", "python.md", "bf16.md", "multi-head-attention.md",
            "multi-head-attention.zh-CN.md"} <= {path.name for path in DOCUMENTS}
