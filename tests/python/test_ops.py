"""Ops on arrays of every kind against NumPy in float64."""
import asyncio
import gc
import itertools
import unittest
import warnings

import numpy as np

import kops
from kops import _seen
from case import ACTIVATIONS, DTYPES, PythonTest, harness


def softmax(x, axis, scale=1.0, log=False):
    x = np.float64(scale) * x.astype(np.float64)
    x = x - x.max(axis, keepdims=True)
    e = np.exp(x)
    return x - np.log(e.sum(axis, keepdims=True)) if log else e / e.sum(axis, keepdims=True)


def fused(a, b, bias=0, activation="none"):
    product = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(ACTIVATIONS[activation](product + bias))


class Ops(PythonTest):
    def some_view(self, shape, dtype):
        """An array of this shape, in shared memory or not, whose elements lie in some way."""
        kind = self.random.randrange(5)
        if kind == 0:
            return self.numbers(shape, dtype)
        order = self.random.sample(range(len(shape)), len(shape))
        steps = [self.random.choice([1, 1, 2, -1]) for _ in shape]
        base = self.shared([shape[axis] * abs(steps[axis]) for axis in order], dtype)
        x = base.transpose(np.argsort(order)) if len(shape) > 1 else base
        return x[tuple(slice(None, None, step) for step in steps)]

    def test_matmul_has_numpys_shapes(self):
        pairs = [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
                 ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((2, 3, 1, 4, 5), (1, 3, 2, 5, 6)), ((0, 4), (4, 5)),
                 ((3, 0), (0, 5)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((5, 2, 3, 4), (5, 2, 4, 1))]
        for left, right in pairs:
            for dtype in DTYPES:
                for a, b in (self.numbers(left, dtype), self.numbers(right, dtype)), \
                            (self.shared(left, dtype), self.shared(right, dtype)):
                    with self.subTest(left=left, right=right, dtype=dtype):
                        expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
                        self.near(self.kops.matmul(a, b), np.asarray(expected), 8)

    def test_random_products(self):
        for i in range(harness.count(1000, 50)):
            m, n, k = (self.random.choice([1, 2, 3, 17, 32, 65]) for _ in range(3))
            batch = self.random.choice([(), (), (2,), (3, 2)])
            dtype = self.random.choice(DTYPES)
            a, b = self.some_view((*batch, m, k), dtype), self.some_view((*batch, k, n), dtype)
            expected = a.astype(np.float64) @ b.astype(np.float64)
            out = self.random.choice([None, self.poisoned((*batch, m, n), dtype), np.full((*batch, m, n), np.nan, dtype)])
            result = self.kops.matmul(a, b, out=out)
            self.assertTrue(out is None or result is out)
            self.near(result, expected, 4 + k, f"{i}: {a.shape} {a.strides} × {b.shape} {b.strides}, {dtype}")

    def test_operands_of_an_op_that_may_be_absent(self):
        def norm(x, weight=1.0, bias=0.0, eps=1e-5):
            x = x.astype(np.float64)
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias

        for dtype in DTYPES:
            x, weight, bias = self.numbers((2, 5, 7), dtype), self.numbers((7,), dtype), self.numbers((7,), dtype)
            for _ in range(4):  # prepared from the third time on
                self.near(self.kops.layer_norm(x), norm(x), 16)
                self.near(self.kops.layer_norm(x, weight), norm(x, weight.astype(np.float64)), 16)
                self.near(self.kops.layer_norm(x, bias=weight), norm(x, 1, weight.astype(np.float64)), 16)
                self.near(self.kops.layer_norm(x, weight, bias, eps=0.5),
                          norm(x, weight.astype(np.float64), bias.astype(np.float64), 0.5), 16)
        x, w = self.shared((3, 4)), self.shared((4,))
        x[...], w[...] = self.numbers((3, 4)), self.numbers((4,))
        with_weight, with_bias, out = norm(x, w), norm(x, 1, w), self.poisoned((3, 4))
        for _ in range(4):  # the same arrays, in other places
            self.near(self.kops.layer_norm(x, w, out=out), with_weight, 16)
            self.near(self.kops.layer_norm(x, bias=w, out=out), with_bias, 16)
        tall, tall_norm = x.T, norm(x, w).T
        for out in None, self.poisoned((4, 3)):
            self.near(self.kops.layer_norm(tall, w, axis=0, out=out), tall_norm, 16)
        self.assertIs(self.kops.layer_norm(x, out=x), x)
        self.near(self.kops.layer_norm(np.full((2, 1), 7, np.float32), bias=np.ones(1, np.float32)), np.ones((2, 1)), 0)
        self.assertEqual(self.kops.layer_norm(np.empty((0, 4), np.float32), w).shape, (0, 4))
        with self.kops.job() as job:
            y = job.layer_norm(job.layer_norm(x, w), bias=w)
        self.near(y, norm(norm(x, w), 1, w), 64)
        self.fails(kops.ShapeError, "weight is 3 and x 3x4", self.kops.layer_norm, x, self.numbers((3,)))
        self.fails(kops.ArgumentError, "eps", self.kops.layer_norm, x, eps=-1)
        self.fails(kops.ArgumentError, "x.filled", self.kops.layer_norm, x, np.ma.masked_equal(np.eye(4, dtype=np.float32)[0], 0))
        self.fails(kops.DtypeError, "one type", self.kops.layer_norm, x, w.astype(np.float64))

    def test_masks(self):
        for dtype in DTYPES:
            x = self.numbers((2, 3, 4, 5), dtype)
            causal = np.where(np.tri(4, 5, 1) > 0, 0, -np.inf).astype(dtype)
            for mask in causal, self.numbers((2, 1, 1, 5), dtype), self.numbers((3, 4, 1), dtype), self.numbers((5,), dtype):
                z = np.exp(2 * x.astype(np.float64) + mask.astype(np.float64))
                for _ in range(4):  # prepared from the third time on
                    self.near(self.kops.softmax(x, scale=2, mask=mask), z / z.sum(-1, keepdims=True), 64)
                z = np.exp(x.astype(np.float64) + mask.astype(np.float64))
                self.near(self.kops.softmax(x, 2, mask=mask), z / z.sum(2, keepdims=True), 64)
            nothing = np.full((4, 5), -np.inf, dtype)
            self.assertTrue((self.kops.softmax(x, mask=nothing) == 0).all())
            self.assertTrue(np.isneginf(self.kops.softmax(x, mask=nothing, log=True)).all())
            nothing[2, 3] = 0
            self.assertEqual(self.kops.softmax(x, mask=nothing)[1, 2, 2].tolist(), [0, 0, 0, 1, 0])
        self.fails(kops.ShapeError, "mask is 3, which does not repeat to x's 2x3x4x5", self.kops.softmax, x, mask=x[0, 0, 0, :3])

    def test_attention(self):
        def attention(q, k, v, mask=0.0, scale=0.5):
            q, k, v, mask = (x.astype(np.float64) for x in (q, k, v, np.asarray(mask)))
            k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
            scores = scale * q @ k.swapaxes(-1, -2) + mask
            e = np.where(np.isneginf(scores), 0, np.exp(scores))
            return e / np.maximum(e.sum(-1, keepdims=True), 1e-300) @ v

        for dtype in DTYPES:
            q, k, v = self.numbers((2, 4, 5, 4), dtype), self.numbers((2, 2, 7, 4), dtype), self.numbers((2, 2, 7, 3), dtype)
            causal = np.where(np.tri(5, 7, 2) > 0, 0, -np.inf).astype(dtype)
            for _ in range(4):  # prepared from the third time on
                self.near(self.kops.attention(q, k, v), attention(q, k, v), 16)
                self.near(self.kops.attention(q, k, v, causal="bottom_right"), attention(q, k, v, causal), 16)
            self.near(self.kops.attention(q, k, v, causal), attention(q, k, v, causal), 16)
            self.near(self.kops.attention(q, k, v, causal="top_left", window=2),
                      attention(q, k, v, np.where(np.tri(5, 7) > np.tri(5, 7, -2), 0, -np.inf)), 16)
            self.near(self.kops.attention(q, k, v, causal[:, :1], scale=-1), attention(q, k, v, causal[:, :1], -1), 16)
            self.near(self.kops.attention(q[0, 0], k[0, 0], v[0, 0]), attention(q, k, v)[0, 0], 16)
            self.assertTrue((self.kops.attention(q, k, v, np.full(7, -np.inf, dtype)) == 0).all())
            lse = self.kops.empty((2, 4, 5), np.float64 if dtype == np.float64 else np.float32)
            for _ in range(4):
                hidden = np.where(np.arange(7) < np.array([[[[3]]], [[[0]]]]), 0, -np.inf)
                self.near(self.kops.attention(q, k, v, lengths=[3, -2], lse=lse), attention(q, k, v, hidden), 16)
                scores = 0.5 * np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), np.repeat(k.astype(np.float64), 2, 1))[0, ..., :3]
                np.testing.assert_allclose(lse[0], np.log(np.exp(scores).sum(-1)), rtol=1e-4)
                self.assertTrue(np.isneginf(lse[1]).all())
                lse[:] = 7
            self.near(self.kops.attention(q[0, 0], k[0, 0], v[0, 0], lengths=np.array([7], np.int32), lse=lse[0, 0]),
                      attention(q, k, v)[0, 0], 16)
            self.assertTrue((lse[0, 0] != 7).all() and (lse[0, 1:] == 7).all())
        self.fails(kops.ShapeError, "lengths is 3; it has one number for each batch: [2]", self.kops.attention, q, k, v, lengths=[1, 2, 3])
        self.fails(kops.ShapeError, "lse has shape (2, 4), but the result has (2, 4, 5)", self.kops.attention, q, k, v, lse=lse[..., 0])
        self.fails(kops.ShapeError, "k's heads must divide q's", self.kops.attention, q, k.repeat(2, 1)[:, :3], v.repeat(2, 1)[:, :3])
        deep = np.zeros((2, 1025), np.float32)
        self.fails(kops.ShapeError, "head_dim and value_dim are at most 1024", self.kops.attention, deep, deep, deep)

    def test_norms_of_sums(self):
        def rms(x, weight=1.0, eps=1e-5):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight

        def layer(x, weight=1.0, eps=1e-5):
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight

        for dtype in DTYPES:
            for norm, name in (rms, "rms_norm"), (layer, "layer_norm"):
                x, residual, weight = (self.numbers(shape, dtype) for shape in ((2, 5, 7), (2, 5, 7), (7,)))
                added, op = (x + residual).astype(dtype), getattr(self.kops, name)
                wide = added.astype(np.float64)
                for _ in range(4):  # prepared from the third time on
                    self.near(op(added, weight), norm(wide, weight.astype(np.float64)), 16)
                    self.near(op(x, weight, residual=residual), norm(wide, weight.astype(np.float64)), 16)
                    total = np.zeros_like(x)
                    self.near(op(x, residual=residual, sum=total, eps=0.5), norm(wide, eps=0.5), 16)
                    np.testing.assert_array_equal(total, added)
        x, residual, out = self.shared((3, 4)), self.shared((3, 4)), self.poisoned((3, 4))
        for _ in range(5):  # in place, the same arrays with other contents
            x[...], residual[...] = self.numbers((3, 4)), self.numbers((3, 4))
            added = x + residual
            self.assertIs(self.kops.rms_norm(x, out=out, residual=residual, sum=residual), out)
            self.near(out, rms(added.astype(np.float64)), 16)
            np.testing.assert_array_equal(residual, added)
        tall = np.asarray(self.numbers((4, 3)))
        total = np.zeros((4, 3), np.float32)
        self.near(self.kops.rms_norm(tall, axis=0, residual=tall, sum=total), rms(2 * tall.T.astype(np.float64)).T, 16)
        np.testing.assert_array_equal(total, 2 * tall)
        with self.kops.job() as job:
            s = self.kops.empty((3, 4))
            y = job.add(job.rms_norm(x, residual=x, sum=s), s)
        self.near(y, rms(2 * x.astype(np.float64)) + 2 * x, 16)
        self.fails(kops.ArgumentError, "there is no residual", self.kops.rms_norm, x, sum=out)
        self.fails(kops.ShapeError, "sum has shape", self.kops.rms_norm, x, residual=x, sum=out[0])
        tokens, places = self.numbers((2, 3, 4)), self.numbers((3, 4))
        self.near(self.kops.layer_norm(tokens, residual=places), layer((tokens + places).astype(np.float64)), 16)
        self.fails(kops.ShapeError, "residual is 3, which does not repeat", self.kops.rms_norm, x, residual=x[:, 0])
        total.flags.writeable = False
        self.fails(kops.ArgumentError, "read-only", self.kops.rms_norm, tall, residual=tall, sum=total)

    def test_rows_by_their_indices(self):
        for dtype in (*DTYPES, np.int32, np.complex64, np.complex128):
            x = self.numbers((9, 5), dtype) if dtype in DTYPES else self.random_bits((9, 5), dtype)
            for indices in np.array([3, 0, 8, 3], np.int32), np.array([[1, 2, 0], [8, 7, 1]], np.int32)[:, ::2]:
                for _ in range(4):  # prepared from the third time on
                    y = self.kops.gather(x, indices)
                    self.assertEqual((y.dtype, y.shape), (dtype, (*indices.shape, 5)))
                    np.testing.assert_array_equal(y, x[indices])
                np.testing.assert_array_equal(self.kops.gather(x.T, indices % 5), x.T[indices % 5])
        x, indices = self.shared((4, 3)), self.kops.zeros(5, np.int32)
        x[...] = self.numbers((4, 3))
        for _ in range(5):
            indices[...] = [self.random.randrange(-6, 10) for _ in indices]
            y, inside = self.kops.gather(x, indices), (indices >= 0) & (indices < 4)
            np.testing.assert_array_equal(y, np.where(inside[:, None], x[indices % 4], 0))
        np.testing.assert_array_equal(self.kops.gather(x, [2, -1, 2 ** 40]), [x[2], [0, 0, 0], [0, 0, 0]])
        out = self.poisoned((2, 3))
        self.assertIs(self.kops.gather(x, [3, 1], out=out), out)
        np.testing.assert_array_equal(out, x[[3, 1]])
        d = self.kops.device_array(x.shape).upload(x)
        np.testing.assert_array_equal(self.kops.gather(d, [1, 1]).download(), x[[1, 1]])
        with self.kops.job() as job:
            y = job.add(job.gather(x, [0, 2]), job.gather(x, [1, 3]))
        np.testing.assert_array_equal(y, x[[0, 2]] + x[[1, 3]])
        self.assertEqual(self.kops.gather(x, []).shape, (0, 3))
        self.assertEqual(self.kops.gather(np.empty((0, 2), np.float32), [0]).tolist(), [[0, 0]])
        self.fails(kops.DtypeError, "int64", self.kops.gather, x, np.array([0]))
        self.fails(kops.DtypeError, "indices is f32; gather takes i32", self.kops.gather, x, np.zeros(2, np.float32))
        self.fails(kops.DtypeError, "must be integers", self.kops.gather, x, [0.5])
        self.fails(kops.ShapeError, "x has rank 1; this op takes rank 2", self.kops.gather, x[0], [0])

    def test_the_same_call_again_sees_new_contents(self):
        a, b, c = self.shared((9, 9)), self.shared((9, 9)), self.poisoned((9, 9))
        for _ in range(20):
            a[:] = self.numbers((9, 9))
            self.near(self.kops.matmul(a, b, out=c), a.astype(np.float64) @ b, 9)
            self.near(self.kops.matmul(a, b), a.astype(np.float64) @ b, 9)

    def test_arrays_that_were_given_another_shape_or_type_in_place(self):
        a, b, c = self.shared((4, 4)), self.shared((4, 4)), self.poisoned((4, 4))
        for _ in range(3):
            self.kops.matmul(a, b, out=c)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy advises against it
            a.shape = c.shape = 2, 8
        self.fails(kops.ShapeError, "(2, 8)", self.kops.matmul, a, b, out=c)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a.shape = c.shape = 4, 4
            a.dtype = np.int32
        self.fails(kops.DtypeError, "int32", self.kops.matmul, a, b, out=c)

    def test_what_follows_an_array_without_axes_is_looked_at_too(self):
        one, x, y = self.kops.zeros(()), self.shared((4,)), self.poisoned((4,))
        one[...] = 1
        for _ in range(5):
            self.kops.add(one, x, out=y)
        y.shape = (2, 2)
        self.fails(kops.ShapeError, "out has shape", self.kops.add, one, x, out=y)

    def test_everything_that_can_change_in_an_array_is_looked_at(self):
        self.assertTrue(_seen.KNOWS)  # else calls are slower than they need to be
        a, b, c = self.shared((4, 4)), self.shared((4, 4)), self.poisoned((4, 4))
        expected = a.astype(np.float64) @ b
        for _ in range(4):
            self.kops.matmul(a, b, out=c)
        self.assertTrue(self.kops._seen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy advises against it
            a.strides = 4, 16
        self.near(self.kops.matmul(a, b, out=c), a.astype(np.float64) @ b, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a.strides = 16, 4
        self.near(self.kops.matmul(a, b, out=c), expected, 4)
        c.flags.writeable = False
        self.fails(kops.ArgumentError, "read-only", self.kops.matmul, a, b, out=c)

    def test_views_at_the_address_of_others(self):
        """Objects of views that are gone are used again, for other elements, shapes and classes."""
        x, w, y = self.shared((8, 4, 4)), self.shared((4, 4)), self.poisoned((8, 4, 4))
        for i in [0, 0, 0, 1, 0, 2, 2, 2, 3, 2] * 3:
            y[i].fill(np.nan)
            self.kops.matmul(x[i], w, out=y[i])
            self.near(y[i], x[i].astype(np.float64) @ w, 4)
            self.kops.matmul(x[i].view(np.matrix), w, out=y[i])
            self.near(self.kops.matmul(x[i, :2], w, out=y[i, :2]), x[i, :2].astype(np.float64) @ w, 4)

    def test_what_is_known_of_calls_is_bounded(self):
        x, w, y = self.shared((400, 4)), self.shared((4, 4)), self.poisoned((400, 4))
        rows = [(x[i:i + 1], y[i:i + 1]) for i in range(400)]
        for row, result in rows:
            for _ in range(3):
                self.kops.matmul(row, w, out=result)
        self.assertLessEqual(len(self.kops._seen), 256)
        self.near(y, x.astype(np.float64) @ w, 4)
        del x, w, y, rows, row, result
        gc.collect()
        self.kops._session.pool.trim(0)
        self.assertEqual(self.kops._seen, {})

    def test_arrays_in_the_place_of_others(self):
        """The memory of an array that is gone is used again, by one of the same place and another layout."""
        b = self.shared((6, 6))
        for shape in [(6, 6), (3, 6), (6, 6), (1, 6)] * 3:
            a = self.kops.empty(36)[:shape[0] * 6].reshape(shape)
            a[:] = self.numbers(shape)
            self.near(self.kops.matmul(a, b), a.astype(np.float64) @ b, 6)
            del a

    def test_an_axis_is_an_integer(self):
        x = self.shared((2, 3))
        for axis in 1.0, "0", (0, 1.0):
            self.fails(TypeError, "integer", self.kops.reduce, x, "sum", axis)
        self.fails(TypeError, "integer", self.kops.softmax, x, None)
        self.fails(kops.ShapeError, "no axis 2", self.kops.reduce, x, "sum", (0, 2))
        self.fails(kops.ShapeError, "twice", self.kops.reduce, x, "sum", (0, -2))
        self.fails(kops.ShapeError, "no axis to reduce", self.kops.reduce, x, "sum", ())
        self.near(self.kops.reduce(x, "sum", np.int64(1)), x.astype(np.float64).sum(1), 3)

    def test_subclasses(self):
        a, b = self.shared((5, 5)).view(np.matrix), self.shared((5, 5))
        for _ in range(3):
            self.near(np.asarray(self.kops.matmul(a, b)), np.asarray(a, np.float64) @ b, 5)

    def test_large_ordinary_arrays(self):
        """Several threads copy them, along whichever axis is best."""
        x = self.numbers((1100, 2, 1300))
        for a in (x[:, 0], x[::-1, 1, ::-1].T, x.reshape(2, -1)[:, ::2], x[:1, 0], np.broadcast_to(x[0, 0], (1200, 1300))):
            with self.subTest(shape=a.shape, strides=a.strides):
                self.assertTrue((self.kops.asarray(a) == a).all())
                out = np.zeros_like(a)
                self.kops.copy(a, out=out)
                self.assertTrue((out == a).all())

    def test_gemm_accumulates(self):
        a, b = self.shared((6, 7)), self.numbers((7, 8))
        for c in self.shared((6, 8)), self.numbers((6, 8)):
            expected = 2 * (a.astype(np.float64) @ b) - 0.5 * c.astype(np.float64)
            self.assertIs(self.kops.gemm(2, a, b, -0.5, c), c)
            self.near(c, expected, 14)
        c = self.poisoned((6, 8))
        self.near(self.kops.gemm(1, a, b, 0, c), a.astype(np.float64) @ b, 8)

    def complex_numbers(self, shape, dtype):
        of_part = np.float32 if dtype == np.complex64 else np.float64
        return (self.numbers(shape, of_part) + 1j * self.numbers(shape, of_part)).astype(dtype)

    def test_sums_of_complex_numbers(self):
        for dtype, error in (np.complex64, 1e-5), (np.complex128, 1e-13):
            x, row = self.complex_numbers((3, 5, 7), dtype), self.complex_numbers((7,), dtype)
            for y in (self.kops.add(x, row), self.kops.subtract(x, -row)):
                self.assertEqual(y.dtype, dtype)
                self.assertEqual(y.tolist(), (x + row).tolist())
            z = x[:, ::2, ::-1]
            self.assertEqual(self.kops.add(z, z).tolist(), (z + z).tolist())
            for axis in (None, 0, 1, 2, (0, 2)):
                np.testing.assert_allclose(self.kops.sum(x, axis=axis), x.sum(axis), rtol=0, atol=error)
                np.testing.assert_allclose(self.kops.mean(z, axis=axis), z.mean(axis), rtol=0, atol=error)
        self.fails(kops.Error, "complex numbers have a sum and a mean, but no max here", self.kops.max, x)

    def test_products_of_complex_numbers(self):
        for dtype, error in (np.complex64, 1e-5), (np.complex128, 1e-13):
            a, b = self.complex_numbers((2, 5, 7), dtype), self.complex_numbers((7, 3), dtype)
            near = dict(rtol=0, atol=20 * error)
            np.testing.assert_allclose(self.kops.matmul(a, b), a @ b, **near)
            self.assertEqual(self.kops.matmul(a, b).dtype, dtype)
            np.testing.assert_allclose(self.kops.matmul(a[0].T, a[0], conj_a=True), a[0].conj().T @ a[0], **near)
            np.testing.assert_allclose(self.kops.matmul(a, b, conj_a=True, conj_b=True), (a @ b).conj(), **near)
            np.testing.assert_allclose(self.kops.matmul(b[:, 0], b[:, 1], conj_a=True), np.vdot(b[:, 0], b[:, 1]), **near)
            c = self.complex_numbers((2, 5, 3), dtype)
            expected = (1 + 2j) * (a @ b.conj()) + 0.5j * c
            for out in c.copy(), self.kops.asarray(c):
                self.assertIs(self.kops.gemm(1 + 2j, a, b, 0.5j, out, conj_b=True), out)
                np.testing.assert_allclose(out, expected, **near)
            with self.kops.job() as job:
                y = job.matmul(a, b, conj_a=True)
                z = job.gemm(1j, y, b.T, 0, np.full((2, 5, 7), np.nan, dtype))
            np.testing.assert_allclose(z, 1j * (a.conj() @ b) @ b.T, rtol=0, atol=200 * error)
            for kernel in "openblas", "reference":
                np.testing.assert_allclose(self.kops.matmul(a, b, kernel=kernel), a @ b, **near)
            self.fails(kops.ArgumentError, "take no bias", self.kops.matmul, a, b, bias=b[0])
            self.fails(kops.ArgumentError, "take no activation", self.kops.matmul, a, b, activation="relu")
            self.fails(kops.DtypeError, "one type", self.kops.matmul, a, b.real)
        x = self.numbers((3, 3))
        self.near(self.kops.matmul(x, x, conj_a=True), x.astype(np.float64) @ x, 8)
        self.fails(kops.ArgumentError, "alpha_imag is 1", self.kops.gemm, 1j, x, x, 0, self.shared((3, 3)))

    def test_softmax(self):
        for _ in range(harness.count(400, 30)):
            shape = tuple(self.random.choice([1, 2, 7, 33]) for _ in range(self.random.randrange(1, 5)))
            x, axis = self.some_view(shape, self.random.choice(DTYPES)), self.random.randrange(-len(shape), len(shape))
            log, scale = self.random.random() < 0.5, self.random.choice([1.0, 0.125])
            expected = softmax(x, axis, scale, log)
            self.near(self.kops.softmax(x, axis, scale=scale, log=log), expected, 4, f"{shape} {axis}")
            self.near(self.kops.softmax(x, axis, scale=scale, log=log, out=x), expected, 4, f"in place {shape} {axis}")

    def test_reduce_along_every_axis(self):
        for _ in range(harness.count(400, 30)):
            shape = tuple(self.random.choice([1, 2, 7, 33]) for _ in range(self.random.randrange(1, 5)))
            x, axis = self.some_view(shape, np.float32), self.random.randrange(-len(shape), len(shape))
            kind, keepdims = self.random.choice(["sum", "max", "mean", "min", "prod"]), self.random.random() < 0.5
            expected = np.asarray(getattr(x.astype(np.float64), kind)(axis, keepdims=keepdims))
            self.near(self.kops.reduce(x, kind, axis, keepdims=keepdims), expected, 8, f"{shape} {axis} {keepdims}")
            out = self.poisoned(expected.shape)
            self.assertIs(self.kops.reduce(x, kind, axis, keepdims=keepdims, out=out), out)
            self.near(out, expected, 8, f"out, {shape} {axis} {keepdims}")

    def test_reduce_over_several_axes(self):
        """By views where these do, else by a copy."""
        for _ in range(harness.count(400, 30)):
            shape = tuple(self.random.choice([1, 2, 3, 7]) for _ in range(self.random.randrange(1, 6)))
            axes = tuple(self.random.sample(range(-len(shape), 0), self.random.randrange(1, len(shape) + 1)))
            axis = self.random.choice([axes, axes, None])
            if len(shape) > 4:  # one that is joined of all of them
                axis = None
            x = self.some_view(shape, np.float32) if len(shape) < 5 else self.shared(shape)
            kind, keepdims = self.random.choice(["sum", "max", "mean", "min", "prod"]), self.random.random() < 0.5
            expected = np.asarray(getattr(x.astype(np.float64), kind)(axis, keepdims=keepdims))
            say = f"{shape} {x.strides} {axis} {keepdims}"
            for _ in range(3):
                self.near(getattr(self.kops, kind)(x, axis, keepdims=keepdims), expected, 400, say)
            out = self.poisoned(expected.shape)
            self.assertIs(getattr(self.kops, kind)(x, axis, out, keepdims=keepdims), out)
            self.near(out, expected, 400, say)
            with self.kops.job() as job:
                y = getattr(job, kind)(x, axis, keepdims=keepdims)
            self.near(y, expected, 400, say)
        x = self.shared((5, 6, 7))[:, ::2]
        for _ in range(4):  # its copy lies elsewhere each time, and others' arrays where it was
            others = [self.kops.zeros((5, 3, 7)) for _ in range(3)]
            self.near(self.kops.sum(x), np.asarray(x.astype(np.float64).sum()), 100)
            self.assertTrue(all((other == 0).all() for other in others))
        self.assertEqual(self.kops.sum(3.0), 3)
        self.assertEqual(self.kops.prod(np.empty((0, 3), np.float32)), 1)
        self.assertEqual(self.kops.sum(np.empty((0, 3), np.float32), axis=(0,)).tolist(), [0, 0, 0])
        self.fails(kops.ShapeError, "1 to 4 axes", self.kops.sum, np.zeros((1, 2, 1, 2, 1, 2), np.float32), 0)

    def test_where_the_largest_and_the_smallest_are(self):
        for _ in range(harness.count(400, 30)):
            shape = tuple(self.random.choice([1, 2, 7, 33]) for _ in range(self.random.randrange(1, 5)))
            x, axis = self.some_view(shape, self.random.choice(DTYPES)), self.random.choice([None, *range(-len(shape), len(shape))])
            if self.random.random() < 0.5:
                x[...] = np.round(x)  # many are equal
            if self.random.random() < 0.2:
                x[tuple(self.random.randrange(n) for n in shape)] = np.nan
            name, keepdims = self.random.choice(["argmax", "argmin"]), self.random.random() < 0.5
            expected = np.asarray(getattr(np, name)(x, axis, keepdims=keepdims))
            say = f"{name} {shape} {x.strides} {axis}"
            for _ in range(3):
                y = getattr(self.kops, name)(x, axis, keepdims=keepdims)
                self.assertEqual((y.dtype, y.shape), (np.int32, expected.shape), say)
                np.testing.assert_array_equal(y, expected, say)
        x = self.shared((3, 4, 5))
        np.testing.assert_array_equal(self.kops.argmax(x, (0, 2)), x.transpose(1, 0, 2).reshape(4, -1).argmax(1))
        out = self.kops.zeros((3, 4), np.int32)
        self.assertIs(self.kops.argmin(x, -1, out), out)
        np.testing.assert_array_equal(out, x.argmin(-1))
        self.fails(kops.DtypeError, "int32", self.kops.argmax, x, -1, self.poisoned((3, 4)))
        self.fails(kops.ShapeError, "no index", self.kops.argmax, np.empty((3, 0), np.float32), 1)
        d = self.kops.device_array((3, 4, 5)).upload(x)
        np.testing.assert_array_equal(self.kops.argmax(d, 1).download(), x.argmax(1))
        self.near(self.kops.sum(d, (0, 2)).download(), x.astype(np.float64).sum((0, 2)), 20)

    def test_the_largest_and_the_smallest(self):
        for _ in range(harness.count(400, 30)):
            shape = tuple(self.random.choice([1, 2, 7, 33, 300]) for _ in range(self.random.randrange(1, 4)))
            x, axis = self.some_view(shape, self.random.choice(DTYPES)), self.random.randrange(-len(shape), len(shape))
            if self.random.random() < 0.5:
                x[...] = np.round(x)  # many are equal
            if self.random.random() < 0.3:
                x[tuple(self.random.randrange(n) for n in shape)] = np.nan
            k, largest, ordered = self.random.randint(1, shape[axis]), self.random.random() < 0.5, self.random.random() < 0.5
            wide = np.moveaxis(x.astype(np.float64), axis, -1)  # NaN comes last of all that rise
            keys = (np.where(np.isnan(wide), 0, -wide), ~np.isnan(wide)) if largest else (wide,)
            order = np.lexsort((np.broadcast_to(np.arange(shape[axis]), wide.shape), *keys))
            want = np.moveaxis(order[..., :k] if ordered else np.sort(order[..., :k]), -1, axis)
            say = f"{shape} {x.strides} {axis} {k} {largest} {ordered}"
            for _ in range(3):
                values, indices = self.kops.topk(x, k, axis, largest, ordered)
                self.assertEqual((values.dtype, indices.dtype), (x.dtype, np.int32), say)
                np.testing.assert_array_equal(indices, want, say)
                np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis), say)
        x = self.shared((6, 40))
        out = self.kops.empty((6, 3)), self.kops.empty((6, 3), np.int32)
        for _ in range(4):
            x[...] = self.numbers(x.shape)
            results = self.kops.top_k(x, 3, out=(out[0], out[1]))
            self.assertIs(results[0], out[0])
            np.testing.assert_array_equal(out[1], np.argsort(-x, 1)[:, :3])
        job = self.kops.job()
        with job:
            values, indices = job.top_k(x, 2, 0, kind="smallest")
            rows = job.gather(x, indices[0])
        np.testing.assert_array_equal(values, np.sort(x, 0)[:2])
        np.testing.assert_array_equal(rows, x[np.argmin(x, 0)])
        self.assertEqual([y.shape for y in self.kops.top_k(np.empty((0, 5), np.float32), 2)], [(0, 2)] * 2)
        self.fails(kops.ShapeError, "k may be at most 40", self.kops.top_k, x, 41)
        self.fails(kops.ArgumentError, "k", self.kops.top_k, x, 0)
        self.fails(kops.ArgumentError, "a tuple of 2 arrays, values, indices", self.kops.top_k, x, 3, out=out[0])
        self.fails(kops.ShapeError, "out has shape", self.kops.top_k, x, 2, out=out)
        self.fails(kops.DtypeError, "int32", self.kops.top_k, x, 3, out=(out[0], out[0]))
        d = self.kops.device_array((6, 40)).upload(x)
        values, indices = self.kops.top_k(d, 5)
        np.testing.assert_array_equal(indices.download(), np.argsort(-x, 1)[:, :5])

    def definite(self, shape, dtype):
        """Hermitian positive definite matrices."""
        a = self.numbers(shape, np.float64)
        a = a + 1j * self.numbers(shape, np.float64) if np.dtype(dtype).kind == "c" else a
        return (a @ np.swapaxes(a.conj(), -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)

    def test_cholesky(self):
        for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-13), (np.complex64, 1e-5), (np.complex128, 1e-13)):
            for shape in ((1, 1), (70, 70), (9, 5, 5), (2, 3, 40, 40)):
                a = self.definite(shape, dtype)
                for upper in (False, True):
                    factor, info = self.kops.cholesky(a, upper=upper)
                    want = np.linalg.cholesky(a.astype(np.complex128))
                    want = np.swapaxes(want.conj(), -1, -2) if upper else want
                    self.assertEqual((factor.dtype, info.dtype, info.shape), (dtype, np.int32, shape[:-2] or (1,)))
                    np.testing.assert_allclose(factor, want, tolerance, 10 * tolerance)
                    self.assertFalse(info.any())
        a = self.kops.asarray(self.definite((30, 30), np.float64))
        want, other = np.linalg.cholesky(a), a.copy()
        info = self.kops.empty(1, np.int32)
        self.assertIs(self.kops.cholesky(a, (a, info), keep=True)[0], a)
        np.testing.assert_allclose(np.tril(a), want, 1e-12)
        np.testing.assert_array_equal(np.triu(a, 1), np.triu(other, 1))
        other[20, 20] = -1
        factor, info = self.kops.cholesky(np.stack([other, other.T + 99 * np.eye(30)]))
        self.assertEqual(list(info), [21, 0])
        self.assertTrue(np.isnan(factor[0][np.tril_indices(30)]).all() and np.isfinite(factor[1]).all())
        self.assertEqual([y.shape for y in self.kops.cholesky(np.empty((0, 3, 3)))], [(0, 3, 3), (0,)])
        self.fails(kops.ShapeError, "equal extents", self.kops.cholesky, self.numbers((3, 4)))

    def test_lu(self):
        for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-13), (np.complex64, 1e-5), (np.complex128, 1e-13)):
            for shape in ((1, 1), (70, 70), (9, 5, 7), (2, 3, 40, 30)):
                a = self.numbers(shape).astype(dtype)
                lu, pivots, info = self.kops.lu(a)
                m, n = shape[-2:]
                k = min(m, n)
                self.assertEqual((lu.dtype, pivots.shape, info.shape), (dtype, (*shape[:-2], k), shape[:-2] or (1,)))
                self.assertFalse(info.any())
                product = (np.tril(lu[..., :k], -1) + np.eye(m, k)) @ np.triu(lu[..., :k, :])
                for got, want, exchanges in zip(product.reshape(-1, m, n), a.reshape(-1, m, n).copy(), pivots.reshape(-1, k)):
                    for i, other in enumerate(exchanges):
                        want[[i, other]] = want[[other, i]]
                    np.testing.assert_allclose(got, want, 0, 10 * tolerance)
        self.assertEqual(list(self.kops.lu(np.array([[[0.0, 1], [2, 0]], [[1, 2], [1, 2]]]))[2]), [0, 2])
        a = self.shared((30, 30))
        out = a, self.kops.empty(30, np.int32), self.kops.empty(1, np.int32)
        want = self.kops.lu(a.copy())
        for got, expected in zip(self.kops.lu(a, out), want):
            np.testing.assert_array_equal(got, expected)
        self.assertEqual([y.shape for y in self.kops.lu(np.empty((0, 3, 4)))], [(0, 3, 4), (0, 3), (0,)])

    def test_triangular_solve(self):
        for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-13), (np.complex64, 1e-5), (np.complex128, 1e-13)):
            a, b = self.definite((2, 3, 70, 70), dtype), self.numbers((2, 3, 70, 5)).astype(dtype)
            for upper, unit, conj, right in itertools.product((False, True), repeat=4):
                t = np.triu(a) if upper else np.tril(a)
                if unit:
                    t = t / 100
                    t[..., range(70), range(70)] = 1
                c = t.conj() if conj else t
                rhs = np.swapaxes(b, 2, 3) if right else b
                x = self.kops.triangular_solve(t.astype(dtype), rhs, upper=upper, unit=unit, conj_a=conj, right=right)
                np.testing.assert_allclose(x @ c if right else c @ x, rhs, 0, 100 * tolerance)
        x = self.kops.asarray(b[0])
        self.assertIs(self.kops.triangular_solve(a[0, 0], x, x), x)
        np.testing.assert_allclose(np.tril(a[0, 0]) @ x, b[0], 0, 1e-12)
        self.fails(kops.ShapeError, "b must have as many rows as a", self.kops.triangular_solve, a, b[:, :, :9])

    def test_the_nearest_rows(self):
        for metric in ("ip", "l2", "cosine"):
            for dtype in (np.float32, np.float16):
                q, base = self.numbers((7, 24), dtype), self.kops.asarray(self.numbers((500, 24), dtype))
                a, b = q.astype(np.float64), base.astype(np.float64)
                scores = {"ip": a @ b.T, "l2": ((a[:, None] - b) ** 2).sum(-1),
                          "cosine": a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)}[metric]
                order = np.argsort(scores if metric == "l2" else -scores, 1, "stable")
                values, indices = self.kops.search(q, base, 9, metric=metric)
                self.assertEqual((values.dtype, indices.dtype, values.shape), (np.float32, np.int32, (7, 9)))
                np.testing.assert_array_equal(indices, order[:, :9], metric)
                np.testing.assert_allclose(values, np.take_along_axis(scores, order[:, :9], 1), 1e-4, 1e-4)
                mask = self.random.choice([1, 3]) * np.arange(500) % 4 == 3
                bits = np.packbits(np.pad(mask, (0, 12)), bitorder="little").view(np.int32)
                values, indices = self.kops.search(q, base, 200, metric=metric, filter=bits)
                n = mask.sum()
                self.assertTrue(mask[indices[:, :n]].all())
                self.assertTrue((indices[:, n:] == -1).all())
                self.assertTrue((values[:, n:] == (np.inf if metric == "l2" else -np.inf)).all())
        self.fails(kops.ShapeError, "columns", self.kops.search, self.shared((2, 5)), self.shared((9, 6)))
        self.fails(kops.ShapeError, "filter is 3", self.kops.search, self.shared((2, 5)), self.shared((9, 5)),
                   filter=np.zeros(3, np.int32))
        self.fails(kops.ArgumentError, "k is 257", self.kops.search, self.shared((2, 5)), self.shared((9, 5)), 257)

    def test_integers_and_complex_numbers_are_moved(self):
        for dtype in np.int32, np.complex64, np.complex128:
            x = self.random_bits((3, 20, 33), dtype)
            here = self.kops.asarray(x)
            self.assertEqual(here.dtype, dtype)
            self.assertTrue(self.kops.owns(here) and (here == x).all())
            self.assertTrue((self.kops.copy(x[:, ::2]) == x[:, ::2]).all())
            self.assertTrue((self.kops.transpose(x) == x.swapaxes(1, 2)).all())
            self.assertTrue((self.kops.transpose(here[..., 1:]) == x[..., 1:].swapaxes(1, 2)).all())
            self.assertEqual(self.kops.zeros(5, dtype).sum(), 0)
            d = self.kops.device_array(x.shape, dtype)
            d.upload(x)
            self.assertTrue((d.download() == x).all())

    def random_bits(self, shape, dtype):
        n = int(np.prod(shape))
        return np.array([self.random.randrange(-2**31, 2**31) for _ in range(n)]).reshape(shape).astype(dtype)

    def test_the_others(self):
        for dtype in DTYPES:
            x, y = self.some_view((3, 4, 5), dtype), self.some_view((4, 1), dtype)
            wide = x.astype(np.float64)
            self.assertTrue((self.kops.transpose(x) == x.swapaxes(1, 2)).all())
            self.assertTrue((self.kops.copy(x) == x).all())
            self.near(self.kops.add(x, y), wide + y, 2)
            self.near(self.kops.add(x, 1), wide + 1, 2)
            self.near(self.kops.add(0.5, x), wide + 0.5, 2)
            np.testing.assert_array_equal(self.kops.multiply(x, y), x * y)
            np.testing.assert_array_equal(self.kops.multiply(2, x), 2 * x)
            np.testing.assert_array_equal(self.kops.subtract(x, y), x - y)
            np.testing.assert_array_equal(self.kops.subtract(2, x), 2 - x)
            for axis in range(-3, 3):
                self.near(self.kops.reduce(x, "sum", axis), wide.sum(axis), 8)
                self.near(self.kops.reduce(x, "mean", axis, keepdims=True), wide.mean(axis, keepdims=True), 2)
                self.near(self.kops.reduce(x, "max", axis), wide.max(axis), 0)

    def test_functions_of_one_number(self):
        def sigmoid(x):
            return 1 / (1 + np.exp(-x))

        functions = {**{name: f for name, f in ACTIVATIONS.items() if name != "none"}, "sigmoid": sigmoid, "tanh": np.tanh,
                     "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "negative": np.negative}
        for dtype in DTYPES:
            for name, function in functions.items():
                x = np.abs(self.some_view((3, 4, 5), dtype)) + dtype.type(0.25) if name in ("log", "sqrt") \
                    else self.some_view((3, 4, 5), dtype)
                expected = function(x.astype(np.float64))
                for _ in range(3):
                    self.near(getattr(self.kops, name)(x), expected, 4, name)
                out = self.poisoned((3, 4, 5), dtype)
                self.assertIs(getattr(self.kops, name)(x, out), out)
                self.near(out, expected, 4, name)
                with self.kops.job() as job:
                    y = getattr(job, name)(x)
                self.near(y, expected, 4, name)
        x = self.shared((6, 7))
        want = np.exp(np.float32(-2) * x.astype(np.float64)).clip(0.5, 2)
        self.near(self.kops.unary(x, function="exp", scale=-2, low=0.5, high=2), want, 4)
        self.assertIs(self.kops.unary(x, x, function="exp", scale=-2, low=0.5, high=2), x)
        self.near(x, want, 4)
        self.assertEqual(self.kops.exp(0.0), 1)
        self.assertEqual(self.kops.exp(np.empty((0, 3), np.float32)).shape, (0, 3))
        self.fails(kops.ArgumentError, "it is one of none, relu", self.kops.unary, x, function="erf")
        self.fails(kops.ArgumentError, "low is not a number", self.kops.unary, x, low=np.nan)
        self.fails(kops.DtypeError, "i32", self.kops.exp, np.ones(3, np.int32))

    def test_clip(self):
        x = np.array([-np.inf, -2, -0.0, 0.5, 3, np.inf, np.nan], np.float32)
        for low, high in (-1, 1), (None, 1), (-1, None), (None, None), (2, 1), (np.float32(-1), np.inf):
            np.testing.assert_array_equal(self.kops.clip(x, low, high), x if (low, high) == (None, None)
                                          else np.clip(x, low, high))
        np.testing.assert_array_equal(self.kops.clip(x, max=0, out=x), [-np.inf, -2, 0, 0, 0, 0, np.nan])

    def test_an_op_by_its_description(self):
        x, row, out = self.numbers((3, 4)), self.numbers((4,)), np.full((3, 4), np.nan, np.float32)
        self.assertIs(self.kops.multiply(x, row, out), out)
        np.testing.assert_array_equal(out, x * row)
        for _ in range(4):  # prepared from the third time on
            x += 1
            np.testing.assert_array_equal(self.kops.multiply(x, row, out), x * row)
        shared = self.shared((3, 4))
        shared[...] = x
        np.testing.assert_array_equal(self.kops.multiply(shared, row, out=shared), x * row)
        self.assertEqual(self.kops.multiply(np.float32(3), np.float32(4)).shape, ())
        self.assertEqual(self.kops.multiply(np.empty((0, 4), np.float32), row).shape, (0, 4))
        with self.kops.job() as job:
            y = job.multiply(job.multiply(x, x), row)
        np.testing.assert_array_equal(y, x * x * row)
        self.assertIn("y = a * b", kops.multiply.__doc__)
        self.fails(kops.ShapeError, "cannot be broadcast together", self.kops.multiply, x, self.numbers((3,)))
        self.fails(kops.DtypeError, "one type", self.kops.multiply, x, row.astype(np.float64))
        self.fails(kops.DtypeError, "i32", self.kops.multiply, x.astype(np.int32), row.astype(np.int32))

    def test_results_are_shared_and_ordinary_outputs_are_filled(self):
        x = self.numbers((30, 30))
        self.assertTrue(self.kops.owns(self.kops.matmul(x, x)))
        self.assertEqual(self.kops.receipt.copied_bytes, x.nbytes)
        self.assertGreater(self.kops.receipt.copy_us, 0)
        out = np.full((30, 30), np.nan, np.float32)
        self.kops.matmul(x, x, out=out)
        self.assertEqual(self.kops.receipt.copied_bytes, 2 * x.nbytes)
        self.near(out, x.astype(np.float64) @ x, 30)
        self.assertEqual(self.kops.receipt.ops[0].op, "gemm")
        self.assertEqual(self.kops.receipt.device, "cpu")

    def test_what_is_refused(self):
        a, read_only = self.shared((3, 4)), self.shared((3, 3))
        read_only.flags.writeable = False
        self.fails(kops.ShapeError, "must be as long as", self.kops.matmul, a, a)
        self.fails(kops.ShapeError, "needs an axis", self.kops.matmul, a, np.float32(2))
        self.fails(kops.ShapeError, "cannot be broadcast", self.kops.matmul, self.numbers((2, 3, 4)), self.numbers((3, 4, 5)))
        self.fails(kops.ShapeError, "out has shape", self.kops.matmul, a, a.T, out=self.kops.empty((2, 3)))
        self.fails(kops.DtypeError, "convert with astype()", self.kops.matmul, a, a.T.astype("d"))
        self.fails(kops.DtypeError, "int64", self.kops.matmul, [[1]], [[1]])
        self.fails(kops.ArgumentError, "read-only", self.kops.matmul, a, a.T, out=read_only)
        self.fails(kops.ArgumentError, "precision", self.kops.matmul, a, a.T, precision="f8")
        self.fails(kops.ArgumentError, "kernel", self.kops.matmul, a, a.T, kernel="none such")
        self.fails(TypeError, "kernel is 3; it must be a string", self.kops.matmul, a, a.T, kernel=3)
        whole, job = np.ones((3, 3), np.int32), self.kops.job()
        job.matmul(whole, whole)
        for call in (lambda: self.kops.softmax(whole), lambda: self.kops.reduce(whole), lambda: self.kops.add(whole, whole),
                     lambda: self.kops.matmul(whole, whole), lambda: self.kops.job().softmax(whole), job.run):
            self.fails(kops.DtypeError, "x.astype(numpy.float32)", call)
        self.fails(kops.ShapeError, "no axis 2", self.kops.softmax, a, 2)
        self.fails(kops.ShapeError, "axes", self.kops.softmax, np.zeros((1,) * 5, "f"))
        self.fails(kops.ArgumentError, "there is no kind 'product': it is one of sum, max, mean", self.kops.reduce, a, "product")
        self.fails(kops.ArgumentError, "there is no kind 1", self.kops.reduce, a, 1)
        self.fails(kops.ShapeError, "no axis -1", self.kops.softmax, np.float32(1))
        self.fails(kops.ShapeError, "out has shape", self.kops.reduce, a, out=self.kops.empty((3, 1)))
        self.fails(kops.ArgumentError, "verlap", self.kops.matmul, a[:, :3], a[:, 1:], out=a[:, :3])
        x = self.numbers((4, 4))
        self.fails(kops.ArgumentError, "overlap", self.kops.matmul, x, x[::-1], out=x)
        self.near(self.kops.matmul(a, a.T), a.astype(np.float64) @ a.T, 4)  # and it goes on


class Fused(PythonTest):
    """Products with a bias and an activation."""

    def shapes_of_bias(self, shape):
        """Of every rank, and each with some extents of 1."""
        for first in range(len(shape) + 1):
            yield shape[first:]
            yield tuple(self.random.choice([1, n]) for n in shape[first:])

    def test_bias_is_broadcast_as_by_numpy(self):
        pairs = [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
                 ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((2, 3, 1, 4, 5), (1, 3, 2, 5, 6)), ((3, 0), (0, 5)),
                 ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((1, 1), (1, 1)), ((5, 2, 3, 4), (5, 2, 4, 1)), ((0, 4), (4, 5))]
        for left, right in pairs:
            shape = np.matmul(np.zeros(left), np.zeros(right)).shape
            for of_bias in self.shapes_of_bias(shape):
                dtype, activation = self.random.choice(DTYPES), self.random.choice([*ACTIVATIONS])
                for make in self.numbers, self.shared:
                    with self.subTest(left=left, right=right, bias=of_bias, dtype=dtype, activation=activation):
                        a, b, bias = make(left, dtype), make(right, dtype), make(of_bias, dtype)
                        expected, out = fused(a, b, bias, activation), self.poisoned(shape, dtype)
                        self.near(self.kops.matmul(a, b, bias=bias, activation=activation), expected, 16)
                        self.assertIs(self.kops.matmul(a, b, out, bias=bias, activation=activation), out)
                        self.near(out, expected, 16)

    def test_every_activation(self):
        a, b = self.numbers((6, 300), np.float64), self.numbers((300, 70), np.float64)
        for dtype, scale in (np.float64, 200), (np.float32, 200), (np.float16, 30):  # sums are some 10 in size
            x, y, bias = a.astype(dtype), b.astype(dtype), np.linspace(-9, 9, 70).astype(dtype)
            for activation in ACTIVATIONS:
                with self.subTest(dtype=dtype, activation=activation):
                    self.near(self.kops.matmul(x, y, activation=activation), fused(x, y, 0, activation), scale)
                    self.near(self.kops.matmul(x, y, bias=bias, activation=activation), fused(x, y, bias, activation),
                              scale)

    def test_random_products(self):
        for i in range(harness.count(1000, 60)):
            m, n, k = (self.random.choice([1, 2, 3, 17, 32, 65]) for _ in range(3))
            batch = self.random.choice([(), (), (2,), (3, 2)])
            dtype, activation = self.random.choice(DTYPES), self.random.choice([*ACTIVATIONS])
            a, b = self.shared((*batch, m, k), dtype), self.numbers((*batch, k, n), dtype)
            bias = self.numbers(self.random.choice([*self.shapes_of_bias((*batch, m, n))]), dtype)
            bias = self.random.choice([bias, self.kops.asarray(bias), bias[..., ::-1] if bias.ndim else bias])
            result = self.kops.matmul(a, b, bias=bias, activation=activation)
            self.near(result, fused(a, b, bias, activation), 8 + k, f"{i}: {a.shape} × {b.shape} + {bias.shape}, {dtype}")

    def test_gemm_adds_all_and_then_applies_the_activation(self):
        a, b, bias = self.shared((6, 7)), self.numbers((7, 8)), self.numbers((8,))
        for activation, of in ACTIVATIONS.items():
            for c in self.shared((6, 8)), self.numbers((6, 8)):
                expected = of(2 * (a.astype(np.float64) @ b) - 0.5 * c.astype(np.float64) + bias)
                self.assertIs(self.kops.gemm(2, a, b, -0.5, c, bias=bias, activation=activation), c)
                self.near(c, expected, 24)
        c = self.poisoned((6, 8))
        self.near(self.kops.gemm(0, a, b, 0, c, bias=bias, activation="relu"), np.maximum(np.tile(bias, (6, 1)), 0), 0)

    def test_a_number_takes_the_type_of_the_product(self):
        for dtype in DTYPES:
            x = self.numbers((3, 3), dtype)
            self.near(self.kops.matmul(x, x, bias=-0.5, activation="relu"), fused(x, x, -0.5, "relu"), 8)

    def test_calls_that_differ_in_bias_or_activation_alone(self):
        a, b, out = self.shared((9, 9)), self.shared((9, 9)), self.poisoned((9, 9))
        first, second, column = self.shared((9,)), self.shared((9,)), self.shared((9, 1))
        ways = [(bias, activation) for bias in (None, first, second, column) for activation in ACTIVATIONS]
        for _ in range(5):  # prepared from the third time on
            self.random.shuffle(ways)
            first[...] = self.numbers((9,))  # also a job that was prepared sees it
            for bias, activation in ways:
                expected = fused(a, b, 0 if bias is None else bias, activation)
                self.near(self.kops.matmul(a, b, bias=bias, activation=activation), expected, 24)
                self.near(self.kops.matmul(a, b, out, bias=bias, activation=activation), expected, 24)
        for bias, activation in ways:
            for _ in range(4):  # the same arrays again and again
                out.fill(np.nan)
                self.kops.matmul(a, b, out, bias=bias, activation=activation)
                self.near(out, fused(a, b, 0 if bias is None else bias, activation), 24)

    def test_jobs(self):
        async def main():
            job = self.kops.job()
            y = job.matmul(x, w, bias=bias, activation="gelu")
            z = job.gemm(1, y, w, 0, self.poisoned((4, 4)), bias=bias, activation="silu")
            await job
            return z

        x, w, bias = self.numbers((4, 4)), self.numbers((4, 4)), self.shared((4,))
        expected = fused(fused(x, w, bias, "gelu"), w, bias, "silu")
        self.near(asyncio.run(main()), expected, 64)
        with self.kops.job() as job:
            y = job.matmul(x, w, bias=bias, activation="gelu")
            z = job.matmul(y, w, bias=bias, activation="silu")
        self.near(z, expected, 64)
        for _ in range(4):
            bias[...] = self.numbers((4,))
            job.run()
            self.near(z, fused(fused(x, w, bias, "gelu"), w, bias, "silu"), 64)

    def test_arrays_of_a_device(self):
        x, bias = self.numbers((3, 3)), self.kops.device_array((3,)).upload(np.ones(3, np.float32))
        y = self.kops.matmul(x, x, bias=bias, activation="relu")
        self.assertIsInstance(y, kops.DeviceArray)
        self.near(y.download(), fused(x, x, 1, "relu"), 8)

    def test_what_is_refused(self):
        a, b = self.shared((3, 4)), self.shared((4, 5))
        for bias in self.numbers((4,)), self.numbers((3,)), self.numbers((1, 3, 5)), self.numbers((0,)):
            self.fails(kops.ShapeError, f"bias has shape {bias.shape}, which cannot be broadcast to the result's (3, 5)",
                       self.kops.matmul, a, b, bias=bias)
        self.fails(kops.DtypeError, "a is float32, b is float32, bias is float64", self.kops.matmul, a, b, bias=np.ones(5))
        self.fails(kops.DtypeError, "int64", self.kops.matmul, a, b, bias=np.ones(5, np.int64))
        self.fails(kops.ArgumentError, "x.filled", self.kops.matmul, a, b, bias=np.ma.masked_equal(np.ones(5, "f"), 0))
        self.fails(kops.ArgumentError, "there is no activation 'swish': it is one of none, relu, gelu, gelu_tanh, silu",
                   self.kops.matmul, a, b, activation="swish")
        self.fails(kops.ArgumentError, "there is no activation None", self.kops.gemm, 1, a, b, 0, self.shared((3, 5)),
                   activation=None)
        for c in self.shared((3, 5)), self.numbers((3, 5)):
            before = c.copy()
            for bias in c, c[1], c[:, :1]:
                self.fails(kops.ArgumentError, "overlap", self.kops.matmul, a, b, c, bias=bias)
                self.fails(kops.ArgumentError, "overlap", self.kops.gemm, 1, a, b, 1, c, bias=bias)
            np.testing.assert_array_equal(c, before)
        self.near(self.kops.matmul(a, b, bias=self.kops.zeros(5)), fused(a, b), 8)  # and it goes on


if __name__ == "__main__":
    unittest.main()
