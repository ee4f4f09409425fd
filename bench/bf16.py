# SPDX-License-Identifier: Apache-2.0
"""Attention and products in bf16 compute, beside torch and what the AMX tiles alone can do.

torch's products go through MKL, which uses AMX whatever oneDNN is told. The rows on VDPBF16PS compare
with a torch that is held to the same instructions, in a process of its own.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import attention
from layer import GemmSpec, compare
from lib import harness, native, report, rows
from lib.attention_case import PEER_TOLERANCE, Case, Regard, Spec
from lib.rows import Row, Target

DESCRIPTION = "Compute in bf16"
PEERS = ("torch",)
PATHS = {"amx": 0, "dot": 1, "float": 2}


def _spec(**sizes):
    return Spec(type=native.BFLOAT16, **sizes)


# A target of kind "rate" is in GFLOP/s of one core. Causal work counts what is visible. What is asked of the
# tiles is asked of the best round: a neighbour's work halves their speed for milliseconds at a time, so a
# median tells how busy the neighbour was.
_D64, _D128 = {"q_len": 4096}, {"q_len": 2048, "d_k": 128}
_TORCH = Target("torch", 1.1, 1.3)
ROWS = rows.by_name((
    Row("amx_n4096_d64", "AMX, H8 N4096 d64", _spec(**_D64), Target("rate", 600, 900), quick=True),
    Row("amx_n2048_d128", "AMX, H8 N2048 d128", _spec(**_D128), Target("rate", 800, 1200), quick=True),
    Row("amx_causal_n4096_d64", "AMX, causal H8 N4096 d64", _spec(**_D64, mask="causal"), Target("rate", 510)),
    Row("amx_causal_n2048_d128", "AMX, causal H8 N2048 d128", _spec(**_D128, mask="causal"), Target("rate", 680)),
    Row("amx_gemm_2048", "AMX, product 2048 x 2048 x 2048", GemmSpec(2048, 2048, 2048), Target("peak", 55, 70)),
    Row("dot_n4096_d64", "VDPBF16PS, H8 N4096 d64", _spec(**_D64), _TORCH),
    Row("dot_n2048_d128", "VDPBF16PS, H8 N2048 d128", _spec(**_D128), _TORCH),
    Row("float_n4096_d64", "float products, H8 N4096 d64", _spec(**_D64)),
))


def path_of(row):
    return row.name.split("_")[0]


def add_arguments(parser):
    parser.add_argument("--hold-torch", action="store_true", help=argparse.SUPPRESS)


def declare(library):
    i64, f64, data = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    library.declare("bf16_path", f64, [ctypes.c_int32])
    library.declare("bf16_gemm", f64, [i64, i64, i64, data, data, data, i64])
    library.declare("amx_peak", f64, [ctypes.c_int32, f64])


class RegardBf16(Regard):
    """attention_forward with compute = kBFloat16, on one path."""

    tolerances = PEER_TOLERANCE  # it rounds the weights, as torch does

    def __init__(self, case, threads, path):
        super().__init__(case, threads)
        self.detail = path
        self._arguments.in_bf16 = 1

    def run(self, calls):
        self.case.library.bf16_path(PATHS[self.detail])
        return super().run(calls)


class Product(harness.Contestant):
    """c = a b^T of bf16 numbers; the truth is the same product in double."""

    out_type = native.BFLOAT16

    def __init__(self, library, spec, threads):
        self.library, self.spec, self.threads = library, spec, threads
        self.a = self._matrix(spec.m, spec.k).fill(1)
        self.b = self._matrix(spec.n, spec.k).fill(2)
        self.out = self._matrix(spec.m, spec.n, self.out_type)

    def _matrix(self, rows, columns, element_type=native.BFLOAT16):
        return native.Tensor(self.library, (1, 1, rows, columns), element_type)

    def torches(self):
        return [matrix.torch()[0, 0] for matrix in (self.a, self.b, self.out)]

    def check(self):
        a, b, out = self.torches()
        compare(self.name, "product", out, a.double() @ b.double().T, 2.0**-8)


class RegardProduct(Product):
    """The right side packed once and for all, and the result in float, as the layer has them."""

    name, role, detail, out_type = "regard", "regard", "amx", native.FLOAT32

    def run(self, calls):
        s = self.spec
        self.library.bf16_path(PATHS["amx"])
        return self.library.bf16_gemm(s.m, s.n, s.k, self.a.data, self.b.data, self.out.data, calls)


class TorchProduct(Product):
    """torch.mm, which gives bf16."""

    name = "torch"

    def run(self, calls):
        import torch

        a, b, out = self.torches()
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            start = harness.clock()
            for _ in range(calls):
                torch.mm(a, b.T, out=out)
            return harness.clock() - start


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    if context.arguments.hold_torch:
        os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX512_E3"  # read when torch is loaded, which it is not yet
    rows.need_torch(context, "bf16")
    declare(context.library)
    results = []
    for name in context.rows:
        row = ROWS[name]
        try:
            held = path_of(row) == "amx" or context.arguments.hold_torch
            result = measure_row(context, row) if held else measure_apart(context, row)
        except (harness.WrongResult, native.NativeError) as error:
            result = {"kind": "wrong", "row": name, "error": str(error)}
        context.progress.clear()
        if result["kind"] == "wrong" or not context.arguments.hold_torch:
            report.print_row(result)
        if "best_round" in result:
            print_best_round(context.library, result["best_round"])
        results.append(result)
    return results


def measure_apart(context, row):
    """The row in another process, whose torch has no AMX."""
    context.progress.show(f"{row.name}: in a process of its own")
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder) / "row.json"
        command = [sys.executable, str(pathlib.Path(__file__).parent / "bench.py"), "bf16", "--hold-torch"]
        command += ["--build-dir", str(context.arguments.build_dir), "--rows", row.name, "--json", str(answer)]
        command += ["--seconds", str(context.seconds), "--clock", context.arguments.clock, "--peers", "torch"]
        command += ["--threads", ",".join(str(count) for count in context.threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not answer.exists():
            raise native.NativeError((done.stderr.splitlines() or ["failed"])[-1])
        return json.loads(answer.read_text(encoding="utf-8"))["results"][0]


def measure_row(context, row):
    library = context.library
    library.bf16_path(PATHS[path_of(row)])  # fails here where the machine has no such path
    contestants, skipped = [], dict(context.missing_peers)
    if isinstance(row.spec, GemmSpec):
        # What the product is asked for on one core.
        contestants = [RegardProduct(library, row.spec, 1), TorchProduct(library, row.spec, 1)]
    else:
        from lib.attention_peers import Torch

        case = Case(library, row.spec)
        for count in context.threads:
            contestants += [RegardBf16(case, count, path_of(row)), Torch(case, count)]
    # The speed of the tiles comes and goes with a neighbour's work, that of vectors much less.
    on_tiles = path_of(row) == "amx"
    tiles = (lambda count, seconds: count * library.amx_peak(0, seconds)) if on_tiles else None
    lanes = rows.measure(context, row.name, contestants, skipped, tiles)
    result = rows.conclude(row, lanes, skipped, rows.judge if on_tiles else attention.judge)
    if on_tiles:
        result["yardstick"] = "AMX peak"
        result["best_round"] = best_round(lanes, row.spec.flops())
        for group in result["threads"]:
            judge_tiles(row.target, group, result["best_round"])
    return result


def best_round(lanes, work):
    """regard on one thread in its fastest round, and the best peak of the run."""
    alone = [lane for lane in lanes if lane.contestant.threads == 1]
    mine = next((lane for lane in alone if lane.contestant.role == "regard"), None)
    if mine is None:
        return None
    rate = max(work / seconds for seconds, _ in mine.rounds.values())
    return {"rate": rate, "peak": max(peak for lane in alone for _, peak in lane.rounds.values())}


def print_best_round(library, best):
    if best is None:
        return
    loaded = []
    for _ in range(20):
        before, tiles, after = (library.amx_peak(kind, 0.003) for kind in (0, 1, 0))
        loaded.append(2 * tiles / (before + after))
    part = f"{100 * best['rate'] / best['peak']:.1f} % of the run's best peak, {best['peak'] / 1e9:.0f} GFLOP/s"
    print(
        f"    best round on one thread: {best['rate'] / 1e9:.0f} GFLOP/s, {part};"
        f" tiles loaded from the first cache, now: {100 * statistics.median(loaded):.1f} %\n"
    )


def judge_tiles(target, group, best):
    """A rate, or a part of the peak, is asked of one core; to be as fast as torch, of any number."""
    verdict = group["verdict"]
    verdict["misses"] = [miss for miss in verdict["misses"] if miss.startswith("slower")]
    verdict["judged"], verdict["aim"] = group["threads"] == 1, False
    if group["threads"] != 1:
        return
    if target.kind == "rate":
        reached = best["rate"] / 1e9
        verdict["note"] = f"best round {reached:.0f} GFLOP/s"
    else:
        reached = 100 * best["rate"] / best["peak"]
        verdict["note"] = f"best round {reached:.1f} % of the best peak"
    verdict["reached"] = reached
    if reached < target.must:
        verdict["misses"].append(f"below target ({target.must:g})")
    verdict["aim"] = bool(target.aim) and reached >= target.aim
