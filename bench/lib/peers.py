# SPDX-License-Identifier: Apache-2.0
"""Which peers are here, in which version, and how to get them."""

import importlib
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import venv

# By package name only: where they come from is pip's own setting.
PACKAGES = ("torch==2.13.0", "numpy", "onnx", "onnxruntime", "ctranslate2", "xllamacpp", "transformers==5.22.2", "gguf",
            "openvino", "nncf")
MODULES = {
    "torch": ("torch",),
    "onnxruntime": ("numpy", "onnx", "onnxruntime"),
    "openblas": (),
    "ctranslate2": ("numpy", "ctranslate2"),
    "llamacpp": ("xllamacpp",),
    "openvino": ("numpy", "onnx", "openvino", "nncf"),
    "transformers": ("torch", "transformers", "gguf"),
}
USUAL = ("torch", "onnxruntime", "openblas")


def venv_python(build_dir):
    """The Python of the peers' virtual environment, whether it exists or not."""
    return pathlib.Path(build_dir).resolve() / "peers-venv" / "bin" / "python3"


def install(build_dir):
    """Makes the virtual environment below the build folder and installs the peers in it."""
    python = venv_python(build_dir)
    folder = python.parent.parent
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True)
    print("installing " + ", ".join(PACKAGES), flush=True)
    command = [os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("bench: pip could not install the peers; its own words are above")


def enter_venv(build_dir):
    """Starts this program again under the peers' Python, if there is one."""
    python = venv_python(build_dir)
    if python.exists() and pathlib.Path(sys.prefix).resolve() != python.parent.parent:
        os.execv(python, [os.fspath(python), *sys.argv])


def missing(name):
    """Why a peer cannot be used, or None."""
    for module in MODULES[name]:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"not installed ({error}); ./run bench --peers installs it"
    return None


def versions(names):
    """{package: version} of what is installed."""
    found = {}
    for name in names:
        for module in MODULES[name]:
            try:
                found[module] = importlib.metadata.version(module)
            except importlib.metadata.PackageNotFoundError:
                pass
    return found
