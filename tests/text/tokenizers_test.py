#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers beside Hugging Face's `tokenizers` and SentencePiece, piece by piece.

Real ones are read from ~/.cache/regard-models, or the folder that
REGARD_MODELS names; the others are trained here, on text of the project and of
a generator. Each is compared on lines of two kinds, as many as REGARD_LINES says
(`./test tokenizers`: 10,000 of each): English and Chinese from REGARD_DATA (or
shared/data beside the project) where that is there, and hostile ones that a
generator writes: accents, emoji, blanks, control characters, special
tokens, and bytes that are not UTF-8. Hugging Face cannot take those; we count
each as U+FFFD, as SentencePiece does, and so does this test before it asks.
"""

import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
try:
    import tokenizers as hf
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, processors, trainers)
except ImportError as error:
    print(f"skipped: {error}; this test compares with Hugging Face's tokenizers")
    sys.exit(SKIPPED)
try:
    import sentencepiece
except ImportError:
    sentencepiece = None

ROOT = pathlib.Path(os.environ.get("REGARD_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
DRIVER = pathlib.Path(os.environ.get("REGARD_BINARY_DIR", ROOT / "build/dev")) / "bin/tokenizer_driver"
MODELS = pathlib.Path(os.environ.get("REGARD_MODELS", pathlib.Path.home() / ".cache/regard-models"))
DATA = pathlib.Path(os.environ.get("REGARD_DATA", ROOT / "../shared/data"))
REAL, HOSTILE = (int(n) for n in os.environ.get("REGARD_LINES", "700 700").split())

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# Blocks that the tables of all systems agree on: Hugging Face's categories are of
# Unicode 8, and a character that is younger may be no mark or punctuation there.
BLOCKS = [(0x20, 0x7E), (0xA0, 0x17F), (0x1E00, 0x1EFF), (0x391, 0x3C9), (0x400, 0x45F), (0x5D0, 0x5EA),
          (0x621, 0x64A), (0x905, 0x939), (0xE01, 0xE3A), (0x1100, 0x1112), (0x1161, 0x1175), (0xAC00, 0xD7A3),
          (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0x3400, 0x4DB5), (0xF900, 0xFA2D),
          (0x20000, 0x2A6D6), (0x2000, 0x206F), (0x2100, 0x214F), (0x2460, 0x24FF), (0x2600, 0x26FF),
          (0x3000, 0x3029), (0xFF01, 0xFF5E), (0xFB00, 0xFB06), (0x300, 0x36F), (0x0, 0x1F), (0x7F, 0x9F),
          (0x1F300, 0x1F54A), (0x1F600, 0x1F642), (0x1D400, 0x1D454), (0xE000, 0xE010)]
SNIPPETS = ["'s", "'LL", "don't", "I'm", "\u2019s", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u200b",
            "\u200d", "\ufeff", "\ufffd", "\u2581", "\u2581\u2581", "e\u0301", "n\u0303o", "\u0130", "\u017f", "'\u017f",
            "\u1e9e", "\u03a3", "\u03c2", "\ufb01", "\u00bd", "\u2160", "\u0663", "12345", "3.14", "007", "<s>", "</s>", "<unk>",
            "<pad>", "[MASK]", "[CLS]", " [SEP] ", "<mask>", " <mask> ", "<|endoftext|>", "<|im_start|>", "##", "...", "$1,000.00",
            "http://a.b/c?d=e", "a_b", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
            "\u1112\u1161\u11ab", "\uac00\u11a8", "\x00", "\x01", "\x7f", "\x85", "word", "The", " the", "ing", "YESTERDAY", "yesterday",
            "\u4f60\u597d", "\u3002", "\uff0c", "\u0e19\u0e49\u0e33", "\u0915\u094d\u0937"]


INVALID = [b"\xff", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80", b"\x80", b"\xbf\xbf", b"\xe4\xbd", b"\xf0\x9f\x98",
           b"\xc3", b"\xf4\x90\x80\x80"]


def hostile_lines(count, seed, special=()):
    rng = random.Random(seed)
    pieces = SNIPPETS + list(special) * 3
    lines = [b"", b" ", b"\n", b"a", b"\xff", b" " * 300, b"a" * 5000, "\u0301\u0323".encode() * 500, b"ab " * 700]
    while len(lines) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.45:
                parts.append(rng.choice(pieces).encode())
            elif kind < 0.7:
                low, high = rng.choice(BLOCKS)
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))).encode())
            elif kind < 0.9:
                parts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDE") for _ in range(rng.randint(1, 9))).encode())
            elif kind < 0.96:
                parts.append(b" " * rng.randint(1, 4))
            else:
                parts.append(rng.choice(INVALID))
        lines.append(b"".join(parts))
    return lines


def real_lines(count):
    """English and Chinese, from data that may not be there; then from the project's own documents."""
    files = [(DATA / "translation/en_zh/train_tatoeba.tsv.gz", 0.4), (DATA / "classification/imdb/test.tsv.gz", 0.2),
             (DATA / "translation/multi30k_raw/train.de.gz", 0.2)]
    lines = []
    for path, share in files:
        if path.exists():
            with gzip.open(path, "rb") as file:
                lines += [line.rstrip(b"\n") for line, _ in zip(file, range(int(count * share)))]
    own = [line for path in sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("README*.md")) +
           sorted(ROOT.glob("src/*/*.cc")) for line in path.read_bytes().splitlines() if line]
    while len(lines) < count:
        lines += own[:count - len(lines)]
    return [line[:2000].decode("utf-8", "ignore").encode() for line in lines]


