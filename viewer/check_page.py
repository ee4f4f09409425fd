#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the viewer's page, in a folder of its own beside the sources.

  check_page.py page FOLDER   types, builds, and compares with page/index.html
  check_page.py unit FOLDER   the unit tests
  check_page.py e2e FOLDER    the page in Chromium, against a stand-in for the server
  check_page.py program FOLDER  the page as `regard view` serves it; REGARD_PROGRAM names the program

FOLDER gets a copy of the sources and the packages of package-lock.json. Ends with
77, the word for "skipped", where npm, its packages or Chromium are not to be had.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("src", "tests", "page")
FILES = ("package.json", "package-lock.json", ".npmrc", "tsconfig.json", "vite.config.ts", "index.html")
OLDEST_NODE = 18


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def find_npm():
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        skip("there is no npm here; on Debian: apt-get install nodejs npm")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", version)
    if not found or int(found[1]) < OLDEST_NODE:
        skip(f"node must be at least {OLDEST_NODE}; it is {version.strip() or 'silent'}")
    return npm


def copy_sources(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(HERE / name, folder / name)
    for name in FILES:
        shutil.copy2(HERE / name, folder / name)


def install(npm, folder):
    """The packages of the lock file, once for each state of it."""
    stamp = folder / "node_modules" / ".lock"
    lock = (HERE / "package-lock.json").read_bytes()
    if stamp.is_file() and stamp.read_bytes() == lock:
        return
    command = [npm, "ci", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
        if re.search(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET|ENETUNREACH|network", done.stderr):
            skip("the npm registry cannot be reached")
        sys.exit("npm ci failed; what it said stands above")
    stamp.write_bytes(lock)


def run(npm, folder, *script):
    return subprocess.run([npm, "run", "--silent", *script], cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode


def check_lock():
    """The lock file names no registry, so that each reader's own is used."""
    if '"resolved"' in (HERE / "package-lock.json").read_text(encoding="utf-8"):
        sys.exit("viewer/package-lock.json names a registry; delete it and run npm install with viewer/.npmrc in place")


def check_page(npm, folder):
    check_lock()
    if run(npm, folder, "build"):
        sys.exit("the page does not build; see above")
    built = (folder / "dist" / "index.html").read_bytes()
    if built != (HERE / "page" / "index.html").read_bytes():
        sys.exit("viewer/page/index.html is not what the sources build; in viewer/: npm ci && npm run page")
    print(f"viewer/page/index.html is up to date: {len(built)} bytes")


def has_chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    return bool(os.environ.get("REGARD_CHROMIUM")) or any(shutil.which(name) for name in names)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("page", "unit", "e2e", "program"):
        sys.exit(__doc__)
    step, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    npm = find_npm()
    if step in ("e2e", "program") and not has_chromium():
        skip("there is no Chromium here; on Debian: apt-get install chromium")
    copy_sources(folder)
    install(npm, folder)
    if step == "page":
        check_page(npm, folder)
    elif run(npm, folder, "test" if step == "unit" else step):
        sys.exit(f"the {step} tests failed; see above")


if __name__ == "__main__":
    main()
