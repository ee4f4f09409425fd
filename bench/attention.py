# SPDX-License-Identifier: Apache-2.0
"""Attention forward: the table of what it must and what it should reach, measured."""

import dataclasses

from lib import harness, memory, native, report, rows
from lib.attention_case import Baseline, Case, OpenBlas, Regard, Spec
from lib.rows import Target

DESCRIPTION = "Attention forward"
SCALING_MUST = 1.85  # two threads against one
SCALING_FROM = 512  # for sequences of at least this length
MEMORY_MUST = 2.0  # times the inputs
MEMORY_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Row(rows.Row):
    baseline: Spec | None = None  # regard on another case; the target's "of" names it


_N4096 = Spec(q_len=4096)
_CAUSAL = Spec(q_len=4096, mask="causal")

ROWS = rows.by_name((
    Row("h8_n4096_d64", "H8 N4096 d64", _N4096, Target("peak", 82, 88), quick=True),
    Row("h8_n2048_d128", "H8 N2048 d128", Spec(q_len=2048, d_k=128), Target("peak", 85, 91), quick=True),
    Row("causal_n4096_d64", "causal H8 N4096 d64", _CAUSAL, Target("peak", 80, 86)),
    Row("causal_n512_d64", "causal H8 N512 d64", Spec(q_len=512, mask="causal"), Target("peak", 72, 80), quick=True),
    Row("b8_n128_d64", "B8 H8 N128 d64", Spec(batch=8, q_len=128), Target("peak", 72, 82), quick=True),
    Row(
        "dense_causal_n4096",
        "dense bool mask, causal, H8 N4096 d64",
        dataclasses.replace(_CAUSAL, dense=True),
        Target("baseline", 0.9, of="built-in causal"),
        baseline=_CAUSAL,
    ),
    Row(
        "dense_window_n4096",
        "dense bool mask, window of 512, H8 N4096 d64",
        Spec(q_len=4096, mask="window", window=512, dense=True),
        Target("torch", 8),
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
        Target("baseline", 0.9, of="regard fp32"),
        baseline=_N4096,
    ),
    Row(
        "fp16_n4096",
        "fp16 storage, H8 N4096 d64",
        Spec(q_len=4096, type=native.FLOAT16),
        Target("baseline", 0.9, of="regard fp32"),
        baseline=_N4096,
    ),
    Row("strided_n4096", "[batch, len, heads, d] in memory, H8 N4096 d64", Spec(q_len=4096, layout="blhd")),
))
MORE_ROWS = ("memory",)

_LONG = Spec(q_len=65536)
MEMORY_VARIANTS = {
    "causal": dataclasses.replace(_LONG, mask="causal"),
    "window 512, dropout 0.1": dataclasses.replace(_LONG, mask="window", window=512, dropout=0.1),
}


add_arguments = memory.add_argument


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    if context.arguments.memory_child:
        memory_child(context)
        return None
    return report.measure_rows(
        context, lambda name: measure_memory(context) if name == "memory" else measure_row(context, ROWS[name])
    )


def measure_row(context, row):
    case = Case(context.library, row.spec)
    base = Case(context.library, row.baseline) if row.baseline else None
    contestants, skipped = [], dict(context.missing_peers)
    for threads in context.threads:
        contestants.append(Regard(case, threads))
        if base:
            contestants.append(Baseline(base, threads, row.target.of))
        for peer in peer_classes(context):
            try:
                contestants.append(peer(case, threads))
            except harness.Skipped as why:
                skipped[peer.name] = str(why)
    lanes = rows.measure(context, row.name, contestants, skipped)
    return rows.conclude(row, lanes, skipped, judge)


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


def judge(row, group):
    """The row's target, and two threads against one where the sequence is long enough."""
    verdict = rows.judge(row, group)
    scaling = group.get("scaling")
    if scaling and group["threads"] == 2 and row.spec.q_len >= SCALING_FROM and scaling["median"] < SCALING_MUST:
        verdict["misses"].append(f"two threads only {scaling['median']:.2f}x of one")
    return verdict


def measure_memory(context):
    """Peak RSS of a process that does nothing but one long call."""
    more = ["--threads", str(max(context.threads)), "--peers", "none"]
    variants = [memory.measure(context, "attention", options, more, MEMORY_SECONDS) for options in MEMORY_VARIANTS]
    misses = [miss for variant in variants for miss in memory.too_much(variant, MEMORY_MUST)]
    target = dataclasses.asdict(Target("inputs", MEMORY_MUST))
    return memory.result("H8 N65536 d64", variants, misses, target)


def memory_child(context):
    """The process that measure_memory starts."""
    options = context.arguments.memory_child
    case = Case(context.library, MEMORY_VARIANTS[options])
    regard = Regard(case, max(context.threads))
    inputs = sum(tensor.bytes for tensor in (case.q, case.k, case.v, regard.out))
    before = memory.now()
    seconds = regard.run(1)
    memory.report(options, inputs, before, seconds)
    regard.check()
