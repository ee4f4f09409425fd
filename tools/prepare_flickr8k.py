#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flickr8k as `regard train caption` reads it: prepare_flickr8k.py FROM TO

FROM holds Flickr8k.token.txt (or .gz), Flickr_8k.{train,dev,test}Images.txt and
the pictures: as files in FROM or FROM/Flicker8k_Dataset, or in FROM/*.tar.
TO gets pictures/, train.tsv, dev.tsv and test.tsv. As is usual for this set,
captions are in lower case and words alone: signs of punctuation are left out.
"""

import argparse
import gzip
import pathlib
import re
import shutil
import tarfile


def words(caption):
    return " ".join(re.findall(r"[a-z0-9']*[a-z0-9][a-z0-9']*", caption.lower()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, metavar="FROM")
    parser.add_argument("to", type=pathlib.Path, metavar="TO")
    flags = parser.parse_args()
    folder = flags.to / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(flags.source.glob("*.tar")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and member.name.endswith(".jpg"):
                    (folder / pathlib.Path(member.name).name).write_bytes(tar.extractfile(member).read())
    for place in (flags.source, flags.source / "Flicker8k_Dataset"):
        for file in place.glob("*.jpg"):
            shutil.copy(file, folder)
    (tokens,) = flags.source.glob("Flickr8k.token.txt*")
    captions = {}
    with (gzip.open if tokens.suffix == ".gz" else open)(tokens, "rt", encoding="utf-8") as file:
        for line in file:
            name, caption = line.rstrip("\n").split("\t")
            captions.setdefault(name.split("#")[0], []).append(words(caption))
    for part in ("train", "dev", "test"):
        names = (flags.source / f"Flickr_8k.{part}Images.txt").read_text().split()
        lines = [f"{name}\t{text}\n" for name in names for text in captions[name] if text]
        (flags.to / f"{part}.tsv").write_text("picture\tcaption\n" + "".join(lines))
        print(f"{part}: {len(names)} pictures, {len(lines)} captions")


if __name__ == "__main__":
    main()
