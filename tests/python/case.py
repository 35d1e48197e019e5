"""What the tests of the Python client share: a daemon, and clients of it."""
import gc
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness  # noqa: E402
from support.harness import LONG, eventually  # noqa: E402, F401
import kops  # noqa: E402

TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 4e-15}
DTYPES = [np.dtype(name) for name in TOLERANCE]
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * np.vectorize(lambda z: (1 + math.erf(z / math.sqrt(2))) / 2, otypes=[float])(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x))}


class PythonTest(harness.DaemonTest):
    """self.kops: a client for each test."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(self.random.randrange(1 << 31))
        self.kops = kops.connect(self.daemon.socket, name=self.id().rsplit(".", 1)[1])

    def tearDown(self):
        self.kops.close()
        del self.kops
        gc.collect()
        super().tearDown()

    def numbers(self, shape, dtype=np.float32):
        """Ordinary arrays."""
        return self.rng.uniform(-1, 1, shape).astype(dtype)

    def shared(self, shape, dtype=np.float32):
        return self.kops.asarray(self.numbers(shape, dtype))

    def poisoned(self, shape, dtype=np.float32):
        x = self.kops.empty(shape, dtype)
        x.fill(np.nan)
        return x

    def fails(self, kind, words, action, *args, **kwargs):
        """Asserts the exception and words of its sentence."""
        with self.assertRaises(kind) as caught:
            action(*args, **kwargs)
        self.assertIn(words, str(caught.exception))
        return caught.exception

    def near(self, result, expected, scale=1.0, say=""):
        """expected in float64; scale: how far elements may be from it, in roundings of the result's type."""
        self.assertEqual(result.shape, expected.shape, say)
        if expected.size:
            worst = np.abs(result.astype(np.float64) - expected).max()
            self.assertLessEqual(worst, TOLERANCE[result.dtype.name] * scale, say)
