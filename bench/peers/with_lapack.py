#!/usr/bin/env python3
"""Times whole calls of LAPACK on ordinary matrices: NumPy's, by whatever is preloaded or else by NumPy's own OpenBLAS, or CuPy's
with copies to the GPU and back. The least of a few runs in ms, as one JSON document: {"solve float64 4096": ..., ...}.

    with_lapack.py numpy|cupy [SIDES [TYPES]]      with commas; 1024,4096,8192 and float64,float32,complex128 by default

solve has 64 right-hand sides.
"""
import json
import sys
import time

import numpy as np

SOLVED = 64


def matrices(side, dtype):
    """A general matrix far from singular, one that is positive definite, and right-hand sides."""
    rng = np.random.default_rng(1)

    def draw(*shape):
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype)

    general = draw(side, side)
    definite = np.tril(general, -1)
    definite += definite.conj().T
    definite[np.diag_indices(side)] = 4 * side
    return general, definite, draw(side, SOLVED)


def least_ms(action, runs):
    times = []
    for _ in range(runs + 1):  # the first one finds memory
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times[1:])


def by_numpy(general, definite, sides):
    return {"solve": lambda: np.linalg.solve(general, sides), "cholesky": lambda: np.linalg.cholesky(definite),
            "inv": lambda: np.linalg.inv(general)}


def by_cupy(general, definite, sides):
    import cupy

    def put(x):
        return cupy.asarray(x)

    return {"solve": lambda: cupy.asnumpy(cupy.linalg.solve(put(general), put(sides))),
            "cholesky": lambda: cupy.asnumpy(cupy.linalg.cholesky(put(definite))),
            "inv": lambda: cupy.asnumpy(cupy.linalg.inv(put(general)))}


def main():
    way = {"numpy": by_numpy, "cupy": by_cupy}[sys.argv[1]]
    sides = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "1024,4096,8192").split(",")]
    types = (sys.argv[3] if len(sys.argv) > 3 else "float64,float32,complex128").split(",")
    got = {}
    for dtype in types:
        for side in sides:
            for name, action in way(*matrices(side, np.dtype(dtype).type)).items():
                got[f"{name} {dtype} {side}"] = least_ms(action, 5 if side <= 4096 else 2)
    print(json.dumps(got))


main()
