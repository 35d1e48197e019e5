"""libkops in an asyncio loop, as kops.h says: its descriptor is watched, and kops_process() is called when there is
something to read or its time has come. Nothing is watched while nobody waits.
"""
from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

from ._library import lib
from .errors import StateError, error

if TYPE_CHECKING:
    from ._session import Session


TURN_S = 1.0  # a descriptor that the program closed wakes nobody: libkops looks whether it is still its own


class Waiter:
    """Somebody in the running loop who waits for the end of a job."""

    def __init__(self, session: Session) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        watch = _watch(session, self.loop)
        watch.waiting.add(self.future)
        self.future.add_done_callback(watch.gone)
        watch.turn()

    def wake(self) -> None:
        """In any thread."""
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed
            pass

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def _watch(session: Session, loop: asyncio.AbstractEventLoop) -> Watch:
    with session.turn, session:
        watch = session.watch
        if watch is None or watch.loop.is_closed():
            watch = session.watch = Watch(session, loop)
        elif watch.loop is not loop:
            raise error("STATE", "another event loop waits for jobs of this client; give each loop a client of its own "
                                 "(kops.connect())")
    return watch


class Watch:
    """All methods but soon() are called in the loop's thread."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self.session = session
        self.loop = loop
        self.waiting: set[asyncio.Future[None]] = set()
        self.fd = -1
        self.writes = False
        self.timer: asyncio.TimerHandle | None = None
        self.is_due = False

    def soon(self) -> None:
        """Somebody called libkops, so what it waits for may have changed. In any thread, with the lock held."""
        if not self.is_due:
            self.is_due = True
            try:
                self.loop.call_soon_threadsafe(self.turn)
            except RuntimeError:  # the loop was closed
                self.session.watch = None

    def turn(self) -> None:
        self.is_due = True  # what happens here changes nothing that this does not see
        try:
            with self.session.turn, self.session as session:
                lib.kops_process(session.handle)  # its failures are those of jobs
                self._attend(lib.kops_fd(session.handle), lib.kops_events(session.handle),
                             lib.kops_timeout(session.handle))
        except StateError:  # closed
            self._attend(-1, 0, -1)
        finally:
            self.is_due = False

    def gone(self, future: asyncio.Future[None]) -> None:
        self.waiting.discard(future)
        if self.waiting:
            return
        self._attend(-1, 0, -1)
        if self.session.watch is self:
            self.session.watch = None

    def _attend(self, fd: int, events: int, timeout_ms: int) -> None:
        if fd != self.fd and self.fd >= 0:
            self.loop.remove_reader(self.fd)
            self.loop.remove_writer(self.fd)
            self.writes = False
        if fd != self.fd and fd >= 0:
            self.loop.add_reader(fd, self.turn)
        self.fd = fd
        writes = bool(events & select.POLLOUT)
        if writes and not self.writes:
            self.loop.add_writer(fd, self.turn)
        elif self.writes and not writes:
            self.loop.remove_writer(fd)
        self.writes = writes
        if self.timer:
            self.timer.cancel()
        wait_s = TURN_S if timeout_ms < 0 else min(TURN_S, timeout_ms / 1000)
        self.timer = self.loop.call_later(wait_s, self.turn) if self.waiting else None
