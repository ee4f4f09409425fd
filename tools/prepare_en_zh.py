#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers English-Chinese pairs from several sources into files to train with.

    prepare_en_zh.py mono SOURCES FOLDER [--pairs]
                                                Chinese text alone, to be translated back
    prepare_en_zh.py mix SOURCES FOLDER         train.tsv, back.tsv, everyday.tsv, valid.tsv
    prepare_en_zh.py tests SOURCES FOLDER       tatoeba.en, tatoeba.zh, covost2.en, covost2.zh

SOURCES holds train_NAME.tsv.gz and gloss_NAME.tsv.gz (English, a tab, Chinese),
mono_NAME.txt.gz and test_NAME.tsv.gz. `mono` writes FOLDER/mono.zh, one sentence
a line, with `--pairs` also the Chinese side of the pairs, so that a small model can
learn how a large one translates it; `mix` reads its translation, FOLDER/mono.en, and
the FOLDER/phrases.tsv of write_phrases.py, where there are any. back.tsv gets what the
large model made of the Chinese side of pairs: good to translate into, while the pairs
themselves are better to translate from. A pair is held out to validate with where a
hash of its English sentence says so, and pairs that share a side with one of those
are dropped, as is each pair that shares a side with a test: letters and digits are
compared, case and punctuation are not.
"""

import argparse
import gzip
import pathlib
import sys
import unicodedata

from split_pairs import PARTS, fnv1a, read_pairs

# Everyday language: what people type first.
EVERYDAY = "tatoeba wiktionary_examples hsk_sentences massive xpersona crosswoz_human multiwoz_human stories_asp xsid".split()
# Prose of other kinds, as far as its sentences are short.
PROSE = "covost2_sample mgsm xquad_questions pud tico19_dev".split()
WORDS = "cedict cldr osm_presets".split()
MONO = "tatoeba_ccby commonvoice_cc0 commonvoice_wiki_cc0".split()
HELD_OUT = {"tatoeba": 0.015, "covost2_sample": 0.2}
LONGEST = {"en": 30, "zh": 50}  # words, characters


def pairs_of(folder, kind, names):
    for name in names:
        for pair in read_pairs(folder / f"{kind}_{name}.tsv.gz"):
            yield name, pair


def key(text):
    """What two sentences are compared by."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def is_short(pair):
    return len(pair[0].split()) <= LONGEST["en"] and len(pair[1]) <= LONGEST["zh"]


def is_word(pair):
    return len(pair[0].split()) <= 2 and len(pair[1]) <= 3


def is_sane(pair):
    """A whole sentence, and not the output of a translator that lost its way."""
    english, chinese = pair
    words, characters = len(english.split()), len(chinese)
    return (chinese[-1] in "\u3002\uff01\uff1f" and english[0] != "-" and words <= 2 * characters + 3
            and characters <= 5 * words + 6 and not any("\u4e00" <= c <= "\u9fff" for c in english))


def test_keys(folder):
    keys = set()
    for path in sorted(folder.glob("test_*.tsv.gz")):
        for pair in read_pairs(path):
            keys.update(map(key, pair))
    return keys


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    print(f"{path}: {len(lines)} lines")


def write_mono(folder, out, with_pairs=False):
    tests = test_keys(folder)
    lines = {}
    if with_pairs:
        lines = dict.fromkeys(chinese for _, (english, chinese) in pairs_of(folder, "train", EVERYDAY + PROSE)
                              if is_short((english, chinese)) and key(chinese) not in tests)
    for name in MONO:
        with gzip.open(folder / f"mono_{name}.txt.gz", "rt", encoding="utf-8") as text:
            for line in map(str.strip, text):
                if 2 <= len(line) <= LONGEST["zh"] and key(line) not in tests:
                    lines[line] = None
    write(out / "mono.zh", list(lines))


def write_mix(folder, out):
    used = test_keys(folder)  # by a test, and then by what is held out
    sources = list(pairs_of(folder, "train", EVERYDAY + PROSE))
    held_out = {pair for name, pair in sources
                if fnv1a(pair[0]) % PARTS < HELD_OUT.get(name, 0) * PARTS and not used & set(map(key, pair))}
    used.update(side for pair in held_out for side in map(key, pair))
    free = lambda pair: not used & set(map(key, pair))  # noqa: E731
    everyday = dict.fromkeys(p for n, p in sources if n in EVERYDAY and is_short(p) and free(p))
    prose = dict.fromkeys(p for n, p in sources if n in PROSE and is_short(p) and free(p))
    words = dict.fromkeys(p for _, p in pairs_of(folder, "gloss", WORDS) if is_word(p) and free(p))
    back = {}
    if (out / "mono.en").exists():
        english, chinese = ((out / f"mono.{side}").read_text(encoding="utf-8").split("\n") for side in ("en", "zh"))
        if len(english) != len(chinese):
            sys.exit(f"mono.en has {len(english)} lines and mono.zh {len(chinese)}")
        back = dict.fromkeys(p for p in zip(english, chinese) if all(p) and is_short(p) and is_sane(p) and free(p))
    made = out / "phrases.tsv"
    phrases = dict.fromkeys(p for p in read_pairs(made) if free(p)) if made.exists() else {}
    print(f"everyday {len(everyday)}, prose {len(prose)}, words {len(words)}, translated back {len(back)}, phrases {len(phrases)}")
    line = "\t".join
    write(out / "everyday.tsv", [line(p) for p in everyday])
    pairs = everyday | prose | words | phrases
    paired = {chinese for _, chinese in everyday | prose}
    write(out / "train.tsv", [line(p) for p in pairs | {p: None for p in back if p[1] not in paired}])
    write(out / "back.tsv", [line(p) for p in back if p[1] in paired and p not in pairs])
    write(out / "valid.tsv", [line(p) for p in sorted(held_out)])


def write_tests(folder, out):
    for name in ("tatoeba", "covost2"):
        pairs = list(read_pairs(folder / f"test_{name}.tsv.gz"))
        for side, language in enumerate(("en", "zh")):
            write(out / f"{name}.{language}", [pair[side] for pair in pairs])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("mono", "mix", "tests"))
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--pairs", action="store_true")
    args = parser.parse_args()
    if args.pairs and args.what != "mono":
        parser.error("--pairs belongs to mono")
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.what == "tests":
        write_tests(args.sources, args.folder)
    elif args.what == "mono":
        write_mono(args.sources, args.folder, args.pairs)
    else:
        write_mix(args.sources, args.folder)


if __name__ == "__main__":
    main()
