# SPDX-License-Identifier: Apache-2.0
"""Attention backward: the table of what it must reach, measured, beside torch's autograd."""

import ctypes
import dataclasses

from lib import harness, memory, native, report, rows
from lib.attention_case import Case, Spec
from lib.rows import Target

DESCRIPTION = "Attention backward"
MEMORY_MUST = 2.0  # times the tensors of the step
MEMORY_SECONDS = 600
TOLERANCE, PEER_TOLERANCE = 2e-5, 1e-4  # of the largest true value
NAMES = ("dq", "dk", "dv", "d_bias")


@dataclasses.dataclass(frozen=True)
class StepSpec(Spec):
    """An attention and its backward pass."""

    forward_too: bool = False
    bias: bool = False  # a learned bias [1, heads, q_len, kv_len]

    def flops(self):
        """Of the visible work: five products backward, two forward."""
        a_pair = 2 * (3 * self.d_k + 2 * self.d_v) + (2 * (self.d_k + self.d_v) if self.forward_too else 0)
        return self.batch * self.heads * self.visible_pairs() * a_pair


_N2048 = StepSpec(q_len=2048)
_SHORT = StepSpec(batch=8, q_len=128)
_CAUSAL, _CAUSAL_SHORT = (dataclasses.replace(spec, mask="causal") for spec in (_N2048, _SHORT))
ROWS = rows.by_name((
    rows.Row("n2048_d64", "H8 N2048 d64", _N2048, Target("peak", 80), quick=True),
    rows.Row("causal_n2048", "causal H8 N2048 d64", _CAUSAL, Target("peak", 74), quick=True),
    rows.Row("n1024_d128", "H8 N1024 d128", StepSpec(q_len=1024, d_k=128), Target("peak", 86), quick=True),
    rows.Row("b8_n128_d64", "B8 H8 N128 d64", _SHORT, Target("peak", 70), quick=True),
    rows.Row("causal_b8_n128", "causal B8 H8 N128 d64", _CAUSAL_SHORT, Target("peak", 50)),
    rows.Row(
        "dropout_n2048",
        "forward + backward, dropout 0.1, H8 N2048 d64",
        dataclasses.replace(_N2048, dropout=0.1, forward_too=True),
        Target("torch", 4),
    ),
    rows.Row(
        "bias_n2048",
        "forward + backward, learned bias [1, H, N, N], H8 N2048 d64",
        dataclasses.replace(_N2048, bias=True, forward_too=True),
        Target("torch", 2),
    ),
    rows.Row(
        "h1_n4096", "B1 H1 N4096 d64", StepSpec(heads=1, q_len=4096), Target("baseline", 1.8, of="one thread")
    ),
))
MORE_ROWS = ("memory",)
MEMORY_SPEC = StepSpec(heads=1, q_len=16384, dropout=0.1, forward_too=True)


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
    """The inputs of a spec, shared by everybody who computes it."""

    def __init__(self, library, spec):
        self.library, self.spec = library, spec
        self.case = Case(library, spec)
        s = spec
        self.d_out = self.case.new_out().fill(4)
        self.bias = self.tensor((1, s.heads, s.q_len, s.kv_len)).fill(5) if s.bias else None

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
            int(s.forward_too),
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
        self._out = None if problem.spec.forward_too else self._forward()

    def _forward(self):
        s = self.problem.spec
        q, k, v, *bias = self._inputs
        return self._torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias[0] if bias else None, dropout_p=s.dropout, is_causal=s.mask == "causal"
        )

    def run(self, calls):
        torch, step = self._torch, self.problem.spec.forward_too
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


add_arguments = memory.add_argument


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    if context.arguments.memory_child:
        memory_child(context)
        return None
    return report.measure_rows(
        context, lambda name: measure_memory(context) if name == "memory" else measure_row(context, ROWS[name])
    )


def measure_row(context, row):
    problem = Problem(context.library, row.spec)
    skipped = {peer: why for peer, why in context.missing_peers.items() if peer == "torch"}
    contestants = []
    for threads in context.threads:
        contestants.append(Regard(problem, threads))
        if "torch" in context.peers:
            contestants.append(Torch(problem, threads))
    lanes = rows.measure(context, row.name, contestants, skipped)
    return rows.conclude(row, lanes, skipped, judge)


def judge(row, group):
    """Two threads are held to the row that asks for them."""
    verdict = rows.judge(row, group) | {"aim": False}
    if row.target.kind == "baseline" and group["threads"] == 2 and "scaling" in group:
        reached = group["scaling"]["median"]
        verdict |= {"judged": True, "reached": reached}
        if reached < row.target.must:
            verdict["misses"].append(f"below target ({reached:.3g} of {row.target.must:g})")
    return verdict


def measure_memory(context):
    """Peak RSS of processes that do nothing but one long training step."""
    more = ["--threads", str(max(context.threads)), "--peers", "none"]
    who = ["regard"] + (["torch"] if "torch" in context.peers else [])
    variants = [memory.measure(context, "backward", name, more, MEMORY_SECONDS) for name in who]
    title = "forward + backward, dropout 0.1, B1 H1 N16384 d64"
    target = dataclasses.asdict(Target("inputs", MEMORY_MUST))
    return memory.result(title, variants, memory.too_much(variants[0], MEMORY_MUST), target)


def memory_child(context):
    """The process that measure_memory starts."""
    name = context.arguments.memory_child
    problem = Problem(context.library, MEMORY_SPEC)
    contestant = {"regard": Regard, "torch": Torch}[name](problem, max(context.threads))
    # The output and the gradients as well.
    inputs = 2 * sum(tensor.bytes for tensor in (*problem.inputs(), problem.d_out))
    before = memory.now()
    memory.report(name, inputs, before, contestant.run(1))
