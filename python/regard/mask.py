# SPDX-License-Identifier: Apache-2.0
"""Which (query, key) pairs are visible: small parts, joined by `&`."""

from ._core import Mask, causal, documents, drop, keep, lengths, prefix, window

__all__ = ["Mask", "causal", "documents", "drop", "keep", "lengths", "prefix", "window"]
