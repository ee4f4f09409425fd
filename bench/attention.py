# SPDX-License-Identifier: Apache-2.0
"""Attention forward: the table of what it must and what it should reach, measured."""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

from lib import harness, native, report
from lib.attention_case import Baseline, Case, OpenBlas, Regard, Spec

DESCRIPTION = "Attention forward"
SCALING_MUST = 1.85  # two threads against one
SCALING_FROM = 512  # for sequences of at least this length
MEMORY_MUST = 2.0  # times the inputs
MEMORY_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Target:
    """What is asked for: percent of peak, or a ratio to the baseline or to torch."""

    kind: str  # peak, baseline, or the name of a peer
    must: float
    aim: float = 0.0


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    title: str
    spec: Spec
    target: Target | None = None
    baseline: tuple[str, Spec] | None = None
    quick: bool = False


_N4096 = Spec(q_len=4096)
_CAUSAL = Spec(q_len=4096, mask="causal")

ROWS = (
    Row("h8_n4096_d64", "H8 N4096 d64", _N4096, Target("peak", 82, 88), quick=True),
    Row("h8_n2048_d128", "H8 N2048 d128", Spec(q_len=2048, d_k=128), Target("peak", 85, 91), quick=True),
    Row("causal_n4096_d64", "causal H8 N4096 d64", _CAUSAL, Target("peak", 80, 86)),
    Row("causal_n512_d64", "causal H8 N512 d64", Spec(q_len=512, mask="causal"), Target("peak", 72, 80), quick=True),
    Row("b8_n128_d64", "B8 H8 N128 d64", Spec(batch=8, q_len=128), Target("peak", 72, 82), quick=True),
    Row(
        "dense_causal_n4096",
        "dense bool mask, causal, H8 N4096 d64",
        dataclasses.replace(_CAUSAL, dense=True),
        Target("baseline", 0.9),
        ("built-in causal", _CAUSAL),
    ),
    Row(
        "dense_window_n4096",
        "dense bool mask, window of 512, H8 N4096 d64",
        Spec(q_len=4096, mask="window", window=512, dense=True),
        Target("torch", 8),
        ("built-in window", Spec(q_len=4096, mask="window", window=512)),
    ),
    Row("dv128_n4096", "d_k 64, d_v 128, H8 N4096", Spec(q_len=4096, d_v=128), Target("peak", 82, 88)),
    Row("dropout_n4096", "dropout 0.1, H8 N4096 d64", Spec(q_len=4096, dropout=0.1), Target("peak", 55, 65)),
    Row(
        "gqa_n2048_d128",
        "GQA 32/8 heads, N2048 d128",
        Spec(heads=32, kv_heads=8, q_len=2048, d_k=128),
        Target("peak", 85, 91),
    ),
    Row(
        "tiny_q4_k6",
        "B2 H8 q4 x k6 d64, one call",
        Spec(batch=2, q_len=4, kv_len=6),
        Target("torch", 4, 10),
        quick=True,
    ),
    Row(
        "bf16_n4096",
        "bf16 storage, H8 N4096 d64",
        Spec(q_len=4096, type=native.BFLOAT16),
        Target("baseline", 0.9),
        ("regard fp32", _N4096),
    ),
    Row(
        "fp16_n4096",
        "fp16 storage, H8 N4096 d64",
        Spec(q_len=4096, type=native.FLOAT16),
        Target("baseline", 0.9),
        ("regard fp32", _N4096),
    ),
    Row("strided_n4096", "[batch, len, heads, d] in memory, H8 N4096 d64", Spec(q_len=4096, layout="blhd")),
)

_LONG = Spec(q_len=65536)
MEMORY_VARIANTS = {
    "causal": dataclasses.replace(_LONG, mask="causal"),
    "window 512, dropout 0.1": dataclasses.replace(_LONG, mask="window", window=512, dropout=0.1),
}


def add_arguments(parser):
    parser.add_argument("--memory-child", help=argparse.SUPPRESS)


def row_names():
    return [row.name for row in ROWS] + ["memory"]


def quick_names():
    return [row.name for row in ROWS if row.quick]


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    if context.arguments.memory_child:
        memory_child(context)
        return None
    return report.measure_rows(
        context, lambda name: measure_memory(context) if name == "memory" else measure_row(context, name)
    )


def measure_row(context, name):
    row = next(row for row in ROWS if row.name == name)
    library = context.library
    case = Case(library, row.spec)
    contestants, skipped = [], dict(context.missing_peers)
    for threads in context.threads:
        contestants.append(Regard(case, threads))
        if row.baseline:
            label, spec = row.baseline
            contestants.append(Baseline(Case(library, spec), threads, label))
        for peer in peer_classes(context):
            try:
                contestants.append(peer(case, threads))
            except harness.Skipped as why:
                skipped[peer.name] = str(why)
    contestants = [c for c in contestants if passes(c, skipped, context.progress)]
    lanes = harness.measure(
        contestants,
        library.peak,
        context.seconds,
        context.min_rounds,
        lambda text: context.progress.show(f"{name}: {text}"),
    )
    return conclude(row, context.threads, lanes, skipped)


