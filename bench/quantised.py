# SPDX-License-Identifier: Apache-2.0
"""Weights of 8 and 4 bits beside those who made them usual: llama.cpp, CTranslate2, ONNX Runtime,
OpenVINO.

A language model in Q4_1, a translator and an encoder in int8, each on the same file (ONNX Runtime and OpenVINO: on the
same weights, quantised by their own tools) and the same threads. Before anything is timed the answers are compared; everybody rounds
what goes into a product in a way of its own, so they are alike and not equal.
"""

import ctypes
import dataclasses
import json
import pathlib
import tempfile

import generate
import translate
from lib import harness, native, report, rows
from lib.rows import Row, Target

DESCRIPTION = "Quantised weights"
PEERS = ("llamacpp", "ctranslate2", "onnxruntime", "openvino")
CALIBRATION = 64  # texts on which OpenVINO measures what goes into products
HOME = pathlib.Path(__file__).resolve().parent
MODELS = pathlib.Path.home() / ".cache/regard-models"
PHRASES = HOME.parent / "tests/tasks/phrasebook.tsv"
LEAST_TEXT = 40  # characters
# Of log-probabilities of the likeliest tokens after the prompt.
SCORES_WITHIN = 0.25
# Of an encoder's vectors, the least of all texts.
COSINE_MUST, PEER_COSINE_MUST = 0.99, 0.9


@dataclasses.dataclass(frozen=True)
class EncodeSpec:
    batch: int = 32  # of the peer; regard packs texts as it likes


def _translation_rows():
    for beam in (1, 5):
        for batch in (1, 32):
            spec = translate.TranslateSpec(beam, batch)
            title = f"OPUS-MT zh-en int8, beam {beam}, batch {batch}"
            yield Row(f"opus_beam{beam}_batch{batch}", title, spec, Target("ctranslate2", 1, 1.3), quick=batch == 32)


ROWS = rows.by_name([
    Row("smollm2_prefill", f"SmolLM2 Q4_1, a prompt of {generate.PROMPT} tokens", generate.Spec(0, True),
        Target("llamacpp", 2, 3), quick=True),
    Row("smollm2_decode", f"SmolLM2 Q4_1, 16 tokens after {generate.PROMPT}", generate.Spec(16, True),
        Target("llamacpp", 1, 1.3), quick=True),
    *_translation_rows(),
    Row("minilm", "MiniLM int8, texts in batches of 32", EncodeSpec(), Target("onnxruntime", 1, 1.3), quick=True),
    Row("minilm_openvino", "MiniLM int8 beside OpenVINO, in batches of 32", EncodeSpec(), Target("openvino", 1, 1.3)),
    Row("minilm_float32", "MiniLM int8 beside float32", EncodeSpec(), Target("baseline", 1.6, of="regard fp32")),
])


def add_arguments(parser):
    parser.add_argument("--language-model", type=pathlib.Path, default=generate.USUAL, metavar="GGUF")
    parser.add_argument("--translator", type=pathlib.Path, default=MODELS / "opus-mt-zh-en/model", metavar="FOLDER",
                        help="as CTranslate2 writes it, in int8")
    parser.add_argument("--sentences", type=pathlib.Path, metavar="FILE", help="to translate (those of a phrase book)")
    parser.add_argument("--encoder", type=pathlib.Path, default=MODELS / "all-MiniLM-L6-v2", metavar="FOLDER")
    parser.add_argument("--texts", type=pathlib.Path, metavar="FILE", help="to encode (lines of docs/)")
    parser.add_argument("--count", type=int, default=256, help="lines of either that are taken (%(default)s)")


def lines_of(path, count):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:count]


def sentences(arguments):
    if arguments.sentences:
        return lines_of(arguments.sentences, arguments.count)
    return [line.split("\t")[2] for line in lines_of(PHRASES, arguments.count)]


