# SPDX-License-Identifier: Apache-2.0
"""regard classify --score against scikit-learn: accuracy, macro F1, confusion matrix."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

try:
    from sklearn import metrics
except ImportError:
    print("scikit-learn is not there")
    sys.exit(77)

PROGRAM = os.environ["REGARD_PROGRAM"]


def regard(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True).stdout


class Score(unittest.TestCase):
    def test_is_scikit_learns(self):
        with tempfile.TemporaryDirectory() as folder:
            regard("sample", "classify", "--out", folder)
            with open(f"{folder}/test.tsv", encoding="utf-8") as lines:
                rows = [line.rstrip("\n").split("\t") for line in lines][1:]
            # Labels that are wrong now and then, and one that the model has never heard of.
            draw = random.Random(1)
            names = ["mixed", "negative", "positive", "unheard"]
            truth = [draw.choice(names) if draw.random() < 0.3 else label for _, label in rows]
            path = f"{folder}/noisy.jsonl"
            with open(path, "w", encoding="utf-8") as out:
                for (text, _), label in zip(rows, truth):
                    out.write(json.dumps({"text": text, "label": label}) + "\n")
            said = [line.split("\t")[0] for line in regard("classify", "--input", path).splitlines()]
            score = json.loads(regard("classify", "--input", path, "--score", "--json"))
        self.assertEqual(len(said), len(truth))
        self.assertAlmostEqual(score["accuracy"], metrics.accuracy_score(truth, said), places=12)
        self.assertAlmostEqual(score["macro_f1"], metrics.f1_score(truth, said, average="macro"), places=12)
        self.assertEqual(score["confusion"], metrics.confusion_matrix(truth, said).tolist())
        parts = metrics.precision_recall_fscore_support(truth, said, zero_division=0)
        for name, values in zip(["precision", "recall", "f1", "texts"], parts):
            for label, value in zip(score["labels"], values):
                self.assertAlmostEqual(label[name], value, places=12)


if __name__ == "__main__":
    unittest.main()
