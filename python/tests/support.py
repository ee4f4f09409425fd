# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python door share.

Each test file is a script: ctest runs it through tools/python_test.py, with the
package of the build folder in PYTHONPATH.
"""

import importlib
import os
import pathlib
import sys

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def main(path, needs=()):
    """Runs the tests of a file; skips, and says why, where a package is missing."""
    for name in ("numpy", "pytest", "regard", *needs):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, "regard._core"):
                raise
            print(f"skipped: {name} is not there; ./test builds and installs what these tests need")
            sys.exit(SKIPPED)
    import pytest

    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    arguments = ["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]
    sys.exit(pytest.main([path, *arguments]))


def plain_attention(q, k, v, *, scale=None, bias=None, keep=None, softcap=None, sinks=None):
    """The definition, in the type of its arguments: the truth in double, a yardstick in float."""
    import numpy as np

    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * q.dtype.type(
        q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = q.dtype.type(softcap) * np.tanh(scores / q.dtype.type(softcap))
    if bias is not None:
        scores = scores + bias.astype(q.dtype)
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        sinks = sinks.astype(q.dtype).reshape(1, -1, 1, 1)
        top = np.maximum(top, sinks)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - top)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhqk,bhkd->bhqd", weights, v)


def max_error(a, b):
    import numpy as np

    return float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0.0))