def texts(arguments):
    if arguments.texts:
        return lines_of(arguments.texts, arguments.count)
    pages = sorted(path for path in (HOME.parent / "docs").glob("*.md") if "zh-CN" not in path.name)
    long = [line for page in pages for line in lines_of(page, None) if len(line) >= LEAST_TEXT]
    return long[:: max(1, len(long) // arguments.count)][: arguments.count]


class LlamaCpp(generate.LlamaCpp):
    def check(self):
        """The likeliest tokens after the prompt and their log-probabilities, beside regard's."""
        import numpy

        m = self.model
        generate.Regard(m, generate.Spec(0, True), 1).work(1)
        answer = self.complete(n_predict=1, n_probs=10)
        found = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        last = max(one["id"] for one in found)
        scores = numpy.array(m.library.writer_scores(m.handle)[: m.library.vocabulary(m.handle)], dtype=numpy.float64)
        assert last < len(scores)
        scores -= scores.max() + numpy.log(numpy.exp(scores - scores.max()).sum())
        worst = max(abs(scores[one["id"]] - one["logprob"]) for one in found)
        if not worst <= SCORES_WITHIN:
            raise harness.WrongResult(f"log-probabilities differ by {worst:.2f} from regard's")


class CTranslate2(translate.CTranslate2):
    compute_type, same_must = "int8", 0.7


class CTranslate2Workers(translate.CTranslate2Workers):
    compute_type, same_must = "int8", 0.7


class Encoder:
    """The model as regard reads it, and the texts."""

    def __init__(self, library, folder, texts, in_int8):
        self.library, self.folder, self.texts = library, folder, texts
        self.handle = library.make_encoder(str(folder).encode(), "\n".join(texts).encode(), in_int8)
        if not self.handle:
            raise native.NativeError(library.error())

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.release_encoder(self.handle)

    def vectors(self):
        import numpy

        count, width = len(self.texts), self.library.encoder_width(self.handle)
        return numpy.array(self.library.encoder_vectors(self.handle)[: count * width]).reshape(count, width)


class _Reader(harness.TimedContestant):
    def __init__(self, model, truth, threads):
        super().__init__()
        self.model, self.truth, self.threads = model, truth, threads
        self.cosine = None

    @property
    def detail(self):
        rate = f"{len(self.model.texts) / self.median_seconds():,.0f} texts/s"
        return rate + (f", cosine to float32 at least {self.cosine:.4f}" if self.cosine is not None else "")

    def compare(self, vectors, must):
        self.cosine = (vectors * self.truth).sum(1).min()
        if not self.cosine >= must:
            raise harness.WrongResult(f"{self.name}: a vector's cosine to that of float32 is {self.cosine:.4f}")


class Regard(_Reader):
    name, role = "regard", "regard"

    def work(self, calls):
        return self.model.library.encode(self.model.handle, self.threads, calls)

    def check(self):
        self.compare(self.model.vectors(), COSINE_MUST)


class RegardFloat32(Regard):
    name, role = "regard fp32", "baseline"


class _Graph(_Reader):
    """Batches of texts of like length, padded."""

    def __init__(self, model, truth, threads, graph):
        import tokenizers
        from lib import onnx_encoder

        super().__init__(model, truth, threads)
        cutter = tokenizers.Tokenizer.from_file(str(model.folder / "tokenizer.json"))
        settings = json.loads((model.folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        cutter.enable_truncation(settings["max_seq_length"])
        self._encode = onnx_encoder.batches(cutter, self.session(onnx_encoder, cutter, graph), EncodeSpec().batch)
        self._found = None

    def work(self, calls):
        start = harness.clock()
        for _ in range(calls):
            self._found = self._encode(self.model.texts)
        return harness.clock() - start

    def check(self):
        self.compare(self._found, PEER_COSINE_MUST)


class OnnxRuntime(_Graph):
    """Dynamic quantisation of all products."""

    name = "onnxruntime"

    def session(self, onnx_encoder, cutter, graph):
        if not (quantised := graph.with_name("int8.onnx")).exists():
            onnx_encoder.quantise(graph, quantised)
        return onnx_encoder.session(quantised, self.threads)


class OpenVino(_Graph):
    """Static quantisation, by NNCF."""

    name = "openvino"

    def session(self, onnx_encoder, cutter, graph):
        cutter.no_padding()
        return onnx_encoder.openvino_session(graph, cutter, self.model.texts[:CALIBRATION], self.threads)


def declare(library):
    generate.declare(library)
    translate.declare(library)
    text, handle, count = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64
    library.declare("vocabulary", count, [handle])
    library.declare("make_encoder", handle, [text, text, ctypes.c_int32])
    library.declare("release_encoder", None, [handle])
    library.declare("encoder_vectors", ctypes.POINTER(ctypes.c_float), [handle])
    library.declare("encoder_width", count, [handle])
    library.declare("encoder_work", count, [handle])
    library.declare("encode", ctypes.c_double, [handle, ctypes.c_int32, count])


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    declare(context.library)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(context, pathlib.Path(folder))
        return report.measure_rows(context, lambda name: stage.measure(ROWS[name]))


class Stage:
    """Models, loaded when a row needs them; the last one is kept."""

    def __init__(self, context, folder):
        self.context, self.folder = context, folder
        self._kind, self._made = None, None

    def measure(self, row):
        kind, measure = {
            generate.Spec: ("language model", self._generate),
            translate.TranslateSpec: ("translator", self._translate),
            EncodeSpec: ("encoder", self._encode),
        }[type(row.spec)]
        if kind != self._kind:
            self._kind, self._made = kind, None
        return measure(row)

    def _model(self, path, make):
        if not path.exists():
            raise harness.WrongResult(f"no model at {path}; --help says which option names another")
        self._made = self._made or make()
        return self._made

    def _conclude(self, row, contestants_of, flops):
        contestants = [one for threads in self.context.threads for one in contestants_of(threads)]
        wanted = row.target.kind
        skipped = {name: why for name, why in self.context.missing_peers.items() if name == wanted}
        lanes = rows.measure(self.context, row.name, contestants, skipped)
        return rows.conclude(row, lanes, skipped, rows.judge, lambda contestant: flops)

    def _generate(self, row):
        c = self.context
        path = c.arguments.language_model
        model = self._model(path, lambda: generate.Model(c.library, path, True))

        def contestants(threads):
            yield generate.Regard(model, row.spec, threads)
            if "llamacpp" in c.peers:
                yield LlamaCpp(model, row.spec, threads)

        return self._conclude(row, contestants, generate.flops_of(model, row.spec))

    def _translate(self, row):
        c = self.context
        path = c.arguments.translator
        model = self._model(path, lambda: translate.Model(c.library, path, sentences(c.arguments), in_int8=True))

        def contestants(threads):
            yield translate.Regard(model, row.spec, threads)
            if "ctranslate2" in c.peers:
                yield CTranslate2(model, row.spec, threads, path)
                if threads > 1:
                    yield CTranslate2Workers(model, row.spec, threads, path)

        return self._conclude(row, contestants, translate.flops_of(model, row.spec))

    def _encode(self, row):
        c = self.context
        path = c.arguments.encoder

        def make():
            both = [Encoder(c.library, path, texts(c.arguments), in_int8) for in_int8 in (True, False)]
            c.library.encode(both[1].handle, 1, 1)
            return *both, both[1].vectors()

        model, exact, truth = self._model(path, make)

        def contestants(threads):
            yield Regard(model, truth, threads)
            if row.target.kind == "baseline":
                yield RegardFloat32(exact, truth, threads)
            for peer in (OnnxRuntime, OpenVino):
                if peer.name == row.target.kind and peer.name in c.peers:
                    yield peer(model, truth, threads, self._graph(path))

        return self._conclude(row, contestants, 2.0 * c.library.encoder_work(model.handle))

    def _graph(self, path):
        from lib import onnx_encoder

        graph = self.folder / "float32.onnx"
        if not graph.exists():
            onnx_encoder.export(path, graph)
        return graph
