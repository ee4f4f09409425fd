#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tools that guard the project: each must refuse what it is for."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
TABLE = """
| folder | what | may include | libraries |
|---|---|---|---|
| core | - | - | - |
| mask | - | core | hwy |
"""


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, **more)


class InATemporaryFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class Run(InATemporaryFolder):
    def setUp(self):
        super().setUp()
        for name in ("run", "tools/common.sh"):
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, path)
        shutil.copytree(ROOT / "bench", self.folder / "bench")

    def test_the_benchmarks_are_listed_and_explained_without_a_build(self):
        for arguments in ([], ["--help"], ["attention", "--help"], ["view", "-h"]):
            done = run(self.folder / "run", "bench", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertIn("usage: ", done.stdout)
            self.assertFalse((self.folder / "build").exists())

    def test_a_benchmark_that_is_none_is_refused_without_a_build(self):
        done = run(self.folder / "run", "bench", "atention")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no benchmark in: atention", done.stderr)
        self.assertFalse((self.folder / "build").exists())


class CheckIncludes(InATemporaryFolder):
    def check(self, name, text):
        self.write("docs/architecture.md", TABLE)
        self.write(name, text)
        return run(sys.executable, ROOT / "tools/check_includes.py", self.folder)

    def test_what_the_table_allows_passes(self):
        text = SPDX + '#include <vector>\n#include "regard/core/error.h"\n#include <hwy/highway.h>\n'
        done = self.check("src/mask/mask.cc", text)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_folder_above_is_refused(self):
        done = self.check("src/core/a.cc", SPDX + '#include "regard/mask/mask.h"\n')
        self.assertEqual(done.returncode, 1)
        self.assertIn("src/core/a.cc:2: core may not include mask", done.stdout)

    def test_a_private_header_of_a_folder_above_is_refused(self):
        done = self.check("include/regard/core/a.h", SPDX + '#include "mask/parts.h"\n')
        self.assertIn("core may not include mask", done.stdout)

    def test_a_library_not_in_the_row_is_refused(self):
        done = self.check("src/core/a.cc", SPDX + "#include <hwy/highway.h>\n")
        self.assertIn("core may not use the library hwy", done.stdout)

    def test_a_folder_without_a_row_is_refused(self):
        done = self.check("src/new/a.cc", SPDX)
        self.assertIn("folder new has no row", done.stdout)

    def test_text_that_is_not_ascii_is_refused(self):
        done = self.check("src/core/a.cc", SPDX + "// \u00e9\n")
        self.assertIn("src/core/a.cc:2: not ASCII", done.stdout)

    def test_a_missing_spdx_line_is_refused(self):
        done = self.check("tests/core/a.cc", "int a;\n")
        self.assertIn("must be the SPDX line", done.stdout)


class ExtractExamples(InATemporaryFolder):
    def extract(self, text):
        document = self.write("guide.md", text)
        out = self.folder / "out"
        done = run(sys.executable, ROOT / "tools/extract_examples.py", out, document)
        return done, {p.name: p.read_text() for p in out.glob("*")}

    def test_only_blocks_with_a_main_are_taken(self):
        done, files = self.extract("```cpp\nint x;\n```\n\n```cpp\nint main() {}\n```\n")
        self.assertEqual(done.stdout.split(), ["guide_1"])
        self.assertEqual(list(files), ["guide_1.cc"])
        self.assertTrue(files["guide_1.cc"].endswith("int main() {}\n"))

    def test_the_output_that_follows_is_taken(self):
        _, files = self.extract("```cpp\nint main() {}\n```\n\nOutput:\n\n```text\na\nb\n```\n")
        self.assertEqual(files["guide_1.txt"], "a\nb\n")

    def test_a_text_block_that_is_no_output_is_not_taken(self):
        _, files = self.extract("```cpp\nint main() {}\n```\nThe shape is:\n```text\na\n```\n")
        self.assertNotIn("guide_1.txt", files)

    def test_an_open_fence_is_refused(self):
        done, _ = self.extract("```cpp\nint main() {}\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("never closed", done.stderr)


class RunExample(InATemporaryFolder):
    def run_example(self, body, expected=None):
        program = self.write("program", "#!/bin/sh\n" + body)
        program.chmod(0o755)
        more = [self.write("expected.txt", expected)] if expected is not None else []
        return run(sys.executable, ROOT / "tools/run_example.py", program, *more)

    def test_the_same_output_passes(self):
        self.assertEqual(self.run_example("echo one", "one\n").returncode, 0)

    def test_another_output_fails(self):
        done = self.run_example("echo one", "two\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("+one", done.stdout)

    def test_a_program_that_fails_fails(self):
        self.assertNotEqual(self.run_example("exit 3").returncode, 0)


class PythonTest(InATemporaryFolder):
    def test_without_packages_it_is_skipped_with_a_word(self):
        script = self.write("a_test.py", "if __name__ == '__main__': pass\n")
        done = run(sys.executable, ROOT / "tools/python_test.py", self.folder / "venv", script)
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped", done.stdout)

    def test_a_script_that_would_run_nothing_is_refused(self):
        script = self.write("a_test.py", "import unittest\n")
        done = run(sys.executable, ROOT / "tools/python_test.py", self.folder / "venv", script)
        self.assertEqual(done.returncode, 1)


class Documents(unittest.TestCase):
    def test_every_link_leads_to_a_file(self):
        documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        self.assertGreater(len(documents), 5)
        broken = []
        for document in documents:
            text = document.read_text(encoding="utf-8")
            # A lambda in code looks like a link.
            text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
            for link in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in link and not (document.parent / link).exists():
                    broken.append(f"{document.relative_to(ROOT)}: {link}")
        self.assertEqual(broken, [])


class TestCommand(unittest.TestCase):
    def test_help_lists_the_suites(self):
        done = run(ROOT / "test", "--help", cwd="/")
        self.assertEqual(done.returncode, 0)
        for suite in ("asan", "tsan", "clang", "fuzz", "campaign", "all"):
            self.assertIn(suite, done.stdout)

    def test_wrong_arguments_are_refused_with_usage(self):
        for arguments, word in ((["nonsense"], "unknown argument: nonsense"),
                                (["--count"], "--count wants a value"),
                                (["campaign", "--count", "-3"], "positive number; got -3")):
            done = run(ROOT / "test", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
