"""On the CPU device a product has the bits that the library gives for the same call, whatever its shape."""
import ctypes.util
import sys
import unittest

import case
from support import harness

OPENBLAS = ctypes.util.find_library("openblas") or ""

# Each product by kopsd, and by the library itself: what differs.
COMPARE = """
import ctypes, random, sys
from array import array
rng, most = random.Random(int(sys.argv[2])), int(sys.argv[4])
process, library = ctypes.CDLL(None), ctypes.CDLL(sys.argv[1])
def pointer(a): return a.buffer_info()[0]
def at(value, kind): return ctypes.byref(kind(value))
def numbers(code, n): return array(code, [rng.uniform(-1, 1) for _ in range(n)])
for i in range(int(sys.argv[3])):
    code, name, real = rng.choice((("d", "dgemm_", ctypes.c_double), ("f", "sgemm_", ctypes.c_float)))
    m, n, k = (rng.choice((1, 2, 3, 4, 5, 8, rng.randint(1, most))) for _ in range(3))
    trans_a, trans_b = rng.choice("NT"), rng.choice("NT")
    alpha, beta = rng.choice((1, -1, 0.3)), rng.choice((0, 1, -0.7))
    a, b, c = numbers(code, m * k), numbers(code, k * n), numbers(code, m * n)
    lda, ldb = (m if trans_a == "N" else k), (k if trans_b == "N" else n)
    results = []
    for blas in (process, library):
        result = array(code, c)
        getattr(blas, name)(trans_a.encode(), trans_b.encode(), *[at(x, ctypes.c_int) for x in (m, n, k)], at(alpha, real),
                            ctypes.c_void_p(pointer(a)), at(lda, ctypes.c_int), ctypes.c_void_p(pointer(b)),
                            at(ldb, ctypes.c_int), at(beta, real), ctypes.c_void_p(pointer(result)), at(m, ctypes.c_int),
                            ctypes.c_size_t(1), ctypes.c_size_t(1))
        results.append(result.tobytes())
    if results[0] != results[1]:
        print(name, trans_a, trans_b, m, n, k, alpha, beta)
"""


@unittest.skipUnless(OPENBLAS, "no OpenBLAS")
class Bits(case.BlasTest):
    settings = {"cpu_threads": 1}

    def openblas_core(self):
        """The setting by which kopsd's OpenBLAS uses all of a CPU that it does not know, for the program's too."""
        with open(f"/proc/{self.daemon.pid}/environ", encoding="utf-8", errors="replace") as f:
            settings = dict(s.partition("=")[::2] for s in f.read().split("\0"))
        return {k: v for k, v in settings.items() if k == "OPENBLAS_CORETYPE"}

    def compare(self, seed, n, most):
        out, calls = self.run_program(sys.executable, "-c", COMPARE, OPENBLAS, str(seed), str(n), str(most),
                                      LD_PRELOAD=case.LIBRARY, OPENBLAS_NUM_THREADS="1", **self.openblas_core())
        self.assertEqual(out, "")
        self.assertEqual({why for c in calls.values() for why in c}, {"kopsd"})
        self.assertEqual(sum(c["kopsd"] for c in calls.values()), n)

    def test_small_products(self):
        self.compare(harness.SEED, harness.count(1000, 100), 40)

    def test_larger_products(self):
        self.compare(harness.SEED + 1, harness.count(60, 10), 300)


if __name__ == "__main__":
    unittest.main()
