# SPDX-License-Identifier: Apache-2.0
"""Runs a program tests/<folder>/<name>_driver.cc on tensors. Ends the test as skipped where torch is not there."""

import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
# Read when torch is loaded. oneDNN's own AMX code dies on some machines that have it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; this test compares with torch and safetensors")
    sys.exit(SKIPPED)


def run_driver(name, tensors, options):
    """What the driver makes of {name: tensor} and {name: option}, as {name: tensor}."""
    program = pathlib.Path(os.environ.get("REGARD_BINARY_DIR", "build")) / "bin" / name
    with tempfile.TemporaryDirectory() as folder:
        source, target = (pathlib.Path(folder) / file for file in ("in.safetensors", "out.safetensors"))
        save_file({key: t.detach().contiguous().clone() for key, t in tensors.items()}, source,
                  metadata={key: str(value) for key, value in options.items()})
        done = subprocess.run([program, source, target], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return load_file(target)
