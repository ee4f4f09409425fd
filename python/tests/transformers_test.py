# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="regard" against "eager": small models, the same weights."""

import copy
import functools
import os

import support

os.environ["HF_HUB_OFFLINE"] = "1"
if __name__ == "__main__":
    support.main(__file__, needs=["torch", "transformers"])

import pytest
import torch
import transformers
from regard.transformers import VisiblePairs, attention_mask
from regard.transformers import attention_forward as regard_attention
from transformers import masking_utils

VOCAB, PAD, LENGTH = 61, 0, 19
SIZES = dict(vocab_size=VOCAB, pad_token_id=PAD, bos_token_id=1, eos_token_id=None)
BLOCKS = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
PAIRED = dict(SIZES, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
              decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0,
              decoder_start_token_id=1, forced_eos_token_id=None)


def bert():
    return transformers.BertForMaskedLM, transformers.BertConfig(
        **SIZES, **BLOCKS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def albert():
    return transformers.AlbertForMaskedLM, transformers.AlbertConfig(
        **SIZES, **BLOCKS, embedding_size=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)


def llama():
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(
        **SIZES, **BLOCKS, num_key_value_heads=2)


def gpt2():
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(
        **SIZES, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0)


def mistral():
    return transformers.MistralForCausalLM, transformers.MistralConfig(
        **SIZES, **BLOCKS, num_key_value_heads=2, sliding_window=7)


def gemma2():
    return transformers.Gemma2ForCausalLM, transformers.Gemma2Config(
        **SIZES, **BLOCKS, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8,
        sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=30.0,
        layer_types=["sliding_attention", "full_attention"])


def gpt_oss():
    return transformers.GptOssForCausalLM, transformers.GptOssConfig(
        **SIZES, **BLOCKS, num_key_value_heads=2, head_dim=8, sliding_window=6,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def t5():
    return transformers.T5ForConditionalGeneration, transformers.T5Config(
        **SIZES, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=16,
        decoder_start_token_id=1)


def bart():
    return transformers.BartForConditionalGeneration, transformers.BartConfig(
        **PAIRED, max_position_embeddings=64)


def marian():
    return transformers.MarianMTModel, transformers.MarianConfig(
        **PAIRED, max_position_embeddings=64, decoder_vocab_size=VOCAB)


def whisper():
    return transformers.WhisperForConditionalGeneration, transformers.WhisperConfig(
        **PAIRED, num_mel_bins=8, max_source_positions=20, max_target_positions=64,
        begin_suppress_tokens=None, suppress_tokens=None)


ENCODERS = [bert, albert]
DECODERS = [llama, gpt2, mistral, gemma2, gpt_oss]
PAIRS = [t5, bart, marian, whisper]
ALL = ENCODERS + DECODERS + PAIRS


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small models lose more to waking threads than they win."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def models(make, **changes):
    """One model twice, by eager and by regard. Weights are large enough that attention matters."""
    eager, ours = map(copy.deepcopy, _models(make, tuple(changes.items())))
    return eager, ours


@functools.lru_cache(maxsize=None)
def _models(make, changes):
    kind, config = make()
    for name, value in changes:
        setattr(config, name, value)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    eager = kind(config).eval()
    with torch.no_grad():
        for name, weight in eager.named_parameters():
            if weight.dim() >= 2:
                relative = "relative_attention_bias" in name
                weight.normal_(0.0, 1.0 if relative else weight.shape[-1] ** -0.5)
            elif "sinks" in name or "bias" in name:
                weight.normal_()
    ours = copy.deepcopy(eager)
    ours.set_attn_implementation("regard")
    assert ours.config._attn_implementation == "regard"
    return eager, ours


def padding(side, batch=3):
    """[batch, LENGTH] of ones, with a few zeros on that side: fewer than a window is wide."""
    mask = torch.ones(batch, LENGTH, dtype=torch.long)
    for row, count in enumerate((0, 3, 5)[:batch]):
        if count and side == "right":
            mask[row, -count:] = 0
        elif count and side == "left":
            mask[row, :count] = 0
    return mask


def tokens(seed, batch=3, length=LENGTH):
    return torch.randint(3, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def inputs(make, side):
    """Keywords of a call, and which of its logits belong to real tokens."""
    if make is whisper:
        sound = torch.randn(3, 8, 40, generator=torch.Generator().manual_seed(2))
        return dict(input_features=sound, decoder_input_ids=tokens(1, length=7)), slice(None)
    mask = padding(side)
    given = dict(input_ids=tokens(0), attention_mask=mask)
    if side == "none":
        del given["attention_mask"]
    if make in PAIRS:
        return dict(given, decoder_input_ids=tokens(1, length=7)), slice(None)
    return given, mask.bool()


def assert_near(ours, eager, tolerance=2e-5):
    torch.testing.assert_close(ours, eager, atol=tolerance, rtol=0)


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("make", ALL)
def test_logits_are_those_of_eager(make, side):
    eager, ours = models(make)
    given, real = inputs(make, side)
    with torch.no_grad():
        expected, got = eager(**given).logits, ours(**given).logits
    assert expected[real].std() > 0.1
    assert_near(got[real], expected[real])


# What the others do not have: values narrower than keys, windows in both directions, chunks,
# pictures, a cross-attention in a model that is no pair.
MORE = {
    "DeepseekV3ForCausalLM": dict(
        q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12,
        n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        moe_intermediate_size=16, first_k_dense_replace=1, num_key_value_heads=4),
    "ModernBertForMaskedLM": dict(local_attention=6, global_attn_every_n_layers=2),
    "Llama4ForCausalLM": dict(num_key_value_heads=2, head_dim=8, intermediate_size_mlp=32,
                              num_local_experts=2, attention_chunk_size=6),
    "ViTForImageClassification": dict(image_size=32, patch_size=8),
    "BertLMHeadModel": dict(is_decoder=True, add_cross_attention=True),
}


@pytest.mark.parametrize("name", MORE)
def test_logits_of_more_kinds_of_models_are_those_of_eager(name):
    config = {"Llama4ForCausalLM": "Llama4TextConfig", "BertLMHeadModel": "BertConfig"}.get(
        name, name.split("For")[0] + "Config")

    def make():
        sizes = {} if name.startswith("ViT") else SIZES
        return getattr(transformers, name), getattr(transformers, config)(
            **sizes, **BLOCKS, **MORE[name])

    eager, ours = models(make)
    given, real = inputs(llama, "left")
    if name.startswith("ViT"):
        given, real = dict(pixel_values=torch.randn(2, 3, 32, 32)), slice(None)
    if name.startswith("BertLM"):
        given.update(encoder_hidden_states=torch.randn(3, LENGTH, 32),
                     encoder_attention_mask=padding("right"))
    with torch.no_grad():
        assert_near(ours(**given).logits[real], eager(**given).logits[real])


def _hidden_rows(weights, mask):
    """Rows of padded queries are not compared: eager spreads them over what it hides."""
    rows = mask[:, None, :, None].bool() if mask is not None else torch.ones(1, dtype=bool)
    return torch.where(rows, weights, 0.0)


@pytest.mark.parametrize("make", ALL)
def test_output_attentions_are_those_of_eager(make):
    eager, ours = models(make)
    given, _ = inputs(make, "left")
    with torch.no_grad():
        expected = eager(**given, output_attentions=True)
        got = ours(**given, output_attentions=True)
    kinds = ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    for kind in kinds if make in PAIRS else ["attentions"]:
        assert len(expected[kind]) == len(got[kind]) == 2
        mask = None if kind in kinds[1:] or make is whisper else padding("left")
        for theirs, mine in zip(expected[kind], got[kind]):
            assert_near(_hidden_rows(mine, mask), _hidden_rows(theirs, mask), 1e-5)


def test_weights_are_not_computed_unless_asked_for():
    _, ours = models(llama)
    given, _ = inputs(llama, "none")
    assert not ours(**given).attentions


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("make", DECODERS + PAIRS)
def test_greedy_generation_gives_the_tokens_of_eager(make, side, cache):
    eager, ours = models(make)
    given, _ = inputs(make, side)
    given.pop("decoder_input_ids", None)
    # Small models with random weights say one word for ever if they may.
    keywords = dict(given, max_new_tokens=8, min_new_tokens=8, do_sample=False,
                    no_repeat_ngram_size=1, cache_implementation=cache, output_logits=True,
                    return_dict_in_generate=True)
    expected, got = eager.generate(**keywords), ours.generate(**keywords)
    assert torch.equal(got.sequences, expected.sequences)
    for theirs, mine in zip(expected.logits, got.logits):
        assert_near(mine, theirs)


@pytest.mark.parametrize("make", [llama, bart])
def test_beam_search_gives_the_tokens_of_eager(make):
    eager, ours = models(make)
    given, _ = inputs(make, "left")
    given.pop("decoder_input_ids", None)
    keywords = dict(given, max_new_tokens=6, num_beams=3, do_sample=False)
    assert torch.equal(ours.generate(**keywords), eager.generate(**keywords))


def _train(model, given, labels):
    model.train()
    output = model(**given, labels=labels)
    output.loss.backward()
    return output.loss.detach(), {n: p.grad for n, p in model.named_parameters()
                                  if p.grad is not None}


@pytest.mark.parametrize("make", ALL)
def test_loss_and_gradients_are_those_of_eager(make):
    eager, ours = models(make)
    given, _ = inputs(make, "right")
    labels = tokens(3, length=7) if make in PAIRS else tokens(3)
    if make not in PAIRS:
        labels[padding("right") == 0] = -100
    expected_loss, expected = _train(eager, given, labels)
    loss, got = _train(ours, given, labels)
    assert_near(loss, expected_loss)
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_near(got[name], gradient, 2e-5 * max(1.0, float(gradient.abs().max())))


@pytest.mark.parametrize("make", [bert, llama])
def test_autocast_is_that_of_eager(make, monkeypatch):
    """Rotary positions leave queries and keys in float32 there. Masks stay rules."""
    eager, ours = models(make)
    given, _ = inputs(make, "right")
    labels = tokens(3).masked_fill(padding("right") == 0, -100)
    with torch.autocast("cpu", torch.bfloat16):
        expected_loss, expected = _train(eager, given, labels)
        monkeypatch.setattr(masking_utils, "sdpa_mask", lambda *_, **__: pytest.fail("it was made"))
        loss, got = _train(ours, given, labels)
    assert_near(loss, expected_loss, 0.05)
    assert got.keys() == expected.keys()
    all_expected, all_got = (torch.cat([g.flatten() for g in each.values()]) for each in (expected, got))
    assert (all_got - all_expected).norm() < 0.1 * all_expected.norm()


def test_gradients_survive_checkpointing():
    _, ours = models(gemma2)
    given, _ = inputs(gemma2, "right")
    _, expected = _train(copy.deepcopy(ours), given, tokens(3))
    ours.gradient_checkpointing_enable()
    _, got = _train(ours, given, tokens(3))
    assert all(torch.equal(got[name], gradient) for name, gradient in expected.items())


def test_gradients_reach_relative_bias_and_sinks():
    for make, name in ((t5, "relative_attention_bias"), (gpt_oss, "sinks")):
        _, ours = models(make)
        given, _ = inputs(make, "none")
        labels = tokens(3, length=7) if make in PAIRS else tokens(3)
        _, gradients = _train(ours, given, labels)
        assert any(name in key and value.abs().max() > 0 for key, value in gradients.items())


def test_weights_have_a_gradient():
    eager, ours = models(llama)
    given, _ = inputs(llama, "none")
    gradients = []
    for model in (eager, ours):
        weights = model(**given, output_attentions=True).attentions[1]
        (weights ** 2).sum().backward()
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad)
    assert gradients[0].abs().max() > 1e-3
    assert_near(gradients[1], gradients[0])


def test_dropout_is_drawn_from_the_generator_of_torch():
    _, ours = models(llama, attention_dropout=0.5)
    ours.train()
    given, _ = inputs(llama, "none")
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(ours(**given).logits.detach())
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    ours.eval()
    assert_near(ours(**given).logits, models(llama)[0](**given).logits)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    _, ours = models(llama)
    layer = ours.model.layers[0].self_attn
    q, k = torch.randn(2, 1, 4, 8, 8).unbind()
    v = torch.ones(1, 4, 8, 8)
    drawn = [regard_attention(layer, q, k, v, None, dropout=0.25)[0] for _ in range(400)]
    mean = torch.stack(drawn).mean(0)
    assert (mean - 1).abs().max() < 0.2 and drawn[0].std() > 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float(dtype):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 9, 8).to(dtype).unbind()
    sinks, bias = torch.randn(4).to(dtype), torch.randn(1, 4, 9, 9).to(dtype)
    options = dict(softcap=2.0, output_attentions=True)
    got = regard_attention(Layer(), q, k, v, None, s_aux=sinks, position_bias=bias, **options)
    exact = regard_attention(Layer(), q.float(), k.float(), v.float(), None,
                             s_aux=sinks.float(), position_bias=bias.float(), **options)
    for mine, theirs in zip(got, exact):
        assert mine.dtype is dtype
        assert torch.equal(mine, theirs.to(dtype))


def test_packed_sequences_see_only_themselves():
    eager, ours = models(llama)
    ids = tokens(0, batch=1)
    lengths = [5, 8, 6]
    alone = torch.cat([eager(part).logits for part in ids.split(lengths, dim=1)], 1)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    assert_near(ours(ids, position_ids=positions, use_cache=False).logits, alone)
    bounds = torch.tensor([0, 5, 13, 19], dtype=torch.int32)
    packed = dict(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=8, max_length_k=8)
    assert_near(ours(ids, position_ids=positions, **packed).logits, alone)
    q, k, v = torch.randn(3, 1, 4, 19, 8).unbind()
    layer = ours.model.layers[0].self_attn
    both, _ = regard_attention(layer, q, k, v, None, **packed)
    for a, b in ((0, 5), (5, 13), (13, 19)):
        part, _ = regard_attention(layer, q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], None)
        assert torch.equal(both[:, a:b], part)


