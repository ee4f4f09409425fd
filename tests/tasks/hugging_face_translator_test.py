# SPDX-License-Identifier: Apache-2.0
"""Small random models of each family, saved by transformers, and what it makes of them."""

import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import SKIPPED, load_file, run_driver, save_file, torch  # noqa: E402

try:
    import tokenizers
    import transformers
    from transformers import (BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel, T5Config,
                              T5ForConditionalGeneration)
except ImportError as error:
    print(f"skipped: {error}; this test compares with transformers")
    sys.exit(SKIPPED)

PROGRAM = os.environ.get("REGARD_PROGRAM", "build/dev/bin/regard")
VOCAB = 97
PAD, END, UNKNOWN, BEGIN = 0, 1, 2, 3
WORDS = [f"w{i}" for i in range(4, VOCAB)]
MOST = 12  # tokens of a translation
LONG = 150  # tokens: beyond the distances that T5 tells apart


def make_model(family):
    """A model whose outputs depend on its inputs: weights larger than training starts with."""
    torch.manual_seed({"marian": 3, "marian_untied": 6}.get(family, 7))
    ids = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD, "vocab_size": VOCAB}
    bart = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
            "decoder_attention_heads": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
            "max_position_embeddings": 256, "init_std": 0.4, "dropout": 0.0, "forced_eos_token_id": None}
    t5 = {"d_model": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3, "d_kv": 16, "d_ff": 40,
          "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "dropout_rate": 0.0,
          "initializer_factor": 1.0}
    if family == "marian":
        model = MarianMTModel(MarianConfig(**ids, **bart, activation_function="swish", scale_embedding=True,
                                           bos_token_id=BEGIN))
    elif family == "marian_untied":
        model = MarianMTModel(MarianConfig(**ids, **bart, activation_function="relu", scale_embedding=False,
                                           share_encoder_decoder_embeddings=False, bos_token_id=BEGIN,
                                           decoder_vocab_size=VOCAB))
    elif family == "bart":
        model = BartForConditionalGeneration(BartConfig(**{**ids, "decoder_start_token_id": END}, **bart,
                                                        activation_function="gelu", bos_token_id=BEGIN))
        model.generation_config.forced_bos_token_id = BEGIN
    elif family == "t5":
        model = T5ForConditionalGeneration(T5Config(**ids, **t5, feed_forward_proj="relu"))
    else:
        model = T5ForConditionalGeneration(T5Config(**ids, **t5, feed_forward_proj="gated-gelu",
                                                    tie_word_embeddings=False))
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 24))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(0, 1.5)  # else a model without training says what it said before
            if name.endswith("bias") and parameter.dim() == 1:
                parameter.normal_(0, 0.2)
            if name.endswith("relative_attention_bias.weight"):
                parameter.normal_(0, 1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0, 0.5)
    return model.eval()


def save(model, folder):
    model.save_pretrained(folder)
    if model.lm_head.weight.data_ptr() != model.get_input_embeddings().weight.data_ptr():
        # As flan-t5 has it; this version of transformers would write the table alone.
        path = pathlib.Path(folder) / "model.safetensors"
        save_file({**load_file(path), "lm_head.weight": model.lm_head.weight.detach()}, path, {"format": "pt"})
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", "<s>"] + WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>",
                                         unk_token="<unk>", bos_token="<s>").save_pretrained(folder)


def sentences():
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))) for _ in range(16)]


