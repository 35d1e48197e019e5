"""Ordinary NumPy arrays in shared memory, by NumPy's own way to change where arrays get their memory (NEP 49)."""
from __future__ import annotations

import _thread
import ctypes
import importlib
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from . import _library
from ._library import lib
from ._session import Block, Session

try:
    _umath: Any = importlib.import_module("numpy._core._multiarray_umath")
except ImportError:  # before NumPy 2
    _umath = importlib.import_module("numpy.core._multiarray_umath")


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of ndarraytypes.h."""
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
                ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
                ("free", ctypes.c_void_p)]


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

_python = ctypes.pythonapi
_OF_PYTHON = (_python.PyGILState_Ensure, _python.PyGILState_Release, _python.PyErr_Fetch, _python.PyErr_Restore)
_OF_NUMPY = (lib.kops_python_malloc, lib.kops_python_calloc, lib.kops_python_realloc, lib.kops_python_free)


class Allocator:
    """A session's memory as NumPy's. It lives as long as the process, as arrays may. Where the session cannot give memory
    (in a child of fork(), or in the middle of another call) arrays get ordinary memory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.blocks: dict[int, Block] = {}
        self.calls = (self._malloc, self._calloc, self._realloc, self._free)  # by kops_python_call
        self.context = _library.NumPy(*map(_library.address_of, _OF_PYTHON), _library.NumPyCall(self._call))
        self.handler = _Handler(b"kops", 1, ctypes.addressof(self.context), *map(_library.address_of, _OF_NUMPY))
        self.capsule = _new_capsule(ctypes.addressof(self.handler), b"mem_handler", None)

    def _new(self, nbytes: int) -> Block | None:
        """None: ordinary memory has to do. MemoryError: there is none at all."""
        session = self.session
        if session.gone or session.is_inside():
            return None
        block = session.block(max(1, nbytes))
        self.blocks[block.address] = block
        return block

    def _call(self, what: int, address: int | None, nbytes: int, answer: Any) -> None:
        """By kops_python_malloc() and its like. 0 becomes NumPy's MemoryError."""
        try:
            answer[1] = self.calls[what](address or 0, nbytes)
        except Exception:
            answer[1] = 0
        answer[0] = 1

    def _malloc(self, _: int, nbytes: int) -> int:
        block = self._new(nbytes)
        return block.address if block else _libc.malloc(nbytes) or 0

    def _calloc(self, _: int, nbytes: int) -> int:
        block = self._new(nbytes)
        is_zero = block is not None and block.is_fresh
        address: int = block.address if block else _libc.malloc(nbytes) or 0
        if address and not is_zero:
            ctypes.memset(address, 0, nbytes)
        return address

    def _realloc(self, address: int, nbytes: int) -> int:
        old = self.blocks.get(address)
        if old is None:
            return _libc.realloc(address, nbytes) or 0
        if nbytes <= old.slab.block:
            return old.address
        new = self._malloc(0, nbytes)
        if new:
            ctypes.memmove(new, old.address, old.slab.block)
            del self.blocks[old.address]
        return new

    def _free(self, address: int, _: int) -> int:
        if address and self.blocks.pop(address, None) is None:
            _libc.free(address)
        return 0


_allocators: list[Allocator] = []

# Signal handlers

LATER_S = 1e-3
_interrupt_main: Any = _thread.interrupt_main  # which does nothing where no handler is set any more


class Patient:
    """A signal handler that does not run in NumPy's calls, where its exception would be printed and lost, nor where a block
    begins and ends: then the signal is sent anew a little later."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        at = frame
        while at is not None and at.f_code not in _UNINTERRUPTED:
            at = at.f_back
        if at is None:
            self.handler(number, frame)
        else:
            _thread.start_new_thread(_send_later, (number,))  # a threading.Thread's start holds locks that a signal may hit


def _send_later(number: int) -> None:
    time.sleep(LATER_S)
    _interrupt_main(number)


def _be_patient() -> list[tuple[int, Any]]:
    """The handlers that were replaced. Only the main thread runs any."""
    if threading.current_thread() is not threading.main_thread():
        return []
    patient: list[tuple[int, Any]] = []
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, (Patient, signal.Handlers)):
            patient.append((number, Patient(handler)))
            signal.signal(*patient[-1])
    return patient


def _be_as_before(patient: list[tuple[int, Any]]) -> None:
    for number, handler in patient:
        if signal.getsignal(number) is handler:  # nobody has set another since
            signal.signal(number, handler.handler)


class Memory:
    """with client.memory(): arrays that NumPy makes in the block, results and temporaries included, are in shared memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: list[tuple[Any, list[tuple[int, Any]]]] = []

    def __enter__(self) -> None:
        with self._session.turn, self._session:  # fails here, with a sentence, if the client is closed
            allocator = next((a for a in _allocators if a.session is self._session), None)
            if allocator is None:
                allocator = Allocator(self._session)
                _allocators.append(allocator)
        patient = _be_patient()
        self._before.append((_set_handler(allocator.capsule), patient))

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        handler, patient = self._before.pop()
        _set_handler(handler)
        _be_as_before(patient)


_UNINTERRUPTED = {f.__code__ for f in (Allocator._call, Memory.__enter__, Memory.__exit__)}
