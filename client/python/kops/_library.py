"""libkops through ctypes: the structs and functions of kops.h, under their names there."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_short, c_size_t, c_uint, c_uint8, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Union

from .errors import error

SONAME = "libkops.so.0"
HERE = pathlib.Path(__file__).resolve().parent

DTYPE, TIMEOUT = -5, -33
SHARED, RESIDENT, GIVEN = 0, 1, 4
GROUP, EVERYBODY = 1, 2
RANK_MAX = 4
NAME_MAX = 64  # bytes, of names of clients, devices and kernels
UINT32_MAX, UINT64_MAX = (1 << 32) - 1, (1 << 64) - 1
DTYPES = {1: "f32", 2: "f64", 3: "f16", 4: "bf16", 5: "i32", 6: "c64", 7: "c128"}  # as in proto/dtype.def
PRIORITIES = {"normal": 0, "high": 1, "low": 2}

_VIEW_AXES = 8


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("name", c_char_p), ("timeout_ms", c_uint32),
                ("spin_us", c_uint32)]


class View(ctypes.Structure):
    _fields_ = [("buffer", c_void_p), ("offset", c_uint64), ("dtype", c_int), ("rank", c_uint32),
                ("shape", c_uint64 * _VIEW_AXES), ("strides", c_int64 * _VIEW_AXES), ("reserved", c_uint64 * 2)]


class NamedOperand(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("view", View)]


class NamedAttribute(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_double), ("choice", c_char_p)]


class JobOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("queue", c_uint32), ("priority", c_int), ("device", c_char_p),
                ("deadline_us", c_uint64), ("timed", c_bool), ("reserved", c_uint8 * 7)]


class OpShape(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("rank", c_uint32), ("extents", c_uint64 * _VIEW_AXES)]


class OpReceipt(ctypes.Structure):
    _fields_ = [("op", c_char_p), ("kernel", c_char_p), ("why", c_char_p), ("flops", c_double), ("bytes", c_double),
                ("compute_us", c_double), ("passed_over", c_char_p), ("larger_errors", c_bool), ("learning", c_bool),
                ("shape", OpShape)]


class Receipt(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("queue_us", c_double), ("upload_us", c_double), ("compute_us", c_double),
                ("download_us", c_double), ("total_us", c_double), ("n_ops", c_size_t), ("prepared", c_bool),
                ("graph", c_bool), ("pauses", c_uint32), ("paused_us", c_double)]


class DeviceInfo(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("description", c_char_p), ("disabled_kernels", c_char_p),
                ("memory_bytes", c_uint64), ("cache_bytes", c_uint64), ("jobs_done", c_uint64),
                ("jobs_failed", c_uint64), ("queued", c_uint64), ("running", c_uint64), ("resident_bytes", c_uint64),
                ("canary_age_us", c_uint64), ("busy_us", c_double), ("temperature_c", c_double),
                ("power_w", c_double), ("power_limit_w", c_double), ("memory_used_bytes", c_uint64),
                ("memory_free_bytes", c_uint64), ("utilization", c_double)]


class Info(ctypes.Structure):
    _fields_ = [("daemon", c_char_p), ("uptime_us", c_uint64), ("sessions", c_uint64), ("buffers", c_uint64),
                ("mapped_bytes", c_uint64), ("pinned_bytes", c_uint64), ("pool_bytes", c_uint64),
                ("n_devices", c_size_t), ("n_kernels", c_size_t)]


class Usage(ctypes.Structure):
    _fields_ = [("jobs_done", c_uint64), ("jobs_failed", c_uint64), ("flops", c_double), ("bytes", c_double),
                ("queue_us", c_double), ("total_us", c_double), ("device_us", c_double), ("p50_us", c_double),
                ("p99_us", c_double)]


class UserInfo(ctypes.Structure):
    _fields_ = [("uid", c_uint32), ("sessions", c_uint64), ("buffers", c_uint64), ("mapped_bytes", c_uint64),
                ("pinned_bytes", c_uint64), ("resident_bytes", c_uint64), ("prepared_bytes", c_uint64),
                ("queued", c_uint64), ("running", c_uint64), ("backlog_us", c_double), ("usage", POINTER(Usage))]


class RunningJob(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("op", c_char_p), ("kernel", c_char_p), ("n_ops", c_uint32), ("parts", c_uint32),
                ("parts_done", c_uint32), ("running_us", c_double), ("estimate_us", c_double),
                ("shape", OpShape)]


class SessionInfo(ctypes.Structure):
    _fields_ = [("session", c_uint64), ("uid", c_uint32), ("pid", c_uint32), ("client", c_char_p), ("age_us", c_uint64),
                ("buffers", c_uint64), ("prepared", c_uint64), ("queued", c_uint64), ("running", c_uint64),
                ("oldest", POINTER(RunningJob)), ("usage", POINTER(Usage)), ("mapped_bytes", c_uint64),
                ("resident_bytes", c_uint64), ("own", c_bool)]


class TracedJob(ctypes.Structure):
    _fields_ = [("number", c_uint64), ("session", c_uint64), ("uid", c_uint32), ("pid", c_uint32), ("status", c_int),
                ("age_us", c_uint64), ("device", c_char_p), ("op", c_char_p), ("kernel", c_char_p), ("n_ops", c_uint32),
                ("flops", c_double), ("bytes", c_double), ("queue_us", c_double), ("upload_us", c_double),
                ("compute_us", c_double), ("download_us", c_double), ("total_us", c_double), ("prepared", c_bool),
                ("graph", c_bool), ("ring", c_bool), ("shape", OpShape), ("ended_ns", c_uint64)]


class PublishOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("access", c_int), ("group", c_uint32), ("keep", c_bool), ("reserved", c_uint8 * 3),
                ("dtype", c_int), ("rank", c_uint32), ("shape", c_uint64 * _VIEW_AXES)]


class BufferInfo(ctypes.Structure):
    _fields_ = [("number", c_uint64), ("uid", c_uint32), ("name", c_char_p), ("bytes", c_uint64), ("device", c_char_p),
                ("shape", OpShape), ("access", c_int), ("group", c_uint32), ("keep", c_bool), ("age_us", c_uint64),
                ("attached", c_uint64), ("pid", c_uint32)]


class Held(ctypes.Structure):
    _fields_ = [("place", c_void_p), ("content", c_char_p), ("bytes", c_size_t)]


# Of a job or buffer: which one, and how it ended. The third argument, which nobody uses, is left where it is.
Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int)
NumPyCall = ctypes.CFUNCTYPE(None, c_int, c_void_p, c_size_t, POINTER(c_uint64))


class NumPy(ctypes.Structure):
    _fields_ = [("enter", c_void_p), ("leave", c_void_p), ("fetch", c_void_p), ("restore", c_void_p), ("call", NumPyCall)]


def address_of(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


_Table = dict[str, tuple[Any, Union[list[Any], None]]]  # results and arguments; None: not converted

# These may take long, so other threads run meanwhile.
_WITHOUT_GIL: _Table = {
    "kops_open": (c_int, [POINTER(c_void_p), POINTER(Options), c_char_p, c_size_t]),
    "kops_open_start": (c_int, [POINTER(c_void_p), POINTER(Options), c_char_p, c_size_t]),
    "kops_close": (None, [c_void_p]),
    "kops_ping": (c_int, [c_void_p]),
    "kops_buffer_wait": (c_int, [c_void_p, c_int]),
    "kops_free": (None, [c_void_p]),
    "kops_wait": (c_int, [c_void_p, c_int]),
    "kops_submit_and_wait": (c_int, None),  # a c_void_p and an int, as they are: every op that repeats comes here
    "kops_process": (c_int, [c_void_p]),
    "kops_job_prepare": (c_int, [c_void_p]),
    "kops_query": (c_int, [c_void_p, POINTER(POINTER(Info))]),
    "kops_list_users": (c_int, [c_void_p, POINTER(c_void_p)]),
    "kops_list_sessions": (c_int, [c_void_p, POINTER(c_void_p)]),
    "kops_list_jobs": (c_int, [c_void_p, c_uint64, c_size_t, POINTER(c_void_p)]),
    "kops_list_buffers": (c_int, [c_void_p, POINTER(c_void_p)]),
    "kops_publish": (c_int, [c_void_p, c_char_p, POINTER(PublishOptions)]),
    "kops_unpublish": (c_int, [c_void_p, c_uint32, c_char_p]),
    "kops_attach": (c_int, [c_void_p, c_uint32, c_char_p, POINTER(c_void_p)]),
}

# These return at once. Giving other threads a chance to run would cost more than the call.
_WITH_GIL: _Table = {
    "kops_error": (c_char_p, [c_void_p]),
    "kops_alloc_start": (c_int, [c_void_p, c_uint64, c_uint, c_char_p, Callback, c_void_p, POINTER(c_void_p)]),
    "kops_import_start": (c_int, [c_void_p, c_int, c_uint64, c_uint, Callback, c_void_p, POINTER(c_void_p)]),
    "kops_data": (c_void_p, [c_void_p]),
    "kops_size": (c_uint64, [c_void_p]),
    "kops_inherit": (c_void_p, [c_void_p]),
    "kops_python_keep_private": (c_int, [c_void_p]),
    "kops_job_new": (c_int, [c_void_p, POINTER(JobOptions), POINTER(c_void_p)]),
    "kops_job_free": (None, [c_void_p]),
    "kops_job_op": (c_int, [c_void_p, c_char_p, POINTER(NamedOperand), c_size_t, POINTER(NamedAttribute), c_size_t,
                            c_char_p]),
    "kops_op_result": (c_int, [c_char_p, POINTER(NamedOperand), c_size_t, POINTER(NamedAttribute), c_size_t, c_char_p,
                               POINTER(View), c_char_p, c_size_t]),
    "kops_submit": (c_int, [c_void_p, c_void_p, c_void_p]),  # an address is passed faster than a Callback
    "kops_job_is_out": (c_bool, [c_void_p]),
    "kops_cancel": (c_int, [c_void_p]),
    "kops_job_error": (c_char_p, [c_void_p]),
    "kops_job_retry_after_us": (c_uint64, [c_void_p]),
    "kops_job_receipt": (POINTER(Receipt), [c_void_p]),
    "kops_receipt_op": (POINTER(OpReceipt), [POINTER(Receipt), c_size_t]),
    "kops_fd": (c_int, [c_void_p]),
    "kops_events": (c_short, [c_void_p]),
    "kops_timeout": (c_int, [c_void_p]),
    "kops_info_free": (None, [POINTER(Info)]),
    "kops_info_device": (POINTER(DeviceInfo), [POINTER(Info), c_size_t]),
    "kops_list_free": (None, [c_void_p]),
    "kops_list_count": (c_size_t, [c_void_p]),
    "kops_list_user": (POINTER(UserInfo), [c_void_p, c_size_t]),
    "kops_list_session": (POINTER(SessionInfo), [c_void_p, c_size_t]),
    "kops_list_job": (POINTER(TracedJob), [c_void_p, c_size_t]),
    "kops_list_buffer": (POINTER(BufferInfo), [c_void_p, c_size_t]),
    "kops_attached_view": (View, [c_void_p]),
    "kops_buffer_device": (c_char_p, [c_void_p]),
    "kops_python_holds": (c_bool, None),  # an address, likewise
    "kops_python_cpus": (c_uint, []),
    "kops_python_malloc": (c_void_p, [c_void_p, c_size_t]),
    "kops_python_calloc": (c_void_p, [c_void_p, c_size_t, c_size_t]),
    "kops_python_realloc": (c_void_p, [c_void_p, c_void_p, c_size_t]),
    "kops_python_free": (None, [c_void_p, c_void_p, c_size_t]),
}


class Library:
    """The functions as attributes. `folder`: where the library was found; None: the loader's path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = pathlib.Path(path).resolve().parent if "/" in path else None
        for table, opened in [(_WITHOUT_GIL, ctypes.CDLL(path)), (_WITH_GIL, ctypes.PyDLL(path))]:
            for name, (result, arguments) in table.items():
                function = getattr(opened, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # what the loop above sets, for type checkers
        raise AttributeError(f"libkops at {self.path} has no {name}")


def find() -> str:
    """The library of the wheel, else what KOPS_LIBRARY names, else the system's."""
    beside = HERE / SONAME
    if beside.exists():
        return str(beside)
    named = os.environ.get("KOPS_LIBRARY", "")
    return os.path.abspath(named) if named else SONAME


def load() -> Library:
    path = find()
    try:
        return Library(path)
    except OSError as e:
        raise ImportError(f"kops cannot load {path}: {e}; install libkops, or name it in KOPS_LIBRARY") from None
    except AttributeError as e:
        raise ImportError(f"{path} is not the libkops that this kops was made for: {e}") from None


def version() -> str:
    """Of this package: of kops.h where it is used in the tree beside that, else as it was installed."""
    header = HERE.parent.parent / "kops.h"
    if not header.exists():
        import importlib.metadata
        return importlib.metadata.version("kops")
    return ".".join(re.findall(r"^#define KOPS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header.read_text(encoding="utf-8"),
                               re.MULTILINE))


lib = load()


def whole(value: float, what: str, most: int) -> int:
    """As a number of kops.h, from 0 to most: ctypes would take others, and cut them off."""
    if not 0 <= value <= most:
        raise error("INVALID", f"{what} is {value:g}; it must be from 0 to {most}")
    return round(value)


def name(value: str | None, what: str) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}; it must be a string or None")
    encoded = without_nul((value or "").encode(errors="replace"), what)
    if len(encoded) > NAME_MAX:
        raise error("INVALID", f"{what} has {len(encoded)} bytes: it may have {NAME_MAX}")
    return encoded or None


def uid_of(user: int | str | None) -> int:
    """Of this process's user where none is named."""
    if user is None:
        return os.geteuid()
    if isinstance(user, str):
        import pwd
        try:
            return pwd.getpwnam(user).pw_uid
        except KeyError:
            raise error("INVALID", f"there is no user {user!r}") from None
    return whole(user, "user", UINT32_MAX)


def gid_of(group: int | str) -> int:
    if isinstance(group, str):
        import grp
        try:
            return grp.getgrnam(group).gr_gid
        except KeyError:
            raise error("INVALID", f"there is no group {group!r}") from None
    return whole(group, "group", UINT32_MAX)


def without_nul(value: bytes, what: str) -> bytes:
    if b"\0" in value:
        raise error("INVALID", f"{what} {value!r} has a NUL, where a string of C ends: leave it out")
    return value


def op_shape(value: OpShape) -> tuple[str, tuple[int, ...]]:
    """Element type and extents, as receipts have them."""
    return DTYPES.get(value.dtype, ""), tuple(value.extents[:value.rank])


def text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
