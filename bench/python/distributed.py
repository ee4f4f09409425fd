# SPDX-License-Identifier: Apache-2.0
"""Attention over ranks on this machine: speed, bytes and waiting, beside one process.

    ./run bench distributed [--rounds 3] [--length 16384] [--json FILE]
    ./run bench distributed --network 1000        a network namespace whose loopback has 1000 Mbit/s; root only
    ./run bench distributed --plot FILE.svg       what the model projects for 64 nodes
    ./run bench distributed --million             a million tokens, four million with a window, gradients of 262,144
    ./run bench distributed --million forward --ranks 1        one of these alone: forward, window or gradients

Every row is held to the definition in double on some rows first. Rounds are interleaved, and the best of each
counts. A row fails where its result is wrong or its bytes are not those of the formula, within 5 %.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent))

from lib import spread_model as model  # noqa: E402

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
TRANSPORTS = {"shared memory": "self,vader", "TCP": "self,tcp"}
TOLERANCE = 2e-5
BYTES_WITHIN = 0.05
NAMESPACE = "regard-bench"


class Driver:
    """distributed_bench, alone or under mpirun."""

    def __init__(self, program, prefix=()):
        self.program, self.prefix, self.failures = program, list(prefix), []

    def run(self, ranks, transport="shared memory", **case):
        command = [*self.prefix]
        if ranks > 1:
            command += [*MPIRUN, "-n", str(ranks), "--mca", "btl", TRANSPORTS[transport]]
        command += [os.fspath(self.program), *(f"{name}={value}" for name, value in case.items())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench: {' '.join(command)} ended with {done.returncode}: {done.stderr}")
        result = json.loads(done.stdout)
        result["seconds"] = min(call["seconds"] for call in result["calls"])
        best = next(call for call in result["calls"] if call["seconds"] == result["seconds"])
        result["waiting"], result["bytes"] = best["waiting"], sum(best["bytes"])
        result["cpu"] = min(call["cpu"] for call in result["calls"])
        if result["error"] > TOLERANCE:
            self.failures.append(f"{ranks} ranks, {case}: off by {result['error']}")
        return result


def best_of(driver, rounds, rows):
    """rows: {name: (ranks, transport, case)}; interleaved, results checked in the first round."""
    found = {}
    for number in range(rounds):
        for name, (ranks, transport, case) in rows.items():
            samples = 4 if number == 0 else 0
            result = driver.run(ranks, transport, samples=samples, calls=3, **case)
            if name in found:
                result["error"] = found[name]["error"]
                result["cpu"] = found[name]["cpu"] = min(result["cpu"], found[name]["cpu"])
            if name not in found or result["seconds"] < found[name]["seconds"]:
                found[name] = result
    return found


def show(found, rows, baseline, failures):
    print(f"{'':<44}{'seconds':>9}{'GFLOP/s':>9}{'of one':>8}{'MB sent':>9}{'formula':>9}{'waiting':>9}")
    for name, result in found.items():
        ranks, _, case = rows[name]
        shape = model.Shape(case["length"], case["heads"], case["kv_heads"], 64, bool(case.get("causal", 1)))
        one = found[baseline(name)]["seconds"] if baseline(name) in found else None
        # What the model has no formula for, `explain` tells.
        by_explain = "backward" in case or "window" in case
        expected = result["told_bytes"] if by_explain else model.bytes_sent(shape, ranks)
        megabytes = result["bytes"] / 1e6
        of_one = f"{one / result['seconds']:.2f}" if one else ""
        print(f"{name:<44}{result['seconds']:>9.3f}{result['flops'] / result['seconds'] / 1e9:>9.1f}"
              f"{of_one:>8}{megabytes:>9.2f}{expected / 1e6:>9.2f}"
              f"{100 * result['waiting']:>8.1f}%")
        if expected and abs(result["bytes"] / expected - 1) > BYTES_WITHIN:
            failures.append(f"{name}: {result['bytes']} bytes were sent, the formula says {expected:.0f}")


def scaling(driver, length, rounds, quick):
    """Strong and weak scaling, both ways and transports, and the rule for two ranks; `quick`: that alone."""
    one_head = {"length": length, "heads": 1, "kv_heads": 1}
    four_heads = {"length": length // 2, "heads": 4, "kv_heads": 4}
    rows = {}
    for label, case in (("1 head", one_head), ("4 heads", four_heads)):
        rows[f"{label}, one process"] = (1, "shared memory", case)
        rows[f"{label}, one process, 2 threads"] = (1, "shared memory", {**case, "threads": 2})
        for transport in TRANSPORTS:
            for ranks in (2, 4):
                rows[f"{label}, {ranks} ranks, {transport}"] = (ranks, transport, case)
    for label, case in (("1 head, window", {**one_head, "length": 4 * length, "window": length // 4 - 1, "sinks": 1}),
                        ("1 head, gradients", {**one_head, "backward": 1}),
                        ("4 heads, gradients", {**four_heads, "backward": 1})):
        rows[f"{label}, one process"] = (1, "shared memory", case)
        rows[f"{label}, one process, 2 threads"] = (1, "shared memory", {**case, "threads": 2})
        rows[f"{label}, 2 ranks, shared memory"] = (2, "shared memory", case)
    for ranks in (2, 4):  # as much for each rank as one has
        weak = {**one_head, "length": round(length * ranks ** 0.5) // 64 * 64}
        rows[f"1 head, weak, {ranks} ranks"] = (ranks, "shared memory", weak)
    if quick:
        rows = {name: row for name, row in rows.items() if "2 threads" in name or "2 ranks, shared" in name}
    found = best_of(driver, rounds, rows)

    def baseline(name):
        what = [part for part in name.split(", ")[:2] if part.split()[-1] in ("head", "heads", "window", "gradients")]
        return ", ".join([*what, "one process"])

    show(found, rows, baseline, driver.failures)
    for label in ("1 head", "4 heads", "1 head, window", "1 head, gradients", "4 heads, gradients"):
        threads, ranks = found[f"{label}, one process, 2 threads"], found[f"{label}, 2 ranks, shared memory"]
        print(f"{label}: two ranks of one thread are {threads['seconds'] / ranks['seconds']:.3f} of one process with two "
              f"threads (must: 0.95); in CPU time {threads['cpu'] / ranks['cpu']:.3f}")
    return found


def limited(program, megabits, length, rounds):
    """The same through a loopback of so many Mbit/s, beside what the model says."""
    enter = ["ip", "netns", "exec", NAMESPACE]
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        for command in (["ip", "link", "set", "lo", "up"],
                        ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb",
                         "latency", "200ms"]):
            subprocess.run([*enter, *command], check=True)
        # Open MPI leaves a loopback out unless it is told.
        driver = Driver(program, [*enter, "env", "OMPI_MCA_btl_tcp_if_include=lo"])
        case = {"length": length, "heads": 1, "kv_heads": 1}
        rows = {"one": (1, "TCP", case), "two": (2, "TCP", case)}
        found = best_of(driver, rounds, rows)
        rate = found["one"]["flops"] / found["one"]["seconds"]
        network = model.Network(1e-4, megabits * 1e6 / 8, shared=True)  # both directions are one loopback
        told = model.forward_seconds(model.Shape(length), 2, rate, network)
        print(f"{megabits} Mbit/s: one process {found['one']['seconds']:.3f} s, two ranks {found['two']['seconds']:.3f} s"
              f" (waiting {100 * found['two']['waiting']:.0f} %); the model says {told:.3f} s")
        return driver.failures
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


def project(rate, path):
    """Strong scaling of a causal forward over a million tokens, for a node that computes at `rate`."""
    nodes = [1, 2, 4, 8, 16, 32, 64]
    curves = []
    for label, shape in (("1 head", model.Shape(1 << 20)), ("64 heads", model.Shape(1 << 17, 64, 64))):
        for gigabits in (10, 100):
            network = model.Network(20e-6, gigabits * 1e9 / 8)
            one = model.forward_seconds(shape, 1, rate, network)
            points = [(n, one / model.forward_seconds(shape, n, rate, network)) for n in nodes]
            curves.append((f"{label}, {gigabits} Gbit/s", points))
            print(f"{label:<9} N {shape.length:>8}, {gigabits:>3} Gbit/s: one node {one:8.1f} s; "
                  + ", ".join(f"{n}: {s:.1f}" for n, s in points[1:]))
    if path:
        model.svg(curves, f"Causal forward, d 64, {rate / 1e9:.0f} GFLOP/s a node, 20 us latency (model)", path)
        print(f"written: {path}")


LONG = {
    "forward": ("causal forward", {"length": 1 << 20}),
    "window": ("window 4096 and sinks", {"length": 1 << 22, "window": 4095, "sinks": 1}),
    "gradients": ("causal gradients", {"length": 1 << 18, "backward": 1}),
}


def million(driver, parts, ranks_of, share, calls):
    """Long sequences: time, memory and speed. `share`: of the lengths, for a quick look."""
    found = {}
    for part in parts:
        name, case = LONG[part]
        case = {**case, "length": int(case["length"] * share)}
        for ranks in ranks_of:
            who = "1 process, 2 threads" if ranks == 1 else f"{ranks} ranks, 1 thread"
            # So that whoever looks on knows what is at work for half an hour.
            print(f"{name}, N {case['length']:,}, {who}: ...", file=sys.stderr, flush=True)
            result = driver.run(ranks, threads=max(1, 2 // ranks), calls=calls, samples=4, **case)
            found[f"{part}, {ranks}"] = result
            print(f"{name}, N {case['length']:,}, {who}: {result['seconds']:.1f} s, "
                  f"{result['flops'] / result['seconds'] / 1e9:.1f} GFLOP/s, CPU {result['cpu']:.1f} s, peak memory "
                  f"{result['peak_megabytes']:.0f} MB for a rank, {result['bytes'] / 1e6:.1f} MB sent, waiting "
                  f"{100 * result['waiting']:.1f} %, error {result['error']:.2g}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(prog="bench distributed", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", type=pathlib.Path, help="distributed_bench; ./run bench gives it")
    parser.add_argument("--length", type=int, default=16384, help="tokens (16384)")
    parser.add_argument("--rounds", type=int, default=3, help="times that each row is run (3)")
    parser.add_argument("--quick", action="store_true", help="two ranks beside two threads, nothing else")
    parser.add_argument("--network", type=int, metavar="MBIT", help="through a loopback of so many Mbit/s")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="the model's projection, as an SVG")
    parser.add_argument("--rate", type=float, default=120, help="GFLOP/s of a node in the projection (120)")
    parser.add_argument("--million", nargs="*", metavar="PART", default=None,
                        help="a million tokens; of forward, window and gradients those that are named (all: an hour)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], metavar="N",
                        help="of --million: 1 is one process with two threads (1 2)")
    parser.add_argument("--calls", type=int, default=1, help="of --million, of which the best counts (1)")
    parser.add_argument("--share", type=float, default=1.0, help="of the lengths of --million (1)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    for part in arguments.million or []:
        if part not in LONG:
            parser.error(f"--million: no part {part}; there are {', '.join(LONG)}")
    if arguments.plot:
        return project(arguments.rate * 1e9, arguments.plot)
    if arguments.driver is None or not arguments.driver.exists():
        parser.error("the driver is not there: ./run bench distributed builds it where MPI is "
                     "(Debian: libopenmpi-dev openmpi-bin)")
    driver = Driver(arguments.driver)
    if arguments.network:
        driver.failures = limited(arguments.driver, arguments.network, arguments.length, arguments.rounds)
    else:
        found = (scaling(driver, arguments.length, arguments.rounds, arguments.quick) if arguments.million is None else
                 million(driver, arguments.million or LONG, arguments.ranks, arguments.share, arguments.calls))
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if driver.failures:
        sys.exit("bench: WRONG: " + "; ".join(driver.failures))
    return None


if __name__ == "__main__":
    main()