def peer_classes(context):
    """The classes of the peers that can be used; packages are imported only if asked for."""
    classes = []
    if "torch" in context.peers:
        from lib.attention_peers import Torch

        classes.append(Torch)
    if "onnxruntime" in context.peers:
        from lib.attention_peers import OnnxRuntime

        classes.append(OnnxRuntime)
    return classes + ([OpenBlas] if "openblas" in context.peers else [])


def passes(contestant, skipped, progress):
    """Runs once and compares with the reference. A wrong regard ends the row; a wrong peer is left out."""
    progress.show(f"checking {contestant.name}")
    try:
        contestant.run(1)
        contestant.check()
    except harness.WrongResult as error:
        if contestant.role != "peer":
            raise
        skipped[contestant.name] = f"WRONG RESULT: {error}"
        return False
    except RuntimeError as error:
        if contestant.role != "peer":
            raise
        skipped[contestant.name] = str(error).splitlines()[0]
        return False
    return True


def conclude(row, thread_counts, lanes, skipped):
    """The lanes as plain data, with ratios and a verdict for each number of threads."""
    spec = row.spec.resolved()
    mine = {lane.contestant.threads: lane for lane in lanes if lane.contestant.role == "regard"}
    groups = []
    for threads in thread_counts:
        members = [lane for lane in lanes if lane.contestant.threads == threads]
        ratios = {
            lane.contestant.name: harness.speedup(mine[threads], lane)
            for lane in members
            if lane.contestant.role != "regard"
        }
        peers = [lane.contestant.name for lane in members if lane.contestant.role == "peer"]
        group = {
            "threads": threads,
            "results": [harness.summarize(lane, spec.flops()) for lane in members],
            "ratios": ratios,
            "best_peer": min(peers, key=lambda peer: ratios[peer]["median"], default=None),
        }
        if threads > 1 and 1 in mine:
            group["scaling"] = harness.speedup(mine[threads], mine[1])
        group["verdict"] = judge(row, spec, group)
        groups.append(group)
    target = dataclasses.asdict(row.target) if row.target else None
    if target and row.baseline:
        target["of"] = row.baseline[0]
    return {
        "kind": "speed",
        "row": row.name,
        "title": row.title,
        "work": spec.flops(),
        "unit": "GFLOP/s",
        "yardstick": "FMA peak",
        "target": target,
        "skipped": skipped,
        "threads": groups,
    }


def judge(row, spec, group):
    """What does not hold, and whether the aim is reached."""
    misses, reached, aimed = [], None, True
    target = row.target
    if target:
        if target.kind == "peak":
            reached = 100 * group["results"][0]["of_yardstick"]["median"]
        else:
            name = row.baseline[0] if target.kind == "baseline" else target.kind
            reached = group["ratios"][name]["median"] if name in group["ratios"] else None
        if reached is not None and reached < target.must:
            misses.append(f"below must ({reached:.3g} of {target.must:g})")
        aimed = reached is not None and reached >= (target.aim or target.must)
    peer = group["best_peer"]
    if peer and group["ratios"][peer]["median"] < 1:
        misses.append(f"slower than {peer}")
    scaling = group.get("scaling")
    if scaling and group["threads"] == 2 and spec.q_len >= SCALING_FROM and scaling["median"] < SCALING_MUST:
        misses.append(f"two threads only {scaling['median']:.2f}x of one")
    return {"misses": misses, "judged": reached is not None, "reached": reached, "aim": aimed}


def measure_memory(context):
    """Peak RSS of a process that does nothing but one long call."""
    variants = []
    for options in MEMORY_VARIANTS:
        context.progress.show(f"memory: {options}")
        command = [sys.executable, str(pathlib.Path(__file__).parent / "bench.py"), "attention"]
        command += ["--build-dir", str(context.arguments.build_dir), "--memory-child", options]
        command += ["--threads", str(max(context.threads)), "--peers", "none"]
        command += ["--simd", context.arguments.simd] if context.arguments.simd else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MEMORY_SECONDS, check=True)
            variants.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            variants.append({"options": options, "error": f"stopped after {MEMORY_SECONDS} s"})
        except subprocess.CalledProcessError as error:
            variants.append({"options": options, "error": (error.stderr.splitlines() or ["failed"])[-1]})
    misses = [
        f"{v['options']}: {v.get('error') or 'too much'}"
        for v in variants
        if "error" in v or v["added"] >= MEMORY_MUST * v["inputs"]
    ]
    return {
        "kind": "memory",
        "row": "memory",
        "title": "H8 N65536 d64",
        "target": {"kind": "inputs", "must": MEMORY_MUST},
        "skipped": {},
        "variants": variants,
        "verdict": {"misses": misses, "judged": True, "aim": False},
    }


def memory_now(field):
    """Bytes, from /proc/self/status: getrusage would tell the parent's peak, which exec keeps."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def memory_child(context):
    """The process that measure_memory starts: one call, then what it took, as JSON."""
    case = Case(context.library, MEMORY_VARIANTS[context.arguments.memory_child])
    regard = Regard(case, max(context.threads))
    inputs = sum(tensor.bytes for tensor in (case.q, case.k, case.v, regard.out))
    before = memory_now("VmRSS")
    seconds = regard.run(1)
    peak = memory_now("VmHWM")
    regard.check()
    answer = {"options": context.arguments.memory_child, "inputs": inputs, "peak": peak}
    print(json.dumps({**answer, "added": max(0, peak - before), "seconds": seconds}))
