"""Arrays: NumPy arrays on shared memory, and arrays in a device's memory."""
from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _library
from ._copy import copy_array
from ._pool import Slab
from ._session import Block, Published, Resident, Session, owner_of
from .errors import error

if TYPE_CHECKING:
    from ._client import Client

    NDArray = np.ndarray[Any, Any]
else:
    NDArray = np.ndarray

Shape = Union[int, Iterable[int]]
Layout = tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]]  # address, shape, strides in bytes, dtype

# ---- Element types

_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32",
          "c64": "complex64", "c128": "complex128"}  # NumPy's
_BY_NAME = {_NAMES[name]: code for code, name in _library.DTYPES.items()}
_CODES: dict[np.dtype[Any], int] = {}  # of those met so far
_TYPES = "float16, bfloat16 (of ml_dtypes), float32 and float64, moves int32, complex64 and complex128"


def dtype_code(dtype: np.dtype[Any]) -> int:
    """As in kops.h. NumPy has no bfloat16 of its own; that of ml_dtypes is known by its name."""
    code = _CODES.get(dtype)
    if code is None:
        code = _BY_NAME.get(dtype.name) if dtype.isnative else None
        if code is None:
            raise error("DTYPE", f"kops computes with {_TYPES}, not with {dtype}: convert it with astype()")
        _CODES[dtype] = code
    return code


def dtype_of(code: int, arrays: Iterable[NDArray]) -> np.dtype[Any]:
    """That of one of the arrays, where one has it: NumPy finds bfloat16 by its name only where ml_dtypes is loaded."""
    there = next((native(x.dtype) for x in arrays if dtype_code(x.dtype) == code), None)
    return there or np.dtype(_NAMES[_library.DTYPES[code]])


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In this machine's byte order, as arrays of kops are."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise error("DTYPE", "NumPy has no bfloat16 of its own: install ml_dtypes") from None
        dtype = ml_dtypes.bfloat16
    result = np.dtype(dtype)
    dtype_code(result)
    return result


# ---- What is more than its elements


def check_kind(x: object) -> None:
    """Refuses what means more than its elements: masks, units, labels. kops would drop that without a word. NumPy has such
    a class say so by functions of its own (NEP 13, NEP 18); its masked arrays, which are older, do not."""
    kind = type(x)
    if issubclass(kind, np.ma.MaskedArray):
        raise error("INVALID", "kops would compute with the masked elements of a masked array too: pass x.filled(value), "
                               "or x.data if they are to count")
    if isinstance(x, (list, tuple)):
        for item in x:
            if type(item) is not float:
                check_kind(item)
    elif kind is not np.ndarray and not _has_elements_only(kind):
        raise error("INVALID", f"a {kind.__module__}.{kind.__qualname__} may mean more than its elements (units, labels, "
                               "masks), which kops would drop: pass the elements alone, as numpy.asarray(x)")


def _has_elements_only(kind: type) -> bool:
    if issubclass(kind, np.ma.MaskedArray):
        return False
    return all(getattr(kind, name, getattr(np.ndarray, name)) is getattr(np.ndarray, name)
               for name in ("__array_ufunc__", "__array_function__"))


def elements(x: object, dtype: np.dtype[Any] | None = None) -> NDArray:
    """As a NumPy array, of its base class."""
    if type(x) is not np.ndarray:
        if isinstance(x, DeviceArray):
            raise error("INVALID", "this array is in a device's memory: fetch it with download()")
        check_kind(x)
    return np.asarray(x, dtype)


# ---- Layouts

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_word_at = ctypes.c_size_t.from_address


class _Interface(ctypes.Structure):
    """PyArrayInterface, what __array_struct__ points to."""
    _fields_ = [("two", ctypes.c_int), ("nd", ctypes.c_int), ("typekind", ctypes.c_char), ("itemsize", ctypes.c_int),
                ("flags", ctypes.c_int), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("data", ctypes.c_void_p), ("descr", ctypes.c_void_p)]


def _address(x: NDArray) -> int:
    capsule = x.__array_struct__  # which frees what it points to
    return _word_at(_capsule_pointer(capsule, None) + _Interface.data.offset).value


# Where an ndarray has the address of its elements: in CPython it is the first member of PyArrayObject. To read it there
# takes a fifth of the time that __array_struct__ takes, and every call needs three.
_IN_ARRAY = object.__basicsize__
_probe = np.zeros(2)[1:]
_plain = np.ndarray if sys.implementation.name == "cpython" and _word_at(id(_probe) + _IN_ARRAY).value == _address(
    _probe) else None


_ABSENT: Layout = (0, (), (), np.dtype(np.void))


def layout(x: Any) -> Layout:
    """Two arrays of one layout are the same elements. None is an operand that is absent. AttributeError: x is no array, or
    means more than its elements."""
    if type(x) is _plain:
        address = _word_at(id(x) + _IN_ARRAY).value
    elif isinstance(x, np.ndarray) and _has_elements_only(type(x)):
        address = _address(x)
    elif x is None:
        return _ABSENT
    else:  # a number of NumPy has an address too, of a copy that is made for whoever asks
        raise AttributeError("no layout")
    return address, x.shape, x.strides, x.dtype


