#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2's features are those of torch, with weights drawn at random and
with the real ones where they are there."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import torch
    from PIL import Image
    from safetensors.torch import save_file
    from torch import nn
except ImportError as missing:
    print(f"{missing.name} is not here")
    sys.exit(77)

DRIVER = pathlib.Path(os.environ["REGARD_BINARY_DIR"]) / "bin" / "mobilenet_driver"
REAL = pathlib.Path.home() / ".cache/regard-models/mobilenet-v2/mobilenet_v2-b0353104.pth"


def conv(into, out, size=3, stride=1, groups=1):
    return [nn.Conv2d(into, out, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]


def block(into, out, stride, expand):
    hidden = into * expand
    layers = [] if expand == 1 else [nn.Sequential(*conv(into, hidden, 1), nn.ReLU6())]
    layers.append(nn.Sequential(*conv(hidden, hidden, 3, stride, hidden), nn.ReLU6()))
    return nn.ModuleDict({"conv": nn.Sequential(*layers, *conv(hidden, out, 1))})


class Reference(nn.Module):
    """The network of the paper, with torchvision's names."""

    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(*conv(3, 32, 3, 2), nn.ReLU6())]
        self.residual = [False]
        into = 32
        for expand, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                           (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
            for i in range(count):
                layers.append(block(into, out, stride if i == 0 else 1, expand))
                self.residual.append(into == out and (i > 0 or stride == 1))
                into = out
        layers.append(nn.Sequential(*conv(320, 1280, 1), nn.ReLU6()))
        self.features = nn.ModuleList(layers)

    def forward(self, x):
        for layer, residual in zip(self.features, [*self.residual, False]):
            y = layer["conv"](x) if isinstance(layer, nn.ModuleDict) else layer(x)
            x = x + y if residual else y
        return x


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    planes = [np.sin(x / (7 + c)) * np.cos(y / (11 - c)) * 120 + 128 for c in range(3)]
    noise = np.random.default_rng(1).normal(0, 20, (height, width, 3))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


class FeaturesOfTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, net, pixels):
        net.eval()
        weights = {k: v.contiguous() for k, v in net.state_dict().items() if "num_batches" not in k}
        save_file(weights, self.folder / "w.safetensors")
        Image.fromarray(pixels).save(self.folder / "p.png")
        subprocess.run([DRIVER, self.folder / "w.safetensors", self.folder / "p.png", self.folder / "f.npy"], check=True)
        ours = np.load(self.folder / "f.npy")
        x = torch.tensor(pixels).permute(2, 0, 1)[None].float() / 255
        mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        x = (x - mean) / deviation
        with torch.no_grad():
            theirs = net(x)[0].flatten(1).T.numpy()
            exact = net.double()(x.double())[0].flatten(1).T.numpy()
        self.assertEqual(ours.shape, theirs.shape)
        self.assertGreater(theirs.std(), 0.05)  # it says something
        # At most twice as wrong as torch is.
        self.assertLessEqual(np.abs(ours - exact).max(), 2 * np.abs(theirs - exact).max() + 1e-5)
        return np.abs(ours - theirs).max()

    def random(self):
        torch.manual_seed(1)
        net = Reference()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight.data, module.running_var):
                    tensor.uniform_(0.5, 1.5)
                for tensor in (module.bias.data, module.running_mean):
                    tensor.normal_(0, 0.3)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_in")
        return net

    def test_random_weights(self):
        for width, height in ((64, 64), (97, 65), (33, 70)):
            self.compare(self.random(), picture(width, height))

    def test_a_wrong_weight_is_named(self):
        weights = self.random().state_dict()
        del weights["features.7.conv.1.1.running_mean"]
        save_file({k: v for k, v in weights.items() if "num_batches" not in k}, self.folder / "w.safetensors")
        Image.fromarray(picture(32, 32)).save(self.folder / "p.png")
        run = subprocess.run([DRIVER, self.folder / "w.safetensors", self.folder / "p.png", self.folder / "f.npy"],
                             capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("there must be a weight 'features.7.conv.1.1.running_mean'", run.stderr)

    @unittest.skipUnless(REAL.exists(), f"{REAL} is not there")
    def test_real_weights(self):
        net = Reference()
        weights = torch.load(REAL, weights_only=True)
        net.load_state_dict({k: v for k, v in weights.items() if k.startswith("features.")})
        self.assertLess(self.compare(net, picture(224, 224)), 1e-4)


if __name__ == "__main__":
    unittest.main()
