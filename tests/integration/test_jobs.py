"""What jobs compute, against NumPy in float64, and the order in which they run."""

import time

import numpy as np

from support import harness, wire
from support.wire import HIGH, LOW, NORMAL, RESIDENT, view


class Arrays(harness.DaemonTest):
    """Operands with every kind of layout."""

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.rng = np.random.default_rng(self.random.randrange(1 << 31))

    def place(self, shape, layout, dtype=np.float32, wire_type=wire.F32, fill=True):
        """(view, its NumPy counterpart over the shared memory) of one layout."""
        size = np.dtype(dtype).itemsize
        axes = list(range(len(shape)))
        if layout == "transposed":
            axes[-2:] = axes[-2:][::-1]
        gap = 3 if layout == "gaps" else 0
        strides, step = [0] * len(shape), 1
        for n, axis in enumerate(reversed(axes)):
            strides[axis] = step
            step = step * max(shape[axis], 1) + (gap if n == 0 else 0)
        offset = self.random.randrange(5)
        total = offset + step + 8
        if layout == "reversed":
            for axis in axes:
                offset += strides[axis] * max(shape[axis] - 1, 0)
                strides[axis] = -strides[axis]
        buffer = self.c.import_new(total * size)
        flat = np.frombuffer(self.c.maps[buffer], dtype=dtype, count=total)
        if fill:
            flat[:] = self.rng.uniform(-1, 1, total).astype(dtype)
        else:
            flat[:] = -77
        array = np.ndarray(shape, dtype, self.c.maps[buffer], offset * size, [s * size for s in strides])
        return view(buffer, shape, strides, wire_type, offset * size), array

    layouts = ("plain", "transposed", "gaps", "reversed")

    def close_to(self, got, want, tolerance):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=tolerance)

    def forget(self):
        for b in list(self.c.maps):
            self.c.drop(b)


