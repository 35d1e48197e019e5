"""What goes wrong, as exceptions. Each has the code and the name of kops.h, and a sentence with cause and next step."""
from __future__ import annotations


class Error(Exception):
    """Any failure of kops. `code` is negative, as in kops.h; `name` is its name there without KOPS_E_."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code = code
        self.name = NAMES.get(code, str(code))
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class ArgumentError(Error, ValueError):
    """The call cannot be done as it was asked for: INVALID, RANGE, OVERLAP, UNSUPPORTED, DEVICE, READONLY, FD."""


class ShapeError(ArgumentError):
    """Shapes that do not fit together."""


class DtypeError(ArgumentError, TypeError):
    """An element type that the op does not take, or operands of different ones."""


class ConnectError(Error, ConnectionError):
    """kopsd cannot be reached, or does not speak this protocol."""


class TimedOutError(Error, TimeoutError):
    """No answer in time. The job was cancelled, and no longer writes its outputs (a device's arrays: until it has
    stopped); after Job.wait() it is still in flight."""


class OutOfMemoryError(Error, MemoryError):
    """Out of host or device memory."""


class QuotaError(Error):
    """Over a limit of this user."""


class BusyError(Error):
    """Too much work is queued. Try again after `retry_after` seconds."""

    retry_after = 0.0


class DeadlineError(Error):
    """The job had not started by its deadline."""


class CancelledError(Error):
    """The job was cancelled before it ended."""


class LostError(Error):
    """A restart of kopsd lost the content of a device array: upload it again."""


class InterruptedJobError(Error):
    """kopsd restarted, and running the job twice could be wrong: restore its inputs and run it again."""


class StateError(Error, RuntimeError):
    """Not allowed now: a closed client, a job in flight, a client of the process that forked this one."""


# proto/status.def
NAMES = {
    -1: "PROTOCOL", -2: "INVALID", -3: "RANGE", -4: "SHAPE", -5: "DTYPE", -6: "OVERLAP", -7: "NOT_FOUND", -8: "EXISTS",
    -9: "UNSUPPORTED", -10: "DEVICE", -11: "NOMEM", -12: "QUOTA", -13: "BUSY", -14: "DEADLINE", -15: "CANCELLED",
    -16: "SHUTDOWN", -17: "LOST", -18: "INTERRUPTED", -19: "FD", -20: "VERSION", -21: "FAULT", -22: "READONLY",
    -32: "CONNECT", -33: "TIMEOUT", -34: "STATE", -35: "SYSTEM",
}
CODES = {name: code for code, name in NAMES.items()}

_CLASSES: dict[str, type[Error]] = {
    "INVALID": ArgumentError, "RANGE": ArgumentError, "OVERLAP": ArgumentError, "UNSUPPORTED": ArgumentError,
    "DEVICE": ArgumentError, "READONLY": ArgumentError, "FD": ArgumentError, "SHAPE": ShapeError, "DTYPE": DtypeError,
    "CONNECT": ConnectError, "VERSION": ConnectError, "TIMEOUT": TimedOutError, "NOMEM": OutOfMemoryError,
    "QUOTA": QuotaError, "BUSY": BusyError, "DEADLINE": DeadlineError, "CANCELLED": CancelledError, "LOST": LostError,
    "INTERRUPTED": InterruptedJobError, "STATE": StateError,
}


def error(code: int | str, sentence: str) -> Error:
    """The exception for a code of kops.h, or for its name."""
    number = CODES[code] if isinstance(code, str) else code
    return _CLASSES.get(NAMES.get(number, ""), Error)(number, sentence)
