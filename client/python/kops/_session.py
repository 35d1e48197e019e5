"""A session: one handle of libkops, the lock around it, and what has to be given back to it.

Threads take turns: whoever calls libkops holds the lock. Finalizers run at any moment, in any thread, also in one that is
in the middle of a call. So they only note what is to be freed; it is freed with the lock, at once if nobody has it, else
by whoever has it, or the next.
"""
from __future__ import annotations

import asyncio
import collections
import ctypes
import fcntl
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library
from ._library import TIMEOUT, UINT32_MAX, lib, text, whole
from ._pool import Pool, Slab
from .errors import BusyError, Error, StateError, error

if TYPE_CHECKING:
    from ._job import Job
    from ._loop import Watch

WHY_BYTES = 512
WAIT_MS = 1001  # a wait in libkops: Ctrl-C is seen between two. Below a second it would take a system call more

_run_for, _wait, _is_out = lib.kops_run_for, lib.kops_wait, lib.kops_job_is_out


class Session:
    def __init__(self, socket: str | None, name: str | None, timeout: float, spin_us: int, cache_bytes: int) -> None:
        why = ctypes.create_string_buffer(WHY_BYTES)
        handle = ctypes.c_void_p()
        options = _library.Options(ctypes.sizeof(_library.Options), socket and os.fsencode(socket),
                                   name and name.encode(), max(1, whole(timeout * 1000, "timeout in ms", UINT32_MAX)),
                                   whole(spin_us, "spin_us", UINT32_MAX))
        status = (lib.kops_open_start if _in_event_loop() else lib.kops_open)(handle, options, why, WHY_BYTES)
        if status < 0:
            raise error(status, text(why.value))
        self.handle: int | None = handle.value
        self.timeout = timeout
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.gone = ""                  # why nobody may call it any more
        self.pool = Pool(self._new_buffer, self._free_slab, cache_bytes)
        self.n_resident = 0
        self.due: collections.deque[tuple[Any, ...]] = collections.deque()  # functions and their arguments
        self.out: dict[int, Job] = {}   # Jobs that were sent, and what they need with them
        self.left: list[tuple[NativeJob, object]] = []  # jobs that nobody waits for any more, but may still write
        self.callback = _library.Callback(self._on_end)
        self.callback_address = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.buffer_callback = _library.Callback(self._on_buffer)
        self.watch: Watch | None = None  # of an event loop in which somebody waits
        _sessions.add(self)

    # The lock

    @property
    def turn(self) -> threading.RLock:
        """The lock, for `with session.turn, session:`. `with` takes and gives back a lock of the interpreter's without a
        place in between for the exception of a signal handler."""
        if self.is_inside():
            raise self._refusal()
        return self.lock

    def __enter__(self) -> Session:
        if self.gone:
            raise self._refusal()
        return self

    def __exit__(self, *_: object) -> None:
        if self.due or self.watch is not None:
            self._settle()

    def _refusal(self) -> Error:
        return error("STATE", self.gone or "this thread is in a call of the same client already; a finalizer or signal "
                                           "handler must not call it")

    def is_inside(self) -> bool:
        """Whether this thread is in the middle of a call."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def discard(self, *item: Any) -> None:
        """item[0](*item[1:]) is called with the lock held. For finalizers."""
        self.due.append(item)
        self._collect()

    def _collect(self) -> None:
        if self.is_inside():
            return
        try:
            if self.lock.acquire(False):
                self._settle()
        finally:
            try:
                self.lock.release()
            except RuntimeError:  # another thread has it. To ask before would be a place for an exception
                pass

    def _settle(self) -> None:
        while self.due:
            function, *arguments = self.due.popleft()
            function(*arguments)
        if self.left:
            self.left = [(job, needs) for job, needs in self.left if _is_out(job.pointer)]
        if self.gone:
            self._close_if_unused()
        if self.watch is not None:
            self.watch.soon()

    # Errors

    def error(self, status: int, job: int | None = None) -> Error:
        """Of the last call, which was about this job."""
        return self.explained(status, text(lib.kops_error(self.handle)), job)

    @staticmethod
    def explained(status: int, sentence: str, job: int | None) -> Error:
        e = error(status, sentence)
        if isinstance(e, BusyError) and job:
            e.retry_after = lib.kops_job_retry_after_us(job) / 1e6
        return e

    def check(self, status: int) -> None:
        if status < 0:
            raise self.error(status)

    # Jobs

    def run(self, job: NativeJob, needs: object) -> None:
        """Sends it and waits; with the lock held. `needs` is kept for as long as the job may use it."""
        status = TIMEOUT
        try:
            status = _run_for(job.argument, WAIT_MS)
            if status == TIMEOUT:
                status = self.wait(job.pointer, time.monotonic() + self.timeout - WAIT_MS / 1000)
        finally:
            if status == TIMEOUT and _is_out(job.pointer):  # too late, or interrupted by Ctrl-C
                self.leave_out(job, needs)
        if status < 0:
            raise self.error(status, job.pointer)

    def run_alone(self, job: NativeJob, needs: object) -> None:
        """run() with the session's turn, written out: every op that repeats comes here."""
        with self.turn:
            if self.gone:
                raise self._refusal()
            try:
                self.run(job, needs)
            finally:
                if self.due or self.watch is not None:
                    self._settle()
        if self.due:
            self._collect()

    def leave_out(self, job: NativeJob, needs: object) -> None:
        """Nobody waits for it any more. It may still write, so its memory stays as it is until it has ended."""
        lib.kops_cancel(job.pointer)
        self.left.append((job, needs))
        job.is_left = True

    def wait(self, pointer: int, end: float | None) -> int:
        """Until the job ends, or time.monotonic() is end; None: without limit. KOPS_E_TIMEOUT: it is still out."""
        status: int = TIMEOUT
        while status == TIMEOUT and _is_out(pointer):
            left = WAIT_MS if end is None else max(0, min(WAIT_MS, round((end - time.monotonic()) * 1000)))
            status = _wait(pointer, left)
            if end is not None and time.monotonic() >= end:
                break
        return status

    def _on_end(self, job: int, status: int, _: object) -> None:
        self.due.append((self._job_ended, job, status))

    def _job_ended(self, job: int, status: int) -> None:
        owner = self.out.pop(job, None)
        if owner is not None:
            owner._ended(status)

    # Memory

    def _new_buffer(self, nbytes: int, flags: int = _library.SHARED, device: str | None = None) -> tuple[int, int]:
        buffer = ctypes.c_void_p()
        if not _in_event_loop():
            self.check(lib.kops_alloc(self.handle, nbytes, flags, device and device.encode(), buffer))
        elif flags == _library.SHARED:
            self._share(nbytes, buffer)
        else:
            self.check(lib.kops_alloc_start(self.handle, nbytes, flags, device and device.encode(),
                                            self.buffer_callback, None, buffer))
        assert buffer.value
        return buffer.value, lib.kops_data(buffer) or 0

    def _share(self, nbytes: int, buffer: ctypes.c_void_p) -> None:
        """Memory that is here at once, before kopsd has it. Its jobs wait there until it has."""
        fd = os.memfd_create("kops", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self.check(lib.kops_import_start(self.handle, fd, nbytes, _library.SHARED, self.buffer_callback, None,
                                             buffer))
        finally:
            os.close(fd)

    def _on_buffer(self, buffer: int, status: int, _: object) -> None:
        if status < 0:
            self.due.append((self.pool.refuse, buffer))

    def _free_slab(self, slab: Slab) -> None:
        for call in list(slab.calls):
            call.forget()
        lib.kops_free(slab.buffer)

    def block(self, nbytes: int) -> Block:
        with self.turn, self:
            return Block(self, *self.pool.take(nbytes))

    def resident(self, nbytes: int, device: str | None) -> Resident:
        """A buffer of its own on the device. A place without memory in the address space stands for it, so that NumPy
        can make views of it."""
        place = np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0), np.uint8)
        with self.turn, self:
            buffer, _ = self._new_buffer(nbytes, _library.RESIDENT, device)
            self.n_resident += 1
            return Resident(self, buffer, place)

    def _free_resident(self, slab: Slab) -> None:
        self.pool.remove(slab)
        self._free_slab(slab)
        self.n_resident -= 1

    # The end

    def close(self) -> None:
        """The connection ends when the last array is gone: their memory is its memory."""
        if self.gone:
            return
        with self.turn, self:
            self.gone = "this client is closed: make another with kops.connect()"
            for job in list(self.out.values()):
                job._abandon(error("STATE", "the client was closed while this job was out"))
            self.out.clear()
            self.due.append((self._close_if_unused,))

    def _close_if_unused(self) -> None:
        if self.handle is None or self.pool.live or self.n_resident:
            return
        handle, self.handle = self.handle, None
        self.left.clear()
        lib.kops_close(handle)

    def after_fork(self) -> None:
        """In the child: the handle and its memory are the parent's."""
        handle, self.handle = self.handle, None
        was_busy = self.is_inside() or not self.lock.acquire(False)
        self.gone = (f"this client belongs to process {self.pid}, which forked: its arrays, jobs and connection are not "
                     "shared with this one; make arrays here, by a client of this process (kops.connect())")
        self.lock = threading.RLock()
        self.due.clear()
        self.left.clear()
        self.out.clear()
        self.watch = None
        if handle is not None and not was_busy:
            lib.kops_close(handle)  # only this process's copies of the descriptors
        for slab in self.pool.ranges[1]:
            if slab.holds is None:
                _reserve(slab.address, slab.nbytes)


