"""A session: one handle of libkops, the lock around it, and what has to be given back to it.

Threads take turns: whoever calls libkops holds the lock. Finalizers run at any moment, in any thread, also in one that is
in the middle of a call. So they only note what is to be freed; it is freed with the lock, at once if nobody has it, else
by whoever has it, or the next.

The exception of a signal handler, such as KeyboardInterrupt, may come at any call and at the end of a loop's turn, but
nowhere else. What is due stays noted until it was done. Whoever takes the lock first does what is due, so what was
interrupted is begun anew before anything else happens.
"""
from __future__ import annotations

import asyncio
import collections
import ctypes
import errno
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
from ._children import children, clear_of_stdio, reserve
from ._library import DTYPE, TIMEOUT, UINT32_MAX, lib, text, whole
from ._pool import Place, Pool, Slab
from .errors import BusyError, Error, StateError, error

if TYPE_CHECKING:
    from ._client import Call
    from ._job import Job
    from ._loop import Watch

WHY_BYTES = 512
WAIT_MS = 1001  # a wait in libkops: Ctrl-C is seen between two. Below a second it would take a system call more
LET_GO_S = 0.5  # for kopsd to stop a job that was cancelled, which takes some 50 ms

PUBLISHED, ATTACHED = "published", "attached"  # what slabs hold that are no memory for arrays of the pool

_NOBODY = _library.Callback(0)
_submit_and_wait, _wait, _is_out = lib.kops_submit_and_wait, lib.kops_wait, lib.kops_job_is_out


