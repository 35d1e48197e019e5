"""Ordinary NumPy arrays in shared memory, by NumPy's own way to change where arrays get their memory (NEP 49)."""
from __future__ import annotations

import ctypes
import importlib
from types import TracebackType
from typing import Any

from ._session import Block, Session

try:
    _umath: Any = importlib.import_module("numpy._core._multiarray_umath")
except ImportError:  # before NumPy 2
    _umath = importlib.import_module("numpy.core._multiarray_umath")

_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Realloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of ndarraytypes.h."""
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
                ("malloc", _Malloc), ("calloc", _Calloc), ("realloc", _Realloc), ("free", _Free)]


_SET_HANDLER = 304  # PyDataMem_SetHandler's place in NumPy's table of functions
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_table = ctypes.cast(_pointer_of(_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table[_SET_HANDLER])

_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.realloc.restype, _libc.realloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]


class Allocator:
    """A session's memory as NumPy's. It lives as long as the process, as arrays may. Where the session cannot give memory
    (in a child of fork(), or in the middle of another call) arrays get ordinary memory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.blocks: dict[int, Block] = {}
        self.handler = _Handler(b"kops", 1, None, _Malloc(self._malloc), _Calloc(self._calloc), _Realloc(self._realloc),
                                _Free(self._free))
        self.capsule = _new_capsule(ctypes.addressof(self.handler), b"mem_handler", None)

    def _new(self, nbytes: int) -> Block | None:
        """None: ordinary memory has to do. MemoryError: there is none at all."""
        session = self.session
        if session.handle is None or session.is_inside():
            return None
        block = session.block(max(1, nbytes))
        self.blocks[block.address] = block
        return block

    # NumPy's calls. An exception would be printed and lost; 0 becomes NumPy's MemoryError.

    def _malloc(self, _: int, nbytes: int) -> int:
        try:
            block = self._new(nbytes)
            return block.address if block else _libc.malloc(nbytes) or 0
        except Exception:
            return 0

    def _calloc(self, _: int, n: int, itemsize: int) -> int:
        try:
            block = self._new(n * itemsize)
            is_zero = block is not None and block.is_fresh
            address: int = block.address if block else _libc.malloc(n * itemsize) or 0
            if address and not is_zero:
                ctypes.memset(address, 0, n * itemsize)
            return address
        except Exception:
            return 0

    def _realloc(self, _: int, address: int | None, nbytes: int) -> int:
        try:
            old = self.blocks.get(address or 0)
            if old is None:
                return _libc.realloc(address, nbytes) or 0
            if nbytes <= old.slab.block:
                return old.address
            new = self._malloc(0, nbytes)
            if new:
                ctypes.memmove(new, old.address, old.slab.block)
                del self.blocks[old.address]
            return new
        except Exception:
            return 0

    def _free(self, _: int, address: int | None, __: int) -> None:
        if address and self.blocks.pop(address, None) is None:
            _libc.free(address)


_allocators: list[Allocator] = []


class Memory:
    """with client.memory(): arrays that NumPy makes in the block, results and temporaries included, are in shared memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: list[Any] = []

    def __enter__(self) -> None:
        with self._session.turn, self._session:  # fails here, with a sentence, if the client is closed
            allocator = next((a for a in _allocators if a.session is self._session), None)
            if allocator is None:
                allocator = Allocator(self._session)
                _allocators.append(allocator)
        self._before.append(_set_handler(allocator.capsule))

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        _set_handler(self._before.pop())
