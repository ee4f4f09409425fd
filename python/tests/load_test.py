# SPDX-License-Identifier: Apache-2.0
"""regard.load: language models and translators in Python, with the texts of transformers and of the program."""

import os
import pathlib
import subprocess
import sys

import support

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path[:0] = [str(support.SOURCE / "tests" / part) for part in ("support", "tasks")]
if __name__ == "__main__":
    support.main(__file__, needs=["torch", "transformers"])

import chat_test
import decoders_test
import hugging_face_translator_test as translators
import pytest
import regard
import torch

PROMPTS = ["The cat", "One day, a", "x"]
BUNDLED = support.SOURCE / "models" / "en-zh"
MODELS = pathlib.Path(os.environ.get("REGARD_MODELS", "~/.cache/regard-models")).expanduser()


def run_program(*arguments):
    program = os.environ.get("REGARD_PROGRAM")
    if not program:
        pytest.skip("the program is not built")
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True).stdout.decode()


def from_cache(pattern):
    found = sorted(MODELS.glob(pattern))
    if not found:
        pytest.skip(f"{pattern} is not in {MODELS}")
    return found[0]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """Folder, model and tokenizer of transformers."""
    path = tmp_path_factory.mktemp("decoder")
    model = decoders_test.random_model(decoders_test.FAMILIES["smollm"])
    tokenizer = decoders_test.save(model, path)
    return path, model, tokenizer


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    path = tmp_path_factory.mktemp("marian")
    translators.save(translators.make_model("marian"), path)
    return path


def greedy(model, tokenizer, prompt, count):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        written = model.generate(ids, do_sample=False, max_new_tokens=count)
    return tokenizer.decode(written[0, ids.shape[1]:], skip_special_tokens=True)


def test_greedy_texts_are_those_of_transformers(decoder):
    folder, theirs, tokenizer = decoder
    model = regard.load(folder)
    assert isinstance(model, regard.LanguageModel) and model.config["layers"] == 3 and model.config["context"] == 128
    expected = [greedy(theirs, tokenizer, prompt, 20) for prompt in PROMPTS]
    assert len(set(expected)) == len(PROMPTS) and all(expected)
    assert model.generate(PROMPTS, max_tokens=20) == expected
    for threads in (1, 2):
        assert [model.generate(prompt, max_tokens=20, threads=threads) for prompt in PROMPTS] == expected
    assert model.generate([]) == []
    assert model.generate("x", max_tokens=0) == ""


def test_drawn_texts_are_those_of_the_program(decoder):
    folder = decoder[0]
    for weights in ("float32", "bfloat16", "int8", "int4", "as-stored"):
        model = regard.load(folder, weights=weights)
        drawn = {}
        for seed in (1, 2):
            drawn[seed] = model.generate(PROMPTS[0], max_tokens=30, temperature=0.9, top_k=40, top_p=0.95, seed=seed)
            printed = run_program("generate", "--model", folder, "--prompt", PROMPTS[0], "--max-tokens", 30,
                                  "--temperature", 0.9, "--top-k", 40, "--top-p", 0.95, "--seed", seed,
                                  "--weights", weights)
            assert printed == PROMPTS[0] + drawn[seed] + "\n"
        assert drawn[1] != drawn[2]


def test_a_gguf_file_is_a_language_model():
    path = from_cache("SmolLM2-135M-Instruct/*.gguf")
    model = regard.load(path)  # with the integers of the file, as the program
    text = model.generate("The capital of France is", max_tokens=16)
    assert "Paris" in text
    assert run_program("generate", "--model", path, "--prompt", "The capital of France is", "--max-tokens", 16) == "The capital of France is" + text + "\n"
    messages = [{"role": "user", "content": "Say hello."}]
    answer = model.chat(messages, max_tokens=12)
    assert answer and model.chat(messages, max_tokens=12, threads=1) == answer


@pytest.fixture(scope="module")
def chats():
    """A folder with a chat template, and what transformers answers."""
    made = chat_test.Chats()
    made.setUp()
    yield made
    made.doCleanups()


def test_answers_are_those_of_transformers(chats):
    model = regard.load(chats.folder)
    lines = ["Hi", "And you?"]
    for system in (None, "Be kind."):
        first, second = chats.answers(lines, system)
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": lines[0]})
        assert model.chat(messages, max_tokens=12) == first
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": lines[1]}]
        assert model.chat(messages, max_tokens=12, threads=1) == second


