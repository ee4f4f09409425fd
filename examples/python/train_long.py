# SPDX-License-Identifier: Apache-2.0
"""Trains attention with dropout on a long sequence, in memory that grows with its length.

    python train_long.py [TOKENS] [STEPS]

The task: each token is told its own number modulo 8 and has to find what the token 3 before it was
told. PyTorch's attention with dropout keeps the N x N weights of every head for backward: 4 GB for
4 heads of 16384 tokens. Here they never exist.
"""

import resource
import sys

import torch

import regard.torch

tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 16384
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5
torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(8, 64)
        self.place = torch.nn.Parameter(torch.randn(8, 64))
        self.attention = regard.torch.MultiheadAttention(64, 4, dropout=0.1, batch_first=True)
        self.out = torch.nn.Linear(64, 8)

    def forward(self, x):
        h = self.embed(x) + self.place[torch.arange(x.shape[1]) % 8]
        attended, _ = self.attention(h, h, h, need_weights=False)
        return self.out(h + attended)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
first = None
for step in range(steps):
    x = torch.arange(tokens).roll(step)[None] % 8
    loss = torch.nn.functional.cross_entropy(model(x)[0], x[0].roll(3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = loss.item() if first is None else first
    print(f"step {step + 1}: loss {loss.item():.3f}")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{tokens} tokens, peak memory {peak:.0f} MB, PyTorch included")
assert loss.item() < first
