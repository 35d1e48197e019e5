#!/usr/bin/env python3
"""Times products from Python: kops.matmul of shared arrays of 64×64 and of ordinary arrays of 4096×4096, NumPy's, and
PyTorch's with the arrays copied to the GPU and back. Medians in µs, as one JSON document.

    with_python.py C_CALL        the library made of c_call.c, whose calls take turns with those of shared arrays
    with_python.py numpy         NumPy's products alone
"""
import ctypes
import json
import os
import statistics
import sys
import time

import numpy as np

SIZE = 4096
SMALL = 64    # as in c_call.c
TURNS = 30
TURN = 100    # calls
SETTLED = 10  # of them, until the caches have what this turn needs
LEARNT = 20   # products of ordinary arrays, until kopsd has compared its kernels and pinned the memory


def median_us(action, reps, warmup=3):
    times = []
    for i in range(-max(warmup, reps // 10), reps):
        begin = time.perf_counter()
        action()
        if i >= 0:
            times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def calls_us(a, b, c):
    """Without a lambda, which would count."""
    import kops
    matmul, now, times = kops.matmul, time.perf_counter, []
    for _ in range(TURN):
        begin = now()
        matmul(a, b, out=c)
        times.append((now() - begin) * 1e6)
    return times


def c_calls_us(library):
    times = (ctypes.c_double * TURN)()
    if library.c_call_times(times, TURN) < 0:
        sys.exit("a product from C failed")
    return list(times)


def shared(path, a, b, c):
    """Turns of both, in one process, so that both find the same daemon and the same clock of the CPU."""
    library = ctypes.CDLL(path)
    if library.c_call_open() < 0:
        sys.exit("kopsd cannot be reached from C")
    calls, c_calls = [], []
    for turn in range(-1, TURNS):
        got, c_got = calls_us(a, b, c), c_calls_us(library)
        if turn >= 0:
            calls += got[SETTLED:]
            c_calls += c_got[SETTLED:]
    return {"shared_us": statistics.median(calls), "c_call_us": statistics.median(c_calls)}


def blas():
    """The BLAS that NumPy has loaded, and how many cores there are for it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps if "blas" in line and "kops" not in line}
    name = "OpenBLAS" if any("openblas" in f for f in files) else " ".join(sorted(files)) or "no BLAS"
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def torch_us(a, b):
    try:
        import torch
    except ImportError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return median_us(lambda: (torch.from_numpy(a).cuda() @ torch.from_numpy(b).cuda()).cpu().numpy(), 10)


def main():
    alone = sys.argv[1:] == ["numpy"]
    rng = np.random.default_rng(1)
    got = {"blas": blas(), "ordinary": {}}
    if not alone:
        import kops
        a, b, c = (kops.asarray(rng.uniform(-1, 1, (SMALL, SMALL)).astype(np.float32)) for _ in range(3))
        got |= shared(sys.argv[1], a, b, c)
        got["new_us"] = median_us(lambda: kops.matmul(a, b), 3000)
    for dtype in ("float32", "float64"):
        a, b = (rng.uniform(-1, 1, (SIZE, SIZE)).astype(dtype) for _ in range(2))
        got["ordinary"][dtype] = {"numpy_us": median_us(lambda: a @ b, 10, LEARNT)}
        if not alone:
            got["ordinary"][dtype]["kops_us"] = median_us(lambda: kops.matmul(a, b), 10, LEARNT)
            got["ordinary"][dtype]["torch_us"] = torch_us(a, b)
    print(json.dumps(got))


main()
