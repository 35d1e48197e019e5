"""Whether children of fork() may look at memory that was here when they began. They see what it holds, so until they have
ended it must not be given to other arrays.

Each child holds a lock on one file, which the system releases when the child ends or executes a program. The child holds
it by a mapping: a program may close all descriptors. Grandchildren have the mapping too.
"""
from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
TURN_S = 1.0  # threads that fork take turns. A signal handler's exception may have kept one from giving its turn back
_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000


def reserve(address: int, nbytes: int) -> None:
    """Nothing else comes to lie there: who touches it faults."""
    _libc.mmap(address, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE, -1, 0)


def clear_of_stdio(fd: int) -> int:
    """The same file under a number from 3 on. Where a program was started without stdin, stdout or stderr, files get those
    numbers, and what it prints."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


class Children:
    """Of this process."""

    def __init__(self) -> None:
        self.forks = 0                  # memory from before the latest one may be looked at
        self.cannot_tell = False        # then for ever
        self.file: tuple[int, int, int] | None = None  # descriptor, device and inode
        self.childs = -1                # a descriptor for the child that is being made, with the lock
        self.turn = threading.Lock()

    def may_look(self) -> bool:
        """Whether one is there that began before now."""
        if self.cannot_tell or self.file is None:
            return self.cannot_tell
        try:
            fd = self._own_file()
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            return True
        except OSError:
            self.cannot_tell = True
        return self.cannot_tell

    def _own_file(self) -> int:
        """A program may close a descriptor that it does not know, and have its number for another file."""
        if self.file is None:
            fd = clear_of_stdio(os.memfd_create("kops-children", os.MFD_CLOEXEC))
            at = os.fstat(fd)
            self.file = fd, at.st_dev, at.st_ino
        at = os.fstat(self.file[0])
        if (at.st_dev, at.st_ino) != self.file[1:]:
            raise OSError("the descriptor was closed")
        return self.file[0]

    # Around fork()

    def before(self) -> None:
        self.turn.acquire(timeout=TURN_S)
        self.forks += 1
        try:
            fd = self._own_file()
            self.childs = clear_of_stdio(os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC))
            fcntl.flock(fd, fcntl.LOCK_UN)  # an exception between the two calls of may_look() leaves it locked
            fcntl.flock(self.childs, fcntl.LOCK_SH)
        except OSError:
            self.cannot_tell = True

    def after_in_parent(self) -> None:
        self.forks += 1  # what another thread made meanwhile counts as older, too
        if self.childs >= 0:
            os.close(self.childs)
            self.childs = -1
        if self.turn.locked():
            self.turn.release()

    def after_in_child(self) -> None:
        if self.childs >= 0:
            _libc.mmap(None, mmap.PAGESIZE, 0, mmap.MAP_SHARED, self.childs, 0)
            os.close(self.childs)
        if self.file is not None and not self.cannot_tell:
            os.close(self.file[0])
        self.__init__()  # type: ignore[misc]


children = Children()
