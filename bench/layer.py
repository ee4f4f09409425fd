# SPDX-License-Identifier: Apache-2.0
"""The layer beside torch.nn.MultiheadAttention: inference, with weights, training; and its matrix product.

torch is the peer that the ratios are asked of, and in double and written out as the formula it is also
the truth, so that there is no run without it.
"""

import ctypes
import dataclasses
import math

from lib import harness, native, report, rows
from lib.attention_case import PEER_TOLERANCE, TOLERANCE
from lib.rows import Row, Target

DESCRIPTION = "The layer, and its matrix product"
PARAMETERS = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
DROPOUT = 0.1
NOISE_ROWS = 64  # whose noise is measured
NOISE_LIMITS = (0.75, 1.3)  # times what it should be, as in attention forward
SUM_TOLERANCE = 2e-5


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """Self attention over [batch, length, dim], and what is asked of it."""

    batch: int
    q_len: int
    dim: int
    heads: int
    weights: bool = False  # the average over the heads is returned
    training: bool = False  # forward, then backward to the input and all parameters
    dropout: float = 0.0

    def flops(self):
        """Four projections and two products of attention; backward does each projection twice more, and five
        products of attention, one of them the scores once more."""
        rows = self.batch * self.q_len
        projections, products = 8 * rows * self.dim**2, 4 * rows * self.q_len * self.dim
        return 3 * projections + 3.5 * products if self.training else projections + products


@dataclasses.dataclass(frozen=True)
class GemmSpec:
    """[m, k] times the transpose of [n, k]: what a projection is."""

    m: int
    n: int
    k: int

    def flops(self):
        return 2 * self.m * self.n * self.k


_SHAPES = {
    "b8_n128_e512": ("B8 N128 E512 H8", (8, 128, 512, 8)),
    "b1_n2048_e512": ("B1 N2048 E512 H8", (1, 2048, 512, 8)),
    "b32_n128_e128": ("B32 N128 E128 H4", (32, 128, 128, 4)),
    "b2_n4_e512": ("B2 N4 E512 H8", (2, 4, 512, 8)),
}
# By kind: the words, the options, and what must be reached of torch at each of the four shapes.
_KINDS = {
    "infer": ("inference", {}, (1.05, 1.7, 1.3, 2)),
    "weights": ("inference with averaged weights", {"weights": True}, (1.05, 1.7, 1.3, 2)),
    "train": ("training step", {"training": True}, (1.15, 1.3, 1.5, 3)),
    "dropout": ("training step, dropout 0.1", {"training": True, "dropout": DROPOUT}, (1.4, 4, 2.5, 3)),
}


def _rows():
    for kind, (words, options, musts) in _KINDS.items():
        for (shape, (title, sizes)), must in zip(_SHAPES.items(), musts):
            quick = kind in ("infer", "train")
            spec = LayerSpec(*sizes, **options)
            yield Row(f"{kind}_{shape}", f"{words}, {title}", spec, Target("torch", must), quick=quick)
    for m, n, k in ((1024, 512, 512), (4096, 128, 128)):
        yield Row(f"gemm_{m}_{n}_{k}", f"GEMM {m} x {n} x {k}", GemmSpec(m, n, k), Target("torch", 0.95), quick=True)


ROWS = rows.by_name(_rows())


class LayerCase(ctypes.Structure):
    """Mirrors LayerCase of bench/native/layer.cc."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("batch", "len", "dim", "heads")),
        *((name, ctypes.c_void_p) for name in ("in_weight", "in_bias", "out_weight", "out_bias", "input", "out")),
        *((name, ctypes.c_void_p) for name in ("average", "d_out", "d_input")),
        *((name, ctypes.c_void_p) for name in ("d_in_weight", "d_in_bias", "d_out_weight", "d_out_bias")),
        ("dropout_seed", ctypes.c_uint64),
        ("dropout_rate", ctypes.c_float),
        ("training", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    ]


class GemmCase(ctypes.Structure):
    """Mirrors GemmCase of bench/native/layer.cc."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("m", "n", "k")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "c")),
        ("pack_once", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    ]


