#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct in GGUF: greedy text and chats are those of transformers on the dequantised weights.

The model is read from ~/.cache/regard-models, or the folder that REGARD_MODELS names.
"""

import os
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
for folder in (TESTS / "tasks", TESTS / "text", TESTS.parent / "bench"):
    sys.path.insert(0, str(folder))
from decoders_test import SKIPPED, hf, run_driver, run_regard, torch  # noqa: E402
from tokenizers_test import MODELS, Tokenizer, decoders, gguf_settings, models, pre_tokenizers  # noqa: E402

try:
    from lib import gguf_llama  # noqa: E402
except ImportError as error:
    print(f"skipped: {error}; this test dequantises with the package gguf")
    sys.exit(SKIPPED)
FILES = sorted((MODELS / "SmolLM2-135M-Instruct").glob("*.gguf"))
if not FILES:
    print(f"skipped: {MODELS}/SmolLM2-135M-Instruct has no GGUF file")
    sys.exit(SKIPPED)
torch.set_num_threads(os.cpu_count() or 1)
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time, in a village by the sea,"]
ENGLISH = ("The lighthouse keeper counted the boats every evening. When one was missing he lit the lamp early, climbed "
           "down to the shore and waited with a rope and a kettle of tea, because the sea is colder than it looks.")
QUESTIONS = ["What is the capital of France?", "And of Italy?", "Write a haiku about rain."]


def tokenizer_of(settings):
    tokens = settings["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in settings["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, settings["tokenizer.ggml.token_type"]) if kind == 3])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer,
                                      eos_token=tokens[settings["tokenizer.ggml.eos_token_id"]])


class SmolLM2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = FILES[0]
        settings = gguf_settings(cls.file)
        cls.chat_template = settings["tokenizer.chat_template"]
        cls.tokenizer = tokenizer_of(settings)
        cls.model = gguf_llama.load(cls.file)

    def greedy(self, text, tokens=40):
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            written = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                          max_new_tokens=tokens, eos_token_id=self.tokenizer.eos_token_id)
        return self.tokenizer.decode(written[0, ids.shape[1]:], skip_special_tokens=True)

    def test_greedy_text(self):
        for prompt in PROMPTS:
            with self.subTest(prompt):
                done = run_regard("generate", "--model", self.file, "--weights", "float32", "--prompt", prompt,
                                  "--max-tokens", 40)
                self.assertEqual(done.stdout, prompt + self.greedy(prompt) + "\n")

    def test_chat(self):
        messages, answers = [], ""
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            answer = self.greedy(self.tokenizer.apply_chat_template(
                messages, chat_template=self.chat_template, tokenize=False, add_generation_prompt=True))
            messages.append({"role": "assistant", "content": answer})
            answers += answer + "\n"
        done = run_regard("chat", "--model", self.file, "--weights", "float32", "--max-tokens", 40, stdin="\n".join(QUESTIONS) + "\n")
        self.assertEqual(done.stdout, answers)

    def test_integers_say_nearly_what_floats_say(self):
        ids = self.tokenizer(ENGLISH, add_special_tokens=False).input_ids
        tokens = {"tokens": torch.tensor(ids)}
        exact = run_driver("language_driver", tokens, {"model": self.file})["logits"]
        for weights, agreement, closeness in (("as-stored", 0.9, 0.998), ("int8", 0.95, 0.999), ("int4", 0.7, 0.98)):
            with self.subTest(weights):
                got = run_driver("language_driver", tokens, {"model": self.file, "weights": weights})
                same = (got["logits"].argmax(-1) == exact.argmax(-1)).double().mean().item()
                cosine = torch.nn.functional.cosine_similarity(got["logits"].double(), exact.double(), dim=-1)
                print(f"{weights}: {same:.3f} the same next token, cosine of the scores {cosine.mean():.5f}")
                self.assertGreaterEqual(same, agreement)
                self.assertGreaterEqual(cosine.mean().item(), closeness)
                self.assertTrue(torch.equal(got["logits"][-1], got["whole"]), "a cut of the text changed bits")


if __name__ == "__main__":
    unittest.main()
