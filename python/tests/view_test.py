# SPDX-License-Identifier: Apache-2.0
"""regard.view: the page holds the weights that were given, in every form they come in."""

import base64
import doctest
import hashlib
import html
import json
import os
import re

import support

os.environ["HF_HUB_OFFLINE"] = "1"
if __name__ == "__main__":
    support.main(__file__)

import numpy as np
import pytest
import regard


def softmax(*shape, causal=False):
    scores = 2 * np.random.default_rng(7).standard_normal(shape)
    if causal:
        scores = np.where(np.tril(np.ones(shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def header_of(page):
    return json.loads(re.search(r'id="regard-trace">(.*?)</script>', page, re.S).group(1))


def block_of(page, section, layer, head):
    """The weights of one head; None where the page does not hold them."""
    found = re.search(rf'id="regard-block-{section}-{layer}-{head}">(.*?)</script>', page)
    if found is None:
        return None
    trace = header_of(page)
    section = trace["sections"][section]
    shape = [len(trace["axes"][section[side]]["tokens"]) for side in ("queries", "keys")]
    codes = np.frombuffer(base64.b64decode(found.group(1)), "<u2")
    return codes.reshape(shape) / 65535


def assert_holds(page, section, weights):
    for layer, heads in enumerate(weights):
        for head, expected in enumerate(heads):
            assert np.abs(block_of(page, section, layer, head) - np.asarray(expected)).max() < 1e-5


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_arrays_of_any_rank_are_layers_and_heads(rank):
    weights = softmax(*(2, 3, 5, 5)[4 - rank:])
    page = regard.view(weights, list("abcde")).html
    full = weights.reshape((1,) * (4 - rank) + weights.shape)
    trace = header_of(page)
    assert [a["tokens"] for a in trace["axes"]] == [list("abcde")]
    assert (trace["sections"][0]["layers"], trace["sections"][0]["heads"]) == full.shape[:2]
    assert_holds(page, 0, full)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types_come_as_float(dtype):
    weights = softmax(1, 2, 4, 4).astype(dtype)
    assert_holds(regard.view(weights).html, 0, weights.astype(np.float32))


def test_statistics_are_those_of_the_definition():
    weights = softmax(1, 1, 6, 6, causal=True)
    section = header_of(regard.view(weights).html)["sections"][0]
    w = weights[0, 0].astype(np.float64)
    found = section["statistics"][0][0]
    query, key = np.indices(w.shape)
    entropy = -(w * np.log(np.where(w > 0, w, 1))).sum(-1).mean()
    assert found["entropy"] == pytest.approx(entropy, abs=1e-5)
    assert found["distance"] == pytest.approx((w * abs(query - key)).sum(-1).mean(), abs=1e-5)
    assert found["first"] == pytest.approx(w[:, 0].mean(), abs=1e-6)
    assert found["same"] == pytest.approx(np.diag(w).mean(), abs=1e-6)
    assert section["causal"] is True


def test_queries_and_keys_may_be_different_texts():
    weights = softmax(2, 3, 4, 6)
    trace = header_of(regard.view(weights, list("abcdef"), list("wxyz")).html)
    section = trace["sections"][0]
    assert trace["axes"][section["queries"]]["tokens"] == list("wxyz")
    assert trace["axes"][section["keys"]]["tokens"] == list("abcdef")
    assert section["rollout"] is False
    # Numbers, where nobody names them.
    numbered = header_of(regard.view(weights).html)
    assert numbered["axes"][section["queries"]]["tokens"] == ["0", "1", "2", "3"]


def test_a_model_with_a_decoder_has_three_sections():
    parts = dict(encoder=softmax(2, 2, 5, 5), decoder=softmax(3, 2, 4, 4, causal=True),
                 cross=softmax(3, 2, 4, 5))
    for page in (regard.view(tokens=list("abcde"), target_tokens=list("wxyz"), **parts).html,
                 regard.view(parts).html):
        sections = header_of(page)["sections"]
        assert [s["name"] for s in sections] == ["encoder", "decoder", "cross"]
        assert [s["causal"] for s in sections] == [False, True, False]
        for number, weights in enumerate(parts.values()):
            assert_holds(page, number, weights)


def test_layers_and_heads_can_be_chosen():
    page = regard.view(softmax(3, 2, 4, 4), layers=[2], heads=[1]).html
    assert block_of(page, 0, 2, 1) is not None
    assert block_of(page, 0, 0, 1) is None and block_of(page, 0, 2, 0) is None


def test_it_opens_where_it_is_told():
    weights = {"encoder": softmax(2, 3, 4, 4), "cross": softmax(3, 3, 2, 4)}
    assert header_of(regard.view(weights).html)["start"] == {}
    start = header_of(regard.view(weights, section="cross", layer=2, head=np.int64(1)).html)["start"]
    assert start == {"section": 1, "layer": 2, "head": 1}
    # What is not named is the page's choice.
    assert header_of(regard.view(weights, layer=2).html)["start"] == {"layer": 2}


def test_the_most_telling_head_is_the_one_whose_rows_differ():
    length = 8
    heads = np.zeros((1, 4, length, length), np.float32)
    heads[0, 0] = 1 / length                 # everywhere
    heads[0, 1, :, 0] = 1                    # the first token
    heads[0, 2] = np.eye(length)             # itself
    heads[0, 3] = np.eye(length)[::-1]       # the other end
    statistics = header_of(regard.view(heads).html)["sections"][0]["statistics"][0]
    telling = [one["telling"] for one in statistics]
    assert telling[:3] == pytest.approx([0, 0, 0], abs=1e-6)
    assert telling[3] == pytest.approx(6 / 8, abs=1e-6)


def besides(page):
    """The header and the weights of what stands beside."""
    assert 'id="regard-beside-trace"' in page
    return re.sub(r'id="regard-(?!beside-)', 'id="first-', page).replace("regard-beside-", "regard-")


def test_two_texts_stand_side_by_side():
    first, second = softmax(2, 3, 4, 4), softmax(2, 3, 5, 5)
    other = regard.view(second, ["\u2581it", "\u2581was", "\u2581wi", "de", "</s>"])
    view = regard.view(first, ["[CLS]", "it", "sleep", "##s"], beside=other, layer=1, head=2)
    assert_holds(view.html, 0, first)
    assert header_of(view.html)["source"] == "it sleeps"
    assert header_of(view.html)["start"] == {"layer": 1, "head": 2}
    page = besides(view.html)
    assert_holds(page, 0, second)
    assert header_of(page)["source"] == "it was wide"
    assert 'id="regard-beside-' not in other.html  # which is what it was
    named = regard.view(first, list("abcd"), source="first", beside=regard.view(first, source="second"))
    assert header_of(named.html)["source"] == "first"
    assert header_of(besides(named.html))["source"] == "second"


def test_what_stands_beside_must_be_of_the_same_model():
    first = softmax(2, 3, 4, 4)
    with pytest.raises(ValueError, match="the first has attention 2 x 3, the other attention 1 x 3"):
        regard.view(first, beside=regard.view(first[:1]))
    with pytest.raises(TypeError, match="beside must be what regard.view gave for another text; ndarray came"):
        regard.view(first, beside=first)


def test_the_notebook_gets_the_page_in_a_frame_of_its_own():
    view = regard.view(softmax(1, 1, 3, 3), ["<b>", "</script>", "\u732b"])
    shown = view._repr_html_()
    frame = re.fullmatch(r'<iframe sandbox="([^"]*)" title="regard" style="[^"]*" '
                         r'srcdoc="([^"]*)"></iframe>', shown, re.S)
    assert frame.group(1) == "allow-scripts allow-downloads"
    assert html.unescape(frame.group(2)) == view.html
    assert header_of(view.html)["axes"][0]["tokens"] == ["<b>", "</script>", "\u732b"]
    assert "MB" in repr(view)


def test_the_policy_lets_the_pages_own_script_run_and_nothing_else():
    page = regard.view(softmax(1, 1, 3, 3)).html
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page).group(1)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_save_writes_the_page(tmp_path):
    view = regard.view(softmax(2, 2), model="m", note="n", source="a b")
    view.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().decode("utf-8") == view.html
    trace = header_of(view.html)
    assert trace["model"] == {"name": "m", "note": "n"} and trace["source"] == "a b"


def tiny(kind, **options):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    sizes = dict(vocab_size=61, pad_token_id=0, eos_token_id=2, attn_implementation="eager")
    if kind == "bert":
        config = transformers.BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                         num_attention_heads=4, **sizes)
        return torch, transformers.BertModel(config).eval()
    config = transformers.MarianConfig(
        d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        decoder_start_token_id=1, **sizes)
    return torch, transformers.MarianMTModel(config).eval()


def test_what_a_hugging_face_encoder_gives_is_taken_as_it_is():
    torch, model = tiny("bert")
    output = model(input_ids=torch.tensor([[5, 6, 7, 2]]), output_attentions=True)
    weights = [layer[0].detach().numpy() for layer in output.attentions]
    for given in (output, output.attentions):
        page = regard.view(given, ["a", "b", "c", "</s>"]).html
        assert header_of(page)["sections"][0]["name"] == "attention"
        assert_holds(page, 0, weights)
    batch = model(input_ids=torch.tensor([[5, 6], [7, 2]]), output_attentions=True)
    assert_holds(regard.view(batch, batch=1).html, 0,
                 [layer[1].detach().numpy() for layer in batch.attentions])
    with pytest.raises(ValueError, match="2 sequences in the batch; choose one, such as batch=0"):
        regard.view(batch)


def test_what_a_hugging_face_translator_gives_is_taken_as_it_is():
    torch, model = tiny("marian")
    output = model(input_ids=torch.tensor([[5, 6, 7, 2]]), output_attentions=True,
                   decoder_input_ids=torch.tensor([[1, 8, 9]]))
    page = regard.view(output, ["a", "b", "c", "</s>"], ["<s>", "x", "y"]).html
    assert [s["name"] for s in header_of(page)["sections"]] == ["encoder", "decoder", "cross"]
    for number, name in enumerate(["encoder", "decoder", "cross"]):
        layers = getattr(output, f"{name}_attentions")
        assert_holds(page, number, [layer[0].detach().numpy() for layer in layers])
    with pytest.raises(ValueError, match="the output has no attentions; call the model with "
                                         "output_attentions=True"):
        regard.view(model(input_ids=torch.tensor([[5, 2]]),
                          decoder_input_ids=torch.tensor([[1]])))


def test_half_precision_of_torch_is_read():
    torch = pytest.importorskip("torch")
    weights = torch.from_numpy(softmax(1, 1, 4, 4)).to(torch.bfloat16).requires_grad_()
    assert_holds(regard.view(weights).html, 0, weights.detach().float().numpy())


@pytest.mark.parametrize("arguments, error, message", [
    (dict(), ValueError, "there must be weights"),
    (dict(weights=np.ones(3)), ValueError, r"weights must be .*those of 'attention' are \[3\]"),
    (dict(weights=(None, None)), ValueError, "a layer of 'attention' is None"),
    (dict(weights=((np.ones((1, 1)),),)), TypeError, "one for each step"),
    (dict(weights=[np.ones((2, 2))]), ValueError, r"one of 'attention' is \[2, 2\]"),
    (dict(weights=np.array([["a"]])), TypeError, "weights must be numbers"),
    (dict(weights=np.eye(2), tokens="ab"), TypeError, "one for each token; a string came"),
    (dict(weights=np.eye(2), tokens=[1, 2]), TypeError, "tokens must be strings; int came"),
    (dict(weights=np.eye(2), tokens=["a"]), ValueError,
     r"'attention' must have 1 x 1 queries and keys, as there are tokens; it is \[1, 1, 2, 2\]"),
    (dict(weights=2 * np.eye(2)), ValueError, "weights must be numbers from 0 to 1; .* key 0: 2"),
    (dict(weights=np.eye(2), cross=np.eye(2)), TypeError, "not both"),
    (dict(weights=np.eye(2), layers=[1]), ValueError, r"there are layers 0 \.\. 0; got 1"),
    (dict(weights=np.eye(2), layer=1), ValueError,
     r"'attention' has layers 0 \.\. 0 and heads 0 \.\. 0; got layer 1"),
    (dict(weights=np.eye(2), head=-1), ValueError, "got head -1"),
    (dict(weights=np.eye(2), layer="0"), TypeError, "layer must be a whole number; str came"),
    (dict(weights=np.eye(2), section="cross"), ValueError,
     "section must be one of 'attention'; got 'cross'"),
    (dict(weights=(np.ones((1, 1, 1, 1)),), batch=1), ValueError, "batch must be from 0 to 0; got 1"),
    (dict(weights=np.eye(2), batch=0), ValueError,
     r"batch is for layers that are \[batch, heads, queries, keys\]; 'attention' holds \[2, 2\]"),
    (dict(weights=[np.ones((1, 1, 1))], batch=1), ValueError, r"'attention' holds \[1, 1, 1\]"),
    (dict(weights=()), ValueError, "'attention' must have a layer"),
    (dict(weights={"a": []}), ValueError, "'a' must have a layer"),
    (dict(weights=np.zeros((0, 2, 3, 3))), ValueError, "'attention' must have a layer"),
    (dict(weights={"a": np.eye(2), "b": np.eye(3)}), ValueError, "'b' must have 2 x 2"),
])
def test_what_cannot_be_shown_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        regard.view(**arguments)


def test_a_page_that_would_be_too_large_says_what_to_choose():
    with pytest.raises(ValueError, match=r"the page must have at most 100 MB; it would have 11\d: "
                                         r"choose fewer layers or heads"):
        regard.view(np.zeros((2, 14, 1200, 1200), np.float32))


def test_the_example_of_the_documentation_runs():
    examples = doctest.DocTestFinder().find(regard.view, "view", globs={})
    assert sum(doctest.DocTestRunner().run(example).attempted for example in examples) == 4
    assert doctest.DocTestRunner().run(examples[0]).failed == 0
