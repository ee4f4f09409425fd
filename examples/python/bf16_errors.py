# SPDX-License-Identifier: Apache-2.0
"""What compute in bf16 costs: errors against double, beside PyTorch's in bf16."""

import os

# oneDNN's own AMX code dies on some machines that have it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch  # noqa: E402

import regard.torch  # noqa: E402

torch.manual_seed(0)
inputs = [torch.randn(1, 8, 1024, 64).to(torch.bfloat16) for _ in range(4)]


def run(attention, dtype, **options):
    """The output and the gradients of q, k and v."""
    *leaves, d_out = (t.to(dtype) for t in inputs)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    out = attention(*leaves, **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def size(tensor):
    return tensor.double().square().mean().sqrt().item()


sdpa = torch.nn.functional.scaled_dot_product_attention
truth = run(sdpa, torch.float64)
for name, results in {
    "float tensors, compute in float": run(regard.torch.attention, torch.float32),
    "float tensors, compute in bf16": run(regard.torch.attention, torch.float32, compute="bfloat16"),
    "bf16 tensors, compute in float": run(regard.torch.attention, torch.bfloat16),
    "bf16 tensors, compute in bf16": run(regard.torch.attention, torch.bfloat16, compute="bfloat16"),
    "PyTorch, bf16 tensors": run(sdpa, torch.bfloat16),
}.items():
    errors = (size(result - exact) / size(exact) for result, exact in zip(results, truth))
    print(f"{name:<34}" + "  ".join(f"{error:.1e}" for error in errors))