def declare(library):
    layer, gemm = ctypes.POINTER(LayerCase), ctypes.POINTER(GemmCase)
    library.declare("make_layer", ctypes.c_void_p, [layer])
    library.declare("release_layer", None, [ctypes.c_void_p])
    library.declare("layer", ctypes.c_double, [ctypes.c_void_p, layer, ctypes.c_int64])
    library.declare("gemm", ctypes.c_double, [gemm, ctypes.c_int64])


def tensor(library, shape):
    """Zeros that both sides see, of up to four dimensions; ask torch_of() for the shape."""
    made = native.Tensor(library, (1,) * (4 - len(shape)) + tuple(shape))
    made.own_shape = tuple(shape)
    return made


def torch_of(made):
    return made.torch().reshape(made.own_shape)


def compare(name, what, got, truth, tolerance):
    """Raises WrongResult unless `got` is near the truth, measured by its largest value."""
    error = (got.double() - truth).abs().max().item()
    limit = tolerance * truth.abs().max().item()
    if not error <= limit:
        raise harness.WrongResult(f"{name}: {what} off by {error:.2e}, allowed {limit:.2e}")


class Layers:
    """The input and the parameters of a spec, shared by everybody who computes it, and the truth."""

    def __init__(self, library, spec):
        self.library, self.spec = library, spec
        e = spec.dim
        self.input = tensor(library, self.activation()).fill(1)
        self.d_out = tensor(library, self.activation()).fill(2)
        shapes = ((3 * e, e), (3 * e,), (e, e), (e,))
        self.parameters = {name: tensor(library, shape) for name, shape in zip(PARAMETERS, shapes)}
        for seed, (name, parameter) in enumerate(self.parameters.items()):
            # Projections of about variance 1, so that the softmax is neither flat nor one key.
            torch_of(parameter.fill(3 + seed)).mul_(0.1 if name.endswith("bias") else 1 / math.sqrt(e))
        self._truth = None

    def activation(self):
        return (self.spec.batch, self.spec.q_len, self.spec.dim)

    def truth(self):
        """{what: the true value in double}, without dropout; made when first wanted."""
        if self._truth is None:
            self._truth = _truth(self)
        return self._truth

    def check(self, name, results, tolerance):
        """Raises WrongResult unless {what: tensor} is what the definition says."""
        if self.spec.dropout:
            self._check_dropout(name, results)
            return
        for what, got in results.items():
            compare(name, what, got, self.truth()[what], tolerance)

    def _check_dropout(self, name, results):
        """Everybody draws another pattern, so there is no truth to compare with. What is known: the size of the
        noise, and sums that tie backward to the pattern of forward."""
        out = results["out"].double()
        picked = self.truth()["noise rows"]
        difference = (out - self.truth()["out"]).reshape(-1, self.spec.dim)[picked]
        noise = (difference / self.truth()["noise"]).square().mean().sqrt().item()
        if not NOISE_LIMITS[0] < noise < NOISE_LIMITS[1]:
            raise harness.WrongResult(f"{name}: dropout noise is {noise:.2f} times what it should be")
        self._check_sums(name, results)

    def _check_sums(self, name, results):
        """Scaling one factor of a product is scaling the other: sums of gradient times value that are equal
        whatever the pattern is, if backward has the same as forward."""
        e = self.spec.dim
        weight, bias, out_weight, out_bias = (torch_of(p).double() for p in self.parameters.values())
        by_weight, by_bias = results["in_proj_weight"] * weight, results["in_proj_bias"] * bias
        q, k, v = (by_weight[i : i + e].sum() + by_bias[i : i + e].sum() for i in (0, e, 2 * e))
        by_out = torch_of(self.d_out) * (results["out"] - out_bias)
        by_input = results["input"] * torch_of(self.input).double()
        pairs = {
            "out_proj.weight": ((results["out_proj.weight"] * out_weight).sum(), by_out.sum()),
            "the values' projection": (v, by_out.sum()),
            "the queries' and the keys' projection": (q, k),
            "the input": (by_input.sum(), by_weight.sum()),
        }
        # What such a sum of random signs comes to, so that a share of it is a relative error.
        limit = SUM_TOLERANCE * by_out.norm().item()
        for what, (one, other) in pairs.items():
            error = abs((one - other).item())
            if not error <= limit:
                raise harness.WrongResult(f"{name}: gradient of {what} off by {error:.2e}, allowed {limit:.2e}")
        true = torch_of(self.d_out).double().sum((0, 1))  # dropout comes before this bias
        compare(name, "out_proj.bias", results["out_proj.bias"], true, PEER_TOLERANCE[native.FLOAT32])


