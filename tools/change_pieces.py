#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives a translator other pieces and keeps its layers, to be trained further.

    change_pieces.py MODEL TOKENIZER OUT

MODEL is the folder of a translator that was trained here, TOKENIZER a folder whose
tokenizer.model has the new pieces. A piece that both have keeps its embedding; a new
one begins with the mean of the old pieces that its text is made of. OUT is for
`regard train translate --begin-with OUT`. Needs numpy, safetensors and sentencepiece.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np
import sentencepiece
from safetensors.numpy import load_file, save_file

SPACE = "\u2581"  # what SentencePiece writes for a blank


def pieces_of(folder):
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def parts_of(piece, old):
    """The old pieces that a new one is made of."""
    number = old.piece_to_id(piece)
    if not old.is_unknown(number):
        return [number]
    parts = old.encode(piece.replace(SPACE, " ").strip(), out_type=str)
    if not piece.startswith(SPACE) and parts[:1] == [SPACE]:
        parts = parts[1:]  # the blank that begins every text
    return [old.piece_to_id(part) for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    weights = {name: value.astype(np.float32) for name, value in load_file(args.model / "model.safetensors").items()}
    config = json.loads((args.model / "config.json").read_text(encoding="utf-8"))
    tables = [name for name, value in weights.items() if value.shape == (config["model"]["vocab"], config["model"]["model_dim"])]
    if len(tables) != 1:
        sys.exit(f"{args.model} must have one table of embeddings; it has {len(tables)}")
    old, new = pieces_of(args.model), pieces_of(args.tokenizer)
    table = weights[tables[0]]
    made_of = [parts_of(new.id_to_piece(i), old) for i in range(new.vocab_size())]
    weights[tables[0]] = np.stack([table[parts or [old.unk_id()]].mean(axis=0) for parts in made_of])
    config["model"]["vocab"] = new.vocab_size()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(args.tokenizer / "tokenizer.model", args.out / "tokenizer.model")
    kept = sum(len(parts) == 1 for parts in made_of)
    print(f"{new.vocab_size()} pieces: {kept} have the embedding of one of the {old.vocab_size()} old ones, the others a mean")


if __name__ == "__main__":
    main()