def repaired(line):
    """Each byte that is not part of valid UTF-8 as U+FFFD."""
    text = []
    while line:
        try:
            text.append(line.decode())
            break
        except UnicodeDecodeError as error:
            text.append(line[:error.start].decode() + "\ufffd")
            line = line[error.start + 1:]
    return "".join(text)


def run(path, lines, *options):
    data = b"".join(b"%d\n%s" % (len(line), line) for line in lines)
    done = subprocess.run([DRIVER, *options, path], input=data, capture_output=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode(errors="replace"))
    return done.stdout.decode()


def tokenize(path, lines):
    return [json.loads(line) for line in run(path, lines).splitlines()]


def gguf(settings):
    """A GGUF file without tensors. Lists of str, float or int; bool, int and str."""
    def text(value):
        value = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(value)) + value

    def typed(value):
        if isinstance(value, bool):
            return struct.pack("<I?", 7, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        if isinstance(value, (str, bytes)):
            return struct.pack("<I", 8) + text(value)
        if isinstance(value[0], (str, bytes)):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        code, letter = (6, "f") if isinstance(value[0], float) else (5, "i")
        return struct.pack(f"<IIQ{len(value)}{letter}", 9, code, len(value), *value)
    body = b"".join(text(key) + typed(value) for key, value in settings.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(settings)) + body


def gguf_settings(path):
    """The settings of tokenizer.* in a GGUF file."""
    data = path.read_bytes()
    at = 24
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def number(letter):
        nonlocal at
        (value,) = struct.unpack_from("<" + letter, data, at)
        at += struct.calcsize("<" + letter)
        return value

    def value(code):
        nonlocal at
        if code == 8:
            length = number("Q")
            at += length
            return data[at - length:at].decode()
        if code == 9:
            inner, count = number("I"), number("Q")
            return [value(inner) for _ in range(count)]
        return number(sizes[code])
    settings = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = value(8)
        settings[key] = value(number("I"))
    return {key: v for key, v in settings.items() if key.startswith("tokenizer.")}


class Compare(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.real = real_lines(REAL)
        cls.folder = tempfile.TemporaryDirectory()
        cls.corpus = [repaired(line) for line in cls.real[:4000]]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def same(self, reference, path, *, special=(), offsets=True, lossy=False, decode=True, lines=None):
        lines = lines or self.real + hostile_lines(HOSTILE, 5, special)
        ours = tokenize(path, lines)
        self.assertEqual(len(ours), len(lines))
        texts = [repaired(line) for line in lines]
        plain = reference.encode_batch(texts, add_special_tokens=False)
        around = reference.encode_batch(texts)
        for line, text, got, want, whole in zip(lines, texts, ours, plain, around):
            expected = {"ids": want.ids, "unasked": want.ids, "special": whole.ids, "types": whole.type_ids}
            if decode:
                expected["text"] = reference.decode(want.ids)
                expected["all"] = reference.decode(whole.ids, skip_special_tokens=False)
            # What a tokenizer without an unknown piece leaves out, Hugging Face forgets to count.
            if offsets and (got["text"] == text or not lossy) and text.encode() == line:
                places = [0]
                for c in text:
                    places.append(places[-1] + len(c.encode()))
                expected["offsets"] = [[places[a], places[b]] for a, b in want.offsets]
            for key, value in expected.items():
                if got[key] != value:
                    self.fail(f"{key} of {line}: {got[key]}; expected {value}, {want.tokens}")
        return plain, ours

    def train(self, tokenizer, trainer, name):
        tokenizer.train_from_iterator(self.corpus, trainer)
        path = self.path(name)
        tokenizer.save(str(path))
        return path

    def same_words(self, plain, ours):
        for want, got in zip(plain, ours):
            self.assertEqual(got["words"], want.word_ids)


class WordPieceTest(Compare):
    def model(self, name):
        folder = MODELS / name
        if not folder.exists():
            self.skipTest(f"{folder} is not there")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return folder, tokenizer

    def test_minilm(self):
        folder, tokenizer = self.model("all-MiniLM-L6-v2")
        self.same_words(*self.same(tokenizer, folder))

    def test_gte_small(self):
        folder, tokenizer = self.model("gte-small-onnx")
        self.same(tokenizer, folder / "tokenizer.json")

    def test_vocab_txt(self):
        folder, tokenizer = self.model("all-MiniLM-L6-v2")
        self.same(tokenizer, folder / "vocab.txt", lines=self.real + hostile_lines(HOSTILE, 6))

    def test_cased(self):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=None)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(cleanup=False)
        special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        path = self.train(tokenizer, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special, show_progress=False),
                          "cased.json")
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
        tokenizer.save(str(path))
        self.same(tokenizer, path, special=special)

    def test_gguf(self):
        folder, tokenizer = self.model("all-MiniLM-L6-v2")
        pieces = (folder / "vocab.txt").read_text().splitlines()
        tokens, types = [], []
        for piece in pieces:
            special = piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
            tokens.append(piece if special else piece[2:] if piece.startswith("##") and len(piece) > 2 else "\u2581" + piece)
            types.append(3 if special else 1)
        path = self.path("bert.gguf")
        path.write_bytes(gguf({"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens,
                               "tokenizer.ggml.token_type": types}))
        self.same(tokenizer, path)


