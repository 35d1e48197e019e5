"""A client of kopsd written from proto/kops.proto and docs/protocol.md alone: it shares no line with libkops.

Messages are dicts. encode() leaves out what is 0, as proto3 does; decode() fills in what is absent.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import re
import socket
import struct
import time

DATAGRAM_MAX = 16384
FDS_MAX = 4
SEND_S = 100  # the longest wait for descriptors that other tests sent
F32, F64, F16, BF16, I32, C64, C128 = range(1, 8)
NORMAL, HIGH, LOW = 0, 1, 2
SHARED, RESIDENT = 0, 1
OWN_USER, GROUP, EVERYBODY = 0, 1, 2
SIZES = {F32: 4, F64: 8, F16: 2, BF16: 2, I32: 4, C64: 8, C128: 16}
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def read_status_codes():
    """NAME → code, from the one list of errors."""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "..", "proto", "status.def")
    with open(path, encoding="utf-8") as f:
        return {name: int(code) for name, code in re.findall(r"^X\((\w+), (\d+),", f.read(), re.M)}


STATUS = read_status_codes()
STATUS_NAME = {0: "OK", **{-code: name for name, code in STATUS.items()}}

# Message → field → (number, kind). Kinds: u unsigned, bool or enum; s zigzag; d double; t text; else a message.
# A '*' in front: repeated; a '!' behind: of a oneof, so that 0 is sent too.
SCHEMA = {
    "Request": {"id": (1, "u"), "hello": (2, "Hello"), "import": (3, "Import"), "alloc": (4, "Alloc"),
                "drop": (5, "Drop"), "submit": (6, "Submit"), "cancel": (7, "Cancel"),
                "describe": (8, "Empty"), "stats": (9, "Empty"), "ping": (10, "Empty"), "run": (11, "Run"),
                "forget": (12, "Forget"), "open_ring": (13, "OpenRing"), "wake": (14, "Empty"),
                "list_users": (15, "Page"), "list_sessions": (16, "Page"), "trace": (17, "Page"),
                "publish": (18, "Publish"), "attach": (19, "Attach"), "unpublish": (20, "Unpublish"),
                "list_buffers": (21, "Page")},
    "Reply": {"id": (1, "u"), "status": (2, "s"), "message": (3, "t"), "retry_after_us": (4, "u"),
              "welcome": (5, "Welcome"), "lent": (6, "Lent"), "receipt": (7, "Receipt"),
              "description": (8, "Description"), "statistics": (9, "Statistics"), "pong": (10, "Pong"),
              "ring": (11, "Ring"), "woken": (12, "Empty"), "users": (13, "Users"),
              "sessions": (14, "Sessions"), "traced_jobs": (15, "TracedJobs"), "attached": (16, "Attached"),
              "published_buffers": (17, "PublishedBuffers")},
    "Empty": {},
    "Hello": {"version_min": (1, "u"), "version_max": (2, "u"), "client": (3, "t")},
    "Welcome": {"version": (1, "u"), "daemon": (2, "t"), "max_datagram_bytes": (3, "u"), "max_ops": (4, "u"),
                "max_buffers": (5, "u"), "max_jobs": (6, "u"), "prepares": (7, "u"), "ring_entries": (8, "u"),
                "lists": (9, "u"), "instances": (10, "u"), "names": (11, "u")},
    "Import": {"buffer": (1, "u"), "bytes": (2, "u"), "read_only": (3, "u")},
    "Alloc": {"buffer": (1, "u"), "bytes": (2, "u"), "kind": (3, "u"), "device": (4, "t"), "lost": (5, "u")},
    "Lent": {"bytes": (1, "u"), "device": (2, "t")},
    "Drop": {"buffer": (1, "u")},
    "Publish": {"buffer": (1, "u"), "name": (2, "t"), "access": (3, "u"), "group": (4, "u"), "keep": (5, "u"),
                "dtype": (6, "u"), "shape": (7, "*u")},
    "Attach": {"buffer": (1, "u"), "user": (2, "u"), "name": (3, "t"), "bytes": (4, "u")},
    "Attached": {"bytes": (1, "u"), "kind": (2, "u"), "device": (3, "t"), "dtype": (4, "u"), "shape": (5, "*u")},
    "Unpublish": {"user": (1, "u"), "name": (2, "t")},
    "PublishedBuffer": {"number": (1, "u"), "user": (2, "u"), "name": (3, "t"), "bytes": (4, "u"), "kind": (5, "u"),
                        "device": (6, "t"), "dtype": (7, "u"), "shape": (8, "*u"), "access": (9, "u"),
                        "group": (10, "u"), "keep": (11, "u"), "age_us": (12, "u"), "attached": (13, "u"),
                        "pid": (14, "u")},
    "PublishedBuffers": {"buffers": (1, "*PublishedBuffer"), "next": (2, "u")},
    "View": {"buffer": (1, "u"), "offset": (2, "u"), "dtype": (3, "u"), "shape": (4, "*u"),
             "strides": (5, "*s")},
    "Gemm": {"a": (1, "View"), "b": (2, "View"), "c": (3, "View"), "alpha": (4, "d"), "beta": (5, "d"),
             "precision": (6, "u")},
    "Softmax": {"x": (1, "View"), "y": (2, "View"), "scale": (3, "d"), "log": (4, "u")},
    "Transpose": {"x": (1, "View"), "y": (2, "View")},
    "Add": {"a": (1, "View"), "b": (2, "View"), "y": (3, "View")},
    "Copy": {"x": (1, "View"), "y": (2, "View")},
    "Reduce": {"x": (1, "View"), "y": (2, "View"), "kind": (3, "u")},
    "Op": {"kernel": (1, "t"), "gemm": (2, "Gemm"), "softmax": (3, "Softmax"), "transpose": (4, "Transpose"),
           "add": (5, "Add"), "copy": (6, "Copy"), "reduce": (8, "Reduce"),
           "instance": (9, "Instance")},
    "Instance": {"op": (1, "t"), "operands": (2, "*InstanceOperand"), "attributes": (3, "*InstanceAttribute")},
    "InstanceOperand": {"name": (1, "t"), "view": (2, "View")},
    "InstanceAttribute": {"name": (1, "t"), "number": (2, "d!"), "count": (3, "u!"), "flag": (4, "u!"), "choice": (5, "t!")},
    "Submit": {"queue": (1, "u"), "priority": (2, "u"), "device": (3, "t"), "deadline_us": (4, "u"),
               "ops": (5, "*Op"), "timed": (6, "u"), "prepare": (7, "u"), "only_prepare": (8, "u")},
    "Run": {"prepared": (1, "u"), "deadline_us": (2, "u")},
    "Forget": {"prepared": (1, "u")},
    "OpenRing": {"entries": (1, "u")},
    "Ring": {"entries": (1, "u"), "bytes": (2, "u")},
    "OpReceipt": {"op": (1, "t"), "kernel": (2, "t"), "why": (3, "t"), "flops": (4, "d"), "bytes": (5, "d"),
                  "compute_us": (6, "d"), "passed_over": (7, "t"), "learning": (10, "u"),
                  "larger_errors": (9, "u"), "dtype": (11, "u"), "shape": (12, "*u")},
    "Receipt": {"device": (1, "t"), "queue_us": (2, "d"), "upload_us": (3, "d"), "compute_us": (4, "d"),
                "download_us": (5, "d"), "total_us": (6, "d"), "ops": (7, "*OpReceipt"), "prepared": (8, "u"), "as_before": (9, "u"),
                "ops_us": (10, "*d"), "graph": (11, "u"), "pauses": (12, "u"), "paused_us": (13, "d")},
    "Cancel": {"job": (1, "u")},
    "Device": {"name": (1, "t"), "description": (2, "t"), "memory_bytes": (3, "u"), "disabled_kernels": (4, "t"),
               "cache_bytes": (5, "u")},
    "Kernel": {"op": (1, "t"), "name": (2, "t"), "device": (3, "t"), "idea": (4, "t"), "dtypes": (5, "t"),
                  "takes": (6, "t"), "tensor_cores": (7, "u")},
    "Description": {"devices": (1, "*Device"), "kernels": (2, "*Kernel")},
    "DeviceStats": {"name": (1, "t"), "jobs_done": (2, "u"), "jobs_failed": (3, "u"), "queued": (4, "u"),
                    "running": (5, "u"), "resident_bytes": (6, "u"), "busy_us": (7, "d"),
                    "canary_age_us": (8, "u"), "temperature_c": (9, "d"), "power_w": (10, "d"), "power_limit_w": (11, "d"),
                    "memory_used_bytes": (12, "u"), "memory_free_bytes": (13, "u"), "utilization": (14, "d")},
    "Statistics": {"uptime_us": (1, "u"), "sessions": (2, "u"), "buffers": (3, "u"), "mapped_bytes": (4, "u"),
                   "pinned_bytes": (5, "u"), "pool_bytes": (6, "u"), "devices": (7, "*DeviceStats")},
    "Pong": {"devices": (1, "u")},
    "Page": {"before": (1, "u")},
    "Usage": {"jobs_done": (1, "u"), "jobs_failed": (2, "u"), "flops": (3, "d"), "bytes": (4, "d"),
              "queue_us": (5, "d"), "total_us": (6, "d"), "device_us": (7, "d"), "p50_us": (8, "d"), "p99_us": (9, "d")},
    "User": {"uid": (1, "u"), "sessions": (2, "u"), "buffers": (3, "u"), "mapped_bytes": (4, "u"),
             "pinned_bytes": (5, "u"), "resident_bytes": (6, "u"), "prepared_bytes": (7, "u"), "queued": (8, "u"),
             "running": (9, "u"), "backlog_us": (10, "d"), "usage": (11, "Usage")},
    "Users": {"users": (1, "*User"), "next": (2, "u")},
    "Session": {"session": (1, "u"), "uid": (2, "u"), "pid": (3, "u"), "client": (4, "t"), "age_us": (5, "u"),
                "buffers": (6, "u"), "prepared": (7, "u"), "queued": (8, "u"), "running": (9, "u"),
                "oldest": (10, "RunningJob"), "usage": (11, "Usage"), "mapped_bytes": (12, "u"),
                "resident_bytes": (13, "u"), "own": (14, "u")},
    "RunningJob": {"device": (1, "t"), "op": (2, "t"), "kernel": (3, "t"), "ops": (4, "u"), "parts": (5, "u"),
                   "parts_done": (6, "u"), "running_us": (7, "d"), "estimate_us": (8, "d"), "dtype": (9, "u"),
                   "shape": (10, "*u")},
    "Sessions": {"sessions": (1, "*Session"), "next": (2, "u")},
    "TracedJob": {"number": (1, "u"), "session": (2, "u"), "job": (3, "u"), "uid": (4, "u"), "pid": (5, "u"),
                  "status": (6, "s"), "age_us": (7, "u"), "device": (8, "t"), "op": (9, "t"), "kernel": (10, "t"),
                  "ops": (11, "u"), "flops": (12, "d"), "bytes": (13, "d"), "queue_us": (14, "d"),
                  "upload_us": (15, "d"), "compute_us": (16, "d"), "download_us": (17, "d"), "total_us": (18, "d"),
                  "prepared": (19, "u"), "graph": (20, "u"), "ring": (21, "u"), "dtype": (22, "u"),
                  "shape": (23, "*u"), "ended_ns": (24, "u")},
    "TracedJobs": {"jobs": (1, "*TracedJob"), "next": (2, "u")},
}


# ---- Encoding ----

def varint(n):
    n &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def zigzag(n):
    return (n << 1) ^ (n >> 63)


def field(number, wire, payload):
    return varint(number << 3 | wire) + payload


def prefixed(number, payload):
    return field(number, 2, varint(len(payload)) + payload)


def encode_value(number, kind, value):
    if kind == "u!":
        return field(number, 0, varint(int(value)))
    if kind == "d!":
        return field(number, 1, struct.pack("<d", value))
    if kind == "t!":
        return prefixed(number, value.encode())
    if kind == "u":
        return field(number, 0, varint(int(value))) if value else b""
    if kind == "s":
        return field(number, 0, varint(zigzag(value))) if value else b""
    if kind == "d":
        return field(number, 1, struct.pack("<d", value)) if value else b""
    if kind == "t":
        return prefixed(number, value.encode()) if value else b""
    return prefixed(number, encode(kind, value))


def encode_repeated(number, kind, values):
    if kind in "us":
        packed = b"".join(varint(v if kind == "u" else zigzag(v)) for v in values)
        return prefixed(number, packed) if values else b""
    return b"".join(prefixed(number, encode(kind, v)) for v in values)


def encode(name, message):
    out = b""
    for key, value in message.items():
        number, kind = SCHEMA[name][key]
        if kind[0] == "*":
            out += encode_repeated(number, kind[1:], value)
        else:
            out += encode_value(number, kind, value)
    return out


# ---- Decoding ----

def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def read_varints(data):
    values, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        values.append(value)
    return values


def unzigzag(n):
    return (n >> 1) ^ -(n & 1)


def decode_value(kind, wire, data, at):
    if wire == 0:
        value, at = read_varint(data, at)
        return (unzigzag(value) if kind == "s" else value), at
    if wire == 1:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if wire != 2:
        raise ValueError(f"wire type {wire}")
    size, at = read_varint(data, at)
    part = data[at:at + size]
    if len(part) != size:
        raise ValueError("truncated")
    if kind == "d":  # packed
        return list(struct.unpack(f"<{size // 8}d", part)), at + size
    if kind == "u":  # likewise
        return read_varints(part), at + size
    return (part.decode() if kind == "t" else decode(kind, part)), at + size


def decode(name, data):
    fields = {number: (key, kind) for key, (number, kind) in SCHEMA[name].items()}
    empty = {"u": 0, "s": 0, "d": 0.0, "t": ""}
    message = {key: [] if kind[0] == "*" else empty.get(kind) for key, kind in fields.values()}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        key, kind = fields[tag >> 3]
        value, at = decode_value(kind.lstrip("*"), tag & 7, data, at)
        if kind in ("*d", "*u"):
            message[key] += value
        elif kind[0] == "*":
            message[key].append(value)
        else:
            message[key] = value
    return message


# ---- Memory ----

def memfd(size, seals=SEALS, name="kops-test"):
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def view(buffer, shape, strides=None, dtype=F32, offset=0):
    v = {"buffer": buffer, "offset": offset, "dtype": dtype, "shape": list(shape)}
    if strides is not None:
        v["strides"] = list(strides)
    return v


def gemm(a, b, c, alpha=1.0, beta=0.0, precision=0, kernel=""):
    return {"kernel": kernel,
            "gemm": {"a": a, "b": b, "c": c, "alpha": alpha, "beta": beta, "precision": precision}}


def softmax(x, y, scale=1.0, log=False):
    return {"softmax": {"x": x, "y": y, "scale": scale, "log": log}}


def transpose(x, y):
    return {"transpose": {"x": x, "y": y}}


def add(a, b, y):
    return {"add": {"a": a, "b": b, "y": y}}


def copy(x, y):
    return {"copy": {"x": x, "y": y}}


SUM, MAX, MEAN = range(3)


def reduce(x, y, kind=SUM):
    return {"reduce": {"x": x, "y": y, "kind": kind}}


def long_sum(x, y, terms):
    """The first number of buffer x added up so many times, to the first of buffer y: one op that takes as long as is asked
    for, and whose parts follow each other."""
    return reduce(view(x, [terms], [0]), view(y, [1]))


def attribute(name, value):
    """A float is a number, a bool a flag, an int a count, text a choice."""
    kind = {float: "number", bool: "flag", int: "count", str: "choice"}[type(value)]
    return {"name": name, kind: value}


def instance(op, operands, attributes=None, kernel=""):
    """Any op: operands and attributes by name, None for an operand that is absent."""
    return {"kernel": kernel,
            "instance": {"op": op,
                         "operands": [{"name": n, "view": v} for n, v in operands.items() if v is not None],
                         "attributes": [attribute(n, v) for n, v in (attributes or {}).items()]}}


# ---- A session ----

class Refused(Exception):
    """A reply with a status other than 0."""

    def __init__(self, reply):
        self.reply = reply
        self.name = STATUS_NAME.get(reply["status"], str(reply["status"]))
        self.message = reply["message"]
        super().__init__(f"{self.name}: {self.message}")


class Ended(Exception):
    """The daemon ended the session."""


class Ring:
    """Runs and their ends in shared memory, as docs/protocol.md has it."""

    RUN_TAIL, RUN_HEAD, END_TAIL, END_HEAD, DAEMON_SLEEPS, CLIENT_SLEEPS, CLIENT_SPINS = range(0, 448, 64)
    WORDS_END = 448
    RUNS = 4096

    def __init__(self, client, reply):
        self.client = client
        self.entries, size = reply["ring"]["entries"], reply["ring"]["bytes"]
        self.fd = reply["fds"][0]
        self.map = mmap.mmap(self.fd, size)
        self.words = memoryview(self.map).cast("I")  # struct would read a word byte by byte, while it changes
        self.put_in = self.taken = 0

    def word(self, at):
        return self.words[at // 4]

    def set(self, at, value):
        self.words[at // 4] = value & 0xFFFFFFFF

    def write(self, prepared, id):
        """An entry, for publish()."""
        struct.pack_into("<QQ", self.map, self.RUNS + 16 * (self.put_in % self.entries), prepared, id)
        self.put_in += 1

    def publish(self):
        self.set(self.RUN_TAIL, self.put_in)
        if self.word(self.DAEMON_SLEEPS):
            self.set(self.DAEMON_SLEEPS, 0)
            self.client.start("wake", {})

    def refill(self, n):
        """Takes all ends, and writes runs of the jobs 1 to n in turn while there is room, for publish()."""
        while self.take():
            pass
        while self.put_in < self.word(self.RUN_HEAD) + self.entries:
            self.write(1 + self.put_in % n, self.put_in + 1000)

    def put(self, prepared):
        """Puts in a run; its request id."""
        id = self.client.next_id
        self.client.next_id += 1
        self.write(prepared, id)
        self.publish()
        return id

    def take(self):
        """The next end, or None."""
        if self.word(self.END_TAIL) == self.taken & 0xFFFFFFFF:
            return None
        at = self.RUNS + 16 * self.entries + 64 * (self.taken % self.entries)
        self.taken += 1
        id, flags, _, *us = struct.unpack_from("<QII5d", self.map, at)
        self.set(self.END_HEAD, self.taken)
        return {"id": id, "status": 0, "flags": flags, "us": us}

    def wait(self):
        """The next end, or the next reply that is about something."""
        while True:
            end = self.take()
            if end:
                return end
            self.set(self.CLIENT_SLEEPS, 1)
            end = self.take()
            if end:
                return end
            reply = self.client.receive()
            if reply["woken"] is None:
                return reply

    def close(self):
        self.words.release()
        self.map.close()
        os.close(self.fd)


class Client:
    """One session. start_*() sends and returns the request's id; wait(id) returns its reply."""

    def __init__(self, path, hello=True, name="test", timeout=600):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.sock.connect(path)  # with a timeout it would not wait for a place in the backlog
            self.sock.settimeout(timeout)
        except OSError:
            self.sock.close()
            raise
        self.next_id = 1
        self.next_buffer = 1
        self.replies = {}
        self.order = []  # ids in the order of their replies
        self.maps = {}
        self.was_reset = False
        if hello:
            try:
                self.welcome = self.hello(name=name)
            except BaseException:
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()
        for reply_fds in [r["fds"] for r in self.replies.values()]:
            for fd in reply_fds:
                os.close(fd)
        self.replies.clear()
        self.maps.clear()

    def send_bytes(self, data, fds=()):
        """Sends one datagram as it is."""
        try:
            if fds:
                socket.send_fds(self.sock, [data], list(fds))
            else:
                self.sock.send(data)
        except OSError as e:
            if e.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise Ended() from e
            raise

    def start(self, verb, body, fds=(), id=None):
        if id is None:
            id = self.next_id
            self.next_id += 1
        data, deadline = encode("Request", {"id": id, verb: body}), time.monotonic() + SEND_S
        while True:
            try:
                self.send_bytes(data, fds)
                return id
            except OSError as e:  # Linux lets users other than root have so many descriptors on their way and no more
                if e.errno != errno.ETOOMANYREFS or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def receive(self):
        """The next reply, whichever it is."""
        try:
            data, fds, flags, _ = socket.recv_fds(self.sock, DATAGRAM_MAX, FDS_MAX)
        except ConnectionResetError as e:
            if self.was_reset:
                raise Ended() from e
            self.was_reset = True
            return self.receive()  # what was sent before
        if not data:
            raise Ended()
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "the daemon's datagram was too large"
        reply = decode("Reply", data)
        reply["fds"] = fds
        self.order.append(reply["id"])
        return reply

    def wait_any(self, id):
        """The reply to request id, whatever its status."""
        while id not in self.replies:
            reply = self.receive()
            if reply["woken"] is not None and reply["id"] == 0:
                continue
            if reply["id"] == 0:
                raise Refused(reply)  # there are too many sessions
            assert reply["id"] not in self.replies, "two replies with one id"
            self.replies[reply["id"]] = reply
        return self.replies.pop(id)

    def wait(self, id):
        reply = self.wait_any(id)
        if reply["status"]:
            raise Refused(reply)
        return reply

    def call(self, verb, body, fds=(), id=None):
        return self.wait(self.start(verb, body, fds, id))

    # Verbs

    def hello(self, low=1, high=1, name="test"):
        request = None
        try:
            request = self.start("hello", {"version_min": low, "version_max": high, "client": name})
        except Ended:
            pass  # it may have said why
        return self.wait(request)["welcome"]

    def new_buffer(self):
        self.next_buffer += 1
        return self.next_buffer - 1

    def start_import(self, fd, size, buffer=None, read_only=False):
        """(request id, buffer id)"""
        buffer = self.new_buffer() if buffer is None else buffer
        return self.start("import", {"buffer": buffer, "bytes": size, "read_only": read_only}, [fd]), buffer

    def import_fd(self, fd, size, buffer=None, read_only=False):
        request, buffer = self.start_import(fd, size, buffer, read_only)
        self.wait(request)
        return buffer

    def import_new(self, size, content=b""):
        """Makes, fills, maps and imports a memfd. Its bytes are self.maps[buffer]."""
        fd = memfd(size)
        m = mmap.mmap(fd, size)
        m[:len(content)] = content
        try:
            buffer = self.import_fd(fd, size)
        finally:
            os.close(fd)
        self.maps[buffer] = m
        return buffer

    def start_alloc(self, size, kind=SHARED, device="", lost=False, buffer=None):
        buffer = self.new_buffer() if buffer is None else buffer
        return self.start("alloc", {"buffer": buffer, "bytes": size, "kind": kind, "device": device,
                                    "lost": lost}), buffer

    def lend(self, size, buffer=None):
        """A SHARED buffer from the daemon, mapped as self.maps[buffer]."""
        request, buffer = self.start_alloc(size, buffer=buffer)
        reply = self.wait(request)
        (fd,) = reply["fds"]
        self.maps[buffer] = mmap.mmap(fd, size)
        os.close(fd)
        return buffer

    def resident(self, size, device="", lost=False):
        request, buffer = self.start_alloc(size, RESIDENT, device, lost)
        self.wait(request)
        return buffer

    def drop(self, buffer):
        self.maps.pop(buffer, None)
        self.call("drop", {"buffer": buffer})

    def publish(self, buffer, name, **how):
        self.call("publish", {"buffer": buffer, "name": name, **how})

    def attach(self, user, name, buffer=None):
        """(buffer id, the reply). A SHARED one is mapped as self.maps[buffer]; its descriptor is closed."""
        buffer = self.new_buffer() if buffer is None else buffer
        reply = self.call("attach", {"buffer": buffer, "user": user, "name": name})
        for fd in reply["fds"]:
            self.maps[buffer] = mmap.mmap(fd, reply["attached"]["bytes"], prot=mmap.PROT_READ)
            os.close(fd)
        return buffer, reply["attached"]

    def unpublish(self, user, name):
        self.call("unpublish", {"user": user, "name": name})

    def list_buffers(self):
        """(user, name) → buffer."""
        return {(b["user"], b["name"]): b for b in self.pages("list_buffers", "published_buffers", "buffers")}

    def start_submit(self, ops, queue=0, priority=NORMAL, device="", deadline_us=0, timed=0, prepare=0, only_prepare=0,
                     id=None):
        ops = ops if isinstance(ops, list) else [ops]
        return self.start("submit", {"queue": queue, "priority": priority, "device": device,
                                     "deadline_us": deadline_us, "ops": ops, "timed": timed, "prepare": prepare,
                                     "only_prepare": only_prepare}, id=id)

    def submit(self, ops, **options):
        """The receipt."""
        return self.wait(self.start_submit(ops, **options))["receipt"]

    def run(self, prepared, **options):
        """The receipt."""
        return self.call("run", {"prepared": prepared, **options})["receipt"]

    def forget(self, prepared):
        self.call("forget", {"prepared": prepared})

    def open_ring(self, entries=8):
        return Ring(self, self.call("open_ring", {"entries": entries}))

    def cancel(self, job):
        self.call("cancel", {"job": job})

    def describe(self):
        return self.call("describe", {})["description"]

    def stats(self):
        return self.call("stats", {})["statistics"]

    def ping(self):
        return self.call("ping", {})["pong"]

    def pages(self, verb, body, members):
        """All items of a list that comes in pages."""
        items, before = [], 0
        while True:
            page = self.call(verb, {"before": before})[body]
            items += page[members]
            before = page["next"]
            if not before:
                return items

    def list_users(self):
        """uid → user."""
        return {u["uid"]: u for u in self.pages("list_users", "users", "users")}

    def any_running(self):
        return any(d["running"] for d in self.stats()["devices"])

    def list_sessions(self):
        return self.pages("list_sessions", "sessions", "sessions")

    def trace(self):
        return self.pages("trace", "traced_jobs", "jobs")


def punch_hole(fd, offset, size):
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size, punch = 1, 2
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(fd, keep_size | punch, offset, size) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
