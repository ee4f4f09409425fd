# SPDX-License-Identifier: Apache-2.0
"""Training steps of a Transformer beside torch.nn.Transformer: same weights, batch, loss and optimiser.

The models of `regard train caption`, `video`, `recommend`, `classify`, `summarize` and `answer` stand beside the same
models in torch (lib/task_models.py, lib/reading_models.py), and so does scoring every item for every user. A step is
the loss, all gradients and an update by Adam. Before anything is timed, both take a few steps without dropout from the
same weights, and their losses must agree. Where examples have different lengths, torch pads to the longest of the
batch, and regard packs.
"""

import ctypes
import dataclasses
import math

from lib import harness, native, report, rows, task_training
from lib.rows import Row, Target
from lib.task_spec import TaskSpec

DESCRIPTION = "Training a Transformer"
DROPOUT = 0.3
SMOOTHING = 0.1
CHECKED_STEPS = 3
LOSS_TOLERANCE = 2e-4  # relative, after a few steps in float
RATE = 1e-4


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """Encoder and decoder with `layers` each, and a batch of sentences of one length on each side."""

    vocab: int
    dim: int
    heads: int
    layers: int
    feed_forward: int
    sentences: int
    q_len: int

    def tokens(self):
        return self.sentences * self.q_len

    def flops(self):
        """Three products of each weight, and three and a half of the attention's forward pass."""
        d, ff = self.dim, self.feed_forward
        weights = self.layers * (4 * d * d + 2 * d * ff) + self.layers * (8 * d * d + 2 * d * ff) + self.vocab * d
        pairs = self.layers * (1 + 0.5 + 1) * self.q_len * d  # encoder, causal decoder, cross
        return self.tokens() * (6 * weights + 3.5 * 4 * pairs)


ROWS = rows.by_name((
    Row(
        "tiny_128x32",
        "Transformer-Tiny (4+4 layers, d 128, ffn 256, 4 heads), vocabulary 9712, 128 x 32 tokens, dropout 0.3",
        TrainSpec(9712, 128, 4, 4, 256, 128, 32),
        Target("torch", 2, 3),
        quick=True,
    ),
    Row(
        "small_64x24",
        "3+3 layers, d 256, ffn 1024, 4 heads, vocabulary 8000, 64 x 24 tokens, dropout 0.3",
        TrainSpec(8000, 256, 4, 3, 1024, 64, 24),
        Target("torch", 1.5, 2),
    ),
    Row(
        "caption_34x5x12",
        "captioner, 7 x 7 places x 1280 features (1+2 layers, d 256, ffn 512, 8 heads), 2539 words, 34 pictures x 5"
        " captions x 12 words, dropout 0.3",
        TaskSpec("caption", 256, 8, 1, 512, 2539, 34, 12, decoder_layers=2, captions=5),
        Target("torch", 1.5, 2),
        quick=True,
    ),
    Row(
        "caption_spread",
        "captioner, as caption_34x5x12, but captions of 6 to 20 words, 12 in the mean",
        TaskSpec("caption", 256, 8, 1, 512, 2539, 34, 20, decoder_layers=2, captions=5, least=6, mean=12),
        Target("torch", 1.5, 2),
    ),
    Row(
        "video_32x32",
        "clips of 20 joints (2 layers, d 128, ffn 256, 4 heads), 32 clips x 32 frames, dropout 0.3",
        TaskSpec("video", 128, 4, 2, 256, 20, 32, 32),
        Target("torch", 1.5, 2),
        quick=True,
    ),
    Row(
        "recommend_128x9",
        "SASRec (2 layers, d 50, ffn 50, 1 head), 23715 items, 128 histories x 9 items, dropout 0.5",
        TaskSpec("recommend", 50, 1, 2, 50, 23715, 128, 9, dropout=0.5),
        Target("torch", 2),
        quick=True,
    ),
    Row(
        "recommend_128x50",
        "SASRec (2 layers, d 50, ffn 50, 1 head), 23715 items, 128 histories x 50 items, dropout 0.5",
        TaskSpec("recommend", 50, 1, 2, 50, 23715, 128, 50, dropout=0.5),
        Target("torch", 2),
    ),
    Row(
        "recommend_spread",
        "SASRec, as recommend_128x9, but histories of 3 to 50 items, 9 in the mean, most of them short",
        TaskSpec("recommend", 50, 1, 2, 50, 23715, 128, 50, least=3, mean=9, tail=True, dropout=0.5),
        Target("torch", 2),
    ),
    Row(
        "recommend_score",
        "SASRec, not a step: the scores of all 23715 items for 1024 users with 9 items each",
        TaskSpec("recommend", 50, 1, 2, 50, 23715, 1024, 9, scores=True),
    ),
    Row(
        "classify_64x64",
        "classifier (2 layers, d 128, ffn 256, 4 heads, rotary, mean pooling), 20000 words, 64 texts x 64 tokens,"
        " dropout 0.1",
        TaskSpec("classify", 128, 4, 2, 256, 20000, 64, 64, labels=4, dropout=0.1),
        Target("torch", 1.5),
        quick=True,
    ),
    Row(
        "classify_spread",
        "classifier, as classify_64x64, but texts of 8 to 120 tokens, 64 in the mean",
        TaskSpec("classify", 128, 4, 2, 256, 20000, 64, 120, labels=4, least=8, mean=64, dropout=0.1),
        Target("torch", 1.5),
    ),
    Row(
        "summarize_32x100",
        "summarizer that copies (2+2 layers, d 128, ffn 512, 4 heads, rotary), 6000 pieces, 32 texts x 100 pieces,"
        " summaries of 20, dropout 0.1",
        TaskSpec("summarize", 128, 4, 2, 512, 6000, 32, 100, decoder_layers=2, part_length=20, dropout=0.1),
        Target("torch", 2),
    ),
    Row(
        "summarize_spread",
        "summarizer, as summarize_32x100, but texts of 30 to 300 pieces, about 100 in the mean, most of them short,"
        " and summaries a fifth as long",
        TaskSpec("summarize", 128, 4, 2, 512, 6000, 32, 300, decoder_layers=2, part_length=60, least=30, mean=100,
                 tail=True, dropout=0.1),
        Target("torch", 2),
    ),
    Row(
        "answer_186x11",
        "question answering over sentences (4 shared layers, d 64, ffn 128, 4 heads, rotary), 180 words, 80 answers,"
        " 186 stories x 11 sentences of 3 to 9 words, dropout 0.1",
        TaskSpec("answer", 64, 4, 4, 128, 180, 186, 11, labels=80, part_length=9, dropout=0.1),
        Target("torch", 2),
    ),
    Row(
        "answer_spread",
        "question answering, as answer_186x11, but stories of 3 to 131 sentences, 11 in the mean, most of them short",
        TaskSpec("answer", 64, 4, 4, 128, 180, 186, 131, labels=80, part_length=9, least=3, mean=11, tail=True,
                 dropout=0.1),
        Target("torch", 2),
    ),
))


