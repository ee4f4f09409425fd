#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: regard beside its peers, in one interleaved run, results checked first.

Every other .py file in this folder is a benchmark: it has DESCRIPTION, ROWS by their names, and
run(context), which returns the results for report.py. Where it has them, MORE_ROWS names rows that are
measured in another way, PEERS whom it can be measured beside, and add_arguments(parser) adds its options.
"""

import argparse
import dataclasses
import importlib
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE))

from lib import harness, machine, native, peers, report  # noqa: E402

BENCHMARKS = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "bench")
# Scripts of bench/python, which ./run starts itself.
THROUGH_PYTHON = {
    "accuracy": "Errors against double, beside PyTorch's and ONNX Runtime's",
    "distributed": "Attention over ranks of MPI: speed, bytes and waiting",
    "embed": "A pretrained encoder beside sentence-transformers, ONNX Runtime and OpenVINO",
    "fine_tune": "A pretrained encoder trained further, beside transformers and PyTorch",
    "torch": "Calls through Python beside PyTorch's",
    "view": "The viewer's server",
}


@dataclasses.dataclass
class Context:
    """What a benchmark is given."""

    library: native.Library
    arguments: argparse.Namespace
    rows: list
    threads: list
    peers: set
    missing_peers: dict  # name -> why
    seconds: float
    min_rounds: int
    progress: harness.Progress


def numbers(text):
    values = [int(part) for part in text.split(",")]
    if not all(value > 0 for value in values):
        raise argparse.ArgumentTypeError("threads are positive")
    return values


def row_names(benchmark):
    return [*benchmark.ROWS, *getattr(benchmark, "MORE_ROWS", ())]


def quick_names(benchmark):
    return [name for name, row in benchmark.ROWS.items() if row.quick]


def parse(argv, benchmark, name):
    """The options that all benchmarks have, and the benchmark's own."""
    cores = os.cpu_count() or 1
    names = row_names(benchmark)
    parser = argparse.ArgumentParser(
        prog=f"bench {name}",
        description=benchmark.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"rows: {' '.join(names)}\n\nexample: ./run bench {name} --rows {names[0]} --threads 1 --seconds 5",
    )
    parser.add_argument("--build-dir", type=pathlib.Path, help="the folder that holds libregard_bench.so")
    parser.add_argument("--rows", help="rows to run, with commas between; all if not given")
    parser.add_argument("--quick", action="store_true", help="the main rows in about 20 seconds, one thread")
    parser.add_argument("--seconds", type=float, help="time a row takes, about (20; quick 1.5)")
    parser.add_argument("--threads", type=numbers, help="thread counts, with commas between (1,2)")
    parser.add_argument(
        "--peers", default="all", help="all, none, or some of " + ",".join(peers.MODULES) + "; alone: install them"
    )
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: CPU time, for one thread on a busy machine"
    )
    parser.add_argument("--simd", help="SIMD target for regard and, where they can, its peers: avx512, avx2, ...")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results there")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into docs/benchmarks.md")
    getattr(benchmark, "add_arguments", lambda parser: None)(parser)
    arguments = parser.parse_args(argv)
    if arguments.build_dir is None:
        parser.error("--build-dir is needed; ./run bench gives it")
    alone = arguments.quick or cores < 2 or arguments.clock == "cpu"
    arguments.threads = arguments.threads or ([1] if alone else [1, 2])
    if arguments.clock == "cpu" and arguments.threads != [1]:
        parser.error("--clock cpu measures one thread only")
    arguments.seconds = arguments.seconds or (1.5 if arguments.quick else 20.0)
    wanted = arguments.rows.split(",") if arguments.rows else None
    arguments.rows = wanted or (quick_names(benchmark) if arguments.quick else names)
    for row in arguments.rows:
        if row not in names:
            parser.error(f"no row {row}; rows are {' '.join(names)}")
    return arguments


def choose_peers(choice, simd, usual):
    """The peers to use, and why the others are not."""
    names = {"all": list(usual), "none": []}.get(choice, choice.split(","))
    unknown = set(names) - set(peers.MODULES)
    if unknown:
        sys.exit(f"bench: no peer {', '.join(sorted(unknown))}; peers are {', '.join(peers.MODULES)}")
    missing = {name: why for name in names if (why := peers.missing(name))}
    if simd == "avx2" and "avx512f" in machine.cpu_flags() and "onnxruntime" in names:
        missing["onnxruntime"] = "cannot be held to AVX2"
    return {name for name in names if name not in missing}, missing