def _truth(case):
    """The formula in double, head by head, and its gradients by autograd."""
    import torch

    s = case.spec
    x = torch_of(case.input).double().requires_grad_()
    parameters = {name: torch_of(p).double().requires_grad_() for name, p in case.parameters.items()}
    weight, bias, out_weight, out_bias = parameters.values()
    q, k, v = (x @ weight.T + bias).split(s.dim, -1)
    width = s.dim // s.heads
    out, average, variance = out_bias, 0, 0
    rows = torch.linspace(0, s.batch * s.q_len - 1, min(NOISE_ROWS, s.batch * s.q_len)).long()
    for h in range(s.heads):
        part = slice(h * width, (h + 1) * width)
        weights = torch.softmax(q[..., part] @ k[..., part].mT / math.sqrt(width), -1)
        to_out = v[..., part] @ out_weight[:, part].T
        out = out + weights @ to_out
        with torch.no_grad():
            average = average + weights / s.heads
            if s.dropout:
                entry = rows // s.q_len
                kept = weights.reshape(-1, s.q_len)[rows].square()
                for b in range(s.batch):
                    shares = torch.where((entry == b)[:, None], kept, 0)
                    variance = variance + shares @ to_out[b].square()
    truth = {"out": out.detach(), "average": average}
    if s.dropout:
        truth |= {"noise rows": rows, "noise": (variance * s.dropout / (1 - s.dropout)).sqrt()}
    elif s.training:
        wanted = {"input": x, **parameters}
        gradients = torch.autograd.grad(out, list(wanted.values()), torch_of(case.d_out).double())
        truth |= dict(zip(wanted, gradients))
    return truth


class Regard(harness.Contestant):
    name, role = "regard", "regard"

    def __init__(self, case, threads):
        self.case, self.threads = case, threads
        s, library = case.spec, case.library
        self._results = {"out": tensor(library, case.activation())}
        if s.weights:
            self._results["average"] = tensor(library, (s.batch, s.q_len, s.q_len))
        if s.training:
            self._results["input"] = tensor(library, case.activation())
            self._results |= {name: tensor(library, p.own_shape) for name, p in case.parameters.items()}

        def address(what):
            return self._results[what].data if what in self._results else None

        inputs = [p.data for p in case.parameters.values()] + [case.input.data]
        outputs = [address(what) for what in ("out", "average")]
        gradients = [case.d_out.data, *(address(what) for what in ("input", *PARAMETERS))]
        sizes = (s.batch, s.q_len, s.dim, s.heads)
        self._arguments = LayerCase(*sizes, *inputs, *outputs, *gradients, 7, s.dropout, s.training, threads)
        self._layer = library.make_layer(self._arguments)
        if not self._layer:
            raise native.NativeError(library.error())

    def __del__(self):
        if getattr(self, "_layer", None):
            self.case.library.release_layer(self._layer)

    def run(self, calls):
        return self.case.library.layer(self._layer, self._arguments, calls)

    def check(self):
        results = {what: torch_of(made) for what, made in self._results.items()}
        self.case.check(self.name, results, TOLERANCE[native.FLOAT32])


