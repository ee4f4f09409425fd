# SPDX-License-Identifier: Apache-2.0
"""The first call: attention on NumPy arrays, with a mask that says what it means."""

import numpy as np

import regard

rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 8, 256, 64), dtype=np.float32) for _ in range(3))

# Each token sees itself and the 63 before it.
mask = regard.mask.causal() & regard.mask.window(63, 0)
out = regard.attention(q, k, v, mask=mask)
print("out", out.shape, out.dtype)

# The bits of a row depend on what it sees and on nothing else: here, on half of the keys.
half = regard.attention(q[:, :, 128:], k[:, :, 64:], v[:, :, 64:], mask=mask)
print("same bits from fewer keys:", np.array_equal(half, out[:, :, 128:]))

print(regard.explain(q, k, v, mask=mask))
