# SPDX-License-Identifier: Apache-2.0
"""Models that somebody trained, from the folders in which people have them."""

import os
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _core

__all__ = ["LanguageModel", "TextEncoder", "TextTrace", "Translator", "load"]

_Path = Union[str, os.PathLike]


class TextTrace(NamedTuple):
    """What a text became on its way through an encoder."""

    tokens: List[str]  #: the pieces, as the tokenizer writes them
    words: List[int]  #: which word of the text each belongs to; -1: [CLS] and the like
    hidden_states: Any  #: [layers + 1, tokens, model_dim]: the embeddings, then each layer's
    weights: Any  #: [layers, heads, tokens, tokens]: who attended to whom


def _threads(threads: Optional[int], name: str = "TextEncoder") -> int:
    if threads is None:
        return 0
    if threads < 1:
        raise ValueError(f"{name}: threads must be at least 1, or None for one a core; got {threads}")
    return threads


class TextEncoder:
    """A pretrained encoder: BERT, RoBERTa, XLM-R, DistilBERT, MPNet or ALBERT.

    `regard.load(folder)` makes one. Texts are packed, never padded: a vector has the same
    bits whatever stands beside its text, on any number of threads, and those of `regard embed`.
    """

    def __init__(self, folder: _Path, *, weights: str = "float32"):
        self._encoder = _core.TextEncoder.load(os.fspath(folder), weights)
        #: family, vocab, model_dim, layers, heads, max_length, embedding_dim, pooling, normalize, prompts
        self.config = self._encoder.config()

    def encode(self, texts: Union[str, Sequence[str]], *, prompt: Optional[str] = None,
               threads: Optional[int] = None):
        """The vectors of some texts, float32 [texts, embedding_dim]; of one text, [embedding_dim].

        prompt   the name of one of the model's prompts, config["prompts"]; its default if not given
        threads  how many, the caller among them; one a core if not given
        """
        one = isinstance(texts, str)
        vectors = self._encoder.encode([texts] if one else list(texts), prompt or "", _threads(threads))
        return vectors[0] if one else vectors

    def trace(self, text: str, *, prompt: Optional[str] = None, threads: Optional[int] = None) -> TextTrace:
        """The tokens of a text, the hidden states after every layer, and the weights of every head."""
        return TextTrace(*self._encoder.trace(text, prompt or "", _threads(threads)))

    def __repr__(self):
        c = self.config
        return (f"<regard.TextEncoder: {c['family']}, {c['layers']} layers, {c['heads']} heads, "
                f"{c['embedding_dim']} numbers a text>")


def _sampling(temperature: float, top_k: int, top_p: float, seed: int):
    if temperature == 0 and (top_k != 0 or top_p != 1):
        raise ValueError("LanguageModel: top_k and top_p choose what a temperature above 0 draws from; "
                         "without it the likeliest token is taken")
    if not 0 <= seed < 2**64:
        raise ValueError(f"LanguageModel: seed must be 0 to 2^64 - 1; got {seed}")
    return _core.Sampling(temperature, top_k, top_p, seed)


class LanguageModel:
    """A pretrained decoder: Llama, Mistral, SmolLM, Qwen, Gemma, Phi-3 or GPT-2.

    `regard.load(path)` makes one, from a Hugging Face folder or a GGUF file. A text is the same
    alone or among others, on any number of threads, and the one of `regard generate`.
    """

    def __init__(self, path: _Path, *, tokenizer: Optional[_Path] = None, weights: str = "as-stored"):
        self._model = _core.LanguageModel.load(
            os.fspath(path), None if tokenizer is None else os.fspath(tokenizer), weights)
        #: vocab, model_dim, layers, heads, kv_heads, head_dim, context
        self.config = self._model.config()

    def generate(self, prompts: Union[str, Sequence[str]] = "", *, max_tokens: int = 256, temperature: float = 0.0,
                 top_k: int = 0, top_p: float = 1.0, seed: int = 0, threads: Optional[int] = None):
        """What the model writes after a prompt, a str; after some prompts, which it continues at once, a list.

        max_tokens   at most so many are written after each; fewer where the model ends its text
        temperature  divides the scores: above 1 more varied, below 1 more predictable; 0 always takes the likeliest token
        top_k        draw from the k likeliest tokens only; 0: from all
        top_p        of those, draw from the fewest that have this share of the probability
        seed         the same seed draws the same text
        threads      how many, the caller among them; one a core if not given
        """
        one = isinstance(prompts, str)
        texts = self._model.generate([prompts] if one else list(prompts), max_tokens,
                                     _sampling(temperature, top_k, top_p, seed), _threads(threads, "LanguageModel"))
        return texts[0] if one else texts

    def chat(self, messages: Sequence[Mapping[str, str]], *, max_tokens: int = 1024, temperature: float = 0.0,
             top_k: int = 0, top_p: float = 1.0, seed: int = 0, threads: Optional[int] = None) -> str:
        """The answer to the last of some messages, by the chat template of the model's files.

            model.chat([{"role": "user", "content": "Who are you?"}])

        A message has a role, "system", "user" or "assistant", and its content. The first may be
        the system's; then the user's and the assistant's alternate, and the last is the user's.
        What looks like a mark of the template in them is text. Options are those of `generate`.
        """
        turns = []
        for number, message in enumerate(messages):
            if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
                raise ValueError("LanguageModel: a message must have role and content; "
                                 f"message {number} is {message!r}")
            turns.append((message["role"], message["content"]))
        return self._model.chat(turns, max_tokens, _sampling(temperature, top_k, top_p, seed),
                                _threads(threads, "LanguageModel"))

    def __repr__(self):
        c = self.config
        return (f"<regard.LanguageModel: {c['layers']} layers, {c['heads']} heads, "
                f"a context of {c['context']} tokens>")


