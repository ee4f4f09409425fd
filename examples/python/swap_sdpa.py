# SPDX-License-Identifier: Apache-2.0
"""A model of PyTorch as it is: with regard.torch.use() its attention is regard's."""

import torch

import regard.torch

torch.manual_seed(0)
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), 2,
    enable_nested_tensor=False)
x = torch.randn(2, 100, 64)
mask = torch.nn.Transformer.generate_square_subsequent_mask(100)

theirs = model(x, mask=mask, is_causal=True)
with regard.torch.use():
    ours = model(x, mask=mask, is_causal=True)
    ours.square().mean().backward()  # the gradients are ours too
print("largest difference:", f"{(ours - theirs).abs().max().item():.1e}")
assert torch.allclose(ours, theirs, atol=1e-5)

# Or one line in a model of your own:
#   from regard.torch import scaled_dot_product_attention
