"""How wide a BLAS takes integers to be: the library is asked, and its file's name says nothing."""
import ctypes.util
import os
import sys
import unittest

import case

FAKE_64, FAKE_32 = os.environ.get("KOPS_TEST_FAKE_64", ""), os.environ.get("KOPS_TEST_FAKE_32", "")
REAL_64 = ctypes.util.find_library("openblas64") or ""

# One call, the first of its function, as a program would make it that means 64-bit integers.
CALL = """
import ctypes, sys
library, mode, name, m = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
blas, libm, process = ctypes.CDLL(library, mode), ctypes.CDLL("libm.so.6"), ctypes.CDLL(None)
a, b, c = (ctypes.c_double * 16)(*range(16)), (ctypes.c_double * 16)(*range(16)), (ctypes.c_double * 16)()
def word(value): return ctypes.c_int64(value)
def at(value): return ctypes.byref(word(value))
def array(*values): return (ctypes.c_int64 * len(values))(*values)
one, no = ctypes.c_double(1), ctypes.c_double(0)
arguments = {
    "dgemm_": (b"N", b"N", at(m), at(4), at(4), ctypes.byref(one), a, at(m), b, at(4), ctypes.byref(no), c, at(m)),
    "dtrsm_": (b"R", b"U", b"N", b"U", at(m), at(4), ctypes.byref(one), a, at(m), c, at(m)),
    "cblas_dgemm": (102, 111, 111, word(m), word(4), word(4), one, a, word(m), b, word(4), no, c, word(m)),
    "cblas_dgemm_batch": (102, array(111 + (111 << 32)), array(111 + (111 << 32)), array(m), array(4), array(4),
                          ctypes.byref(one), array(ctypes.addressof(a)), array(m), array(ctypes.addressof(b)), array(4),
                          ctypes.byref(no), array(ctypes.addressof(c)), array(m), word(1), array(1))}
libm.feclearexcept(0x3d)
getattr(process, name)(*arguments[name])
flags = libm.fetestexcept(0x3d)
seen = list((ctypes.c_int64 * 3).in_dll(blas, "seen")) if "fake" in library else []
print(seen, int(c[0]), flags)
"""
RIGHT = 0 * 0 + 4 * 1 + 8 * 2 + 12 * 3


class Widths(case.BlasTest):
    def call(self, library, name, m, mode=ctypes.RTLD_LOCAL, **settings):
        return self.run_program(sys.executable, "-c", CALL, library, str(mode), name, str(m), LD_PRELOAD=case.LIBRARY,
                                **settings)

    def test_64_bits_go_on_whole(self):
        """From the very first call, in a library whose name has 32 bits."""
        m = 2**32 + 4
        for mode in (ctypes.RTLD_LOCAL, ctypes.RTLD_GLOBAL):
            for name in ("dgemm_", "dtrsm_", "cblas_dgemm"):
                for verbose in ("1", ""):
                    with self.subTest(name, mode=mode, verbose=verbose):
                        out, calls = self.call(FAKE_64, name, m, mode, KOPS_BLAS_VERBOSE=verbose)
                        self.assertEqual(out, f"{[m, 4, m]} 0 0\n")
                        self.assertEqual(calls, {name: {"kopsd": 0, "64-bit integers": 1}} if verbose else {})

    def test_a_function_that_the_library_lacks(self):
        """A batch of 64-bit integers is calls of its gemm, or kopsd's."""
        m = 2**32 + 4
        out, _ = self.call(FAKE_64, "cblas_dgemm_batch", m, KOPS_BLAS_THRESHOLD="inf")
        self.assertEqual(out, f"{[m, 4, m]} 0 0\n")
        out, calls = self.call(FAKE_64, "cblas_dgemm_batch", 4)
        self.assertEqual(out, f"{[0, 0, 0]} {RIGHT} 0\n")
        self.assertEqual(calls, {"cblas_dgemm_batch": {"kopsd": 1}})

    def test_32_bits_go_to_kopsd(self):
        """What lies in the other half is nobody's number."""
        for mode in (ctypes.RTLD_LOCAL, ctypes.RTLD_GLOBAL):
            for name in ("dgemm_", "cblas_dgemm"):
                with self.subTest(name, mode=mode):
                    out, calls = self.call(FAKE_32, name, 2**32 + 4, mode)
                    self.assertEqual(out, f"{[0, 0, 0]} {RIGHT} 0\n")
                    self.assertEqual(calls, {name: {"kopsd": 1}})

    def test_32_bits_go_on(self):
        for name in ("dgemm_", "cblas_dgemm"):
            with self.subTest(name):
                out, _ = self.call(FAKE_32, name, 2**32 + 4, KOPS_BLAS_THRESHOLD="inf")
                self.assertEqual(out, f"{[4, 4, 4]} 0 0\n")

    @unittest.skipUnless(REAL_64, "no OpenBLAS with 64-bit integers")
    def test_openblas(self):
        for name in ("dgemm_", "cblas_dgemm"):
            with self.subTest(name):
                out, calls = self.call(REAL_64, name, 4)
                self.assertEqual(out, f"[] {RIGHT} 0\n")
                self.assertEqual(calls, {name: {"kopsd": 0, "64-bit integers": 1}})


if __name__ == "__main__":
    unittest.main()
