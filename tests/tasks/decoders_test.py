#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decoders of every family beside transformers: small random models, saved as a folder and read from it.

Scores may be at most twice as far from a run in double as torch's are in float, greedy text must be the
same, and a token read alone must have the bits that it has within its text.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from driver import SKIPPED, run_driver  # noqa: E402
from gguf_file import write_gguf  # noqa: E402

try:
    import numpy as np
    import torch
    import transformers as hf
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as error:
    print(f"skipped: {error}; this test compares with transformers")
    sys.exit(SKIPPED)

ROOT = pathlib.Path(os.environ.get("REGARD_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PROGRAM = os.environ.get("REGARD_PROGRAM", ROOT / "build/dev/bin/regard")
VOCAB, LENGTH = 320, 70
hf.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

SIZES = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=88, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=128, bos_token_id=0, eos_token_id=0,
             pad_token_id=0)
GEMMA = {**SIZES, "head_dim": 16}


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 10000.0, **more}


# Each family with what sets it apart.
FAMILIES = {
    "llama 2": hf.LlamaConfig(**{**SIZES, "num_key_value_heads": 6}),
    "llama 3": hf.LlamaConfig(**SIZES, rope_parameters=rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)),
    "llama, linear RoPE scaling": hf.LlamaConfig(**SIZES, rope_parameters=rope("linear", factor=4.0)),
    "llama, YaRN": hf.LlamaConfig(**SIZES, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=32)),
    "llama with biases": hf.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "smollm": hf.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "mistral": hf.MistralConfig(**SIZES, sliding_window=None),
    "mistral with a window": hf.MistralConfig(**SIZES, sliding_window=20),
    "qwen 2": hf.Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "qwen 2 with windows": hf.Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"},
                                          use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "qwen 3": hf.Qwen3Config(**{**SIZES, "head_dim": 16}, tie_word_embeddings=True),
    "gemma": hf.GemmaConfig(**GEMMA),
    "gemma 2": hf.Gemma2Config(**GEMMA, sliding_window=16, query_pre_attn_scalar=24),
    "gemma 3": hf.Gemma3TextConfig(**{**GEMMA, "num_hidden_layers": 7}, sliding_window=16, query_pre_attn_scalar=24,
                                   rope_parameters={"full_attention": rope("linear", factor=8.0, rope_theta=1e6),
                                                    "sliding_attention": rope("default")}),
    "phi 3": hf.Phi3Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, sliding_window=24),
    "gpt 2": hf.GPT2Config(vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=6, n_positions=128, bos_token_id=0,
                           eos_token_id=0),
}


def random_model(config, seed=1):
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.dim() == 1 else 1.2 / parameter.shape[-1] ** 0.5
            at_rest = parameter.mean().round() if "norm" in name or ".ln_" in name else 0.0
            parameter.copy_(at_rest + spread * torch.randn_like(parameter))
    model.tie_weights()
    return model


@contextlib.contextmanager
def all_in_double():
    """Within a model in double, transformers goes through float: for norms, softmax and angles. Not here."""
    with mock.patch.object(torch, "float32", torch.float64), mock.patch.object(torch, "float", torch.float64), \
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def logits_in_double(folder, tokens):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    with all_in_double(), torch.no_grad():
        inner = model.base_model
        if hasattr(inner, "rotary_emb"):
            inner.rotary_emb = type(inner.rotary_emb)(config=model.config)
        if hasattr(inner.get_input_embeddings(), "embed_scale"):
            inner.get_input_embeddings().embed_scale = torch.tensor(model.config.hidden_size ** 0.5)
        return model(tokens[None]).logits[0]


def save_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<end>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<end>", eos_token="<end>")
    fast.save_pretrained(folder)
    return fast


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    return save_tokenizer(folder)


# Hugging Face's names in GGUF; the first that fits is taken.
GGUF_NAMES = [("model.embed_tokens.", "token_embd."), ("transformer.wte.", "token_embd."),
              ("transformer.wpe.", "position_embd."), ("model.norm.", "output_norm."),
              ("transformer.ln_f.", "output_norm."), ("lm_head.", "output."), ("model.layers.", "blk."),
              ("transformer.h.", "blk."), ("pre_feedforward_layernorm", "ffn_norm"),
              ("post_feedforward_layernorm", "post_ffw_norm"), ("input_layernorm", "attn_norm"), ("ln_1", "attn_norm"),
              ("ln_2", "ffn_norm"), ("self_attn.o_proj", "attn_output"), ("self_attn.q_norm", "attn_q_norm"),
              ("self_attn.k_norm", "attn_k_norm"), ("self_attn.qkv_proj", "attn_qkv"), ("self_attn.q_proj", "attn_q"),
              ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"), ("attn.c_attn", "attn_qkv"),
              ("attn.c_proj", "attn_output"), ("mlp.gate_up_proj", "ffn_up"), ("mlp.gate_proj", "ffn_gate"),
              ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("mlp.c_fc", "ffn_up"),
              ("mlp.c_proj", "ffn_down")]


