"""A desk: where the operands of one call or job are laid out. Arrays in kops memory are used where they are. Others are
copied to kops memory before the job, and results from there after it.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _array
from ._array import Array, DeviceArray, Layout, NDArray, dtype_code, elements, is_here, layout, native
from ._copy import copy_array
from ._session import Resident, Session
from .errors import error

if TYPE_CHECKING:
    from ._client import Client


class _Copy:
    """An ordinary array, and its place in kops memory."""

    __slots__ = ("outside", "inside", "is_read", "is_written")

    def __init__(self, outside: NDArray, inside: NDArray) -> None:
        self.outside = outside
        self.inside = inside
        self.is_read = False  # by an op before any that writes it
        self.is_written = False


class Desk:
    def __init__(self, client: Client, session: Session) -> None:
        self.client = client
        self.session = session
        self.copies: dict[Layout, _Copy] = {}
        self.temporaries: list[Array] = []
        self.residents: set[Resident] = set()  # device arrays live as long as the desk, as others do by their views
        self.copied_bytes = 0
        self.copy_us = 0.0

    # For _ops

    def operand(self, x: object) -> NDArray:
        """An array in kops memory with x's elements, once load() was called."""
        if isinstance(x, DeviceArray):
            return self._place(x)
        y = elements(x)
        dtype_code(native(y.dtype))
        if is_here(self.session, y):
            return y
        copy = self._copy(y, False)
        copy.is_read |= not copy.is_written
        return copy.inside

    def output(self, x: Array, is_read: bool) -> NDArray:
        """An array in kops memory whose elements x will have, once store() was called."""
        if isinstance(x, DeviceArray):
            return self._place(x)
        y = elements(x)
        if is_here(self.session, y):
            return y
        copy = self._copy(y, True)
        copy.is_read |= is_read and not copy.is_written
        copy.is_written = True
        return copy.inside

    def make(self, shape: tuple[int, ...], dtype: np.dtype[Any], like: Sequence[object]) -> Array:
        """For a result. It stays on the device if one of the operands is there."""
        for x in like:
            if isinstance(x, DeviceArray):
                return _array.device_array(self.client, self.session, shape, dtype, x.device)
        return _array.empty(self.session, shape, dtype)

    def temporary(self, shape: tuple[int, ...], dtype: np.dtype[Any], like: Sequence[object]) -> NDArray:
        """An array in kops memory for ops that follow each other. It lives as long as the desk."""
        self.temporaries.append(self.make(shape, dtype, like))
        return self.output(self.temporaries[-1], False)

    def _place(self, x: DeviceArray) -> NDArray:
        if x._client is not self.client:
            raise error("STATE", "this device array belongs to another client: download() it there")
        self.residents.add(x._resident)
        return x._place

    def _copy(self, x: NDArray, is_written: bool) -> _Copy:
        key = layout(x)
        copy = self.copies.get(key)
        for other in self.copies.values():
            if other is not copy and (is_written or other.is_written) and np.may_share_memory(x, other.outside):
                raise error("OVERLAP", "operands outside kops memory overlap, and one of them is written: make them with "
                                       "kops.empty() or kops.asarray(), or do not let them overlap")
        if copy is None:
            copy = self.copies[key] = _Copy(x, _array.empty_like(self.session, x))
        return copy

    # Around the job

    def load(self) -> None:
        self.copied_bytes = 0
        self.copy_us = 0.0
        if self.copies:
            self._move([(c.inside, c.outside) for c in self.copies.values() if c.is_read])

    def store(self) -> None:
        if self.copies:
            self._move([(c.outside, c.inside) for c in self.copies.values() if c.is_written])

    def _move(self, pairs: list[tuple[NDArray, NDArray]]) -> None:
        begin = time.perf_counter()
        for to, source in pairs:
            copy_array(to, source)
            self.copied_bytes += to.nbytes
        self.copy_us += (time.perf_counter() - begin) * 1e6