def test_a_float_mask_of_the_caller_is_added():
    eager, ours = models(llama)
    mask = torch.randn(3, 1, LENGTH, LENGTH).masked_fill(
        torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), torch.finfo(torch.float32).min)
    assert_near(ours(tokens(0), attention_mask=mask).logits,
                eager(tokens(0), attention_mask=mask).logits)


def test_the_bits_do_not_depend_on_the_batch_or_the_padding():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 9, 8).unbind()
    alone, _ = regard_attention(Layer(), q[:1], k[:1], v[:1], None)
    assert torch.equal(regard_attention(Layer(), q, k, v, None)[0][:1], alone)
    for side in ("left", "right"):
        pad = (0, 0, 3, 0) if side == "left" else (0, 0, 0, 3)
        padded = [torch.nn.functional.pad(t, pad, value=7.0) for t in (q, k, v)]
        real = torch.nn.functional.pad(torch.ones(2, 1, 1, 9, dtype=torch.bool), pad[2:])
        mask = real & torch.ones(12, 12, dtype=torch.bool).tril()
        out, _ = regard_attention(Layer(), *padded, mask)
        if side == "right":
            assert torch.equal(out[:1, real[0, 0, 0]], alone)
        else:  # keys at other places are summed in other groups: docs/exactness.md
            torch.testing.assert_close(out[:1, real[0, 0, 0]], alone, rtol=1e-6, atol=1e-6)


