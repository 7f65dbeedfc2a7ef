"""What the tests of the Python package share: a folder, the bundled model, texts, the command, and brute force in NumPy."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import knnlm

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = SOURCE / "models" / "small.gguf"
REMEMBERED = (
    "The nearest neighbours of a context are the contexts that were followed by similar words. "
    "A store remembers every context, and the word that followed it.\n"
)
ASKED = "A store remembers the word that followed every context of a text.\n"


class Folder(unittest.TestCase):
    """A test with a folder of its own, in memory where there is one."""

    @classmethod
    def setUpClass(cls):
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="knnlm-test-", dir=os.environ.get("TMPDIR", shared)))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def says(self, kind, pattern):
        """A failure of this kind whose message is one line that says so."""
        return self.assertRaisesRegex(kind, r"\A(?=[^\n]*\Z).*" + pattern)


class WithModel(Folder):
    """... and the bundled model in f32, with a store of a short text."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = knnlm.Model(MODEL, precision="f32")
        cls.remembered, cls.asked = cls.folder / "remembered.txt", cls.folder / "asked.txt"
        cls.remembered.write_text(REMEMBERED)
        cls.asked.write_text(ASKED)
        cls.store = knnlm.Store.build(cls.folder / "text.store", cls.model, cls.remembered, keys="f32", tune=False)

    @classmethod
    def tearDownClass(cls):
        cls.store.close()
        cls.model.close()
        super().tearDownClass()


def command(*arguments):
    """The JSON that the command prints."""
    run = subprocess.run([os.environ["KNNLM_COMMAND"], *map(str, arguments), "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def points(seed, n, dimension):
    """Vectors round some centres, as states are."""
    r = np.random.default_rng(seed)
    centres = np.random.default_rng(dimension).standard_normal((20, dimension)) * 2
    return (centres[r.integers(0, 20, n)] + r.standard_normal((n, dimension))).astype(np.float32)


def distances(queries, keys, kind):
    """(n, N) by the definition, in double precision."""
    q, k = queries.astype(np.float64), keys.astype(np.float64)
    if kind == "l2":
        return ((q[:, None] - k[None]) ** 2).sum(-1)
    if kind == "cosine":
        q, k = q / np.linalg.norm(q, axis=1, keepdims=True), k / np.linalg.norm(k, axis=1, keepdims=True)
    return (1 if kind == "cosine" else 0) - q @ k.T


def p_knn(far, values, vocabulary, k, temperature):
    """p_kNN (n, vocabulary) by the definition."""
    p = np.zeros((len(far), vocabulary))
    for row, d in zip(p, far):
        near = np.argsort(d, kind="stable")[:k]
        shares = np.exp((d[near[0]] - d[near]) / temperature)
        np.add.at(row, values[near], shares / shares.sum())
    return p
