"""Shared memory in blocks. A session may have some thousand buffers, and asking kopsd for one takes its time, so buffers
("slabs") are cut into blocks of one size. The first slab of a size has one large block or 64 KiB of small ones. Later ones
have twice as many each time, up to 64 MiB; and all as many as have room in what kopsd lends. Slabs without a block in use
are kept for later arrays, up to a limit.

Whoever calls holds the session's lock, except for find().

The exception of a signal handler may come at any call and at the end of a loop's turn, but nowhere else. So what must be
done as a whole is done by statements without either: they say "as a whole".
"""
from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable
from typing import Any

from ._children import children
from .errors import QuotaError

ALIGNMENT = 64
PAGE = 4096
SLAB_MIN = 64 << 10
SLAB_MAX = 64 << 20
EXACT_FROM = 1 << 20  # sizes from here on are rounded to pages only
LENT_MIN = 64 << 10   # kopsd lends, and counts, powers of two,
LENT_MAX = 64 << 20   # and above this one
LENT_STEP = 2 << 20   # multiples of that
UNMAP_S = 1.0         # kopsd unmaps what it was given back in its own time
RETRY_S = 0.002


def block_bytes(nbytes: int) -> int:
    """The size of block that an array of nbytes gets: at most an eighth more, so that few sizes serve all."""
    if nbytes >= EXACT_FROM:
        return -(-nbytes // PAGE) * PAGE
    step = max(ALIGNMENT, 1 << max(0, nbytes.bit_length() - 4))
    return max(ALIGNMENT, -(-nbytes // step) * step)


def lent_bytes(nbytes: int) -> int:
    """What a buffer of nbytes takes of the user's quota."""
    if nbytes > LENT_MAX:
        return -(-nbytes // LENT_STEP) * LENT_STEP
    return max(LENT_MIN, 1 << (nbytes - 1).bit_length())


class Slab:
    """One buffer. `address` is where its first byte lies here; for a device's memory, the place that stands for it."""

    __slots__ = ("buffer", "address", "nbytes", "lent", "block", "freed", "fresh", "live", "calls", "holds", "forks",
                 "is_refused", "is_private", "is_dropped")

    def __init__(self, buffer: int, address: int, nbytes: int, block: int, holds: Any = None) -> None:
        self.buffer = buffer
        self.address = address
        self.nbytes = nbytes
        self.lent = lent_bytes(nbytes)
        self.block = block
        self.freed: dict[int, None] = {}  # offsets of blocks that were in use, the latest last
        self.fresh = 0                # from here on no block was ever in use: zeros
        self.live = 0
        self.calls: set[Any] = set()  # prepared calls that name the buffer
        self.holds = holds
        self.forks = children.forks   # that it is known to be free of: no child of them looks at it
        self.is_refused = False       # by kopsd, after it was in use
        self.is_private = False       # no longer kopsd's memory
        self.is_dropped = False       # its buffer was given back

    @property
    def has_room(self) -> bool:
        return not self.is_refused and (bool(self.freed) or self.fresh + self.block <= self.nbytes)


class Place:
    """What take() gives a block."""

    __slots__ = ("slab", "offset", "is_fresh")

    slab: Slab
    offset: int
    is_fresh: bool  # all zeros


class Pool:
    """allocate(nbytes) makes a slab's (buffer, address), or raises MemoryError or QuotaError. forget(slab) is called before
    free(buffer), a function of C, gives it back."""

    def __init__(self, allocate: Callable[[int], tuple[int, int]], forget: Callable[[Slab], None],
                 free: Callable[[int], None], cache_bytes: int) -> None:
        self.allocate = allocate
        self.forget = forget
        self.free = free
        self.cache_bytes = cache_bytes
        self.with_room: dict[int, dict[Slab, None]] = {}  # by size of block
        self.count: dict[int, int] = {}                   # of slabs, likewise
        self.idle: dict[Slab, None] = {}                  # without a live block, oldest first
        self.idle_bytes = 0
        self.lingering: dict[Slab, None] = {}             # likewise, but a child of fork() may look at them
        self.live = 0                                     # blocks in use
        self.dropped_s = -math.inf                        # when a slab was given back
        self.ranges: tuple[list[int], list[Slab]] = ([], [])  # replaced, never changed: find() takes no lock

    # Blocks

    def take(self, nbytes: int, place: Place) -> None:
        """Makes it the place of a block of at least nbytes."""
        size = block_bytes(nbytes)
        slab = self._slab_with_room(size)
        if slab in self.idle:  # as a whole
            del self.idle[slab]
            self.idle_bytes -= slab.lent
            slab.forks = children.forks
        if slab in self.lingering:
            del self.lingering[slab]
        is_fresh = not slab.freed
        offset = slab.fresh if is_fresh else next(reversed(slab.freed))
        if is_fresh:  # as a whole
            slab.fresh += size
        else:
            del slab.freed[offset]
        slab.live += 1
        self.live += 1
        place.slab, place.offset, place.is_fresh = slab, offset, is_fresh

    def _slab_with_room(self, size: int) -> Slab:
        slabs = self.with_room.setdefault(size, {})
        while slabs:
            slab = next(reversed(slabs))
            if slab.has_room and (slab in self.idle or self._is_unseen(slab)):
                return slab
            del slabs[slab]
        if self._end_lingering() and slabs:
            return self._slab_with_room(size)
        slab = self._new_slab(size)
        slabs[slab] = None
        return slab

    def give(self, slab: Slab, offset: int) -> None:
        """Takes a block back. May be called again after an exception, before anything else."""
        if slab.is_dropped:
            return
        if offset not in slab.freed:  # as a whole
            slab.freed[offset] = None
            slab.live -= 1
            self.live -= 1
        if slab.is_refused:
            if slab.live == 0:
                self._drop(slab)
            return
        self.with_room[slab.block][slab] = None
        if slab.live == 0 and not self._is_unseen(slab):
            self.lingering[slab] = None
        elif slab.live == 0:
            self._be_idle(slab)
            self.trim(self.cache_bytes)

    def _be_idle(self, slab: Slab) -> None:
        if slab not in self.idle:  # as a whole
            self.idle[slab] = None
            self.idle_bytes += slab.lent

    def _is_unseen(self, slab: Slab) -> bool:
        """Whether no child of fork() may look at arrays that were here before: else the memory stays as it is."""
        forks = children.forks  # another thread may fork after the look
        if slab.forks != forks and not children.may_look():
            slab.forks = forks
        return slab.forks == children.forks

    def _end_lingering(self) -> bool:
        """Whether any is free for others again."""
        before = len(self.lingering)
        for slab in list(self.lingering):
            if not self._is_unseen(slab):
                break
            if slab.live == 0:
                self._be_idle(slab)
            self.with_room[slab.block][slab] = None
            self.lingering.pop(slab, None)
        self.trim(self.cache_bytes)
        return len(self.lingering) < before

    def trim(self, cache_bytes: int) -> None:
        """Gives idle slabs back until they have no more than cache_bytes."""
        while self.idle_bytes > cache_bytes:
            self._drop(next(iter(self.idle)))

    def refuse(self, buffer: int) -> None:
        """kopsd cannot use this one. Its arrays keep their memory, later ones get other memory. May be called again, as
        give()."""
        slab = next((s for s in self.ranges[1] if s.buffer == buffer), None)
        if slab is None or slab.holds is not None:  # a device's is no memory for arrays
            return
        slab.is_refused = True
        self.with_room[slab.block].pop(slab, None)
        if slab.live == 0:
            self._drop(slab)

    def part_with(self, slab: Slab) -> None:
        """It was made private: its arrays are ordinary ones now, later ones get other memory. May be called again."""
        slab.is_refused = slab.is_private = True
        self.with_room[slab.block].pop(slab, None)
        self.remove(slab)
        self.forget(slab)

    def _drop(self, slab: Slab) -> None:
        """May be called again, as give()."""
        self.with_room[slab.block].pop(slab, None)
        self.lingering.pop(slab, None)
        self.remove(slab)
        self.forget(slab)
        self.dropped_s = time.monotonic()
        free, buffer = self.free, slab.buffer
        if slab in self.idle:  # as a whole
            del self.idle[slab]
            self.idle_bytes -= slab.lent
        self.count[slab.block] -= 1
        slab.is_dropped = True
        free(buffer)

    def _new_slab(self, size: int) -> Slab:
        n = max(1, SLAB_MIN // size, min(1 << min(self.count.get(size, 0), 20), SLAB_MAX // size))
        n = lent_bytes(n * size) // size
        try:
            buffer, address = self.allocate(n * size)
        except (MemoryError, QuotaError):  # with less, it may do
            self.trim(0)
            n = 1
            buffer, address = self._allocate_patiently(size)
        slab = Slab(buffer, address, n * size, size)
        self.count[size] = self.count.get(size, 0) + 1
        self.add(slab)
        return slab

    def _allocate_patiently(self, nbytes: int) -> tuple[int, int]:
        while True:
            try:
                return self.allocate(nbytes)
            except (MemoryError, QuotaError):
                if time.monotonic() > self.dropped_s + UNMAP_S:
                    raise
            time.sleep(RETRY_S)

    @property
    def live_bytes(self) -> int:
        """Of slabs with a block in use, as kopsd counts them."""
        return sum(slab.lent for slab in self.ranges[1] if slab.holds is None) - self.idle_bytes

    # Addresses

    def add(self, slab: Slab) -> None:
        starts, slabs = self.ranges
        at = bisect.bisect(starts, slab.address)
        self.ranges = (starts[:at] + [slab.address] + starts[at:], slabs[:at] + [slab] + slabs[at:])

    def remove(self, slab: Slab) -> None:
        """Once removed, it stays so."""
        starts, slabs = self.ranges
        at = bisect.bisect(starts, slab.address) - 1
        if at >= 0 and slabs[at] is slab:
            self.ranges = (starts[:at] + starts[at + 1:], slabs[:at] + slabs[at + 1:])

    def find(self, address: int) -> Slab | None:
        """The slab that has this byte."""
        starts, slabs = self.ranges
        at = bisect.bisect(starts, address) - 1
        if at >= 0 and address < starts[at] + slabs[at].nbytes:
            return slabs[at]
        return None
