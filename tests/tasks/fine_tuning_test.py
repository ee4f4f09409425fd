#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pretrained encoders that are trained further: losses, gradients and answers against transformers and torch."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["REGARD_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy as np
    import torch
    from safetensors.numpy import load_file, save_file
    from transformers import AutoModel, AutoTokenizer, logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    import small_encoders
except ImportError as error:
    print(f"skipped: {error}; this test compares with torch and transformers")
    sys.exit(77)

PROGRAM = os.environ["REGARD_PROGRAM"]
DRIVER = pathlib.Path(os.environ["REGARD_BINARY_DIR"], "bin", "fine_tuning_driver")
MINILM = pathlib.Path.home() / ".cache" / "regard-models" / "all-MiniLM-L6-v2"

# The last is longer than the small models read.
TEXTS = small_encoders.LINES + ["it", "unknowable xylophones \u4f60\u597d", " ".join(small_encoders.LINES * 6)]
LABELS = [0, 2, 1, 1, 0, 2, 0, 1]

# Where transformers keeps what nn::Encoder calls so. Behind each stand .weight and .bias.
BERT = {"self_attn.out_proj": "attention.output.dense", "linear1": "intermediate.dense", "linear2": "output.dense",
        "norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
DISTIL = {"self_attn.out_proj": "attention.out_lin", "linear1": "ffn.lin1", "linear2": "ffn.lin2",
          "norm1": "sa_layer_norm", "norm2": "output_layer_norm"}


def write_table(path):
    lines = ["text\tlabel"] + [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def head_for(width):
    generator = torch.Generator().manual_seed(3)
    return {"head.weight": torch.randn(3, width, generator=generator) / width ** 0.5,
            "head.bias": torch.randn(3, generator=generator)}


def run_driver(model, head):
    with tempfile.TemporaryDirectory() as folder:
        table, weights, out = (pathlib.Path(folder, name) for name in ("t.tsv", "head.safetensors", "out.safetensors"))
        write_table(table)
        save_file({name: value.numpy() for name, value in head.items()}, weights)
        subprocess.run([DRIVER, model, table, weights, out], check=True)
        return load_file(out)


def run_torch(model, head, pooling, dtype):
    """Loss, gradients by our names, and probabilities."""
    net = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).to(dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    weight, bias = (head[f"head.{part}"].to(dtype).clone().requires_grad_() for part in ("weight", "bias"))
    most = min(tokenizer.model_max_length, 256 if model == MINILM else 64)
    scores = []
    for text in TEXTS:
        ids = tokenizer(text, truncation=True, max_length=most, return_tensors="pt")["input_ids"]
        hidden = net(input_ids=ids).last_hidden_state[0]
        scores.append((hidden[0] if pooling == "cls" else hidden.mean(0)) @ weight.T + bias)
    scores = torch.stack(scores)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(LABELS), reduction="sum")
    loss.backward()
    return {"loss": loss.item(), "probabilities": scores.detach().softmax(1).double().numpy(),
            **{f"d.{name}": value for name, value in named_gradients(net, weight, bias).items()}}


def named_gradients(net, weight, bias):
    theirs = {name: value.grad for name, value in net.named_parameters() if value.grad is not None}
    distil = net.config.model_type == "distilbert"
    parts, layer = (DISTIL, "transformer.layer") if distil else (BERT, "encoder.layer")
    queries = ["attention.q_lin", "attention.k_lin", "attention.v_lin"] if distil else [
        "attention.self.query", "attention.self.key", "attention.self.value"]
    first = net.config.pad_token_id + 1 if net.config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
    ours = {"embedding.weight": theirs["embeddings.word_embeddings.weight"],
            "positions.weight": theirs["embeddings.position_embeddings.weight"][first:],
            "head.weight": weight.grad, "head.bias": bias.grad}
    if not distil:
        ours["token_type.weight"] = theirs["embeddings.token_type_embeddings.weight"][:1]
    for end in ("weight", "bias"):
        ours[f"embedding_norm.{end}"] = theirs[f"embeddings.LayerNorm.{end}"]
        for i in range(net.config.num_hidden_layers):
            for name, part in parts.items():
                ours[f"layers.{i}.{name}.{end}"] = theirs[f"{layer}.{i}.{part}.{end}"]
            ours[f"layers.{i}.self_attn.in_proj_{end}"] = torch.cat(
                [theirs[f"{layer}.{i}.{part}.{end}"] for part in queries])
    return {name: value.double().numpy() for name, value in ours.items()}


class FineTuning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = small_encoders.save_all(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, model, pooling="mean", width=48):
        head = head_for(width)
        found = run_driver(model, head)
        truth = run_torch(model, head, pooling, torch.float64)
        plain = run_torch(model, head, pooling, torch.float32)
        self.assertLessEqual(abs(found["loss"][0] - truth["loss"]), 1e-5 * truth["loss"])
        self.assertEqual(set(found), set(truth))
        for name, value in truth.items():
            if name == "loss":
                continue
            rows = len(found[name])  # places beyond max_length are not trained
            self.assertFalse(value[rows:].any(), name)
            value = value[:rows]
            error = np.abs(found[name] - value).max()
            # At most twice as wrong as torch in float.
            bound = 2 * np.abs(plain[name][:rows] - value).max() + 1e-5 * np.abs(value).max()
            # The scores of keys do not depend on a bias that all of them share: its gradient is rounding alone.
            bound += 1e-6 * truth["loss"]
            self.assertLessEqual(error, bound, name)

    def test_losses_gradients_and_answers_are_those_of_torch(self):
        for name in ("bert", "bert-relu", "bert-head", "roberta", "xlm-roberta", "camembert", "distilbert",
                     "distilbert-head"):
            with self.subTest(name):
                self.check(self.models[name])

    def test_a_folder_that_pools_by_its_first_token_is_trained_so(self):
        model = self.models["bert-relu"]
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
        (model / "modules.json").write_text(json.dumps([
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]))
        try:
            self.check(model, pooling="cls")
        finally:
            (model / "modules.json").unlink()

    def test_families_and_poolings_that_cannot_be_trained_are_named(self):
        def refusal(model, *more):
            with tempfile.TemporaryDirectory() as folder:
                table = pathlib.Path(folder, "t.tsv")
                write_table(table)
                done = subprocess.run([PROGRAM, "train", "classify", "--train", table, "--from", model, "--out",
                                       pathlib.Path(folder, "m"), *more], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            return done.stderr

        for name in ("mpnet", "albert"):
            self.assertIn(f"must be of the family bert, roberta or distilbert to be trained; it is {name}",
                          refusal(self.models[name]))
        self.assertIn("max_length must be from 1 to the 64 places of", refusal(self.models["bert"], "--max-length", "65"))

    @unittest.skipUnless(MINILM.is_dir(), f"there is no {MINILM}")
    def test_mini_lm(self):
        self.check(MINILM, width=384)


if __name__ == "__main__":
    torch.manual_seed(0)
    unittest.main()
