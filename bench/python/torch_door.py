# SPDX-License-Identifier: Apache-2.0
"""regard through Python, beside PyTorch: ./run bench torch [--quick] [--threads N] [--json FILE]

Tables of the forward pass, of training steps and of the layer through regard.torch, what a call costs on
top of its work, and a loop that alternates torch.mm and our call. Results are checked first; everybody is timed
in turns, in short slices, and what is told is the median over the rounds of the ratio of neighbours.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import machine  # noqa: E402

machine.prepare_environment("")  # before PyTorch is loaded

import numpy as np
import regard
import regard.torch
import torch
import torch.nn.functional as F

SLICE_SECONDS = 0.05


def interleave(calls, seconds, clock=time.perf_counter):
    """Times each call in turns; returns, for each, its seconds a call in every round."""
    counts = []
    for call in calls:
        call()
        began = time.perf_counter()
        call()
        counts.append(max(1, int(SLICE_SECONDS / max(time.perf_counter() - began, 1e-7))))
    rounds = [[] for _ in calls]
    end = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < end or number < 3:
        for shift in range(len(calls)):
            at = (number + shift) % len(calls)
            began = clock()
            for _ in range(counts[at]):
                calls[at]()
            rounds[at].append((clock() - began) / counts[at])
        number += 1
    return rounds


def ratio(slow, fast):
    """The median, and the quarter marks, of slow / fast over the rounds."""
    values = sorted(a / b for a, b in zip(slow, fast))
    return statistics.median(values), values[len(values) // 4], values[-1 - len(values) // 4]


def tensors(batch, heads, length, dim, dtype, kv_heads=None):
    torch.manual_seed(1)
    kv = (batch, kv_heads or heads, length, dim)
    return torch.randn(batch, heads, length, dim).to(dtype), torch.randn(kv).to(dtype), torch.randn(kv).to(dtype)


def check(ours, theirs, what, tolerance):
    worst = (ours.double() - theirs.double()).abs().max().item() / theirs.abs().max().item()
    if not worst <= tolerance:
        raise SystemExit(f"bench torch: {what} differs from PyTorch by {worst:.1e} of its largest value")


# name, (batch, heads, length, dim), dtype, keywords
FORWARD = [
    ("H8 N2048 d64", (1, 8, 2048, 64), torch.float32, {}),
    ("causal H8 N2048 d64", (1, 8, 2048, 64), torch.float32, {"is_causal": True}),
    ("H8 N1024 d128", (1, 8, 1024, 128), torch.float32, {}),
    ("B8 H8 N128 d64", (8, 8, 128, 64), torch.float32, {}),
    ("causal B8 H8 N512 d64", (8, 8, 512, 64), torch.float32, {"is_causal": True}),
    ("H8 N512 d64, bool mask", (1, 8, 512, 64), torch.float32, {"attn_mask": "bool"}),
    ("H8 N2048 d64 bf16, by fp32 products", (1, 8, 2048, 64), torch.bfloat16, {}),
    ("H8 N2048 d64 bf16, compute=bfloat16", (1, 8, 2048, 64), torch.bfloat16, {"compute": "bfloat16"}),
]
TRAIN = [
    ("step H8 N2048 d64", (1, 8, 2048, 64), {}),
    ("step causal H8 N2048 d64", (1, 8, 2048, 64), {"is_causal": True}),
    ("step B8 H8 N128 d64", (8, 8, 128, 64), {}),
    ("step dropout 0.1, H8 N2048 d64", (1, 8, 2048, 64), {"dropout_p": 0.1}),
    ("step learned bias, H8 N2048 d64", (1, 8, 2048, 64), {"attn_mask": "learned"}),
]


def keywords_for(keywords, shape):
    length, heads = shape[2], shape[1]
    made = dict(keywords)
    if made.get("attn_mask") == "bool":
        made["attn_mask"] = torch.rand(length, length) > 0.1
    elif made.get("attn_mask") == "learned":
        made["attn_mask"] = torch.randn(1, heads, length, length, requires_grad=True)
    return made


def forward_rows(seconds, rows):
    for name, shape, dtype, keywords in rows:
        q, k, v = tensors(*shape, dtype)
        keywords = keywords_for(keywords, shape)
        with torch.no_grad():
            if "compute" in keywords:  # not an argument of PyTorch's function
                compute = keywords.pop("compute")
                ours = lambda: regard.torch.attention(q, k, v, compute=compute)
            else:
                ours = lambda: regard.torch.scaled_dot_product_attention(q, k, v, **keywords)
            theirs = lambda: F.scaled_dot_product_attention(q, k, v, **keywords)
            check(ours(), theirs(), name, 1e-4 if dtype is torch.float32 else 3e-2)
            yield name, *interleave([ours, theirs], seconds)


def train_rows(seconds, rows):
    for name, shape, keywords in rows:
        leaves = [t.requires_grad_() for t in tensors(*shape, torch.float32)]
        keywords = keywords_for(keywords, shape)
        inputs = leaves + ([keywords["attn_mask"]] if "attn_mask" in keywords else [])
        d_out = torch.randn(shape)

        def step(function):
            return torch.autograd.grad(function(*leaves, **keywords), inputs, d_out)

        ours = lambda: step(regard.torch.scaled_dot_product_attention)
        theirs = lambda: step(F.scaled_dot_product_attention)
        if "dropout_p" not in keywords:  # everybody draws another pattern
            for mine, other in zip(ours(), theirs()):
                check(mine, other, name, 1e-3)
        yield name, *interleave([ours, theirs], seconds)


# name, training, dropout
LAYER = [("inference", False, 0.0), ("step", True, 0.0), ("step with dropout 0.1", True, 0.1)]
LAYER_SHAPES = [(2, 4, 512, 8), (8, 128, 512, 8)]  # batch, length, width, heads


def layer_rows(seconds, shapes):
    """MultiheadAttention on one input, beside torch.nn's, which has a fast path for inference."""
    for batch, length, width, heads in shapes:
        torch.manual_seed(1)
        x, d_out = torch.randn(batch, length, width), torch.randn(batch, length, width)
        for words, training, dropout in LAYER:
            layers = [kind(width, heads, batch_first=True, dropout=dropout).train(training)
                      for kind in (regard.torch.MultiheadAttention, torch.nn.MultiheadAttention)]
            layers[0].load_state_dict(layers[1].state_dict())
            name = f"layer B{batch} N{length} E{width}, {words}"

            def infer(layer):
                with torch.inference_mode():
                    return layer(x, x, x, need_weights=False)[0]

            def step(layer):
                leaf = x.detach().requires_grad_()
                out = layer(leaf, leaf, leaf, need_weights=False)[0]
                return torch.autograd.grad(out, [leaf, *layer.parameters()], d_out)

            call = step if training else infer
            if dropout == 0.0:
                for mine, other in zip(*map(call, layers)):
                    check(mine, other, name, 1e-4)
            yield name, *interleave([lambda: call(layers[0]), lambda: call(layers[1])], seconds)