def _in_event_loop() -> bool:
    """Whether this thread runs one, which nothing here may hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class NativeJob:
    """A kops_job, freed with its last reference."""

    __slots__ = ("session", "pointer", "argument", "is_left", "__weakref__")

    def __init__(self, session: Session, options: _library.JobOptions | None = None) -> None:
        pointer = ctypes.c_void_p()
        session.check(lib.kops_job_new(session.handle, options, pointer))
        assert pointer.value
        self.session = session
        self.pointer: int = pointer.value
        self.argument = pointer  # faster than a number, which ctypes makes one of first
        self.is_left = False

    def __del__(self) -> None:
        session = getattr(self, "session", None)  # not if kops_job_new() failed
        if session is not None and session.handle is not None:
            session.discard(_free_job, session, self.pointer)


def _free_job(session: Session, pointer: int) -> None:
    if session.handle is not None:
        lib.kops_job_free(pointer)


class Block:
    """Shared memory of one array: what NumPy arrays on it have as their base."""

    __slots__ = ("session", "slab", "offset", "is_fresh", "__array_interface__", "__weakref__")

    def __init__(self, session: Session, slab: Slab, offset: int, is_fresh: bool) -> None:
        self.session = session
        self.slab = slab
        self.offset = offset
        self.is_fresh = is_fresh
        self.__array_interface__: dict[str, Any] = {}

    @property
    def address(self) -> int:
        return self.slab.address + self.offset

    def __del__(self) -> None:
        session = self.session
        if session.handle is not None:
            session.discard(session.pool.give, self.slab, self.offset)


class Resident:
    """A buffer in a device's memory."""

    __slots__ = ("session", "slab", "place", "__weakref__")

    def __init__(self, session: Session, buffer: int, place: np.ndarray[Any, Any]) -> None:
        self.session = session
        self.place = place
        self.slab = Slab(buffer, place.ctypes.data, place.nbytes, place.nbytes, holds=place)
        session.pool.add(self.slab)

    def __del__(self) -> None:
        session = getattr(self, "session", None)
        if session is not None and session.handle is not None:
            session.discard(session._free_resident, self.slab)


# fork()

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000


def _reserve(address: int, nbytes: int) -> None:
    """Nothing else comes to lie where arrays of the parent were: they fault, and are never taken for others."""
    _libc.mmap(address, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE, -1, 0)


def owner_of(address: int) -> Session | None:
    """The session of a process that forked this one which has the memory at this address."""
    for session in _foreign:
        if session.pool.find(address) is not None:
            return session
    return None


_foreign: list[Session] = []
in_child: list[Callable[[], None]] = []  # what else a child of fork() has to do


def _after_fork_in_child() -> None:
    for session in list(_sessions):
        if session.handle is not None:
            session.after_fork()
            _foreign.append(session)
    for function in in_child:
        function()


os.register_at_fork(after_in_child=_after_fork_in_child)