class ByteLevelTest(Compare):
    def byte_level(self, pre_tokenizer, name, normalizer=None, prefix=False, **model):
        tokenizer = Tokenizer(models.BPE(**model))
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        special = ["<|endoftext|>", "<s>", "</s>", "<pad>", "<mask>"]
        self.train(tokenizer, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False,
                                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), name)
        tokenizer.add_tokens([AddedToken("yesterday", single_word=True), AddedToken("ing", rstrip=True)])
        tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("[MASK]", lstrip=True, special=True)])
        return tokenizer

    def save_and_compare(self, tokenizer, name, **options):
        path = self.path(name)
        tokenizer.save(str(path))
        return self.same(tokenizer, path, **options)

    def test_gpt2(self):
        tokenizer = self.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), "gpt2.json")
        self.same_words(*self.save_and_compare(tokenizer, "gpt2.json"))

    def test_llama3(self):
        pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer = self.byte_level(pre, "llama3.json", ignore_merges=True)
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])])
        self.save_and_compare(tokenizer, "llama3.json")

    def test_qwen2(self):
        pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer = self.byte_level(pre, "qwen2.json", normalizers.NFC())
        self.save_and_compare(tokenizer, "qwen2.json", offsets=False)

    def test_smollm(self):
        pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.save_and_compare(self.byte_level(pre, "smollm.json"), "smollm.json")

    def test_falcon(self):
        pre = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                       pre_tokenizers.Digits(), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
        self.save_and_compare(self.byte_level(pre, "falcon.json"), "falcon.json", offsets=False)

    def test_roberta(self):
        tokenizer = self.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), "roberta.json")
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=True, add_prefix_space=True)
        self.save_and_compare(tokenizer, "roberta.json", offsets=False)

    def test_accents(self):
        lines = [line.encode() for line in ("\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u093e\u0932\u0940",
                                            "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "a\u20ddb", "cafe\u0301")]
        for normalizer in (normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]),
                           normalizers.BertNormalizer(lowercase=False, strip_accents=True)):
            tokenizer = self.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), "accents.json", normalizer)
            self.save_and_compare(tokenizer, "accents.json", offsets=False, lines=lines)

    def test_word_characters(self):
        lines = [line.encode() for line in ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "x\u00b2", "a\u200db", "\u00bd a\u20ddb",
                                            "\u24b6\u0903_1 \u0663")]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        for pre in (pre_tokenizers.Whitespace(), *(pre_tokenizers.Split(Regex(pattern), "isolated")
                                                   for pattern in (r"\w+", r"[\w]+", r"\W", r"[^\w\s]", r"\b\w", r"\B\w"))):
            tokenizer = self.byte_level(pre_tokenizers.Sequence([pre, last]), "words.json")
            self.same_words(*self.save_and_compare(tokenizer, "words.json", offsets=False, lines=lines))

    def test_vocab_and_merges(self):
        tokenizer = self.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), "plain.json")
        folder = self.path("files")
        folder.mkdir()
        tokenizer.model.save(str(folder))
        reference = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        reference.pre_tokenizer = tokenizer.pre_tokenizer
        reference.decoder = decoders.ByteLevel()
        reference.add_special_tokens(["<|endoftext|>"])
        (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
        self.same(reference, folder, lines=hostile_lines(HOSTILE, 7), offsets=False)

    def test_smollm2_gguf(self):
        file = MODELS / "SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
        if not file.exists():
            self.skipTest(f"{file} is not there")
        settings = gguf_settings(file)
        tokens = settings["tokenizer.ggml.tokens"]
        reference = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)},
                                         [tuple(m.split(" ")) for m in settings["tokenizer.ggml.merges"]]))
        reference.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False)])
        reference.decoder = decoders.ByteLevel()
        special = [t for t, kind in zip(tokens, settings["tokenizer.ggml.token_type"]) if kind == 3]
        reference.add_special_tokens(special)
        path = self.path("smollm2.gguf")
        path.write_bytes(gguf(settings))
        self.same(reference, path, special=special[:6], lossy=True)


