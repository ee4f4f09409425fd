#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the library, moves it, and builds outside projects with it.

The package is installed to one prefix and moved to another, so that a path
written into it would be found out. Then a project with find_package and one with
pkg-config are built and run, for the library and for what is built upon it
(regard::tasks in CMake, regard-tasks in pkg-config). `--kind static` installs the
build folder as it is; `--kind shared` makes a Release build of its own, and checks
how large its library is. Of a shared library (that one, or the one that --surface
names) it checks the surface: what it links and exports, and that it neither reads
the environment nor prints.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MAY_NEED = re.compile(
    r"(libhwy|libstdc\+\+|libm|libgcc_s|libc|libpthread|ld-linux.*)\.so.*")
MUST_NOT_CALL = {"getenv", "secure_getenv", "printf", "puts", "putchar", "exit",
                 "_ZSt4cout", "_ZSt4cerr", "_ZSt4clog",
                 "_ZNSt8ios_base4InitC1Ev"}
MAX_BYTES = 3 * 1024 * 1024


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        print("$", *command)
        print(done.stdout[-6000:])
        sys.exit(f"{command[0]} ended with {done.returncode}")
    return done.stdout


def expect(rule, text):
    if not rule:
        sys.exit("check_package: " + text)


def install(args, prefix):
    if args.kind == "shared":
        run(args.cmake, "-S", args.source, "-B", args.build, "-G", args.generator,
            "-DCMAKE_BUILD_TYPE=Release", "-DREGARD_BUILD_TESTS=OFF",
            "-DREGARD_WERROR=ON", "-DBUILD_SHARED_LIBS=ON",
            f"-DCMAKE_CXX_COMPILER={args.compiler}",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={args.launcher}")
        run(args.cmake, "--build", args.build)
    run(args.cmake, "--install", args.build, "--prefix", prefix)


def check_texts(prefix, scratch, args):
    """No installed text names a folder of the machine that built it."""
    for path in prefix.rglob("*"):
        if path.is_file() and path.suffix in {".cmake", ".pc", ".h"}:
            text = path.read_text(encoding="utf-8")
            for folder in (args.source, args.build, str(scratch)):
                expect(folder not in text, f"{path.name} names {folder}")


def check_surface(library):
    dynamic = run("readelf", "-d", library)
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        expect(MAY_NEED.fullmatch(needed), f"{library.name} links {needed}")
    undefined = {line.split()[-1].split("@")[0]
                 for line in run("nm", "-D", "--undefined-only", library).splitlines()}
    called = undefined & MUST_NOT_CALL
    expect(not called, f"{library.name} calls {', '.join(sorted(called))}")
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    header = pathlib.Path(HERE.parents[1], "include/regard/c.h").read_text(encoding="utf-8")
    for_c = set(re.findall(r"\b(regard_\w+)\(", header))
    expect(for_c and for_c <= exported, f"{library.name} lacks {', '.join(sorted(for_c - exported))}")
    more = {name for name in exported if name.startswith("regard_")} - for_c
    expect(not more, f"{library.name} exports {', '.join(sorted(more))}, which regard/c.h does not declare")


def check_size(library, scratch):
    stripped = scratch / "stripped.so"
    run("strip", "-o", stripped, library)
    size = stripped.stat().st_size
    expect(size < MAX_BYTES, f"{library.name} is {size} bytes stripped")
    print(f"{library.name}: {size} bytes stripped")


def outside_by_cmake(args, prefix, scratch, version):
    build = scratch / "by_cmake"
    run(args.cmake, "-S", HERE / "by_cmake", "-B", build, "-G", args.generator,
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={args.compiler}",
        f"-DEXPECTED_VERSION={version}")
    run(args.cmake, "--build", build)
    print("find_package:", run(build / "outside").strip())
    print("find_package from C:", run(build / "outside_c").strip())
    print("with tasks:", run(build / "outside_tasks", translator(prefix)).strip())


def outside_by_pkg_config(args, prefix, scratch, version):
    (folder,) = {path.parent for path in prefix.rglob("*.pc")}
    env = dict(os.environ, PKG_CONFIG_PATH=str(folder))
    paths = dict(os.environ, LD_LIBRARY_PATH=str(folder.parent))
    for package, source, arguments in (("regard", "outside.cc", []),
                                       ("regard-tasks", "outside_tasks.cc", [translator(prefix)])):
        flags = run("pkg-config", "--cflags", "--libs", package, env=env).split()
        program = scratch / f"by_pkg_config_{package}"
        run(args.compiler, "-std=c++20", f'-DEXPECTED_VERSION="{version}"',
            HERE / source, *flags, "-o", program)
        print(f"pkg-config {package}:", run(program, *arguments, env=paths).strip())
    # By the C compiler alone.
    flags = run("pkg-config", "--cflags", "--libs", "regard", env=env).split()
    program = scratch / "by_pkg_config_c"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f'-DEXPECTED_VERSION="{version}"',
        HERE / "outside.c", *flags, "-lm", "-o", program)
    print("pkg-config from C:", run(program, env=paths).strip())


def translator(prefix):
    """The one that is installed with the program."""
    (folder,) = prefix.rglob("models/en-zh")
    return folder


def main():
    parser = argparse.ArgumentParser()
    for name in ("kind", "source", "build", "cmake", "generator", "compiler"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--surface", type=pathlib.Path)
    args = parser.parse_args()
    if args.surface:
        check_surface(args.surface)
    root_lists = pathlib.Path(args.source, "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(regard VERSION ([\d.]+)", root_lists)[1]
    with tempfile.TemporaryDirectory(prefix="regard-package-") as name:
        scratch = pathlib.Path(name)
        install(args, scratch / "first")
        prefix = scratch / "moved" / "elsewhere"
        prefix.parent.mkdir()
        shutil.move(scratch / "first", prefix)
        check_texts(prefix, scratch, args)
        if args.kind == "shared":
            libraries = [p for p in prefix.rglob("libregard.so*") if not p.is_symlink()]
            expect(len(libraries) == 1, f"{len(libraries)} shared libraries are installed")
            check_surface(libraries[0])
            check_size(libraries[0], scratch)
        outside_by_cmake(args, prefix, scratch, version)
        outside_by_pkg_config(args, prefix, scratch, version)
        program = prefix / "bin" / "regard"
        if program.exists():
            print("program:", run(program, "--version").strip())
            print("translates:", run(program, "translate", "Thank you.").strip())


if __name__ == "__main__":
    main()
