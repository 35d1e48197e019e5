"""Jobs of several ops."""
from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING, Any

from . import _library, _loop, _ops, _receipt
from ._array import Array, layout, view_of
from ._desk import Desk
from ._library import UINT32_MAX, UINT64_MAX, lib, text, whole
from ._named import Named
from ._ops import Axes, Op, Operand, Result
from ._pool import Slab
from ._receipt import Receipt
from ._session import LET_GO_S, NativeJob, Session
from .errors import Error, error

if TYPE_CHECKING:
    from ._client import Client


def add_ops(session: Session, job: NativeJob, ops: list[Op]) -> tuple[list[Slab], list[Slab]]:
    """The slabs that they use, and those that they write."""
    slabs, written = [], []
    for op in ops:
        views = []
        for x in op.arrays:
            slab = session.pool.find(layout(x)[0])
            assert slab is not None, "operands are laid out in kops memory"
            slabs.append(slab)
            views.append(view_of(slab, x))
        session.check(_ops.append(job.pointer, op, views))
        written += slabs[-op.n_outputs:]
    return slabs, written


class Job(Named):
    """Ops that run in order on one device, sent as one message.

        with kops.job() as j:               async with kops.job() as j:
            t = j.matmul(a, b)                  t = j.matmul(a, b)
            j.softmax(t, out=t)                 j.softmax(t, out=t)

    The end of the block sends the job and waits for it. Results, in arrays that the methods return, are there after it.
    Without a block: submit(), then wait() or await; or run(). A job that is done may be run again, on what its arrays hold
    then, and is faster from the third time on.
    """

    def __init__(self, client: Client, session: Session, device: str | None, queue: int, priority: str,
                 deadline: float | None, timed: bool) -> None:
        _ops.choice(_library.PRIORITIES, priority, "priority")
        options = _library.JobOptions(ctypes.sizeof(_library.JobOptions), whole(queue, "queue", UINT32_MAX),
                                      _library.PRIORITIES[priority],
                                      _library.name(device, "device"),
                                      whole((deadline or 0) * 1e6, "deadline in µs", UINT64_MAX), timed)
        self._session = session
        with session.turn, session:
            self._job = NativeJob(session, options)
        self._desk = Desk(client, session)
        self._ops: list[Op] = []
        self._slabs: list[Slab] = []
        self._written: list[Slab] = []
        self._is_out = False
        self._is_sent = False
        self._failure: tuple[int, str] | None = None
        self._is_stored = False
        self._is_lost = False  # its results
        self._waiters: list[_loop.Waiter] = []

    # Ops

    def matmul(self, a: Operand, b: Operand, out: Array | None = None, *, bias: Operand | None = None,
               activation: str = "none", conj_a: bool = False, conj_b: bool = False, precision: str = "f32",
               kernel: str | None = None) -> Any:
        return self._add(*_ops.matmul(self._desk, a, b, bias, out, conj_a, conj_b, precision, activation, kernel))

    def gemm(self, alpha: complex, a: Operand, b: Operand, beta: complex, c: Array, *, bias: Operand | None = None,
             activation: str = "none", conj_a: bool = False, conj_b: bool = False, precision: str = "f32",
             kernel: str | None = None) -> Any:
        return self._add(*_ops.gemm(self._desk, a, b, bias, c, complex(alpha), complex(beta), conj_a, conj_b, precision,
                                    activation, kernel))

    # Made by scripts/gen-ops: described ops
    def softmax(self, x: Operand, axis: int = -1, *, scale: float = 1.0, log: bool = False, mask: Operand | None = None,
                out: Array | None = None, kernel: str | None = None) -> Any:
        return self._add(*_ops.softmax(self._desk, x, mask, out, axis, float(scale), bool(log), kernel))

    def transpose(self, x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.transpose(self._desk, x, out, kernel))

    def add(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.add(self._desk, a, b, out, kernel))

    def copy(self, x: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.copy(self._desk, x, out, kernel))

    def reduce(self, x: Operand, kind: str = "sum", axis: Axes = -1, *, keepdims: bool = False,
               out: Array | None = None, kernel: str | None = None) -> Any:
        return self._add(*_ops.reduce(self._desk, x, out, axis, bool(keepdims), kind, kernel))

    def multiply(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.multiply(self._desk, a, b, out, kernel))

    def layer_norm(self, x: Operand, weight: Operand | None = None, bias: Operand | None = None,
                   out: Array | None = None, *, residual: Operand | None = None, sum: Array | None = None,
                   axis: int = -1, eps: float = 1e-05, kernel: str | None = None) -> Any:
        return self._add(*_ops.layer_norm(self._desk, x, weight, bias, residual, sum, out, axis, float(eps), kernel))

    def gather(self, x: Operand, indices: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.gather(self._desk, x, indices, out, kernel))

    def rms_norm(self, x: Operand, weight: Operand | None = None, bias: Operand | None = None, out: Array | None = None,
                 *, residual: Operand | None = None, sum: Array | None = None, axis: int = -1, eps: float = 1e-05,
                 kernel: str | None = None) -> Any:
        return self._add(*_ops.rms_norm(self._desk, x, weight, bias, residual, sum, out, axis, float(eps), kernel))

    def subtract(self, a: Operand, b: Operand, out: Array | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.subtract(self._desk, a, b, out, kernel))

    def unary(self, x: Operand, out: Array | None = None, *, function: str = "none", scale: float = 1.0,
              low: float = -inf, high: float = inf, kernel: str | None = None) -> Any:
        return self._add(*_ops.unary(self._desk, x, out, function, float(scale), float(low), float(high), kernel))

    def attention(self, q: Operand, k: Operand, v: Operand, mask: Operand | None = None, lengths: Operand | None = None,
                  out: Array | None = None, *, lse: Array | None = None, scale: float = 0.0, causal: str = "none",
                  window: int = 0, kernel: str | None = None) -> Any:
        return self._add(*_ops.attention(self._desk, q, k, v, mask, lengths, lse, out,
                                         float(scale), causal, window, kernel))

    def arg_reduce(self, x: Operand, kind: str = "max", axis: Axes = -1, *, keepdims: bool = False,
                   out: Array | None = None, kernel: str | None = None) -> Any:
        return self._add(*_ops.arg_reduce(self._desk, x, out, axis, bool(keepdims), kind, kernel))

    def top_k(self, x: Operand, k: int = 1, axis: int = -1, *, kind: str = "largest", order: str = "value",
              out: tuple[Array, Array] | None = None, kernel: str | None = None) -> Any:
        return self._add(*_ops.top_k(self._desk, x, out, axis, k, kind, order, kernel))

    def search(self, queries: Operand, base: Operand, k: int = 10, *, metric: str = "ip", filter: Operand | None = None,
               out: tuple[Array, Array] | None = None, kernel: str | None = None) -> Any:
        return self._add(*_ops.search(self._desk, queries, base, filter, out, k, metric, kernel))

    def cholesky(self, a: Operand, out: tuple[Array, Array] | None = None, *, upper: bool = False, keep: bool = False,
                 kernel: str | None = None) -> Any:
        return self._add(*_ops.cholesky(self._desk, a, out, bool(upper), bool(keep), kernel))

    def triangular_solve(self, a: Operand, b: Operand, out: Array | None = None, *, upper: bool = False,
                         unit: bool = False, conj_a: bool = False, right: bool = False,
                         kernel: str | None = None) -> Any:
        return self._add(*_ops.triangular_solve(self._desk, a, b, out,
                                                bool(upper), bool(unit), bool(conj_a), bool(right), kernel))

    def lu(self, a: Operand, out: tuple[Array, Array, Array] | None = None, *, kernel: str | None = None) -> Any:
        return self._add(*_ops.lu(self._desk, a, out, kernel))

    # End of described ops

    def _add(self, result: Result, ops: list[Op]) -> Result:
        if self._is_sent and self._ops:
            raise error("STATE", "no op can be added after submit(): make another job")
        with self._session.turn, self._session as session:
            slabs, written = add_ops(session, self._job, ops)
            self._slabs += slabs
            self._written += written
        self._ops += ops
        return result

    # Running

    def prepare(self) -> None:
        """Checks and plans the job in the daemon without running it, so that its first run is as fast as later ones. No op can
        be added afterwards."""
        if self._ops:
            with self._session.turn, self._session as session:
                session.check(lib.kops_job_prepare(self._job.pointer))

    def submit(self) -> None:
        """Copies operands that are not in kops memory, and sends the job. Does not wait. A job without ops, as of arrays
        without elements, is done at once."""
        if self._is_out:
            raise error("STATE", "the job is already running: wait for it to finish")
        if any(slab.is_private for slab in self._slabs):
            raise error("STATE", "arrays of this job got other memory when a job was abandoned because kopsd did not answer: "
                                 "make another job")
        self._desk.load()
        with self._session.turn, self._session:
            self._failure = None
            self._is_stored = False
            self._is_sent = True
            if self._ops:
                self._send(self._session)

    def _send(self, session: Session) -> None:
        """It counts as in flight before it is, so that the exception of a signal handler cannot lose it."""
        pointer = self._job.pointer
        session.out[pointer] = self
        self._is_out = True
        status = lib.kops_submit(pointer, session.callback_address, None)
        if status < 0:
            del session.out[pointer]
            self._is_out = self._is_sent = False
            raise session.error(status)

    def wait(self, timeout: float | None = None) -> None:
        """Until it is done, at most so many seconds; None: without limit. Raises what went wrong. After TimedOutError the
        job is still in flight: wait again, or cancel() it."""
        if not self._is_sent:
            raise error("STATE", "the job was not submitted")
        end = None if timeout is None else time.monotonic() + timeout
        self._wait_until(end)
        if self._is_out:
            raise error("TIMEOUT", f"the job was not done after {timeout:g} s and is still running: wait again, or cancel it")
        self._finish()

    def _wait_until(self, end: float | None) -> None:
        if self._is_out:
            with self._session.turn, self._session as session:
                session.wait(self._job.pointer, end)

    def run(self) -> None:
        """submit() and wait(), for the client's timeout; then the job is cancelled, and no longer writes to its arrays. A device's
        arrays may still be written until it has stopped."""
        if self._is_out:
            raise error("STATE", "the job is already running: wait for it to finish")
        is_late = True
        try:
            self.submit()
            self._wait_until(time.monotonic() + self._session.timeout)
            is_late = self._is_out
        finally:
            self._give_up()
        if is_late:
            raise self._session.too_late()
        self._finish()

    def cancel(self) -> None:
        """Withdraws it; it then ends with CancelledError. One that runs is stopped within some 50 ms, unless it is through
        before. Until it has ended it may still write to its arrays: wait() for that."""
        with self._session.turn, self._session as session:
            session.check(lib.kops_cancel(self._job.pointer))

    def _give_up(self) -> None:
        """If it is still in flight, cancels it, and returns when it no longer writes to its arrays."""
        if self._is_out:
            with self._session.turn, self._session as session:
                session.take_from(self._job.pointer, self._written)

    async def _stop(self) -> None:
        """The same, in an event loop."""
        with self._session.turn, self._session:
            lib.kops_cancel(self._job.pointer)  # fails if it has ended
        try:
            if self._is_out:
                await asyncio.wait([self._waiter().future], timeout=LET_GO_S)
        finally:
            if self._is_out:
                with self._session.turn, self._session as session:
                    session.take_from(self._job.pointer, self._written, 0)

    @property
    def is_done(self) -> bool:
        """Whether it was sent, and its end is known. Does not wait."""
        if self._is_out:
            with self._session.turn, self._session as session:
                session.wait(self._job.pointer, 0)
        return self._is_sent and not self._is_out

    @property
    def receipt(self) -> Receipt | None:
        """None unless it was done, and well."""
        if self._is_out:
            return None
        with self._session.turn, self._session:
            return _receipt.read(self._job.pointer, self._desk.copy_us, self._desk.copied_bytes)

    def _finish(self) -> None:
        if self._failure:
            raise Session.explained(*self._failure, self._job.pointer)
        if not self._is_stored:
            if self._is_lost:
                raise error("CANCELLED", "a job was abandoned because kopsd did not answer, and arrays that this job writes got "
                                         "other memory, without its results: make another job")
            self._is_stored = True
            self._desk.store()

    def _lose(self, slab: Slab) -> None:
        """What it writes there will not be seen."""
        self._is_lost |= slab in self._written

    def _ended(self, status: int) -> None:
        """By the session, with its lock held, in any thread."""
        self._end((status, text(lib.kops_job_error(self._job.pointer))) if status < 0 else None)

    def _abandon(self, why: Error) -> None:
        self._end((why.code, why.sentence))

    def _end(self, failure: tuple[int, str] | None) -> None:
        self._failure = failure
        self._is_out = False
        for waiter in self._waiters:
            waiter.wake()
        self._waiters.clear()

    # with, async with, await

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._ops:
            self.run()

    async def __aenter__(self) -> Job:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None and self._ops:
            await self

    def __await__(self) -> Generator[Any, None, None]:
        """Sends it if that was not done, and waits in the event loop. Cancelling the wait cancels the job."""
        if not self._is_sent:
            self.submit()
        while self._is_out:
            waiter = self._waiter()
            try:
                yield from waiter.future
            except asyncio.CancelledError:
                yield from self._stop().__await__()
                raise
            except BaseException:
                self._give_up()
                raise
        self._finish()

    def _waiter(self) -> _loop.Waiter:
        waiter = _loop.Waiter(self._session)
        with self._session.turn, self._session:
            if self._is_out:
                self._waiters.append(waiter)
            else:
                waiter.wake()
        return waiter

    def __reduce__(self) -> Any:
        raise TypeError("a kops.Job cannot be pickled: it belongs to this process's session with kopsd")
