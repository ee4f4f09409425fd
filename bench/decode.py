# SPDX-License-Identifier: Apache-2.0
"""One token against a cache of keys: how near to the speed of memory."""

import ctypes
import dataclasses
import math

from lib import harness, native, report, rows
from lib.rows import Target

DESCRIPTION = "Attention decode"
# More than any last-level cache of today holds: what is read comes from memory.
BEYOND_CACHES = 1 << 30
STORAGE = {"fp32": (0, 4), "bf16": (1, 2), "fp16": (2, 2), "int8": (3, 1)}
# Of the largest true value; int8 keeps seven bits of each element.
TOLERANCE = {"fp32": 1e-5, "bf16": 6e-3, "fp16": 1e-3, "int8": 2e-2}
PEER_TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 6e-3}


@dataclasses.dataclass(frozen=True)
class Spec:
    batch: int = 1
    heads: int = 8
    kv_heads: int = 8
    length: int = 8192
    lengths: tuple = ()  # of each sequence; empty: all `length`
    d: int = 64
    storage: str = "fp32"
    append: bool = False  # a token is appended before each call

    def all_lengths(self):
        return self.lengths or (self.length,) * self.batch


@dataclasses.dataclass(frozen=True)
class Row(rows.Row):
    from_memory: bool = True
    baseline: Spec | None = None  # the same in fp32, for a ratio
    scaling_must: float = 0.0  # two threads against one


_PLAIN = Spec()
_GQA = Spec(heads=32, d=128)
_MIXED = Spec(batch=8, length=2048, lengths=(2048, 1500, 700, 300, 1999, 1024, 50, 1800))
_INT8 = dataclasses.replace(_PLAIN, storage="int8")


def _twice(name, title, spec, target, **more):
    """The row with data from memory, and with data in cache, which has no target but torch."""
    cached = {**more, "quick": False}
    return (
        Row(name, title, spec, target, **more),
        Row(name + "_cached", title + ", in cache", spec, from_memory=False, **cached),
    )


ROWS = rows.by_name((
    *_twice("h8_d64", "fp32 B1 H8/8 L8192 d64", _PLAIN, Target("peak", 85, 95), quick=True),
    *_twice("gqa_d128", "fp32 B1 H32/8 L8192 d128", _GQA, Target("peak", 85, 95), quick=True),
    *_twice("bf16", "bf16 B1 H8/8 L8192 d64", dataclasses.replace(_PLAIN, storage="bf16"), Target("peak", 80, 90)),
    *_twice("fp16", "fp16 B1 H8/8 L8192 d64", dataclasses.replace(_PLAIN, storage="fp16"), Target("peak", 80, 90)),
    *_twice("int8", "int8 B1 H8/8 L8192 d64", _INT8, Target("baseline", 2.5, 3.5, "regard fp32"), baseline=_PLAIN, quick=True),
    *_twice("mixed_b8", "fp32 B8 H8/8 L50 to 2048 d64", _MIXED, Target("peak", 85, 95)),
    Row("h1_l65536", "fp32 B1 H1 L65536 d64", Spec(heads=1, kv_heads=1, length=65536), scaling_must=1.7),
    *(
        Row(f"append_l{n}", f"append and decode, fp32 H8/8 L{n} d64", Spec(length=n, append=True), from_memory=False)
        for n in (100, 1000, 10000, 100000)
    ),
))


def declare(library):
    handle, array = ctypes.c_void_p, ctypes.POINTER(native.Array)
    i32, i64, f64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_double
    library.declare("decode_open", handle, [array, array, array, ctypes.POINTER(i64), i64, i32, i32])
    library.declare("decode_close", None, [handle])
    library.declare("decode_bytes", f64, [handle])
    library.declare("decode", f64, [handle, ctypes.c_void_p, i32, i64])
    library.declare("decode_read", f64, [handle, i32, f64])


class Case:
    """The tensors of a spec, and as many caches that hold them as leave the processor's own."""

    def __init__(self, library, spec, from_memory):
        self.library, self.spec = library, spec
        s = spec
        shape = (s.batch, s.kv_heads, max(s.all_lengths()), s.d)
        self.q = native.Tensor(library, (s.batch, s.heads, 1, s.d)).fill(1)
        self.k = native.Tensor(library, shape).fill(2)
        self.v = native.Tensor(library, shape).fill(3)
        number, element = STORAGE[s.storage]
        once = 2 * sum(s.all_lengths()) * s.kv_heads * s.d * element
        self.copies = max(1, math.ceil(BEYOND_CACHES / once)) if from_memory else 1
        lengths = (ctypes.c_int64 * s.batch)(*s.all_lengths())
        self.handle = library.decode_open(
            self.q.array(), self.k.array(), self.v.array(), lengths, self.copies, number, int(s.append)
        )
        if not self.handle:
            raise native.NativeError(library.error())
        self.bytes = library.decode_bytes(self.handle)

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.decode_close(self.handle)

    def read(self, threads, seconds):
        """The yardstick: bytes a second of a plain read of the same caches."""
        return self.library.decode_read(self.handle, threads, seconds)

    def check(self, out, name, tolerance):
        """Raises WrongResult unless out is the softmax in double; each sequence and head is looked at."""
        import numpy

        s = self.spec
        q, k, v = (t.numpy().astype(numpy.float64) for t in (self.q, self.k, self.v))
        for b, length in enumerate(s.all_lengths()):
            for h in range(s.heads):
                head = h // (s.heads // s.kv_heads)
                keys, values = k[b, head, :length], v[b, head, :length]
                if s.append:  # the first token once more
                    keys, values = (numpy.concatenate([x, x[:1]]) for x in (keys, values))
                scores = keys @ q[b, h, 0] / math.sqrt(s.d)
                weights = numpy.exp(scores - scores.max())
                truth = weights @ values / weights.sum()
                error = numpy.abs(out[b, h, 0] - truth).max()
                limit = tolerance * max(1.0, numpy.abs(truth).max())
                if not error <= limit:
                    raise harness.WrongResult(f"{name}: off by {error:.2e}, allowed {limit:.2e}")


