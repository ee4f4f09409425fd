# SPDX-License-Identifier: Apache-2.0
"""A translator's folder as CTranslate2 reads it: the same weights, position for position."""

import json
import pathlib

import numpy

# What our ids from 0 on mean (include/regard/text/tokenizer.h).
UNKNOWN, BEGIN, END = 0, 1, 2


def _read_safetensors(path):
    """{name: float32 array}. The format is a length, a JSON header and bytes."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": numpy.float32, "F16": numpy.float16}
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(data[begin:end], dtype=kinds[entry["dtype"]])
        weights[name] = values.astype(numpy.float32).reshape(entry["shape"])
    return weights


def _sinusoidal(places, width):
    angle = numpy.arange(places)[:, None] * 10000.0 ** (-numpy.arange(0, width, 2) / width)
    return numpy.stack([numpy.sin(angle), numpy.cos(angle)], -1).reshape(places, width).astype(numpy.float32)


class _Filler:
    """Puts weights by PyTorch's names into the places of CTranslate2's specification."""

    def __init__(self, weights, dim):
        self.weights, self.dim = weights, dim

    def linear(self, spec, name, rows=slice(None), weight="weight", bias="bias"):
        join = "" if name.endswith("_") else "."
        spec.weight = numpy.ascontiguousarray(self.weights[f"{name}{join}{weight}"][rows])
        spec.bias = numpy.ascontiguousarray(self.weights[f"{name}{join}{bias}"][rows])

    def norm(self, spec, name):
        spec.gamma, spec.beta = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def self_attention(self, spec, name, norm):
        self.linear(spec.linear[0], f"{name}.in_proj_")
        self.linear(spec.linear[1], f"{name}.out_proj")
        self.norm(spec.layer_norm, norm)

    def cross_attention(self, spec, name, norm):
        self.linear(spec.linear[0], f"{name}.in_proj_", slice(0, self.dim))
        self.linear(spec.linear[1], f"{name}.in_proj_", slice(self.dim, None))
        self.linear(spec.linear[2], f"{name}.out_proj")
        self.norm(spec.layer_norm, norm)

    def feed_forward(self, spec, name, norm):
        self.linear(spec.linear_0, f"{name}.linear1")
        self.linear(spec.linear_1, f"{name}.linear2")
        self.norm(spec.layer_norm, norm)

    def stack(self, spec, name, places):
        table = self.weights["embedding.weight"]
        embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
        embeddings.weight = table
        spec.scale_embeddings = True
        spec.position_encodings.encodings = _sinusoidal(places, self.dim)
        if f"{name}.norm.weight" in self.weights:
            self.norm(spec.layer_norm, f"{name}.norm")


def convert(folder, out, pieces):
    """Writes the model of `folder` to `out`; `pieces` are the tokenizer's, by their numbers."""
    import ctranslate2

    config = json.loads((pathlib.Path(folder) / "config.json").read_text(encoding="utf-8"))["model"]
    wanted = {"norm": "layer_norm", "positions": "sinusoidal"}
    for key, value in wanted.items():
        if config[key] != value:
            raise ValueError(f"only models with {key} {value} are converted; this one has {config[key]}")
    activation = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh"}[config["activation"]]
    spec = ctranslate2.specs.TransformerSpec.from_config(
        num_layers=(config["encoder_layers"], config["decoder_layers"]),
        num_heads=config["heads"],
        pre_norm=config["norm_first"],
        no_final_norm=not config["final_norm"],
        activation=getattr(ctranslate2.specs.common_spec.Activation, activation),
    )
    filler = _Filler(_read_safetensors(pathlib.Path(folder) / "model.safetensors"), config["model_dim"])
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        filler.stack(side, name, config["max_length"])
        for number, layer in enumerate(side.layer):
            at = f"{name}.layers.{number}"
            filler.self_attention(layer.self_attention, f"{at}.self_attn", f"{at}.norm1")
            if name == "decoder":
                filler.cross_attention(layer.attention, f"{at}.multihead_attn", f"{at}.norm2")
            filler.feed_forward(layer.ffn, at, f"{at}.norm{2 + (name == 'decoder')}")
    spec.decoder.projection.weight = filler.weights["embedding.weight"]
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (pieces[i] for i in (UNKNOWN, BEGIN, END))
    spec.config.decoder_start_token = pieces[BEGIN]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config["norm_epsilon"]
    spec.validate()
    spec.optimize(quantization="float32")
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    spec.save(str(out))
