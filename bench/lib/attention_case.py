# SPDX-License-Identifier: Apache-2.0
"""One attention as data: its shapes and options, its tensors, its truth, and regard computing it."""

import dataclasses

from . import harness, native

# The largest difference from the double reference, of the largest true value. regard's is tight; peers
# may approximate (torch's bf16 path rounds the weights), but not be wrong.
TOLERANCE = {native.FLOAT32: 1e-5, native.FLOAT16: 1e-3, native.BFLOAT16: 6e-3}
PEER_TOLERANCE = {native.FLOAT32: 1e-4, native.FLOAT16: 6e-3, native.BFLOAT16: 3e-2}
CHECKED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Spec:
    """The shapes and options of one attention."""

    batch: int = 1
    heads: int = 8
    kv_heads: int = 0  # 0: heads
    q_len: int = 0
    kv_len: int = 0  # 0: q_len
    d_k: int = 64
    d_v: int = 0  # 0: d_k
    mask: str = "none"  # none, causal, window
    window: int = 0
    dense: bool = False  # the mask's pattern is passed as a dense bool mask
    dropout: float = 0.0
    type: int = native.FLOAT32
    layout: str = "bhld"

    def __post_init__(self):
        for name, same in (("kv_heads", self.heads), ("kv_len", self.q_len), ("d_v", self.d_k)):
            object.__setattr__(self, name, getattr(self, name) or same)

    def visible_pairs(self):
        """Pairs of one head that the mask shows."""
        if self.mask == "none":
            return self.q_len * self.kv_len
        shift = self.kv_len - self.q_len
        limit = self.window if self.mask == "window" else self.kv_len
        seen = (min(max(i + shift + 1, 0), self.kv_len) for i in range(self.q_len))
        return sum(min(keys, limit) for keys in seen)

    def flops(self):
        """Of the visible work alone: two products."""
        return self.batch * self.heads * self.visible_pairs() * 2 * (self.d_k + self.d_v)


class Case:
    """The tensors of a spec, shared by everybody who computes it."""

    def __init__(self, library, spec, seed=1):
        self.library, self.spec = library, spec
        s = self.spec
        self.q = self._tensor((s.batch, s.heads, s.q_len, s.d_k)).fill(seed)
        self.k = self._tensor((s.batch, s.kv_heads, s.kv_len, s.d_k)).fill(seed + 1)
        self.v = self._tensor((s.batch, s.kv_heads, s.kv_len, s.d_v)).fill(seed + 2)
        self._dense = None

    def _tensor(self, shape):
        return native.Tensor(self.library, shape, self.spec.type, self.spec.layout)

    def new_out(self):
        s = self.spec
        return self._tensor((s.batch, s.heads, s.q_len, s.d_v))

    def dense(self):
        """The mask written out, made when first wanted."""
        if self._dense is None:
            s = self.spec
            self._dense = native.DenseMask(self.library, s.q_len, s.kv_len, s.mask, s.window)
        return self._dense

    def native_case(self, out, threads):
        s = self.spec
        return native.AttentionCase(
            self.q.array(),
            self.k.array(),
            self.v.array(),
            out.array(),
            self.dense().data if s.dense else None,
            s.window,
            s.type,
            native.MASKS["dense" if s.dense else s.mask],
            7,
            s.dropout,
            threads,
            0,
        )

    def check(self, out, name, tolerances):
        """Raises WrongResult unless `out` is what the definition says, in double."""
        result = native.Comparison()
        self.library.compare(self.native_case(out, 1), CHECKED_ROWS, 5, result)
        if self.spec.dropout > 0:
            # Everybody draws another pattern: the size of the noise is known, not its values.
            if not 0.75 < result.noise < 1.3:
                raise harness.WrongResult(f"{name}: dropout noise is {result.noise:.2f} times what it should be")
            return
        limit = tolerances[self.spec.type] * result.magnitude
        if not result.error <= limit:
            raise harness.WrongResult(f"{name}: off by {result.error:.2e}, allowed {limit:.2e}")


class _Native(harness.Contestant):
    """Computed by a function of libregard_bench."""

    tolerances = TOLERANCE

    def __init__(self, case, threads):
        self.case, self.threads = case, threads
        self.out = case.new_out()
        self._arguments = case.native_case(self.out, threads)

    def check(self):
        self.case.check(self.out, self.name, self.tolerances)


class Regard(_Native):
    name, role = "regard", "regard"

    def run(self, calls):
        return self.case.library.attention(self._arguments, calls)


class Baseline(Regard):
    """regard on another case of the same work, for a ratio."""

    role = "baseline"

    def __init__(self, case, threads, name):
        super().__init__(case, threads)
        self.name = name


class OpenBlas(_Native):
    """sgemm, softmax, sgemm."""

    name, tolerances = "openblas", PEER_TOLERANCE

    def __init__(self, case, threads):
        if not case.library.openblas():
            raise harness.Skipped("not in this build")
        if case.spec.type != native.FLOAT32 or case.spec.dropout:
            raise harness.Skipped("the composition has fp32 without dropout only")
        super().__init__(case, threads)

    def run(self, calls):
        return self.case.library.openblas_attention(self._arguments, calls)
