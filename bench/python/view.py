# SPDX-License-Identifier: Apache-2.0
"""A load test of `regard view`, on this machine's loopback: short sentences at a steady rate.

Each request asks for the translation of a sentence with all its weights; every fourth is followed by a
request for the weights of one head. The first pass finds what the model and the machine can do at most;
the second sends --rate requests a second, or three quarters of that limit where it is lower, whether
answers have come or not. Nothing may fail, and memory is to be flat in the second half of it: the first
fills what the server keeps of the last requests.

    ./run bench view [--model FOLDER] [--rate 200] [--seconds 60]

Without a model, one of a toy language is trained first, in a few seconds.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

WORDS = ["sun", "moon", "tree", "fish", "bird", "hand", "fire", "stone", "rain", "road"]
CLIENTS = 16


def toy_model(program, folder):
    """A language of ten words whose sentences are reversed."""
    state = 12345
    sources = []
    for _ in range(2000):
        sentence = []
        for _ in range(6):
            state = (state * 1103515245 + 12345) % 2**31
            sentence.append(WORDS[state // 65536 % len(WORDS)])
        sources.append(sentence)
    (folder / "a").write_text("".join(" ".join(s) + "\n" for s in sources), encoding="utf-8")
    (folder / "b").write_text("".join(" ".join(reversed(s)) + "\n" for s in sources), encoding="utf-8")
    subprocess.run(
        [program, "train", "translate", "--src", folder / "a", "--tgt", folder / "b", "--out", folder / "model",
         "--pieces", "words", "--dim", "64", "--ffn", "128", "--heads", "4", "--encoder-layers", "2",
         "--decoder-layers", "2", "--batch-tokens", "1000", "--updates", "200", "--warmup", "50"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "model", [" ".join(s) for s in sources]


class Server:
    """regard view, and what it holds of memory."""

    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "view", "--model", model, "--port", "0", "--no-open"],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        if not found:
            sys.exit(f"regard view did not start: {line}")
        self.port = int(found.group(1))

    def megabytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s*(\d+)", status).group(1)) / 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


class Load:
    """Clients that ask, each on a connection of its own, and what became of it."""

    def __init__(self, port, sentences, direction):
        self.port, self.sentences, self.direction = port, sentences, direction
        self.lock = threading.Lock()
        self.next = 0
        self.times, self.failures = [], []

    def run(self, seconds, rate=None):
        """At `rate` requests a second, or as fast as answers come. Returns the seconds it took."""
        self.times, self.failures, self.next = [], [], 0
        start = time.monotonic()
        count = int(seconds * rate) if rate else None
        threads = [threading.Thread(target=self.work, args=(start, seconds, rate, count)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - start

    def work(self, start, seconds, rate, count):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while True:
            with self.lock:
                number = self.next
                self.next += 1
            due = start + number / rate if rate else time.monotonic()
            if (count is not None and number >= count) or time.monotonic() > start + 2 * seconds:
                return
            if count is None and time.monotonic() > start + seconds:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self.ask(connection, number)
                elapsed = time.monotonic() - due
                with self.lock:
                    self.times.append(elapsed)
            except (OSError, http.client.HTTPException, ValueError) as error:
                connection.close()
                with self.lock:
                    self.failures.append(repr(error))

    def ask(self, connection, number):
        body = {"text": self.sentences[number % len(self.sentences)]}
        if self.direction:
            body["direction"] = self.direction
        connection.request("POST", "/api/trace", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        header = json.loads(response.read())
        if response.status != 200:
            raise ValueError(f"{response.status} {header}")
        if number % 4 == 0:
            connection.request("GET", f"/api/weights?trace={header['id']}&section=0&layer=0&head=0")
            response = connection.getresponse()
            weights = response.read()
            if response.status != 200 or len(weights) != 2 * len(header["axes"][0]["tokens"]) ** 2:
                raise ValueError(f"weights: {response.status}, {len(weights)} bytes")

    def report(self, name, took, memory):
        times = sorted(self.times) or [0.0]
        share = [1000 * times[int(part * (len(times) - 1))] for part in (0.5, 0.99, 1)]
        print(f"{name:<22} {len(self.times) / took:8.1f} {len(self.times):9d} {len(self.failures):9d} "
              f"{share[0]:8.1f} {share[1]:8.1f} {share[2]:8.1f} {memory:8.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="bench view", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", type=pathlib.Path, required=True, help="regard; ./run bench gives it")
    parser.add_argument("--model", type=pathlib.Path, help="folder of a translator; a toy if not given")
    parser.add_argument("--input", type=pathlib.Path, help="sentences for it, a line each")
    parser.add_argument("--direction", default="", help="such as en-zh, for a model that knows both")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second (200)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the steady pass (60)")
    arguments = parser.parse_args()
    if arguments.model and not arguments.input:
        parser.error("--model needs sentences: --input")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.model:
            model = arguments.model
            sentences = arguments.input.read_text(encoding="utf-8").splitlines()
            sentences = [line for line in sentences if line.strip() and len(line) < 200]
        else:
            model, sentences = toy_model(arguments.program, pathlib.Path(folder))
        server = Server(arguments.program, model)
        try:
            sys.exit(measure(server, sentences, arguments))
        finally:
            server.end()


def measure(server, sentences, arguments):
    print(f"regard view on loopback, {CLIENTS} clients, {os.cpu_count()} cores\n")
    print(f"{'':<22} {'per s':>8} {'answered':>9} {'failed':>9} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} "
          f"{'RSS MB':>8}")
    print(f"{'at the start':<22} {'':>54} {server.megabytes():8.1f}")
    load = Load(server.port, sentences, arguments.direction)
    took = load.run(min(10.0, arguments.seconds))
    limit = len(load.times) / took
    load.report("as fast as it goes", took, server.megabytes())
    failed = len(load.failures)
    rate = min(arguments.rate, 0.75 * limit)
    memory = []
    for half in ("first", "second"):
        took = load.run(arguments.seconds / 2, rate)
        memory.append(server.megabytes())
        load.report(f"{rate:.0f} per s, {half} half", took, memory[-1])
        failed += len(load.failures)
        for failure in sorted(set(load.failures))[:5]:
            print(failure)
    print(f"\nmemory grew by {memory[1] - memory[0]:.1f} MB in the second half; {failed} requests failed")
    return 1 if failed else 0


if __name__ == "__main__":
    main()
