"""Arrays in shared and in device memory: NumPy's in every respect, and alive for as long as anything looks at them."""
import importlib
import os
import pathlib
import pickle
import re
import unittest
import unittest.mock

import numpy as np

import kops
from kops import _copy, _library
from case import DTYPES, PythonTest, harness


class SharedArrays(PythonTest):
    def test_they_are_numpys(self):
        for dtype in DTYPES:
            x = self.kops.zeros((3, 5), dtype)
            self.assertIs(type(x), np.ndarray)
            self.assertEqual((x.shape, x.dtype, x.sum()), ((3, 5), dtype, 0))
            self.assertEqual(memoryview(x).nbytes, x.nbytes)
            x += 2
            self.assertTrue((np.from_dlpack(x) == 2).all())
            self.assertTrue((x[1:, ::2].T @ np.ones((2, 1), dtype) == 4).all())
            self.assertTrue(self.kops.owns(x[1:, ::2]))
        self.assertEqual(self.kops.empty(7).shape, (7,))
        self.assertEqual(self.kops.empty((2, 0, 3)).size, 0)
        self.assertEqual(self.kops.zeros(()).shape, ())

    def test_types_are_those_of_the_list(self):
        listed = (pathlib.Path(__file__).resolve().parents[2] / "proto" / "dtype.def").read_text()
        types = dict(re.findall(r"^X\((\w+), \w+, (\d+)", listed.split("#ifdef")[0], re.MULTILINE))
        self.assertEqual({str(code): name for code, name in _library.DTYPES.items()}, {n: name for name, n in types.items()})

    def test_zeros_are_zeros_when_memory_is_used_again(self):
        for n in 10, 1000, 1 << 20:
            for _ in range(3):
                x = self.kops.zeros(n)
                self.assertEqual(np.count_nonzero(x), 0)
                x.fill(np.nan)
                del x

    def test_the_pool_counts_memory_as_kopsd_does(self):
        arrays = []
        for nbytes in (1, 4096, 65536, 65537, 1 << 20, 5 << 20, 5 << 20, 5 << 20, 64 << 20, (64 << 20) + 1, 67 << 20):
            arrays.append(self.kops.empty(nbytes // 2 + 1, np.float16))
            mine, = self.kops.users()
            self.assertEqual(self.kops._session.pool.live_bytes, mine.mapped_bytes, nbytes)

    def test_asarray_copies_what_is_elsewhere_only(self):
        x = self.numbers((4, 6))
        y = self.kops.asarray(x)
        self.assertIs(self.kops.asarray(y), y)
        self.assertFalse(np.shares_memory(x, y))
        self.assertTrue((x == y).all())
        self.assertTrue(self.kops.asarray(np.asfortranarray(x)).flags.f_contiguous)
        self.assertEqual(self.kops.asarray([[1, 2]], "float16").dtype, np.float16)
        big_endian = self.kops.asarray(x.astype(">f4"))
        self.assertTrue(big_endian.dtype.isnative and (big_endian == x).all())

    def test_what_is_refused(self):
        self.fails(kops.DtypeError, "convert it with astype()", self.kops.empty, 3, np.int64)
        self.fails(TypeError, "int64", self.kops.asarray, np.arange(3))
        self.fails(kops.ShapeError, "must not be negative", self.kops.empty, (2, -1))
        self.fails((kops.OutOfMemoryError, kops.QuotaError), "", self.kops.empty, 1 << 50)

    def test_a_size_beyond_64_bits(self):
        for make in self.kops.empty, self.kops.zeros, self.kops.device_array:
            self.fails(kops.ShapeError, "18446744073709551616 bytes", make, (1 << 32, 1 << 30))  # 2^64: 0 in ctypes

    def test_cached_memory_goes_before_a_quota_is_in_the_way(self):
        self.daemon.reload(max_mapped_per_uid="9M")
        self.addCleanup(self.daemon.reload, max_mapped_per_uid="1G")
        self.kops.empty(4 << 18)  # 4 MiB, which the client keeps
        self.assertEqual(self.kops.zeros(5 << 18).nbytes, 5 << 20)
        self.fails(kops.QuotaError, "max-mapped-per-uid", self.kops.empty, 9 << 18)

    def test_memory_lives_as_long_as_a_view(self):
        view = self.shared((100, 100))[3:, 3]
        copy = view.copy()
        self.kops.close()
        self.assertTrue((view == copy).all())
        view += 1
        self.fails(kops.StateError, "closed", self.kops.empty, 3)
        self.assertEqual(self.control.stats()["sessions"], 2)
        del view
        self.assertTrue(harness.eventually(lambda: self.control.stats()["sessions"] == 1))

    def test_many_small_arrays_need_few_buffers(self):
        arrays = [self.kops.zeros((8, 8)) + i for i in range(3)]  # results of NumPy are ordinary arrays
        arrays = [self.kops.asarray(np.full((8, 8), i, np.float32)) for i in range(5000)]
        self.assertLess(self.control.stats()["buffers"], 30)
        self.assertTrue(all((x == i).all() for i, x in enumerate(arrays)))

    def test_idle_memory_is_bounded(self):
        with kops.connect(self.daemon.socket, cache_bytes=1 << 20) as client:
            for _ in range(3):
                arrays = [client.empty(1 << 18) for _ in range(8)]
                del arrays
                self.assertTrue(harness.eventually(lambda: self.control.stats()["mapped_bytes"] <= 1 << 20))

    def test_pickles_are_copies(self):
        x = self.shared((3, 3))
        y = pickle.loads(pickle.dumps(x))
        self.assertTrue((x == y).all())
        self.assertFalse(self.kops.owns(y))
        for what in self.kops, self.kops.job(), self.kops.device_array(3):
            self.fails(TypeError, "cannot be pickled", pickle.dumps, what)

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.fails(kops.DtypeError, "install ml_dtypes", self.kops.empty, 3, "bfloat16")
            return
        x = self.kops.asarray(self.numbers((16, 16)).astype(ml_dtypes.bfloat16))
        self.assertEqual(self.kops.matmul(x, x).dtype, np.dtype(ml_dtypes.bfloat16))


class Labelled:
    """As of pandas, xarray and pint: it has elements, and NumPy's functions mean something else on it."""

    def __init__(self, elements):
        self.elements = elements

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.elements, dtype)

    def __array_ufunc__(self, *_, **__):
        return NotImplemented


class Quantity(np.ndarray):
    """As of astropy."""

    def __array_function__(self, *_, **__):
        return NotImplemented


class Tagged(np.ndarray):
    """More than elements, but NumPy's functions compute with those."""

    tag = "mine"


class Threads(unittest.TestCase):
    def test_copies_take_a_thread_for_each_cpu_that_there_is(self):
        allowed = len(os.sched_getaffinity(0))
        self.assertIn(_library.lib.kops_python_cpus(), range(1, allowed + 1))  # a cgroup's quota may leave fewer
        with unittest.mock.patch.dict(os.environ):
            for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS":
                os.environ.pop(name, None)
            self.assertEqual(_copy._threads(), min(_library.lib.kops_python_cpus(), _copy.THREADS_MAX))
            os.environ["OMP_NUM_THREADS"] = "1"
            self.assertEqual(_copy._threads(), 1)


class Kinds(PythonTest):
    """Classes of arrays."""

    def calls(self, x):
        """Every way in which x comes to kops, as an operand of 4 × 4."""
        k, plain = self.kops, self.shared((4, 4))
        ways = [lambda f=f: f(x) for f in (k.asarray, k.softmax, k.transpose, k.reduce, k.copy,
                                           k.device_array((4, 4)).upload)]
        ways += [lambda: k.matmul(x, plain), lambda: k.matmul(plain, x), lambda: k.add(x, 1), lambda: k.add(plain, x),
                 lambda: k.gemm(1, x, plain, 0, plain.copy()), lambda: k.asarray(x, np.float64)]
        return ways + [lambda f=f: getattr(k.job(), f)(x) for f in ("softmax", "copy")]

    def outputs(self, x):
        k, plain = self.kops, self.shared((4, 4))
        return [lambda f=f: f(plain, out=x) for f in (k.softmax, k.transpose, k.copy)] + [
            lambda: k.matmul(plain, plain, out=x), lambda: k.add(plain, 1, out=x), lambda: k.gemm(1, plain, plain, 1, x),
            lambda: k.job().copy(plain, out=x), lambda: k.device_array((4, 4)).download(out=x)]

    def test_masked_arrays_are_refused(self):
        for elements in self.numbers((4, 4)), self.shared((4, 4)):
            for mask in elements > 0, np.ma.nomask:
                x = np.ma.MaskedArray(elements, mask)
                before = elements.copy()
                for call in self.calls(x) + self.outputs(x):
                    self.fails(kops.ArgumentError, "x.filled(value)", call)
                self.assertTrue((elements == before).all())
                self.assertFalse(self.kops.owns(x))
        self.fails(kops.ArgumentError, "x.filled(value)", self.kops.asarray, [x[0], x[1]])
        self.fails(kops.ArgumentError, "x.filled(value)", self.kops.asarray, [[1.0, np.ma.masked]], np.float32)

    def test_a_masked_array_in_the_place_of_one_that_came_before(self):
        """Of the same elements, whose job is known."""
        a, out = self.shared((4, 4)), self.poisoned((4, 4))
        for _ in range(4):
            self.kops.softmax(a, out=out)
            self.kops.softmax(a)
        x, y = np.ma.MaskedArray(a, a > 0), np.ma.MaskedArray(out)
        self.fails(kops.ArgumentError, "x.filled(value)", self.kops.softmax, x, out=out)
        self.fails(kops.ArgumentError, "x.filled(value)", self.kops.softmax, x)
        self.fails(kops.ArgumentError, "x.filled(value)", self.kops.softmax, a, out=y)

    def test_units_and_labels_are_refused(self):
        for x in self.shared((4, 4)).view(Quantity), self.numbers((4, 4)).view(Quantity):
            for call in self.calls(x) + self.outputs(x):
                self.fails(kops.ArgumentError, "numpy.asarray(x)", call)
        for call in self.calls(Labelled(self.numbers((4, 4)))):
            self.fails(kops.ArgumentError, "Labelled may mean more than its elements", call)

    def test_classes_with_elements_only(self):
        for kind in np.matrix, np.recarray, np.memmap, Tagged:
            for elements in self.numbers((4, 4)), self.shared((4, 4)):
                x, expected = elements.view(kind), elements.astype(np.float64) @ elements
                for _ in range(3):
                    result = self.kops.matmul(x, elements)
                    self.assertIs(type(result), np.ndarray)
                    self.near(result, expected, 8)
                self.assertIs(type(self.kops.asarray(x)), np.ndarray)
                self.assertEqual(self.kops.owns(x), self.kops.owns(elements))
                out = np.full((4, 4), np.nan, np.float32).view(kind)
                self.assertIs(self.kops.matmul(x, x, out=out), out)
                self.near(np.asarray(out), expected, 8)
                for call in self.calls(x) + self.outputs(x):
                    call()

    def test_libraries_that_are_here(self):
        plain = self.numbers((4, 4))
        for module, make in [("pandas", lambda m: m.DataFrame(plain)), ("pandas", lambda m: m.Series(plain[0])),
                             ("xarray", lambda m: m.DataArray(plain)), ("pint", lambda m: m.UnitRegistry().meter * plain),
                             ("astropy.units", lambda m: plain * m.m)]:
            try:
                x = make(importlib.import_module(module))
            except ImportError:
                continue
            with self.subTest(module):
                self.fails(kops.ArgumentError, "numpy.asarray(x)", self.kops.asarray, x)
                self.fails(kops.ArgumentError, "numpy.asarray(x)", self.kops.softmax, x)

    def test_a_number_of_numpy_in_shared_memory(self):
        """NumPy makes an array of it for whoever asks for its address: the next one lies in the same place."""
        x = self.shared((4,))
        with self.kops.memory():
            for value in np.arange(1, 9, dtype=np.float32):
                self.near(self.kops.add(x, value), x.astype(np.float64) + value, 4)


class Memory(PythonTest):
    def test_ordinary_arrays_without_copies(self):
        with self.kops.memory():
            a = self.numbers((60, 70))
            b = np.asfortranarray(a.T) + np.float32(1)
            r = np.arange(10.0)
            r.resize(5000, refcheck=False)
        outside = np.ones(3)
        self.assertTrue(self.kops.owns(a) and self.kops.owns(b) and self.kops.owns(r))
        self.assertFalse(self.kops.owns(outside))
        self.assertEqual((r[9], np.count_nonzero(r[10:])), (9, 0))
        self.near(self.kops.matmul(a, b), a.astype(np.float64) @ b, 70)
        self.assertEqual(self.kops.receipt.copied_bytes, 0)

    def test_memory_goes_back(self):
        for i in range(200):
            with self.kops.memory():
                x = np.zeros((256, 256)) + i
                self.assertEqual(x[3, 3], i)
        del x
        self.assertLess(self.control.stats()["mapped_bytes"], 8 << 20)

    def test_arrays_that_die_of_an_exception(self):
        def fail():
            raise KeyError("mine")

        with self.kops.memory():
            with self.assertRaisesRegex(KeyError, "mine"):
                np.ones(3) + fail()
            with self.assertRaisesRegex(KeyError, "mine"):
                np.array([np.ones(3), fail()])
            self.assertRaises(ValueError, lambda: np.ones(3) @ np.ones(4))
        self.assertEqual(self.kops._session.pool.live, 0)

    def test_blocks_nest_and_end_with_exceptions(self):
        with self.kops.memory():
            with self.assertRaises(ZeroDivisionError), self.kops.memory():
                1 / 0
            inside = np.ones(9)
        self.assertTrue(self.kops.owns(inside))
        self.assertFalse(self.kops.owns(np.ones(9)))
        self.kops.close()
        with self.assertRaises(kops.StateError), self.kops.memory():
            pass
        self.assertFalse(np.ones(9).sum() - 9)


class DeviceArrays(PythonTest):
    def test_there_and_back(self):
        for dtype in DTYPES:
            x = self.numbers((5, 7), dtype)
            d = self.kops.device_array((5, 7), dtype)
            self.assertEqual(np.count_nonzero(d.download()), 0)
            d.upload(x)
            self.assertTrue((d.download() == x).all())
            self.assertTrue((d.T[1:3].download() == x.T[1:3]).all())
            self.assertTrue((d[..., ::2].download() == x[..., ::2]).all())
            d[1:, 2].upload(0)
            self.assertEqual(np.count_nonzero(d[1:, 2].download()), 0)
            self.assertTrue((d[0].download() == x[0]).all())
            heads = self.kops.device_array((35,), dtype).upload(x.ravel())[7:].reshape(2, 2, -1).swapaxes(0, 1)
            self.assertTrue((heads.download() == x[1:].reshape(2, 2, 7).swapaxes(0, 1)).all())
            self.assertEqual(d.reshape((7, -1)).shape, (7, 5))

    def test_results_stay_there(self):
        x, y = self.numbers((8, 8)), self.numbers((8, 8))
        d = self.kops.device_array((8, 8)).upload(x)
        z = self.kops.matmul(d, y)
        self.assertIsInstance(z, kops.DeviceArray)
        self.near(self.kops.softmax(z).download().sum(-1), np.ones(8), 8)
        self.near((d @ y + d).download(), x.astype(np.float64) @ y + x, 16)
        self.near((x @ d).download(), x.astype(np.float64) @ x, 16)

    def test_what_is_refused(self):
        d = self.kops.device_array((4, 4))
        self.fails(kops.ArgumentError, "fetch it with download()", np.asarray, d)
        self.fails(kops.ArgumentError, "take a slice", lambda: d[0, 0])
        self.fails(kops.ArgumentError, "index", lambda: d[[0, 1]])
        self.fails(kops.ShapeError, "cannot be uploaded", d.upload, np.zeros(3, np.float32))
        self.fails(kops.ShapeError, "of shape (4, 4) cannot be reshaped to (3, 5)", d.reshape, 3, 5)
        self.fails(kops.ArgumentError, "reshape() makes views only", d.T.reshape, 16)
        self.fails(kops.ArgumentError, "reshape() makes views only", d[:, 1:].reshape, 12)
        self.fails(kops.ArgumentError, "device", self.kops.device_array, 3, device="gpu99")
        with kops.connect(self.daemon.socket) as other:
            self.fails(kops.StateError, "another client", other.matmul, d, d)


if __name__ == "__main__":
    unittest.main()