class Gemm(Arrays):
    def check(self, shape_a, shape_b, shape_c, layouts, alpha=1.0, beta=0.0, dtype=np.float32, wire_type=wire.F32,
              tolerance=2e-5):
        va, a = self.place(shape_a, layouts[0], dtype, wire_type)
        vb, b = self.place(shape_b, layouts[1], dtype, wire_type)
        vc, c = self.place(shape_c, layouts[2], dtype, wire_type)
        want = alpha * np.matmul(a.astype(np.float64), b.astype(np.float64)) + beta * c.astype(np.float64)
        self.c.submit(wire.gemm(va, vb, vc, alpha, beta))
        self.close_to(c, want, tolerance)
        del a, b, c
        self.forget()

    def test_layouts(self):
        for la in self.layouts:
            for lb in self.layouts:
                for lc in self.layouts:
                    with self.subTest(a=la, b=lb, c=lc):
                        self.check((7, 13), (13, 5), (7, 5), (la, lb, lc), 1.5, -0.5)

    def test_shapes(self):
        for m, k, n in [(1, 1, 1), (1, 64, 1), (64, 1, 64), (33, 65, 127), (128, 128, 128), (200, 3, 1),
                        (1, 3, 200), (257, 129, 63)]:
            with self.subTest(m=m, k=k, n=n):
                self.check((m, k), (k, n), (m, n), ("plain",) * 3, tolerance=1e-4)

    def test_batches(self):
        for batches in [(4, 4), (1, 4), (4, 1), (1, 1)]:
            for layout in self.layouts:
                with self.subTest(batches=batches, layout=layout):
                    n = max(batches)
                    self.check((batches[0], 6, 9), (batches[1], 9, 5), (n, 6, 5), (layout, "plain", layout))
        self.check((6, 9), (3, 9, 5), (3, 6, 5), ("plain",) * 3)

    def test_types(self):
        self.check((17, 19), (19, 23), (17, 23), ("plain",) * 3, 0.5, 2.0, np.float64, wire.F64, 1e-13)
        self.check((17, 19), (19, 23), (17, 23), ("transposed",) * 3, 0.5, 2.0, np.float16, wire.F16, 1e-2)

    def test_empty(self):
        self.check((0, 4), (4, 3), (0, 3), ("plain",) * 3)
        self.check((3, 4), (4, 0), (3, 0), ("plain",) * 3)
        self.check((3, 0), (0, 5), (3, 5), ("plain",) * 3, 1.0, 0.5)
        self.check((3, 0), (0, 5), (3, 5), ("plain",) * 3, 1.0, 0.0)

    def test_a_product_that_is_sent_again_and_again(self):
        """Right each time, whichever kernel kopsd tries on the way; in place, so that none may run twice."""
        for spread in (0, 40):
            m, k, n = (1100, 700, 900) if not harness.QUICK else (90, 70, 80)
            va, a = self.place((m, k), "plain")
            vb, b = self.place((k, n), "plain")
            vc, c = self.place((m, n), "plain", fill=False)
            a *= np.exp2(self.rng.uniform(-spread, spread, (m, k))).astype(np.float32)
            want, magnitude = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
            total = np.zeros((m, n))
            c[:] = 0
            for i in range(40):
                op = self.c.submit(wire.gemm(va, vb, vc, 1.0, 0.5))["ops"][0]
                total = want + 0.5 * total
                error = np.max(np.abs(c - total) / magnitude)
                self.assertLess(error, 1e-5, f"spread {spread}, job {i}, {op['kernel']}: {op['why']}")
            del a, b, c
            self.forget()

    def test_beta_0_does_not_read_c(self):
        va, a = self.place((4, 4), "plain")
        vc, c = self.place((4, 4), "plain")
        c[:] = np.nan
        self.c.submit(wire.gemm(va, va, vc))
        self.close_to(c, a.astype(np.float64) @ a.astype(np.float64), 1e-5)
        self.c.submit(wire.gemm(va, va, vc, alpha=0.0))
        self.close_to(c, np.zeros((4, 4)), 0)

    def test_neighbours_of_the_output_stay(self):
        va, _ = self.place((5, 5), "plain")
        vc, c = self.place((5, 5), "gaps", fill=False)
        buffer = vc["buffer"]
        before = np.frombuffer(self.c.maps[buffer], np.float32).copy()
        self.c.submit(wire.gemm(va, va, vc))
        after = np.frombuffer(self.c.maps[buffer], np.float32).copy()
        inside = np.zeros(len(after), bool)
        start = vc["offset"] // 4
        for i in range(5):
            inside[start + i * vc["strides"][0]:start + i * vc["strides"][0] + 5] = True
        np.testing.assert_array_equal(after[~inside], before[~inside])
        self.assertFalse((after[inside] == -77).any())