class Session:
    def __init__(self, socket: str | None, name: str | None, timeout: float, spin_us: int, cache_bytes: int) -> None:
        why = ctypes.create_string_buffer(WHY_BYTES)
        handle = ctypes.c_void_p()
        options = _library.Options(ctypes.sizeof(_library.Options), _library.without_nul(os.fsencode(socket), "socket") if socket else None,
                                   _library.name(name, "name"), max(1, whole(timeout * 1000, "timeout in ms", UINT32_MAX)),
                                   whole(spin_us, "spin_us", UINT32_MAX))
        status = (lib.kops_open_start if _in_event_loop() else lib.kops_open)(handle, options, why, WHY_BYTES)
        if status < 0:
            raise error(status, text(why.value))
        self.handle: int | None = handle.value
        self.timeout = timeout
        self.first_wait_ms = max(1, min(WAIT_MS, round(timeout * 1000)))
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.gone = ""                  # why nobody may call it any more
        self.pool = Pool(self._new_buffer, _forget_calls, lib.kops_free, cache_bytes)
        self.n_resident = 0
        self.due: collections.deque[tuple[Any, ...]] = collections.deque()  # functions, which remove it, and arguments
        self.out: dict[int, Job] = {}   # Jobs that were sent, and what they need with them
        self.left: list[tuple[NativeJob, object]] = []  # jobs that nobody waits for any more, but may still write
        self.ended: dict[int, int] = {}    # statuses of jobs in `out` that ended,
        self.answered: dict[int, int] = {}  # and of buffers that kopsd was asked for
        # Functions of C, in which no signal handler runs: an exception there would be printed and lost
        self.callback = _library.Callback(self.ended.__setitem__)
        self.callback_address = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.buffer_callback = _library.Callback(self.answered.__setitem__)
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
        if self.has_due:
            self._settle()
        if self.gone:
            raise self._refusal()
        return self

    def __exit__(self, *_: object) -> None:
        if self.has_due or self.watch is not None:
            self._settle()

    @property
    def has_due(self) -> bool:
        return bool(self.due or self.ended or self.answered)

    def _refusal(self) -> Error:
        return error("STATE", self.gone or "this thread is in a call of the same client already; a finalizer or signal "
                                           "handler must not call it")

    def is_inside(self) -> bool:
        """Whether this thread is in the middle of a call."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def discard(self, *item: Any) -> None:
        """item[0](*item[1:]) is called with the lock held, and removes it. For finalizers."""
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
            function, *arguments = self.due[0]
            function(*arguments)
        while self.answered:
            self._buffer_answered(*next(iter(self.answered.items())))
        while self.ended:
            self._job_ended(*next(iter(self.ended.items())))
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
        if status == DTYPE:
            sentence += "; convert it with astype(), as x.astype(numpy.float32)"
        e = error(status, sentence)
        if isinstance(e, BusyError) and job:
            e.retry_after = lib.kops_job_retry_after_us(job) / 1e6
        return e

    def check(self, status: int) -> None:
        if status < 0:
            raise self.error(status)

    # Jobs

    def run(self, call: Call, needs: object, out_is_given: bool) -> None:
        """Sends its job and waits. `needs` is kept for as long as the job may use it. out_is_given: the caller has the array
        of the result already. `with session.turn, session` is written out: every op that repeats comes here."""
        lock = self.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            raise self._refusal()
        with lock:
            if self.gone:
                raise self._refusal()
            status = TIMEOUT
            try:
                status = _submit_and_wait(call.argument, self.first_wait_ms)
                if status:
                    status = self._wait_on(call.job, status)
            finally:
                if status and _is_out(call.job.pointer):  # too late, or interrupted by Ctrl-C
                    self._leave_out(call, needs, out_is_given)
                if self.due or self.ended or self.watch is not None:
                    self._settle()
        if self.due:
            self._collect()

    def _wait_on(self, job: NativeJob, status: int) -> int:
        """After a first wait that ended with this status."""
        if status == TIMEOUT:
            status = self.wait(job.pointer, time.monotonic() + self.timeout - self.first_wait_ms / 1000)
        if status == TIMEOUT and _is_out(job.pointer):
            raise self.too_late()
        if status < 0:
            raise self.error(status, job.pointer)
        return status

    def too_late(self) -> Error:
        return error("TIMEOUT", f"the job was not done after the client's timeout of {self.timeout:g} s, and was cancelled: "
                                "give kops.connect() a longer timeout, or compute less at a time")

    def _leave_out(self, call: Call, needs: object, out_is_given: bool) -> None:
        """Nobody waits for its job any more. It cannot be run again, and its memory stays as it is until it has ended."""
        self.left += [(call.job, needs)]
        call.forget()
        lib.kops_cancel(call.job.pointer)
        if out_is_given:
            self.due.append((self._take_from, call.job.pointer, call.written, LET_GO_S))

    def take_from(self, pointer: int, written: list[Slab], patience_s: float | None = None) -> None:
        """Cancels a job in flight, and sees to it that it no longer writes to arrays."""
        lib.kops_cancel(pointer)  # fails if it has ended
        self.due.append((self._take_from, pointer, written, LET_GO_S if patience_s is None else patience_s))
        self._settle()

    def _take_from(self, pointer: int, written: list[Slab], patience_s: float) -> None:
        """Until a cancelled job has ended, kopsd may still write. If that takes too long, as while kopsd is stuck, what it
        would write gets memory of its own."""
        if not _is_out(pointer) or self.wait(pointer, time.monotonic() + patience_s) != TIMEOUT or not _is_out(pointer):
            del self.due[0]
            return
        try:
            for slab in written:
                if not slab.is_private and not slab.is_dropped and slab.holds is None:
                    self.check(lib.kops_python_keep_private(slab.buffer))
                    self.pool.part_with(slab)
                    for job in self.out.values():  # others too, of small arrays in the same buffer
                        job._lose(slab)
        finally:
            del self.due[0]

    def wait(self, pointer: int, end: float | None) -> int:
        """Until the job ends, or time.monotonic() is end; None: without limit. KOPS_E_TIMEOUT: it is still in flight."""
        status: int = TIMEOUT
        while status == TIMEOUT and _is_out(pointer):
            left = WAIT_MS if end is None else max(0, min(WAIT_MS, round((end - time.monotonic()) * 1000)))
            status = _wait(pointer, left)
            if end is not None and time.monotonic() >= end:
                break
        return status

    def _job_ended(self, job: int, status: int) -> None:
        owner = self.out.get(job)
        if owner is not None:
            owner._ended(status)
        self.out.pop(job, None)
        del self.ended[job]

    # Memory

    def _new_buffer(self, nbytes: int, flags: int = _library.SHARED, device: bytes | None = None) -> tuple[int, int]:
        buffer = ctypes.c_void_p()
        try:
            self._ask_for(buffer, nbytes, flags, device)
            return buffer.value or 0, lib.kops_data(buffer) or 0
        except BaseException:  # a signal handler's comes when the call is over
            lib.kops_free(buffer)
            raise

    def _ask_for(self, buffer: ctypes.c_void_p, nbytes: int, flags: int, device: bytes | None) -> None:
        in_loop = _in_event_loop()
        if in_loop and flags == _library.SHARED:
            self._share(nbytes, buffer)
            return
        done = self.buffer_callback if in_loop else _NOBODY
        self.check(lib.kops_alloc_start(self.handle, nbytes, flags, device, done, None, buffer))
        if not in_loop:
            self._wait_for(buffer, time.monotonic() + self.timeout)

    def _wait_for(self, buffer: ctypes.c_void_p, end: float) -> None:
        """As kops_alloc() does, but Ctrl-C is seen."""
        status: int = TIMEOUT
        while status == TIMEOUT:
            left = round((end - time.monotonic()) * 1000)
            status = lib.kops_buffer_wait(buffer, max(0, min(WAIT_MS, left)))
            if status == TIMEOUT and left <= 0:
                raise error("TIMEOUT", f"kopsd did not allocate memory within the client's timeout of {self.timeout:g} s: check "
                                       "that it is running (kops-client stats), or give kops.connect() a longer timeout")
        self.check(status)

    def _share(self, nbytes: int, buffer: ctypes.c_void_p) -> None:
        """Memory that is here at once, before kopsd has it. Its jobs wait there until it has."""
        fd = _memfd(nbytes)
        try:
            self.check(lib.kops_import_start(self.handle, fd, nbytes, _library.GIVEN, self.buffer_callback, None,
                                             buffer))
        finally:
            os.close(fd)

    def _buffer_answered(self, buffer: int, status: int) -> None:
        if status < 0:
            self.pool.refuse(buffer)
        del self.answered[buffer]

    def block(self, nbytes: int) -> Block:
        block = Block(self)
        with self.turn, self:
            self.pool.take(nbytes, block)
        return block

    def free_block(self, slab: Slab, offset: int) -> None:
        self.pool.give(slab, offset)
        del self.due[0]

    def resident(self, nbytes: int, device: str | None) -> Resident:
        """A buffer of its own on the device."""
        name = _library.name(device, "device")
        resident = Resident(self, _slab_of_place(nbytes))
        with self.turn, self:
            resident.slab.buffer, _ = self._new_buffer(nbytes, _library.RESIDENT, name)
            self._count(resident)
        return resident

    def _count(self, resident: Resident) -> None:
        self.n_resident += 1
        self.pool.add(resident.slab)

    # Published buffers: these calls block, also in an event loop

    def own_shared(self, nbytes: int) -> Published:
        """A buffer of its own in shared memory, to be published."""
        buffer = ctypes.c_void_p()
        with self.turn, self:
            try:
                self.check(lib.kops_alloc_start(self.handle, nbytes, _library.SHARED, None, _NOBODY, None, buffer))
                self._wait_for(buffer, time.monotonic() + self.timeout)
                return self._published(buffer, PUBLISHED)
            except BaseException:  # as in _new_buffer()
                lib.kops_free(buffer)
                raise

    def attach(self, uid: int, name: bytes) -> tuple[Resident, _library.View]:
        """A Published if it is in shared memory. The view has the type and shape that its publisher told."""
        buffer = ctypes.c_void_p()
        with self.turn, self:
            try:
                self.check(lib.kops_attach(self.handle, uid, name, buffer))
                view = lib.kops_attached_view(buffer)
                if lib.kops_data(buffer):
                    return self._published(buffer, ATTACHED), view
                resident = Resident(self, _slab_of_place(lib.kops_size(buffer)))
                resident.slab.buffer = buffer.value or 0
                self._count(resident)
                return resident, view
            except BaseException:
                lib.kops_free(buffer)
                raise

    def _published(self, buffer: ctypes.c_void_p, what: str) -> Published:
        nbytes = lib.kops_size(buffer)
        published = Published(self, Slab(0, lib.kops_data(buffer), nbytes, nbytes, holds=what))
        published.slab.buffer = buffer.value or 0
        self._count(published)
        return published

    def publish(self, resident: Resident, name: bytes, options: _library.PublishOptions) -> None:
        with self.turn, self:
            self.check(lib.kops_publish(resident.slab.buffer, name, options))

    def unpublish(self, uid: int, name: bytes) -> None:
        with self.turn, self:
            self.check(lib.kops_unpublish(self.handle, uid, name))

    def free_resident(self, slab: Slab) -> None:
        self.pool.remove(slab)
        _forget_calls(slab)
        free = lib.kops_free
        self.n_resident -= 1  # from here on as a whole
        del self.due[0]
        free(slab.buffer)

    def free_job(self, pointer: int) -> None:
        if self.handle is None:  # kops_close() freed it
            del self.due[0]
            return
        free = lib.kops_job_free
        del self.due[0]  # as a whole
        free(pointer)

    # The end

    def close(self) -> None:
        """The connection ends when the last array is gone: their memory is its memory."""
        if self.gone:
            return
        with self.turn, self:
            self.gone = "this client is closed: make another with kops.connect()"
            jobs, end = list(self.out.items()), time.monotonic() + LET_GO_S
            for pointer, _ in jobs:
                lib.kops_cancel(pointer)
            for pointer, job in jobs:
                self.take_from(pointer, job._written, max(0.0, end - time.monotonic()))
                job._abandon(error("STATE", "the client was closed while this job was running"))
            self.out.clear()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self.handle is None or self.pool.live or self.n_resident:
            return
        close, handle = lib.kops_close, self.handle
        self.handle = None  # as a whole
        close(handle)
        self.left = []

    def after_fork(self) -> None:
        """In the child: the handle is the parent's. Its memory is mapped here, too, copied on write."""
        handle, self.handle = self.handle, None
        was_busy = self.is_inside() or not self.lock.acquire(False)
        self.gone = (f"this client belongs to process {self.pid}, which forked: its connection, jobs and device arrays are "
                     "not shared with this one; call functions of the module kops here, or those of another client "
                     "(kops.connect())")
        self.lock = threading.RLock()
        self.due.clear()
        self.ended.clear()
        self.answered.clear()
        self.left.clear()
        self.out.clear()
        self.watch = None
        for slab in self.pool.ranges[1]:
            if slab.holds is ATTACHED:  # which stays mapped
                self.pool.remove(slab)
            if slab.holds is not None and slab.holds is not PUBLISHED:
                continue
            if lib.kops_inherit(slab.buffer):  # now it is as other memory of this process
                self.pool.remove(slab)
            else:
                reserve(slab.address, slab.nbytes)
        if handle is not None and not was_busy:
            lib.kops_close(handle)  # only this process's copies of the descriptors


