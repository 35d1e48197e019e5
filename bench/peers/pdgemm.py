"""pdgemm.py SCALAPACK N BLOCK: one rank of a product of two N by N matrices, which lie in blocks on a square grid of ranks.

Prints on rank 0 "right", the seconds, and GFLOP/s if every rank's part is what NumPy has. ScaLAPACK comes without headers,
and needs none of MPI's.
"""
import ctypes
import sys
import time
from ctypes import byref, c_double, c_int, c_size_t

import numpy as np

library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
N, BLOCK = map(int, sys.argv[2:])
ROW_MAJOR, ALL = b"Row-major", b"All"


def number(value=0):
    return byref(c_int(value))


def grid():
    """BLACS's context, the grid's side, and this rank's row and column there."""
    rank, ranks, context, row, column = (c_int() for _ in range(5))
    library.Cblacs_pinfo(byref(rank), byref(ranks))
    side = round(ranks.value ** 0.5)
    library.Cblacs_get(-1, 0, byref(context))
    library.Cblacs_gridinit(byref(context), ROW_MAJOR, side, side)
    library.Cblacs_gridinfo(context, byref(c_int()), byref(c_int()), byref(row), byref(column))
    return context, side, row.value, column.value


def multiply(context, a, b, c):
    one, zero, first, status = byref(c_double(1)), byref(c_double(0)), number(1), c_int()
    about = (c_int * 9)()
    library.descinit_(about, number(N), number(N), number(BLOCK), number(BLOCK), number(), number(), byref(context),
                      number(max(1, len(a))), byref(status))
    assert status.value == 0, status
    a, b, c = (x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, c))
    library.pdgemm_(b"N", b"N", number(N), number(N), number(N), one, a, first, first, about, b, first, first, about,
                    zero, c, first, first, about, c_size_t(1), c_size_t(1))


def main():
    context, side, row, column = grid()
    mine = np.ix_(*([i for i in range(N) if i // BLOCK % side == place] for place in (row, column)))
    a, b = np.random.default_rng(1).uniform(-1, 1, (2, N, N))
    c = np.full(a[mine].shape, np.nan, order="F")
    library.Cblacs_barrier(context, ALL)
    begin = time.perf_counter()
    multiply(context, np.asfortranarray(a[mine]), np.asfortranarray(b[mine]), c)
    library.Cblacs_barrier(context, ALL)
    seconds = time.perf_counter() - begin
    error = abs(c - a[mine[0][:, 0]] @ b[:, mine[1][0]]).max()
    assert error < N * 1e-15, error
    library.Cblacs_barrier(context, ALL)
    if row == column == 0:
        print(f"right {seconds:.3f} s {2e-9 * N ** 3 / seconds:.2f} GFLOP/s", flush=True)
    library.Cblacs_gridexit(context)
    library.Cblacs_exit(0)


main()
