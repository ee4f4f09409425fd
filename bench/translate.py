# SPDX-License-Identifier: Apache-2.0
"""A translator at work beside CTranslate2 with the same weights, converted.

Before anything is timed the translations of both are compared, sentence by sentence. Both translate
the same file: sentences of like length share a batch, and no output is longer than MAX_LENGTH pieces.
"""

import ctypes
import dataclasses
import pathlib
import subprocess
import sys
import tempfile

from lib import harness, memory, native, report, rows
from lib.rows import Row, Target

DESCRIPTION = "Translating"
PEERS = ("ctranslate2",)
MAX_LENGTH = 100
# Sums in another order change a translation where two pieces are equally likely.
SAME_MUST = 0.97
HOME = pathlib.Path(__file__).resolve().parent
BUNDLED = HOME.parent / "models" / "en-zh"
PIECES, SOURCES, TRANSLATIONS = 0, 1, 2  # of regard_bench_translator_text


@dataclasses.dataclass(frozen=True)
class TranslateSpec:
    beam: int
    batch: int


ROWS = rows.by_name(
    Row(
        f"beam{beam}_batch{batch}",
        f"beam {beam}, batch {batch}",
        TranslateSpec(beam, batch),
        Target("ctranslate2", 1, 1.5),
        quick=batch == 32,
    )
    for beam in (1, 5)
    for batch in (1, 32)
)
MORE_ROWS = ("memory",)


def add_arguments(parser):
    parser.add_argument("--model", type=pathlib.Path, default=BUNDLED, metavar="FOLDER")
    parser.add_argument("--to", help="language, for a model that knows both directions; zh for the bundled one")
    parser.add_argument("--input", type=pathlib.Path, default=HOME / "sentences.en", metavar="FILE")
    parser.add_argument("--lines", type=int, default=256, help="how many of its first lines (256)")
    memory.add_argument(parser)


def declare(library):
    text, handle, count = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64
    library.declare("make_translator", handle, [text, text, text, ctypes.c_int32])
    library.declare("release_translator", None, [handle])
    library.declare("translator_text", text, [handle, ctypes.c_int32])
    library.declare("encoder_weights", count, [handle])
    library.declare("decoder_weights", count, [handle])
    library.declare("decode_pieces", text, [handle, text])
    library.declare("translate", ctypes.c_double, [handle, count, count, count, ctypes.c_int32, count])


def model_of(library, arguments):
    lines = arguments.input.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    return Model(library, arguments.model, [line for line in lines if line.strip()], language_of(arguments))


def language_of(arguments):
    return arguments.to or ("zh" if arguments.model == BUNDLED else "")


class Model:
    """The model as regard reads it, and the sentences."""

    def __init__(self, library, folder, sentences, to="", in_int8=False):
        self.library, self.sentences = library, sentences
        words = (str(folder), to, "\n".join(sentences))
        self.handle = library.make_translator(*(word.encode() for word in words), in_int8)
        if not self.handle:
            raise native.NativeError(library.error())

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.release_translator(self.handle)

    def text(self, what):
        return self.library.translator_text(self.handle, what).removesuffix("\n").split("\n")

    def decode(self, pieces):
        return self.library.decode_pieces(self.handle, " ".join(pieces).encode())


class _Worker(harness.TimedContestant):
    def __init__(self, model, spec, threads):
        super().__init__()
        self.model, self.spec, self.threads = model, spec, threads
        self.same = None

    @property
    def detail(self):
        rate = len(self.model.sentences) / self.median_seconds()
        same = f", {self.same} of {len(self.model.sentences)} translations as regard's" if self.same is not None else ""
        return f"{rate:,.0f} sentences/s{same}"


class Regard(_Worker):
    name, role = "regard", "regard"

    def work(self, calls):
        m, s = self.model, self.spec
        return m.library.translate(m.handle, s.beam, s.batch, MAX_LENGTH, self.threads, calls)

    def translations(self):
        self.work(1)
        return self.model.text(TRANSLATIONS)

    def check(self):
        """The peer's check compares both; alone, one batch must not change another's sentences."""
        alone = Regard(self.model, TranslateSpec(self.spec.beam, 1), 1).translations()
        if self.translations() != alone:
            raise harness.WrongResult("regard: a batch changes its sentences' translations")


