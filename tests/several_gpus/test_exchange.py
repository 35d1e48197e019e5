"""Products over two devices that exchange operands (tests/kernels/fake_device.c), started at once and late."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.wire import view  # noqa: E402


class Exchange(harness.DaemonTest):
    settings = {"devices": "gpu0,gpu1,cpu", "autotune": 0}

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.rng = np.random.default_rng(self.random.randrange(1 << 31))

    def matrix(self, rows, columns):
        """(view, array) of random numbers."""
        buffer = self.c.import_new(rows * columns * 4)
        array = np.frombuffer(self.c.maps[buffer], np.float32).reshape(rows, columns)
        array[:] = self.rng.uniform(-1, 1, (rows, columns))
        return view(buffer, [rows, columns]), array

    def why(self, op):
        """Three times, as memory is registered for DMA first; then as a job that comes again."""
        receipts = [self.c.submit(op, device="gpu*", prepare=1)] + [self.c.run(1) for _ in range(2)]
        return [r["ops"][0]["why"] for r in receipts if not r["as_before"]][-1]

    def test_products(self):
        exchanged = 0
        for m, n, k in (600, 600, 700), (800, 512, 600), (513, 777, 600), (1024, 600, 512):
            (va, a), (vb, b), (vc, c) = self.matrix(m, k), self.matrix(k, n), self.matrix(m, n)
            why = self.why(wire.gemm(va, vb, vc))
            self.assertIn("2 tiles at once, on gpu0, gpu1", why)
            exchanged += "which exchange operands" in why
            for _ in range(6):
                a[:] = self.rng.uniform(-1, 1, a.shape)
                b[:] = self.rng.uniform(-1, 1, b.shape)
                c[:] = np.nan
                self.c.run(1)
                np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=0, atol=1e-3)
            self.c.forget(1)
        self.assertGreater(exchanged, 1)

    def test_the_end_of_a_session(self):
        """Its tiles come back, whatever the other one waits for, and others' products are right."""
        (va, a), (vb, b), (vc, c) = self.matrix(700, 700), self.matrix(700, 700), self.matrix(700, 700)
        op = wire.gemm(va, vb, vc)
        for _ in range(4):
            other = self.client()
            buffers = [view(other.import_new(600 * 600 * 4), [600, 600]) for _ in range(3)]
            other.submit(wire.gemm(*buffers), device="gpu*", prepare=1)
            other.run(1)
            other.start_submit(wire.gemm(*buffers), device="gpu*")
            other.close()
            c[:] = np.nan
            self.c.submit(op, device="gpu*")
            np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=0, atol=1e-3)


if __name__ == "__main__":
    harness.main()