def make_context(arguments, benchmark):
    simd = (arguments.simd or "").lower()
    machine.prepare_environment(simd)
    try:
        library = native.load(arguments.build_dir)
        if simd:
            library.force_simd(machine.SIMD_NAMES.get(simd, arguments.simd).encode())
    except (OSError, native.NativeError) as error:
        sys.exit(f"bench: {error}")
    if arguments.clock == "cpu":
        library.set_clock(1)
        harness.use_cpu_clock()
    chosen, missing = choose_peers(arguments.peers, simd, getattr(benchmark, "PEERS", peers.USUAL))
    return Context(
        library=library,
        arguments=arguments,
        rows=arguments.rows,
        threads=arguments.threads,
        peers=chosen,
        missing_peers=missing,
        seconds=arguments.seconds,
        min_rounds=2 if arguments.quick else 3,
        progress=harness.Progress(),
    )


def split_off_install(argv):
    """(arguments, install): --peers without a value asks for the peers to be installed."""
    for at, word in enumerate(argv):
        following = argv[at + 1] if at + 1 < len(argv) else "-"
        if word == "--peers" and (following.startswith("-") or following in BENCHMARKS):
            return argv[:at] + argv[at + 1 :], True
    return argv, False


def build_dir_of(argv):
    for at, word in enumerate(argv):
        if word == "--build-dir" and at + 1 < len(argv):
            return argv[at + 1]
        if word.startswith("--build-dir="):
            return word.partition("=")[2]
    return None


def list_benchmarks():
    print("usage: ./run bench NAME [options]      the benchmark NAME; NAME --help for its options")
    print("       ./run bench --peers [NAME ...]  install those that it is measured beside first\n")
    for name in BENCHMARKS:
        print(f"  {name:<12} {importlib.import_module(name).DESCRIPTION}")
    for name, description in THROUGH_PYTHON.items():
        print(f"  {name:<12} {description}")


def main():
    argv, wants_install = split_off_install(sys.argv[1:])
    build_dir = build_dir_of(argv)
    if wants_install:
        if build_dir is None:
            sys.exit("bench: --peers needs --build-dir; ./run bench gives it")
        peers.install(build_dir)
        sys.argv = [sys.argv[0], *argv]
    name = next((word for word in argv if word in BENCHMARKS), None)
    if name is None:
        if not wants_install:
            list_benchmarks()
        known = {build_dir, "--build-dir", f"--build-dir={build_dir}", "-h", "--help"}
        unknown = [word for word in argv if word not in known]
        sys.exit(f"bench: no benchmark in: {' '.join(unknown)}" if unknown else 0)
    if build_dir is not None:
        peers.enter_venv(build_dir)
    benchmark = importlib.import_module(name)
    argv.remove(name)
    context = make_context(parse(argv, benchmark, name), benchmark)
    info = {
        "machine": machine.describe(),
        "simd": context.library.simd(),
        "versions": describe_versions(context),
        "clock": context.arguments.clock,
        "arguments": " ".join(word for word in shown_arguments(argv)),
    }
    quiet = getattr(context.arguments, "memory_child", None)
    if not quiet:
        report.print_header(info)
    try:
        results = benchmark.run(context)
    except (harness.WrongResult, native.NativeError) as error:
        sys.exit(f"bench: WRONG: {error}")
    if results is not None:
        finish(context, name, benchmark, info, results)


def describe_versions(context):
    found = {"regard": context.library.version(), **peers.versions(sorted(context.peers))}
    if "openblas" in context.peers and context.library.openblas():
        words = context.library.openblas().split()
        found["OpenBLAS"] = f"{words[1]} ({words[-2]} kernels)"
    return found


def shown_arguments(argv):
    """The arguments that matter to a reader: no folders of this machine."""
    skip = False
    for word in argv:
        if skip or word in ("--build-dir", "--json"):
            skip = not skip
        elif not word.startswith(("--build-dir=", "--json=")):
            yield word


def finish(context, name, benchmark, info, results):
    report.print_summary(results)
    if context.arguments.json:
        text = json.dumps({"benchmark": name, **info, "results": results}, indent=1)
        context.arguments.json.write_text(text + "\n", encoding="utf-8")
        print(f"written: {context.arguments.json}")
    if context.arguments.write_docs:
        page = HERE.parent / "docs" / "benchmarks.md"
        report.write_docs(page, name, benchmark.DESCRIPTION, info, results)
        print(f"written: {page.relative_to(HERE.parent)}")
    wrong = [result["row"] for result in results if result["kind"] == "wrong"]
    if wrong:
        sys.exit(f"bench: WRONG RESULT in {', '.join(wrong)}")


if __name__ == "__main__":
    main()