class CTranslate2(_Worker):
    name = "ctranslate2"
    compute_type, same_must = "float32", SAME_MUST
    workers = False  # a thread for each batch, or all threads in one batch

    def __init__(self, model, spec, threads, folder):
        import ctranslate2

        super().__init__(model, spec, threads)
        inter, intra = (threads, 1) if self.workers else (1, threads)
        self._translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=self.compute_type, inter_threads=inter, intra_threads=intra
        )
        self._sources = [line.split() for line in model.text(SOURCES)]
        self._found = None

    def work(self, calls):
        start = harness.clock()
        for _ in range(calls):
            self._found = self._translator.translate_batch(
                self._sources,
                beam_size=self.spec.beam,
                max_batch_size=self.spec.batch,
                length_penalty=1,
                max_decoding_length=MAX_LENGTH,
                disable_unk=True,
            )
        return harness.clock() - start

    def translations(self):
        return [self.model.decode(found.hypotheses[0]) for found in self._found]

    def check(self):
        mine = Regard(self.model, self.spec, 1).translations()
        self.same = sum(a == b for a, b in zip(mine, self.translations(), strict=True))
        if self.same < self.same_must * len(mine):
            raise harness.WrongResult(f"only {self.same} of {len(mine)} translations are regard's")


class CTranslate2Workers(CTranslate2):
    """Batches side by side: what its authors advise for files."""

    name = "ctranslate2 workers"
    workers = True


def convert(model, arguments, folder):
    from lib import ctranslate2_model

    ctranslate2_model.convert(arguments.model, folder, model.text(PIECES))


def flops_of(model, spec):
    """Products with the weights: the encoder's once a source piece, the decoder's once a hypothesis and step."""
    read = sum(len(line.split()) + 1 for line in model.text(SOURCES))
    Regard(model, spec, 1).work(1)
    written = sum(len(line.split()) + 1 for line in model.text(TRANSLATIONS))
    encoder, decoder = (count(model.handle) for count in (model.library.encoder_weights, model.library.decoder_weights))
    return 2.0 * (read * encoder + written * spec.beam * decoder)


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    arguments = context.arguments
    if not (arguments.model / "config.json").exists():
        sys.exit(f"bench: no translator at {arguments.model}; --model says where one is")
    model = model_of(context.library, arguments)
    if arguments.memory_child:
        memory_child(context, model)
        return None
    with tempfile.TemporaryDirectory() as folder:
        if "ctranslate2" in context.peers:
            convert(model, arguments, folder)

        def measure(name):
            return measure_memory(context) if name == "memory" else measure_row(context, model, ROWS[name], folder)

        return report.measure_rows(context, measure)


def measure_row(context, model, row, folder):
    spec = row.spec
    skipped = {name: why for name, why in context.missing_peers.items() if name == "ctranslate2"}
    contestants = []
    for threads in context.threads:
        contestants.append(Regard(model, spec, threads))
        if "ctranslate2" in context.peers:
            contestants.append(CTranslate2(model, spec, threads, folder))
            if threads > 1:
                contestants.append(CTranslate2Workers(model, spec, threads, folder))
    flops = flops_of(model, spec)
    lanes = rows.measure(context, row.name, contestants, skipped)
    return rows.conclude(row, lanes, skipped, rows.judge, lambda contestant: flops)


def measure_memory(context):
    """Peak RSS of processes that load the model and translate the sentences once, beam 5, batch 32."""
    arguments = context.arguments
    more = ["--model", str(arguments.model), "--to", language_of(arguments), "--input", str(arguments.input)]
    more += ["--lines", str(arguments.lines), "--threads", "1", "--peers"]
    variants = [memory.measure(context, "translate", "regard", [*more, "none"])]
    if "ctranslate2" in context.peers:
        variants.append(memory.measure(context, "translate", "ctranslate2", [*more, "ctranslate2"]))
    misses = [f"{v['options']}: {v['error']}" for v in variants if "error" in v]
    if not misses and len(variants) == 2 and variants[0]["added"] > variants[1]["added"]:
        misses = ["more than ctranslate2"]
    title = "loading the model and translating, beam 5, batch 32; inputs: the file of the weights"
    return memory.result(title, variants, misses)


def memory_child(context, model):
    """The process that measure_memory starts."""
    arguments, who = context.arguments, context.arguments.memory_child
    weights = (arguments.model / "model.safetensors").stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        if who == "ctranslate2":
            # Its files are written by another process, so that only reading them counts here.
            program = "import sys; sys.path.insert(0, sys.argv[1]); from lib import ctranslate2_model as c;"
            program += "c.convert(sys.argv[2], sys.argv[3], sys.stdin.read().splitlines())"
            pieces = "\n".join(model.text(PIECES))
            command = [sys.executable, "-c", program, str(HOME), str(arguments.model), folder]
            subprocess.run(command, input=pieces, text=True, check=True)
            import ctranslate2  # noqa: F401  what Python's imports take is not the translator's

            before = memory.now()
            worker = CTranslate2(model, TranslateSpec(5, 32), 1, folder)
        else:
            del model
            before = memory.now()
            worker = Regard(model_of(context.library, arguments), TranslateSpec(5, 32), 1)
        memory.report(who, weights, before, worker.run(1))
