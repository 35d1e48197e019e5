"""No turn of the loop grows with what a user has: what the loop does between two looks at its sockets is counted, not
timed, so a busy machine changes nothing."""
import mmap
import os
import resource
import struct
import tempfile
import unittest

from support import harness, wire
from support.wire import view

COUNT_CALLS = os.environ.get("KOPS_TEST_COUNT_CALLS", "")
KINDS = ("free", "munmap", "close", "fcntl", "fstat", "getsockopt", "send")  # of support/count_calls.c
MANY = 2000  # of whatever a user has
FEW = 250    # what one user alone may have done in 25 us and a turn
FILES = 8192


class LoopTest(harness.DaemonTest):
    """The most of each kind that the loop did between two looks."""

    @classmethod
    def setUpClass(cls):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits[1] != resource.RLIM_INFINITY and limits[1] < FILES:
            raise unittest.SkipTest(f"needs {FILES} descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, limits[1]))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        file = tempfile.NamedTemporaryFile()
        cls.addClassCleanup(file.close)
        file.truncate(8 * len(KINDS))
        cls.counts = mmap.mmap(file.fileno(), 8 * len(KINDS))
        os.environ.update(LD_PRELOAD=COUNT_CALLS, COUNT_CALLS=file.name)
        try:
            super().setUpClass()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["COUNT_CALLS"]
        assert harness.eventually(lambda: cls.most()["send"] > 0), "nothing counts"

    @classmethod
    def most(cls):
        return dict(zip(KINDS, struct.unpack(f"<{len(KINDS)}Q", cls.counts)))

    def count(self):
        """From now on."""
        self.control.ping()  # what came before was done before
        self.counts[:] = bytes(len(self.counts))

    def assert_few(self):
        self.control.ping()
        for kind, n in self.most().items():
            self.assertLessEqual(n, FEW, f"{kind} between two looks at sockets; {self.most()}")

    def close(self, client):
        self.clients.remove(client)
        client.close()

    def await_buffers(self, n):
        self.assertTrue(harness.eventually(lambda: self.control.stats()["buffers"] == n))


@unittest.skipIf(not COUNT_CALLS, "a sanitizer has calls of its own")
class Ends(LoopTest):
    """Sessions and buffers that go."""

    settings = {"max_buffers": MANY}

    def import_many(self, c):
        fd = wire.memfd(4096)
        buffers = [c.import_fd(fd, 4096) for _ in range(MANY)]
        os.close(fd)
        return buffers

    def prepare_many(self, c):
        """All of one buffer, which is returned."""
        b = c.import_new(4096)
        op = wire.copy(view(b, [16]), view(b, [16], offset=1024))
        for i in range(MANY):
            c.wait(c.start_submit(op, prepare=i + 1))
        return b

    def test_a_session_with_many_buffers(self):
        c = self.client()
        self.import_many(c)
        self.count()
        self.close(c)
        self.await_buffers(0)
        self.assert_few()
        self.assertEqual(self.most()["munmap"], 0)  # that is for other threads

    def test_many_drops(self):
        c = self.client()
        buffers = self.import_many(c)
        self.count()
        for some in (buffers[i:i + 100] for i in range(0, MANY, 100)):
            for r in [c.start("drop", {"buffer": b}) for b in some]:
                c.wait(r)
        self.assertEqual(self.control.stats()["buffers"], 0)
        self.assert_few()
        self.assertEqual(self.most()["munmap"], 0)

    def test_a_session_with_many_prepared_jobs(self):
        c = self.client()
        self.prepare_many(c)
        self.count()
        self.close(c)
        self.await_buffers(0)
        self.assert_few()

    def test_a_buffer_of_many_prepared_jobs(self):
        """It is gone at once for those who run them, and when its Drop is answered for all."""
        c = self.client()
        b = self.prepare_many(c)
        self.count()
        drop = c.start("drop", {"buffer": b})
        self.assertEqual(self.refused("NOT_FOUND", c.run, MANY).name, "NOT_FOUND")
        c.wait(drop)
        self.assertEqual(self.control.stats()["buffers"], 0)
        self.assert_few()

    def test_a_session_with_many_jobs(self):
        c, ids = self.occupy(200)
        other = self.client()
        b = other.import_new(4096)
        op = wire.copy(view(b, [16]), view(b, [16], offset=1024))
        for _ in range(other.welcome["max_jobs"]):
            other.start_submit(op)
        other.stats()
        self.count()
        self.close(other)
        for i in ids:
            c.wait(i)
        self.await_buffers(2)
        self.assert_few()

    def test_the_next_session_finds_room(self):
        """What the last one had is given back before requests of the next are read."""
        for _ in range(3):
            c = self.client()
            jobs = [self.prepare_many(c)]
            self.close(c)
            c = self.client()
            self.assertEqual(self.control.list_users()[0]["prepared_bytes"], 0, jobs)
            self.close(c)
        self.await_buffers(0)


@unittest.skipIf(not COUNT_CALLS, "a sanitizer has calls of its own")
class Kept(LoopTest):
    """Memory that a client has beyond its sessions."""

    BYTES = 64 << 10
    settings = {"max_buffers": MANY, "max_mapped_per_uid": BYTES * (MANY + 1)}

    def keep_many(self):
        """Descriptors of segments whose session has gone."""
        c = self.client()
        fds = [c.wait(c.start_alloc(self.BYTES)[0])["fds"][0] for _ in range(MANY)]
        self.close(c)
        return fds

    def drop_all(self, fds):
        for fd in fds:
            os.close(fd)
        self.client()  # its end has the daemon look
        self.close(self.clients[-1])
        self.await_buffers(0)

    def test_looks(self):
        fds = self.keep_many()
        self.count()
        c = self.client()
        self.refused("QUOTA", c.lend, self.BYTES * 2)
        for _ in range(3):
            self.close(self.client())
        c.import_new(4096)
        c.import_fd(fds[MANY // 2], self.BYTES)
        self.close(c)
        self.await_buffers(MANY)
        self.assert_few()
        self.count()
        self.drop_all(fds)
        self.assert_few()

    def test_what_nobody_has_makes_room(self):
        """Before the timer has looked: a request that finds no room looks itself, for Alloc and Import."""
        fds = self.keep_many()
        self.assertTrue(harness.eventually(lambda: self.daemon.maps() == 0))
        c = self.client()
        for fd in fds:
            os.close(fd)
        self.count()
        c.lend(self.BYTES * MANY // 4)
        c.import_new(self.BYTES * MANY // 2)
        self.assert_few()
        self.close(c)
        self.await_buffers(0)

    def test_kept_memory_comes_back(self):
        """At the user's limit: it counts once."""
        fds = self.keep_many()
        c = self.client()
        self.await_buffers(MANY)
        os.pwrite(fds[7], b"content", 0)
        self.count()
        buffers = [c.import_fd(fd, self.BYTES) for fd in fds]
        self.assertEqual(self.control.stats()["mapped_bytes"], self.BYTES * MANY)
        c.submit(wire.copy(view(buffers[7], [2]), view(buffers[8], [2])))
        self.assertEqual(os.pread(fds[8], 7, 0), b"content")
        self.assert_few()
        for b in buffers:
            c.drop(b)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    harness.main()