class Families(unittest.TestCase):
    def check(self, family):
        model = make_model(family)
        with tempfile.TemporaryDirectory() as folder:
            save(model, folder)
            self.check_numbers(model, folder)
            for beam in (1, 4):
                self.check_texts(model, folder, family, beam)

    def check_numbers(self, model, folder):
        """No farther from the same in double than twice torch's own float."""
        draw = torch.Generator().manual_seed(5)
        source = torch.randint(4, VOCAB, (LONG,), generator=draw)
        target = torch.randint(4, VOCAB, (40,), generator=draw)
        target[0] = model.config.decoder_start_token_id
        ours = run_driver("imported_translator_driver",
                          {"source": source.int(), "target": target.int()}, {"model": folder})

        def run(of):
            with torch.no_grad():
                out = of(input_ids=source[None], decoder_input_ids=target[None])
            return {"memory": out.encoder_last_hidden_state[0], "logits": out.logits[0]}

        truth = run(copy.deepcopy(model).double())
        theirs = run(model)
        for name in ("memory", "logits"):
            error = (ours[name].double() - truth[name]).abs()
            allowed = (theirs[name].double() - truth[name]).abs()
            self.assertLessEqual(error.pow(2).mean().sqrt(), 2 * allowed.pow(2).mean().sqrt(), name)
            self.assertLessEqual(error.max(), 2 * allowed.max(), name)

    def check_texts(self, model, folder, family, beam):
        expected = self.generated(model, folder, family, beam)
        self.assertEqual(self.translated(folder, beam), expected)
        self.assertGreater(len(set(expected)), len(expected) // 5)  # a model that says one thing proves nothing

    def generated(self, model, folder, family, beam):
        """With the length penalty that the model has."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        expected = []
        for line in sentences():
            ids = tokenizer(line, add_special_tokens=False)["input_ids"] + [END]
            if family == "bart":
                ids = [BEGIN] + ids
            said = model.generate(torch.tensor([ids]), num_beams=beam, do_sample=False, max_new_tokens=MOST,
                                  early_stopping=beam > 1,
                                  use_cache=family == "bart" or family.startswith("marian"))  # T5's needs equal depths
            expected.append(tokenizer.decode(said[0], skip_special_tokens=True))
        return expected

    def translated(self, folder, beam):
        done = subprocess.run([PROGRAM, "translate", "--model", folder, "--beam", str(beam), "--max-length", str(MOST)],
                              input="\n".join(sentences()) + "\n", capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def test_marian(self):
        self.check("marian")

    def test_marian_with_tables_of_their_own(self):
        self.check("marian_untied")

    def test_bart(self):
        self.check("bart")

    def test_t5(self):
        self.check("t5")

    def test_t5_gated_and_untied(self):
        self.check("t5_gated")

    def test_length_penalty(self):
        """Of generation_config.json, as transformers writes it; of config.json, where older models have it."""
        model = make_model("marian")
        model.final_logits_bias[0, END] += 4  # else none ever ends, and all hypotheses are equally long
        model.generation_config.num_beams = 4
        found = []
        for penalty in (0.0, 3.0):
            model.generation_config.length_penalty = penalty
            with tempfile.TemporaryDirectory() as folder:
                save(model, folder)
                found.append(self.generated(model, folder, "marian", 4))
                self.assertEqual(self.translated(folder, 4), found[-1])
                generation, config = (pathlib.Path(folder) / f"{name}.json" for name in ("generation_config", "config"))
                settings = json.loads(generation.read_text())
                self.assertEqual(settings.pop("length_penalty"), penalty)
                generation.write_text(json.dumps(settings))
                config.write_text(json.dumps({**json.loads(config.read_text()), "length_penalty": penalty}))
                self.assertEqual(self.translated(folder, 4), found[-1])
        self.assertNotEqual(*found)

    def test_what_does_not_fit_is_named(self):
        def refusal(change):
            with tempfile.TemporaryDirectory() as folder:
                save(make_model("t5"), folder)
                path = pathlib.Path(folder) / "config.json"
                config = json.loads(path.read_text())
                change(config, pathlib.Path(folder))
                path.write_text(json.dumps(config))
                done = subprocess.run([PROGRAM, "translate", "--model", folder, "w4"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                return done.stderr

        self.assertIn("num_layers must be a whole number", refusal(lambda c, _: c.update(num_layers="x")))
        self.assertIn("has no tensor 'encoder.block.2.", refusal(lambda c, _: c.update(num_layers=3)))
        self.assertIn("'encoder.block.1.", refusal(lambda c, _: c.update(num_layers=1)))
        self.assertIn("activation function 'tanh'", refusal(lambda c, _: c.update(feed_forward_proj="tanh")))
        self.assertIn("model that does not translate: 'bert'", refusal(lambda c, _: c.update(model_type="bert")))
        self.assertIn("must be float32 [98, 24]", refusal(lambda c, _: c.update(vocab_size=98)))
        self.assertIn("length_penalty must be a number from -10 to 10; got", refusal(lambda c, _: c.update(length_penalty="x")))
        self.assertIn("has no model.safetensors", refusal(lambda _, f: (f / "model.safetensors").unlink()))


if __name__ == "__main__":
    unittest.main()
