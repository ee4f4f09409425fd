# SPDX-License-Identifier: Apache-2.0
"""The models of `regard train classify`, `summarize` and `answer` in torch, with the same names of parameters.

They are written as a careful user of torch would: a batch is padded to its longest example, keys that are padding are
masked, and padding is left out before the loss. torch.nn has no rotary positions, so that attention is written out around
scaled_dot_product_attention, which is fused; where nothing is padded it gets no mask.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from .task_models import is_token, only_block_dropout, padded, without_padding

MAX_WORDS = 64  # of a sentence, the default of `regard train answer`


class Rotary(nn.Module):
    """Turns pairs (i, i + half) of the elements of a head by angles that grow with the place."""

    def __init__(self, length, head_dim):
        super().__init__()
        half = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angle = torch.arange(length, dtype=torch.float64)[:, None] * torch.pow(10000.0, -half)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()

    def forward(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)


def _heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def self_attention(attn, x, rotary, **options):
    """nn.MultiheadAttention with rotary positions, [batch, length, dim]."""
    qkv = functional.linear(x, attn.in_proj_weight, attn.in_proj_bias)
    qkv = qkv.unflatten(-1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [3, batch, heads, length, head_dim]
    q, k = rotary(qkv[:2])
    y = functional.scaled_dot_product_attention(q, k, qkv[2], **options)
    return attn.out_proj(y.transpose(1, 2).flatten(2))


def cross_attention(attn, x, memory, mask):
    d = attn.embed_dim
    q = functional.linear(x, attn.in_proj_weight[:d], attn.in_proj_bias[:d])
    kv = functional.linear(memory, attn.in_proj_weight[d:], attn.in_proj_bias[d:])
    q, k, v = (_heads(y, attn.num_heads) for y in (q, *kv.chunk(2, -1)))
    y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attn.out_proj(y.transpose(1, 2).flatten(2))


def feed_forward(layer, x):
    return layer.linear2(layer.activation(layer.linear1(x)))


class Encoder(nn.Module):
    """Pre-norm layers and the norm after them; with `shared`, one layer's weights for all."""

    def __init__(self, spec, dropout, shared=False):
        super().__init__()
        self.times = spec.layers if shared else 1
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                spec.dim, spec.heads, spec.feed_forward, dropout, functional.gelu, batch_first=True, norm_first=True
            )
            for _ in range(spec.layers // self.times)
        )
        self.norm = nn.LayerNorm(spec.dim)

    def encode(self, x, rotary, mask):
        for layer in list(self.layers) * self.times:
            x = x + layer.dropout1(self_attention(layer.self_attn, layer.norm1(x), rotary, attn_mask=mask))
            x = x + layer.dropout2(feed_forward(layer, layer.norm2(x)))
        return self.norm(x)


def key_mask(real):
    """What is_token() gives, as scaled_dot_product_attention wants it."""
    return None if real is None else real[:, None, None, :]


class Classifier(Encoder):
    """Rotary positions, the mean over the tokens, and a linear layer."""

    def __init__(self, spec, dropout, smoothing):
        super().__init__(spec, dropout)
        self.spec, self.rate, self.smoothing = spec, dropout, smoothing
        self.embedding = nn.Embedding(spec.vocab, spec.dim)
        self.head = nn.Linear(spec.dim, spec.labels)
        self.rotary = Rotary(max(spec.lengths), spec.dim // spec.heads)
        only_block_dropout(self)

    def batch(self, data):
        lengths = self.spec.lengths
        return {
            "texts": padded(data["texts"], lengths),
            "real": is_token(self.spec, lengths),
            "lengths": torch.tensor(lengths)[:, None],
            "labels": data["labels"],
        }

    def forward(self, data):
        real = data["real"]
        x = functional.dropout(self.embedding(data["texts"]) * math.sqrt(self.spec.dim), self.rate)
        x = self.encode(x, self.rotary, key_mask(real))
        if real is not None:
            x = x * real[..., None]
        pooled = functional.dropout(x.sum(1) / data["lengths"], self.rate)
        return functional.cross_entropy(self.head(pooled), data["labels"], label_smoothing=self.smoothing)


class _Decoder(nn.Module):
    def __init__(self, spec, dropout):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                spec.dim, spec.heads, spec.feed_forward, dropout, functional.gelu, batch_first=True, norm_first=True
            )
            for _ in range(spec.decoder_layers)
        )
        self.norm = nn.LayerNorm(spec.dim)

    def decode(self, x, rotary, memory, mask):
        for layer in self.layers:
            x = x + layer.dropout1(self_attention(layer.self_attn, layer.norm1(x), rotary, is_causal=True))
            x = x + layer.dropout2(cross_attention(layer.multihead_attn, layer.norm2(x), memory, mask))
            x = x + layer.dropout3(feed_forward(layer, layer.norm3(x)))
        return self.norm(x)