class Translator:
    """A trained encoder-decoder: one of `regard train translate`, CTranslate2, Marian, BART or T5.

    `regard.load(folder)` makes one. A text has the same translation whatever stands beside it, on
    any number of threads, and the one of `regard translate`.
    """

    def __init__(self, folder: _Path, *, weights: str = "float32"):
        self._translator = _core.Translator.load(os.fspath(folder), weights)
        #: source, target, both_directions, model_dim, encoder_layers, decoder_layers, heads
        self.config = self._translator.config()

    def translate(self, texts: Union[str, Sequence[str]], to: Optional[str] = None, *, beams: int = 5,
                  threads: Optional[int] = None):
        """The best translation of a text, a str; of some texts, a list.

        A text may have any number of lines and sentences; line breaks stay as they are.

        to       the language, where a model knows two; if one of them is zh, the script of a text tells
        beams    hypotheses that the search keeps; 1 is greedy
        threads  how many, the caller among them; one a core if not given
        """
        one = isinstance(texts, str)
        found = self._translator.translate([texts] if one else list(texts), to or "", beams,
                                           _threads(threads, "Translator"))
        return found[0] if one else found

    def __repr__(self):
        c = self.config
        arrow = "<->" if c["both_directions"] else "->"
        return (f"<regard.Translator: {c['source'] or '?'} {arrow} {c['target'] or '?'}, "
                f"{c['encoder_layers']} + {c['decoder_layers']} layers, {c['heads']} heads>")


def load(path: _Path, *, tokenizer: Optional[_Path] = None,
         weights: Optional[str] = None) -> Union[TextEncoder, LanguageModel, Translator]:
    """The model that a path holds, told by its files; needs no PyTorch.

        regard.load("all-MiniLM-L6-v2").encode(["A cat sits on the mat.", "A kitten rests on a rug."])
        regard.load("SmolLM2-135M-Instruct.Q4_1.gguf").generate("The sea")
        regard.load("opus-mt-zh-en").translate(text)

    TextEncoder    folders of Hugging Face and sentence-transformers; pooling and normalization are as they say
    LanguageModel  folders of Hugging Face, and files in GGUF or llama2.c's format
    Translator     folders of `regard train translate`, of CTranslate2, and of Hugging Face (Marian, BART, T5)

    tokenizer  its folder or file, for a language model that has none inside
    weights    what they become in memory: "float32" is exact; "bfloat16", "int8" and "int4" are smaller and
               less exact; "as-stored" computes with the integers of a quantised file (of a translator: of one that
               `regard quantize` wrote). If not given: "as-stored" for a language model, else "float32"

    Raises OSError where something cannot be read, ValueError for what is broken or of a kind
    that is not known.
    """
    if not hasattr(_core, "TextEncoder"):
        raise RuntimeError("regard.load: this build has no tokenizers; it needs utf8proc and PCRE2")
    kind = _core.model_kind(os.fspath(path))
    given = {} if weights is None else {"weights": weights}
    if kind == "language model":
        return LanguageModel(path, tokenizer=tokenizer, **given)
    if tokenizer is not None:
        raise ValueError(f"regard.load: tokenizer goes with a language model; '{os.fspath(path)}' holds "
                         f"{'an' if kind == 'encoder' else 'a'} {kind}, which has its own")
    if kind == "encoder":
        return TextEncoder(path, **given)
    return Translator(path, **given)
