# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention for CPUs: exact, fused, the same bits everywhere."""

from typing import Any, NamedTuple

from . import mask
from ._core import Mask, attention, attention_backward, simd_target
from ._core import version as _version

__version__ = _version()


class Gradients(NamedTuple):
    """What `attention_backward` gives; None where it was not wanted."""

    q: Any = None
    k: Any = None
    v: Any = None
    bias: Any = None
    alibi: Any = None
    sinks: Any = None
    head_scales: Any = None