class _Copy(nn.Module):
    """One more head from the decoder to the source, and a gate (See et al., 2017)."""

    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, 1)


class Summarizer(nn.Module):
    """Encoder and decoder with one table; a token is written, or copied from the source."""

    def __init__(self, spec, dropout, smoothing):
        super().__init__()
        self.spec, self.rate, self.smoothing = spec, dropout, smoothing
        self.embedding = nn.Embedding(spec.vocab, spec.dim)
        self.encoder = Encoder(spec, dropout)
        self.decoder = _Decoder(spec, dropout)
        self.copy = _Copy(spec.dim)
        head_dim = spec.dim // spec.heads
        self.rotary = Rotary(max(spec.lengths), head_dim)
        self.target_rotary = Rotary(max(spec.part_lengths), head_dim)
        only_block_dropout(self)

    def batch(self, data):
        s = self.spec
        return {
            "source": padded(data["source"], s.lengths),
            "real": is_token(s, s.lengths),
            "target": padded(data["target"], s.part_lengths),
            "said": is_token(s, s.part_lengths),
            "target_out": data["target_out"],
        }

    def embed(self, tokens):
        return functional.dropout(self.embedding(tokens) * math.sqrt(self.spec.dim), self.rate)

    def forward(self, data):
        mask = key_mask(data["real"])
        memory = self.encoder.encode(self.embed(data["source"]), self.rotary, mask)
        x = self.decoder.decode(self.embed(data["target"]), self.target_rotary, memory, mask)
        log_p = self.log_probabilities(x, memory, data)
        losses = (1 - self.smoothing) * log_p.gather(-1, data["target_out"][:, None])[:, 0]
        return -(losses + self.smoothing * log_p.mean(-1)).mean()

    def log_probabilities(self, x, memory, data):
        """Of all words: g softmax(scores) + (1 - g) the attention to the places that hold the word."""
        places = self.copy.query(x) @ self.copy.key(memory).transpose(1, 2) / math.sqrt(self.spec.dim)
        if data["real"] is not None:
            places = places.masked_fill(~data["real"][:, None, :], -math.inf)
        source = data["source"][:, None, :].expand_as(places)
        x, places, source = (without_padding(rows, data["said"]) for rows in (x, places, source))
        gate = self.copy.gate(x).sigmoid()
        p = (x @ self.embedding.weight.T).softmax(-1) * gate
        p.scatter_add_(-1, source, places.softmax(-1) * (1 - gate))
        return p.add_(1e-20).log()  # in place: p has the size of the vocabulary


class Answerer(Encoder):
    """Reads sentences: each the mean of its words times their places. The question comes first, and answers."""

    def __init__(self, spec, dropout, smoothing):
        super().__init__(spec, dropout, shared=True)
        self.spec, self.rate, self.smoothing = spec, dropout, smoothing
        self.embedding = nn.Embedding(spec.vocab, spec.dim)
        self.places = nn.Embedding(MAX_WORDS, spec.dim)
        self.kinds = nn.Embedding(2, spec.dim)
        self.sentence_norm = nn.LayerNorm(spec.dim)
        self.head = nn.Linear(spec.dim, spec.labels)
        self.rotary = Rotary(max(spec.lengths), spec.dim // spec.heads)
        only_block_dropout(self)

    def batch(self, data):
        s = self.spec
        words = torch.tensor(s.part_lengths)
        # Sentences are read by themselves and then put where they stand, so that no word is looked up for padding.
        which = padded(torch.arange(len(words)), s.lengths)
        return {
            "words": padded(data["words"], s.part_lengths),
            "is_word": (torch.arange(words.max()) < words[:, None])[..., None],
            "counts": words[:, None],
            "which": which,
            "kind": (torch.arange(which.shape[1]) > 0).long(),
            "real": is_token(s, s.lengths),
            "labels": data["labels"],
        }

    def forward(self, data):
        words = self.embedding(data["words"]) * self.places.weight[: data["words"].shape[1]]
        means = (words * data["is_word"]).sum(1) / data["counts"]
        sentences = functional.embedding(data["which"], self.sentence_norm(means))
        x = self.kinds(data["kind"]) + functional.dropout(sentences, self.rate)
        x = self.encode(x, self.rotary, key_mask(data["real"]))
        pooled = functional.dropout(x[:, 0], self.rate)
        return functional.cross_entropy(self.head(pooled), data["labels"], label_smoothing=self.smoothing)


MODELS = {"classify": Classifier, "summarize": Summarizer, "answer": Answerer}