class Regard(harness.Contestant):
    name, role = "regard", "regard"

    def __init__(self, case, threads):
        self.case, self.threads = case, threads
        s = case.spec
        self._out = native.Tensor(case.library, (s.batch, s.heads, 1, s.d))

    def run(self, calls):
        case = self.case
        return case.library.decode(case.handle, self._out.data, self.threads, calls)

    def check(self):
        self.case.check(self._out.numpy(), self.name, TOLERANCE[self.case.spec.storage])


class Baseline(Regard):
    name, role = "regard fp32", "baseline"


class Torch(harness.Contestant):
    """scaled_dot_product_attention on as many copies of k and v; shorter sequences by a mask."""

    name = "torch"

    def __init__(self, case, threads):
        import torch

        s = case.spec
        if s.storage == "int8":
            raise harness.Skipped("no int8")
        if s.append:
            raise harness.Skipped("no cache of its own")
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[s.storage]
        self.case, self.threads, self._torch = case, threads, torch
        self._q = case.q.torch().to(kind)
        # One set of copies serves every number of threads.
        if not hasattr(case, "torch_copies"):
            case.torch_copies = [
                [t.torch().to(kind, copy=True) for t in (case.k, case.v)] for _ in range(case.copies)
            ]
        self._copies = case.torch_copies
        self._options = {"enable_gqa": True} if s.kv_heads != s.heads else {}
        if s.lengths:
            places = torch.arange(max(s.lengths))
            self._options["attn_mask"] = (places < torch.tensor(s.lengths)[:, None])[:, None, None, :]
        self._next = 0
        self._result = None

    def run(self, calls):
        attend = self._torch.nn.functional.scaled_dot_product_attention
        self._torch.set_num_threads(self.threads)
        with self._torch.inference_mode():
            start = harness.clock()
            for _ in range(calls):
                self._next = (self._next + 1) % len(self._copies)
                self._result = attend(self._q, *self._copies[self._next], **self._options)
            return harness.clock() - start

    def check(self):
        result = self._result.to(self._torch.float32).numpy()
        self.case.check(result, self.name, PEER_TOLERANCE[self.case.spec.storage])


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    return report.measure_rows(context, lambda name: measure_row(context, ROWS[name]))


def measure_row(context, row):
    case = Case(context.library, row.spec, row.from_memory)
    base = Case(context.library, row.baseline, row.from_memory) if row.baseline else None
    contestants, skipped = [], {}
    if "torch" in context.missing_peers:
        skipped["torch"] = context.missing_peers["torch"]
    for threads in context.threads:
        contestants.append(Regard(case, threads))
        if base:
            contestants.append(Baseline(base, threads))
        if "torch" in context.peers:
            try:
                contestants.append(Torch(case, threads))
            except harness.Skipped as why:
                skipped["torch"] = str(why)
    lanes = rows.measure(context, row.name, contestants, skipped, case.read)
    reads = {}  # by threads, for the judge
    result = rows.conclude(
        row, lanes, skipped, lambda row, group: judge(row, group, reads), lambda contestant: contestant.case.bytes
    )
    return result | {"unit": "GB/s", "yardstick": "plain read of the same bytes"}


def judge(row, group, reads):
    """From memory nothing but the target is asked; in cache, to be as fast as torch."""
    verdict = rows.judge(row, group)
    verdict["aim"] = verdict["aim"] and verdict["judged"]
    if row.from_memory:
        verdict["misses"] = [miss for miss in verdict["misses"] if not miss.startswith("slower")]
    else:
        verdict["judged"] = verdict["judged"] or group["best_peer"] is not None
    reads[group["threads"]] = group["results"][0]["yardstick"]["median"]
    if row.scaling_must and "scaling" in group:
        verdict["judged"] = True
        scaling = group["scaling"]["median"]
        if scaling < row.scaling_must:
            read = reads[group["threads"]] / reads[1]
            verdict["misses"].append(f"two threads {scaling:.2f}x of one, a plain read {read:.2f}x")
    return verdict
