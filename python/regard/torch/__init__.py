# SPDX-License-Identifier: Apache-2.0
"""regard for PyTorch: change one line, get the same numbers sooner, in less memory."""

from ._functional import scaled_dot_product_attention

__all__ = ["scaled_dot_product_attention"]
