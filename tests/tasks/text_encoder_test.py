#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pretrained encoders against transformers, family by family, and against sentence-transformers."""

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
    from safetensors.numpy import load_file
    from transformers import AutoModel, AutoTokenizer, logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    import small_encoders
except ImportError as error:
    print(f"skipped: {error}; this test compares with torch and transformers")
    sys.exit(77)

PROGRAM = os.environ["REGARD_PROGRAM"]
DRIVER = pathlib.Path(os.environ["REGARD_BINARY_DIR"], "bin", "text_encoder_driver")
MINILM = pathlib.Path.home() / ".cache" / "regard-models" / "all-MiniLM-L6-v2"

# The special pieces are spelled, too; the last but one is longer than any of the models reads.
TEXTS = small_encoders.LINES + [
    "", "it", "a [PAD] b [MASK]", "a <pad> b <pad> c", "  Blanks   everywhere ", "unknowable xylophones \u4f60\u597d",
    " ".join(small_encoders.LINES * 12), "was",
]


def run_driver(model, texts):
    with tempfile.TemporaryDirectory() as folder:
        lines, out = pathlib.Path(folder, "in.txt"), pathlib.Path(folder, "out.safetensors")
        lines.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        subprocess.run([DRIVER, model, lines, out], check=True)
        found = load_file(out)
    return [{kind: found[f"{kind}.{i}"] for kind in ("ids", "hidden", "weights")} for i in range(len(texts))]


def run_transformers(model, ids, dtype):
    """Hidden states [layers + 1, tokens, dim], and attention weights, of each list of ids."""
    net = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).to(dtype).eval()
    results = []
    for one in ids:
        with torch.no_grad():
            out = net(input_ids=torch.tensor([one]), output_hidden_states=True, output_attentions=True)
        results.append((torch.cat(out.hidden_states).double().numpy(), torch.cat(out.attentions).double().numpy()))
    return results


def embed(model, texts, *options):
    with tempfile.TemporaryDirectory() as folder:
        lines, out = pathlib.Path(folder, "in.txt"), pathlib.Path(folder, "out.npy")
        lines.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        subprocess.run([PROGRAM, "embed", "--model", model, "--input", lines, "--out", out, *options], check=True,
                       capture_output=True)
        return np.load(out)


def pooled(mode, hidden):
    """The definition, in double."""
    n = len(hidden)
    weights = np.arange(1, n + 1)[:, None]
    return {
        "cls": lambda: hidden[0], "lasttoken": lambda: hidden[-1], "max": lambda: hidden.max(0),
        "mean": lambda: hidden.sum(0) / n, "mean_sqrt_len_tokens": lambda: hidden.sum(0) / n**0.5,
        "weightedmean": lambda: (weights * hidden).sum(0) / weights.sum(),
    }[mode]()


class Compare(unittest.TestCase):
    def check(self, model, texts):
        """Every layer's hidden states and weights: about as far from double as torch's float is."""
        found = run_driver(model, texts)
        tokenizer = AutoTokenizer.from_pretrained(model)
        longest = max(len(one["ids"]) for one in found)
        for text, one in zip(texts, found):
            expected = tokenizer(text, truncation=True, max_length=longest)["input_ids"]
            self.assertEqual(one["ids"].tolist(), expected, text)
        ids = [one["ids"].tolist() for one in found]
        truth, yardstick = (run_transformers(model, ids, dtype) for dtype in (torch.double, torch.float))
        for place, kind in enumerate(("hidden", "weights")):
            layers = len(truth[0][place])
            self.assertEqual(len(found[0][kind]), layers)
            for layer in range(layers):
                ours, theirs = ([], [])
                for one, exact, plain in zip(found, truth, yardstick):
                    ours.append((one[kind][layer] - exact[place][layer]).ravel())
                    theirs.append((plain[place][layer] - exact[place][layer]).ravel())
                ours, theirs = np.concatenate(ours), np.concatenate(theirs)
                # The largest of a few thousand errors is as much luck as arithmetic.
                for measure, factor in ((lambda e: np.sqrt(np.mean(e**2)), 1.5), (lambda e: np.abs(e).max(), 4)):
                    self.assertLessEqual(measure(ours), factor * measure(theirs) + 1e-9, f"{kind}, layer {layer}")
        return found, truth


