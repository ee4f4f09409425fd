#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts sets of clips into the form that `regard train video` reads.

    video_clips.py jhmdb FILE.tsv.gz OUT     2-D poses: a line per clip
    video_clips.py msr ARCHIVE.tar.gz OUT    3-D skeletons: a file per clip
    video_clips.py ucf FOLDER OUT            features of frames, as int8

OUT gets clips/*.npy and tables `clip<TAB>label`: train.tsv and test.tsv, of
jhmdb train1.tsv, test1.tsv and so on for its three splits.
"""
import gzip
import io
import re
import sys
import tarfile
from pathlib import Path

import numpy as np


class Tables:
    def __init__(self, out):
        self.out = Path(out)
        self.rows = {}
        (self.out / "clips").mkdir(parents=True, exist_ok=True)

    def clip(self, name, array):
        np.save(self.out / "clips" / f"{name}.npy", array.astype(np.float32))

    def row(self, table, name, label):
        self.rows.setdefault(table, []).append(f"clips/{name}.npy\t{label}\n")

    def write(self):
        for table, rows in self.rows.items():
            (self.out / f"{table}.tsv").write_text("clip\tlabel\n" + "".join(rows))
            print(f"{table}.tsv: {len(rows)} clips")


def jhmdb(source, tables):
    with gzip.open(source, "rt") as lines:
        for number, line in enumerate(lines):
            label, *splits, frames, values = line.rstrip("\n").split("\t", 5)
            poses = np.array(values.split(), np.float32).reshape(int(frames), 15, 2)
            name = f"{number:03d}"
            tables.clip(name, poses)
            for split, part in enumerate(splits, 1):
                tables.row(f"{part}{split}", name, label)


def msr(source, tables):
    with tarfile.open(source) as archive:
        files = {Path(m.name).name: archive.extractfile(m).read().decode()
                 for m in archive.getmembers() if m.isfile()}
    used = files["files_used_in_cvpr12_paper.txt"].split()
    for name in sorted(re.sub(r"_skeleton.*", "", file) for file in used):
        action, subject, _ = name.split("_")
        joints = np.loadtxt(io.StringIO(files[f"{name}_skeleton3D.txt"]), np.float32)
        tables.clip(name, joints.reshape(-1, 20, 4)[:, :, :3])
        tables.row("train" if int(subject[1:]) % 2 else "test", name, action)


def ucf(source, tables):
    labels = [line.split("\t") for line in (Path(source) / "labels.tsv").read_text().splitlines()]
    [file] = Path(source).glob("features_*_int8.bin.gz")
    features = np.frombuffer(gzip.open(file).read(), np.int8).reshape(len(labels), 25, 128)
    for (name, label, part), clip in zip(labels, features):
        tables.clip(name, clip / 16)
        tables.row(part, name, f"class{label}")


if __name__ == "__main__":
    known = {"jhmdb": jhmdb, "msr": msr, "ucf": ucf}
    if len(sys.argv) != 4 or sys.argv[1] not in known:
        sys.exit(__doc__)
    made = Tables(sys.argv[3])
    known[sys.argv[1]](sys.argv[2], made)
    made.write()
