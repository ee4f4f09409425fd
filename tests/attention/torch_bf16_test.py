#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In bf16 compute regard is at most twice as wrong as PyTorch's bf16 attention, forward and backward.

The truth is the same attention of the same bf16 numbers in double. Every path
that the machine has (AMX, VDPBF16PS, float) is held to it.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import run_driver, torch  # noqa: E402

attend = torch.nn.functional.scaled_dot_product_attention


def errors(result, truth):
    """The largest and the root mean square difference."""
    difference = result.double() - truth
    return difference.abs().max().item(), difference.square().mean().sqrt().item()


class Bf16(unittest.TestCase):
    def hold(self, batch, heads, kv_heads, q_len, kv_len, d_k, d_v, *, deviation=1.0, causal=False, keep=None, bias=None):
        generator = torch.Generator().manual_seed(7)

        def normal(*shape):
            return (torch.randn(shape, generator=generator) * deviation).to(torch.bfloat16)

        q = normal(batch, heads, q_len, d_k)
        k = normal(batch, kv_heads, kv_len, d_k)
        v = normal(batch, kv_heads, kv_len, d_v)
        options = {"is_causal": causal, "enable_gqa": heads != kv_heads}
        d_out = normal(batch, heads, q_len, d_v)
        tensors = {"q": q, "k": k, "v": v, "d_out": d_out}
        mask_of = {torch.bfloat16: None, torch.float64: None}
        if keep is not None:
            tensors["keep"] = keep
            mask_of = dict.fromkeys(mask_of, keep)
        if bias is not None:
            tensors["bias"] = bias.float()
            mask_of = {dtype: bias.to(dtype) for dtype in mask_of}

        def run_torch(dtype):
            leaves = [t.to(dtype).requires_grad_() for t in (q, k, v)]
            out = attend(*leaves, attn_mask=mask_of[dtype], **options)
            out.backward(d_out.to(dtype))
            return dict(zip(("out", "dq", "dk", "dv"), (out.detach(), *(leaf.grad for leaf in leaves))))

        truth, torchs = run_torch(torch.float64), run_torch(torch.bfloat16)
        ours = run_driver("bf16_driver", tensors, {"causal": "top_left"} if causal else {})
        self.assertIn("out.portable", ours)  # every machine has it
        for name, got in ours.items():
            with self.subTest(result=name):
                self.assertEqual(got.dtype, torch.bfloat16)
                what = name.partition(".")[0]
                their_max, their_mean = errors(torchs[what], truth[what])
                our_max, our_mean = errors(got, truth[what])
                self.assertLessEqual(our_max, 2 * their_max)
                self.assertLessEqual(our_mean, 2 * their_mean)

    def test_plain(self):
        self.hold(1, 2, 2, 512, 512, 64, 64)
        self.hold(1, 2, 2, 300, 700, 128, 128)

    def test_causal(self):
        self.hold(2, 2, 2, 257, 257, 64, 64, causal=True)

    def test_grouped_heads(self):
        self.hold(1, 6, 2, 100, 300, 64, 64)

    def test_values_of_another_width(self):
        self.hold(1, 2, 2, 100, 300, 64, 128)
        self.hold(1, 2, 2, 100, 300, 80, 40)

    def test_scores_far_apart(self):
        for deviation in (0.1, 3.0, 8.0):
            self.hold(1, 2, 2, 200, 400, 64, 64, deviation=deviation)

    def test_masks_and_bias(self):
        generator = torch.Generator().manual_seed(8)
        keep = torch.rand((1, 2, 150, 310), generator=generator) < 0.3
        keep[..., 0] = True
        self.hold(1, 2, 2, 150, 310, 64, 64, keep=keep)
        # As bf16, because PyTorch wants the type of its queries.
        bias = torch.randn((1, 2, 150, 310), generator=generator).to(torch.bfloat16)
        self.hold(1, 2, 2, 150, 310, 64, 64, bias=bias)


if __name__ == "__main__":
    unittest.main()
