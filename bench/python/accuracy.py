# SPDX-License-Identifier: Apache-2.0
"""How far from the truth: ./run bench accuracy [--seeds N] [--quick] [--gradients] [--json FILE]

The errors of regard, PyTorch and ONNX Runtime on the same inputs, against the definition in double:
the root mean square and the largest of the output, the largest of the log-sum-exp; with --gradients
also those of dq, dk and dv. Means over the seeds; a ratio below 1 says that we are closer.
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import machine  # noqa: E402

machine.prepare_environment("")  # before PyTorch is loaded

import numpy as np
import regard
import regard.torch
import torch
import torch.nn.functional as F

try:
    import onnx
    import onnxruntime
except ImportError:
    onnx = onnxruntime = None

# name, length, width, and what is done to the inputs or asked of the operation
ROWS = [
    ("N 2048, d 64", dict(n=2048, d=64)),
    ("causal", dict(n=2048, d=64, causal=True)),
    ("q times 4", dict(n=2048, d=64, q_times=4)),
    ("q times 0.01, N 4096", dict(n=4096, d=64, q_times=0.01)),
    ("N 1024, d 128", dict(n=1024, d=128)),
    ("v plus 10", dict(n=2048, d=64, v_plus=10)),
    ("N 777, d 40", dict(n=777, d=40)),
    ("N 128, d 64", dict(n=128, d=64)),
    ("fp16", dict(n=1024, d=64, dtype=torch.float16)),
    ("bf16", dict(n=1024, d=64, dtype=torch.bfloat16)),
    ("bf16 arithmetic", dict(n=1024, d=64, dtype=torch.bfloat16, compute="bfloat16")),
    ("cosine, scale 10", dict(n=1024, d=64, score="cosine", scale=10.0)),
    ("softcap 5, q times 4", dict(n=1024, d=64, q_times=4, softcap=5.0)),
    ("ALiBi", dict(n=1024, d=64, alibi=True)),
    ("dropout 0.1", dict(n=1024, d=64, dropout=0.1)),
    ("8 rows of N 65536", dict(n=65536, rows=8, d=64)),
]
HEADS = 2


def inputs(row, seed):
    generator = np.random.default_rng(seed)
    rows = row.get("rows", row["n"])
    shapes = [(1, HEADS, rows, row["d"])] + [(1, HEADS, row["n"], row["d"])] * 2 + [(1, HEADS, rows, row["d"])]
    q, k, v, d_out = (torch.from_numpy(generator.standard_normal(s).astype(np.float32)) for s in shapes)
    q *= row.get("q_times", 1)
    v += row.get("v_plus", 0)
    dtype = row.get("dtype", torch.float32)
    return [x.to(dtype) for x in (q, k, v, d_out)]


def slopes():
    return torch.tensor([0.25, 0.0625])


def scores(row, q, k):
    """The scores by their definition, in the type of q."""
    if row.get("score") == "cosine":
        q, k = F.normalize(q, dim=-1, eps=0), F.normalize(k, dim=-1, eps=0)
    s = q @ k.transpose(-1, -2) * row.get("scale", 1 / math.sqrt(row["d"]))
    if "softcap" in row:
        s = row["softcap"] * torch.tanh(s / row["softcap"])
    if row.get("alibi"):
        at = torch.arange(row["n"])
        s = s - slopes().to(s.dtype).view(1, HEADS, 1, 1) * (at[:, None] - at[None, :]).abs()
    if row.get("causal"):
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return s


def definition(row, q, k, v, seed):
    s = scores(row, q, k)
    weights = torch.softmax(s, -1)
    if "dropout" in row:
        weights = weights * kept(row, seed).to(weights.dtype) / (1 - row["dropout"])
    return weights @ v, torch.logsumexp(s, -1)


def kept(row, seed):
    """Which weights our dropout leaves, found out with values that are a unit matrix."""
    n = row["n"]
    flat = torch.zeros(1, HEADS, n, 1)
    out = regard.torch.attention(flat, flat, torch.eye(n).expand(1, HEADS, n, n), dropout=row["dropout"], seed=seed)
    return out != 0


def ours(row, q, k, v, seed):
    options = {name: row[name] for name in ("score", "scale", "softcap", "compute") if name in row}
    if row.get("causal"):
        options["mask"] = regard.mask.causal()
    if row.get("alibi"):
        options["alibi"] = slopes()
    if "dropout" in row:
        options.update(dropout=row["dropout"], seed=seed)
    return regard.torch.attention(q, k, v, return_lse=True, **options)


def by_torch(row, q, k, v, seed):
    if set(row) & {"score", "softcap", "alibi", "dropout"}:
        # PyTorch has no operation for these: what its users write.
        return definition(row, q, k, v, seed)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(row.get("causal")))
    lse = None
    if q.shape[-2] == k.shape[-2]:
        lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, bool(row.get("causal")))[1]
        lse = lse.reshape(q.shape[:3])
    return out, lse


def by_onnx(row, q, k, v):
    """The standard's Attention node; none for what it has no attribute for."""
    if onnx is None or set(row) & {"score", "alibi", "dropout", "dtype"}:
        return None
    attributes = {name: row[name] for name in ("scale", "softcap") if name in row}
    if row.get("causal"):
        attributes["is_causal"] = 1
    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], **attributes)
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node], "attention",
        [onnx.helper.make_tensor_value_info(name, kind, list(x.shape)) for name, x in zip("qkv", (q, k, v))],
        [onnx.helper.make_tensor_value_info("y", kind, list(q.shape))])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"q": q.numpy(), "k": k.numpy(), "v": v.numpy()})[0])


