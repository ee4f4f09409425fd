# SPDX-License-Identifier: Apache-2.0
"""Attention backward: the table of what it must reach, measured, beside torch's autograd."""

import argparse
import ctypes
import dataclasses
import json
import pathlib
import subprocess
import sys

from lib import harness, native, report
from lib.attention_case import Case, Spec

DESCRIPTION = "Attention backward"
MEMORY_MUST = 2.0  # times the tensors of the step
MEMORY_SECONDS = 600
TOLERANCE, PEER_TOLERANCE = 2e-5, 1e-4  # of the largest true value
NAMES = ("dq", "dk", "dv", "d_bias")


@dataclasses.dataclass(frozen=True)
class Target:
    """What is asked for: percent of peak, a ratio to torch, or two threads against one."""

    kind: str  # peak, torch, baseline
    must: float
    of: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    title: str
    spec: Spec
    target: Target
    step: bool = False  # forward and backward
    bias: bool = False  # a learned bias [1, heads, q_len, kv_len]
    quick: bool = False

    def flops(self):
        """Of the visible work: five products backward, two forward."""
        s = self.spec.resolved()
        a_pair = 2 * (3 * s.d_k + 2 * s.d_v) + (2 * (s.d_k + s.d_v) if self.step else 0)
        return s.batch * s.heads * s.visible_pairs() * a_pair


_N2048 = Spec(q_len=2048)
_SHORT = Spec(batch=8, q_len=128)
_SCALING = Row(
    "h1_n4096", "B1 H1 N4096 d64", Spec(heads=1, q_len=4096), Target("baseline", 1.8, "one thread")
)
ROWS = (
    Row("n2048_d64", "H8 N2048 d64", _N2048, Target("peak", 80), quick=True),
    Row(
        "causal_n2048", "causal H8 N2048 d64", dataclasses.replace(_N2048, mask="causal"), Target("peak", 74), quick=True
    ),
    Row("n1024_d128", "H8 N1024 d128", Spec(q_len=1024, d_k=128), Target("peak", 86), quick=True),
    Row("b8_n128_d64", "B8 H8 N128 d64", _SHORT, Target("peak", 70), quick=True),
    Row("causal_b8_n128", "causal B8 H8 N128 d64", dataclasses.replace(_SHORT, mask="causal"), Target("peak", 50)),
    Row(
        "dropout_n2048",
        "forward + backward, dropout 0.1, H8 N2048 d64",
        dataclasses.replace(_N2048, dropout=0.1),
        Target("torch", 4),
        step=True,
    ),
    Row(
        "bias_n2048",
        "forward + backward, learned bias [1, H, N, N], H8 N2048 d64",
        _N2048,
        Target("torch", 2),
        step=True,
        bias=True,
    ),
    _SCALING,
)
MEMORY_ROW = Row(
    "memory", "", Spec(heads=1, q_len=16384, dropout=0.1), Target("inputs", MEMORY_MUST), step=True
)


class NativeBackward(ctypes.Structure):
    """Mirrors BackwardCase of bench/native/backward.cc."""

    _fields_ = [("forward", native.AttentionCase)]
    _fields_ += [(name, native.Array) for name in ("lse", "d_out", "d_q", "d_k", "d_v", "bias", "d_bias")]
    _fields_ += [("with_forward", ctypes.c_int32)]


class Comparison(ctypes.Structure):
    _fields_ = [("error", ctypes.c_double * 4), ("magnitude", ctypes.c_double * 4)]


def declare(library):
    case = ctypes.POINTER(NativeBackward)
    library.declare("backward_prepare", ctypes.c_double, [case])
    library.declare("backward", ctypes.c_double, [case, ctypes.c_int64])
    library.declare(
        "compare_backward", ctypes.c_double, [case, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(Comparison)]
    )


