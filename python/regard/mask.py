# SPDX-License-Identifier: Apache-2.0
"""Which (query, key) pairs are visible: small parts, joined by `&`.

    causal() & window(511, 0) & lengths([7, 12])

A pair is visible when every part says so. Blocks that nobody sees cost nothing.

>>> import numpy as np, regard
>>> mask = regard.mask.causal() & regard.mask.lengths([2])
>>> q = k = np.zeros((1, 1, 3, 4), np.float32)
>>> regard.attention_weights(q, k, mask=mask)
array([[[[1. , 0. , 0. ],
         [0.5, 0.5, 0. ],
         [0.5, 0.5, 0. ]]]], dtype=float32)
"""

from ._core import Mask, causal, documents, drop, keep, lengths, prefix, window

__all__ = ["Mask", "causal", "documents", "drop", "keep", "lengths", "prefix", "window",
           "from_parts"]


def from_parts(parts):
    """The mask that has these `Mask.parts`.

    >>> from_parts((("causal", "top_left"), ("window", 3, 0)))
    causal('top_left') & window(3, 0)
    """
    joined = Mask()
    for name, *arguments in parts:
        if name not in __all__[1:-1]:
            raise ValueError(f"mask::from_parts: there is no part '{name}'")
        joined = joined & globals()[name](*arguments)
    return joined