def errors(got, exact):
    if got is None:
        return None
    wrong = got.detach().double() - exact.detach()
    return [wrong.square().mean().sqrt().item(), wrong.abs().max().item()]


def measure(row, seed, gradients):
    q, k, v, d_out = inputs(row, seed)
    exact = [x.double().requires_grad_(gradients) for x in (q, k, v)]
    if row["n"] * row.get("rows", row["n"]) > 2**26 or (gradients and "compute" in row):
        return None
    exact_out, exact_lse = definition(row, *exact, seed)
    found = {}
    for name, run in (("regard", ours), ("torch", by_torch)):
        mine = [x.clone().requires_grad_(gradients) for x in (q, k, v)]
        out, lse = run(row, *mine, seed)
        found[name] = {"out": errors(out, exact_out), "lse": errors(lse, exact_lse)}
        if gradients:
            out.backward(d_out)
            found[name].update({"d_" + n: x.grad for n, x in zip("qkv", mine)})
    if gradients:
        exact_out.backward(d_out.double())
        for result in found.values():
            for n, x in zip("qkv", exact):
                result["d_" + n] = errors(result["d_" + n], x.grad)
    else:
        out = by_onnx(row, q, k, v)
        found["onnxruntime"] = {"out": errors(out, exact_out) if out is not None else None, "lse": None}
    return found


def mean(results, name, what, which):
    values = [r[name][what][which] for r in results if r[name][what] is not None]
    return sum(values) / len(values) if values else None


def text(value, base=None):
    if value is None:
        return "-"
    return f"{value:.1e}" + (f" ({value / base:.2f})" if base else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog="./run bench accuracy")
    parser.add_argument("--seeds", type=int, default=8, help="how many inputs a row is the mean of (8)")
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--gradients", action="store_true", help="dq, dk and dv instead of the output")
    parser.add_argument("--json", help="writes what was measured to a file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = 2 if arguments.quick else arguments.seeds
    parts = ["d_q", "d_k", "d_v"] if arguments.gradients else ["out", "out", "lse"]
    which = [0, 0, 0] if arguments.gradients else [0, 1, 1]
    heads = ["d_q rms", "d_k rms", "d_v rms"] if arguments.gradients else ["out rms", "out max", "lse max"]
    print(f"# error against double; regard (of torch's) / torch / ONNX Runtime; {seeds} seeds, {HEADS} heads")
    print("| inputs | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    everything = {}
    for name, row in ROWS:
        if arguments.gradients and (row.get("rows") or row["n"] > 2048 or "compute" in row):
            continue
        results = [r for r in (measure(row, seed, arguments.gradients) for seed in range(seeds)) if r]
        cells, everything[name] = [], {}
        for head, part, at in zip(heads, parts, which):
            torchs = mean(results, "torch", part, at)
            mine = mean(results, "regard", part, at)
            ort = mean(results, "onnxruntime", part, at) if "onnxruntime" in results[0] else None
            everything[name][head] = {"regard": mine, "torch": torchs, "onnxruntime": ort}
            cells.append(f"{text(mine, torchs)} / {text(torchs)} / {text(ort)}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