class SentencePieceLikeTest(Compare):
    """The kinds of tokenizer.json that were converted from SentencePiece."""

    def llama2(self, normalizer, decoder, name):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizer
        # Words for the training only, as SentencePiece has them.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        self.train(tokenizer, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, limit_alphabet=400,
                                                  show_progress=False), name)
        data = json.loads(self.path(name).read_text())
        data["added_tokens"] = data["added_tokens"][:3]
        data["pre_tokenizer"] = None
        self.path(name).write_text(json.dumps(data))
        tokenizer = Tokenizer.from_file(str(self.path(name)))
        tokenizer.decoder = decoder
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                                 special_tokens=[("<s>", 1)])
        tokenizer.save(str(self.path(name)))
        return tokenizer

    def test_llama2(self):
        tokenizer = self.llama2(normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
                                decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                   decoders.Strip(" ", 1, 0)]), "llama2.json")
        self.same(tokenizer, self.path("llama2.json"), offsets=False)

    def test_gemma(self):
        tokenizer = self.llama2(normalizers.Replace(" ", "\u2581"),
                                decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]),
                                "gemma.json")
        tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("\u2581\u2581", normalized=False)])
        tokenizer.save(str(self.path("gemma.json")))
        self.same(tokenizer, self.path("gemma.json"), offsets=False)

    def test_phi3(self):
        tokenizer = self.llama2(normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
                                decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                   decoders.Strip(" ", 1, 0)]), "phi3.json")
        tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, rstrip=True), AddedToken("<|im_start|>", rstrip=True, special=True)])
        tokenizer.save(str(self.path("phi3.json")))
        self.same(tokenizer, self.path("phi3.json"), offsets=False)

    def unigram(self, normalizer, pre_tokenizer, name, **options):
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=options.get("scheme", "always"))
        special = ["<pad>", "</s>", "<unk>"]
        self.train(tokenizer, trainers.UnigramTrainer(vocab_size=6000, special_tokens=special, unk_token="<unk>",
                                                      show_progress=False), name)
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                                 special_tokens=[("</s>", 1)])
        tokenizer.save(str(self.path(name)))
        return tokenizer

    def charsmap(self):
        """nmt_nfkc as SentencePiece compiles it."""
        model = MODELS / "opus-mt-zh-en/sentencepiece.model"
        if not model.exists():
            self.skipTest(f"{model} is not there")
        return sentencepiece_normalizer(model.read_bytes())

    def test_t5(self):
        tokenizer = self.unigram(normalizers.Sequence([normalizers.Precompiled(self.charsmap()), normalizers.Strip(left=False),
                                                       normalizers.Replace(Regex(" {2,}"), "\u2581")]),
                                 pre_tokenizers.Metaspace(prepend_scheme="always"), "t5.json")
        self.same(tokenizer, self.path("t5.json"), offsets=False)

    def test_xlm_roberta(self):
        tokenizer = self.unigram(normalizers.Precompiled(self.charsmap()), pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]), "xlmr.json", scheme="first")
        self.same(tokenizer, self.path("xlmr.json"), offsets=False)

    def test_albert(self):
        tokenizer = self.unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                                       normalizers.Lowercase(), normalizers.Nmt()]),
                                 pre_tokenizers.Metaspace(prepend_scheme="always"), "albert.json")
        self.same(tokenizer, self.path("albert.json"), offsets=False)

    def test_word_level(self):
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        path = self.train(tokenizer, trainers.WordLevelTrainer(vocab_size=800, special_tokens=["<unk>"], show_progress=False),
                          "words.json")
        self.same_words(*self.same(tokenizer, path))

    def test_bpe_with_marks(self):
        for prefix, suffix in (("", "</w>"), ("##", "")):
            marks = {"end_of_word_suffix": suffix} if suffix else {"continuing_subword_prefix": prefix}
            tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **marks))
            tokenizer.normalizer = normalizers.NFKC()
            tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
            tokenizer.decoder = decoders.BPEDecoder(suffix or "</w>")
            path = self.train(tokenizer, trainers.BpeTrainer(vocab_size=1500, special_tokens=["<unk>"], limit_alphabet=300,
                                                             show_progress=False, **marks), f"marks{suffix == ''}.json")
            self.same(tokenizer, path, offsets=False)