class Others(Arrays):
    def test_softmax(self):
        for shape in [(1,), (9,), (5, 7), (3, 4, 10), (2, 3, 4, 1000)]:
            for log in (False, True):
                for layout in self.layouts if len(shape) > 1 else ("plain", "reversed"):
                    with self.subTest(shape=shape, log=log, layout=layout):
                        vx, x = self.place(shape, layout)
                        vy, y = self.place(shape, "plain")
                        x *= 20
                        self.c.submit(wire.softmax(vx, vy, 0.7, log))
                        z = 0.7 * x.astype(np.float64)
                        z -= z.max(-1, keepdims=True)
                        want = z - np.log(np.exp(z).sum(-1, keepdims=True))
                        self.close_to(y, want if log else np.exp(want), 2e-5 if log else 1e-6)
                        del x, y
                        self.forget()

    def test_softmax_in_place(self):
        vx, x = self.place((50, 70), "plain")
        z = np.exp(x.astype(np.float64))
        self.c.submit(wire.softmax(vx, vx))
        self.close_to(x, z / z.sum(-1, keepdims=True), 1e-6)

    def test_reduce(self):
        for shape in [(1,), (9,), (5, 7), (3, 4, 10), (2, 3, 4, 1000), (3, 100000)]:
            for kind, reduce in ((wire.SUM, np.sum), (wire.MAX, np.max), (wire.MEAN, np.mean)):
                for layout in self.layouts if len(shape) > 1 else ("plain", "reversed"):
                    with self.subTest(shape=shape, kind=kind, layout=layout):
                        vx, x = self.place(shape, layout)
                        vy, y = self.place(shape[:-1] or (1,), "plain")
                        self.c.submit(wire.reduce(vx, vy, kind))
                        want = reduce(x.astype(np.float64), -1, keepdims=len(shape) == 1)
                        self.close_to(y, want, 0 if kind == wire.MAX else 1e-3)
                        del x, y
                        self.forget()

    def test_reduce_of_what_is_no_number(self):
        vx, x = self.place((4, 3), "plain")
        vy, y = self.place((4,), "plain")
        x[:] = [[1, 2, np.nan], [np.inf, 1, -np.inf], [-np.inf] * 3, [1, 2, 4]]
        for kind, want in ((wire.SUM, [np.nan, np.nan, -np.inf, 7]), (wire.MAX, [np.nan, np.inf, -np.inf, 4]),
                           (wire.MEAN, [np.nan, np.nan, -np.inf, np.float32(7 / 3)])):
            self.c.submit(wire.reduce(vx, vy, kind))
            np.testing.assert_array_equal(y, np.array(want, np.float32))
            self.c.submit(wire.reduce(wire.view(vx["buffer"], [4, 0]), vy, kind))
            np.testing.assert_array_equal(y, np.full(4, {wire.SUM: 0, wire.MAX: -np.inf, wire.MEAN: np.nan}[kind]))

    def test_transpose(self):
        for shape in [(1, 1), (3, 5), (65, 33), (2, 31, 64), (2, 3, 7, 5)]:
            for layout in self.layouts:
                with self.subTest(shape=shape, layout=layout):
                    vx, x = self.place(shape, layout)
                    vy, y = self.place(shape[:-2] + (shape[-1], shape[-2]), layout)
                    self.c.submit(wire.transpose(vx, vy))
                    np.testing.assert_array_equal(y, np.swapaxes(x, -1, -2))
                    del x, y
                    self.forget()

    def test_add_broadcasts(self):
        for a, b, y in [((4, 6), (4, 6), (4, 6)), ((4, 6), (6,), (4, 6)), ((4, 6), (4, 1), (4, 6)),
                        ((4, 6), (1,), (4, 6)), ((1, 6), (4, 1), (4, 6)), ((2, 3, 4), (3, 1), (2, 3, 4)),
                        ((1,), (1,), (1,)), ((4, 1, 6), (5, 1), (4, 5, 6))]:
            with self.subTest(a=a, b=b, y=y):
                va, na = self.place(a, "plain")
                vb, nb = self.place(b, "plain")
                vy, ny = self.place(y, "gaps" if len(y) > 1 else "plain")
                self.c.submit(wire.add(va, vb, vy))
                np.testing.assert_array_equal(ny, na + nb)
                del na, nb, ny
                self.forget()

    def test_add_in_place(self):
        va, a = self.place((40, 30), "plain")
        vb, b = self.place((30,), "plain")
        want = a + b
        self.c.submit(wire.add(va, vb, va))
        np.testing.assert_array_equal(a, want)

    def test_copy(self):
        for dtype, wire_type in [(np.float32, wire.F32), (np.float64, wire.F64), (np.float16, wire.F16)]:
            for layout in self.layouts:
                for other in self.layouts:
                    vx, x = self.place((3, 9, 11), layout, dtype, wire_type)
                    vy, y = self.place((3, 9, 11), other, dtype, wire_type)
                    self.c.submit(wire.copy(vx, vy))
                    np.testing.assert_array_equal(x, y)
                    del x, y
                    self.forget()

    def test_special_values(self):
        vx, x = self.place((8,), "plain")
        vy, y = self.place((8,), "plain")
        x[:] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 3e38, -3e38]
        self.c.submit(wire.copy(vx, vy))
        self.assertEqual(x.tobytes(), y.tobytes())
        self.c.submit(wire.add(vx, vx, vy))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, x + x)

    def test_a_softmax_of_one_row_is_paused(self):
        """What it knows of the row goes on when another had its turn."""
        n = 1 << 24
        with self.daemon.connect() as c, self.daemon.connect() as other:
            buffer = c.import_new(2 * n)
            ones = np.frombuffer(c.maps[buffer], np.float16)
            ones[:] = 1
            row = view(buffer, [1, n], dtype=wire.F16)
            quick = wire.copy(view(other.import_new(64), [8]), view(other.import_new(64), [8]))
            began = time.monotonic()
            long = c.start_submit({"kernel": "reference", **wire.softmax(row, row, log=True)}, device="cpu")
            time.sleep(0.1)
            asked = time.monotonic()
            other.submit(quick, device="cpu")
            waited = time.monotonic() - asked
            c.wait(long)
            self.assertLess(waited, 0.6 * (time.monotonic() - began))
            self.assertEqual(set(ones), {np.float16(-np.log(n))})
            del ones

    def test_a_queue_keeps_its_order_where_jobs_pause(self):
        """Jobs of many short ops on the CPU, of one long op on a GPU; what follows in the queue reads what they wrote."""
        n = 128
        with self.daemon.connect() as c, self.daemon.connect() as other:
            x, y, z, product = (c.import_new(4 * n * n) for _ in range(4))
            square = {b: view(b, [n, n]) for b in (x, y, z, product)}
            numbers = {b: np.frombuffer(c.maps[b], np.float32) for b in (x, y, z)}
            at = other.import_new(64)
            quick = wire.copy(view(at, [4]), view(at, [4], offset=32))

            def follow(ops, want):
                """Checks that a copy of y to z comes after the ops, which write y, while other jobs want to go first."""
                numbers[y][:] = numbers[z][:] = np.nan
                ids = [c.start_submit(ops, queue=1), c.start_submit(wire.copy(square[y], square[z]), queue=1)]
                for i in [other.start_submit(quick, queue=q, priority=wire.HIGH) for q in range(20)]:
                    other.wait(i)
                for i in ids:
                    c.wait(i)
                np.testing.assert_array_equal(numbers[z], np.full(n * n, want, np.float32))

            for i in range(100):
                numbers[x][:] = i
                follow([wire.gemm(square[x], square[x], square[product])] * (2 + i % 5) + [wire.copy(square[x], square[y])], i)
            numbers[x][:] = 3
            terms = 1 << harness.count(30 if harness.FIRST_DEVICE == "cpu" else 36, 18)
            follow([wire.long_sum(x, product, terms),
                    wire.copy(square[x], square[y])], 3)
            del numbers

    def test_three_ops_in_one_message(self):
        """softmax(x @ w) @ v, through RESIDENT memory."""
        vx, x = self.place((20, 16), "plain")
        vw, w = self.place((16, 12), "transposed")
        vv, v = self.place((12, 8), "plain")
        vy, y = self.place((20, 8), "gaps")
        r, s = self.c.resident(20 * 12 * 4), self.c.resident(20 * 12 * 4)
        receipt = self.c.submit([wire.gemm(vx, vw, view(r, [20, 12])),
                                 wire.softmax(view(r, [20, 12]), view(s, [20, 12])),
                                 wire.gemm(view(s, [20, 12]), vv, vy)])
        self.assertEqual([o["op"] for o in receipt["ops"]], ["gemm", "softmax", "gemm"])
        z = np.exp(x.astype(np.float64) @ w)
        self.close_to(y, z / z.sum(-1, keepdims=True) @ v, 1e-5)

    def test_resident_is_zeroed_and_keeps(self):
        c = self.c
        r = c.resident(4096)
        vy, y = self.place((1024,), "plain")
        c.submit(wire.copy(view(r, [1024]), vy))
        self.assertEqual(np.count_nonzero(y), 0)
        vx, x = self.place((1024,), "plain")
        c.submit(wire.copy(vx, view(r, [1024])))
        c.submit(wire.copy(view(r, [32, 32], [1, 32]), {**vy, "shape": [32, 32], "strides": [32, 1]}))
        np.testing.assert_array_equal(y.reshape(32, 32), x.reshape(32, 32).T)
        c.drop(r)
        r = c.resident(4096)
        c.submit(wire.copy(view(r, [1024]), vy))
        self.assertEqual(np.count_nonzero(y), 0, "memory came back with old content")

    def test_a_buffer_is_used_before_it_is_made(self):
        """Allocs are not waited for; the job waits for them."""
        for _ in range(harness.count(50, 10)):
            vx, x = self.place((256,), "plain")
            vy, y = self.place((256,), "plain")
            ra, r = self.c.start_alloc(1024, RESIDENT)
            rs, s = self.c.start_alloc(1024)
            job = self.c.start_submit([wire.copy(vx, view(r, [256])), wire.copy(view(r, [256]), view(s, [256])),
                                       wire.copy(view(s, [256]), vy)])
            self.c.wait(job)
            np.testing.assert_array_equal(x, y)
            self.c.wait(ra)
            for fd in self.c.wait(rs)["fds"]:
                harness.os.close(fd)
            del x, y
            self.c.drop(r)
            self.c.drop(s)
            self.forget()


