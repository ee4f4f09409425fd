# SPDX-License-Identifier: Apache-2.0
"""regard.view: what every head looks at, as a page in a notebook or in a file."""

import html
import operator
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._core import view_page

_OUTPUTS = {
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
    "attentions": "attention",
}


class View:
    """The page. A notebook shows it; `save` writes it; `html` is its text."""

    def __init__(self, page: str, height: int, given: tuple):
        self.html = page
        self._height = height
        self._given = given  # what it shows, for a view that it stands beside

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes one file that works offline and asks for nothing."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        # A frame of its own, so that page and notebook cannot disturb each other.
        return (f'<iframe sandbox="allow-scripts allow-downloads" title="regard" '
                f'style="width:100%;height:{self._height}px;border:0" '
                f'srcdoc="{html.escape(self.html)}"></iframe>')

    def __repr__(self) -> str:
        return f"<regard.View: a page of {len(self.html) / 1e6:.1f} MB; .save(path) writes it>"


def view(weights: Any = None, tokens: "list[str] | None" = None,
         target_tokens: "list[str] | None" = None, *, encoder: Any = None, decoder: Any = None,
         cross: Any = None, batch: "int | None" = None, layers: "list[int] | None" = None,
         heads: "list[int] | None" = None, section: "str | None" = None,
         layer: "int | None" = None, head: "int | None" = None, model: str = "", note: str = "",
         source: str = "", target: str = "", beside: "View | None" = None,
         height: int = 720) -> View:
    """What every head looks at: grid, heat map and lines, with statistics and rollout.

    weights is one of

    - an array [queries, keys], [heads, queries, keys] or [layers, heads, queries, keys], of
      NumPy, PyTorch or whatever NumPy can read;
    - what a Hugging Face model gives with output_attentions=True, as it is, or its
      `attentions`: a tuple of layers, each [batch, heads, queries, keys];
    - a dict of any of these by name.

    For a model with an encoder and a decoder, give its output, or encoder=, decoder= and
    cross=. tokens are those of the source (the keys of cross attention), target_tokens those
    of the decoder; numbers if not given. batch chooses one entry of a batch; layers and heads
    choose whose weights the page holds, where all would be too much.

    The page opens at the most telling head: the one where what is looked at depends most on who
    looks. section, layer and head open it at another; what is left out is chosen so among the rest.

    beside is the view of another text by the same model: the page shows the same head of both,
    side by side. source names each text above its picture; the tokens do if it is not given.

    The result shows itself in a notebook; `.save("page.html")` writes it.

    >>> import numpy as np, regard
    >>> w = np.tril(np.ones((2, 4, 3, 3), np.float32))
    >>> w /= w.sum(-1, keepdims=True)
    >>> regard.view(w, ["the", "cat", "sleeps"])  # doctest: +ELLIPSIS
    <regard.View: a page of ... MB; .save(path) writes it>
    """
    given = _sections(weights, {"encoder": encoder, "decoder": decoder, "cross": cross})
    sections = [(name, _layers(one, name, batch)) for name, one in given.items()]
    if not sections:
        raise ValueError("view: there must be weights")
    for name, layers_of in sections:
        if not layers_of:
            raise ValueError(f"view: {name!r} must have a layer")
    shapes = {name: layers_of[0].shape for name, layers_of in sections}
    only_cross = (len(shapes) == 1 and "encoder" not in shapes and "decoder" not in shapes
                  and (target_tokens is not None or _is_oblong(shapes)))
    has_target = only_cross or target_tokens is not None or bool({"decoder", "cross"} & shapes.keys())
    source_tokens = _tokens(tokens, "tokens", lambda: _length(shapes, "encoder", "cross", 2))
    if has_target:
        target_tokens = _tokens(target_tokens, "target_tokens",
                                lambda: _length(shapes, "decoder", "cross", 1))
    given = (sections, source_tokens, target_tokens if has_target else None, only_cross,
             [model, note, source, target])
    page = view_page(_named(given) if beside is not None else given, _beside(beside),
                     list(layers or []), list(heads or []), section, _index(layer, "layer"),
                     _index(head, "head"))
    return View(page, height, given)


def _beside(view):
    if view is None:
        return None
    if not isinstance(view, View):
        raise TypeError("view: beside must be what regard.view gave for another text; "
                        f"{type(view).__name__} came")
    return _named(view._given)


