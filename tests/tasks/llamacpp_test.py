#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 with the integers of its file beside llama.cpp: the next token, and the perplexity of a text.

A text is read token by token by both. Both round what goes into a product to 8 bits, in ways of their own, so that neither
says all that the model in float32 says; ours must be as near to that as llama.cpp. llama.cpp tells its likeliest tokens
alone, so perplexity counts the places where the true token is one of them. REGARD_TOKENS says how many tokens are read.
"""

import json
import math
import os
import pathlib
import sys
import unittest

from decoders_test import SKIPPED, run_driver, torch

try:
    import xllamacpp
except ImportError as error:
    print(f"skipped: {error}; this test compares with llama.cpp")
    sys.exit(SKIPPED)
from smollm2_test import FILES, gguf_settings, tokenizer_of

TOKENS = int(os.environ.get("REGARD_TOKENS", "256"))
WINDOW = 250  # tokens that are read in one go
LIKELIEST = 1000
TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "multi-head-attention.md"


class LlamaCpp:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.verbosity = 2 * WINDOW, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 1
        self._server = xllamacpp.Server(params)

    def log_probabilities(self, tokens):
        """{token: log-probability} of the likeliest after each of `tokens`."""
        found = []
        for end in range(1, len(tokens) + 1):
            answer = self._server.handle_completions({
                "prompt": tokens[:end], "n_predict": 1, "temperature": 0, "n_probs": LIKELIEST, "cache_prompt": True})
            answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
            likeliest = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            found.append({one["id"]: one["logprob"] for one in likeliest})
        return found


class BesideLlamaCpp(unittest.TestCase):
    def test_next_tokens_and_perplexity(self):
        tokenizer = tokenizer_of(gguf_settings(FILES[0]))
        ids = tokenizer(TEXT.read_text(encoding="utf-8"), add_special_tokens=False).input_ids[:TOKENS]
        other = LlamaCpp(FILES[0])
        same, ours_exact, theirs_exact, sums, counted = 0, 0, 0, [0.0, 0.0, 0.0], 0
        for begin in range(0, len(ids), WINDOW):
            tokens = ids[begin:begin + WINDOW]
            theirs = other.log_probabilities(tokens)
            ours, exact = (
                run_driver("language_driver", {"tokens": torch.tensor(tokens)}, {"model": FILES[0], "weights": weights})
                ["logits"].double().log_softmax(-1) for weights in ("as-stored", "float32"))
            for one, our_best, best in zip(theirs, ours.argmax(-1).tolist(), exact.argmax(-1).tolist()):
                their_best = max(one, key=one.get)
                same += our_best == their_best
                ours_exact += our_best == best
                theirs_exact += their_best == best
            for place, token in enumerate(tokens[1:]):
                if token not in theirs[place]:
                    continue
                counted += 1
                sums[0] -= ours[place, token].item()
                sums[1] -= theirs[place][token]
                sums[2] -= exact[place, token].item()
        ours, theirs, exact = (math.exp(total / counted) for total in sums)
        print(f"{len(ids)} tokens: the same next token for {same / len(ids):.4f}; that of float32: ours "
              f"{ours_exact / len(ids):.4f}, llama.cpp's {theirs_exact / len(ids):.4f}; perplexity {ours:.4f}, "
              f"llama.cpp {theirs:.4f}, float32 {exact:.4f}, of {counted} tokens")
        self.assertGreaterEqual(same / len(ids), 0.95)
        self.assertGreaterEqual(ours_exact, theirs_exact)
        # Few tokens leave much to chance.
        self.assertLessEqual(abs(ours / theirs - 1), 0.005 if len(ids) >= 2000 else 0.03)


if __name__ == "__main__":
    unittest.main()
