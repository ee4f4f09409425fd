# SPDX-License-Identifier: Apache-2.0
"""What survives a translation. Addresses, signs that the pieces do not know and numbers that nobody spells out: always, in
any model. Small numbers and names: as far as a model knows them, here OPUS-MT."""

import json
import os
import pathlib
import subprocess
import unicodedata
import unittest

PROGRAM = os.environ.get("REGARD_PROGRAM", "build/dev/bin/regard")
OPUS = pathlib.Path.home() / ".cache/regard-models/opus-mt-zh-en"


def translated(lines, *options):
    done = subprocess.run([PROGRAM, "translate", *options], input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


class TheProgramCopies(unittest.TestCase):
    """With the bundled translator, which knows none of these."""

    def check(self, parts, frames, to):
        lines = [frame.format(part) for part in parts for frame in frames]
        wanted = [part for part in parts for _ in frames]
        for line, part, text in zip(lines, wanted, translated(lines, "--to", to)):
            self.assertEqual(text.count(part), 1, f"{line!r} became {text!r}")

    def test_addresses(self):
        parts = ["https://example.com/a?b=1#c", "www.example.org", "jo.do-1@mail.example.org"]
        self.check(parts, ["See {} for more.", "{}", "I wrote to {}, and he came.", "It is here: {}"], "zh")
        self.check(parts, ["\u8bf7\u770b{}\u3002", "\u4ed6\u7ed9\u4e86\u6211 {} \u548c\u94b1\u3002"], "en")

    def test_signs(self):
        parts = ["\U0001f600", "\U0001f389\U0001f389", "\u2603", "\U00020bb7"]
        self.check(parts, ["I love you {}", "{} I love you.", "I love {} and tea.", "{}"], "zh")

    def test_accents_of_their_own(self):
        lines = ["I like caf\u00e9.", "The na\u00efve girl from Malm\u00f6 eats cr\u00eapes."]
        apart = [unicodedata.normalize("NFD", line) for line in lines]
        self.assertNotEqual(lines, apart)
        self.assertEqual(translated(apart, "--to", "zh"), translated(lines, "--to", "zh"))
        # No character is an x with a macron.
        self.assertNotIn("\u0304", translated(["The mean is x\u0304 here."], "--to", "zh")[0])

    def test_numbers(self):
        parts = ["25.50", "555-0199", "13800138000", "2.0.1", "3-1", "2019"]
        self.check(parts, ["It costs {} dollars.", "My number is {}.", "We met him at {}, and he left.", "{}"], "zh")
        self.check(parts, ["\u8fd9\u672c\u4e66{}\u5143\u3002", "\u6211\u7684\u7535\u8bdd\u662f{}\u3002"], "en")
        for text in translated(["The train leaves at 7:45.", "It is 7:45 now."], "--to", "zh"):
            self.assertRegex(text, "7(:|\uff1a|\u70b9)45", text)
        for text in translated(["There are 1,234 people.", "1,234 is a number."], "--to", "zh"):
            self.assertEqual(text.replace(",", "").count("1234"), 1, text)

    def test_a_text_keeps_its_lines(self):
        text = "I like tea. He likes fish.\n\n\nWe go home.\n"
        done = subprocess.run([PROGRAM, "translate", "--to", "zh", text], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.split("\n")
        self.assertEqual([bool(line) for line in lines], [True, False, False, True, False, False])
        alone = translated(["I like tea.", "He likes fish.", "We go home."], "--to", "zh")
        self.assertEqual([lines[0], lines[3]], [alone[0] + alone[1], alone[2]])


    def test_a_line_may_be_taken_whole(self):
        lines = ["I don't trust you. You always lie.", "I am an artist. I like tea. Come in."]
        aligned = [json.loads(line)["translation"] for line in translated(lines, "--to", "zh", "--align", "--json")]
        self.assertEqual(translated(lines, "--to", "zh", "--whole"), aligned)


class TheModelKnows(unittest.TestCase):
    def setUp(self):
        if not OPUS.exists():
            self.skipTest(f"{OPUS} is not there")

    def check(self, cases):
        found = translated([line for line, _ in cases], "--model", str(OPUS))
        for (line, words), text in zip(cases, found):
            for word in words:
                self.assertIn(word, text, f"{line!r} became {text!r}")

    def test_numbers(self):
        self.check([("\u4ed6\u6709 25 \u672c\u4e66\u3002", ["25"]),
                    ("\u6211\u51fa\u751f\u4e8e1987\u5e74\u3002", ["1987"]),
                    ("\u7535\u8bdd\u53f7\u7801\u662f 5551234\u3002", ["5551234"]),
                    ("\u4ef7\u683c\u662f 3.5 \u7f8e\u5143\u3002", ["3.5"])])

    def test_names(self):
        self.check([("\u6c64\u59c6\u4f4f\u5728\u6ce2\u58eb\u987f\u3002", ["Tom", "Boston"]),
                    ("\u6211\u548c Alice \u53bb\u5df4\u9ece\u3002", ["Alice", "Paris"])])


if __name__ == "__main__":
    unittest.main()
