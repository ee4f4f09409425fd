#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of model_folder, chat_template and file below tests/fuzz/corpus.

model_folder: a tiny valid folder of every family that is read, each as one file, as folder.h has it. Random weights, no
model of anybody.
"""

import json
import pathlib
import random
import struct

VOCAB, DIM, HEADS, WIDE, PLACES = 14, 4, 2, 6, 20
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "##s", ".", "mat", "on", "a"]


class Weights:
    """Tensors by name, in safetensors and in CTranslate2's format."""

    def __init__(self):
        self.random = random.Random(3)
        self.shapes = {}

    def add(self, name, *shape):
        self.shapes[name] = shape
        return self

    def linear(self, name, out, inner, bias=True):
        self.add(name + ".weight", out, inner)
        return self.add(name + ".bias", out) if bias else self

    def norm(self, name, bias=True, width=DIM):
        self.add(name + ".weight", width)
        return self.add(name + ".bias", width) if bias else self

    def floats(self, shape):
        count = 1
        for extent in shape:
            count *= extent
        return [self.random.randint(-8, 8) / 8 for _ in range(count)]

    def safetensors(self, dtype="F32"):
        header, data = {}, b""
        for name, shape in self.shapes.items():
            values = self.floats(shape)
            begin = len(data)
            data += struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data


def word_pieces():
    return {"vocab.txt": "\n".join(PIECES) + "\n"}