class TrainCase(ctypes.Structure):
    """Mirrors TrainCase of bench/native/train.cc."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "dim", "heads", "layers", "feed_forward")),
        *((name, ctypes.c_int64) for name in ("sentences", "source_length", "target_length")),
        *((name, ctypes.c_void_p) for name in ("source", "target", "target_out")),
        *((name, ctypes.c_float) for name in ("dropout", "smoothing")),
        ("threads", ctypes.c_int32),
    ]


def declare(library):
    library.declare("make_training", ctypes.c_void_p, [ctypes.POINTER(TrainCase)])
    library.declare("release_training", None, [ctypes.c_void_p])
    library.declare("training_parameter", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p])
    library.declare("training_loss", ctypes.c_double, [ctypes.c_void_p])
    library.declare("train", ctypes.c_double, [ctypes.c_void_p, ctypes.c_int64])


class Batch:
    """Tokens that both sides read."""

    def __init__(self, library, spec):
        import torch

        self.library, self.spec = library, spec
        generator = torch.Generator().manual_seed(1)
        shape = (3, spec.sentences, spec.q_len)
        self.source, self.target, self.target_out = torch.randint(
            spec.vocab, shape, generator=generator, dtype=torch.int32
        )


class _Trainer(harness.TimedContestant):
    def __init__(self, batch, threads):
        super().__init__()
        self.batch, self.threads = batch, threads

    @property
    def detail(self):
        return f"{self.batch.spec.tokens() / self.median_seconds():,.0f} target tokens/s"


class Regard(_Trainer):
    name, role = "regard", "regard"

    def __init__(self, batch, threads, dropout=DROPOUT):
        super().__init__(batch, threads)
        s = batch.spec
        tokens = (t.contiguous().data_ptr() for t in (batch.source, batch.target, batch.target_out))
        case = TrainCase(s.vocab, s.dim, s.heads, s.layers, s.feed_forward, s.sentences, s.q_len, s.q_len, *tokens,
                         dropout, SMOOTHING, threads)
        self._training = batch.library.make_training(ctypes.byref(case))
        if not self._training:
            raise native.NativeError(batch.library.error())

    def __del__(self):
        if getattr(self, "_training", None):
            self.batch.library.release_training(self._training)

    def parameter(self, name, like):
        """A copy of the values as they are now."""
        import torch

        address = self.batch.library.training_parameter(self._training, name.encode())
        if not address:
            raise native.NativeError(f"the model has no parameter {name}")
        memory = (ctypes.c_char * (4 * like.numel())).from_address(address)
        return torch.frombuffer(memory, dtype=torch.float32).reshape(like.shape).clone()

    def work(self, calls):
        return self.batch.library.train(self._training, calls)

    def loss(self):
        return self.batch.library.training_loss(self._training)

    def check(self):
        """The losses of both, without dropout, from the same weights."""
        mine = Regard(self.batch, self.threads, dropout=0.0)
        other = Torch(self.batch, self.threads, dropout=0.0)
        for step in range(CHECKED_STEPS):
            mine.work(1)
            other.work(1)
            error = abs(mine.loss() - other.loss()) / other.loss()
            if not error <= LOSS_TOLERANCE:
                raise harness.WrongResult(
                    f"regard: the loss of step {step + 1} is {mine.loss():.6f}, torch's {other.loss():.6f}"
                )


def _make_model(spec, dropout):
    import torch
    from torch import nn

    class Model(nn.Module):
        """torch.nn.Transformer with one table for both sides and the output."""

        def __init__(self):
            super().__init__()
            core = nn.Transformer(spec.dim, spec.heads, spec.layers, spec.layers, spec.feed_forward, dropout,
                                  batch_first=True)
            self.encoder, self.decoder = core.encoder, core.decoder
            self.embedding = nn.Embedding(spec.vocab, spec.dim)
            place = torch.arange(spec.q_len, dtype=torch.float64)[:, None]
            angle = place * torch.pow(10000.0, -torch.arange(0, spec.dim, 2, dtype=torch.float64) / spec.dim)
            self.places = torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float()
            self.causal = nn.Transformer.generate_square_subsequent_mask(spec.q_len)

        def embed(self, tokens):
            x = self.embedding(tokens) * math.sqrt(spec.dim) + self.places
            return nn.functional.dropout(x, dropout)

        def forward(self, source, target, target_out):
            memory = self.encoder(self.embed(source))
            x = self.decoder(self.embed(target), memory, tgt_mask=self.causal, tgt_is_causal=True)
            scores = x @ self.embedding.weight.T
            return nn.functional.cross_entropy(scores.flatten(0, 1), target_out.flatten(), label_smoothing=SMOOTHING)

    return Model().train()


class Torch(_Trainer):
    name = "torch"

    def __init__(self, batch, threads, dropout=DROPOUT):
        import torch

        super().__init__(batch, threads)
        self._torch = torch
        self._model = _make_model(batch.spec, dropout)
        if dropout == 0:  # to be compared: regard's weights
            mine = Regard(batch, threads, dropout)
            with torch.no_grad():
                for name, p in self._model.named_parameters():
                    p.copy_(mine.parameter(name, p))
        else:
            # PyTorch's own attention weights are dropped, too; ours are not asked to be.
            for module in self._model.modules():
                if isinstance(module, torch.nn.MultiheadAttention):
                    module.dropout = 0.0
        self._optimiser = torch.optim.Adam(self._model.parameters(), lr=RATE, betas=(0.9, 0.98), fused=True)
        self._tokens = [t.long() for t in (batch.source, batch.target, batch.target_out)]
        self._loss = None

    def work(self, calls):
        self._torch.set_num_threads(self.threads)
        start = harness.clock()
        for _ in range(calls):
            self._optimiser.zero_grad()
            self._loss = self._model(*self._tokens)
            self._loss.backward()
            self._optimiser.step()
        return harness.clock() - start

    def loss(self):
        return self._loss.item()

    def check(self):
        pass  # regard's check compares both


def run(context):
    """Measures the rows asked for; returns their results. See bench.py for the context."""
    rows.need_torch(context, "train")
    declare(context.library)
    task_training.declare(context.library)
    return report.measure_rows(context, lambda name: measure_row(context, ROWS[name]))


def measure_row(context, row):
    skipped = {}
    if isinstance(row.spec, TaskSpec):
        kinds = (task_training.Regard, task_training.Torch)
        contestants = [kind(context.library, row.spec, threads) for threads in context.threads for kind in kinds]
    else:
        batch = Batch(context.library, row.spec)
        contestants = [kind(batch, threads) for threads in context.threads for kind in (Regard, Torch)]
    lanes = rows.measure(context, row.name, contestants, skipped)
    return rows.conclude(row, lanes, skipped, rows.judge)