class Layer(torch.nn.Module):
    is_causal = True


def visible_pairs(mask, q_len, kv_len):
    """What a query may see, by the weights that it gives."""
    batch = mask.shape[0]
    q, k = torch.zeros(batch, 1, q_len, 8), torch.zeros(batch, 1, kv_len, 8)
    return regard_attention(Layer(), q, k, k, mask, output_attentions=True)[1] > 0


@pytest.mark.parametrize("rule", [
    masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function,
    masking_utils.sliding_window_causal_mask_function(4),
    masking_utils.sliding_window_bidirectional_mask_function(2)],
    ids=["causal", "bidirectional", "window", "window in both directions"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("q_len, kv_len, q_offset, kv_offset", [
    (19, 19, 0, 0), (1, 13, 12, 0), (3, 13, 10, 0), (3, 6, 16, 13), (2, 9, 0, 0)])
def test_masks_are_those_of_transformers(rule, side, q_len, kv_len, q_offset, kv_offset):
    given = dict(batch_size=3, q_length=q_len, kv_length=kv_len, q_offset=q_offset,
                 kv_offset=kv_offset, mask_function=rule)
    if side != "none":
        given["attention_mask"] = padding(side).bool()
    expected = masking_utils.sdpa_mask(**given, allow_is_causal_skip=False)
    mask = attention_mask(**given, allow_is_bidirectional_skip=True)
    assert isinstance(mask, VisiblePairs) and mask.shape == expected.shape
    assert torch.equal(visible_pairs(mask, q_len, kv_len), expected)
    assert torch.equal(mask.dense(), expected)


def test_without_a_mask_causal_is_as_the_caches_need_it():
    """A prompt in a static cache starts at key 0, and what is after it is empty."""
    def visible(q_len, kv_len, **keywords):
        q, k = torch.zeros(1, 1, q_len, 8), torch.zeros(1, 1, kv_len, 8)
        return (regard_attention(Layer(), q, k, k, None, output_attentions=True, **keywords)[1]
                > 0)[0, 0]

    causal = torch.ones(4, 9, dtype=torch.bool).tril()
    assert torch.equal(visible(4, 9), causal)
    assert torch.equal(visible(4, 9, sliding_window=2), causal.triu(-1))
    assert visible(4, 9, is_causal=False).all()
    assert visible(1, 9).all()
    assert visible(1, 9, sliding_window=3).tolist() == [[False] * 6 + [True] * 3]


def test_a_mask_is_an_ordinary_tensor_to_who_looks_at_it():
    mask = attention_mask(2, 3, 5, q_offset=2)
    expected = torch.ones(3, 5, dtype=torch.bool).tril(2)
    assert mask.dtype is torch.bool and mask.dim() == 4 and mask.shape == (2, 1, 3, 5)
    assert repr(mask) == "VisiblePairs([2, 1, 3, 5], [('causal', 2)])"
    assert torch.equal(mask[0, 0, 1:], expected[1:])
    assert torch.equal(torch.where(mask, 0.0, -1.0)[1, 0], expected.float() - 1)
    assert type(mask.clone()) is type(~mask) is torch.Tensor


def test_what_is_written_to_a_mask_counts():
    mask = attention_mask(1, 3, 5)
    expected = torch.ones(3, 5, dtype=torch.bool).tril()
    assert torch.equal(visible_pairs(mask, 3, 5)[0, 0], expected)
    mask[..., 4] = True
    expected[:, 4] = True
    assert torch.equal(mask[0, 0], expected)
    assert torch.equal(visible_pairs(mask, 3, 5)[0, 0], expected)


def test_rules_that_have_no_name_here_become_a_tensor():
    chunks = masking_utils.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long))
    for rule in (chunks, lambda batch, head, query, key: key <= query):
        mask = attention_mask(1, 9, 9, mask_function=rule, allow_is_causal_skip=False)
        assert type(mask) is torch.Tensor
        assert torch.equal(mask, masking_utils.sdpa_mask(1, 9, 9, mask_function=rule,
                                                         allow_is_causal_skip=False))


