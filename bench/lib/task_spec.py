# SPDX-License-Identifier: Apache-2.0
"""A model and a batch of a task: sizes, the lengths of the examples, and what a step costs."""

import dataclasses
import functools
import random


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """See TaskCase of bench/native/train_tasks.cc. Examples have one length, unless `least` is given."""

    kind: str
    dim: int
    heads: int
    layers: int
    feed_forward: int
    vocab: int  # words, labels or items
    examples: int  # pictures, clips or users
    length: int  # the most tokens, frames or items
    decoder_layers: int = 0
    captions: int = 0
    least: int = 0  # the shortest example; 0: all are as long as the longest
    mean: float = 0.0  # about, of the lengths
    tail: bool = False  # most are short and few are long, as a geometric distribution has it; or normal
    dropout: float = 0.3
    scores: bool = False  # not a step, but every item for every user

    PLACES = 49

    @property
    def WIDTH(self):
        """Of a place of a picture, or of a frame of 20 joints: positions, the middle, motion, distances of pairs."""
        return 1280 if self.kind == "caption" else 60 + 3 + 60 + 190

    @functools.cached_property
    def lengths(self):
        """Of each caption, clip or history of the batch."""
        return self._drawn(self.examples * max(1, self.captions), seed=1)

    def _drawn(self, count, seed):
        if not self.least:
            return [self.length] * count
        draw = random.Random(seed)

        def one():
            if self.tail:
                return self.least + draw.expovariate(1 / (self.mean - self.least))
            return draw.normalvariate(self.mean, (self.length - self.least) / 4)

        return [min(self.length, max(self.least, round(one()))) for _ in range(count)]

    def flops(self):
        """Three products of each weight, and three and a half of the attention's forward pass. Padding counts nothing."""
        weights, pairs = self._weights_and_pairs()
        if self.scores:
            return 2 * weights + 4 * pairs * self.dim + 2 * self.examples * self.vocab * self.dim
        return 6 * weights + 3.5 * 4 * pairs * self.dim

    def _weights_and_pairs(self):
        """Products of a token and a weight, and queries and keys that meet, of all tokens of the batch."""
        d, ff = self.dim, self.feed_forward
        tokens = sum(self.lengths)
        squares = sum(n * n for n in self.lengths)
        layer = 4 * d * d + 2 * d * ff
        if self.kind == "caption":
            seen = self.examples * self.PLACES
            weights = seen * (self.WIDTH * d + self.layers * layer + self.decoder_layers * 2 * d * d)
            weights += tokens * (self.decoder_layers * (6 * d * d + 2 * d * ff) + self.vocab * d)
            pairs = seen * self.layers * self.PLACES + self.decoder_layers * (squares / 2 + tokens * self.PLACES)
        elif self.kind == "video":
            weights = tokens * (self.WIDTH * d + self.layers * layer + 2 * d * d) + self.examples * self.vocab * d
            pairs = self.layers * squares
        else:
            weights = tokens * (self.layers * layer + 2 * d)
            pairs = self.layers * squares / 2
        return weights, pairs