def test_translations_of_the_bundled_model():
    model = regard.load(BUNDLED)
    assert isinstance(model, regard.Translator) and model.config["both_directions"]
    assert repr(model).startswith("<regard.Translator: en <-> zh, ")
    texts = ["Thank you.", "\u8c22\u8c22\u3002", "", "Where is the station?\nI am at home. It is late."]
    found = model.translate(texts)
    assert "\u8c22" in found[0] and found[2] == "" and found[3].count("\n") == 1
    assert found[1].isascii() and "hank" in found[1]
    assert [model.translate(text, threads=1) for text in texts] == found
    assert model.translate(texts[0], "zh") == model.translate(texts[0], to="zh") == found[0]
    for beams in (1, 5):
        lines = run_program("translate", "--model", BUNDLED, "--beam", beams, texts[0], texts[1], "It is late.")
        assert lines.splitlines() == model.translate([texts[0], texts[1], "It is late."], beams=beams)
    small = regard.load(BUNDLED, weights="int8")
    assert run_program("translate", "--weights", "int8", texts[0], "It is late.").splitlines() == \
        small.translate([texts[0], "It is late."])
    told = run_program("translate", "--model", BUNDLED, "--to", "zh", texts[1])
    assert told == model.translate(texts[1], to="zh") + "\n"


def test_translations_of_a_hugging_face_folder(marian):
    model = regard.load(marian)
    assert isinstance(model, regard.Translator)
    lines = translators.sentences()
    found = model.translate(lines, beams=4)
    assert len(set(found)) > len(lines) // 5
    assert run_program("translate", "--model", marian, "--beam", 4, *lines).splitlines() == found


def test_a_folder_of_ctranslate2_is_a_translator():
    path = from_cache("opus-mt-zh-en")
    model = regard.load(path)
    text = "\u6211\u559c\u6b22\u732b\u3002"
    assert "cat" in model.translate(text)
    assert run_program("translate", "--model", path, text) == model.translate(text) + "\n"


def test_refuses_what_it_cannot_do(decoder, tmp_path):
    with pytest.raises(OSError, match="is not there; a model is a folder or a file in GGUF"):
        regard.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has neither config.json nor modules.json nor the model.bin of CTranslate2"):
        regard.load(tmp_path)
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match=r"config.json.* 'vit'; read are encoders \(bert, .*llama.*marian"):
        regard.load(tmp_path)
    config.write_text("{")
    with pytest.raises(ValueError, match="config.json"):
        regard.load(tmp_path)
    with pytest.raises(ValueError, match="kind is 'regard classifier'"):
        regard.load(support.SOURCE / "models" / "reviews")
    (tmp_path / "a.txt").write_text("This is no model, but long enough to be one.")
    with pytest.raises(ValueError, match="neither GGUF nor a model of llama2.c"):
        regard.load(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="weights must be 'float32', .*; got 'int3'"):
        regard.load(decoder[0], weights="int3")
    with pytest.raises(ValueError, match="as-stored is for folders that regard quantize wrote"):
        regard.load(BUNDLED, weights="as-stored")
    with pytest.raises(ValueError, match="tokenizer goes with a language model; .* holds a translator"):
        regard.load(BUNDLED, tokenizer=BUNDLED)


def test_refuses_options_that_make_no_sense(decoder, chats):
    model = regard.load(decoder[0])
    for options, message in [(dict(max_tokens=-1), "max_tokens must not be negative"),
                             (dict(temperature=-1.0), "temperature"), (dict(temperature=1.0, top_p=0.0), "top_p"),
                             (dict(top_k=5), "a temperature above 0"), (dict(temperature=1.0, top_k=-1), "top_k"),
                             (dict(seed=-1), "seed must be 0 to"), (dict(threads=0), "threads must be at least 1"),
                             (dict(temperature=float("nan")), "temperature")]:
        with pytest.raises(ValueError, match=message):
            model.generate("x", **options)
    with pytest.raises(TypeError):
        model.generate([1])
    user = {"role": "user", "content": "x"}
    with pytest.raises(ValueError, match="chat template"):
        model.chat([user])  # has none
    talker = regard.load(chats.folder)
    for messages, message in [([], "last message must be the user's"),
                              ([{"role": "tool", "content": "x"}, user], "got 'tool'"),
                              ([user, user], "ends with what the user says"),
                              ([{"role": "user"}], "message 0 is"), (["x"], "message 0 is 'x'")]:
        with pytest.raises(ValueError, match=message):
            talker.chat(messages)
    translator = regard.load(BUNDLED)
    with pytest.raises(ValueError, match="translates into en and zh; say which: got 'de'"):
        translator.translate("x", to="de")
    with pytest.raises(ValueError, match="beam must be from 1"):
        translator.translate("x", beams=0)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        translator.translate("x", threads=0)


def test_needs_no_torch(decoder):
    code = ("import sys, regard; regard.load(sys.argv[1]).generate('a', max_tokens=2);"
            "regard.load(sys.argv[2]).translate('a');"
            "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code, str(decoder[0]), str(BUNDLED)], check=True)
