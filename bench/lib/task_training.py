# SPDX-License-Identifier: Apache-2.0
"""Training steps of tasks, and scoring all items, beside torch: contestants for bench/train.py."""

import ctypes

from . import harness, native
from .task_spec import TaskSpec

CHECKED_STEPS = 3
LOSS_TOLERANCE = 2e-5  # relative, after a few steps in float; 8e-5 is what rotary positions change in a new classifier
RATE = 1e-4
KINDS = {kind: i for i, kind in enumerate(("caption", "video", "recommend", "classify", "summarize", "answer"))}
DATA = {
    "caption": ("features", "target", "target_out"),
    "video": ("clips", "mean", "scale", "labels"),
    "recommend": ("history", "next", "negatives"),
    "classify": ("texts", "labels"),
    "summarize": ("source", "target", "target_out"),
    "answer": ("words", "labels"),
}
FLOATS = {"features", "clips", "mean", "scale"}
SMOOTHING = {"caption": 0.1, "video": 0.1, "summarize": 0.1}
NOUNS = {
    "caption": "pictures",
    "video": "clips",
    "recommend": "users",
    "classify": "texts",
    "summarize": "texts",
    "answer": "questions",
}


class TaskCase(ctypes.Structure):
    """Mirrors TaskCase of bench/native/train_tasks.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "threads")),
        *((name, ctypes.c_int64) for name in ("dim", "heads", "layers", "decoder_layers", "feed_forward")),
        *((name, ctypes.c_int64) for name in ("vocab", "labels", "examples", "length", "captions")),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("lengths", "part_lengths")),
        *((name, ctypes.c_float) for name in ("dropout", "smoothing")),
    ]


def declare(library):
    library.declare("make_task", ctypes.c_void_p, [ctypes.POINTER(TaskCase)])
    library.declare("release_task", None, [ctypes.c_void_p])
    library.declare("task_parameter", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p])
    library.declare("task_data", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)])
    library.declare("task_loss", ctypes.c_double, [ctypes.c_void_p])
    library.declare("train_task", ctypes.c_double, [ctypes.c_void_p, ctypes.c_int64])
    library.declare("score_items", ctypes.c_double, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64])
    # The sum may be negative, so that it is no sign of a failure.
    function = library._library.regard_bench_scored_sum
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_void_p]
    library.scored_sum = function


class _Contestant(harness.TimedContestant):
    def __init__(self, library, spec, threads):
        super().__init__()
        self.library, self.spec, self.threads = library, spec, threads

    @property
    def detail(self):
        return f"{self.spec.examples / self.median_seconds():,.0f} {NOUNS[self.spec.kind]}/s"


class Regard(_Contestant):
    name, role = "regard", "regard"

    def __init__(self, library, spec, threads, dropout=None):
        super().__init__(library, spec, threads)
        s = spec
        lengths = ((ctypes.c_int64 * len(some))(*some) for some in (s.lengths, s.part_lengths))
        case = TaskCase(KINDS[s.kind], threads, s.dim, s.heads, s.layers, s.decoder_layers, s.feed_forward, s.vocab,
                        s.labels, s.examples, s.length, s.captions, *lengths,
                        s.dropout if dropout is None else dropout, SMOOTHING.get(s.kind, 0.0))
        self._task = library.make_task(ctypes.byref(case))
        if not self._task:
            raise native.NativeError(library.error())

    def __del__(self):
        if getattr(self, "_task", None):
            self.library.release_task(self._task)

    def parameter(self, name, like):
        import torch

        address = self.library.task_parameter(self._task, name.encode())
        if not address:
            raise native.NativeError(f"the model has no parameter {name}")
        memory = (ctypes.c_char * (4 * like.numel())).from_address(address)
        return torch.frombuffer(memory, dtype=torch.float32).reshape(like.shape).clone()

    def data(self):
        """What the next step reads: examples one after the other, without padding."""
        import torch

        tensors = {}
        for name in DATA[self.spec.kind]:
            count = ctypes.c_int64()
            address = self.library.task_data(self._task, name.encode(), ctypes.byref(count))
            if not address:
                raise native.NativeError(f"the batch has no {name}")
            memory = (ctypes.c_char * (4 * count.value)).from_address(address)
            kind = torch.float32 if name in FLOATS else torch.int32
            tensor = torch.frombuffer(memory, dtype=kind).clone()
            tensors[name] = tensor if name in FLOATS else tensor.long()
        return tensors

    def work(self, calls):
        if self.spec.scores:
            return self.library.score_items(self._task, self.threads, calls)
        return self.library.train_task(self._task, calls)

    def result(self):
        return self.library.scored_sum(self._task) if self.spec.scores else self.library.task_loss(self._task)

    def check(self):
        """From the same weights, without dropout: the losses of a few steps, or the sum of scores."""
        mine = Regard(self.library, self.spec, self.threads, dropout=0.0)
        other = Torch(self.library, self.spec, self.threads, like=mine)
        for step in range(1 if self.spec.scores else CHECKED_STEPS):
            other.take_data(mine)
            mine.work(1)
            other.work(1)
            error = abs(mine.result() - other.result()) / max(abs(other.result()), 1e-6)
            if not error <= LOSS_TOLERANCE:
                raise harness.WrongResult(
                    f"regard: the result of step {step + 1} is {mine.result():.6f}, torch's {other.result():.6f}"
                )


class Torch(_Contestant):
    name = "torch"

    def __init__(self, library, spec, threads, like=None):
        import torch

        from . import reading_models, task_models

        super().__init__(library, spec, threads)
        self._torch = torch
        dropout = spec.dropout if like is None else 0.0
        models = task_models.MODELS | reading_models.MODELS
        self._model = models[spec.kind](spec, dropout, SMOOTHING.get(spec.kind, 0.0))
        self._model.train(not spec.scores)
        if like is not None:
            with torch.no_grad():
                for name, parameter in self._model.named_parameters():
                    parameter.copy_(like.parameter(name, parameter))
        self._optimiser = torch.optim.Adam(self._model.parameters(), lr=RATE, betas=(0.9, 0.98), fused=True)
        self.take_data(like or Regard(library, spec, threads))
        self._result = None

    def take_data(self, regard):
        # Padded before the clock runs, as the workers of a data loader do it.
        self._data = self._model.batch(regard.data())

    def work(self, calls):
        self._torch.set_num_threads(self.threads)
        start = harness.clock()
        for _ in range(calls):
            if self.spec.scores:
                with self._torch.no_grad():
                    self._result = self._model.score(self._data)
                continue
            self._optimiser.zero_grad()
            loss = self._model(self._data)
            loss.backward()
            self._optimiser.step()
            self._result = loss
        return harness.clock() - start

    def result(self):
        return self._result if self.spec.scores else self._result.item()

    def check(self):
        pass  # regard's check compares both
