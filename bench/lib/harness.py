# SPDX-License-Identifier: Apache-2.0
"""Times contestants in turns, in short slices, each between two slices of a yardstick.

A shared machine changes its speed from one second to the next. So nobody is timed for long, every
slice has the yardstick (the FMA peak, a plain read) measured right before and after it, and what is
reported is the median, over the rounds, of the ratio to the yardstick of the same moment.
"""

import math
import statistics
import sys
import time

# A slice of work is at least this long; one of the yardstick about this long.
SLICE_SECONDS = 0.02
YARDSTICK_SECONDS = 0.008
# Thread pools spin for a while after their last task; let them fall asleep before the next one.
SETTLE_SECONDS = 0.003
MAX_ROUNDS = 400


# What contestants written in Python time themselves with; bench.py may choose thread_time.
_clock = time.perf_counter


def clock():
    return _clock()


def use_cpu_clock():
    """Counts the CPU time of the calling thread, for one thread on a busy machine."""
    global _clock
    _clock = time.thread_time


class WrongResult(Exception):
    """A contestant's result is not the reference's: its time would mean nothing."""


class Skipped(Exception):
    """A contestant cannot do this row; the text says why."""


class Contestant:
    """Somebody who does the work of a row.

    run(calls) does it that many times and returns the seconds; check() compares the last result with
    the truth and raises WrongResult. role is "regard", "baseline" (regard on another case, for a
    ratio) or "peer".
    """

    name = "?"
    role = "peer"
    detail = ""
    threads = 1

    def run(self, calls):
        raise NotImplementedError

    def check(self):
        raise NotImplementedError


class TimedContestant(Contestant):
    """One that knows its own time, to tell a rate: work(calls) is what run(calls) is elsewhere."""

    def __init__(self):
        self._seconds = []

    def work(self, calls):
        raise NotImplementedError

    def run(self, calls):
        seconds = self.work(calls)
        self._seconds.append(seconds / calls)
        return seconds

    def median_seconds(self):
        return statistics.median(self._seconds)


class _Lane:
    """The slices of one contestant."""

    def __init__(self, contestant):
        self.contestant = contestant
        self.calls = 1
        self.spent = 0.0
        self.rounds = {}  # round -> (seconds a call, yardstick a second)

    def calibrate(self):
        self.contestant.run(1)
        seconds = max(self.contestant.run(1), 1e-7)
        while seconds < SLICE_SECONDS / 2:
            self.calls = max(self.calls * 2, int(self.calls * SLICE_SECONDS / seconds))
            seconds = max(self.contestant.run(self.calls), 1e-7)
        self.calls = max(1, math.ceil(self.calls * SLICE_SECONDS / seconds))

    def measure(self, number, yardstick):
        threads = self.contestant.threads
        before = yardstick(threads, YARDSTICK_SECONDS)
        seconds = self.contestant.run(self.calls)
        time.sleep(SETTLE_SECONDS)
        after = yardstick(threads, YARDSTICK_SECONDS)
        self.rounds[number] = (seconds / self.calls, (before + after) / 2)
        self.spent += seconds + 2 * YARDSTICK_SECONDS + SETTLE_SECONDS


def measure(contestants, yardstick, seconds, min_rounds=3, progress=lambda text: None):
    """Times everybody within about `seconds` in all; returns a list of lanes in the same order.

    yardstick(threads, seconds) returns its units a second. Who is slow gets fewer rounds, but at least
    min_rounds (one, if a single call takes longer than `seconds`).
    """
    lanes = [_Lane(contestant) for contestant in contestants]
    for lane in lanes:
        progress(f"warming up {lane.contestant.name}")
        lane.calibrate()
    share = seconds / max(len(lanes), 1)
    for number in range(MAX_ROUNDS):
        open_lanes = [lane for lane in lanes if _has_time(lane, number, share, min_rounds, seconds)]
        if not open_lanes:
            break
        progress(f"round {number + 1}")
        # Start with another one each round, so that nobody always follows the same neighbour.
        first = number % len(open_lanes)
        for lane in open_lanes[first:] + open_lanes[:first]:
            lane.measure(number, yardstick)
    return lanes


def _has_time(lane, number, share, min_rounds, seconds):
    if number == 0:
        return True
    if lane.spent / number > seconds:
        return False
    return number < min_rounds or lane.spent < share


def spread(values):
    """Median and quartiles."""
    values = sorted(values)
    if len(values) == 1:
        return {"median": values[0], "q1": values[0], "q3": values[0]}
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "q1": q1, "q3": q3}


def summarize(lane, work):
    """A lane as plain data; work is the flops (or bytes) of one call."""
    slices = lane.rounds.values()
    return {
        "contestant": lane.contestant.name,
        "role": lane.contestant.role,
        "detail": lane.contestant.detail,
        "threads": lane.contestant.threads,
        "rounds": len(slices),
        "calls": lane.calls,
        "seconds": spread([s for s, _ in slices]),
        "rate": spread([work / s for s, _ in slices]),
        "yardstick": spread([y for _, y in slices]),
        "of_yardstick": spread([work / s / y for s, y in slices]),
    }


def speedup(lane, other):
    """How many times faster `lane` is than `other`, over the rounds that both ran.

    Each is first divided by the yardstick of its moment when both use the same number of threads.
    """
    same = lane.contestant.threads == other.contestant.threads
    ratios = []
    for number in lane.rounds.keys() & other.rounds.keys():
        (mine, my_yard), (theirs, their_yard) = lane.rounds[number], other.rounds[number]
        ratios.append(theirs / mine * (their_yard / my_yard if same else 1.0))
    return spread(ratios)


class Progress:
    """One line on a terminal that overwrites itself; silence elsewhere."""

    def __init__(self):
        self._live = sys.stderr.isatty()

    def show(self, text):
        if self._live:
            print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)

    def clear(self):
        self.show("")
