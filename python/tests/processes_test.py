# SPDX-License-Identifier: Apache-2.0
"""Lives well with others: forks, threads, Ctrl-C."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import numpy as np
import pytest
import regard
import regard.torch
import torch

Q = np.random.default_rng(0).standard_normal((2, 4, 300, 32)).astype(np.float32)


def attend(_=None):
    return regard.attention(Q, Q, Q, threads=2)


def test_a_forked_child_computes_the_same():
    expected = attend()  # the parent's threads run already
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for out in pool.map(attend, range(4)):
            np.testing.assert_array_equal(out, expected)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        q = torch.from_numpy(Q)
        return regard.torch.scaled_dot_product_attention(q, q, q)


def test_dataloader_workers_compute_the_same():
    expected = torch.from_numpy(attend())
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=2):
        assert torch.equal(batch[0], expected)


def test_several_threads_at_once_compute_the_same():
    expected = attend()
    results = []

    def work():
        for _ in range(5):
            results.append(np.array_equal(attend(), expected))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 20


def test_other_threads_run_during_a_call():
    """The GIL is released: a counter goes on while a long call works."""
    q = np.ones((1, 4, 4000, 64), np.float32)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.0005)

    counter = threading.Thread(target=count)
    counter.start()
    before = counted[0]
    regard.attention(q, q, q, threads=1)
    during = counted[0] - before
    stop.set()
    counter.join()
    assert during >= 2


LONG = """
import numpy as np, regard, sys
q = np.ones((1, 64, 1 << 16, 64), np.float32)
print("ready", flush=True)
try:
    regard.attention(q, q, q)  # many minutes
except KeyboardInterrupt:
    sys.exit(42)
"""


def test_ctrl_c_ends_a_long_call():
    child = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 42


def test_torchs_number_of_threads_is_ours():
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            seen = _ops_keywords()["threads"]
            assert seen == count
    finally:
        torch.set_num_threads(before)


def _ops_keywords():
    from regard.torch import _ops
    return _ops.keywords("", [], *[None] * 7, "dot", 0.0, 0.0, None)


TRAINING = """
import resource, torch, regard.torch
torch.set_num_threads(2)
layer = regard.torch.MultiheadAttention(32, 2, dropout=0.1, batch_first=True)

def step(tokens):
    x = torch.randn(1, tokens, 32, requires_grad=True)
    padding = torch.zeros(1, tokens, dtype=torch.bool)
    padding[:, -3:] = True
    layer(x, x, x, key_padding_mask=padding, need_weights=False)[0].sum().backward()

step(100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(6000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_training_makes_no_matrix_of_pairs():
    """One of 2 heads of 6000 tokens would be 144 MB."""
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000  # in kB


THREADS = """
import os, torch, regard.torch
torch.set_num_threads(3)
torch.mm(torch.ones(900, 900), torch.ones(900, 900))  # PyTorch starts its threads
before = len(os.listdir("/proc/self/task"))
q = torch.ones(1, 8, 600, 64)
regard.torch.scaled_dot_product_attention(q, q, q)
print(before, len(os.listdir("/proc/self/task")))
"""


def test_pytorchs_threads_do_our_work():
    if not regard._core.work_with_openmp():
        pytest.skip("this PyTorch has no GNU OpenMP")
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 3 <= before == after
