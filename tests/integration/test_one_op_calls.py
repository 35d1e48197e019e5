"""The one-op calls of libkops (kops_sgemm, kops_softmax, ...) against the real daemon: values, and what they refuse."""
import ctypes
import unittest

import numpy as np

from support import harness, wire
from support.libkops import F32, F64, I32, N, BufferCallback, Handle, load_library

SHAPE, DTYPE, OVERLAP, INVALID, RANGE = -4, -5, -6, -2, -3
TIMEOUT = -33
LARGE = 4000  # a product takes longer than 20 ms
AS_STORED, TRANSPOSED = 0, 1
SUM, MAX, MEAN = 0, 1, 2


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_jobs has their part")
class OneOpCalls(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lib = load_library()

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(harness.SEED)
        self.handle = Handle(self.lib, self.daemon.socket)
        self.k = self.handle.k
        self.a, self.b, self.y = self.handle.buffers
        for i in range(2):
            self.handle.matrix(i)[:] = rng.uniform(-1, 1, (N, N))
        self.handle.matrix(2)[:] = np.nan

    def tearDown(self):
        self.handle.close()
        super().tearDown()

    def view(self, buffer, rows, cols, ld=N, first=0, dtype=F32):
        """rows × cols from element `first` on."""
        return self.lib.kops_matrix(buffer, first * (8 if dtype == F64 else 4), dtype, rows, cols, ld)

    def done(self, status):
        self.assertEqual(status, 0, self.handle.error())

    def assert_only_wrote(self, want):
        """Outside `want`, the output is as setUp() left it."""
        y = self.handle.matrix(2)
        rows, cols = want.shape
        np.testing.assert_array_equal(y[:rows, :cols], want)
        self.assertTrue(np.isnan(y[rows:]).all() and np.isnan(y[:, cols:]).all())

    def test_copy(self):
        x = self.handle.matrix(0)
        self.done(self.lib.kops_copy(self.k, self.view(self.a, 5, 7, first=N + 2), self.view(self.y, 5, 7)))
        self.assert_only_wrote(x[1:6, 2:9])

    def test_copy_of_a_transposed_view(self):
        x = self.handle.matrix(0)
        turned = self.lib.kops_transposed(self.view(self.a, 5, 7))
        self.done(self.lib.kops_copy(self.k, turned, self.view(self.y, 7, 5)))
        self.assert_only_wrote(x[:5, :7].T)

    def test_gather(self):
        x, indices = self.handle.matrix(0), self.handle.matrix(1).view(np.int32)
        indices[0, :4] = [3, -1, N, 0]
        of_row = self.view(self.b, 4, 1, ld=1, dtype=I32)
        of_row.rank = 1
        self.done(self.lib.kops_gather(self.k, self.view(self.a, N, 7), of_row, self.view(self.y, 4, 7)))
        self.assert_only_wrote(np.stack([x[3, :7], 0 * x[0, :7], 0 * x[0, :7], x[0, :7]]))
        rc = self.lib.kops_gather(self.k, self.view(self.a, N, 7), self.view(self.b, 1, 4), self.view(self.y, 4, 7))
        self.assertEqual(rc, DTYPE)
        self.assertIn("indices is f32; gather takes i32", self.handle.error())

    def test_transpose(self):
        x = self.handle.matrix(0)
        self.done(self.lib.kops_transpose(self.k, self.view(self.a, 40, 33), self.view(self.y, 33, 40)))
        self.assert_only_wrote(x[:40, :33].T)

    def test_softmax(self):
        self.done(self.lib.kops_softmax(self.k, self.view(self.a, 9, 31), self.view(self.y, 9, 31), 2.5))
        powers = np.exp(2.5 * self.handle.matrix(0)[:9, :31].astype(np.float64))
        y = self.handle.matrix(2)
        np.testing.assert_allclose(y[:9, :31], powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
        self.assert_only_wrote(y[:9, :31].copy())

    def test_softmax_in_place(self):
        powers = np.exp(self.handle.matrix(0).astype(np.float64))
        self.done(self.lib.kops_softmax(self.k, self.view(self.a, N, N), self.view(self.a, N, N), 1))
        np.testing.assert_allclose(self.handle.matrix(0), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)

    def test_add_repeats_an_extent_of_1(self):
        a, b = self.handle.matrix(0), self.handle.matrix(1)
        self.done(self.lib.kops_add(self.k, self.view(self.a, 6, 10), self.view(self.b, 1, 10), self.view(self.y, 6, 10)))
        self.assert_only_wrote(a[:6, :10] + b[:1, :10])

    def test_reduce(self):
        x = np.random.default_rng(harness.SEED).integers(-8, 9, (6, 16)).astype(np.float32)  # exact, 1/16 too
        self.handle.matrix(0)[:6, :16] = x
        for kind, function in ((SUM, np.sum), (MAX, np.max), (MEAN, np.mean)):
            self.handle.matrix(2)[:] = np.nan
            self.done(self.lib.kops_reduce(self.k, self.view(self.a, 6, 16), self.view(self.y, 6, 1), kind))
            self.assert_only_wrote(function(x, axis=1, keepdims=True))

    def test_sgemm_transposes_and_accumulates(self):
        rng = np.random.default_rng(harness.SEED)
        m, n, depth = 11, 13, 17
        a, b, c = (self.handle.matrix(i) for i in range(3))
        for trans_a in (AS_STORED, TRANSPOSED):
            for trans_b in (AS_STORED, TRANSPOSED):
                for x in (a, b, c):
                    x[:] = rng.integers(-4, 5, (N, N))  # small integers: exact
                op_a = a[:depth, :m].T if trans_a else a[:m, :depth]
                op_b = b[:n, :depth].T if trans_b else b[:depth, :n]
                want = c.copy()
                want[:m, :n] = 2 * op_a @ op_b + 3 * c[:m, :n]
                self.done(self.lib.kops_sgemm(self.k, trans_a, trans_b, m, n, depth, 2, self.a, N, self.b, N, 3,
                                              self.y, N))
                np.testing.assert_array_equal(c, want)

    def test_dgemm(self):
        n = 32  # three matrices of doubles fit their buffers
        a, b, y = (self.handle.matrix(i).reshape(-1).view(np.float64)[:n * n].reshape(n, n) for i in range(3))
        a[:] = np.arange(n * n).reshape(n, n) * 2.0 ** -40 + 1
        b[:] = np.eye(n)[::-1]
        self.done(self.lib.kops_dgemm(self.k, 0, 0, n, n, n, 1, self.a, n, self.b, n, 0, self.y, n))
        np.testing.assert_array_equal(y, a[:, ::-1])  # floats would lose the last bits

    def assert_refused(self, code, status, *words):
        self.assertEqual(status, code, self.handle.error())
        for word in words:
            self.assertIn(word, self.handle.error())
        self.assertTrue(np.isnan(self.handle.matrix(2)).all())

    def test_refusals(self):
        k, lib, square = self.k, self.lib, self.view(self.y, 4, 4)
        self.assert_refused(SHAPE, lib.kops_copy(k, self.view(self.a, 4, 5), square))
        self.assert_refused(SHAPE, lib.kops_transpose(k, self.view(self.a, 4, 5), self.view(self.y, 4, 5)))
        self.assert_refused(SHAPE, lib.kops_softmax(k, self.view(self.a, 4, 5), square, 1))
        self.assert_refused(SHAPE, lib.kops_add(k, self.view(self.a, 4, 4), self.view(self.b, 3, 4), square))
        self.assert_refused(SHAPE, lib.kops_reduce(k, self.view(self.a, 4, 5), self.view(self.y, 5, 1), SUM))
        self.assert_refused(DTYPE, lib.kops_copy(k, self.view(self.a, 4, 4, dtype=F64), square))
        self.assert_refused(DTYPE, lib.kops_softmax(k, self.view(self.a, 4, 4, dtype=I32),
                                                    self.view(self.y, 4, 4, dtype=I32), 1))
        self.assert_refused(OVERLAP, lib.kops_transpose(k, square, square))
        self.assert_refused(RANGE, lib.kops_copy(k, self.view(self.a, N, N, first=1), self.view(self.y, N, N)))
        self.assert_refused(INVALID, lib.kops_sgemm(k, 0, 0, 4, 4, 4, 1, self.a, 3, self.b, 4, 0, self.y, 4), "lda = 3")
        self.assert_refused(RANGE, lib.kops_sgemm(k, 0, 0, N + 1, N, N, 1, self.a, N, self.b, N, 0, self.y, N))
        self.assert_refused(OVERLAP, lib.kops_sgemm(k, 0, 0, 4, 4, 4, 1, self.y, 4, self.b, 4, 0, self.y, 4))
        self.done(lib.kops_copy(k, self.view(self.a, 4, 4), square))  # the handle is as good as before


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_jobs has their part")
class OutOfTime(harness.DaemonTest):
    """A call whose time is over leaves no work behind, and says when its memory is the caller's again."""

    def setUp(self):
        super().setUp()
        self.lib = load_library()
        self.handle = None
        self.assertTrue(harness.eventually(self.open))
        self.buffers = [self.large_buffer() for _ in range(3)]

    def tearDown(self):
        self.handle.close()
        super().tearDown()

    def open(self):
        """On a busy machine that may take longer, too."""
        try:
            self.handle = Handle(self.lib, self.daemon.socket, timeout_ms=20)
        except OSError:
            return False
        return True

    def large_buffer(self):
        buffer = ctypes.c_void_p()
        self.lib.kops_alloc_start(self.handle.k, 8 * LARGE * LARGE, 0, None, BufferCallback(), None, ctypes.byref(buffer))
        self.assertEqual(self.lib.kops_buffer_wait(buffer, -1), 0, self.handle.error())
        return buffer

    def output(self):
        doubles = ctypes.cast(self.lib.kops_data(self.buffers[2]), ctypes.POINTER(ctypes.c_double))
        return np.ctypeslib.as_array(doubles, (LARGE, LARGE))

    def multiply(self):
        a, b, c = self.buffers
        return self.lib.kops_dgemm(self.handle.k, 0, 0, LARGE, LARGE, LARGE, 1, a, LARGE, b, LARGE, 0, c, LARGE)

    def test_one_op_call(self):
        self.assertEqual(self.multiply(), TIMEOUT)
        self.assertIn("not done after 0.02 s and was cancelled", self.handle.error())
        self.assertTrue(self.lib.kops_buffer_is_busy(self.buffers[2]))
        self.assertEqual(self.lib.kops_buffer_wait_idle(self.buffers[2], -1), 0, self.handle.error())
        self.assertFalse(any(map(self.lib.kops_buffer_is_busy, self.buffers)))
        self.assertFalse(self.control.any_running())
        self.assertEqual(wire.STATUS_NAME[self.control.trace()[0]["status"]], "CANCELLED")
        self.output()[:] = 7
        self.assertTrue(harness.eventually(lambda: self.handle.multiply() == 0))
        self.assertTrue((self.output() == 7).all())


if __name__ == "__main__":
    harness.main()
