# SPDX-License-Identifier: Apache-2.0
"""Results for people: bars on the terminal, tables in docs/benchmarks.md.

A result is the plain data of one row (see attention.py): the same that --json writes.
"""

import pathlib
import re
import sys

from lib import harness, native

BAR_WIDTH = 30


def _bar(fraction):
    full = "\u2588" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    filled = round(min(max(fraction, 0.0), 1.0) * BAR_WIDTH)
    return full * filled + "." * (BAR_WIDTH - filled)


def duration(seconds):
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _percent(stats):
    return 100 * stats["median"], 100 * (stats["q3"] - stats["q1"])


def target_text(target):
    if not target:
        return ""
    kind = target["kind"]
    unit = {"peak": " %", "rate": " GFLOP/s", "baseline": "x " + target.get("of", "")}.get(kind, "x " + kind)
    text = f"{target['must']:g}{unit}"
    return text + (f", stretch {target['aim']:g}{unit}" if target.get("aim") else "")


def verdict_text(verdict):
    """"below target (81.2 of 85); slower than torch": every target missed, else "met" or "stretch met"; then a note."""
    if verdict is None:
        return ""
    if not verdict["misses"] and not verdict["judged"]:
        return "not judged"
    text = "; ".join(verdict["misses"]) or ("stretch met" if verdict["aim"] else "met")
    return f"{text} ({verdict['note']})" if "note" in verdict else text


def print_header(info):
    machine = info["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores, SIMD target {info['simd']}")
    print(", ".join(f"{name} {version}" for name, version in info["versions"].items()))


def print_row(result):
    """One row, with a bar for each contestant: its share of the yardstick."""
    if result["kind"] == "wrong":
        print(f"\n{result['row']}: WRONG RESULT, not timed: {result['error']}")
        return
    target = target_text(result["target"])
    print(f"\n{result['row']}: {result['title']}" + (f"   [{target}]" if target else ""))
    for name, why in result["skipped"].items():
        print(f"  {name} left out: {why}")
    if result["kind"] == "memory":
        _print_memory(result)
        return
    for group in result["threads"]:
        entries = group["results"]
        yard = entries[0]["yardstick"]["median"]
        print(f"  {group['threads']} thread(s), {result['yardstick']} {yard / 1e9:.1f} {result['unit']}")
        for entry in entries:
            part, iqr = _percent(entry["of_yardstick"])
            line = f"    {entry['contestant']:<16} {_bar(part / 100)} {part:5.1f} % (iqr {iqr:4.1f})"
            line += f" {entry['rate']['median'] / 1e9:7.1f} {result['unit']} {duration(entry['seconds']['median']):>8}"
            print(line + f" x{entry['rounds']} {entry['detail']}".rstrip())
        print("    " + _conclusion(group))


def _conclusion(group):
    words = []
    for name, ratio in group["ratios"].items():
        mark = " (best peer)" if name == group["best_peer"] else ""
        words.append(f"{ratio['median']:.2f}x {name}{mark}")
    if group.get("scaling"):
        words.append(f"{group['scaling']['median']:.2f}x of one thread")
    verdict = verdict_text(group["verdict"])
    return "regard: " + ", ".join(words + ([verdict] if verdict else []))


def _print_memory(result):
    for entry in result["variants"]:
        if "error" in entry:
            print(f"    {entry['options']:<28} {entry['error']}")
            continue
        print(
            f"    {entry['options']:<28} inputs {entry['inputs'] / 2**20:.0f} MiB, peak RSS"
            f" {entry['peak'] / 2**20:.0f} MiB, the call added {entry['added'] / 2**20:.1f} MiB"
            f" = {entry['added'] / entry['inputs']:.3f}x inputs, {duration(entry['seconds'])}"
        )
    print(f"    regard: {verdict_text(result['verdict'])}")


def measure_rows(context, measure):
    """measure(name) for every row asked for, each printed as it comes; a wrong result is one of them."""
    results = []
    for name in context.rows:
        try:
            result = measure(name)
        except (harness.WrongResult, native.NativeError) as error:
            result = {"kind": "wrong", "row": name, "error": str(error)}
        context.progress.clear()
        print_row(result)
        results.append(result)
    return results


def print_summary(results):
    """One line per row and thread count."""
    print(f"\n{'row':<22}{'threads':>7} {'% peak':>7} {'best peer':>22}  {'target':<40} result")
    for result in results:
        if result["kind"] == "wrong":
            print(f"{result['row']:<22} WRONG RESULT")
            continue
        if result["kind"] == "memory":
            print(f"{result['row']:<22}{'':>7} {'':>7} {'':>22}  {target_text(result['target']):<40} "
                  + verdict_text(result["verdict"]))
            continue
        for group in result["threads"]:
            part = 100 * group["results"][0]["of_yardstick"]["median"]
            peer = group["best_peer"]
            ratio = f"{group['ratios'][peer]['median']:.2f}x {peer}" if peer else "-"
            print(
                f"{result['row']:<22}{group['threads']:>7} {part:>7.1f} {ratio:>22}  "
                f"{target_text(result['target']):<40} {verdict_text(group['verdict'])}"
            )


