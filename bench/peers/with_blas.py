#!/usr/bin/env python3
"""Times BLAS routines of C on ordinary matrices, by whatever BLAS is preloaded or else by OpenBLAS. Medians in ms, as one JSON
document: {"dsyrk": ..., ...}.

    with_blas.py [SIDE]      of matrices of SIDE × SIDE, 4096 by default

gemm is an update of LU: C of SIDE × SIDE and a depth of SIDE / 8. gemm_batch is 64 products of SIDE / 8; a BLAS without that
function gets as many calls of gemm.
"""
import ctypes
import ctypes.util
import json
import statistics
import sys
import time

import numpy as np

COL_MAJOR, NO_TRANS, LOWER, NON_UNIT, LEFT = 102, 111, 122, 131, 141
WARM_UPS, RUNS = 8, 5  # libkops-blas has decided which side is faster after eight
BATCH = 64


def load():
    """dlsym() finds what is preloaded before OpenBLAS."""
    ctypes.CDLL(ctypes.util.find_library("openblas") or "libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(None)


def median_ms(action):
    times = []
    for i in range(WARM_UPS + RUNS):
        begin = time.perf_counter()
        action()
        if i >= WARM_UPS:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


class Routines:
    """Of one type. Neither the triangle nor its inverse has large elements, so b may be multiplied by it again and again."""

    def __init__(self, blas, letter, side):
        self.blas, self.letter, self.side = blas, letter, side
        self.dtype, self.real = {"s": (np.float32, ctypes.c_float), "d": (np.float64, ctypes.c_double)}[letter]
        rng = np.random.default_rng(1)
        self.a, self.b, self.c = (rng.uniform(-1, 1, (side, side)).astype(self.dtype) for _ in range(3))
        self.triangle = np.triu(self.a / side) + np.eye(side, dtype=self.dtype)  # by rows; below the diagonal by columns

    def call(self, name, *arguments):
        pointers = (x.ctypes.data_as(ctypes.c_void_p) if isinstance(x, np.ndarray) else x for x in arguments)
        getattr(self.blas, f"cblas_{self.letter}{name}")(*pointers)

    def gemm(self, n, depth, a, b, c):
        self.call("gemm", COL_MAJOR, NO_TRANS, NO_TRANS, n, n, depth, self.real(-1), a, n, b, depth, self.real(1), c, n)

    def update(self):
        self.gemm(self.side, self.side // 8, self.a, self.b, self.c)

    def syrk(self):
        n = self.side
        self.call("syrk", COL_MAJOR, LOWER, NO_TRANS, n, n, self.real(1), self.a, n, self.real(0), self.c, n)

    def symm(self):
        n = self.side
        self.call("symm", COL_MAJOR, LEFT, LOWER, n, n, self.real(1), self.a, n, self.b, n, self.real(0), self.c, n)

    def triangular(self, name):
        n = self.side
        self.call(name, COL_MAJOR, LEFT, LOWER, NO_TRANS, NON_UNIT, n, n, self.real(1), self.triangle, n, self.b, n)

    def trsm(self):
        self.triangular("trsm")

    def trmm(self):
        self.triangular("trmm")

    def batch(self):
        n = self.side // 8
        parts = [x.reshape(BATCH, n, n) for x in (self.a, self.b, self.c)]
        if not hasattr(self.blas, f"cblas_{self.letter}gemm_batch"):
            for a, b, c in zip(*parts):
                self.gemm(n, n, a, b, c)
            return
        ints = [ctypes.byref(ctypes.c_int(i)) for i in (NO_TRANS, n, BATCH)]
        a, b, c = ((ctypes.c_void_p * BATCH)(*(x.ctypes.data for x in part)) for part in parts)
        minus, one = ctypes.byref(self.real(-1)), ctypes.byref(self.real(1))
        self.call("gemm_batch", COL_MAJOR, ints[0], ints[0], ints[1], ints[1], ints[1], minus, a, ints[1], b, ints[1], one, c,
                  ints[1], 1, ints[2])


def main():
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    blas, got = load(), {}
    for letter in "sd":
        r = Routines(blas, letter, side)
        for name, action in (("gemm", r.update), ("syrk", r.syrk), ("symm", r.symm), ("trsm", r.trsm), ("trmm", r.trmm),
                             ("gemm_batch", r.batch)):
            got[letter + name] = median_ms(action)
    print(json.dumps(got))


main()
