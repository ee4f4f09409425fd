# SPDX-License-Identifier: Apache-2.0
"""A pretrained encoder beside others: ./run bench embed --model FOLDER --texts FILE [--threads N] [--json FILE]

All texts through regard.load(FOLDER).encode, sentence-transformers (PyTorch) and, where they are there, ONNX
Runtime and OpenVINO, which get the same graph, exported here. The peers get batches of 32 texts sorted by length
and padded to the longest, as sentence-transformers makes them, tokenizing included for all. Vectors are checked
first; everybody is timed in turns, 96 texts of like length at a time, and what is told is the median over the
rounds of the ratio of their times. fp32.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import machine  # noqa: E402

machine.prepare_environment("")  # before PyTorch is loaded
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import regard
from lib import onnx_encoder
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import logging

logging.disable_progress_bar()
logging.set_verbosity_error()
BATCH = 32


def open_vino(graph, threads):
    import openvino
    # Its own default takes bf16 where the processor has it.
    model = openvino.Core().compile_model(str(graph), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
    request = model.create_infer_request()
    return lambda ids, mask: request.infer({"input_ids": ids, "attention_mask": mask})[0]


def peers(arguments, ours, folder):
    """{name: encode}"""
    model = SentenceTransformer(arguments.model, device="cpu")
    found = {"sentence-transformers": lambda texts: model.encode(texts, batch_size=BATCH, show_progress_bar=False)}
    graph = pathlib.Path(folder, "model.onnx")
    onnx_encoder.export(arguments.model, graph)
    tokenizer = Tokenizer.from_file(str(pathlib.Path(arguments.model, "tokenizer.json")))
    tokenizer.enable_truncation(ours.config["max_length"])
    for name, make in (("ONNX Runtime", onnx_encoder.session), ("OpenVINO", open_vino)):
        try:
            found[name] = onnx_encoder.batches(tokenizer, make(graph, arguments.threads), BATCH)
        except ImportError as error:
            print(f"without {name}: {error}")
    return found


def interleave(encoders, slices, rounds):
    """The seconds of each encoder for all slices in every round; they take turns slice by slice."""
    taken = [[0.0] * rounds for _ in encoders]
    for number in range(rounds):
        for place, texts in enumerate(slices):
            for shift in range(len(encoders)):
                at = (number + place + shift) % len(encoders)
                began = time.perf_counter()
                encoders[at](texts)
                taken[at][number] += time.perf_counter() - began
    return taken


def first_answer(program, model):
    """Seconds from the start of the program to its first vector, the median of some."""
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run([program, "embed", "--model", model, "A cat sits on the mat."], check=True,
                       stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def read_texts(path, count):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
    with opened as lines:
        return [line.strip() for line, _ in zip((line for line in lines if line.strip()), range(count))]


def main():
    parser = argparse.ArgumentParser(prog="./run bench embed", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="mean pooling, normalized: all-MiniLM-L6-v2")
    parser.add_argument("--texts", required=True, type=pathlib.Path, metavar="FILE", help="a text a line; may be .gz")
    parser.add_argument("--count", type=int, default=400, help="texts taken (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of everybody (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--program", metavar="FILE", help="also time its first answer")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = read_texts(arguments.texts, arguments.count)
    ours = regard.load(arguments.model)
    if ours.config["pooling"] != ["mean"] or not ours.config["normalize"]:
        sys.exit("bench embed: the model must pool by the mean and normalize")
    lengths = [len(ours.trace(text, threads=1).tokens) for text in texts]
    print(f"regard {regard.__version__} on {regard.simd_target()}, torch {torch.__version__}, "
          f"{arguments.threads} threads; {len(texts)} texts, {statistics.mean(lengths):.0f} tokens on average, "
          f"up to {max(lengths)}")
    with tempfile.TemporaryDirectory() as folder:
        calls = {"regard": lambda t: ours.encode(t, threads=arguments.threads), **peers(arguments, ours, folder)}
        expected = calls["sentence-transformers"](texts)
        for name, encode in calls.items():
            worst = np.abs(encode(texts) - expected).max()
            if not worst < 1e-5:
                sys.exit(f"bench embed: {name} differs from sentence-transformers by {worst:.1e}")
        # Sorted first, so that a slice is padded no more than all of them together would be.
        texts = [text for _, text in sorted(zip(lengths, texts), reverse=True)]
        slices = [texts[i:i + 3 * BATCH] for i in range(0, len(texts), 3 * BATCH)]
        taken = interleave(list(calls.values()), slices, arguments.rounds)
    results = []
    for name, seconds in zip(calls, taken):
        ratios = sorted(theirs / mine for theirs, mine in zip(seconds, taken[0]))
        speed = len(texts) / statistics.median(seconds)
        results.append({"name": name, "texts_per_second": speed, "regard_is_faster": statistics.median(ratios)})
        line = f"{name:24}{speed:8.1f} texts/s"
        if name != "regard":
            line += f"   regard {statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line)
    if arguments.program:
        first = first_answer(arguments.program, arguments.model)
        print(f"first answer of the program: {first:.3f} s after its start")
        results.append({"name": "first answer", "seconds": first})
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine.describe(), "threads": arguments.threads,
                                              "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