def _markdown(name, description, info, results):
    machine = info["machine"]
    lines = [
        f"## {description}",
        "",
        f"Measured {machine['date']} on {machine['cpu']}, {machine['cores']} cores"
        + (" of a virtual machine" if machine["virtual"] else "")
        + f" ({', '.join(machine['features'])}), SIMD target {info['simd']}, with",
        ", ".join(f"{package} {version}" for package, version in info["versions"].items()) + ":",
        f"`./run bench {name} {info['arguments']}`".replace(" `", "`")
        + (". Times are CPU time of the thread, because the machine was busy." if info["clock"] == "cpu" else "."),
        "",
    ]
    speed = [r for r in results if r["kind"] == "speed"]
    peers = sorted({e["contestant"] for r in speed for g in r["threads"] for e in g["results"] if e["role"] == "peer"})
    heads = ["work", "threads", "target", "regard", "time", "IQR", *peers, "to the best peer", "to one thread", "result"]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for result in speed:
        for group in result["threads"]:
            lines.append("| " + " | ".join(_cells(result, group, peers)) + " |")
    lines += ["", _yardsticks(speed), ""]
    for result in results:
        if result["kind"] == "wrong":
            lines += [f"`{result['row']}`: **wrong result**, not timed ({result['error']}).", ""]
        if result["kind"] == "memory":
            lines += _memory_markdown(result)
    return "\n".join(lines)


def _yardsticks(speed):
    """What the percentages are of: for each yardstick its rows, where there are several."""
    rows = {}
    for result in speed:
        rows.setdefault(result["yardstick"], []).append(f"`{result['row']}`")
    if not rows:
        return ""
    parts = [f"the {name}" + (f" ({', '.join(of)})" if len(rows) > 1 else "") for name, of in rows.items()]
    return f"Speed is in % of {', or of '.join(parts)} of the same moment and thread count."


def _cells(result, group, peers):
    mine = group["results"][0]
    part, iqr = _percent(mine["of_yardstick"])
    others = {e["contestant"]: f"{_percent(e['of_yardstick'])[0]:.1f} %" for e in group["results"]}
    peer, scaling = group["best_peer"], group.get("scaling")
    return [
        f"{result['title']} (`{result['row']}`)",
        str(group["threads"]),
        target_text(result["target"]),
        f"**{part:.1f} %** ({mine['rate']['median'] / 1e9:.1f} {result['unit']})",
        duration(mine["seconds"]["median"]),
        f"{iqr:.1f}",
        *(others.get(name, "-") for name in peers),
        f"{group['ratios'][peer]['median']:.2f}x {peer}" if peer else "-",
        f"{scaling['median']:.2f}x" if scaling else "",
        verdict_text(group["verdict"]),
    ]


def _memory_markdown(result):
    target = target_text(result["target"])
    lines = [f"Memory, {result['title']}" + (f" (target {target})" if target else "") + ":", ""]
    lines += ["| options | inputs and output | peak RSS | the call added | time |", "|---|---|---|---|---|"]
    for entry in result["variants"]:
        if "error" in entry:
            lines.append(f"| {entry['options']} | {entry['error']} | | | |")
            continue
        cells = [f"{entry[key] / 2**20:.0f} MiB" for key in ("inputs", "peak")]
        cells.append(f"{entry['added'] / 2**20:.1f} MiB")
        lines.append(f"| {entry['options']} | " + " | ".join(cells) + f" | {duration(entry['seconds'])} |")
    return [*lines, ""]


_INTRODUCTION = """# Benchmarks

The tables are written by `./run bench NAME --write-docs`, and the numbers come from nowhere else. Text
outside the marked sections is written by hand and kept.

How it is measured: regard, its peers and a yardstick run in one process, in turns, in slices of about
20 ms or one call, with the yardstick right before and after each slice. A percentage is the median over
the rounds of the ratio to the yardstick of the same moment, so that a change of the machine's speed
affects both; IQR is the interquartile range, in points. Work counts the visible pairs only:
2 d_k + 2 d_v flops each. Every result is compared with a reference in double before it is timed. regard
and the OpenBLAS composition (sgemm, softmax, sgemm on blocks of 256 query rows) are called in a loop in
C++, the Python peers in a loop in Python, as their users call them. ONNX Runtime is the faster of its
opset-23 Attention and its own MultiHeadAttention.

*target* is the project's own goal for a row, and a stretch goal; *to the best peer* is regard's speed divided by that of the fastest
other library, so above 1x regard is faster; *to one thread* is the gain of two threads.
"""


def write_docs(path, name, description, info, results):
    """Replaces the section of one benchmark in the page and keeps everything else."""
    path = pathlib.Path(path)
    page = path.read_text(encoding="utf-8") if path.exists() else _INTRODUCTION
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n{_markdown(name, description, info, results)}\n{end}"
    section = re.sub(r"\n{3,}", "\n\n", section)
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(page):
        page = pattern.sub(lambda _: section, page)
    else:
        page = page.rstrip() + "\n\n" + section + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
