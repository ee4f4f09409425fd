# SPDX-License-Identifier: Apache-2.0
"""A model and a batch of a task: sizes, the lengths of the examples, and what a step costs."""

import dataclasses
import functools
import random


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """See TaskCase of bench/native/train_tasks.h. Examples have one length, unless `least` is given."""

    kind: str
    dim: int
    heads: int
    layers: int
    feed_forward: int
    vocab: int  # words or items; of clips the labels
    examples: int  # pictures, clips, users, texts or stories
    length: int  # the most tokens, frames, items or sentences
    decoder_layers: int = 0
    captions: int = 0
    labels: int = 0  # of texts, or the answers that there are
    part_length: int = 0  # the most tokens of a summary, or words of a sentence
    least: int = 0  # the shortest example; 0: all are as long as the longest
    mean: float = 0.0  # about, of the lengths
    tail: bool = False  # most are short and few are long, as a geometric distribution has it; or normal
    dropout: float = 0.3
    scores: bool = False  # not a step, but every item for every user

    PLACES = 49
    JOINTS = 20
    LEAST_WORDS = 3  # of a sentence of a story

    @property
    def WIDTH(self):
        """Of a place of a picture, or of a frame of 20 joints: positions, the middle, motion, distances of pairs."""
        joints = self.JOINTS
        return 1280 if self.kind == "caption" else 3 * joints + 3 + 3 * joints + joints * (joints - 1) // 2

    @functools.cached_property
    def lengths(self):
        """Of each caption, clip, history, text or story of the batch."""
        return self._drawn(self.examples * max(1, self.captions), seed=1)

    @functools.cached_property
    def part_lengths(self):
        """Of each summary, spread as the texts are; or of each sentence of all stories."""
        if self.kind == "summarize":
            shrink = self.part_length / self.length
            return [max(2, round(n * shrink)) for n in self._drawn(self.examples, seed=2)]
        if self.kind == "answer":
            draw = random.Random(2)
            return [draw.randint(self.LEAST_WORDS, self.part_length) for _ in range(sum(self.lengths))]
        return []

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
        elif self.kind == "recommend":
            weights = tokens * (self.layers * layer + 2 * d)
            pairs = self.layers * squares / 2
        elif self.kind == "summarize":
            said = sum(self.part_lengths)
            crossed = sum(n * m for n, m in zip(self.lengths, self.part_lengths))
            weights = tokens * (self.layers * layer + self.decoder_layers * 2 * d * d + d * d)
            weights += said * (self.decoder_layers * (6 * d * d + 2 * d * ff) + d * d + self.vocab * d)
            pairs = self.layers * squares + self.decoder_layers * crossed
            pairs += self.decoder_layers * sum(m * m for m in self.part_lengths) / 2
            pairs += crossed / 2  # the head that copies has scores, but no values
        else:  # classify, answer
            weights = tokens * self.layers * layer + self.examples * self.labels * d
            pairs = self.layers * squares
        return weights, pairs
