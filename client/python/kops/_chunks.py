"""One op on chunks of a larger array, in whatever process a scheduler has chosen for it: by kopsd, or by NumPy where
kopsd cannot.

Chunks are NumPy arrays. Results are in kops memory while there is room, so the next op takes them without a copy. What
came from another process or from disk is ordinary memory, which each op copies anew: whoever made it may write it again
at any time, so no copy of it is kept.
"""
from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _session
from ._array import NDArray, elements, native
from ._client import Client
from ._job import Job
from .errors import ArgumentError, ConnectError, Error, TimedOutError

CONNECT_S = 2.0    # reconnecting after a death included
AWAY_S = 5.0       # after a failure kopsd is left alone
LIMIT_S = 60.0     # of a job, and
FLOPS_PER_S = 1e9  # of a slow core: one that takes longer than it would is given up

log = logging.getLogger("kops.dask")


class Op:
    """What is computed: by kopsd with add(job, out, *operands), by NumPy with substitute(*operands)."""

    def __init__(self, shape: tuple[int, ...], flops: float, add: Callable[..., object],
                 substitute: Callable[..., NDArray]) -> None:
        self.shape = shape
        self.flops = flops
        self.add = add
        self.substitute = substitute


class Chunks:
    """What a process has for chunks: its client, and counts. Any thread may call compute()."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes  # of kops memory that chunks may hold
        self.counts = {"kopsd": 0, "numpy": 0, "copied_bytes": 0}
        self._client: Client | None = None
        self._away_until = 0.0
        self._lock = threading.RLock()

    def compute(self, op: Op, *operands: NDArray) -> NDArray:
        result = self._by_kopsd(op, operands)
        with self._lock:
            self.counts["numpy" if result is None else "kopsd"] += 1
        return op.substitute(*operands).astype(native(operands[0].dtype), copy=False) if result is None else result

    def _by_kopsd(self, op: Op, operands: tuple[NDArray, ...]) -> NDArray | None:
        """None: kopsd could not. What is wrong with the call itself is raised."""
        try:
            client = self._connected()
            if client is None:
                return None
            return self._run(client, op, operands)
        except ArgumentError:
            raise
        except Error as e:
            self._note(e)
            return None

    def _run(self, client: Client, op: Op, operands: tuple[NDArray, ...]) -> NDArray:
        dtype = native(operands[0].dtype)
        has_room = self._has_room(client, int(np.prod(op.shape)) * dtype.itemsize)
        out = client.empty(op.shape, dtype) if has_room else np.empty(op.shape, dtype)
        job = client.job()
        op.add(job, out, *operands)
        job.submit()
        _wait(job, LIMIT_S + op.flops / FLOPS_PER_S)
        receipt = job.receipt
        with self._lock:
            self.counts["copied_bytes"] += receipt.copied_bytes if receipt else 0
        return out

    # kopsd

    def _connected(self) -> Client | None:
        with self._lock:
            if time.monotonic() < self._away_until:
                return None
            if self._client is None:
                try:
                    self._client = Client(name="dask", timeout=CONNECT_S, cache_bytes=self.memory_bytes // 4)
                except Error as e:
                    self._note(e)  # before the next thread tries
            return self._client

    def _note(self, e: Error) -> None:
        """Threads that find kopsd away at the same time say so once."""
        away = isinstance(e, (ConnectError, TimedOutError))
        with self._lock:
            is_known = away and time.monotonic() < self._away_until
            if away:
                self._away_until = time.monotonic() + AWAY_S
        if not is_known:
            log.warning("%s; NumPy computes this chunk", e)

    # Memory

    def _has_room(self, client: Client, nbytes: int) -> bool:
        return client._session.pool.live_bytes + nbytes <= self.memory_bytes


def _wait(job: Job, seconds: float) -> None:
    try:
        job.wait(seconds)
    except BaseException:  # Ctrl-C too. Its arrays are nobody else's
        with contextlib.suppress(Error):  # it has ended
            job.cancel()
        raise


# ---- The ops


def product(a: NDArray, b: NDArray, so_far: NDArray | None, precision: str, bias: NDArray | None, activation: str
            ) -> tuple[Op, tuple[NDArray, ...]]:
    """activation(a @ b + so_far + bias), where so_far is a sum of other products."""
    a, b = elements(a), elements(b)
    added = [elements(x) for x in (so_far, bias) if x is not None]
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1])

    def add(job: Job, out: NDArray, a: NDArray, b: NDArray) -> None:
        if so_far is not None:
            job.copy(so_far, out=out)
        job.gemm(1.0, a, b, 0.0 if so_far is None else 1.0, out, bias=bias, activation=activation, precision=precision)

    def substitute(a: NDArray, b: NDArray) -> NDArray:
        y = functools.reduce(np.add, added, np.asarray(a @ b))
        return activated(y, activation)

    return Op(shape, 2.0 * float(np.prod(shape)) * a.shape[-1], add, substitute), (a, b)


def softmax(x: NDArray, axis: int, scale: float, log: bool) -> tuple[Op, tuple[NDArray, ...]]:
    x = elements(x)

    def add(job: Job, out: NDArray, x: NDArray) -> None:
        job.softmax(x, axis, scale=scale, log=log, out=out)

    def substitute(x: NDArray) -> NDArray:
        y = np.multiply(x, scale, dtype=np.result_type(x, np.float32))
        y -= y.max(axis, keepdims=True)
        sums = np.exp(y).sum(axis, keepdims=True)
        result: NDArray = y - np.log(sums) if log else np.exp(y) / sums
        return result

    return Op(x.shape, 8.0 * x.size, add, substitute), (x,)


def transpose(x: NDArray) -> tuple[Op, tuple[NDArray, ...]]:
    x = elements(x)

    def add(job: Job, out: NDArray, x: NDArray) -> None:
        job.transpose(x, out=out)

    def substitute(x: NDArray) -> NDArray:
        return np.ascontiguousarray(x.swapaxes(-1, -2))

    return Op(x.shape[:-2] + (x.shape[-1], x.shape[-2]), float(x.size), add, substitute), (x,)


# ---- Activations by NumPy


def activated(x: NDArray, activation: str) -> NDArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return _ACTIVATIONS[activation](x.astype(np.result_type(x, np.float32), copy=False))


def _normal_distribution(x: NDArray) -> NDArray:
    """Its distribution function. NumPy has none."""
    result: NDArray = np.frompyfunc(lambda z: math.erfc(-z * math.sqrt(0.5)) / 2, 1, 1)(x).astype(x.dtype)
    return result


def _logistic(x: NDArray) -> NDArray:
    result: NDArray = 1 / (1 + np.exp(-x))
    return result


_ACTIVATIONS: dict[str, Callable[[NDArray], NDArray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * _normal_distribution(x),
    "gelu_tanh": lambda x: x * _logistic(math.sqrt(8 / math.pi) * (x + 0.044715 * x ** 3)),
    "silu": lambda x: x * _logistic(x)}


# ---- This process


_here: Chunks | None = None
_here_lock = threading.Lock()


def here(memory_bytes: Callable[[], int]) -> Chunks:
    """This process's. memory_bytes() is asked once."""
    global _here
    with _here_lock:
        if _here is None:
            _here = Chunks(memory_bytes())
        return _here


def _forget_here() -> None:
    global _here, _here_lock
    _here = None
    _here_lock = threading.Lock()


_session.in_child.append(_forget_here)
