"""Published buffers: who may attach them, that nobody writes them, whose they count as, and how long they live."""
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.harness import eventually  # noqa: E402
from support.wire import view  # noqa: E402

ALICE, BOB, CAROL = 61001, 61002, 61003
LAB = 61101
NOBODY = 65534  # also what the kernel says of uids that kopsd's user namespace lacks
PAGE = 4096
PR_SET_DUMPABLE = 4
F_SEAL_FUTURE_WRITE = 0x10
READONLY_SENTENCE = "so no op may write it"


def try_to_write(fd):
    """What each way to change the memory of this descriptor says, in a process of Bob's."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(BOB, BOB, BOB)
        os.setresuid(BOB, BOB, BOB)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # else /proc/self is root's
        ways = (lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR), lambda: os.open(f"/proc/self/fd/{fd}", os.O_WRONLY),
                lambda: mmap.mmap(fd, PAGE), lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0),
                lambda: os.fchmod(fd, 0o777))
        os.write(into, "|".join(map(said, ways)).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        answer = f.read().split("|")
    os.waitpid(pid, 0)
    return answer


def said(way):
    try:
        way()
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]


@contextlib.contextmanager
def user(uid, groups=()):
    """Connections made within are this user's: the kernel notes who connects."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


class Names(harness.DaemonTest):
    open_socket = True
    settings = {"max_buffers": 8, "max_buffers_per_uid": 40, "max_published_per_uid": 12}

    def session(self, uid, groups=()):
        with user(uid, groups):
            return self.client()

    def sentence(self, status, action, *args, **how):
        """Of a refusal with this status."""
        return self.refused(status, action, *args, **how).message

    def fill(self, c, kind=wire.RESIDENT, numbers=(1.0, 2.0, 3.0, 4.0)):
        """A buffer with these numbers in f32."""
        size = 4 * len(numbers)
        lent = c.lend(size)
        c.maps[lent][:size] = struct.pack(f"{len(numbers)}f", *numbers)
        if kind == wire.SHARED:
            return lent
        resident = c.resident(size, "cpu")
        c.submit(wire.copy(view(lent, [len(numbers)]), view(resident, [len(numbers)])))
        c.drop(lent)
        return resident

    def read(self, c, buffer, n=4):
        out = c.lend(4 * n)
        c.submit(wire.copy(view(buffer, [n]), view(out, [n])))
        numbers = struct.unpack(f"{n}f", c.maps[out][:4 * n])
        c.drop(out)
        return numbers

    def buffers_of(self, uid):
        return self.control.list_users().get(uid, {"buffers": 0})["buffers"]

    def await_buffers(self, uid, n):
        self.assertTrue(eventually(lambda: self.buffers_of(uid) == n), self.buffers_of(uid))


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Use(Names):
    def test_a_resident_buffer_is_used_by_another_user(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(alice)
        alice.publish(buffer, "model/w", access=wire.EVERYBODY, dtype=wire.F32, shape=[2, 2])
        attached, told = bob.attach(ALICE, "model/w")
        self.assertEqual((told["bytes"], told["kind"], told["device"], told["dtype"], told["shape"]),
                         (16, wire.RESIDENT, "cpu", wire.F32, [2, 2]))
        self.assertEqual(self.read(bob, attached), (1, 2, 3, 4))
        out = bob.lend(16)
        bob.submit(wire.gemm(view(attached, [2, 2]), view(attached, [2, 2]), view(out, [2, 2])))
        self.assertEqual(struct.unpack("4f", bob.maps[out][:16]), (7, 10, 15, 22))
        self.assertEqual(self.read(alice, buffer), (1, 2, 3, 4))

    def test_a_shared_buffer_is_mapped_for_reading_only(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(alice, wire.SHARED)
        alice.publish(buffer, "w", access=wire.EVERYBODY)
        reply = bob.call("attach", {"buffer": 5, "user": ALICE, "name": "w"})
        (fd,) = reply["fds"]
        self.assertEqual(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, os.O_RDONLY)
        with mmap.mmap(fd, 4, prot=mmap.PROT_READ) as m:
            self.assertEqual(m[:], struct.pack("f", 1))
        self.assertEqual(try_to_write(fd), ["EACCES", "EACCES", "EACCES", "EBADF", "EINVAL", "EPERM"])
        os.close(fd)
        other = wire.memfd(PAGE)  # one that nobody guards
        self.assertEqual(try_to_write(other)[:2], ["done", "done"])
        os.close(other)
        self.assertEqual(self.read(bob, 5), (1, 2, 3, 4))

    def test_lent_memory_that_was_published_is_not_lent_again(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        self.daemon.reload(pool_cache="32M")
        buffer = self.fill(alice, wire.SHARED)
        alice.publish(buffer, "w", access=wire.EVERYBODY)
        attached, _ = bob.attach(ALICE, "w")
        spy = bob.maps[attached]
        alice.unpublish(ALICE, "w")
        alice.drop(buffer)
        self.assertEqual(spy[:4], struct.pack("f", 1))  # alive while Bob has it
        bob.call("drop", {"buffer": attached})
        self.await_buffers(ALICE, 0)
        for _ in range(4):
            other = alice.lend(16)
            alice.maps[other][:6] = b"secret"
        self.assertEqual(spy[:16], bytes(16))
        self.daemon.reload(pool_cache=0)

    def test_imported_memory(self):
        """It can be published if nobody can open it for writing."""
        alice, bob = self.session(ALICE), self.session(BOB)
        fd = wire.memfd(PAGE)
        self.addCleanup(os.close, fd)
        os.pwrite(fd, struct.pack("f", 7), 0)
        alice.publish(alice.import_fd(fd, PAGE), "w", access=wire.EVERYBODY)
        self.assertEqual(os.fstat(fd).st_mode & 0o777, 0o600)
        self.assertEqual(self.read(bob, bob.attach(ALICE, "w")[0], 1), (7,))
        sealed = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, sealed)
        os.ftruncate(sealed, PAGE)
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, wire.SEALS | fcntl.F_SEAL_WRITE)
        alice.publish(alice.import_fd(sealed, PAGE), "sealed", access=wire.EVERYBODY)
        self.assertEqual(self.read(bob, bob.attach(ALICE, "sealed")[0], 1), (0,))

    def test_who_may_attach(self):
        alice, alice_again = self.session(ALICE), self.session(ALICE)
        bob, colleague = self.session(BOB), self.session(CAROL, [LAB])
        buffer = self.fill(alice)
        alice.publish(buffer, "own")
        alice.publish(buffer, "lab", access=wire.GROUP, group=LAB)
        alice.publish(buffer, "all", access=wire.EVERYBODY)
        for c, names in ((alice, "own lab all"), (alice_again, "own lab all"), (self.control, "own lab all"),
                         (colleague, "lab all"), (bob, "all")):
            self.assertEqual({name for uid, name in c.list_buffers() if uid == ALICE}, set(names.split()))
            for name in ("own", "lab", "all"):
                if name in names.split():
                    attached, _ = c.attach(ALICE, name)
                    self.assertEqual(self.read(c, attached), (1, 2, 3, 4))
                    c.drop(attached)
                else:
                    message = self.sentence("NOT_FOUND", c.attach, ALICE, name)
                    missing = self.sentence("NOT_FOUND", c.attach, ALICE, "none")
                    self.assertEqual(message.replace(f'"{name}"', '"none"'), missing)
        self.refused("NOT_FOUND", bob.attach, 4242, "all")  # nobody knows this user
        self.refused("NOT_FOUND", bob.attach, BOB, "all")   # a name of another's

    def test_only_its_user_and_root_unpublish(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(alice)
        for name in "ab":
            alice.publish(buffer, name, access=wire.EVERYBODY)
        for c, uid in ((bob, ALICE), (bob, BOB), (alice, BOB)):
            self.refused("NOT_FOUND", c.unpublish, uid, "a")
        self.session(ALICE).unpublish(ALICE, "a")
        self.control.unpublish(ALICE, "b")
        self.assertEqual(alice.list_buffers(), {})
        self.refused("NOT_FOUND", alice.unpublish, ALICE, "a")

    def test_what_a_list_tells(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(alice)
        for i in range(12):
            alice.publish(buffer, f"w{i}", access=wire.EVERYBODY, dtype=wire.F16, shape=[8], keep=i == 3)
        bob.attach(ALICE, "w5")
        seen = bob.list_buffers()
        self.assertEqual([name for _, name in seen], [f"w{i}" for i in reversed(range(12))])
        for c, attached, pid in ((bob, 0, 0), (alice, 1, os.getpid()), (self.control, 1, os.getpid())):
            b = c.list_buffers()[ALICE, "w5"]
            self.assertEqual((b["bytes"], b["kind"], b["device"], b["dtype"], b["shape"], b["access"], b["keep"]),
                             (16, wire.RESIDENT, "cpu", wire.F16, [8], wire.EVERYBODY, 0))
            self.assertEqual((b["attached"], b["pid"]), (attached, pid))
            self.assertEqual(c.list_buffers()[ALICE, "w3"]["keep"], 1)
        self.refused("QUOTA", alice.publish, buffer, "one-more")
        alice.unpublish(ALICE, "w3")
        alice.publish(buffer, "one-more")

    def test_pages(self):
        self.daemon.reload(max_published_per_uid=500)
        self.addCleanup(self.daemon.reload, max_published_per_uid=12)
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(alice)
        for i in range(300):
            alice.publish(buffer, "x" * 250 + str(i), access=wire.EVERYBODY if i % 150 == 7 else wire.OWN_USER,
                          dtype=wire.F32, shape=[1, 1, 1, 1])
        self.assertEqual(len(alice.list_buffers()), 300)
        self.assertEqual([name[250:] for _, name in bob.list_buffers()], ["157", "7"])


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Refusals(Names):
    def test_names(self):
        c = self.session(ALICE)
        buffer = self.fill(c)
        for name in ("a", "A-z_0.9+", "...", "a/b/c", "..a/.b", "x" * 255):
            c.publish(buffer, name)
            c.unpublish(ALICE, name)
        for name in ("", "/", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a b", "a\n", "a:b", "\x1b[31m", "ä", "a*",
                     "%s%n", "x" * 256):
            message = self.sentence("INVALID", c.publish, buffer, name)
            self.assertIn("a name has 1 to 255 characters", message)
            self.assertTrue(message.isprintable())
            self.refused("NOT_FOUND", c.attach, ALICE, name)
            self.refused("NOT_FOUND", c.unpublish, ALICE, name)
        self.assertEqual(c.list_buffers(), {})

    def test_what_cannot_be_published(self):
        c, bob = self.session(ALICE), self.session(BOB)
        buffer = self.fill(c)
        self.refused("NOT_FOUND", c.publish, 99, "a")
        self.refused("INVALID", c.publish, buffer, "a", access=3)
        self.refused("SHAPE", c.publish, buffer, "a", dtype=wire.F32)
        self.refused("SHAPE", c.publish, buffer, "a", shape=[4])
        self.refused("SHAPE", c.publish, buffer, "a", dtype=wire.F32, shape=[1] * 5)
        self.refused("DTYPE", c.publish, buffer, "a", dtype=77, shape=[1])
        for shape in ([5], [1 << 62], [1 << 63, 2], [2, 1 << 63], [1 << 32, 1 << 32]):
            self.refused("RANGE", c.publish, buffer, "a", dtype=wire.F32, shape=shape)
        c.publish(buffer, "empty", dtype=wire.F32, shape=[0, 1 << 40])
        self.refused("EXISTS", c.publish, buffer, "empty")
        lost = c.resident(16, "cpu", lost=True)
        self.refused("LOST", c.publish, lost, "lost")
        c.publish(buffer, "w", access=wire.EVERYBODY)
        attached, _ = bob.attach(ALICE, "w")
        self.refused("INVALID", bob.publish, attached, "w")
        self.refused("EXISTS", bob.attach, ALICE, "w", buffer=attached)
        for size, status in ((15, "LOST"), (17, "LOST"), (16, "OK")):
            reply = bob.wait_any(bob.start("attach", {"buffer": 70, "user": ALICE, "name": "w", "bytes": size}))
            self.assertEqual(wire.STATUS_NAME[reply["status"]], status, reply["message"])
        self.refused("INVALID", bob.attach, ALICE, "w", buffer=0)

    def test_a_uid_that_may_be_several_users(self):
        c = self.session(NOBODY)
        self.assertIn("several users", self.sentence("UNSUPPORTED", c.publish, self.fill(c), "w"))
        alice = self.session(ALICE)
        alice.publish(self.fill(alice), "w", access=wire.GROUP, group=NOBODY)
        self.refused("NOT_FOUND", c.attach, ALICE, "w")

    def test_attachments_count_as_buffers_of_who_attaches(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        alice.publish(self.fill(alice), "w", access=wire.EVERYBODY)
        mine = [bob.attach(ALICE, "w")[0] for _ in range(8)]
        self.assertIn("max-buffers", self.sentence("QUOTA", bob.attach, ALICE, "w"))
        self.assertEqual(self.control.list_users()[BOB]["resident_bytes"], 0)
        self.assertEqual(self.control.list_users()[ALICE]["resident_bytes"], 16)
        for buffer in mine:
            bob.drop(buffer)
        self.await_buffers(BOB, 0)


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Frozen(Names):
    def test_nobody_writes_what_is_published(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        buffer, zeros = self.fill(alice), alice.lend(16)
        write = wire.copy(view(zeros, [4]), view(buffer, [4]))
        alice.publish(buffer, "w", access=wire.EVERYBODY)
        attached, _ = bob.attach(ALICE, "w")
        self.assertIn(READONLY_SENTENCE, self.sentence("READONLY", alice.submit, write))
        mine = bob.lend(16)
        for op in (wire.copy(view(mine, [4]), view(attached, [4])), wire.softmax(view(attached, [4]), view(attached, [4])),
                   wire.copy(view(mine, [1]), view(attached, [1]))):
            self.assertIn("only its publisher may write it", self.sentence("READONLY", bob.submit, op))
        alice.unpublish(ALICE, "w")
        self.assertIn("still attached", self.sentence("READONLY", alice.submit, write))
        self.refused("NOT_FOUND", bob.attach, ALICE, "w")
        self.assertEqual(self.read(bob, attached), (1, 2, 3, 4))
        bob.drop(attached)
        self.assertTrue(eventually(lambda: not self.is_refused(alice, write)))
        self.assertEqual(self.read(alice, buffer), (0, 0, 0, 0))

    @staticmethod
    def is_refused(c, op):
        try:
            c.submit(op)
        except wire.Refused:
            return True
        return False

    def test_prepared_jobs(self):
        alice = self.session(ALICE)
        buffer, zeros = self.fill(alice), alice.lend(16)
        alice.submit(wire.copy(view(zeros, [4]), view(buffer, [4])), prepare=1)
        alice.run(1)
        ring = alice.open_ring()
        alice.publish(buffer, "w")
        self.assertIn(READONLY_SENTENCE, self.sentence("READONLY", alice.run, 1))
        ring.put(1)
        self.assertEqual(wire.STATUS_NAME[ring.wait()["status"]], "READONLY")
        alice.unpublish(ALICE, "w")
        alice.run(1)
        ring.close()

    def test_a_prepared_job_that_reads_an_attachment(self):
        alice, bob = self.session(ALICE), self.session(BOB)
        alice.publish(self.fill(alice), "w", access=wire.EVERYBODY)
        attached, _ = bob.attach(ALICE, "w")
        out = bob.lend(16)
        bob.submit(wire.copy(view(attached, [4]), view(out, [4])), prepare=1)
        bob.maps[out][:16] = bytes(16)
        bob.run(1)
        self.assertEqual(struct.unpack("4f", bob.maps[out][:16]), (1, 2, 3, 4))
        bob.drop(attached)
        self.refused("NOT_FOUND", bob.run, 1)
        self.await_buffers(ALICE, 1)

    def test_queued_jobs_and_jobs_that_run(self):
        alice = self.session(ALICE)
        x, slow, buffer = alice.lend(16), alice.lend(16), self.fill(alice)
        long = alice.start_submit(wire.long_sum(x, slow, 1 << 33))
        self.assertTrue(eventually(self.control.any_running))
        self.assertIn("being written by a job", self.sentence("BUSY", alice.publish, slow, "slow"))
        write = alice.start_submit(wire.copy(view(x, [4]), view(buffer, [4])))
        alice.publish(buffer, "w")
        alice.cancel(long)
        with self.assertRaises(wire.Refused) as e:
            alice.wait(write)
        self.assertEqual(e.exception.name, "READONLY")
        self.assertEqual(self.read(alice, buffer), (1, 2, 3, 4))


@unittest.skipIf(os.geteuid() != 0, "only root can play other users")
class Lifetimes(Names):
    def test_the_publisher_goes(self):
        """Its name goes with it, its memory with the last attachment."""
        for kind in (wire.RESIDENT, wire.SHARED):
            alice, bob = self.session(ALICE), self.session(BOB)
            alice.publish(self.fill(alice, kind), "w", access=wire.EVERYBODY)
            attached, _ = bob.attach(ALICE, "w")
            alice.close()
            self.assertTrue(eventually(lambda: not self.control.list_buffers()))
            self.refused("NOT_FOUND", bob.attach, ALICE, "w")
            self.assertEqual(self.read(bob, attached), (1, 2, 3, 4))
            self.assertEqual(self.buffers_of(ALICE), 1)
            bob.close()
            self.await_buffers(ALICE, 0)

    def test_names_that_are_kept(self):
        for kind in (wire.RESIDENT, wire.SHARED):
            alice = self.session(ALICE)
            alice.publish(self.fill(alice, kind), "w", access=wire.EVERYBODY, keep=True)
            alice.close()
            self.assertTrue(eventually(lambda: ALICE in self.control.list_users() and
                                       self.control.list_users()[ALICE]["sessions"] == 0))
            bob = self.session(BOB)
            attached, _ = bob.attach(ALICE, "w")
            self.assertEqual(self.read(bob, attached), (1, 2, 3, 4))
            with self.session(ALICE) as again:
                again.unpublish(ALICE, "w")
            self.assertEqual(self.read(bob, attached), (1, 2, 3, 4))
            self.assertEqual(self.buffers_of(ALICE), 1)
            bob.close()
            self.await_buffers(ALICE, 0)

    def test_a_drop_of_what_is_published_is_answered_at_once(self):
        """So a publisher can have more buffers published than a session may have."""
        self.daemon.reload(max_published_per_uid=30)
        self.addCleanup(self.daemon.reload, max_published_per_uid=12)
        alice, bob = self.session(ALICE), self.session(BOB)
        for i in range(20):
            buffer = self.fill(alice, numbers=[float(i)] * 4)
            alice.publish(buffer, f"w{i}", access=wire.EVERYBODY)
            alice.drop(buffer)
        for i in (0, 19):
            self.assertEqual(self.read(bob, bob.attach(ALICE, f"w{i}")[0]), (i,) * 4)
        bob.close()
        alice.close()
        self.await_buffers(ALICE, 0)

    def test_attachers_that_die(self):
        alice = self.session(ALICE)
        buffer = self.fill(alice)
        alice.publish(buffer, "w", access=wire.EVERYBODY)
        sessions = [self.session(BOB) for _ in range(5)]
        for c in sessions:
            c.attach(ALICE, "w")
        for c in sessions:
            c.close()
        self.assertTrue(eventually(lambda: alice.list_buffers()[ALICE, "w"]["attached"] == 0))

    def test_a_stop_with_kept_names(self):
        """They do not keep kopsd from ending."""
        daemon = harness.Daemon().start()
        self.addCleanup(daemon.remove)
        with daemon.connect() as c:
            for kind in (wire.RESIDENT, wire.SHARED):
                c.publish(self.fill(c, kind), f"w{kind}", keep=True)
            c.attach(0, "w1")
            c.attach(0, "w0")
        self.assertEqual(daemon.stop(), 0, daemon.log().decode())


@unittest.skipIf(os.geteuid() != 0 or not shutil.which("setpriv"), "only root can play other users, by setpriv")
class AsService(unittest.TestCase):
    """A kopsd with a uid of its own: it cannot set the mode of what clients made."""

    SERVICE = 61900

    def setUp(self):
        self.daemon = harness.Daemon()
        self.addCleanup(self.daemon.remove)
        program = shutil.copy(harness.KOPSD, self.daemon.folder)
        os.chown(self.daemon.folder, self.SERVICE, self.SERVICE)
        self.daemon.start(wrapper=["setpriv", f"--reuid={self.SERVICE}", f"--regid={self.SERVICE}", "--clear-groups",
                                   "/bin/sh", "-c", f'shift; exec {program} "$@"', "sh"])
        os.chmod(self.daemon.socket, 0o666)
        self.clients = []
        for uid in (ALICE, BOB):
            with user(uid):
                self.clients.append(self.daemon.connect())
            self.addCleanup(self.clients[-1].close)

    def memfd(self, mode=0o777, seals=0):
        fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, PAGE)
        os.pwrite(fd, struct.pack("f", 7), 0)
        os.fchmod(fd, mode)
        os.fchown(fd, ALICE, ALICE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS | seals)
        return fd

    def test_memory(self):
        alice, bob = self.clients
        alice.publish(alice.lend(PAGE), "lent", access=wire.EVERYBODY)
        with self.assertRaises(wire.Refused) as e:
            alice.publish(alice.import_fd(self.memfd(), PAGE), "open")
        self.assertEqual(e.exception.name, "FD")
        self.assertIn("F_SEAL_FUTURE_WRITE", e.exception.message)
        alice.publish(alice.import_fd(self.memfd(0o644), PAGE), "0644", access=wire.EVERYBODY)
        alice.publish(alice.import_fd(self.memfd(seals=F_SEAL_FUTURE_WRITE), PAGE), "sealed", access=wire.EVERYBODY)
        for i, name in enumerate(("lent", "0644", "sealed")):
            reply = bob.call("attach", {"buffer": 50 + i, "user": ALICE, "name": name})
            (fd,) = reply["fds"]
            self.assertNotIn("done", try_to_write(fd)[2:], name)
            if name != "sealed":  # which may be opened, but not written
                self.assertEqual(try_to_write(fd)[:2], ["EACCES"] * 2, name)
            os.close(fd)


if __name__ == "__main__":
    harness.main()
