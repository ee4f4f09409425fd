# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention for CPUs: exact, fused, the same bits everywhere.

    regard.attention(q, k, v, mask=regard.mask.causal())

On NumPy arrays, torch tensors, and whatever speaks DLPack, without a copy:

    attention            softmax(scale * q k^T + bias) v, with every option
    attention_backward   its gradients
    attention_weights    all weights, or the largest, what each key receives, entropy
    attention_with_weights   both in one pass
    attention_decode     one token after the other, with a KVCache
    MultiHeadAttention   the layer
    mask                 which pairs are visible
    explain              how a call would run
    view                 what every head looks at, as a page in the notebook
    load                 a pretrained model: texts as vectors, text that goes on, translations

For PyTorch there is regard.torch: scaled_dot_product_attention and
MultiheadAttention with gradients, and `with regard.torch.use():` for models that
exist already. `help(regard.attention)` tells every option.

>>> import numpy as np, regard
>>> x = np.random.default_rng(0).standard_normal((1, 8, 128, 64), np.float32)
>>> regard.attention(x, x, x, mask=regard.mask.causal()).shape
(1, 8, 128, 64)
"""

from typing import Any, NamedTuple

from . import mask
from ._core import (
    Explanation,
    KVCache,
    Mask,
    MultiHeadAttention,
    attention,
    attention_backward,
    attention_decode,
    attention_weights,
    attention_with_weights,
    explain,
    rms_norm,
    rotary_embedding,
    simd_target,
)
from ._core import version as _version
from ._models import LanguageModel, TextEncoder, TextTrace, Translator, load
from ._view import View, view

__version__ = _version()

__all__ = [
    "Explanation", "Gradients", "KVCache", "Mask", "MultiHeadAttention", "WeightsParts",
    "attention", "attention_backward", "attention_decode", "attention_weights",
    "attention_with_weights", "explain", "mask", "rms_norm", "rotary_embedding", "simd_target",
    "LanguageModel", "TextEncoder", "TextTrace", "Translator", "View", "load", "view",
]


class Gradients(NamedTuple):
    """What `attention_backward` gives; None where it was not wanted."""

    q: Any = None
    k: Any = None
    v: Any = None
    bias: Any = None
    alibi: Any = None
    sinks: Any = None
    head_scales: Any = None


class WeightsParts(NamedTuple):
    """What `attention_weights` gives of the weights; None where it was not asked for."""

    top_keys: Any = None
    top_weights: Any = None
    received: Any = None
    entropy: Any = None