class Problem:
    """The inputs of a row, shared by everybody who computes it."""

    def __init__(self, library, row):
        self.library, self.row = library, row
        self.case = Case(library, row.spec)
        s = self.spec = self.case.spec
        self.d_out = self.case.new_out().fill(4)
        self.bias = self.tensor((1, s.heads, s.q_len, s.kv_len)).fill(5) if row.bias else None

    def tensor(self, shape):
        return native.Tensor(self.library, shape, native.FLOAT32)

    def inputs(self):
        """q, k and v, and the bias if there is one: what has a gradient."""
        return [self.case.q, self.case.k, self.case.v] + ([self.bias] if self.bias else [])

    def native_case(self, out, gradients, threads):
        nothing = native.Array()
        s = self.spec
        lse = self.tensor((s.batch, s.heads, s.q_len, 1))
        arrays = [g.array() for g in gradients] + [nothing] * (4 - len(gradients))
        case = NativeBackward(
            self.case.native_case(out, threads),
            lse.array(),
            self.d_out.array(),
            *arrays[:3],
            self.bias.array() if self.bias else nothing,
            arrays[3],
            int(self.row.step),
        )
        case.kept = (lse, out, gradients)  # borrowed
        return case

    def check(self, arguments, name, tolerance):
        """Raises WrongResult unless the gradients are those of the definition."""
        out, gradients = arguments.kept[1:]
        if self.spec.dropout > 0:
            # Everybody draws another pattern, so there is no truth to compare with. But the output has the
            # right noise, and whatever the pattern, these sums are equal.
            self.case.check(out, name, {native.FLOAT32: tolerance})
            d_q, d_k, d_v = gradients
            self._expect_equal(name, (d_v, self.case.v), (self.d_out, out))
            self._expect_equal(name, (d_q, self.case.q), (d_k, self.case.k))
            return
        result = Comparison()
        for batch, head in {(0, 0), (self.spec.batch - 1, self.spec.heads - 1)}:
            self.library.compare_backward(arguments, batch, head, result)
            for what, error, magnitude in zip(NAMES, result.error, result.magnitude):
                if not error <= tolerance * magnitude:
                    raise harness.WrongResult(f"{name}: {what} off by {error:.2e} of {magnitude:.2e}")

    def _expect_equal(self, name, one, other):
        """The inner products of two pairs of tensors."""
        import numpy

        products = [a.numpy().astype(numpy.float64) * b.numpy() for a, b in (one, other)]
        scale = abs(products[0]).sum()
        if not abs(products[0].sum() - products[1].sum()) <= 1e-4 * scale:
            raise harness.WrongResult(f"{name}: {products[0].sum()} should be {products[1].sum()}")


class Regard(harness.Contestant):
    name, role = "regard", "regard"

    def __init__(self, problem, threads):
        self.problem, self.threads = problem, threads
        gradients = [problem.tensor(tensor.shape) for tensor in problem.inputs()]
        self._arguments = problem.native_case(problem.case.new_out(), gradients, threads)
        problem.library.backward_prepare(self._arguments)

    def run(self, calls):
        return self.problem.library.backward(self._arguments, calls)

    def check(self):
        self.problem.check(self._arguments, self.name, TOLERANCE)


class Torch(harness.Contestant):
    """The autograd of torch.nn.functional.scaled_dot_product_attention."""

    name = "torch"

    def __init__(self, problem, threads):
        import torch

        self.problem, self.threads, self._torch = problem, threads, torch
        self._inputs = [tensor.torch().requires_grad_() for tensor in problem.inputs()]
        self._d_out = problem.d_out.torch()
        self._out = None if problem.row.step else self._forward()

    def _forward(self):
        s = self.problem.spec
        q, k, v, *bias = self._inputs
        return self._torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias[0] if bias else None, dropout_p=s.dropout, is_causal=s.mask == "causal"
        )

    def run(self, calls):
        torch, step = self._torch, self.problem.row.step
        torch.set_num_threads(self.threads)
        start = harness.clock()
        for _ in range(calls):
            if step:
                self._out = self._forward()
            self._gradients = torch.autograd.grad(self._out, self._inputs, self._d_out, retain_graph=not step)
        return harness.clock() - start

    def check(self):
        problem = self.problem
        out = problem.case.new_out()
        out.torch().copy_(self._out.detach())
        gradients = [problem.tensor(tensor.shape) for tensor in problem.inputs()]
        for to, gradient in zip(gradients, self._gradients):
            to.torch().copy_(gradient)
        problem.check(problem.native_case(out, gradients, 1), self.name, PEER_TOLERANCE)


def add_arguments(parser):
    parser.add_argument("--memory-child", help=argparse.SUPPRESS)


def row_names():
    return [row.name for row in ROWS] + ["memory"]


def quick_names():
    return [row.name for row in ROWS if row.quick]


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    if context.arguments.memory_child:
        memory_child(context)
        return None
    return report.measure_rows(
        context, lambda name: measure_memory(context) if name == "memory" else measure_row(context, name)
    )


def measure_row(context, name):
    row = next(row for row in ROWS if row.name == name)
    problem = Problem(context.library, row)
    skipped = {peer: why for peer, why in context.missing_peers.items() if peer == "torch"}
    contestants = []
    for threads in context.threads:
        contestants.append(Regard(problem, threads))
        if "torch" in context.peers:
            contestants.append(Torch(problem, threads))
    contestants = [c for c in contestants if passes(c, skipped, context.progress)]
    lanes = harness.measure(
        contestants,
        context.library.peak,
        context.seconds,
        context.min_rounds,
        lambda text: context.progress.show(f"{name}: {text}"),
    )
    return conclude(row, context.threads, lanes, skipped)


