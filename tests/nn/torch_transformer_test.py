#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers and the whole Transformer give PyTorch's values and gradients.

Both have the same state dict. PyTorch gets a padded batch, regard the same
sentences packed. The truth is PyTorch in double; regard may be at most twice as
far from it as PyTorch in float is, and a little, because PyTorch's products sum
in blocks and ours in one chain.
"""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import run_driver, torch  # noqa: E402
from torch import nn  # noqa: E402

ACTIVATIONS = {"relu": 1, "gelu": 2}


def run_regard(parameters, tensors, options):
    parameters = {f"param.{name}": t.float() for name, t in parameters.items()}
    return run_driver("transformer_driver", tensors | parameters, options)


def offsets_of(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])


def pad(packed, lengths):
    return nn.utils.rnn.pad_sequence(packed.split(lengths), batch_first=True)


def pack(padded, lengths):
    return torch.cat([row[:n] for row, n in zip(padded, lengths)])


def padding(lengths):
    return torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]


def randomise(module):
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() == 1:  # zeros and ones at first, which would hide mistakes
                p.copy_(torch.randn_like(p) * 0.3 + (1.0 if "norm" in name and "weight" in name else 0.0))


class Model(nn.Module):
    """torch.nn.Transformer with the embeddings and the output that ours has."""

    def __init__(self, vocab, d, heads, layers, ff, shared, tied, **options):
        super().__init__()
        core = nn.Transformer(d, heads, layers, layers, ff, dropout=0.0, batch_first=True, **options)
        self.encoder, self.decoder = core.encoder, core.decoder
        if shared:
            self.embedding = nn.Embedding(vocab, d)
        else:
            self.source_embedding, self.target_embedding = nn.Embedding(vocab, d), nn.Embedding(vocab, d)
        if not tied:
            self.output = nn.Linear(d, vocab, bias=False)
        self.d, self.shared, self.tied = d, shared, tied

    def positions(self, length, like):
        place = torch.arange(length, dtype=torch.float64)[:, None]
        angle = place * torch.pow(10000.0, -torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)
        table = torch.zeros(length, self.d, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        return table.to(like.dtype)

    def embed(self, table, tokens):
        x = table(tokens) * math.sqrt(self.d)
        return x + self.positions(tokens.shape[1], x)

    def forward(self, source, target, source_padding, target_padding):
        tables = (self.embedding,) * 2 if self.shared else (self.source_embedding, self.target_embedding)
        memory = self.encoder(self.embed(tables[0], source), src_key_padding_mask=source_padding)
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        x = self.decoder(self.embed(tables[1], target), memory, tgt_mask=causal,
                         tgt_key_padding_mask=target_padding, memory_key_padding_mask=source_padding)
        return x @ (tables[1] if self.tied else self.output).weight.T


class TorchTransformerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)

    def check(self, what, got, truth, plain):
        self.assertEqual(tuple(got.shape), tuple(truth.shape), what)
        size = truth.abs().max().item()
        limit = 2 * (plain.double() - truth).abs().max().item() + 2e-6 * (1 + size)
        worst = (got.double() - truth).abs().max().item()
        self.assertLessEqual(worst, limit, what)

    def compare_layer(self, kind, lengths, memory_lengths=None, d=48, heads=4, ff=80, **options):
        make = nn.TransformerEncoderLayer if kind == "encoder" else nn.TransformerDecoderLayer
        layer = make(d, heads, ff, dropout=0.0, batch_first=True, **options)
        randomise(layer)
        x, d_out = torch.randn(sum(lengths), d), torch.randn(sum(lengths), d)
        tensors = {"x": x, "d_out": d_out, "offsets": offsets_of(lengths)}
        if memory_lengths:
            memory = torch.randn(sum(memory_lengths), d)
            tensors |= {"memory": memory, "memory_offsets": offsets_of(memory_lengths)}
        metadata = {"kind": kind, "model_dim": d, "heads": heads, "feed_forward_dim": ff,
                    "activation": ACTIVATIONS[options.get("activation", "relu")],
                    "norm_first": int(options.get("norm_first", False))}
        parameters = {f"layer.{name}": p for name, p in layer.state_dict().items()}
        got = run_regard(parameters, tensors, metadata)

        def torch_run(dtype):
            layer.to(dtype).train()  # the path of training; dropout is 0
            layer.zero_grad()
            inputs = [x.detach().clone().to(dtype).requires_grad_()]
            if kind == "encoder":
                out = layer(pad(inputs[0], lengths), src_key_padding_mask=padding(lengths))
            else:
                inputs.append(memory.detach().clone().to(dtype).requires_grad_())
                causal = torch.ones(max(lengths), max(lengths), dtype=torch.bool).triu(1)
                out = layer(pad(inputs[0], lengths), pad(inputs[1], memory_lengths), tgt_mask=causal,
                            tgt_key_padding_mask=padding(lengths), memory_key_padding_mask=padding(memory_lengths))
            out = pack(out, lengths)
            out.backward(d_out.to(dtype))
            result = {"out": out.detach(), "d_x": inputs[0].grad}
            if kind == "decoder":
                result["d_memory"] = inputs[1].grad
            for name, p in layer.named_parameters():
                result[f"grad.layer.{name}"] = p.grad.clone()
            return result

        plain, truth = torch_run(torch.float32), torch_run(torch.float64)
        self.assertEqual(set(got), set(truth))
        for what in truth:
            self.check(what, got[what], truth[what], plain[what])

    def compare_model(self, shared, tied, smoothing, **options):
        vocab, d, heads, layers, ff = 97, 32, 4, 2, 56
        source_lengths, target_lengths = [5, 1, 9, 3], [7, 2, 1, 6]
        model = Model(vocab, d, heads, layers, ff, shared, tied, **options)
        randomise(model)
        for name, p in model.named_parameters():
            if "embedding" in name:
                nn.init.normal_(p, std=d**-0.5)
        source = torch.randint(vocab, (sum(source_lengths),))
        target, target_out = torch.randint(vocab, (2, sum(target_lengths)))
        tensors = {"source": source.int(), "target": target.int(), "target_out": target_out.int(),
                   "source_offsets": offsets_of(source_lengths), "target_offsets": offsets_of(target_lengths)}
        metadata = {"kind": "model", "source_vocab": vocab, "target_vocab": vocab, "model_dim": d, "heads": heads,
                    "encoder_layers": layers, "decoder_layers": layers, "feed_forward_dim": ff,
                    "activation": ACTIVATIONS[options.get("activation", "relu")],
                    "norm_first": int(options.get("norm_first", False)), "shared_embeddings": int(shared),
                    "tied_output": int(tied), "label_smoothing": smoothing}
        got = run_regard(model.state_dict(), tensors, metadata)

        def torch_run(dtype):
            model.to(dtype).train()
            model.zero_grad()
            logits = pack(model(pad(source, source_lengths), pad(target, target_lengths), padding(source_lengths),
                                padding(target_lengths)), target_lengths)
            loss = nn.functional.cross_entropy(logits, target_out, label_smoothing=smoothing, reduction="sum")
            loss.backward()
            plain = nn.functional.cross_entropy(logits, target_out, reduction="sum")
            result = {"loss": torch.stack([loss, plain]).detach()}
            return result | {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}

        plain, truth = torch_run(torch.float32), torch_run(torch.float64)
        self.assertEqual(set(got), set(truth))
        for what in truth:
            self.check(what, got[what], truth[what], plain[what])

    def test_encoder_layer_with_norms_after_and_relu(self):
        self.compare_layer("encoder", [5, 1, 17, 8])

    def test_encoder_layer_with_norms_before_and_gelu(self):
        self.compare_layer("encoder", [3, 12], norm_first=True, activation="gelu")

    def test_encoder_layer_of_odd_sizes(self):
        self.compare_layer("encoder", [70, 3, 66], d=35, heads=5, ff=37)

    def test_decoder_layer_with_norms_after_and_gelu(self):
        self.compare_layer("decoder", [4, 9, 1], [6, 2, 11], activation="gelu")

    def test_decoder_layer_with_norms_before_and_relu(self):
        self.compare_layer("decoder", [13, 2], [1, 20], norm_first=True)

    def test_model_with_norms_after_shared_and_tied_tables_and_smoothing(self):
        self.compare_model(shared=True, tied=True, smoothing=0.1)

    def test_model_with_norms_before_and_tables_of_its_own(self):
        self.compare_model(shared=False, tied=False, smoothing=0.0, norm_first=True, activation="gelu")

    def test_model_with_a_tied_output_alone(self):
        self.compare_model(shared=False, tied=True, smoothing=0.2)


if __name__ == "__main__":
    unittest.main()