def as_gguf(model, path):
    """The model by the conventions of GGUF's converters."""
    c = model.config
    kind = {"mistral": "llama", "gemma3_text": "gemma3"}.get(c.model_type, c.model_type)
    gpt2, gemma = kind == "gpt2", kind.startswith("gemma")
    tensors = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array = value.float().numpy()
        after_attention = "post_attention_norm" if kind in ("gemma2", "gemma3") else "ffn_norm"
        for theirs, ours in [*GGUF_NAMES, ("post_attention_layernorm", after_attention)]:
            name = name.replace(theirs, ours)
        if gemma and "norm" in name:
            array = array + np.float32(1)
        if gpt2 and array.ndim == 2 and name.startswith("blk."):
            array = array.T
        if kind == "llama" and ("attn_q." in name or "attn_k." in name):  # halves become neighbours
            heads = c.num_attention_heads if "attn_q." in name else c.num_key_value_heads
            array = array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        tensors[name] = array
    if gpt2:
        settings = {"embedding_length": c.n_embd, "block_count": c.n_layer, "attention.head_count": c.n_head,
                    "feed_forward_length": 4 * c.n_embd, "context_length": c.n_positions,
                    "attention.layer_norm_epsilon": c.layer_norm_epsilon}
    else:
        rope = c.rope_parameters.get("full_attention", c.rope_parameters)
        settings = {"embedding_length": c.hidden_size, "block_count": c.num_hidden_layers,
                    "feed_forward_length": c.intermediate_size, "attention.head_count": c.num_attention_heads,
                    "attention.head_count_kv": c.num_key_value_heads, "context_length": c.max_position_embeddings,
                    "attention.layer_norm_rms_epsilon": c.rms_norm_eps, "rope.freq_base": float(rope["rope_theta"])}
        if getattr(c, "head_dim", None):
            settings |= {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim}
        if rope["rope_type"] in ("linear", "yarn"):
            settings |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
        if rope["rope_type"] == "yarn":
            settings["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        if rope["rope_type"] == "llama3":  # the factors themselves
            plain = hf.LlamaConfig(**SIZES)
            inverse = [type(model.base_model.rotary_emb)(config=one).inv_freq.double() for one in (plain, c)]
            tensors["rope_freqs.weight"] = (inverse[0] / inverse[1]).numpy()
        if getattr(c, "sliding_window", None):
            settings["attention.sliding_window"] = c.sliding_window
        for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
            if getattr(c, cap, None):
                settings[cap] = getattr(c, cap)
    write_gguf(path, {"general.architecture": kind, **{f"{kind}.{key}": value for key, value in settings.items()}},
               tensors)


def run_regard(*arguments, stdin=""):
    # In bytes: Python would take a carriage return that the model wrote for the end of a line.
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin.encode(), capture_output=True)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


