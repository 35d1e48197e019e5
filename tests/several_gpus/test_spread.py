"""Large ops over several devices at once, on simulated GPUs (simulated_gpu.c)."""
import os
import random
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.wire import view  # noqa: E402
from test_devices import EXIT_DEVICE_FAILED, SIMULATED, SimulatedDaemon  # noqa: E402


class Spread(unittest.TestCase):
    slow_op = harness.DaemonTest.slow_op
    _rate = {}

    def setUp(self):
        harness.KOPSD = SIMULATED
        self.daemon = SimulatedDaemon(hang_timeout="10min", autotune=0)  # trials are not spread
        self.addCleanup(self.daemon.remove)
        self.random = random.Random(harness.SEED)
        self.rng = np.random.default_rng(harness.SEED)

    def start(self, gpus=2):
        self.daemon.make("count", str(gpus))
        self.daemon.start()
        return self.connect()

    def connect(self):
        c = self.daemon.connect()
        self.addCleanup(c.close)
        return c

    def stop(self):
        self.assertEqual(self.daemon.stop(), 0)

    def array(self, c, *shape, dtype=np.float32):
        """(view, array) of random numbers."""
        x = self.rng.uniform(-1, 1, shape).astype(dtype)
        buffer = c.import_new(max(x.nbytes, 4096), x.tobytes())
        kinds = {np.float32: wire.F32, np.float64: wire.F64}
        return view(buffer, list(shape), dtype=kinds[dtype]), np.frombuffer(c.maps[buffer], dtype, x.size).reshape(shape)

    def submit(self, c, op, tiles, **options):
        """Three times: memory is registered for DMA first, and short jobs are spread when they come again. Returns why."""
        number = self.random.randrange(1, 1 << 60)
        receipts = [c.submit(op, prepare=number, **options), c.run(number), c.run(number)]
        c.forget(number)
        why = [r["ops"][0]["why"] for r in receipts if not r["as_before"]][-1]
        self.assertEqual("tiles at once" in why, tiles > 1, why)
        if tiles > 1:
            self.assertIn(f"; {tiles} tiles at once, on gpu", why)
        return why

    def busy(self, c):
        return {d["name"]: d["busy_us"] for d in c.stats()["devices"]}

    def test_a_product_of_both(self):
        c = self.start()
        (va, a), (vb, b), (vc, y) = self.array(c, 301, 400), self.array(c, 400, 257), self.array(c, 301, 257)
        op = wire.gemm(va, vb, vc, kernel="reference")
        self.submit(c, op, 1, device="gpu0")
        alone, y[:] = y.copy(), np.nan
        before = self.busy(c)
        self.assertIn("on gpu0, gpu1", self.submit(c, op, 2))
        np.testing.assert_array_equal(y, alone)
        np.testing.assert_allclose(y, a.astype(np.float64) @ b, rtol=0, atol=1e-3)
        took = {name: us - before[name] for name, us in self.busy(c).items()}
        self.assertGreater(took["gpu1"], took["gpu0"] / 6)
        self.assertEqual(took["cpu"], 0)
        # What it did for them counts as its user's.
        own, = [s for s in c.list_sessions() if s["own"]]
        self.assertGreater(own["usage"]["device_us"], took["gpu1"] + took["gpu0"] / 2)
        self.stop()

    def test_every_op_is_the_same_as_on_one(self):
        """Of any number of GPUs, shape and layout."""
        for gpus in 2, 3, 4, 7:
            c = self.start(gpus)
            spread = 0
            for _ in range(12):
                op, y, updates = self.random_op(c)
                results = []
                for device in "gpu0", "", "gpu*":
                    whys = [c.submit(op, device=device, prepare=1)["ops"][0]["why"]]
                    for _ in range(2):
                        y[:] = 0.5 if updates else np.nan
                        whys += [op["why"] for op in c.run(1).get("ops", [])]
                    results.append(y.copy())
                np.testing.assert_array_equal(results[1], results[0])
                np.testing.assert_array_equal(results[2], results[0])
                spread += any("tiles at once" in why for why in whys)
            self.assertGreater(spread, 3)
            self.stop()

    def random_op(self, c):
        """(op of some milliseconds, the array of its output, whether that is an input too)."""
        kind = self.random.choice(["gemm", "batch", "softmax", "add", "reduce"])
        m, n, k = (self.random.randrange(100, 400) for _ in range(3))
        if kind == "gemm":
            (va, _), (vb, _) = self.array(c, m, k), self.array(c, n, k)
            vy, y = self.array(c, m, n)
            vb["shape"], vb["strides"] = [k, n], [1, k]
            updates = self.random.random() < 0.5
            return wire.gemm(va, vb, vy, 1.5, -0.5 if updates else 0, kernel="reference"), y, updates
        if kind == "batch":
            (va, _), (vb, _) = self.array(c, 5, 70, k), self.array(c, 5, k, 80)
            vy, y = self.array(c, 5, 70, 80)
            return wire.gemm(va, vb, vy, kernel="reference"), y, False
        rows = self.random.randrange(2000, 3000)
        vx, _ = self.array(c, rows, 500)
        if kind == "reduce":
            vy, y = self.array(c, rows)
            return {**wire.reduce(vx, vy), "kernel": "reference"}, y, False
        vy, y = self.array(c, rows, 500)
        if kind == "softmax":
            return {**wire.softmax(vx, vy), "kernel": "reference"}, y, False
        vb, _ = self.array(c, 500)
        return {**wire.add(vx, vb, vy), "kernel": "reference"}, y, False

    def test_what_is_not_spread(self):
        c = self.start()
        (va, _), (vb, _), (vy, _) = self.array(c, 300, 400), self.array(c, 400, 300), self.array(c, 300, 300)
        op = wire.gemm(va, vb, vy, kernel="reference")
        self.submit(c, op, 1, device="gpu1")
        self.submit(c, op, 1, device="cpu")
        self.submit(c, [op, op], 1)
        self.submit(c, wire.copy(vy, self.array(c, 300, 300)[0]), 1)
        resident = c.resident(300 * 300 * 4, device="gpu1")
        self.submit(c, wire.gemm(va, vb, view(resident, [300, 300]), kernel="reference"), 1)
        self.submit(c, op, 2)
        # A device that has work is left alone.
        other = self.connect()
        long = other.start_submit(self.slow_op(other, 3000), device="gpu1")
        self.assertTrue(harness.eventually(other.any_running))
        self.submit(c, op, 1, device="gpu*")
        other.cancel(long)
        self.assertEqual(wire.STATUS_NAME[other.wait_any(long)["status"]], "CANCELLED")
        self.submit(c, op, 2)
        self.stop()

    def test_names_of_several(self):
        c = self.start()
        op = self.slow_op(c, 20)
        self.assertTrue(c.submit(op, device="gpu*")["device"].startswith("gpu"))
        self.assertEqual(c.submit(op, device="cpu*")["device"], "cpu")
        for name in "tpu*", "gpu2", "gpu", "**":
            with self.assertRaises(wire.Refused) as caught:
                c.submit(op, device=name)
            self.assertEqual(caught.exception.name, "DEVICE")
        self.stop()

    def test_the_order_of_a_queue(self):
        """The next job of the queue reads what the tiles have written, and the one before has ended."""
        c = self.start()
        (va, a), (vb, b), (vy, y), (vz, z) = (self.array(c, 450, 450) for _ in range(4))
        jobs = [wire.gemm(va, vb, vy, kernel="reference"), wire.copy(vy, va), wire.gemm(va, vb, vz, kernel="reference"),
                wire.copy(vz, vb)]
        why = []
        for _ in range(3):
            want_y = a.astype(np.float64) @ b
            want_z = want_y @ b
            y[:], z[:] = np.nan, np.nan
            ids = [c.start_submit(op) for op in jobs]
            why = [c.wait(i)["receipt"]["ops"][0]["why"] for i in ids]
            np.testing.assert_allclose(a, want_y, rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(b, want_z, rtol=1e-3, atol=1)
            a[:], b[:] = self.rng.uniform(-1, 1, a.shape), self.rng.uniform(-1, 1, b.shape)
        self.assertIn("tiles at once", why[0])
        self.stop()

    def test_prepared_runs_see_new_content(self):
        c = self.start(3)
        (va, a), (vb, b), (vy, y) = self.array(c, 300, 400), self.array(c, 400, 200), self.array(c, 300, 200)
        op = wire.gemm(va, vb, vy, kernel="reference")
        c.submit(op)
        c.submit(op, prepare=1)
        for _ in range(4):
            a[:] = self.rng.uniform(-1, 1, a.shape)
            y[:] = np.nan
            before = self.busy(c)
            c.run(1)
            np.testing.assert_allclose(y, a.astype(np.float64) @ b, rtol=0, atol=1e-3)
            self.assertTrue(all(us > before[name] for name, us in self.busy(c).items() if name != "cpu"))
        self.stop()

    def test_cancel(self):
        """Of many tiles, of which some have more to do than others; the devices are idle when it is answered."""
        c = self.start(3)
        op = self.slow_op(c, 4000)
        for _ in range(3):
            job = c.start_submit(op)
            self.assertTrue(harness.eventually(c.any_running))
            parts = [s["oldest"]["parts"] for s in c.list_sessions() if s["oldest"]]
            self.assertGreater(sum(parts), 2)
            c.cancel(job)
            self.assertEqual(wire.STATUS_NAME[c.wait_any(job)["status"]], "CANCELLED")
            for d in c.stats()["devices"]:
                self.assertEqual((d["running"], d["queued"]), (0, 0))
        c.submit(self.slow_op(c, 20))
        self.stop()

    def test_the_end_of_a_session(self):
        self.start()
        control = self.connect()
        for _ in range(3):
            c = self.daemon.connect()
            c.start_submit(self.slow_op(c, 2000))
            self.assertTrue(harness.eventually(control.any_running))
            c.close()
            self.assertTrue(harness.eventually(lambda: not control.any_running()))
        self.stop()

    def test_a_device_fails(self):
        """kopsd is replaced, as for any job; then the job can be sent again."""
        c = self.start()
        op = self.slow_op(c, 50)
        self.assertIn("tiles at once", c.submit(op)["ops"][0]["why"])
        self.daemon.make("fault")
        with self.assertRaises(wire.Ended):
            c.submit(op)
        self.assertEqual(self.daemon.wait(10), EXIT_DEVICE_FAILED)


if __name__ == "__main__":
    harness.main()
