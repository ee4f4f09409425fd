# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face model generates with regard's attention: one import and one word."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import regard.transformers  # registers attn_implementation="regard"

# A small model with random weights, so that nothing is downloaded. With a real one:
#   model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="regard")
config = LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
    num_attention_heads=8, num_key_value_heads=2, initializer_range=0.3, pad_token_id=0,
    bos_token_id=1, eos_token_id=2)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config, attn_implementation="regard").eval()

# Two prompts of different length, padded on the left as generation wants it.
prompts = dict(input_ids=torch.tensor([[65, 66, 67, 68, 69], [0, 0, 70, 71, 72]]),
               attention_mask=torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]))
ours = model.generate(**prompts, max_new_tokens=12, do_sample=False)
print(ours[:, 5:])

model.set_attn_implementation("eager")
theirs = model.generate(**prompts, max_new_tokens=12, do_sample=False)
print("the same tokens as eager:", torch.equal(ours, theirs))
assert torch.equal(ours, theirs)