@pytest.mark.parametrize("make", [bert, llama, mistral, gemma2, t5])
def test_no_model_makes_a_mask_of_all_pairs(make, monkeypatch):
    _, ours = models(make)
    given, _ = inputs(make, "left")
    monkeypatch.setattr(VisiblePairs, "dense", lambda self: pytest.fail("it was looked at"))
    monkeypatch.setattr(masking_utils, "sdpa_mask", lambda *_, **__: pytest.fail("it was made"))
    with torch.no_grad():
        ours(**given)
        if make not in ENCODERS:
            given.pop("decoder_input_ids", None)
            ours.generate(**given, max_new_tokens=2, do_sample=False)


def test_a_mask_for_other_sizes_is_not_used_in_part():
    q = torch.zeros(1, 1, 3, 8)
    with pytest.raises(ValueError, match="mask"):
        regard_attention(Layer(), q, q, q, attention_mask(1, 3, 5, q_offset=2))


def test_a_compiled_model_gives_the_same():
    _, ours = models(gemma2)
    given, _ = inputs(gemma2, "right")
    with torch.no_grad():
        expected = ours(**given, use_cache=False).logits
        graph = torch.compile(ours, backend="eager", fullgraph=True)
        compiled = graph(**given, use_cache=False).logits
    assert_near(compiled, expected, 1e-6)


