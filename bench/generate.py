# SPDX-License-Identifier: Apache-2.0
"""A language model at work beside llama.cpp, which computes with its quantised weights, and transformers in float32.

Before anything is timed the scores after the last token are compared with those of transformers on the
same weights, dequantised. llama.cpp rounds activations to 8 bits, so that its scores are its own.
"""

import ctypes
import dataclasses
import json
import pathlib
import sys

from lib import harness, native, report, rows
from lib.rows import Row, Target

DESCRIPTION = "Language models: reading a prompt, writing token by token"
PEERS = ("llamacpp", "transformers")
USUAL = pathlib.Path.home() / ".cache/regard-models/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = 256  # tokens
# Of the largest score: sums in another order.
TOLERANCE = 1e-4
ROUNDED = 0.1  # where activations are rounded to 8 bits


@dataclasses.dataclass(frozen=True)
class Spec:
    steps: int  # tokens that are written after the prompt; 0: the prompt itself is read
    stored: bool = False  # regard computes with the integers of the file, as llama.cpp does

    def tokens(self):
        return self.steps or PROMPT


ROWS = rows.by_name([
    Row("prefill", f"a prompt of {PROMPT} tokens", Spec(0), Target("llamacpp", 2), quick=True),
    Row("decode", f"16 tokens after {PROMPT}, one at a time", Spec(16)),
    Row("prefill_stored", "prefill with the integers of the file", Spec(0, True), Target("llamacpp", 2), quick=True),
    Row("decode_stored", "decode with the integers of the file", Spec(16, True), Target("llamacpp", 1), quick=True),
])


def add_arguments(parser):
    parser.add_argument("--model", type=pathlib.Path, default=USUAL, metavar="GGUF", help="a llama (SmolLM2-135M-Instruct)")


def declare(library):
    handle, count = ctypes.c_void_p, ctypes.c_int64
    tokens = ctypes.POINTER(ctypes.c_int32)
    library.declare("make_writer", handle, [ctypes.c_char_p, tokens, count, ctypes.c_int32])
    library.declare("release_writer", None, [handle])
    library.declare("writer_scores", ctypes.POINTER(ctypes.c_float), [handle])
    library.declare("layer_weights", count, [handle])
    library.declare("output_weights", count, [handle])
    library.declare("prefill", ctypes.c_double, [handle, ctypes.c_int32, count])
    library.declare("write", ctypes.c_double, [handle, count, ctypes.c_int32, count])


def prompt_tokens():
    """Any will do: the time does not depend on them."""
    return [100 + 37 * i % 5000 for i in range(PROMPT)]


class Model:
    def __init__(self, library, path, stored):
        self.library, self.path, self.stored = library, path, stored
        tokens = prompt_tokens()
        self.handle = library.make_writer(str(path).encode(), (ctypes.c_int32 * len(tokens))(*tokens), len(tokens), stored)
        if not self.handle:
            raise native.NativeError(library.error())
        self._peer = None

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.release_writer(self.handle)

    def peer(self):
        """The same model in transformers."""
        if self._peer is None:
            from lib import gguf_llama

            self._peer = gguf_llama.load(self.path)
        return self._peer


class _Worker(harness.TimedContestant):
    def __init__(self, model, spec, threads):
        super().__init__()
        self.model, self.spec, self.threads = model, spec, threads

    @property
    def detail(self):
        return f"{self.spec.tokens() / self.median_seconds():,.0f} tokens/s"

    def check(self):
        pass


class Regard(_Worker):
    name, role = "regard", "regard"

    def work(self, calls):
        m = self.model
        if self.spec.steps:
            return m.library.write(m.handle, self.spec.steps, self.threads, calls)
        return m.library.prefill(m.handle, self.threads, calls)


class Transformers(_Worker):
    """Also the truth that regard is compared with."""

    name = "transformers"

    def work(self, calls):
        import torch

        torch.set_num_threads(self.threads)
        model, tokens = self.model.peer(), prompt_tokens()
        seconds = 0.0
        with torch.inference_mode():
            for _ in range(calls):
                cache, steps = None, [tokens]
                if self.spec.steps:
                    cache = model(torch.tensor([tokens]), use_cache=True, logits_to_keep=1).past_key_values
                    steps = [[token] for token in tokens[: self.spec.steps]]
                start = harness.clock()
                for step in steps:
                    out = model(torch.tensor([step]), past_key_values=cache, use_cache=True, logits_to_keep=1)
                    cache = out.past_key_values
                seconds += harness.clock() - start
        self.scores = out.logits[0, -1]
        return seconds

    def check(self):
        import torch

        m = self.model
        Regard(m, self.spec, 1).work(1)
        mine = torch.tensor(m.library.writer_scores(m.handle)[: len(self.scores)])
        error = ((mine - self.scores).abs().max() / self.scores.abs().max()).item()
        if error > (ROUNDED if m.stored else TOLERANCE):
            raise harness.WrongResult(f"the scores differ by {error:.1e} of the largest")


class LlamaCpp(_Worker):
    name = "llamacpp"

    def __init__(self, model, spec, threads):
        import xllamacpp

        super().__init__(model, spec, threads)
        params = xllamacpp.CommonParams()
        params.model.path = str(model.path)
        params.n_ctx, params.n_parallel, params.verbosity, params.cache_ram_mib = 1024, 1, 0, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self._server = xllamacpp.Server(params)

    def complete(self, **options):
        answer = self._server.handle_completions({
            "prompt": prompt_tokens(), "temperature": 0, "cache_prompt": False, "ignore_eos": True, **options})
        return json.loads(answer) if isinstance(answer, (str, bytes)) else answer

    def work(self, calls):
        """By its own clock."""
        seconds = 0.0
        for _ in range(calls):
            timings = self.complete(n_predict=self.spec.steps + 1)["timings"]
            # The first token comes with the prompt.
            seconds += timings["predicted_ms" if self.spec.steps else "prompt_ms"] / 1e3
        return seconds


def flops_of(model, spec):
    """Products with the weights; of the prompt, only the last token is scored."""
    layers = model.library.layer_weights(model.handle)
    output = model.library.output_weights(model.handle)
    return 2.0 * (layers * spec.tokens() + output * (spec.steps or 1))


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    path = context.arguments.model
    if not path.exists():
        sys.exit(f"bench: no model at {path}; --model says where one is")
    models = {}

    def measure(name):
        stored = ROWS[name].spec.stored
        if stored not in models:
            models.clear()
            models[stored] = Model(context.library, path, stored)
        return measure_row(context, models[stored], ROWS[name])

    return report.measure_rows(context, measure)


def measure_row(context, model, row):
    skipped = dict(context.missing_peers)
    contestants = []
    for threads in context.threads:
        contestants.append(Regard(model, row.spec, threads))
        contestants += [kind(model, row.spec, threads) for kind in (LlamaCpp, Transformers) if kind.name in context.peers]
    flops = flops_of(model, row.spec)
    lanes = rows.measure(context, row.name, contestants, skipped)

    def judge(row, group):
        # Writing in float32 is measured, and nothing is asked of it.
        return rows.judge(row, group) if row.target else None

    return rows.conclude(row, lanes, skipped, judge, lambda contestant: flops)