class Families(Compare):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = small_encoders.save_all(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_hidden_states_and_weights_are_those_of_transformers(self):
        for name, model in self.models.items():
            with self.subTest(name):
                self.check(model, TEXTS)

    def test_a_text_has_the_same_bits_alone_in_company_and_on_any_threads(self):
        for name in ("bert", "roberta", "mpnet", "albert"):
            with self.subTest(name):
                together = embed(self.models[name], TEXTS)
                for options in (["--threads", "1"], ["--threads", "2"], ["--threads", "5"]):
                    self.assertTrue(np.array_equal(embed(self.models[name], TEXTS, *options), together))
                backwards = embed(self.models[name], TEXTS[::-1])
                self.assertTrue(np.array_equal(backwards[::-1], together))
                for i in (0, 5, 6, len(TEXTS) - 2):
                    alone = embed(self.models[name], [TEXTS[i]])
                    self.assertTrue(np.array_equal(alone[0], together[i]), TEXTS[i])
                # What a trace shows is what was computed.
                hidden = [one["hidden"][-1] for one in run_driver(self.models[name], TEXTS[:3])]
                for vector, rows in zip(together, hidden):
                    np.testing.assert_allclose(vector, rows.astype(np.double).mean(0), rtol=1e-5, atol=1e-6)

    def test_poolings_are_those_of_their_definition(self):
        model = self.models["roberta"]
        hidden = [one["hidden"][-1].astype(np.double) for one in run_driver(model, TEXTS)]
        pooling = model / "1_Pooling"
        pooling.mkdir()
        modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                   {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                   {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
        modes = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
        try:
            for mode in modes + [["max", "cls"]]:
                for normalize in (False, True):
                    with self.subTest(mode=mode, normalize=normalize):
                        (model / "modules.json").write_text(json.dumps(modules[:3 if normalize else 2]))
                        (pooling / "config.json").write_text(json.dumps({"pooling_mode": mode}))
                        parts = [mode] if isinstance(mode, str) else mode
                        expected = np.array([np.concatenate([pooled(part, rows) for part in parts])
                                             for rows in hidden])
                        if normalize:
                            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
                        np.testing.assert_allclose(embed(model, TEXTS), expected, rtol=1e-5, atol=2e-6)
            # As versions before 6 wrote it: flags, and several of them side by side in one order.
            (model / "modules.json").write_text(json.dumps(modules[:2]))
            (pooling / "config.json").write_text(json.dumps({
                "word_embedding_dimension": 48, "pooling_mode_lasttoken": True, "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": False}))
            expected = [np.concatenate([rows[0], rows[-1]]) for rows in hidden]
            np.testing.assert_allclose(embed(model, TEXTS), expected, rtol=1e-6, atol=1e-6)
        finally:
            (model / "modules.json").unlink()

    def test_folders_of_sentence_transformers_give_its_vectors(self):
        try:
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.models import Normalize, Pooling, Transformer
        except ImportError as error:
            self.skipTest(str(error))
        for name, mode in (("bert", "mean"), ("xlm-roberta", "cls"), ("mpnet", "mean"), ("distilbert", "max")):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                words = Transformer(str(self.models[name]), max_seq_length=40)
                theirs = SentenceTransformer(modules=[words, Pooling(48, mode), Normalize()],
                                             prompts={"query": "need: ", "nothing": ""}, device="cpu")
                theirs.save(folder)
                np.testing.assert_allclose(embed(folder, TEXTS), theirs.encode(TEXTS), atol=3e-6)
                np.testing.assert_allclose(embed(folder, TEXTS, "--prompt", "query"),
                                           theirs.encode(TEXTS, prompt_name="query"), atol=3e-6)

    def test_half_precision_files_are_read_as_their_values(self):
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(str(dtype)), tempfile.TemporaryDirectory() as folder:
                for place, kind in (("half", dtype), ("wide", torch.float32)):
                    net = AutoModel.from_pretrained(self.models["bert"], dtype=torch.float32).to(dtype).to(kind)
                    net.save_pretrained(pathlib.Path(folder, place))
                    AutoTokenizer.from_pretrained(self.models["bert"]).save_pretrained(pathlib.Path(folder, place))
                half, wide = (embed(pathlib.Path(folder, place), TEXTS) for place in ("half", "wide"))
                self.assertTrue(np.array_equal(half, wide))


@unittest.skipUnless(MINILM.is_dir(), f"there is no {MINILM}")
class MiniLM(Compare):
    def test_hidden_states_and_weights_are_those_of_transformers(self):
        found, _ = self.check(MINILM, TEXTS)
        self.assertEqual(max(len(one["ids"]) for one in found), 256)

    def test_int8_finds_what_float32_finds(self):
        pages = sorted(page for page in (SOURCE / "docs").glob("*.md") if "zh-CN" not in page.name)
        lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines() if len(line) > 60]
        texts = list(dict.fromkeys(lines))[:1200]
        self.assertGreaterEqual(len(texts), 800)
        exact, rounded = embed(MINILM, texts), embed(MINILM, texts, "--weights", "int8")
        cosine = (exact * rounded).sum(1)

        def nearest(vectors):  # of each text, among the others
            return (vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(1)

        same = (nearest(exact) == nearest(rounded)).mean()
        print(f"int8: cosine {cosine.mean():.5f}, at least {cosine.min():.5f}; the same nearest text for {same:.4f}")
        self.assertGreaterEqual(cosine.min(), 0.99)
        self.assertGreaterEqual(same, 0.98)

    def test_vectors_are_those_of_sentence_transformers(self):
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            self.skipTest(str(error))
        theirs = SentenceTransformer(str(MINILM), device="cpu")
        np.testing.assert_allclose(embed(MINILM, TEXTS), theirs.encode(TEXTS), atol=1e-6)

    def test_it_looks_at_the_animal(self):
        seen = []
        for word in ("tired", "wide"):
            text = f"The animal didn't cross the street because it was too {word}."
            one = run_driver(MINILM, [text])[0]
            pieces = AutoTokenizer.from_pretrained(MINILM).convert_ids_to_tokens(one["ids"].tolist())
            it, animal = pieces.index("it"), pieces.index("animal")
            seen.append([one["weights"][layer, head, it, animal] for layer, head in ((3, 1), (5, 11))])
        np.testing.assert_allclose(seen, [[0.68, 0.67], [0.28, 0.56]], atol=0.006)


if __name__ == "__main__":
    torch.manual_seed(0)
    unittest.main()