def test_a_keyword_that_is_not_known_is_refused():
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError) as refusal:
        regard_attention(Layer(), q, q, q, None, indices=q, block_indices=q, nothing=None)
    assert str(refusal.value) == (
        "regard.transformers: 'Layer' hands over block_indices, indices, which regard does not "
        "know; use attn_implementation='eager' for this model")


def test_masks_that_make_no_sense_are_refused():
    q = torch.zeros(2, 2, 3, 4)
    with pytest.raises(ValueError, match=r"attention_mask must be \[batch or 1, heads or 1, q_len "
                                         r"or 1, kv_len\]; it is \[2, 3\]"):
        regard_attention(Layer(), q, q, q, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(TypeError, match="attention_mask must be bool or a float type; it is "
                                        "torch.int64"):
        regard_attention(Layer(), q, q, q, torch.ones(2, 1, 3, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="sliding_window in both directions needs an "
                                         "attention_mask; sliding_window is 2, there are 3 keys"):
        regard_attention(Layer(), q, q, q, None, is_causal=False, sliding_window=2)
    bounds = torch.tensor([0, 1, 3])
    with pytest.raises(ValueError, match="cu_seq_lens_q needs a batch of 1, in which the sequences "
                                         r"are packed; query is \[2, 2, 3, 4\]"):
        regard_attention(Layer(), q, q, q, None, cu_seq_lens_q=bounds)
    with pytest.raises(ValueError, match="packed sequences that are causal must have the same"):
        regard_attention(Layer(), q[:1], q[:1], q[:1], None, cu_seq_lens_q=bounds,
                         cu_seq_lens_k=torch.tensor([0, 2, 3]))
