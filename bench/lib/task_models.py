# SPDX-License-Identifier: Apache-2.0
"""The models of `regard train caption`, `video` and `recommend` in torch, with the same names of parameters.

They are written as a careful user of torch would: layers of torch.nn, the captions of a picture share what the encoder
makes of it, and a batch is padded to its longest example. Padding stands at the end, which no token before it sees under
a causal mask, and is left out before the loss, so that no word of the vocabulary gets a score there.
"""

import math

import torch
from torch import nn
from torch.nn import functional


def sinusoids(length, dim):
    place = torch.arange(length, dtype=torch.float64)[:, None]
    angle = place * torch.pow(10000.0, -torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float()


def padded(flat, lengths):
    """[sequences, longest] of sequences that stand one after the other."""
    return nn.utils.rnn.pad_sequence(flat.split(lengths), batch_first=True)


def is_token(spec, lengths):
    """[sequences, longest]: what is no padding; None where nothing is padded."""
    if not spec.least:
        return None
    lengths = torch.tensor(lengths)
    return torch.arange(lengths.max()) < lengths[:, None]


def without_padding(x, real):
    """[tokens, ...], as the sequences stand one after the other."""
    return x.flatten(0, 1) if real is None else x[real]


def only_block_dropout(model):
    """Drops what regard drops by --dropout: embeddings and blocks, not attention weights nor what is inside a block."""
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            module.dropout.p = 0.0
    return model


def _encoder_layers(spec, dropout):
    return nn.ModuleList(
        nn.TransformerEncoderLayer(spec.dim, spec.heads, spec.feed_forward, dropout, batch_first=True, norm_first=True)
        for _ in range(spec.layers)
    )


class _Stack(nn.Module):
    """Layers and the norm after them, under the names `layers` and `norm`."""

    def __init__(self, layers, dim):
        super().__init__()
        self.layers, self.norm = layers, nn.LayerNorm(dim)


class Captioner(nn.Module):
    def __init__(self, spec, dropout, smoothing):
        super().__init__()
        self.spec, self.rate, self.smoothing = spec, dropout, smoothing
        d = spec.dim
        self.picture = nn.Linear(spec.WIDTH, d)
        self.places = nn.Embedding(spec.PLACES, d)
        self.target_embedding = nn.Embedding(spec.vocab, d)
        self.encoder = _Stack(_encoder_layers(spec, dropout), d)
        self.decoder = _Stack(
            nn.ModuleList(
                nn.TransformerDecoderLayer(d, spec.heads, spec.feed_forward, dropout, batch_first=True, norm_first=True)
                for _ in range(spec.decoder_layers)
            ),
            d,
        )
        longest = max(spec.lengths)
        self.sinusoids = sinusoids(longest, d)
        self.causal = nn.Transformer.generate_square_subsequent_mask(longest)
        only_block_dropout(self)

    def batch(self, data):
        lengths = self.spec.lengths
        return data | {"target": padded(data["target"], lengths), "real": is_token(self.spec, lengths)}

    def forward(self, data):
        s = self.spec
        root = math.sqrt(s.dim)
        seen = self.picture(data["features"].view(s.examples, s.PLACES, s.WIDTH)) + self.places.weight * root
        memory = functional.dropout(seen, self.rate)
        for layer in self.encoder.layers:
            memory = layer(memory)
        memory = self.encoder.norm(memory)
        x = self.target_embedding(data["target"]) * root + self.sinusoids
        x = functional.dropout(x, self.rate)
        for layer in self.decoder.layers:
            y = layer.norm1(x)
            y = layer.self_attn(y, y, y, attn_mask=self.causal, is_causal=True, need_weights=False)[0]
            x = x + layer.dropout1(y)
            # All captions of a picture are queries to its places: the memory is not repeated for each.
            y = layer.norm2(x).reshape(s.examples, -1, s.dim)
            y = layer.multihead_attn(y, memory, memory, need_weights=False)[0].reshape(x.shape)
            x = x + layer.dropout2(y)
            y = layer.linear2(layer.activation(layer.linear1(layer.norm3(x))))
            x = x + layer.dropout3(y)
        scores = without_padding(self.decoder.norm(x), data["real"]) @ self.target_embedding.weight.T
        return functional.cross_entropy(scores, data["target_out"], label_smoothing=self.smoothing)


class _Pooling(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.query = nn.Parameter(torch.empty(1, spec.dim).uniform_(-0.1, 0.1))
        self.attn = nn.MultiheadAttention(spec.dim, spec.heads, batch_first=True)


class VideoClassifier(nn.Module):
    """Reads joints, as a training does that draws other clips in each step: tokens are made of them within the step."""

    def __init__(self, spec, dropout, smoothing):
        super().__init__()
        self.spec, self.rate, self.smoothing = spec, dropout, smoothing
        self.input = nn.Linear(spec.WIDTH, spec.dim)
        self.embedding = nn.Embedding(1, spec.dim)
        self.layers = _encoder_layers(spec, dropout)
        self.norm = nn.LayerNorm(spec.dim)
        self.pooling = _Pooling(spec)
        self.head = nn.Linear(spec.dim, spec.vocab)
        self.sinusoids = sinusoids(spec.length, spec.dim)
        only_block_dropout(self)

    def batch(self, data):
        s = self.spec
        first, second = torch.triu_indices(s.JOINTS, s.JOINTS, 1)
        self.pairs = first * s.JOINTS + second
        return data | {"clips": data["clips"].view(s.examples, s.length, s.JOINTS, 3)}

    def tokens(self, data):
        """Joints from their middle, the middle, what changes until the next frame, and all distances, standardised."""
        clips = data["clips"]
        away = clips - clips.mean(2, keepdim=True)
        size = away.square().sum((2, 3)).div_(self.spec.JOINTS).mean(1).sqrt()
        x = (clips - clips.mean((1, 2), keepdim=True)) / size[:, None, None, None]
        middle = x.mean(2, keepdim=True)
        change = functional.pad(x[:, 1:] - x[:, :-1], (0, 0, 0, 0, 0, 1))
        # The quickest of five ways; without a product, which would cancel where joints are near each other.
        distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").flatten(2)[:, :, self.pairs]
        made = torch.cat([(x - middle).flatten(2), middle.flatten(2), change.flatten(2), distances], -1)
        return made.sub_(data["mean"]).mul_(data["scale"])

    def forward(self, data):
        s = self.spec
        place = self.embedding.weight * math.sqrt(s.dim) + self.sinusoids
        place = functional.dropout(place.expand(s.examples, s.length, s.dim), self.rate)
        x = place + self.input(self.tokens(data))
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        query = self.pooling.query.expand(s.examples, 1, s.dim)
        pooled = self.pooling.attn(query, x, x, need_weights=False)[0][:, 0]
        scores = self.head(functional.dropout(pooled, self.rate))
        return functional.cross_entropy(scores, data["labels"], label_smoothing=self.smoothing)


class SasRec(nn.Module):
    """Causal self attention over histories; the next item against one negative at each place."""

    def __init__(self, spec, dropout, smoothing):
        super().__init__()
        self.spec, self.rate = spec, dropout
        self.embedding = nn.Embedding(spec.vocab, spec.dim)
        self.positions = nn.Embedding(spec.length, spec.dim)
        self.layers = _encoder_layers(spec, dropout)
        self.norm = nn.LayerNorm(spec.dim)
        self.longest = max(spec.lengths)
        self.causal = nn.Transformer.generate_square_subsequent_mask(self.longest)
        only_block_dropout(self)

    def batch(self, data):
        lengths = self.spec.lengths
        return data | {"history": padded(data["history"], lengths), "real": is_token(self.spec, lengths)}

    def read(self, histories):
        x = self.embedding(histories) * math.sqrt(self.spec.dim) + self.positions.weight[: self.longest]
        x = functional.dropout(x, self.rate, self.training)
        for layer in self.layers:
            x = layer(x, src_mask=self.causal, is_causal=True)
        return self.norm(x)

    def forward(self, data):
        x = without_padding(self.read(data["history"]), data["real"])
        positive = (x * self.embedding(data["next"])).sum(-1)
        negative = (x * self.embedding(data["negatives"])).sum(-1)
        return (functional.softplus(-positive) + functional.softplus(negative)).mean()

    def score(self, data, at_once=256):
        """Every item for every history; the sum of the scores of the items that came next. Of histories of one length."""
        following = data["next"].view(data["history"].shape)[:, -1]
        total = 0.0
        for begin in range(0, self.spec.examples, at_once):
            last = self.read(data["history"][begin : begin + at_once])[:, -1]
            scores = last @ self.embedding.weight.T
            total += scores.gather(1, following[begin : begin + at_once, None]).double().sum().item()
        return total


MODELS = {"caption": Captioner, "video": VideoClassifier, "recommend": SasRec}