def sentencepiece_normalizer(data):
    """The charsmap inside a model: field 3, then field 2."""
    def fields(message):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value
        while at < len(message):
            tag = varint()
            if tag & 7 == 2:
                length = varint()
                at += length
                yield tag >> 3, message[at - length:at]
            elif tag & 7 == 5:
                at += 4
            else:
                varint()
    return dict(fields(dict(fields(data))[3]))[2]


@unittest.skipIf(sentencepiece is None, "the package sentencepiece is not there")
class SentencePieceTest(Compare):
    def compare(self, model, lines=None):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
        lines = lines or self.real + hostile_lines(HOSTILE, 8, ["<user>", "\u2581x\u2581", "<ctrl>"])
        # SentencePiece's own Python takes bytes, and what is not UTF-8 in them.
        for line, got in zip(lines, tokenize(model, lines)):
            want = processor.encode(line)
            if (got["ids"], got["unasked"], got["text"]) != (want, want, processor.decode(want)):
                self.fail(f"{line}: {got['ids']} {got['text']!r}; expected {want} {processor.decode(want)!r}")

    def test_opus_mt(self):
        model = MODELS / "opus-mt-zh-en/sentencepiece.model"
        if not model.exists():
            self.skipTest(f"{model} is not there")
        self.compare(model)

    def test_trained(self):
        base = dict(vocab_size=1200, hard_vocab_limit=False, minloglevel=2, num_threads=1, character_coverage=0.999)
        cases = {"unigram": {}, "bpe": {"model_type": "bpe"},
                 "bpe_bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                               "remove_extra_whitespaces": False, "vocab_size": 1500},
                 "unigram_bytes": {"byte_fallback": True, "vocab_size": 1500},
                 "suffix": {"treat_whitespace_as_suffix": True}, "no_prefix": {"add_dummy_prefix": False},
                 "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
                 "named": {"user_defined_symbols": ["<user>", "\u2581x\u2581"], "control_symbols": ["<ctrl>"]},
                 "named_bpe": {"model_type": "bpe", "user_defined_symbols": ["<user>"], "control_symbols": ["<ctrl>"]}}
        for name, options in cases.items():
            with self.subTest(name):
                path = self.path(f"{name}.model")
                with open(path, "wb") as file:
                    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(self.corpus[:1500]), model_writer=file,
                                                             **{**base, **options})
                lines = self.real[:10000] + hostile_lines(HOSTILE, 9, ["<user>", "\u2581x\u2581", "<ctrl>"])
                # Pieces that would have the end of a symbol for their own.
                processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
                pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
                self.compare(path, lines + [f"a\u2581x{piece}".encode() for piece in pieces if piece[0] == "\u2581"])


if __name__ == "__main__":
    unittest.main()