def byte_pairs(**more):
    """<s> and its like first; then letters, two merges, and what they make."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = {piece: i for i, piece in enumerate(special + list("catdos\u0120") + ["at", "cat", "do"])}
    assert len(vocab) == VOCAB
    added = [{"id": i, "content": piece, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, piece in enumerate(special)]
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                      {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}},
                                    {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": ["a t", "c at", "d o"]}}
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", **more}
    return {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(config)}


def encoder(kind, **more):
    config = {"model_type": kind, "vocab_size": VOCAB, "hidden_size": DIM, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "intermediate_size": WIDE, "max_position_embeddings": PLACES,
              "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", **more}
    names = {"albert": ("attention.query", "attention.key", "attention.value", "attention.dense",
                        "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"),
             "distilbert": ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
                            "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
             "mpnet": ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
                       "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")}.get(
        kind, ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
               "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"))
    at = {"albert": "encoder.albert_layer_groups.0.albert_layers.0.", "distilbert": "transformer.layer.0."}.get(
        kind, "encoder.layer.0.")
    w = Weights()
    width = config.get("embedding_size", DIM)
    w.add("embeddings.word_embeddings.weight", VOCAB, width).add("embeddings.position_embeddings.weight", PLACES, width)
    if kind not in ("distilbert", "mpnet"):
        w.add("embeddings.token_type_embeddings.weight", config["type_vocab_size"], width)
    w.norm("embeddings.LayerNorm", width=width)
    if kind == "albert":
        w.linear("encoder.embedding_hidden_mapping_in", DIM, width)
    if kind == "mpnet":
        w.add("encoder.relative_attention_bias.weight", 32, HEADS)
    for part in names[:4]:
        w.linear(at + part, DIM, DIM)
    w.norm(at + names[4]).linear(at + names[5], WIDE, DIM).linear(at + names[6], DIM, WIDE).norm(at + names[7])
    files = {"config.json": json.dumps(config), "model.safetensors": w.safetensors("F16" if kind == "mpnet" else "F32")}
    if kind == "distilbert":
        files["config.json"] = json.dumps({
            "model_type": kind, "vocab_size": VOCAB, "dim": DIM, "n_layers": 1, "n_heads": HEADS, "hidden_dim": WIDE,
            "max_position_embeddings": PLACES})
    return files


def sentence_transformer():
    return {
        **encoder("bert"), **word_pieces(),
        "modules.json": json.dumps([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]),
        "1_Pooling/config.json": json.dumps({"word_embedding_dimension": DIM, "pooling_mode_cls_token": False,
                                             "pooling_mode_mean_tokens": True}),
        "sentence_bert_config.json": json.dumps({"max_seq_length": 16, "do_lower_case": False}),
        "config_sentence_transformers.json": json.dumps({"prompts": {"query": "a "}, "default_prompt_name": None}),
        "tokenizer_config.json": json.dumps({"do_lower_case": True, "model_max_length": 16}),
        "special_tokens_map.json": json.dumps({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}})}


def decoder(kind, **more):
    config = {"model_type": kind, "vocab_size": VOCAB, "hidden_size": DIM, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "num_key_value_heads": 1, "intermediate_size": WIDE,
              "max_position_embeddings": PLACES, "head_dim": 2, "tie_word_embeddings": kind != "llama", **more}
    if kind == "gpt2":
        config = {"model_type": kind, "vocab_size": VOCAB, "n_embd": DIM, "n_layer": 1, "n_head": HEADS,
                  "n_positions": PLACES}
        w = Weights().add("wte.weight", VOCAB, DIM).add("wpe.weight", PLACES, DIM).norm("h.0.ln_1").norm("h.0.ln_2")
        for name, inner, out in (("attn.c_attn", DIM, 3 * DIM), ("attn.c_proj", DIM, DIM),
                                 ("mlp.c_fc", DIM, 4 * DIM), ("mlp.c_proj", 4 * DIM, DIM)):
            w.add(f"h.0.{name}.weight", inner, out).add(f"h.0.{name}.bias", out)
        w.norm("ln_f")
    else:
        at, w = "model.layers.0.", Weights().add("model.embed_tokens.weight", VOCAB, DIM)
        bias = kind == "qwen2"
        if kind == "phi3":
            w.add(at + "self_attn.qkv_proj.weight", 8, DIM).add(at + "mlp.gate_up_proj.weight", 2 * WIDE, DIM)
        else:
            for part, out in (("q", 4), ("k", 2), ("v", 2)):
                w.linear(at + f"self_attn.{part}_proj", out, DIM, bias)
            w.add(at + "mlp.gate_proj.weight", WIDE, DIM).add(at + "mlp.up_proj.weight", WIDE, DIM)
        w.add(at + "self_attn.o_proj.weight", DIM, 4).add(at + "mlp.down_proj.weight", DIM, WIDE)
        for name in ("input_layernorm", "post_attention_layernorm") + (
                ("pre_feedforward_layernorm", "post_feedforward_layernorm") if kind in ("gemma2", "gemma3_text")
                else ()):
            w.norm(at + name, bias=False)
        if kind in ("qwen3", "gemma3_text"):
            w.norm(at + "self_attn.q_norm", False, 2).norm(at + "self_attn.k_norm", False, 2)
        w.norm("model.norm", bias=False)
        if kind == "llama":
            w.add("lm_head.weight", VOCAB, DIM)
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    return {"config.json": json.dumps(config), "model.safetensors": w.safetensors("F16" if kind == "phi3" else "F32"),
            "generation_config.json": json.dumps({"eos_token_id": [2, 1]}), **byte_pairs(chat_template=template)}


def in_parts():
    """Weights in two files, which an index names."""
    files = decoder("qwen2")
    whole = files.pop("model.safetensors")
    size = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8:8 + size]), whole[8 + size:]
    index = {}
    for number, names in enumerate((list(header)[:4], list(header)[4:])):
        part, bytes_of_part = {}, b""
        for name in names:
            begin, end = header[name]["data_offsets"]
            part[name] = {**header[name], "data_offsets": [len(bytes_of_part), len(bytes_of_part) + end - begin]}
            bytes_of_part += data[begin:end]
            index[name] = f"part{number}.safetensors"
        text = json.dumps(part).encode()
        files[f"part{number}.safetensors"] = struct.pack("<Q", len(text)) + text + bytes_of_part
    return {**files, "model.safetensors.index.json": json.dumps({"weight_map": index})}


def translator(kind):
    tokens = {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 1}
    w = Weights()
    if kind == "t5":
        config = {"model_type": kind, "vocab_size": VOCAB, "d_model": DIM, "num_heads": HEADS, "d_kv": 2,
                  "num_layers": 1, "d_ff": WIDE, "feed_forward_proj": "gated-gelu", **tokens}
        w.add("shared.weight", VOCAB, DIM)
        for side in ("encoder", "decoder"):
            at = side + ".block.0.layer."
            w.add(at + "0.SelfAttention.relative_attention_bias.weight", 32, HEADS)
            for part in ["0.SelfAttention."] + (["1.EncDecAttention."] if side == "decoder" else []):
                for name in "qkvo":
                    w.add(at + part + name + ".weight", DIM, DIM)
                w.norm(at + part[0] + ".layer_norm", bias=False)
            last = at + ("2." if side == "decoder" else "1.")
            for name, out, inner in (("wi_0", WIDE, DIM), ("wi_1", WIDE, DIM), ("wo", DIM, WIDE)):
                w.add(last + f"DenseReluDense.{name}.weight", out, inner)
            w.norm(last + "layer_norm", bias=False).norm(side + ".final_layer_norm", bias=False)
    else:
        config = {"model_type": kind, "vocab_size": VOCAB, "d_model": DIM, "encoder_layers": 1, "decoder_layers": 1,
                  "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": WIDE,
                  "decoder_ffn_dim": WIDE, "activation_function": "swish" if kind == "marian" else "gelu",
                  "max_position_embeddings": PLACES, "scale_embedding": kind == "marian", "bad_words_ids": [[1]],
                  **tokens}
        w.add("model.shared.weight", VOCAB, DIM).add("final_logits_bias", 1, VOCAB)
        for side in ("encoder", "decoder"):
            at = f"model.{side}.layers.0."
            if kind == "bart":
                w.add(f"model.{side}.embed_positions.weight", PLACES + 2, DIM).norm(f"model.{side}.layernorm_embedding")
            for part in ["self_attn"] + (["encoder_attn"] if side == "decoder" else []):
                for name in "qkv":
                    w.linear(f"{at}{part}.{name}_proj", DIM, DIM)
                w.linear(f"{at}{part}.out_proj", DIM, DIM).norm(f"{at}{part}_layer_norm")
            w.linear(at + "fc1", WIDE, DIM).linear(at + "fc2", DIM, WIDE).norm(at + "final_layer_norm")
    return {"config.json": json.dumps(config), "model.safetensors": w.safetensors(), **byte_pairs()}


def ctranslate2(int8):
    """Version 6: post-norm, one table for all, swish, as OPUS-MT."""
    w = Weights()
    variables = {}

    def text(name):
        return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"

    def setting(name, value):
        variables[name] = struct.pack("<BBI", 0, 1, 1) + struct.pack("<b", value)

    def add(name, *shape):
        values = w.floats(shape)
        dims = struct.pack("<B", len(shape)) + b"".join(struct.pack("<I", extent) for extent in shape)
        if int8 and len(shape) == 2:
            variables[name] = dims + struct.pack("<BI", 1, len(values)) + struct.pack(
                f"<{len(values)}b", *[int(8 * value) for value in values])
            variables[name + "_scale"] = struct.pack("<BI", 1, shape[0]) + struct.pack(
                "<BI", 0, 4 * shape[0]) + struct.pack(f"<{shape[0]}f", *[8.0] * shape[0])
        else:
            variables[name] = dims + struct.pack("<BI", 0, 4 * len(values)) + struct.pack(f"<{len(values)}f", *values)

    def linear(name, out, inner):
        add(name + "/weight", out, inner)
        add(name + "/bias", out)

    def norm(name):
        add(name + "/gamma", DIM)
        add(name + "/beta", DIM)

    for side in ("encoder", "decoder"):
        for name, value in (("num_heads", HEADS), ("pre_norm", 0), ("activation", 2), ("scale_embeddings", 1)):
            setting(f"{side}/{name}", value)
        at = side + "/layer_0/"
        linear(at + "self_attention/linear_0", 3 * DIM, DIM)
        linear(at + "self_attention/linear_1", DIM, DIM)
        norm(at + "self_attention/layer_norm")
        if side == "decoder":
            linear(at + "attention/linear_0", DIM, DIM)
            linear(at + "attention/linear_1", 2 * DIM, DIM)
            linear(at + "attention/linear_2", DIM, DIM)
            norm(at + "attention/layer_norm")
        linear(at + "ffn/linear_0", WIDE, DIM)
        linear(at + "ffn/linear_1", DIM, WIDE)
        norm(at + "ffn/layer_norm")
        add(side + "/position_encodings/encodings", PLACES, DIM)
    setting("decoder/start_from_zero_embedding", 1)
    add("decoder/embeddings/weight", VOCAB, DIM)
    add("decoder/projection/bias", VOCAB)
    aliases = ("encoder/embeddings_0/weight", "decoder/projection/weight")
    data = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 7, len(variables))
    data += b"".join(text(name) + variables[name] for name in sorted(variables)) + struct.pack("<I", len(aliases))
    data += b"".join(text(name) + text("decoder/embeddings/weight") for name in aliases)
    words = ["<unk>", "<s>", "</s>"] + list("abcdefghijk")
    return {"model.bin": data, "shared_vocabulary.json": json.dumps(words),
            "config.json": json.dumps({"add_source_eos": True, "decoder_start_token": "</s>"})}


def folders():
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8}
    yield "bert", {**encoder("bert"), **word_pieces()}
    yield "sentence_transformer", sentence_transformer()
    yield "roberta", {**encoder("roberta", type_vocab_size=1), **byte_pairs()}
    yield "distilbert", {**encoder("distilbert"), **word_pieces()}
    yield "mpnet", {**encoder("mpnet"), **word_pieces()}
    yield "albert", {**encoder("albert", embedding_size=3), **word_pieces()}
    yield "llama", decoder("llama", rope_scaling=llama3, rope_theta=500000.0)
    yield "mistral", decoder("mistral", sliding_window=4)
    yield "qwen2_in_parts", in_parts()
    yield "qwen3", decoder("qwen3", rope_scaling={"type": "yarn", "factor": 4.0})
    yield "gemma", decoder("gemma")
    yield "gemma2", decoder("gemma2", sliding_window=4)
    yield "gemma3", decoder("gemma3_text", sliding_window=4, query_pre_attn_scalar=2)
    yield "phi3", decoder("phi3")
    yield "gpt2", decoder("gpt2")
    yield "marian", translator("marian")
    yield "bart", translator("bart")
    yield "t5", translator("t5")
    yield "ctranslate2", ctranslate2(False)
    yield "ctranslate2_int8", ctranslate2(True)


def gguf(kind):
    """A whole Llama with the tokenizer of GPT-2 or of SentencePiece."""
    w = Weights()

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def array(number, values, pack):
        return struct.pack("<IQ", number, len(values)) + b"".join(pack(value) for value in values)

    if kind == "gpt2":
        pieces = ["<s>", "</s>"] + list("catdosx\u0120") + ["at", "cat", "do", "ca"]
        tokenizer = {"tokenizer.ggml.pre": (8, text("gpt-2")),
                     "tokenizer.ggml.merges": (9, array(8, ["a t", "c at", "d o"], text))}
    else:
        pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "<0x63>"] + list("catdo\u2581") + ["at", "cat", "do"]
        tokenizer = {"tokenizer.ggml.scores": (9, array(6, [-float(i) for i in range(14)],
                                                        lambda score: struct.pack("<f", score)))}
    assert len(pieces) == VOCAB
    types = [3, 3] + [1] * 12 if kind == "gpt2" else [2, 3, 3, 6, 6] + [1] * 9
    settings = {
        "general.architecture": (8, text("llama")),
        **{"llama." + key: (4, struct.pack("<I", value)) for key, value in (
            ("context_length", PLACES), ("embedding_length", 32), ("block_count", 1), ("feed_forward_length", 32),
            ("attention.head_count", HEADS), ("attention.head_count_kv", 1), ("rope.dimension_count", 16))},
        "llama.attention.layer_norm_rms_epsilon": (6, struct.pack("<f", 1e-5)),
        "tokenizer.ggml.model": (8, text(kind)),
        "tokenizer.ggml.tokens": (9, array(8, pieces, text)),
        "tokenizer.ggml.token_type": (9, array(5, types, lambda number: struct.pack("<i", number))),
        "tokenizer.ggml.bos_token_id": (4, struct.pack("<I", types.index(3))),
        "tokenizer.ggml.eos_token_id": (4, struct.pack("<I", types.index(3) + 1)),
        "tokenizer.chat_template": (8, text("{% for m in messages %}<|im_start|><|im_end|>{% endfor %}")),
        **tokenizer}
    shapes = {"token_embd": (32, VOCAB), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
              "blk.0.attn_q": (32, 32), "blk.0.attn_k": (32, 16), "blk.0.attn_v": (32, 16),
              "blk.0.attn_output": (32, 32), "blk.0.ffn_gate": (32, 32), "blk.0.ffn_up": (32, 32),
              "blk.0.ffn_down": (32, 32)}
    infos, data = b"", b""
    for name, shape in shapes.items():
        matrix = len(shape) == 2
        infos += text(name + ".weight") + struct.pack("<I", len(shape)) + b"".join(
            struct.pack("<Q", extent) for extent in shape) + struct.pack("<IQ", 2 if matrix else 0, len(data))
        if matrix:  # Q4_0: a half-precision scale for 32 numbers of 4 bits
            data += b"".join(struct.pack("<e", 0.125) + w.random.randbytes(16) for _ in range(shape[1]))
        else:
            data += struct.pack("<32f", *w.floats((32,)))
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(settings))
    head += b"".join(text(key) + struct.pack("<I", number) + value for key, (number, value) in settings.items()) + infos
    return head + bytes(-len(head) % 32) + data


def chat_templates():
    turns = "{%% for m in messages %%}%s{%% endfor %%}{%% if add_generation_prompt %%}%s{%% endif %%}"
    yield "chatml", turns % ("{{'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n'}}",
                             "{{'<|im_start|>assistant\\n'}}")
    yield "chatml_system", ("{% if messages[0].role != 'system' %}{{'<|im_start|>system\\nYou\\'re \\\\ kind.<|im_end|>\\n'}}"
                            "{% endif %}{{'<|im_start|>' + m.role}}</think>")
    yield "llama3", turns % ("{{bos_token + '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content "
                             "| trim + '<|eot_id|>'}}", "Cutting Knowledge Date")
    yield "gemma", turns % ("{{bos_token}}{{first_user_prefix}}<start_of_turn>{{m.role}}\\n", "<start_of_turn>model\\n")
    yield "llama2", turns % ("{{bos_token + '[INST] <<SYS>>' + m.content + ' [/INST]'}}", "")
    yield "mistral", turns % ("{{'[INST] ' + system_message + m.content + ' [/INST]'}}{{' ' + message + eos_token + ' '}}",
                              "loop.last")
    yield "phi3", turns % ("<|system|><|user|>\\n{{m.content}}<|end|>\\n", "<|assistant|>\\n")
    yield "zephyr", turns % ("<|user|>\\n{{m.content + eos_token}}", "<|assistant|>\\n")
    yield "unknown", turns % ("### {{m.role}}: {{m.content}}", "### Answer:")
    yield "empty", ""


def files():
    w = Weights().add("encoder.0", 2, 3, 3).add("encoder.1", 2, 3, 3).add("cross", 1, 2, 2, 3)
    yield "weights", b"w" + w.safetensors()
    yield "weights_half", b"w" + w.safetensors("F16")
    yield "interactions", b"iuser\titem\ttime\nann\ttea\t3\nann\tmilk\t1.5\nbob\ttea\t-2e3\n"
    yield "interactions_dates", b"iitem\tuser\ttime\nx\ta\t2024-05-31\ny\ta\t2024-05-30T08:15:00Z\n"
    yield "no_header", b"nann tea\nann milk\nbob tea\n"
    yield "no_header_times", b"n1 2 3\n1 3 2\n"
    yield "training_log", (b'l{"update":1,"epoch":1,"loss":2.5,"nll":2.25,"rate":0.001,"gradient_norm":1.5,'
                           b'"tokens":64,"seconds":0.5}\n{"update":1,"loss":2')
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 3), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    yield "clip", b"c\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(range(18))
    corpus = pathlib.Path(__file__).parent / "corpus"
    for name in ("llama2c/tied", "language_model/tokenizer", "language_model/small"):
        yield "model_" + name.replace("/", "_"), b"m" + (corpus / name).read_bytes()
    yield "model_gpt2", b"m" + gguf("gpt2")
    yield "model_llama", b"m" + gguf("llama")


def write(folder, seeds):
    corpus = pathlib.Path(__file__).parent / "corpus" / folder
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in seeds:
        (corpus / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def bundled(files_of_folder):
    return b"\n".join(b"%%%% " + name.encode() + b"\n" + (data if isinstance(data, bytes) else data.encode())
                      for name, data in files_of_folder.items())


def main():
    write("model_folder", ((name, bundled(files_of_folder)) for name, files_of_folder in folders()))
    write("chat_template", chat_templates())
    write("file", files())


if __name__ == "__main__":
    main()