def show(rows, results):
    print(f"{'':38}{'regard':>11}{'torch':>11}   ratio (quarters)")
    for name, ours, theirs in rows:
        middle, low, high = ratio(theirs, ours)
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"{name:38}{mine * 1e3:8.2f} ms{other * 1e3:8.2f} ms   {middle:.2f} ({low:.2f} .. {high:.2f})")
        results.append({"row": name, "regard_seconds": mine, "torch_seconds": other, "ratio": middle})


def overhead(seconds, results):
    """Calls on one query and one key: what is left is the way in and out, and under 1 us of work."""
    t = torch.ones(1, 1, 1, 8)
    a = t.numpy()
    out = torch.empty_like(t)
    with torch.no_grad():
        names = ["NumPy", "regard.torch, no gradient", "torch's own, no gradient", "NumPy door, out="]
        calls = [
            lambda: regard.attention(a, a, a),
            lambda: regard.torch.scaled_dot_product_attention(t, t, t),
            lambda: F.scaled_dot_product_attention(t, t, t),
            lambda: regard.attention(t, t, t, out=out),
        ]
        # The CPU time of the shortest round: a busy machine only adds.
        for name, rounds in zip(names, interleave(calls, seconds, time.thread_time)):
            print(f"{name:38}{min(rounds) * 1e6:7.1f} us a call")
            results.append({"row": f"overhead, {name}", "seconds": min(rounds)})


def alternate(seconds, results):
    """torch.mm and our call in turns must take what they take alone: pools must not be in the way."""
    x = torch.randn(512, 512)
    q, k, v = tensors(1, 8, 512, 64, torch.float32)
    with torch.no_grad():
        mm = lambda: [torch.mm(x, x) for _ in range(8)]
        ours = lambda: [regard.torch.scaled_dot_product_attention(q, k, v) for _ in range(8)]

        def both():
            for _ in range(8):
                torch.mm(x, x)
                regard.torch.scaled_dot_product_attention(q, k, v)

        alone_mm, alone_ours, together = interleave([mm, ours, both], seconds)
        values = [c / (a + b) for a, b, c in zip(alone_mm, alone_ours, together)]
        middle = statistics.median(values)
        print(f"alternating with torch.mm: {middle:.3f} of the sum of both alone (must: 1.05)")
        results.append({"row": "alternating", "of_the_sum": middle})


def main():
    parser = argparse.ArgumentParser(prog="./run bench torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows, half a second each")
    parser.add_argument("--seconds", type=float, help="time a row takes, about (10; quick 0.5)")
    parser.add_argument("--threads", type=int, help="of both (torch.get_num_threads())")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    seconds = arguments.seconds or (0.5 if arguments.quick else 10.0)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    results = []
    print(f"regard {regard.__version__} on {regard.simd_target()}, torch {torch.__version__}, "
          f"NumPy {np.__version__}, {torch.get_num_threads()} threads")
    print("\nWhat a call costs")
    overhead(seconds, results)
    alternate(seconds, results)
    print("\nForward")
    show(forward_rows(seconds, FORWARD[:3] if arguments.quick else FORWARD), results)
    print("\nForward and backward")
    show(train_rows(seconds, TRAIN[:2] if arguments.quick else TRAIN), results)
    print("\nLayer")
    show(layer_rows(seconds, LAYER_SHAPES[:1] if arguments.quick else LAYER_SHAPES), results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
