# SPDX-License-Identifier: Apache-2.0
"""What one call takes of memory: measured in a process that does nothing else.

A benchmark with a row "memory" starts itself once more with --memory-child for each variant.
"""

import argparse
import json
import pathlib
import subprocess
import sys


def add_argument(parser):
    parser.add_argument("--memory-child", help=argparse.SUPPRESS)


def measure(context, benchmark, variant, more=(), limit=600):
    """What report() printed in a process of its own, or {"options", "error"}; `limit` is in seconds."""
    context.progress.show(f"memory: {variant}")
    command = [sys.executable, str(pathlib.Path(__file__).parents[1] / "bench.py"), benchmark]
    command += ["--build-dir", str(context.arguments.build_dir), "--memory-child", variant, *more]
    command += ["--simd", context.arguments.simd] if context.arguments.simd else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"options": variant, "error": f"stopped after {limit} s"}
    except subprocess.CalledProcessError as error:
        text = (error.stderr.splitlines() or [f"ended with {error.returncode}: no memory left?"])[-1]
        return {"options": variant, "error": text}


def now(field="VmRSS"):
    """Bytes, from /proc/self/status: getrusage would tell the parent's peak, which exec keeps."""
    lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def report(variant, inputs, before, seconds):
    """In the child, right after the call: what it took, as JSON."""
    peak = now("VmHWM")
    added = max(0, peak - before)
    print(json.dumps({"options": variant, "inputs": inputs, "peak": peak, "added": added, "seconds": seconds}))


def result(title, variants, misses, target=None):
    """The row for report.py."""
    return {
        "kind": "memory",
        "row": "memory",
        "title": title,
        "target": target,
        "skipped": {},
        "variants": variants,
        "verdict": {"misses": misses, "judged": True, "aim": False},
    }


def too_much(variant, must):
    """What is wrong with one variant, as a list: an error, or more than `must` times the inputs."""
    if "error" in variant:
        return [f"{variant['options']}: {variant['error']}"]
    return [f"{variant['options']}: too much"] if variant["added"] >= must * variant["inputs"] else []
