# SPDX-License-Identifier: Apache-2.0
"""A pretrained encoder trained further beside transformers and PyTorch, with one recipe:

    ./run bench fine_tune --model all-MiniLM-L6-v2 --train train.tsv                    how fast, side by side
    ./run bench fine_tune --model all-MiniLM-L6-v2 --train train.tsv --test test.tsv    how good, after all epochs

The recipe: the mean of the last layer's tokens, dropout, a linear layer; cross entropy; AdamW (weight decay 0.01 for
all weights, beta2 0.999, clipped at a norm of 1), a learning rate that rises for a tenth of the updates and falls in
a line to zero; batches of texts of like length, so many tokens each, which PyTorch pads to the longest and regard
packs. Tables have the columns text and label.

Speed: all take turns, some updates each; what is told is the ratio of texts per second over all rounds, and of each
round. An update is everything from the tokens to the new weights. PyTorch is there twice: with batches of like
lengths, and with as many texts drawn at random, as the Trainer of transformers does unless told otherwise. fp32; with --compute bfloat16, regard multiplies in bf16, and PyTorch is there in fp32 and with
autocast to bf16.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import machine  # noqa: E402

machine.prepare_environment("")  # before PyTorch is loaded
os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import torch
    import transformers
    from transformers import AutoModel, AutoTokenizer, logging
except ImportError as error:
    sys.exit(f"bench fine_tune: {error}; ./test makes build/venv, which has it")

logging.disable_progress_bar()
logging.set_verbosity_error()

POOL = 64  # batches whose texts are sorted together, as regard does


def read_table(path):
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = list(reader)
    for name in ("text", "label"):
        if name not in (reader.fieldnames or []):
            sys.exit(f"bench fine_tune: {path} has no column {name}; its first line names {reader.fieldnames or 'none'}")
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            sys.exit(f"bench fine_tune: {path}, line {line}, does not have the {len(reader.fieldnames)} columns of the first line")
    return [row["text"] for row in rows], [row["label"] for row in rows]


class Classifier(torch.nn.Module):
    def __init__(self, folder, labels):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False)
        self.dropout = torch.nn.Dropout(self.encoder.config.hidden_dropout_prob)
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, labels)

    def forward(self, ids, mask):
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        real = mask[:, :, None].to(hidden.dtype)
        return self.head(self.dropout((hidden * real).sum(1) / real.sum(1)))


class Torch:
    name = "torch"

    def __init__(self, arguments, seed, sorted_by_length=True, autocast=False):
        torch.manual_seed(seed)
        self.autocast = autocast
        if autocast:
            self.name = "torch, autocast"
        if not sorted_by_length:
            self.name = "torch, random batches"
            self.batches = self.random_batches
        self.arguments = arguments
        self.random = random.Random(seed)
        self.tokenizer = AutoTokenizer.from_pretrained(arguments.model)
        texts, labels = read_table(arguments.train)
        self.names = sorted(set(labels))
        self.texts = self.tokens(texts)
        self.labels = [self.names.index(label) for label in labels]
        self.net = Classifier(arguments.model, len(self.names)).train()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=arguments.lr, weight_decay=0.01, fused=True)
        self.epochs = [self.batches() for _ in range(arguments.epochs)]
        total = sum(len(epoch) for epoch in self.epochs)
        warmup = total // 10

        def rate(step):
            return (step + 1) / warmup if step + 1 < warmup else max(0.0, (total - step - 1) / (total - warmup))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)
        self.next = iter([batch for epoch in self.epochs for batch in epoch])

    def tokens(self, texts):
        if self.arguments.truncate == "end":
            return self.tokenizer(texts, truncation=True, max_length=self.arguments.max_length)["input_ids"]
        return [self.truncated(ids) for ids in self.tokenizer(texts, verbose=False)["input_ids"]]

    def truncated(self, ids):
        """[CLS] and [SEP] stay; of a longer text its end, or its start and its end, as regard train --truncate has it."""
        room, text = self.arguments.max_length - 2, ids[1:-1]
        if len(text) <= room:
            return ids
        start = room // 4 if self.arguments.truncate == "middle" else 0
        return [ids[0], *text[:start], *text[len(text) - (room - start):], ids[-1]]

    def batches(self):
        """As regard::train::make_batches."""
        order, batches, room = list(range(len(self.texts))), [], -1
        self.random.shuffle(order)
        while order:
            tokens, end = 0, 0
            while end < len(order) and tokens < POOL * self.arguments.batch_tokens:
                tokens += len(self.texts[order[end]])
                end += 1
            room = -1
            for i in sorted(order[:end], key=lambda i: len(self.texts[i])):
                if len(self.texts[i]) > room:
                    batches.append([])
                    room = self.arguments.batch_tokens
                batches[-1].append(i)
                room -= len(self.texts[i])
            order = order[end:]
        self.random.shuffle(batches)
        return batches

    def random_batches(self):
        order = list(range(len(self.texts)))
        self.random.shuffle(order)
        size = max(1, round(self.arguments.batch_tokens * len(order) / sum(map(len, self.texts))))
        return [order[i:i + size] for i in range(0, len(order), size)]

    def padded(self, texts):
        batch = self.tokenizer.pad({"input_ids": texts}, return_tensors="pt")
        return batch["input_ids"], batch["attention_mask"]

    def update(self, batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            scores = self.net(*self.padded([self.texts[i] for i in batch]))
        loss = torch.nn.functional.cross_entropy(scores.float(), torch.tensor([self.labels[i] for i in batch]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return loss.item()

    def timed(self, updates):
        """Texts and seconds of so many updates; the first is left out."""
        self.update(next(self.next))
        batches = [next(self.next) for _ in range(updates - 1)]
        began = time.perf_counter()
        for batch in batches:
            self.update(batch)
        return sum(map(len, batches)), time.perf_counter() - began

    def learn(self):
        for number, epoch in enumerate(self.epochs):
            losses = [self.update(batch) for batch in epoch]
            print(f"torch: epoch {number + 1}, loss {statistics.mean(losses):.4f}", flush=True)

    @torch.no_grad()
    def accuracy(self):
        self.net.eval()
        texts, labels = read_table(self.arguments.test)
        right = 0
        for text, label in zip(self.tokens(texts), labels):
            right += self.names[self.net(*self.padded([text])).argmax().item()] == label
        return right / len(texts)


class Regard:
    name = "regard"

    def __init__(self, arguments, seed):
        self.arguments, self.seed = arguments, seed

    def train(self, folder, *more):
        a = self.arguments
        subprocess.run(
            [a.program, "train", "classify", "--train", a.train, "--from", a.model, "--out", folder, "--epochs",
             str(a.epochs), "--lr", str(a.lr), "--batch-tokens", str(a.batch_tokens), "--max-length",
             str(a.max_length), "--truncate", a.truncate, "--valid-share", "0", "--seed", str(self.seed), "--threads",
             str(a.threads), "--compute", a.compute, *more],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if more else None)

    def timed(self, updates):
        self.seed += 1  # other batches in every round
        with tempfile.TemporaryDirectory() as folder:
            self.train(folder, "--updates", str(updates), "--schedule", "constant")
            lines = [json.loads(line) for line in pathlib.Path(folder, "training", "log.jsonl").open()]
        timed = [line for line in lines if "seconds" in line][1:]
        return sum(line["tokens"] for line in timed), sum(line["seconds"] for line in timed)

    def learn(self):
        self.folder = tempfile.TemporaryDirectory()
        self.train(pathlib.Path(self.folder.name, "model"))

    def accuracy(self):
        done = subprocess.run([self.arguments.program, "classify", "--model", pathlib.Path(self.folder.name, "model"),
                               "--input", self.arguments.test, "--score", "--json"], check=True, capture_output=True)
        return json.loads(done.stdout)["accuracy"]


def measure_speed(arguments):
    contestants = [Regard(arguments, 1), Torch(arguments, 1), Torch(arguments, 1, sorted_by_length=False)]
    if arguments.compute == "bfloat16":
        contestants.append(Torch(arguments, 1, autocast=True))
    rounds = {one.name: [] for one in contestants}
    for number in range(arguments.rounds):
        for shift in range(len(contestants)):
            one = contestants[(number + shift) % len(contestants)]
            rounds[one.name].append(one.timed(arguments.updates))
    results = []
    for name, pairs in rounds.items():
        rate = sum(texts for texts, _ in pairs) / sum(seconds for _, seconds in pairs)
        results.append({"name": name, "texts_per_second": rate, "rounds": pairs})
        line = f"{name:24}{rate:8.1f} texts/s"
        if name != "regard":
            ratios = sorted(ours[0] / ours[1] * theirs[1] / theirs[0] for ours, theirs in zip(rounds["regard"], pairs))
            results[-1]["regard_is_faster"] = results[0]["texts_per_second"] / rate
            line += f"   regard {results[-1]['regard_is_faster']:.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line)
    return results


def measure_accuracy(arguments):
    results = []
    for seed in arguments.seeds:
        for make in (Regard, Torch):
            one = make(arguments, seed)
            began = time.perf_counter()
            one.learn()
            seconds = time.perf_counter() - began
            results.append({"name": one.name, "seed": seed, "accuracy": one.accuracy(), "seconds": seconds})
            print(f"{one.name:8}seed {seed}  accuracy {100 * results[-1]['accuracy']:.2f} %  {seconds:.0f} s", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(prog="./run bench fine_tune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="of the BERT kind, with mean pooling")
    parser.add_argument("--train", required=True, metavar="FILE", help="a .tsv with the columns text and label")
    parser.add_argument("--test", metavar="FILE", help="train to the end, and score with this")
    parser.add_argument("--epochs", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--lr", type=float, default=1e-4, help="(%(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=1024, help="(%(default)s)")
    parser.add_argument("--max-length", type=int, default=256, help="tokens of a text (%(default)s)")
    parser.add_argument("--truncate", choices=("end", "start", "middle"), default="end",
                        help="what is left out of a longer text (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(1)")
    parser.add_argument("--updates", type=int, default=12, help="of a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both (%(default)s)")
    parser.add_argument("--compute", choices=("float32", "bfloat16"), default="float32", help="products (%(default)s)")
    parser.add_argument("--program", required=True, metavar="FILE", help="regard; ./run bench gives it")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {arguments.threads} threads")
    results = measure_accuracy(arguments) if arguments.test else measure_speed(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine.describe(), "threads": arguments.threads,
                                              "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
