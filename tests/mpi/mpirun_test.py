#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program under mpirun: the output of one process, for any number of ranks, and faults.

Skipped where mpirun is not there, or the program was built without MPI. Needs nothing
beyond Python itself. REGARD_KILLS says how many kills a training is put through (2).
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
PROGRAM = os.environ.get("REGARD_PROGRAM", "build/dev/bin/regard")
DRIVER = os.path.join(os.environ.get("REGARD_BINARY_DIR", "build/dev"), "bin/spread_attention_driver")
MODELS = pathlib.Path(os.environ.get("REGARD_MODELS", pathlib.Path.home() / ".cache/regard-models"))
KILLS = int(os.environ.get("REGARD_KILLS", "2"))
# Several ranks on few cores; a root may start them, as in containers.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
# How long one process of a small training may take on a machine that has much to do.
PATIENCE = 240

WORDS = "red green blue small large round square old new quick slow bright dark warm cold".split()


def run(ranks, *arguments, stdin=None):
    command = [PROGRAM, *arguments]
    if ranks > 1:
        command = [*MPIRUN, "-n", str(ranks), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, input=stdin or "", check=False)


def texts(count, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(count)]


class Mpirun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        lines = texts(60)
        with open(self.folder / "labelled.tsv", "w", encoding="utf-8") as file:
            file.write("text\tlabel\n")
            file.writelines(f"{line}\t{'warm' if len(line) % 2 else 'cold'}\n" for line in lines)
        with open(self.folder / "pairs.tsv", "w", encoding="utf-8") as file:
            file.writelines(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines)
        with open(self.folder / "log.tsv", "w", encoding="utf-8") as file:
            file.write("user\titem\ttime\n")
            draw = random.Random(2)
            file.writelines(f"u{u}\t{draw.choice(WORDS)}\t{t}\n" for u in range(20) for t in range(8))
        self.tasks = {
            "classify": ["--train", f"{self.folder}/labelled.tsv"],
            "translate": ["--tsv", f"{self.folder}/pairs.tsv", "--pieces", "words", "--encoder-layers", "1",
                          "--decoder-layers", "1"],
            "recommend": ["--interactions", f"{self.folder}/log.tsv"],
        }

    def command(self, task, out, *more):
        sizes = ["--dim", "16", "--heads", "2", "--ffn", "16"]
        learning = ["--batch-tokens", "60", "--accumulate", "3", "--schedule", "constant", "--warmup", "2",
                    "--average", "2", "--epochs", "0", "--validate-every", "2", "--threads", "1"]
        if "--updates" not in more:
            learning += ["--updates", "5"]
        if task != "translate":
            sizes += ["--layers", "1"]
        return ["train", task, *self.tasks[task], *sizes, *learning, "--out", f"{self.folder}/{out}", *more]

    def train(self, ranks, task, out, *more):
        done = run(ranks, *self.command(task, out, *more))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def weights(self, out):
        return (self.folder / out / "model.safetensors").read_bytes()

    def add_samples(self):
        """The tasks whose data are more than a few lines: the beginning of our samples."""
        for task in ("answer", "video", "caption"):
            self.assertEqual(run(1, "sample", task, "--out", f"{self.folder}/{task}").returncode, 0)
            for part in ("train", "valid"):
                table = self.folder / task / f"{part}.tsv"
                table.write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:61]),
                                 encoding="utf-8")
        self.assertEqual(run(1, "sample", "summarize", "--out", f"{self.folder}/summarize").returncode, 0)
        for part in ("train", "valid"):
            texts_of = self.folder / "summarize" / f"{part}.jsonl"
            texts_of.write_text("".join(texts_of.read_text(encoding="utf-8").splitlines(keepends=True)[:30]),
                                encoding="utf-8")
        self.tasks["summarize"] = ["--train", f"{self.folder}/summarize/train.jsonl", "--valid",
                                   f"{self.folder}/summarize/valid.jsonl", "--decoder-layers", "1"]
        tables = {task: [f"{self.folder}/{task}/train.tsv", "--valid", f"{self.folder}/{task}/valid.tsv"]
                  for task in ("answer", "video", "caption")}
        self.tasks["answer"] = ["--train", *tables["answer"]]
        self.tasks["video"] = ["--clips", *tables["video"]]
        self.tasks["caption"] = ["--pictures", f"{self.folder}/caption/pictures", "--captions", *tables["caption"],
                                 "--side", "48", "--patch", "12", "--decoder-layers", "1"]

    def test_every_training_ends_with_the_bits_of_one_process(self):
        self.add_samples()
        for task in self.tasks:
            with self.subTest(task):
                alone = self.train(1, task, f"{task}-1")
                spread = self.train(3, task, f"{task}-3")
                self.assertEqual(self.weights(f"{task}-1"), self.weights(f"{task}-3"))
                # Said once, and the same but for the folder.
                self.assertEqual(alone.stdout.replace(f"{task}-1", f"{task}-3"), spread.stdout)

    def test_a_training_goes_on_with_another_number_of_ranks(self):
        self.train(1, "classify", "whole", "--updates", "6")
        self.train(3, "classify", "parts", "--updates", "2")
        self.train(1, "classify", "parts", "--updates", "4", "--resume")
        self.train(2, "classify", "parts", "--updates", "6", "--resume")
        self.assertEqual(self.weights("whole"), self.weights("parts"))

    def test_inputs_are_shared_and_answered_in_order(self):
        lines = self.folder / "lines.txt"
        lines.write_text("".join(line + "\n" for line in texts(11, seed=3)), encoding="utf-8")
        self.train(1, "translate", "translator")
        for command in (["classify", "--input", lines, "--threads", "1"],
                        ["classify", "--input", lines, "--json", "--threads", "1"],
                        ["translate", "--model", self.folder / "translator", "--input", lines, "--threads", "1"],
                        ["translate", "--model", self.folder / "translator", "--input", lines, "--nbest", "2",
                         "--threads", "1"]):
            command = list(map(str, command))
            with self.subTest(command[0]):
                alone, spread = run(1, *command), run(3, *command)
                self.assertEqual(alone.returncode, 0, alone.stderr)
                self.assertGreaterEqual(alone.stdout.count("\n"), 11)
                self.assertEqual(alone.stdout, spread.stdout, spread.stderr)

    def test_vectors_are_those_of_one_process(self):
        model = MODELS / "all-MiniLM-L6-v2"
        if not model.exists():
            self.skipTest(f"{model} is not there")
        lines = self.folder / "lines.txt"
        lines.write_text("".join(line + "\n" for line in texts(10, seed=5)), encoding="utf-8")
        for ranks in (1, 3):
            done = run(ranks, "embed", "--model", str(model), "--input", str(lines), "--threads", "1",
                       "--out", str(self.folder / f"{ranks}.npy"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("10 x 384", done.stdout)
        self.assertEqual((self.folder / "1.npy").read_bytes(), (self.folder / "3.npy").read_bytes())

    def test_attention_over_ranks_has_the_bits_of_one_process(self):
        for ranks in (2, 3):
            done = subprocess.run([*MPIRUN, "-n", str(ranks), DRIVER], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, f"the same on {ranks} ranks\n")

    def test_what_does_not_share_its_work_says_so(self):
        for command, said in ((["info"], "this command works in one"),
                              (["classify", "a text"], "several ranks share the lines of --input"),
                              (["translate", "--input", "x", "--show"], "several ranks share the lines of --input")):
            with self.subTest(command[0]):
                done = run(2, *command)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr.count(said), 1, done.stderr)

    def test_a_mistake_is_told_once(self):
        done = run(3, "classify", "--input", f"{self.folder}/missing.txt")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("missing.txt"), 1, done.stderr)

    def test_ranks_with_other_options_are_told(self):
        commands = [[PROGRAM, *self.command("classify", "out", "--seed", str(seed))] for seed in (1, 2)]
        done = subprocess.run([*MPIRUN, "-n", "1", *commands[0], ":", "-n", "1", *commands[1]],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1: train: all ranks must train the same; on rank 0", done.stderr)
        self.assertIn("seed is 1, and here 2", done.stderr)

    UPDATES = str(50 + 5 * KILLS)

    def start_long(self, out):
        """A training that saves each update, once it has made one more; None where it has ended."""
        command = self.command("classify", out, "--updates", self.UPDATES, "--checkpoint-every", "0", "--resume")
        log = self.folder / out / "training/log.jsonl"
        before = log.stat().st_size if log.exists() else 0
        mpirun = subprocess.Popen([*MPIRUN, "-n", "2", PROGRAM, *command], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(mpirun.stderr.close)
        self.addCleanup(mpirun.stdout.close)
        self.addCleanup(mpirun.kill)
        end = time.monotonic() + PATIENCE
        while not log.exists() or log.stat().st_size <= before:
            if mpirun.poll() is not None:
                return None
            self.assertLess(time.monotonic(), end, "no update was made")
            time.sleep(0.01)
        return mpirun

    def ranks_of(self, mpirun):
        children = pathlib.Path(f"/proc/{mpirun.pid}/task/{mpirun.pid}/children")
        return [int(child) for child in children.read_text(encoding="ascii").split()]

    def test_killed_ranks_end_the_others_and_the_training_goes_on(self):
        draw = random.Random(4)
        for kill in range(KILLS):
            mpirun = self.start_long("killed")
            if mpirun is None:
                break
            time.sleep(draw.random() * 0.1)
            ranks = self.ranks_of(mpirun)
            if ranks:
                os.kill(draw.choice(ranks), signal.SIGKILL)
            _, said = mpirun.communicate(timeout=PATIENCE)
            if kill == 0:  # which is far from the end
                self.assertNotEqual(mpirun.returncode, 0)
                self.assertIn("exited on signal 9", said)
        self.train(2, "classify", "killed", "--updates", self.UPDATES, "--resume")
        self.train(1, "classify", "whole", "--updates", self.UPDATES)
        self.assertEqual(self.weights("whole"), self.weights("killed"))

    def test_a_stopped_rank_is_named(self):
        mpirun = self.start_long("stopped")
        stopped = self.ranks_of(mpirun)[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            _, said = mpirun.communicate(timeout=PATIENCE)
        finally:
            try:
                os.kill(stopped, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertNotEqual(mpirun.returncode, 0)
        self.assertEqual(said.count("regard: rank 1 has not answered for"), 1, said)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not there (Debian: openmpi-bin)")
        sys.exit(SKIPPED)
    if "not built in" in run(1, "info").stdout:
        print("skipped: the program was built without MPI")
        sys.exit(SKIPPED)
    unittest.main()