class Decoders(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def expect_logits(self, folder, what, gguf=None):
        torch.manual_seed(7)
        tokens = torch.randint(0, VOCAB, (LENGTH,))
        model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                        attn_implementation="eager").eval()
        with torch.no_grad():
            theirs = model(tokens[None]).logits[0].double()
        truth = logits_in_double(folder, tokens)
        ours = run_driver("language_driver", {"tokens": tokens}, {"model": gguf or folder})
        error = (ours["logits"].double() - truth).abs().max().item()
        yardstick = (theirs - truth).abs().max().item()
        self.assertLess(yardstick, 1e-3 * truth.abs().max().item(), what)  # the truth is of the same model
        self.assertLessEqual(error, 2 * yardstick, f"{what}: {error:.2e}, torch's is {yardstick:.2e}")
        self.assertTrue(torch.equal(ours["logits"][-1], ours["whole"]), what)
        return model

    def expect_text(self, model, tokenizer, folder, what):
        prompt = "The cat sat"
        read = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            written = model.generate(**read, do_sample=False, max_new_tokens=30)[0]
        expected = tokenizer.decode(written[read.input_ids.shape[1]:], skip_special_tokens=True)
        done = run_regard("generate", "--model", folder, "--prompt", prompt, "--max-tokens", 30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, prompt + expected + "\n", what)

    def test_every_family_scores_and_writes_as_transformers_does(self):
        for what, config in FAMILIES.items():
            with self.subTest(what):
                folder = self.folder / what
                tokenizer = save(random_model(config), folder)
                self.expect_text(self.expect_logits(folder, what), tokenizer, folder, what)

    def test_every_family_is_the_same_in_gguf(self):
        for what, config in FAMILIES.items():
            # What the format cannot say: windows from some layer on, and another scale of the scores.
            if what == "qwen 2 with windows":
                continue
            if hasattr(config, "query_pre_attn_scalar"):
                config = type(config)(**{**config.to_dict(), "query_pre_attn_scalar": config.head_dim})
            with self.subTest(what):
                model, folder = random_model(config), self.folder / what
                model.save_pretrained(folder)
                as_gguf(model, folder / "model.gguf")
                self.expect_logits(folder, what, folder / "model.gguf")

    def test_half_precision_and_parts_are_read(self):
        model = random_model(FAMILIES["llama 3"])
        save(model.to(torch.bfloat16), self.folder / "bf16")
        self.expect_logits(self.folder / "bf16", "bfloat16")
        save(model.to(torch.float16), self.folder / "parts", max_shard_size="50KB")
        self.assertGreater(len(list((self.folder / "parts").glob("*.safetensors"))), 2)
        self.assertTrue((self.folder / "parts/model.safetensors.index.json").exists())
        self.expect_logits(self.folder / "parts", "parts in float16")

    def test_errors_name_the_file_and_what_was_expected(self):
        save(random_model(FAMILIES["smollm"]), self.folder)
        config = json.loads((self.folder / "config.json").read_text())
        tensors = load_file(self.folder / "model.safetensors")

        def refused(changes=None, weights=None):
            (self.folder / "config.json").write_text(json.dumps({**config, **(changes or {})}))
            save_file({**tensors, **(weights or {})}, self.folder / "model.safetensors")
            done = run_regard("generate", "--model", self.folder, "--max-tokens", 1)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
            return done.stderr

        said = f"regard: '{self.folder}/config.json': "
        self.assertEqual(refused({"model_type": "mamba"}), said + "model_type must be llama, mistral, qwen2, qwen3, "
                         "gemma, gemma2, gemma3_text, phi3 or gpt2; it is 'mamba'\n")
        self.assertEqual(refused({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}), said +
                         "rope_parameters.rope_type is a RoPE scaling that is not read: 'dynamic'; linear, llama3 and "
                         "yarn are\n")
        self.assertEqual(refused({"hidden_act": "relu2"}),
                         said + "hidden_act is an activation that is not read: 'relu2'\n")
        self.assertEqual(refused({"hidden_size": "48"}),
                         said + "hidden_size must be a number that is not negative; it is \"48\"\n")
        self.assertEqual(refused({"num_hidden_layers": 1 << 40}),
                         said + "num_hidden_layers must be 1 to 65536; it is 1099511627776\n")
        self.assertIn("quantization_config must not be there", refused({"quantization_config": {"bits": 4}}))
        said = f"regard: '{self.folder}': "
        self.assertEqual(refused({"num_hidden_layers": 4}),
                         said + "LanguageModel: the parameter model.layers.3.input_layernorm.weight is missing\n")
        self.assertEqual(refused({"intermediate_size": 80}),
                         said + "LanguageModel: model.layers.0.mlp.gate_proj.weight must be [80, 48]; it is [88, 48]\n")
        self.assertEqual(refused(weights={"model.odd": torch.zeros(2)}),
                         said + "LanguageModel: 'model.odd' is not a parameter of this model\n")
        self.assertEqual(refused(weights={"model.norm.weight": torch.zeros(48, dtype=torch.int32)}),
                         said + "'model.norm.weight' must be float32, float16 or bfloat16; it is int32\n")
        (self.folder / "model.safetensors").unlink()
        index = self.folder / "model.safetensors.index.json"
        index.write_text('{"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}')
        done = run_regard("generate", "--model", self.folder)
        self.assertEqual(done.stderr, f"regard: '{index}': weight_map.model.norm.weight must be the name of a file in the "
                         "folder; it is '../elsewhere.safetensors'\n")
        index.unlink()
        done = run_regard("generate", "--model", self.folder)
        self.assertIn(f"cannot read '{self.folder}/model.safetensors'", done.stderr)

    def test_a_text_of_any_bytes_comes_whole(self):
        # Characters of several tokens: what is streamed is what transformers decodes at the end.
        tokenizer = save(random_model(FAMILIES["gpt 2"], seed=3), self.folder)
        model = hf.AutoModelForCausalLM.from_pretrained(self.folder).eval()
        for prompt in ["", "\u4e2d\u6587", "na\u00efve \U0001f600"]:
            ids = tokenizer(prompt).input_ids or [0]
            written = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=25)[0, len(ids):]
            before = tokenizer.decode(ids, skip_special_tokens=True)
            expected = tokenizer.decode([*ids, *written], skip_special_tokens=True)[len(before):]
            done = run_regard("generate", "--model", self.folder, "--prompt", prompt, "--max-tokens", 25)
            self.assertEqual(done.stdout, prompt + expected + "\n")


if __name__ == "__main__":
    unittest.main()