class Order(harness.DaemonTest):
    """The CPU device has two jobs in flight at most: occupy() fills it, what is sent meanwhile waits."""

    settings = {"devices": "cpu"}

    def setUp(self):
        super().setUp()
        self.c = self.client()
        self.a = self.c.import_new(4096)

    def mark(self):
        v = view(self.a, [1])
        return wire.add(v, v, v)

    def order_of(self, *ids):
        for i in ids:
            self.c.wait(i)
        return [ids.index(i) for i in self.c.order if i in ids]

    def test_one_queue_is_in_order(self):
        self.occupy(200)
        ids = [self.c.start_submit(self.mark(), queue=3) for _ in range(50)]
        self.assertEqual(self.order_of(*ids), list(range(50)))

    def test_high_before_normal_before_low(self):
        self.occupy(200)
        ids = [self.c.start_submit(self.mark(), queue=q, priority=p)
               for q, p in enumerate([LOW, NORMAL, HIGH, LOW, NORMAL, HIGH])]
        self.assertEqual(self.order_of(*ids), [2, 5, 1, 4, 0, 3])

    def test_priority_does_not_break_a_queue(self):
        self.occupy(200)
        ids = [self.c.start_submit(self.mark(), queue=1, priority=p) for p in (LOW, HIGH)]
        ids.append(self.c.start_submit(self.mark(), queue=2, priority=NORMAL))
        self.assertEqual(self.order_of(*ids), [2, 0, 1])

    def test_a_blocked_queue_does_not_hold_up_others(self):
        """A PENDING buffer blocks its queue only. The pool's worker makes it while the device is idle."""
        r, b = self.c.start_alloc(256 << 20)
        waits = self.c.start_submit(wire.copy(view(self.a, [4]), view(b, [4])), queue=1)
        runs = self.c.start_submit(self.mark(), queue=2)
        self.assertEqual(self.order_of(waits, runs), [1, 0])
        for fd in self.c.wait(r)["fds"]:
            harness.os.close(fd)

    def test_cancel_in_the_middle_of_a_queue(self):
        self.occupy(200)
        ids = [self.c.start_submit(self.mark(), queue=1) for _ in range(5)]
        self.c.cancel(ids[2])
        self.refused("CANCELLED", self.c.wait, ids[2])
        del ids[2]
        self.assertEqual(self.order_of(*ids), [0, 1, 2, 3])

    def test_a_failing_job_does_not_stop_its_queue(self):
        lost = self.c.resident(16, lost=True)
        self.occupy(200)
        bad = self.c.start_submit(wire.copy(view(lost, [4]), view(self.a, [4])), queue=1)
        good = self.c.start_submit(self.mark(), queue=1)
        self.refused("LOST", self.c.wait, bad)
        self.c.wait(good)

    def test_deadline_of_a_job_that_runs_is_over(self):
        op = self.slow_op(self.c, 60)
        self.c.submit(op, deadline_us=30_000)

    def test_deadlines_pass_in_their_order(self):
        self.occupy(1000)  # about: far more than the deadlines, wherever it runs
        late = [self.c.start_submit(self.mark(), queue=q, deadline_us=us)
                for q, us in enumerate([200_000, 100_000, 300_000])]
        for i in late:
            self.refused("DEADLINE", self.c.wait, i)
        self.assertEqual([late.index(i) for i in self.c.order if i in late], [1, 0, 2])
        self.assert_busy()  # they were answered when they passed, not when the device was free

    def test_sessions_of_one_user_share_by_arrival(self):
        self.occupy(200)
        d = self.client()
        b = d.import_new(64)
        first = self.c.start_submit(self.mark())
        second = d.start_submit(wire.add(view(b, [1]), view(b, [1]), view(b, [1])))
        self.c.wait(first)
        d.wait(second)


if __name__ == "__main__":
    harness.main()