def passes(contestant, skipped, progress):
    """Runs once and compares with the reference. A wrong regard ends the row; a wrong peer is left out."""
    progress.show(f"checking {contestant.name}")
    try:
        contestant.run(1)
        contestant.check()
    except (harness.WrongResult, RuntimeError) as error:
        if contestant.role != "peer":
            raise
        wrong = "WRONG RESULT: " if isinstance(error, harness.WrongResult) else ""
        skipped[contestant.name] = wrong + str(error).splitlines()[0]
        return False
    return True


def conclude(row, thread_counts, lanes, skipped):
    """The lanes as plain data, with ratios and a verdict for each number of threads."""
    mine = {lane.contestant.threads: lane for lane in lanes if lane.contestant.role == "regard"}
    groups = []
    for threads in thread_counts:
        members = [lane for lane in lanes if lane.contestant.threads == threads]
        ratios = {
            lane.contestant.name: harness.speedup(mine[threads], lane)
            for lane in members
            if lane.contestant.role == "peer"
        }
        group = {
            "threads": threads,
            "results": [harness.summarize(lane, row.flops()) for lane in members],
            "ratios": ratios,
            "best_peer": next(iter(ratios), None),
        }
        if threads > 1 and 1 in mine:
            group["scaling"] = harness.speedup(mine[threads], mine[1])
        group["verdict"] = judge(row, group)
        groups.append(group)
    return {
        "kind": "speed",
        "row": row.name,
        "title": row.title,
        "work": row.flops(),
        "unit": "GFLOP/s",
        "yardstick": "FMA peak",
        "target": dataclasses.asdict(row.target),
        "skipped": skipped,
        "threads": groups,
    }


def judge(row, group):
    """What does not hold. Two threads are held to the row that asks for them."""
    target, reached = row.target, None
    if target.kind == "peak":
        reached = 100 * group["results"][0]["of_yardstick"]["median"]
    elif target.kind == "torch" and "torch" in group["ratios"]:
        reached = group["ratios"]["torch"]["median"]
    elif target.kind == "baseline" and group["threads"] == 2 and "scaling" in group:
        reached = group["scaling"]["median"]
    misses = []
    if reached is not None and reached < target.must:
        misses.append(f"below must ({reached:.3g} of {target.must:g})")
    for peer, ratio in group["ratios"].items():
        if ratio["median"] < 1:
            misses.append(f"slower than {peer}")
    return {"misses": misses, "judged": reached is not None, "reached": reached, "aim": False}


def measure_memory(context):
    """Peak RSS of processes that do nothing but one long training step."""
    variants = []
    for name in ["regard"] + (["torch"] if "torch" in context.peers else []):
        context.progress.show(f"memory: {name}")
        command = [sys.executable, str(pathlib.Path(__file__).parent / "bench.py"), "backward"]
        command += ["--build-dir", str(context.arguments.build_dir), "--memory-child", name]
        command += ["--threads", str(max(context.threads)), "--peers", "none"]
        command += ["--simd", context.arguments.simd] if context.arguments.simd else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MEMORY_SECONDS, check=True)
            variants.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            variants.append({"options": name, "error": f"stopped after {MEMORY_SECONDS} s"})
        except subprocess.CalledProcessError as error:
            text = (error.stderr.splitlines() or [f"ended with {error.returncode}: no memory left?"])[-1]
            variants.append({"options": name, "error": text})
    mine = variants[0]
    misses = [f"regard: {mine.get('error') or 'too much'}"]
    if "error" not in mine and mine["added"] < MEMORY_MUST * mine["inputs"]:
        misses = []
    return {
        "kind": "memory",
        "row": "memory",
        "title": "forward + backward, dropout 0.1, B1 H1 N16384 d64",
        "target": dataclasses.asdict(MEMORY_ROW.target),
        "skipped": {},
        "variants": variants,
        "verdict": {"misses": misses, "judged": True, "aim": False},
    }


def memory_now(field):
    """Bytes, from /proc/self/status: getrusage would tell the parent's peak, which exec keeps."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def memory_child(context):
    """The process that measure_memory starts: one step, then what it took, as JSON."""
    name = context.arguments.memory_child
    problem = Problem(context.library, MEMORY_ROW)
    contestant = {"regard": Regard, "torch": Torch}[name](problem, max(context.threads))
    tensors = [*problem.inputs(), problem.d_out]
    # The output and the gradients as well.
    inputs = 2 * sum(tensor.bytes for tensor in tensors)
    before = memory_now("VmRSS")
    seconds = contestant.run(1)
    peak = memory_now("VmHWM")
    print(
        json.dumps(
            {"options": name, "inputs": inputs, "peak": peak, "added": max(0, peak - before), "seconds": seconds}
        )
    )


if __name__ == "__main__":
    sys.exit("run this by ./run bench backward")
