# SPDX-License-Identifier: Apache-2.0
"""Who attends to whom, without the N x N matrix."""

import numpy as np

import regard

words = "the cat sat on the mat because it was warm".split()
rng = np.random.default_rng(1)
vectors = {word: rng.standard_normal(16).astype(np.float32) for word in sorted(set(words))}
vectors["it"] = vectors["cat"] + 0.3 * vectors["it"]  # so that there is something to see
x = np.stack([vectors[word] for word in words])[None, None]

parts = regard.attention_weights(x, x, mask=regard.mask.causal(), top_k=2, received="sum", entropy=True)
for row, word in enumerate(words):
    seen = ", ".join(
        f"{words[key]} {weight:.2f}"
        for key, weight in zip(parts.top_keys[0, 0, row], parts.top_weights[0, 0, row]) if key >= 0)
    print(f"{word:>8} looks at {seen}")
most = int(parts.received[0, 0].argmax())
print(f"most looked at: {words[most]}")
assert words[parts.top_keys[0, 0, 7, 0]] in ("it", "cat")

# The whole rows of a few queries, if they are wanted after all.
print(regard.attention_weights(x, x, mask=regard.mask.causal(), rows=[7]).round(2)[0, 0, 0])
