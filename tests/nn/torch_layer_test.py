#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layer gives the values of torch.nn.MultiheadAttention.

Both run on the same inputs and the same state dict. The truth is PyTorch in
double; regard may be at most twice as far from it as PyTorch in float is, and a
little, because PyTorch's products sum in blocks and ours in one chain.
"""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import run_driver, torch  # noqa: E402


def run_regard(parameters, inputs, config, masks=None, causal=None):
    """out, weights and average_weights of regard, as a dict."""
    tensors = {**inputs, **{f"param.{name}": t for name, t in parameters.items()}}
    tensors = {name: t.float() for name, t in tensors.items()} | (masks or {})
    options = {name: float(value) for name, value in config.items()} | ({"causal": causal} if causal else {})
    return run_driver("layer_driver", tensors, options)


def as_pairs(batch, heads, key_padding_mask=None, attn_mask=None):
    """PyTorch's masks as regard's: True drops in both; floats are added."""
    masks = {}
    if key_padding_mask is not None:
        pairs = key_padding_mask.reshape(batch, 1, 1, -1)
        masks["drop.padding" if pairs.dtype == torch.bool else "bias"] = pairs
    if attn_mask is not None:
        if attn_mask.dim() == 3:
            pairs = attn_mask.reshape(batch, heads, *attn_mask.shape[1:])
        else:
            pairs = attn_mask.reshape(1, 1, *attn_mask.shape)
        masks["drop.attention" if pairs.dtype == torch.bool else "bias"] = pairs
    return masks


class TorchLayerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(20)

    def check(self, what, got, truth, plain):
        """Compares where the truth is a number."""
        self.assertEqual(tuple(got.shape), tuple(truth.shape), what)
        known = ~truth.isnan()
        self.assertTrue(known.any(), what)
        limit = 2 * (plain.double() - truth)[known].abs().max().item() + 4e-6
        worst = (got.double() - truth)[known].abs().max().item()
        self.assertLessEqual(worst, limit, what)

    def compare(self, layer, query, key=None, value=None, key_padding_mask=None, attn_mask=None, causal=None):
        """regard against a torch layer, which is batch_first. Returns regard's result."""
        key = query if key is None else key
        value = key if value is None else value
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if "bias" in name:  # zeros at first, which would hide mistakes
                    parameter.normal_()
        config = {
            "model_dim": layer.embed_dim,
            "heads": layer.num_heads,
            "key_dim": layer.kdim,
            "value_dim": layer.vdim,
            "bias": layer.in_proj_bias is not None,
            "bias_kv": layer.bias_k is not None,
            "add_zero_attn": layer.add_zero_attn,
        }
        parameters = dict(layer.state_dict())
        batch = query.shape[0] if query.dim() == 3 else 1
        masks = as_pairs(batch, layer.num_heads, key_padding_mask, None if causal else attn_mask)
        inputs = {"query": query, "key": key, "value": value}
        got = run_regard(parameters, inputs, config, masks, causal)

        def torch_run(dtype):
            def cast(mask):
                return mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)

            layer.to(dtype).eval()
            arguments = [x.to(dtype) for x in (query, key, value)]
            options = {"key_padding_mask": cast(key_padding_mask), "attn_mask": cast(attn_mask)}
            with torch.no_grad():
                out, weights = layer(*arguments, **options, average_attn_weights=False)
                _, average = layer(*arguments, **options, average_attn_weights=True)
            if query.dim() == 2:
                weights, average = weights.unsqueeze(0), average.unsqueeze(0)
            return {"out": out, "weights": weights, "average_weights": average}

        plain, truth = torch_run(torch.float32), torch_run(torch.float64)
        for what in truth:
            self.check(what, got[what], truth[what], plain[what])
        return got

    @staticmethod
    def layer(width, heads, **options):
        return torch.nn.MultiheadAttention(width, heads, batch_first=True, **options)

    def compare_bf16(self, layer, query, memory=None):
        """In bf16, regard is at most twice as far from the truth as the same layer of PyTorch in bf16.

        Inputs and parameters are bf16 numbers, so both start from the same ones.
        """
        memory = query if memory is None else memory
        layer.to(torch.bfloat16).eval()
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if "bias" in name:
                    parameter.normal_()
        inputs = {"query": query, "key": memory, "value": memory}
        inputs = {name: t.to(torch.bfloat16) for name, t in inputs.items()}
        with torch.no_grad():
            torchs, _ = layer(**inputs, need_weights=False)
            config = {"model_dim": layer.embed_dim, "heads": layer.num_heads, "bf16": 1}
            got = run_regard(dict(layer.state_dict()), inputs, config)
            truth, _ = layer.to(torch.float64)(**{n: t.double() for n, t in inputs.items()}, need_weights=False)
        theirs = (torchs.double() - truth).abs()
        for path, out in got.items():
            with self.subTest(path=path):
                ours = (out.double() - truth).abs()
                self.assertLessEqual(ours.max().item(), 2 * theirs.max().item())
                self.assertLessEqual(ours.square().mean().sqrt().item(), 2 * theirs.square().mean().sqrt().item())
                self.assertGreater(ours.max().item(), 1e-6)  # it did compute in bf16

    def test_in_bf16(self):
        self.compare_bf16(self.layer(512, 8), torch.randn(2, 100, 512))
        self.compare_bf16(self.layer(256, 4), torch.randn(3, 17, 256), torch.randn(3, 70, 256))
        self.compare_bf16(self.layer(60, 3), torch.randn(1, 1, 60), torch.randn(1, 33, 60))

    def test_cross_attention_of_4_queries_to_6_keys(self):
        self.compare(self.layer(512, 8), torch.randn(2, 4, 512), torch.randn(2, 6, 512))

    def test_a_sentence_of_11_tokens(self):
        sentence = torch.randn(11, 512)
        unbatched = self.compare(self.layer(512, 8), sentence)
        self.assertEqual(tuple(unbatched["out"].shape), (11, 512))
        self.compare(self.layer(512, 8), sentence.unsqueeze(0))

    def test_500_wide_in_5_heads(self):
        self.compare(self.layer(500, 5), torch.randn(3, 9, 500))

    def test_without_bias(self):
        self.compare(self.layer(96, 4, bias=False), torch.randn(2, 7, 96))

    def test_separate_key_and_value(self):
        self.compare(self.layer(64, 4), torch.randn(2, 5, 64), torch.randn(2, 7, 64), torch.randn(2, 7, 64))

    def test_other_key_and_value_widths(self):
        layer = self.layer(128, 4, kdim=40, vdim=72)
        self.compare(layer, torch.randn(2, 5, 128), torch.randn(2, 9, 40), torch.randn(2, 9, 72))

    def test_key_padding(self):
        padding = torch.arange(8)[None, :] >= torch.tensor([8, 3, 1])[:, None]
        self.compare(self.layer(96, 6), torch.randn(3, 8, 96), key_padding_mask=padding)
        floats = torch.zeros(3, 8).masked_fill(padding, -math.inf)
        self.compare(self.layer(96, 6), torch.randn(3, 8, 96), key_padding_mask=floats)

    def test_attention_masks_of_every_form(self):
        query, key = torch.randn(2, 7, 96), torch.randn(2, 10, 96)
        bools = torch.rand(7, 10) < 0.4
        bools[:, 0] = False
        per_head = torch.rand(2 * 6, 7, 10) < 0.4
        per_head[:, :, 3] = False
        for mask in (bools, per_head, torch.randn(7, 10), torch.randn(2 * 6, 7, 10)):
            with self.subTest(shape=tuple(mask.shape), dtype=mask.dtype):
                self.compare(self.layer(96, 6), query, key, attn_mask=mask)

    def test_padding_and_attention_mask_together(self):
        padding = torch.arange(9)[None, :] >= torch.tensor([9, 4])[:, None]
        mask = torch.rand(6, 9) < 0.3
        mask[:, 0] = False
        self.compare(self.layer(48, 3), torch.randn(2, 6, 48), torch.randn(2, 9, 48), key_padding_mask=padding, attn_mask=mask)

    def test_causal(self):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(13)
        self.compare(self.layer(96, 6), torch.randn(2, 13, 96), attn_mask=mask, causal="bottom_right")
        self.compare(self.layer(96, 6), torch.randn(2, 13, 96), attn_mask=mask, causal="top_left")

    def test_appended_keys(self):
        padding = torch.arange(6)[None, :] >= torch.tensor([6, 0])[:, None]  # the second sees only what is appended
        mask = torch.rand(5, 6) < 0.4
        for options in ({"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}):
            for masks in ({}, {"key_padding_mask": padding}, {"attn_mask": mask}, {"attn_mask": torch.randn(2 * 4, 5, 6)}):
                with self.subTest(options=options, masks=list(masks)):
                    self.compare(self.layer(64, 4, **options), torch.randn(2, 5, 64), torch.randn(2, 6, 64), **masks)

    def test_a_row_that_sees_nothing_gives_the_output_bias(self):
        mask = torch.zeros(5, 6, dtype=torch.bool)
        mask[2] = True
        layer = self.layer(64, 4)
        got = self.compare(layer, torch.randn(2, 5, 64), torch.randn(2, 6, 64), attn_mask=mask)
        self.assertTrue(torch.equal(got["out"][:, 2], layer.out_proj.bias.float().expand(2, 64)))
        self.assertEqual(got["weights"][:, :, 2].abs().max().item(), 0)

    def test_free_head_sizes_and_groups_against_linear_and_softmax(self):
        for heads, kv_heads, dim, value_dim, cosine in ((2, 2, 64, 64, False), (6, 2, 20, 36, False), (4, 2, 16, 16, True)):
            with self.subTest(heads=heads, kv_heads=kv_heads, dim=dim, cosine=cosine):
                self.compose(512, heads, kv_heads, dim, value_dim, cosine)

    def compose(self, width, heads, kv_heads, dim, value_dim, cosine):
        x = torch.randn(2, 11, width)
        sizes = [heads * dim, kv_heads * dim, kv_heads * value_dim]
        inner = torch.nn.Linear(width, sum(sizes))
        outer = torch.nn.Linear(heads * value_dim, width)
        factor = torch.rand(heads) * 10 + 1

        def run(dtype):
            inner.to(dtype), outer.to(dtype)
            with torch.no_grad():
                q, k, v = inner(x.to(dtype)).split(sizes, dim=-1)
                q = q.unflatten(-1, (heads, dim)).transpose(1, 2)
                k = k.unflatten(-1, (kv_heads, dim)).transpose(1, 2).repeat_interleave(heads // kv_heads, dim=1)
                v = v.unflatten(-1, (kv_heads, value_dim)).transpose(1, 2).repeat_interleave(heads // kv_heads, dim=1)
                if cosine:
                    q = torch.nn.functional.normalize(q, dim=-1) * factor.to(dtype)[:, None, None]
                    k = torch.nn.functional.normalize(k, dim=-1)
                else:
                    q = q / math.sqrt(dim)
                weights = (q @ k.transpose(-1, -2)).softmax(-1)
                return {"out": outer((weights @ v).transpose(1, 2).flatten(-2)), "weights": weights}

        plain, truth = run(torch.float32), run(torch.float64)
        parameters = {
            "in_proj_weight": inner.weight,
            "in_proj_bias": inner.bias,
            "out_proj.weight": outer.weight,
            "out_proj.bias": outer.bias,
        }
        if cosine:
            parameters["cosine_scale"] = factor
        config = {
            "model_dim": width,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": dim,
            "value_head_dim": value_dim,
            "cosine": cosine,
        }
        got = run_regard(parameters, {"query": x, "key": x, "value": x}, config)
        for what in truth:
            self.check(what, got[what], truth[what], plain[what])


if __name__ == "__main__":
    unittest.main()