def _named(given):
    """With a source, which stands above each of two pictures."""
    *rest, (model, note, source, target) = given
    return (*rest, [model, note, source or _text(given[1]), target])


def _text(tokens):
    """Tokens as one would write them, without those of the model alone."""
    tokens = [token for token in tokens if not re.fullmatch(r"<[^<>]*>|\[[A-Z]+\]", token)]
    if any(token[:1] in ("\u2581", "\u0120") for token in tokens):
        return "".join(tokens).replace("\u2581", " ").replace("\u0120", " ").strip()
    return " ".join(tokens).replace(" ##", "")


def _index(value, name):
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"view: {name} must be a whole number; {type(value).__name__} came") from None


def _sections(weights, named):
    """Name -> weights, in the order of the page."""
    named = {name: one for name, one in named.items() if one is not None}
    if weights is None:
        return named
    if named:
        raise TypeError("view: give weights, or encoder=, decoder= and cross=, not both")
    is_output = hasattr(weights, "to_tuple") and isinstance(weights, Mapping)
    if is_output:
        found = {name: getattr(weights, key) for key, name in _OUTPUTS.items()
                 if getattr(weights, key, None)}
        if not found:
            raise ValueError("view: the output has no attentions; call the model with "
                             "output_attentions=True, and load it with "
                             'attn_implementation="eager"')
        return found
    if isinstance(weights, Mapping):
        return dict(weights)
    return {"attention": weights}


def _layers(weights, name, batch):
    """A list of float32 [heads, queries, keys]."""
    if not isinstance(weights, (tuple, list)):
        array = _array(weights, name)
        if array.ndim not in (2, 3, 4):
            raise ValueError(f"view: weights must be [queries, keys], [heads, queries, keys] or "
                             f"[layers, heads, queries, keys]; those of {name!r} are "
                             f"{list(array.shape)}")
        _refuse_batch(batch, name, array)
        array = array.reshape((1,) * (4 - array.ndim) + array.shape)
        return list(array)
    return [_layer(one, name, batch) for one in weights]


def _layer(layer, name, batch):
    if layer is None:
        raise ValueError(f"view: a layer of {name!r} is None; load the model with "
                         'attn_implementation="eager", which gives weights')
    if isinstance(layer, (tuple, list)):
        raise TypeError(f"view: a layer of {name!r} is a {type(layer).__name__}; generate() gives "
                        "one for each step: call the model once with what it generated")
    array = _array(layer, name)
    if array.ndim == 4:
        if batch is None and len(array) != 1:
            raise ValueError(f"view: there are {len(array)} sequences in the batch; choose one, "
                             "such as batch=0")
        if batch is not None and not 0 <= batch < len(array):
            raise ValueError(f"view: batch must be from 0 to {len(array) - 1}; got {batch}")
        array = array[batch or 0]
    elif array.ndim == 3:
        _refuse_batch(batch, name, array)
    if array.ndim != 3:
        raise ValueError(f"view: a layer must be [batch, heads, queries, keys] or [heads, queries, "
                         f"keys]; one of {name!r} is {list(array.shape)}")
    return array


def _refuse_batch(batch, name, array):
    if batch is not None:
        raise ValueError("view: batch is for layers that are [batch, heads, queries, keys]; "
                         f"{name!r} holds {list(array.shape)}")


def _array(weights, name):
    if hasattr(weights, "detach"):  # of PyTorch, which knows types that NumPy does not
        weights = weights.detach().cpu().float().numpy()
    array = np.asarray(weights)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise TypeError(f"view: weights must be numbers; those of {name!r} are {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float32)


def _tokens(tokens, name, length):
    if tokens is None:
        return [str(i) for i in range(length())]
    if isinstance(tokens, (str, bytes)):
        raise TypeError(f"view: {name} must be a list of strings, one for each token; a string came")
    tokens = list(tokens)
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"view: {name} must be strings; {type(token).__name__} came "
                            "(tokenizer.convert_ids_to_tokens names them)")
    return tokens


def _is_oblong(shapes):
    return all(shape[1] != shape[2] for shape in shapes.values())


def _length(shapes, self_name, cross_name, axis):
    if self_name in shapes:
        return shapes[self_name][axis]
    return shapes.get(cross_name, next(iter(shapes.values())))[axis]
