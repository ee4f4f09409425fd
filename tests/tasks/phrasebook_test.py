#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundled translator on a phrase book: 100 sentences of ours, both ways.

A line of phrasebook.tsv: English, what its translation must have, Chinese, what
its translation must have. Groups are divided by semicolons; of each, one word
(divided by bars) must be there. That is lenient: it finds what is wrong for sure.
The floor is what the bundled model reaches; a better one raises it.
"""

import os
import pathlib
import re
import subprocess
import unittest

FLOOR = 97
BOOK = pathlib.Path(__file__).with_name("phrasebook.tsv")


def is_right(text, groups):
    def has(word):
        if word.isascii():
            return re.search(r"(?<!\w)" + re.escape(word.lower()), text.lower())
        return word in text

    return all(any(has(word) for word in group.split("|")) for group in groups.split(";"))


class PhraseBook(unittest.TestCase):
    def expect(self, target, sentence, wanted):
        rows = [line.split("\t") for line in BOOK.read_text(encoding="utf-8").splitlines()]
        done = subprocess.run([os.environ["REGARD_PROGRAM"], "translate", "--to", target],
                              input="".join(row[sentence] + "\n" for row in rows),
                              capture_output=True, text=True, encoding="utf-8", check=True)
        answers = done.stdout.splitlines()
        self.assertEqual(len(answers), len(rows))
        wrong = [f"{row[sentence]} -> {answer}" for row, answer in zip(rows, answers)
                 if not is_right(answer, row[wanted])]
        print(f"into {target}: {len(rows) - len(wrong)} of {len(rows)}", *wrong, sep="\n  ")
        self.assertGreaterEqual(len(rows) - len(wrong), FLOOR)

    def test_into_chinese(self):
        self.expect("zh", 0, 1)

    def test_into_english(self):
        self.expect("en", 2, 3)

    def test_each_row_would_pass_its_own_other_side(self):
        for line in BOOK.read_text(encoding="utf-8").splitlines():
            english, in_chinese, chinese, in_english = line.split("\t")
            self.assertTrue(is_right(chinese, in_chinese), line)
            self.assertTrue(is_right(english, in_english), line)


if __name__ == "__main__":
    unittest.main()