def _slab_of_place(nbytes: int) -> Slab:
    """A place without memory in the address space stands for a device's, so that NumPy can make views of it."""
    place = np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0), np.uint8)
    return Slab(0, place.ctypes.data, nbytes, nbytes, holds=place)


def _forget_calls(slab: Slab) -> None:
    for call in list(slab.calls):
        call.forget()


def _memfd(nbytes: int) -> int:
    """A descriptor of zeros, sealed as kops_import() wants it."""
    fd = -1
    try:
        fd = clear_of_stdio(os.memfd_create("kops", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        os.ftruncate(fd, 0)  # while it had a number of stdio, another thread may have printed into it
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd
    except BaseException as e:
        if fd >= 0:
            os.close(fd)
        if isinstance(e, (OSError, OverflowError)):
            raise error(*_why_no_memfd(e, nbytes)) from None
        raise


def _why_no_memfd(e: Exception, nbytes: int) -> tuple[str, str]:
    why = getattr(e, "errno", errno.EFBIG)
    if why in (errno.EMFILE, errno.ENFILE):
        return "SYSTEM", (f"no descriptor is left for an array of {nbytes} bytes: close files, or raise the limit "
                          "(ulimit -n, LimitNOFILE=)")
    if why == errno.EFBIG:
        return "NOMEM", (f"an array of {nbytes} bytes is larger than a file of this process may be: make it smaller, or "
                         "raise the limit (ulimit -f, LimitFSIZE=)")
    if why in (errno.ENOMEM, errno.ENOSPC):
        return "NOMEM", f"the system has no memory for an array of {nbytes} bytes: make it smaller, or free others"
    return "SYSTEM", f"no memory can be made for an array of {nbytes} bytes: {e}"


def _in_event_loop() -> bool:
    """Whether this thread runs one, which nothing here may hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class NativeJob:
    """A kops_job, freed with its last reference."""

    __slots__ = ("session", "argument", "pointer", "__weakref__")

    def __init__(self, session: Session, options: _library.JobOptions | None = None) -> None:
        self.session = session
        self.argument = ctypes.c_void_p()  # faster than a number, which ctypes makes one of first
        session.check(lib.kops_job_new(session.handle, options, self.argument))
        self.pointer: int = self.argument.value or 0

    def __del__(self) -> None:
        if self.session.handle is not None and self.argument.value:
            self.session.discard(self.session.free_job, self.argument.value)


class Block(Place):
    """Shared memory of one array: what NumPy arrays on it have as their base."""

    __slots__ = ("session", "__array_interface__", "__weakref__")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.__array_interface__: dict[str, Any] = {}

    @property
    def address(self) -> int:
        return self.slab.address + self.offset

    def __del__(self) -> None:
        if hasattr(self, "slab") and self.session.handle is not None:
            self.session.discard(self.session.free_block, self.slab, self.offset)


class Resident:
    """A buffer in a device's memory."""

    __slots__ = ("session", "slab", "__weakref__")

    def __init__(self, session: Session, slab: Slab) -> None:
        self.session = session
        self.slab = slab

    @property
    def place(self) -> np.ndarray[Any, Any]:
        """What stands for its elements."""
        place: np.ndarray[Any, Any] = self.slab.holds
        return place

    def __del__(self) -> None:
        if self.session.handle is not None and self.slab.buffer:
            self.session.discard(self.session.free_resident, self.slab)


class Published(Resident):
    """A buffer in shared memory that was published or attached: what NumPy arrays on it have as their base."""

    __slots__ = ("__array_interface__",)

    def __init__(self, session: Session, slab: Slab) -> None:
        super().__init__(session, slab)
        self.__array_interface__: dict[str, Any] = {}

    @property
    def address(self) -> int:
        return self.slab.address


# fork()

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def owner_of(address: int) -> Session | None:
    """The session of a process that forked this one which has memory at this address that could not be mapped here."""
    for session in _foreign:
        if session.pool.find(address) is not None:
            return session
    return None


_foreign: list[Session] = []
in_child: list[Callable[[], None]] = []  # what else a child of fork() has to do


def _after_fork_in_child() -> None:
    children.after_in_child()
    for session in list(_sessions):
        if session.handle is not None:
            session.after_fork()
            _foreign.append(session)
    for function in in_child:
        function()


os.register_at_fork(before=children.before, after_in_parent=children.after_in_parent,
                    after_in_child=_after_fork_in_child)
