"""Who uses the daemon: users, sessions and the latest jobs."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable

from . import _library
from ._library import lib, op_shape, text
from ._session import Session


@dataclass(frozen=True)
class Usage:
    """What jobs were and took, in the words of kops.h."""

    jobs_done: int
    jobs_failed: int
    flops: float
    bytes: float
    queue_us: float
    total_us: float
    device_us: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class User:
    """A user of the daemon, in the words of kops.h."""

    uid: int
    sessions: int
    buffers: int
    mapped_bytes: int
    pinned_bytes: int
    resident_bytes: int
    prepared_bytes: int
    queued: int
    running: int
    backlog_us: float
    usage: Usage


@dataclass(frozen=True)
class RunningJob:
    """A job that has started, in the words of kops.h. dtype and shape: of its first op, as in OpReceipt."""

    device: str
    op: str
    kernel: str
    n_ops: int
    parts: int
    parts_done: int
    running_us: float
    estimate_us: float
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SessionInfo:
    """A session of the daemon, in the words of kops.h."""

    session: int
    uid: int
    pid: int
    client: str
    age_us: int
    buffers: int
    prepared: int
    queued: int
    running: int
    oldest: RunningJob | None
    usage: Usage
    mapped_bytes: int
    resident_bytes: int
    own: bool


@dataclass(frozen=True)
class TracedJob:
    """A job that was answered, in the words of kops.h. dtype and shape: of its first op, as in OpReceipt. ended_ns: on
    the clock of time.monotonic_ns()."""

    number: int
    session: int
    uid: int
    pid: int
    status: int
    age_us: int
    device: str
    op: str
    kernel: str
    n_ops: int
    flops: float
    bytes: float
    queue_us: float
    upload_us: float
    compute_us: float
    download_us: float
    total_us: float
    prepared: bool
    graph: bool
    ring: bool
    dtype: str
    shape: tuple[int, ...]
    ended_ns: int


@dataclass(frozen=True)
class PublishedBuffer:
    """A published buffer that this user may attach, in the words of kops.h. access: 0 the own user, 1 also the group,
    2 everybody."""

    number: int
    uid: int
    name: str
    bytes: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    access: int
    group: int
    keep: bool
    age_us: int
    attached: int
    pid: int


_CLASSES: dict[type, Any] = {_library.Usage: Usage, _library.UserInfo: User, _library.RunningJob: RunningJob,
                             _library.SessionInfo: SessionInfo, _library.TracedJob: TracedJob,
                             _library.BufferInfo: PublishedBuffer}


def _copy(struct: Any) -> Any:
    """The class for a struct, whose fields have the same names."""
    values = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            value = text(value)
        elif isinstance(value, ctypes._Pointer):
            value = _copy(value.contents) if value else None
        elif isinstance(value, _library.OpShape):
            values["dtype"], value = op_shape(value)
        values[name] = value
    return _CLASSES[type(struct)](**values)


def read(session: Session, call: Callable[..., int], item: Callable[..., Any], *arguments: int) -> list[Any]:
    """Calls one of kops_list_*(), and copies each item of what it lists."""
    made = ctypes.c_void_p()
    with session.turn, session:
        session.check(call(session.handle, *arguments, ctypes.byref(made)))
    try:
        return [_copy(item(made, i).contents) for i in range(lib.kops_list_count(made))]
    finally:
        lib.kops_list_free(made)
