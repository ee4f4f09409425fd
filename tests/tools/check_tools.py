#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tools that guard the project: each must refuse what it is for."""

import gzip
import json
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
| capi | - | core, mask | - |
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


class PrepareEnZh(InATemporaryFolder):
    """The pairs of the bundled translator."""

    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(ROOT / "tools"))
        self.addCleanup(sys.path.remove, str(ROOT / "tools"))
        import prepare_en_zh
        for kind, names in (("train", prepare_en_zh.EVERYDAY + prepare_en_zh.PROSE), ("gloss", prepare_en_zh.WORDS)):
            for name in names:
                self.zip(f"{kind}_{name}.tsv.gz", [])
        for name in prepare_en_zh.MONO:
            self.zip(f"mono_{name}.txt.gz", [])
        self.zip("test_tatoeba.tsv.gz", ["The cat sleeps.\t\u732b\u5728\u7761\u89c9\u3002", "A dog barks.\t\u72d7\u53eb\u3002"])
        self.zip("test_covost2.tsv.gz", ["It is late.\t\u5df2\u7ecf\u5f88\u665a\u4e86\u3002"])

    def zip(self, name, lines):
        path = self.folder / "sources" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))

    def prepare(self, what, *more):
        done = run(sys.executable, ROOT / "tools/prepare_en_zh.py", what, self.folder / "sources", self.folder / "out", *more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def lines(self, name):
        return (self.folder / "out" / name).read_text(encoding="utf-8").splitlines()

    def test_phrases_are_mixed_in_and_hold_nothing_of_a_test(self):
        done = run(sys.executable, ROOT / "tools/write_phrases.py", self.folder / "out")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        written = dict(line.split("\t") for line in self.lines("phrases.tsv"))
        self.assertGreater(len(written), 4000)
        for english, chinese in (("Twelve.", "\u5341\u4e8c\u3002"), ("I have two cats.", "\u6211\u6709\u4e24\u53ea\u732b\u3002"), ("It's half past two.", "\u73b0\u5728\u4e24\u70b9\u534a\u3002"),
                                 ("Today is Sunday.", "\u4eca\u5929\u662f\u661f\u671f\u5929\u3002")):
            self.assertEqual(written[english], chinese)
        import write_phrases
        for number, english, chinese in ((0, "zero", "\u96f6"), (10, "ten", "\u5341"), (105, "one hundred and five", "\u4e00\u767e\u96f6\u4e94"),
                                         (110, "one hundred and ten", "\u4e00\u767e\u4e00\u5341"), (342, "three hundred and forty-two", "\u4e09\u767e\u56db\u5341\u4e8c"),
                                         (2007, "two thousand and seven", "\u4e8c\u5343\u96f6\u4e03"), (9070, "nine thousand and seventy", "\u4e5d\u5343\u96f6\u4e03\u5341")):
            self.assertEqual((write_phrases.in_english(number), write_phrases.in_chinese(number)), (english, chinese))
        self.assertFalse({"Good morning.", "Today is Monday.", "I'm from China."} & set(written))  # of the phrase book
        self.zip("test_tatoeba.tsv.gz", ["twelve\t12"])
        self.prepare("mix")
        self.assertEqual(set(written) - {line.split("\t")[0] for line in self.lines("train.tsv")}, {"Twelve."})

    def test_no_side_of_a_test_is_learnt_from(self):
        self.zip("train_hsk_sentences.tsv.gz", ["the cat sleeps!\t\u732b\u7761\u4e86\u3002", "A hound.\t\u72d7 \u53eb", "Tea?\t\u8336\uff1f"])
        self.zip("mono_tatoeba_ccby.txt.gz", ["\u5df2\u7ecf\u5f88\u665a\u4e86", "\u6211\u559d\u8336\u3002", "\u5979\u8d70\u4e86"])
        self.prepare("mono")
        self.assertEqual(self.lines("mono.zh"), ["\u6211\u559d\u8336\u3002", "\u5979\u8d70\u4e86"])
        (self.folder / "out/mono.en").write_text("I drink tea.\nShe left.\n", encoding="utf-8")
        self.prepare("mix")
        # "She left." has no mark at the end of its Chinese: no whole sentence.
        self.assertEqual(self.lines("train.tsv"), ["Tea?\t\u8336\uff1f", "I drink tea.\t\u6211\u559d\u8336\u3002"])

    def test_the_chinese_of_pairs_can_be_translated_too_but_for_that_of_tests(self):
        self.zip("train_hsk_sentences.tsv.gz", ["Tea?\t\u8336\uff1f", "Late!\t\u5df2\u7ecf\u5f88\u665a\u4e86\uff01"])
        self.zip("mono_tatoeba_ccby.txt.gz", ["\u6211\u559d\u8336\u3002", "\u8336\uff1f"])
        self.prepare("mono", "--pairs")
        self.assertEqual(self.lines("mono.zh"), ["\u8336\uff1f", "\u6211\u559d\u8336\u3002"])
        (self.folder / "out/mono.en").write_text("Some tea?\nI drink tea.\n", encoding="utf-8")
        self.prepare("mix")
        self.assertEqual(self.lines("train.tsv"), ["Tea?\t\u8336\uff1f", "I drink tea.\t\u6211\u559d\u8336\u3002"])
        self.assertEqual(self.lines("back.tsv"), ["Some tea?\t\u8336\uff1f"])

    def test_what_is_held_out_shares_no_side_with_what_is_learnt_from(self):
        self.zip("train_tatoeba.tsv.gz", [f"Sentence {i}.\t\u53e5\u5b50{i // 3}\u3002" for i in range(2000)])
        self.prepare("mix")
        held_out, learnt = self.lines("valid.tsv"), self.lines("train.tsv")
        self.assertTrue(held_out)
        sides = {side for line in held_out for side in line.split("\t")}
        self.assertFalse([line for line in learnt if sides & set(line.split("\t"))])

    def test_tests_come_as_a_file_for_each_language(self):
        self.prepare("tests")
        self.assertEqual(self.lines("tatoeba.en"), ["The cat sleeps.", "A dog barks."])
        self.assertEqual(self.lines("covost2.en"), ["It is late."])
        self.assertEqual(len(self.lines("tatoeba.zh")), 2)


class CheckIncludes(InATemporaryFolder):
    def check(self, name, text):
        self.write("docs/architecture.md", TABLE)
        self.write(name, text)
        return run(sys.executable, ROOT / "tools/check_includes.py", self.folder)

    def test_what_the_table_allows_passes(self):
        text = SPDX + '#include <vector>\n#include "regard/core/error.h"\n#include <hwy/highway.h>\n'
        done = self.check("src/mask/mask.cc", text)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_header_for_c_belongs_to_its_folder(self):
        done = self.check("src/mask/a.cc", SPDX + '#include "regard/c.h"\n')
        self.assertEqual(done.returncode, 1)
        self.assertIn("mask may not include capi", done.stdout)
        (self.folder / "src/mask/a.cc").unlink()
        done = self.check("src/capi/a.cc", SPDX + '#include "regard/c.h"\n')
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
        self.assertEqual(done.stdout.split(), ["guide_1.cc"])
        self.assertEqual(list(files), ["guide_1.cc"])
        self.assertTrue(files["guide_1.cc"].endswith("int main() {}\n"))

    def test_a_block_that_includes_is_compiled_without_a_main_of_its_own(self):
        done, files = self.extract("```cpp\n#include <cmath>\nint x;\n```\n")
        self.assertEqual(done.stdout.split(), ["guide_1.cc"])
        self.assertTrue(files["guide_1.cc"].endswith("#include <cmath>\nint x;\nint main() {}\n"))

    def test_a_program_in_c_is_taken_as_one_in_c(self):
        done, files = self.extract("```c\nint main(void) { return 0; }\n```\n"
                                   "```cpp\nint main() {}\n```\n```c\n#include <math.h>\n```\n")
        self.assertEqual(done.stdout.split(), ["guide_1.c", "guide_2.cc", "guide_3.c"])
        self.assertTrue(files["guide_3.c"].endswith("#include <math.h>\nint main(void) { return 0; }\n"))

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


class RunDocument(InATemporaryFolder):
    def run_document(self, text):
        return run(sys.executable, ROOT / "tools/run_document.py", self.write("guide.md", text))

    def test_blocks_see_the_names_of_those_before(self):
        done = self.run_document("```python\na = 1\n```\n\n```python\nassert a == 1\n```\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_block_that_lacks_its_imports_fails_at_its_line(self):
        done = self.run_document("Text.\n\n```python\nx = 1\nmath.pi\n```\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('guide.md", line 5', done.stderr)
        self.assertIn("name 'math' is not defined", done.stderr)

    def test_another_output_than_the_document_shows_fails(self):
        block = "```python\nprint(1 + 1)\n```\n\nOutput:\n\n```text\n%s\n```\n"
        self.assertEqual(self.run_document(block % "2").returncode, 0)
        done = self.run_document(block % "3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("+2", done.stdout)

    def test_a_block_without_a_language_is_not_run(self):
        self.assertEqual(self.run_document("```\nnonsense nonsense\n```\n").returncode, 0)


class MakeNotebook(InATemporaryFolder):
    TEXT = ("# Title\n\n[other](other.md)\n\n## One\n\n```cpp\nint main() {}\n```\n\nOutput:\n\n```text\n"
            "c\n```\n\n```python\nprint('p')\n```\n\nOutput:\n\n```text\np\n```\n\nEnd.\n")

    def make(self, *arguments):
        self.write("guide.md", self.TEXT)
        self.write("other.md", "# Other\n")
        return run(sys.executable, ROOT / "tools/make_notebook.py", *arguments,
                   self.folder / "guide.md", self.folder / "other.md")

    def test_python_becomes_cells_with_their_output_and_all_else_text(self):
        self.assertEqual(self.make().returncode, 0)
        book = json.loads((self.folder / "guide.ipynb").read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]]
        self.assertEqual([kind for kind, _ in cells], ["markdown", "markdown", "code", "markdown"])
        self.assertEqual(cells[0][1], "# Title\n\n[other](other.ipynb)")
        self.assertIn("```cpp\nint main() {}\n```", cells[1][1])
        self.assertIn("```text\nc\n```", cells[1][1])
        self.assertEqual(cells[2][1], "print('p')")
        self.assertEqual(book["cells"][2]["outputs"][0]["text"], ["p\n"])
        self.assertEqual(cells[3][1], "End.")

    def test_a_notebook_that_its_document_does_not_make_is_found(self):
        self.assertEqual(self.make().returncode, 0)
        self.assertEqual(self.make("--check").returncode, 0)
        path = self.folder / "guide.ipynb"
        path.write_text(path.read_text(encoding="utf-8").replace("End.", "Fin."), encoding="utf-8")
        done = self.make("--check")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is not what guide.md makes", done.stderr)


class Documents(unittest.TestCase):
    DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/**/*.md")]

    def setUp(self):
        self.assertGreater(len(self.DOCUMENTS), 5)
        self.texts = {path: path.read_text(encoding="utf-8") for path in self.DOCUMENTS}

    @staticmethod
    def without_code(text):
        return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)

    def headings(self, path):
        text = re.sub(r"^```.*?^```", "", self.texts[path], flags=re.M | re.S)
        return re.findall(r"^(#+) (.*)", text, flags=re.M)

    def test_every_link_leads_to_a_file_and_to_a_heading(self):
        broken = []
        for document, text in self.texts.items():
            # A lambda in code looks like a link.
            for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", self.without_code(text)):
                if "://" in link:
                    continue
                target = (document.parent / link).resolve() if link else document
                slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                         for _, title in (self.headings(target) if target in self.texts else [])]
                if not target.exists() or (anchor and anchor not in slugs):
                    broken.append(f"{document.relative_to(ROOT)}: {link}#{anchor}")
        self.assertEqual(broken, [])

    def test_every_fence_has_a_language_that_the_tests_know(self):
        # Another spelling, such as py or c++, would not be run.
        odd = [f"{document.relative_to(ROOT)}: {line}" for document, text in self.texts.items()
               for line in re.findall(r"^[ \t]*[`~]{3}.*", text, flags=re.M)
               if not re.fullmatch(r"```(|c|cmake|cpp|python|sh|text)", line)]
        self.assertEqual(odd, [])

    def test_a_page_in_chinese_has_the_parts_of_its_english_page(self):
        pages = [path for path in self.DOCUMENTS if path.name.endswith(".zh-CN.md")]
        self.assertGreater(len(pages), 5)
        for chinese in pages:
            english = chinese.with_name(chinese.name.replace(".zh-CN", ""))
            with self.subTest(page=str(chinese.relative_to(ROOT))):
                for one, other in ((chinese, english), (english, chinese)):
                    top = self.texts[one].split("\n## ")[0]
                    self.assertIn(f"]({other.name})", top)
                self.assertEqual([level for level, _ in self.headings(chinese)],
                                 [level for level, _ in self.headings(english)])
                fences = [re.findall(r"^```\w+", self.texts[path], flags=re.M)
                          for path in (chinese, english)]
                self.assertEqual(*fences)

    def test_the_notebooks_are_what_their_documents_make(self):
        lessons = ROOT.glob("docs/multi-head-attention*.md")
        done = run(sys.executable, ROOT / "tools/make_notebook.py", "--check", *lessons)
        self.assertEqual(done.returncode, 0, done.stderr)


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
