"""kops.linalg beside numpy.linalg."""
import os
import unittest
from unittest import mock

import numpy as np

import kops
from kops import linalg
from case import PythonTest

TYPES = ((np.float32, 1e-3), (np.float64, 1e-10), (np.complex64, 1e-3), (np.complex128, 1e-10))


class Linalg(PythonTest):
    def setUp(self):
        super().setUp()
        self.environment = mock.patch.dict(os.environ, KOPS_SOCKET=self.daemon.socket)
        self.environment.start()

    def tearDown(self):
        kops.default_client().close()
        self.environment.stop()
        super().tearDown()

    def matrices(self, shape, dtype):
        a = self.numbers(shape, np.float64)
        return (a + 1j * self.numbers(shape, np.float64) if np.dtype(dtype).kind == "c" else a).astype(dtype)

    def definite(self, shape, dtype):
        a = self.matrices(shape, np.dtype(dtype))
        return a @ np.swapaxes(a.conj(), -1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)

    def test_cholesky(self):
        for dtype, tolerance in TYPES:
            for shape in ((1, 1), (33, 33), (2, 3, 2, 9, 9), (0, 4, 4), (3, 0, 0)):
                a = self.definite(shape, dtype)
                got = linalg.cholesky(a)
                self.assertEqual((got.shape, got.dtype), (shape, dtype))
                np.testing.assert_allclose(got, np.linalg.cholesky(a), tolerance, tolerance)
                upper = linalg.cholesky(a, upper=True)
                np.testing.assert_allclose(upper, np.swapaxes(np.linalg.cholesky(a).conj(), -1, -2), tolerance, tolerance)
        with self.assertRaisesRegex(np.linalg.LinAlgError, "not positive definite"):
            linalg.cholesky([[1, 2], [2, 1]])

    def test_solve(self):
        for dtype, tolerance in TYPES:
            for shape, of_b in (((1, 1), (1,)), ((40, 40), (40,)), ((40, 40), (40, 3)), ((2, 3, 20, 20), (2, 3, 20, 5)),
                                ((20, 20), (4, 20, 2)), ((4, 20, 20), (20, 2)), ((3, 1, 6, 6), (2, 6, 1)), ((0, 0), (0, 2)),
                                ((5, 5), (5, 0)), ((0, 3, 3), (3, 2)), ((4, 7, 7), (7,))):
                a, b = self.matrices(shape, dtype), self.matrices(of_b, dtype)
                x = linalg.solve(a, b)
                rhs = b if b.ndim > 1 else b[:, None]  # NumPy 1 takes more for vectors
                batch = np.broadcast_shapes(a.shape[:-2], rhs.shape[:-2])
                want = np.linalg.solve(np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(rhs, batch + rhs.shape[-2:]))
                want = want if b.ndim > 1 else want[..., 0]
                self.assertEqual((x.shape, x.dtype), (want.shape, want.dtype))
                np.testing.assert_allclose(x, want, 100 * tolerance, tolerance * (1 + np.abs(want).max(initial=0)))
                definite = self.definite(shape, dtype)
                x = linalg.solve(definite, b, assume_a="pos")
                want = np.linalg.solve(np.broadcast_to(definite, batch + a.shape[-2:]), np.broadcast_to(rhs, batch + rhs.shape[-2:]))
                np.testing.assert_allclose(x, want if b.ndim > 1 else want[..., 0], 100 * tolerance, tolerance)
        with self.assertRaisesRegex(np.linalg.LinAlgError, "not positive definite"):
            linalg.solve([[1, 2], [2, 1]], [1, 1], assume_a="pos")
        with self.assertRaisesRegex(ValueError, "'gen' or 'pos'"):
            linalg.solve(np.eye(2), [1, 1], assume_a="sym")
        with self.assertRaisesRegex(np.linalg.LinAlgError, "Singular"):
            linalg.solve(np.ones((3, 3)), np.ones(3))
        with self.assertRaisesRegex(ValueError, "as many rows"):
            linalg.solve(np.eye(3), np.ones(4))

    def test_inverses_and_determinants(self):
        for dtype, tolerance in TYPES:
            for shape in ((1, 1), (12, 12), (2, 3, 5, 5), (0, 4, 4), (0, 0)):
                a = self.matrices(shape, dtype) + 3 * np.eye(shape[-1], dtype=dtype)
                np.testing.assert_allclose(linalg.inv(a), np.linalg.inv(a), 10 * tolerance, 10 * tolerance)
                np.testing.assert_allclose(linalg.det(a), np.linalg.det(a), 10 * tolerance)
                for got, want in zip(linalg.slogdet(a), np.linalg.slogdet(a)):
                    self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
                    np.testing.assert_allclose(got, want, 10 * tolerance, 10 * tolerance)
        self.assertEqual(linalg.det(np.ones((4, 4))), 0)
        sign, logarithm = linalg.slogdet(np.zeros((2, 2)))
        self.assertEqual((sign, logarithm), (0, -np.inf))
        self.assertEqual(linalg.det([[0, 1], [1, 0]]), -1)

    def test_it_is_there(self):
        self.assertIs(kops.linalg, linalg)
        self.assertIn("linalg", dir(kops))

    def test_what_is_refused(self):
        for function in (linalg.cholesky, linalg.inv, linalg.det, linalg.slogdet):
            with self.assertRaisesRegex(np.linalg.LinAlgError, "square"):
                function(np.ones((2, 3)))
            with self.assertRaisesRegex(np.linalg.LinAlgError, "two-dimensional"):
                function(np.ones(3))
            with self.assertRaisesRegex(TypeError, "float16"):
                function(np.eye(2, dtype=np.float16))


if __name__ == "__main__":
    unittest.main()