class Torch(harness.Contestant):
    """torch.nn.MultiheadAttention as its users have it."""

    name = "torch"
    fast_path = True

    def __init__(self, case, threads):
        import torch

        s = case.spec
        self.case, self.threads, self._torch = case, threads, torch
        self._module = torch.nn.MultiheadAttention(s.dim, s.heads, dropout=s.dropout, batch_first=True)
        self._module.load_state_dict({name: torch_of(p) for name, p in case.parameters.items()})
        self._module.train(s.training)
        self._input = torch_of(case.input).clone().requires_grad_(s.training)
        self._d_out = torch_of(case.d_out)
        self._result = None

    def run(self, calls):
        self._torch.set_num_threads(self.threads)
        self._torch.backends.mha.set_fastpath_enabled(self.fast_path)
        return self._train(calls) if self.case.spec.training else self._infer(calls)

    def _infer(self, calls):
        module, x, weights = self._module, self._input, self.case.spec.weights
        with self._torch.inference_mode():
            start = harness.clock()
            for _ in range(calls):
                self._result = module(x, x, x, need_weights=weights)
            return harness.clock() - start

    def _train(self, calls):
        module, x, d_out = self._module, self._input, self._d_out
        leaves = [x, *module.parameters()]
        self._torch.manual_seed(7)
        start = harness.clock()
        for _ in range(calls):
            for leaf in leaves:  # written anew, not added to
                leaf.grad = None
            self._result = module(x, x, x, need_weights=False)
            self._result[0].backward(d_out)
        return harness.clock() - start

    def check(self):
        results = {"out": self._result[0].detach()}
        if self.case.spec.weights:
            results["average"] = self._result[1]
        if self.case.spec.training:
            results["input"] = self._input.grad
            results |= {name: p.grad for name, p in self._module.named_parameters()}
        self.case.check(self.name, results, PEER_TOLERANCE[native.FLOAT32])


class TorchSlow(Torch):
    """The same without its fast path for inference, which is not always the faster one."""

    name = "torch slow path"
    fast_path = False

    def __init__(self, case, threads):
        if case.spec.training:
            raise harness.Skipped("training has no fast path")
        super().__init__(case, threads)


class Matrices:
    """Both sides of a product, and the truth."""

    def __init__(self, library, spec):
        self.library, self.spec = library, spec
        self.a = tensor(library, (spec.m, spec.k)).fill(1)
        self.b = tensor(library, (spec.n, spec.k)).fill(2)
        self.truth = torch_of(self.a).double() @ torch_of(self.b).double().T


class _Product(harness.Contestant):
    tolerance = TOLERANCE[native.FLOAT32]

    def __init__(self, case, threads):
        self.case, self.threads = case, threads
        self.out = tensor(case.library, (case.spec.m, case.spec.n))

    def check(self):
        compare(self.name, "product", torch_of(self.out), self.case.truth, self.tolerance)


class RegardProduct(_Product):
    """Packs the right side in every call, as mm has to: the same work."""

    name, role, pack_once = "regard", "regard", False

    def __init__(self, case, threads):
        super().__init__(case, threads)
        s = case.spec
        matrices = (case.a.data, case.b.data, self.out.data)
        self._arguments = GemmCase(s.m, s.n, s.k, *matrices, self.pack_once, threads)

    def run(self, calls):
        return self.case.library.gemm(self._arguments, calls)


class PackedProduct(RegardProduct):
    """The right side packed once and for all, as the layer has its weights."""

    name, role, pack_once = "packed once", "baseline", True


class TorchProduct(_Product):
    """torch.mm, which is MKL's sgemm."""

    name, tolerance = "torch", PEER_TOLERANCE[native.FLOAT32]

    def run(self, calls):
        import torch

        a, b, out = torch_of(self.case.a), torch_of(self.case.b).T, torch_of(self.out)
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            start = harness.clock()
            for _ in range(calls):
                torch.mm(a, b, out=out)
            return harness.clock() - start


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    rows.need_torch(context, "layer")
    declare(context.library)
    return report.measure_rows(context, lambda name: measure_row(context, ROWS[name]))


def measure_row(context, row):
    gemm = isinstance(row.spec, GemmSpec)
    case = (Matrices if gemm else Layers)(context.library, row.spec)
    contestants, skipped = [], {}
    for threads in context.threads:
        for kind in (RegardProduct, PackedProduct, TorchProduct) if gemm else (Regard, Torch, TorchSlow):
            try:
                contestants.append(kind(case, threads))
            except harness.Skipped:
                pass  # no fast path to leave out: the column would say nothing
    lanes = rows.measure(context, row.name, contestants, skipped)
    return rows.conclude(row, lanes, skipped, judge)


def judge(row, group):
    """A product may be at 0.95 of torch, and only that; a layer must be as fast as the better of torch's ways."""
    verdict = rows.judge(row, group) | {"aim": False}
    if isinstance(row.spec, GemmSpec):
        verdict["misses"] = [miss for miss in verdict["misses"] if not miss.startswith("slower")]
    return verdict
