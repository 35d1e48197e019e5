"""Jobs of a device with memory of its own (tests/kernels/fake_device.c), of which it has less than their operands take."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.wire import view  # noqa: E402

MEMORY = 2 << 20


class OwnMemory(harness.DaemonTest):
    settings = {"devices": "gpu0,cpu", "max_device_memory": MEMORY, "autotune": 0}

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

    def submit(self, *ops, in_parts=True):
        receipt = self.c.submit(list(ops), device="gpu0")
        for op in receipt["ops"]:
            self.assertEqual("two of which are on the device at a time" in op["why"], in_parts, op["why"])

    def test_it_has_what_the_setting_says(self):
        device = self.c.stats()["devices"][0]
        self.assertEqual(device["name"], "gpu0")
        self.assertEqual({d["name"]: d["memory_bytes"] for d in self.c.describe()["devices"]}["gpu0"], MEMORY)

    def test_a_product(self):
        (va, a), (vb, b), (vc, c) = self.matrix(700, 600), self.matrix(600, 500), self.matrix(700, 500)
        want = 2 * (a.astype(np.float64) @ b) - 0.5 * c
        self.submit(wire.gemm(va, vb, vc, 2, -0.5))
        np.testing.assert_allclose(c, want, rtol=0, atol=1e-3)

    def test_ops_that_follow_each_other(self):
        (va, a), (vb, b), (vc, c), (vd, d) = (self.matrix(600, 600) for _ in range(4))
        product = a.astype(np.float64) @ b
        self.submit(wire.gemm(va, vb, vc), wire.add(vc, va, vc), wire.transpose(vc, vd))
        np.testing.assert_allclose(c, product + a, rtol=0, atol=1e-3)
        np.testing.assert_array_equal(d, c.T)

    def test_prepared_jobs_find_new_content(self):
        (va, a), (vb, b), (vc, c) = (self.matrix(500, 500) for _ in range(3))
        self.c.submit(wire.gemm(va, vb, vc), device="gpu0", prepare=1)
        for _ in range(3):
            a[:] = self.rng.uniform(-1, 1, a.shape)
            self.c.run(1)
            np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=0, atol=1e-3)

    def test_beside_a_resident_buffer(self):
        """What fits the device alone, and no longer beside the buffer."""
        vx, x = self.matrix(300, 700)
        vy, y = self.matrix(300, 700)
        self.submit(wire.softmax(vx, vy), in_parts=False)
        self.c.submit(wire.softmax(vx, vy), device="gpu0", prepare=1)
        e = np.exp(x.astype(np.float64))
        resident = self.c.resident(MEMORY // 8 * 7, device="gpu0")
        for run in (lambda: self.submit(wire.softmax(vx, vy)), lambda: self.c.run(1)):
            y[:] = np.nan
            run()
            np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
        self.c.drop(resident)
        self.submit(wire.softmax(vx, vy), in_parts=False)

    def test_what_fits_in_no_parts_is_refused(self):
        """A row of a softmax is not moved in pieces. The CPU takes it, unless the GPU is asked for."""
        vx, _ = self.matrix(1, 1 << 20)
        vy, y = self.matrix(1, 1 << 20)
        with self.assertRaises(wire.Refused) as e:
            self.submit(wire.softmax(vx, vy))
        self.assertEqual(e.exception.name, "NOMEM")
        self.assertIn("device memory", e.exception.message)
        self.assertEqual(self.c.submit(wire.softmax(vx, vy))["device"], "cpu")
        np.testing.assert_allclose(y.sum(dtype=np.float64), 1, rtol=1e-4)


if __name__ == "__main__":
    harness.main()
