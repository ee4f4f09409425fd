#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Norms and rotary positions, with their gradients, beside PyTorch.

The truth is PyTorch in double; regard may be at most twice as far from it as
PyTorch in float is, and a little.
"""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import run_driver, torch  # noqa: E402

SCALINGS = ["none", "linear", "ntk", "yarn", "llama3"]


def autograd(function, tensors, d_out, dtype):
    """What `function` of the tensors is, and the gradient of each."""
    inputs = {name: t.detach().to(dtype).requires_grad_() for name, t in tensors.items()}
    out = function(**inputs)
    out.backward(d_out.to(dtype))
    return {"out": out.detach(), **{f"d_{name}": t.grad for name, t in inputs.items()}}


def inverse_frequencies(dim, base, scaling, factor, trained):
    """As the papers and the models' own code define them, in double."""
    i = torch.arange(0, dim, 2, dtype=torch.float64)
    if scaling == "ntk":
        base = base * factor ** (dim / (dim - 2))
    own = 1.0 / base ** (i / dim)
    if scaling == "linear":
        return own / factor, 1.0
    if scaling == "yarn":
        def corner(turns):
            return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(math.floor(corner(32)), 0), min(math.ceil(corner(1)), dim - 1)
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
        return own / factor * ramp + own * (1 - ramp), 0.1 * math.log(factor) + 1
    if scaling == "llama3":
        wavelength = 2 * math.pi / own
        smooth = (trained / wavelength - 1) / (4 - 1)
        middle = (1 - smooth) * own / factor + smooth * own
        out = torch.where(wavelength > trained / 1, own / factor, own)
        between = (wavelength <= trained / 1) & (wavelength >= trained / 4)
        return torch.where(between, middle, out), 1.0
    return own, 1.0


def rotate(x, cos, sin, interleaved):
    half = cos.shape[-1]
    rotated, rest = x[..., :2 * half], x[..., 2 * half:]
    if interleaved:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        a, b = rotated[..., :half], rotated[..., half:]
        rotated = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return torch.cat((rotated, rest), dim=-1)


class TorchNormsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def compare(self, function, tensors, extra, d_out, **settings):
        got = run_driver("norms_driver", {**tensors, **extra, "d_out": d_out}, settings)
        truth = autograd(function, tensors, d_out, torch.float64)
        plain = autograd(function, tensors, d_out, torch.float32)
        self.assertEqual(set(got), set(truth))
        for name, exact in truth.items():
            with self.subTest(name, **settings):
                limit = 2 * (plain[name].double() - exact).abs().max().item() + 1e-6
                self.assertLessEqual((got[name].double() - exact).abs().max().item(), limit)

    def test_rms_norm(self):
        for rows, dim in ((3, 64), (200, 97), (5, 1000)):
            self.compare(
                lambda x, weight: torch.nn.functional.rms_norm(x, (x.shape[1],), weight, 1e-5),
                {"x": torch.randn(rows, dim) * 3, "weight": torch.randn(dim)}, {},
                torch.randn(rows, dim), op="rms_norm", epsilon=1e-5)

    def test_layer_norm(self):
        for rows, dim in ((3, 64), (200, 97), (5, 1000)):
            self.compare(
                lambda x, weight, bias: torch.nn.functional.layer_norm(x, (x.shape[1],), weight, bias, 1e-6),
                {"x": torch.randn(rows, dim) + 4, "weight": torch.randn(dim), "bias": torch.randn(dim)}, {},
                torch.randn(rows, dim), op="layer_norm", epsilon=1e-6)

    def test_rotary_positions(self):
        positions = torch.tensor([[0, 1, 2, 511, 90], [7, 8, 300, 4, 4]])
        for number, scaling in enumerate(SCALINGS):
            for interleaved in (False, True):
                for dim, rotary_dim in ((64, 64), (59, 24)):
                    factor = 1 if scaling == "none" else 8
                    frequencies, amplitude = inverse_frequencies(rotary_dim, 10000.0, scaling, factor, 256)
                    angle = positions[:, None, :, None] * frequencies

                    def function(x):
                        return rotate(x, (amplitude * angle.cos()).to(x.dtype),
                                      (amplitude * angle.sin()).to(x.dtype), interleaved)

                    self.compare(function, {"x": torch.randn(2, 3, 5, dim)}, {"positions": positions},
                                 torch.randn(2, 3, 5, dim), op="rotary", rotary_dim=rotary_dim, scaling=number,
                                 factor=factor, trained_length=256, interleaved=int(interleaved), table=512)


if __name__ == "__main__":
    unittest.main()
