"""A file whose close never ends: of a FUSE file system, served here, that never answers FLUSH.

The wait is uninterruptible, so a process that closes the file is not even killed by SIGKILL. All such waits end when
/dev/fuse is closed, at the latest with the process that made the Mount.
"""
import contextlib
import ctypes
import os
import pickle
import signal
import struct
import tempfile
import traceback
import warnings

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
LOOKUP, FORGET, GETATTR, OPEN, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 18, 25, 26, 36, 42
S_IFDIR, S_IFREG = 0o040000, 0o100000
ENOSYS = 38
FOREVER_S = 1 << 30

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def die_with_parent(parent):
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def attributes(node):
    mode = S_IFDIR | 0o777 if node == 1 else S_IFREG | 0o666
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node):
    """The body of an answer; None: there is none."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 16, 12, 4096, 1, 0, 0, *[0] * 8)
    if opcode == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, FOREVER_S, FOREVER_S, 0, 0) + attributes(2)
    if opcode == GETATTR:
        return struct.pack("<Q2I", FOREVER_S, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<Q2I", 1, 0, 0)
    return b"" if opcode == RELEASE else None


def serve(device):
    while True:
        request = os.read(device, 1 << 17)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode in (FLUSH, FORGET, BATCH_FORGET, INTERRUPT):
            continue  # the first is never answered, the others never are
        body = answer(opcode, node)
        error = -ENOSYS if body is None else 0
        os.write(device, struct.pack("<IiQ", 16 + len(body or b""), error, unique) + (body or b""))


def write_text(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def mount(folder):
    """In a mount namespace of this process, and if need be a user namespace. The open /dev/fuse."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", CLONE_NEWNS | (0 if uid == 0 else CLONE_NEWUSER))
    if uid:
        write_text("/proc/self/setgroups", "deny")
        write_text("/proc/self/uid_map", f"{uid} {uid} 1")
        write_text("/proc/self/gid_map", f"{gid} {gid} 1")
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={gid}" + (",allow_other" if uid == 0 else "")
    call("mount", b"never-closing", folder.encode(), b"fuse", MS_NOSUID | MS_NODEV, options.encode())
    return device


class Mount:
    """OSError where the system allows none."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="kops-never-closing-")
        os.chmod(self.folder, 0o755)
        out, into = os.pipe()
        parent = os.getpid()
        self.server = os.fork()
        if self.server == 0:
            os.close(out)
            self.run_server(parent, into)
        os.close(into)
        self.holders = []
        with os.fdopen(out, "rb") as f:
            why = f.read()
        if why:
            os.waitpid(self.server, 0)
            os.rmdir(self.folder)
            raise OSError(why.decode())

    def run_server(self, parent, into):
        try:
            die_with_parent(parent)
            device = mount(self.folder)
        except BaseException as e:
            os.write(into, str(e).encode())
            os._exit(1)
        os.close(into)
        with contextlib.suppress(OSError):
            serve(device)
        os._exit(0)

    def enter(self):
        """This process sees the file from now on."""
        for name, flag in (("user", CLONE_NEWUSER), ("mnt", CLONE_NEWNS)):
            if name == "user" and os.getuid() == 0:
                continue
            fd = os.open(f"/proc/{self.server}/ns/{name}", os.O_RDONLY)
            call("setns", fd, flag)
            os.close(fd)

    def start(self, action, uid=None):
        """Starts action(fd of the file) in a child with that uid, which holds the file until the end. A handle for result()."""
        out, into = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            warnings.simplefilter("ignore")
            os.close(out)
            try:
                die_with_parent(parent)
                self.enter()
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of uid takes it off
                done = (True, action(os.open(os.path.join(self.folder, "file"), os.O_RDWR)))
            except BaseException:
                done = (False, traceback.format_exc())
            os.write(into, pickle.dumps(done))
            os.close(into)
            while True:
                signal.pause()
        os.close(into)
        self.holders.append(pid)
        return out

    def result(self, out):
        with os.fdopen(out, "rb") as f:
            ok, value = pickle.loads(f.read())
        if not ok:
            raise AssertionError(value)
        return value

    def hold(self, action, uid=None):
        return self.result(self.start(action, uid))

    def release(self):
        """All closes end."""
        if self.server:
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)
            self.server = None

    def close(self):
        self.release()
        for pid in self.holders:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.holders = []
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)
