# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: a row and what is asked of it, timing it, and the result as plain data."""

import dataclasses
import sys

from . import harness


@dataclasses.dataclass(frozen=True)
class Target:
    """What is asked for: percent of the yardstick, GFLOP/s, or a ratio."""

    kind: str  # peak, rate, baseline, inputs (of memory), or the name of a peer
    must: float
    aim: float = 0.0
    of: str = ""  # of kind baseline: what the ratio is to


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    title: str
    spec: object  # has flops()
    target: Target | None = None
    quick: bool = False


def by_name(rows):
    return {row.name: row for row in rows}


def need_torch(context, benchmark):
    """Ends the program where torch, the peer of the benchmark and its truth, is not to be had."""
    if "torch" not in context.peers:
        why = context.missing_peers.get("torch", "it was not chosen")
        sys.exit(f"bench: {benchmark} needs torch, its peer and its truth: {why}")


def passes(contestant, skipped, progress):
    """Runs once and compares with the reference. A wrong regard ends the row; a wrong peer is left out."""
    progress.show(f"checking {contestant.name}")
    try:
        contestant.run(1)
        contestant.check()
    except (harness.WrongResult, RuntimeError) as error:
        if contestant.role != "peer":
            raise
        wrong = "WRONG RESULT: " if isinstance(error, harness.WrongResult) else ""
        skipped[contestant.name] = wrong + str(error).splitlines()[0]
        return False
    return True


def measure(context, name, contestants, skipped, yardstick=None):
    """The lanes of those that pass; against the FMA peak if no other yardstick is given."""
    return harness.measure(
        [contestant for contestant in contestants if passes(contestant, skipped, context.progress)],
        yardstick or context.library.peak,
        context.seconds,
        context.min_rounds,
        lambda text: context.progress.show(f"{name}: {text}"),
    )


def conclude(row, lanes, skipped, judge, work=None):
    """The lanes as plain data, with ratios, and judge(row, group) for each number of threads.

    work(contestant) is what one call does, the flops of the row if not given.
    """
    work = work or (lambda contestant: row.spec.flops())
    mine = {lane.contestant.threads: lane for lane in lanes if lane.contestant.role == "regard"}
    groups = []
    for threads, lane_of_regard in mine.items():
        members = [lane for lane in lanes if lane.contestant.threads == threads]
        ratios = {
            lane.contestant.name: harness.speedup(lane_of_regard, lane)
            for lane in members
            if lane.contestant.role != "regard"
        }
        peers = [lane.contestant.name for lane in members if lane.contestant.role == "peer"]
        group = {
            "threads": threads,
            "results": [harness.summarize(lane, work(lane.contestant)) for lane in members],
            "ratios": ratios,
            "best_peer": min(peers, key=lambda peer: ratios[peer]["median"], default=None),
        }
        if threads > 1 and 1 in mine:
            group["scaling"] = harness.speedup(lane_of_regard, mine[1])
        group["verdict"] = judge(row, group)
        groups.append(group)
    return {
        "kind": "speed",
        "row": row.name,
        "title": row.title,
        "work": work(next(iter(mine.values())).contestant),
        "unit": "GFLOP/s",
        "yardstick": "FMA peak",
        "target": dataclasses.asdict(row.target) if row.target else None,
        "skipped": skipped,
        "threads": groups,
    }


def judge(row, group):
    """What does not hold: the target, and to be as fast as the best peer."""
    misses, reached, aimed = [], reached_of(row.target, group), True
    if reached is not None and reached < row.target.must:
        misses.append(f"below target ({reached:.3g} of {row.target.must:g})")
    if row.target:
        aimed = reached is not None and reached >= (row.target.aim or row.target.must)
    peer = group["best_peer"]
    if peer and group["ratios"][peer]["median"] < 1:
        misses.append(f"slower than {peer}")
    return {"misses": misses, "judged": reached is not None, "reached": reached, "aim": aimed}


def reached_of(target, group):
    """How much of the target's kind was reached, or None where nothing is asked or nobody was there."""
    if not target:
        return None
    if target.kind == "peak":
        return 100 * group["results"][0]["of_yardstick"]["median"]
    ratio = group["ratios"].get(target.of or target.kind)
    return ratio["median"] if ratio else None
