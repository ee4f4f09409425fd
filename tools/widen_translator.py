#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives a translator wider feed-forward blocks that compute the same, to be trained further.

    widen_translator.py MODEL WIDTH OUT

MODEL is the folder of a translator that was trained here, WIDTH its new
feed_forward_dim. New hidden units draw the weights that they read with at random,
and write with zeros: OUT translates as MODEL does until it learns. It is for
`regard train translate --begin-with OUT`. Needs numpy and safetensors.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file


def widened(weights, width, generator):
    """The same function with more hidden units in each pair of linear1 and linear2."""
    wide = dict(weights)
    for name in sorted(weights):
        if not name.endswith(".linear1.weight"):
            continue
        block = name[: -len("linear1.weight")]
        hidden, inputs = weights[name].shape
        new = width - hidden
        deviation = weights[name].std()  # new units start as strong as the trained ones
        wide[name] = np.concatenate([weights[name], generator.normal(0, deviation, (new, inputs)).astype(np.float32)])
        bias, out = f"{block}linear1.bias", f"{block}linear2.weight"
        wide[bias] = np.concatenate([weights[bias], np.zeros(new, np.float32)])
        wide[out] = np.concatenate([weights[out], np.zeros((weights[out].shape[0], new), np.float32)], axis=1)
    return wide


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("width", type=int)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text(encoding="utf-8"))
    old = config["model"]["feed_forward_dim"]
    if args.width <= old:
        sys.exit(f"WIDTH must be above the {old} that {args.model} has; got {args.width}")
    if config["model"]["activation"] == "swiglu":
        sys.exit(f"{args.model} has SwiGLU blocks, which are three matrices; relu and gelu can be widened")
    weights = {name: value.astype(np.float32) for name, value in load_file(args.model / "model.safetensors").items()}
    wide = widened(weights, args.width, np.random.default_rng(args.seed))
    config["model"]["feed_forward_dim"] = args.width
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(wide, args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(args.model / "tokenizer.model", args.out / "tokenizer.model")
    count = lambda tensors: sum(value.size for value in tensors.values())  # noqa: E731
    print(f"{count(weights)} parameters became {count(wide)}")


if __name__ == "__main__":
    main()
