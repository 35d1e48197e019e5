"""Whether arrays are still what they were, by the bytes in which NumPy keeps it. To ask each array for its address, shape,
strides and type takes twice as long, and would be most of the work of a repeated call.
"""
from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any

import numpy as np

from ._library import Held

Content = tuple[ctypes.c_void_p, object]  # for kops_python_holds(), and what must live as long


class _Head(ctypes.Structure):
    """PyArrayObject of ndarraytypes.h, from its type on: in CPython the last member of what every object begins with."""
    _fields_ = [("type", ctypes.c_void_p), ("data", ctypes.c_void_p), ("nd", ctypes.c_int), ("shape", ctypes.c_size_t),
                ("strides", ctypes.c_size_t), ("base", ctypes.c_void_p), ("descr", ctypes.c_void_p), ("flags", ctypes.c_int)]


_AT = object.__basicsize__ - _Head.data.offset
_HeadBytes = ctypes.c_char * (_Head.flags.offset + _Head.flags.size)


def content(arrays: tuple[np.ndarray[Any, Any], ...]) -> Content:
    """While these live and kops_python_holds() it, they are the same elements, and as writable as they were."""
    held = [Held(ctypes.addressof(place), place.raw, ctypes.sizeof(place)) for x in arrays for place in _places(x)]
    places = (Held * (len(held) + 1))(*held)  # the last one ends the list
    types = [x.dtype for x in arrays]         # another must not come to lie at the address of one
    return ctypes.c_void_p(ctypes.addressof(places)), (places, held, types)


def _places(x: np.ndarray[Any, Any]) -> list[ctypes.Array[ctypes.c_char]]:
    at = id(x) + _AT
    places = [_HeadBytes.from_address(at)]
    if x.ndim:
        lengths = ctypes.c_char * (2 * x.ndim * ctypes.sizeof(ctypes.c_ssize_t))  # strides lie behind the shape
        places.append(lengths.from_address(_Head.from_address(at).shape))
    return places


def _is_as_expected() -> bool:
    """Whether this Python and this NumPy keep arrays so."""
    if sys.implementation.name != "cpython":
        return False
    x = np.zeros((3, 5))[1:, ::2]
    head = _Head.from_address(id(x) + _AT)
    begin = {"type": id(np.ndarray), "data": x.ctypes.data, "nd": 2, "base": id(x.base), "descr": id(x.dtype),
             "flags": x.flags.num, "strides": head.shape + x.ndim * ctypes.sizeof(ctypes.c_ssize_t)}
    return all(getattr(head, name) == value for name, value in begin.items()) and _places(x)[1].raw == struct.pack(
        "4n", *x.shape, *x.strides)


KNOWS = _is_as_expected()