def is_regular(x: NDArray) -> bool:
    """Whether a view can name its elements: strides of whole elements, in this machine's byte order."""
    itemsize = x.itemsize
    return x.dtype.isnative and all(s % itemsize == 0 for s, n in zip(x.strides, x.shape) if n > 1)


def is_here(session: Session, x: NDArray) -> bool:
    """Whether it is, as a view, in this session's memory."""
    address = layout(x)[0]
    slab = session.pool.find(address)
    if slab is None:
        _refuse_foreign(address)
        return False
    return x.size > 0 and is_regular(x) and (address - slab.address) % x.itemsize == 0


def view_of(slab: Slab, x: NDArray) -> _library.View:
    address, shape, strides, dtype = layout(x)
    itemsize = dtype.itemsize
    view = _library.View(slab.buffer, address - slab.address, dtype_code(dtype), len(shape))
    view.shape[:len(shape)] = shape
    view.strides[:len(shape)] = [s // itemsize for s in strides]
    return view


def _refuse_foreign(address: int) -> None:
    owner = owner_of(address)
    if owner is not None:
        raise error("STATE", f"this array belongs to process {owner.pid}, which forked, and its memory could not be mapped "
                             "here: pass it by multiprocessing, which copies, or make it here")


# ---- Arrays on shared memory


def as_shape(shape: Shape) -> tuple[int, ...]:
    result = tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
    if any(n < 0 for n in result):
        raise error("SHAPE", f"{result} is not a valid shape: its extents must not be negative")
    return result


def _bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    n = dtype.itemsize
    for extent in shape:
        n *= extent
    if n > sys.maxsize:
        raise error("SHAPE", f"an array of shape {shape} and {dtype} has {n} bytes, more than any memory: make it smaller")
    return max(n, 1)


def _on_block(block: Block | Published, shape: tuple[int, ...], dtype: np.dtype[Any], read_only: bool = False) -> NDArray:
    is_builtin = dtype.kind in "fic"
    block.__array_interface__ = {"data": (block.address, read_only), "shape": shape, "version": 3,
                                 "typestr": dtype.str if is_builtin else f"<u{dtype.itemsize}"}
    x = np.asarray(block)
    return x if is_builtin else x.view(dtype)


def empty(session: Session, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    return _on_block(session.block(_bytes_of(shape, dtype)), shape, dtype)


def zeros(session: Session, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    block = session.block(_bytes_of(shape, dtype))
    x = _on_block(block, shape, dtype)
    if not block.is_fresh:
        x.fill(0)
    return x


def empty_like(session: Session, x: NDArray) -> NDArray:
    """With x's order of axes in memory, so that copying goes along both."""
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    y = empty(session, tuple(x.shape[axis] for axis in order), native(x.dtype))
    return y.transpose(np.argsort(order)) if x.ndim > 1 else y


def asarray(session: Session, value: ArrayLike, dtype: DTypeLike | None) -> NDArray:
    x = elements(value, None if dtype is None else as_dtype(dtype))
    dtype_code(native(x.dtype))
    if is_here(session, x):
        return x
    y = empty_like(session, x)
    copy_array(y, x)
    return y


# ---- Arrays in a device's memory


class DeviceArray:
    """An array in the memory of a device. Its elements are reached by upload(), download() and ops only; slices, .T,
    swapaxes() and reshape() are views of it. Ops with an operand here, also as @ and +, leave their results here too."""

    __slots__ = ("_client", "_resident", "_place", "device")
    __array_ufunc__ = None  # NumPy's operators refuse it

    def __init__(self, client: Client, resident: Resident, place: NDArray, device: str | None) -> None:
        self._client = client
        self._resident = resident
        self._place = place  # an array without memory, whose addresses stand for the device's
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._place.shape
        return shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._place.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self._place.dtype
        return dtype

    @property
    def ndim(self) -> int:
        return self._place.ndim

    @property
    def size(self) -> int:
        return self._place.size

    @property
    def nbytes(self) -> int:
        return self._place.nbytes

    @property
    def T(self) -> DeviceArray:
        return self._view(self._place.T)

    def swapaxes(self, axis1: int, axis2: int) -> DeviceArray:
        return self._view(self._place.swapaxes(axis1, axis2))

    def reshape(self, *shape: Any) -> DeviceArray:
        """As numpy.reshape, of what lies in memory without gaps."""
        asked = shape[0] if len(shape) == 1 else shape
        if not self._place.flags.c_contiguous:
            raise error("INVALID", "this device array has gaps or another order of axes, and reshape() makes views only: copy() it "
                                   "to a device array of its own first")
        try:
            view = self._place.reshape(asked)
        except ValueError:
            raise error("SHAPE", f"a device array of shape {self.shape} cannot be reshaped to {asked}") from None
        return self._view(view if view.ndim else view[None])

    def __getitem__(self, key: Any) -> DeviceArray:
        keys = key if isinstance(key, tuple) else (key,)
        for k in keys:
            if not (k is None or k is Ellipsis or isinstance(k, (slice, int, np.integer))) or isinstance(k, bool):
                raise error("INVALID", "a device array takes integers, slices, ... and None as its index, which make "
                                       f"views; not {type(k).__name__}")
        view = self._place[keys if Ellipsis in keys else (*keys, Ellipsis)]  # with "..." NumPy reads no element
        if view.ndim == 0:
            raise error("INVALID", "a single element of a device array cannot be read: take a slice and download() it")
        return self._view(view)

    def upload(self, value: ArrayLike) -> DeviceArray:
        """Copies value, which is broadcast to this shape, here. Returns itself."""
        x = elements(value, self.dtype)
        try:
            x = np.broadcast_to(x, self.shape)
        except ValueError:
            raise error("SHAPE", f"an array of shape {x.shape} cannot be uploaded to one of {self.shape}") from None
        self._client.copy(x, out=self)
        return self

    def download(self, out: NDArray | None = None) -> NDArray:
        """A copy in shared memory, or in out."""
        result = self._client.empty(self.shape, self.dtype) if out is None else out
        self._client.copy(self, out=result)
        return result

    def __matmul__(self, other: Any) -> Any:
        return self._client.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._client.matmul(other, self)

    def __add__(self, other: Any) -> Any:
        return self._client.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return self._client.add(other, self)

    def _view(self, place: NDArray) -> DeviceArray:
        return DeviceArray(self._client, self._resident, place, self.device)

    def __repr__(self) -> str:
        return f"<kops.DeviceArray {self.shape} {self.dtype} on {self.device or 'the first device'}>"

    def __len__(self) -> int:
        return len(self._place)

    def __array__(self, *_: object, **__: object) -> NDArray:
        raise error("INVALID", "this array is in a device's memory: fetch it with download()")

    def __reduce__(self) -> Any:
        raise TypeError("a kops.DeviceArray cannot be pickled: its memory belongs to this process's session with "
                        "kopsd; pickle what download() returns")


def device_array(client: Client, session: Session, shape: tuple[int, ...], dtype: np.dtype[Any],
                 device: str | None) -> DeviceArray:
    nbytes = _bytes_of(shape, dtype)
    resident = session.resident(nbytes, device)
    place = resident.place if 0 not in shape else resident.place[:0]
    return DeviceArray(client, resident, place.view(dtype).reshape(shape), device)


# ---- Published arrays


def _dtype_told(view: _library.View) -> np.dtype[Any]:
    if view.rank == 0:
        raise error("DTYPE", "this buffer was published without a type and shape, so it cannot be an array")
    return as_dtype(_NAMES[_library.DTYPES[view.dtype]])


def _fill_options(options: _library.PublishOptions, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if not 0 < len(shape) <= _library.RANK_MAX:
        raise error("SHAPE", f"an array of {len(shape)} axes cannot be published, but one of 1 to {_library.RANK_MAX}")
    options.dtype, options.rank = dtype_code(dtype), len(shape)
    options.shape[:len(shape)] = shape


def _is_whole(x: DeviceArray) -> bool:
    """Whether it is all of its buffer, in order."""
    slab = x._resident.slab
    return bool(x._place.flags.c_contiguous) and layout(x._place)[0] == slab.address and x.nbytes == slab.nbytes


def _publish_on_device(client: Client, session: Session, x: NDArray | DeviceArray, name: bytes,
                       options: _library.PublishOptions, device: str | None) -> DeviceArray:
    _fill_options(options, native(x.dtype), x.shape)
    if isinstance(x, DeviceArray) and x._client is client and device is None and _is_whole(x):
        array = x
    else:
        if isinstance(x, DeviceArray):
            device = device or x.device
        array = device_array(client, session, x.shape, native(x.dtype), device)
        client.copy(x, out=array)
    session.publish(array._resident, name, options)
    return array


def publish(client: Client, session: Session, x: Any, name: bytes, options: _library.PublishOptions,
            device: str | None) -> Array:
    """x itself if it is all of a buffer on its device; else a copy in a buffer of its own."""
    if isinstance(x, DeviceArray):
        return _publish_on_device(client, session, x, name, options, device)
    source = elements(x)
    if device is not None:
        return _publish_on_device(client, session, source, name, options, device)
    dtype = native(source.dtype)
    _fill_options(options, dtype, source.shape)
    block = session.own_shared(_bytes_of(source.shape, dtype))
    copy_array(_on_block(block, source.shape, dtype), source)
    session.publish(block, name, options)
    return _on_block(block, source.shape, dtype, read_only=True)


def attach(client: Client, session: Session, uid: int, name: bytes) -> Array:
    resident, view = session.attach(uid, name)
    dtype, shape = _dtype_told(view), tuple(view.shape[:view.rank])
    if isinstance(resident, Published):
        return _on_block(resident, shape, dtype, read_only=True)
    nbytes = _bytes_of(shape, dtype) if 0 not in shape else 0
    return DeviceArray(client, resident, resident.place[:nbytes].view(dtype).reshape(shape),
                       _library.text(_library.lib.kops_buffer_device(resident.slab.buffer)))


Array = Union[NDArray, DeviceArray]
