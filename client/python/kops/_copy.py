"""Copies of large arrays, by several threads: NumPy copies without the GIL."""
from __future__ import annotations

import concurrent.futures
import functools
import os
from typing import Any

import numpy as np

from . import _session
from ._library import lib

GRAIN_BYTES = 2 << 20  # a thread wakes up in less time than copying as much takes
THREADS_MAX = 16       # more wait for the memory

_helpers: concurrent.futures.ThreadPoolExecutor | None = None


@functools.lru_cache(maxsize=None)
def _cpus() -> int:
    return int(lib.kops_python_cpus())


def _threads() -> int:
    """One for each CPU of the process, or as many as its BLAS is told."""
    named = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or ""
    most = int(named) if named.isdecimal() and int(named) > 0 else THREADS_MAX
    return min(_cpus(), most, THREADS_MAX)


def copy_array(to: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """to[...] = source, of one shape."""
    n = min(to.nbytes // GRAIN_BYTES, _threads()) if to.nbytes >= 2 * GRAIN_BYTES else 1
    axis = max(range(to.ndim), key=lambda i: (to.shape[i] > 1, abs(to.strides[i])), default=0)
    if n < 2 or to.shape[axis] < n:
        np.copyto(to, source)
        return
    parts = list(zip(np.array_split(to.swapaxes(0, axis), n), np.array_split(source.swapaxes(0, axis), n)))
    pending = [_executor().submit(np.copyto, *part) for part in parts[1:]]
    np.copyto(*parts[0])
    for future in pending:
        future.result()


def _executor() -> concurrent.futures.ThreadPoolExecutor:
    global _helpers
    if _helpers is None:
        _helpers = concurrent.futures.ThreadPoolExecutor(THREADS_MAX - 1, "kops copy")
    return _helpers


def _forget_executor() -> None:
    global _helpers
    _helpers = None


_session.in_child.append(_forget_executor)
