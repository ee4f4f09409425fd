# SPDX-License-Identifier: Apache-2.0
"""A GGUF file of the architecture llama as a model of transformers, in float32, its weights dequantised by gguf."""

import gguf
import numpy as np
import torch
import transformers

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHERS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
          "output.weight": "lm_head.weight"}


def hugging_face_name(name):
    if name in OTHERS:
        return OTHERS[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def load(path):
    reader = gguf.GGUFReader(path)

    def setting(name):
        return reader.fields[f"llama.{name}"].contents()

    heads, kv_heads = setting("attention.head_count"), setting("attention.head_count_kv")
    weights = {}
    for tensor in reader.tensors:
        values = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        part = tensor.name.split(".")[-2]
        if part in ("attn_q", "attn_k"):  # neighbours become halves again
            count = heads if part == "attn_q" else kv_heads
            values = values.reshape(count, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(values)
    vocab, width = weights["model.embed_tokens.weight"].shape
    tied = "lm_head.weight" not in weights
    if tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=width, intermediate_size=setting("feed_forward_length"),
        num_hidden_layers=setting("block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=setting("context_length"), rms_norm_eps=setting("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": setting("rope.freq_base")}, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(weights, assign=True)
    if tied:
        model.tie_weights()
    # What is computed and not loaded.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    return model.eval()
