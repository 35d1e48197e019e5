"""What may be mapped, what it costs, what is lent, and that memory of one user never shows in another's."""
import fcntl
import mmap
import os
import resource
import select
import socket
import stat
import tempfile
import time

from support import harness, wire
from support.harness import count, floats, unfloats
from support.wire import RESIDENT, view

MFD_HUGETLB = 4


class Import(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.c = self.client()

    def import_refused(self, fd, size=4096, status="FD"):
        why = self.refused(status, self.c.import_fd, fd, size)
        os.close(fd)
        self.c.ping()
        return why.message

    def test_missing_seals(self):
        names = {fcntl.F_SEAL_SHRINK: "F_SEAL_SHRINK", fcntl.F_SEAL_GROW: "F_SEAL_GROW",
                 fcntl.F_SEAL_SEAL: "F_SEAL_SEAL"}
        for seals in range(wire.SEALS + 1):
            if seals & wire.SEALS == wire.SEALS:
                continue
            message = self.import_refused(wire.memfd(4096, seals))
            for bit, name in names.items():
                self.assertEqual(name in message, not seals & bit, message)
            self.assertNotIn(" ;", message)

    def test_too_small(self):
        for size, asked in [(0, 1), (4096, 4097), (100, 101), (4096, 1 << 63), (4096, (1 << 64) - 1)]:
            self.import_refused(wire.memfd(size), asked)
        fd = wire.memfd(100)
        b = self.c.import_fd(fd, 100)
        os.close(fd)
        self.c.submit(wire.add(*[view(b, [25])] * 3))
        self.refused("RANGE", self.c.submit, wire.add(*[view(b, [26])] * 3))

    def test_no_memfd(self):
        pipe_out, pipe_in = os.pipe()
        unix, other = socket.socketpair()
        with tempfile.TemporaryFile() as f:
            f.truncate(8192)
            shm = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
            os.ftruncate(shm, 8192)
            for fd in [pipe_out, pipe_in, os.open("/", os.O_RDONLY | os.O_DIRECTORY), os.open("/dev/zero", os.O_RDWR),
                       os.open("/dev/null", os.O_RDWR), os.open("/proc/self/status", os.O_RDONLY), os.dup(f.fileno()),
                       os.dup(unix.fileno()), os.open("/", os.O_PATH), shm, os.eventfd(0) if hasattr(os, "eventfd")
                       else os.open("/dev/full", os.O_RDWR)]:
                kind = stat.S_IFMT(os.fstat(fd).st_mode)
                with self.subTest(kind=oct(kind)):
                    self.import_refused(fd)
        unix.close()
        other.close()

    def test_the_connection_itself(self):
        """A descriptor of the very session must neither be mapped nor keep the session alive."""
        self.import_refused(os.dup(self.c.sock.fileno()))

    def test_huge_pages(self):
        try:
            fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | MFD_HUGETLB)
            os.ftruncate(fd, 2 << 20)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
        except OSError as e:
            self.skipTest(f"no huge page memfds here: {e}")
        self.import_refused(fd, 2 << 20)

    def test_write_only(self):
        fd = wire.memfd(4096)
        self.import_refused(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY))
        os.close(fd)

    def test_one_memfd_many_times(self):
        fd = wire.memfd(1 << 20)
        buffers = [self.c.import_fd(fd, 1 << 20) for _ in range(100)]
        os.pwrite(fd, floats([3.0]), 0)
        self.c.submit(wire.copy(view(buffers[0], [1]), view(buffers[99], [1], offset=4096)))
        self.assertEqual(unfloats(os.pread(fd, 4, 4096)), [3.0])
        os.close(fd)

    def test_sparse_tebibyte(self):
        """Refused by budget, at once, without touching it."""
        fd = wire.memfd(1 << 40)
        rss = self.daemon.rss_bytes()

        def refusal_s():
            began = time.monotonic()
            self.refused("QUOTA", self.c.import_fd, fd, 1 << 40)
            return time.monotonic() - began
        least = min(refusal_s() for _ in range(20))
        if not harness.QUICK:
            self.assertLess(least, 0.01)
        self.assertLess(abs(self.daemon.rss_bytes() - rss), 1 << 20)
        # A small part of it is fine, and costs what it is.
        held = self.control.stats()["mapped_bytes"]
        self.c.import_fd(fd, 4096)
        self.assertEqual(self.control.stats()["mapped_bytes"], held + 4096)
        os.close(fd)

    def test_holes_hurt_nobody(self):
        fd = wire.memfd(1 << 20)
        b = self.c.import_fd(fd, 1 << 20)
        os.pwrite(fd, floats([1.0] * 1024), 0)
        wire.punch_hole(fd, 0, 1 << 20)
        v = view(b, [1 << 18])
        op = wire.add(v, v, v)
        ids = []
        for _ in range(20):
            ids.append(self.c.start_submit(op))
            wire.punch_hole(fd, 0, 1 << 20)
        for i in ids:
            self.c.wait(i)
        self.control.ping()
        os.close(fd)

    def test_read_only_import_cannot_be_written(self):
        fd = wire.memfd(4096)
        b = self.c.import_fd(fd, 4096, read_only=True)
        self.refused("READONLY", self.c.submit, wire.add(*[view(b, [4])] * 3))
        os.close(fd)


class Lent(harness.DaemonTest):
    settings = {"pool_cache": "64M"}
    leaks_checked = False  # the cache keeps memory on purpose

    def test_lent_memory(self):
        c = self.client()
        for size in [1, 4096, 65536, 65537, 1 << 20, (64 << 20) + 1]:
            r, b = c.start_alloc(size)
            reply = c.wait(r)
            (fd,) = reply["fds"]
            self.assertEqual(reply["lent"]["bytes"], size)
            self.assertGreaterEqual(os.fstat(fd).st_size, size)
            self.assertEqual(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & wire.SEALS, wire.SEALS)
            with self.assertRaises(OSError):
                os.ftruncate(fd, 0)
            with mmap.mmap(fd, os.fstat(fd).st_size) as m:
                self.assertEqual(m[:].count(0), len(m))
            os.close(fd)
            c.drop(b)

    def test_reuse_is_zeroed(self):
        """The whole segment, the part beyond the size asked for included."""
        for round_ in range(count(200, 30)):
            c = self.client()
            size = self.random.choice([100, 70000, 1 << 20])
            r, b = c.start_alloc(size)
            (fd,) = c.wait(r)["fds"]
            m = mmap.mmap(fd, os.fstat(fd).st_size)
            os.close(fd)
            self.assertEqual(m[:].count(0), len(m), f"round {round_}")
            m[:] = b"\xa5" * len(m)
            m.close()
            if self.random.random() < 0.5:
                c.drop(b)
            c.close()
            self.clients.remove(c)
            if self.random.random() < 0.3:
                harness.eventually(lambda: self.control.stats()["buffers"] == 0)

    def test_a_lent_descriptor_can_be_imported(self):
        """What libkops does after a restart."""
        c, d = self.client(), self.client()
        r, b = c.start_alloc(4096)
        (fd,) = c.wait(r)["fds"]
        mine = mmap.mmap(fd, 4096)
        again = d.import_fd(fd, 4096)
        os.close(fd)
        mine[:8] = floats([2.0, 3.0])
        d.submit(wire.add(view(again, [1]), view(again, [1], offset=4), view(again, [1], offset=8)))
        self.assertEqual(unfloats(mine[8:12]), [5.0])

    def test_cache_is_bounded_and_reloads(self):
        c = self.client()
        buffers = [c.start_alloc(8 << 20) for _ in range(20)]
        for r, b in buffers:
            os.close(c.wait(r)["fds"][0])
        self.assertGreaterEqual(self.control.stats()["pool_bytes"], 160 << 20)
        for _, b in buffers:
            c.drop(b)
        self.assertTrue(harness.eventually(lambda: self.control.stats()["pool_bytes"] <= 64 << 20))
        self.assertGreater(self.control.stats()["pool_bytes"], 0)
        self.daemon.reload(pool_cache=0)
        try:
            self.assertTrue(harness.eventually(lambda: self.control.stats()["pool_bytes"] == 0))
            self.assertTrue(harness.eventually(lambda: self.daemon.maps() == 0))
        finally:
            self.daemon.reload(pool_cache="64M")


class Overcommit(harness.DaemonTest):
    """The quota of a user may be more than the machine has."""

    settings = {"max_mapped_per_uid": "16T", "max_mapped": "16T"}

    def test_more_than_the_host_can_spare(self):
        """Refused before a page is taken: the kernel would take all and then kill somebody."""
        with open("/proc/meminfo", encoding="ascii") as f:
            free = {line.split()[0]: int(line.split()[1]) << 10 for line in f}
        for size in (free["MemAvailable:"], free["MemTotal:"] * 2, 1 << 43):
            self.refused("NOMEM", lambda: self.control.wait(self.control.start_alloc(size)[0]))
        self.control.ping()


class Making(harness.DaemonTest):
    """Memory that is being made keeps nobody from his jobs, and what nobody waits for any more is not finished."""

    def test_a_large_resident_buffer_delays_no_job(self):
        """It was zeroed on the device's own thread: 4 GiB kept it for seconds."""
        large = self.client()
        size = harness.count(2 << 30, 1 << 29)
        request, _ = large.start_alloc(size, wire.RESIDENT)
        b = self.control.import_new(4096)
        op = wire.add(*[view(b, [16])] * 3)
        jobs = 0
        while not select.select([large.sock], [], [], 0)[0]:
            self.control.submit(op)
            jobs += 1
        large.wait(request)
        self.control.drop(b)
        self.assertGreater(jobs, 20)

    def made_for_a_dead_session_s(self, size):
        """CPU time of the daemon for eight requests whose client has gone."""
        c = self.client()
        before = self.daemon.cpu_s()
        for kind in (wire.RESIDENT, wire.SHARED):
            for _ in range(4):
                c.start_alloc(size, kind)
        c.stats()
        c.close()
        self.clients.remove(c)
        self.assertTrue(harness.eventually(lambda: self.control.stats()["buffers"] == 0))
        return self.daemon.cpu_s() - before

    def test_requests_of_a_dead_session_are_dropped(self):
        size = harness.count(1 << 30, 1 << 27)
        before = self.daemon.cpu_s()
        request, buffer = self.control.start_alloc(size, wire.RESIDENT)
        self.control.wait(request)
        self.control.drop(buffer)
        one = self.daemon.cpu_s() - before
        least = min(self.made_for_a_dead_session_s(size) for _ in range(3))
        if not harness.QUICK:
            self.assertLess(least, 4 * one + 0.1, "all eight were made first")


class WarmPool(harness.DaemonTest):
    settings = {"warm_pool": "8M"}
    leaks_checked = False

    def test_warm_memory_is_ready(self):
        # Classes of 64 KiB, 128 KiB, … with four segments each while they fit in 8 MiB: up to 1 MiB.
        want = 4 * sum(64 << 10 << c for c in range(4))
        self.assertTrue(harness.eventually(lambda: self.control.stats()["pool_bytes"] >= want))
        c = self.client()
        r, _ = c.start_alloc(100 << 10)
        (fd,) = c.wait(r)["fds"]
        self.assertEqual(os.fstat(fd).st_size, 128 << 10)
        self.assertEqual(os.fstat(fd).st_blocks * 512, 128 << 10, "its pages are there already")
        os.close(fd)


class Limits(harness.DaemonTest):
    """At each limit, and one beyond."""

    settings = {"max_mapped": "8M", "max_resident_per_uid": "1M", "max_sessions_per_uid": 10, "max_jobs_per_uid": 5}

    def test_max_mapped(self):
        c = self.client()
        fd = wire.memfd(16 << 20)
        self.refused("QUOTA", c.import_fd, fd, (8 << 20) + 1)
        b = c.import_fd(fd, 8 << 20)
        why = self.refused("QUOTA", c.import_fd, fd, 1)
        self.assertIn("max-mapped", why.message)
        c.drop(b)
        # Large memory is unmapped by a worker. What it costs is back when Drop is answered.
        self.assertEqual(self.control.stats()["mapped_bytes"], 0)
        for _ in range(8):
            c.import_fd(fd, 1 << 20)
        self.refused("QUOTA", c.import_fd, fd, 1)
        os.close(fd)

    def test_max_resident(self):
        c = self.client()
        self.refused("QUOTA", c.resident, (1 << 20) + 1)
        b = c.resident(1 << 20)
        why = self.refused("QUOTA", c.resident, 1)
        self.assertIn("max-resident-per-uid", why.message)
        c.drop(b)
        c.resident(1 << 20)

    def test_max_sessions_per_uid(self):
        got = [self.client() for _ in range(9)]
        refused = self.client(hello=False)
        reply = refused.receive()
        self.assertEqual((reply["id"], wire.STATUS_NAME[reply["status"]]), (0, "QUOTA"))
        self.assertEqual(reply["message"], f"uid {os.getuid()} has 10 sessions, and max-sessions-per-uid is 10; close one, "
                                           "or have the limit raised")
        self.assert_ended(refused)
        got[0].ping()

    def test_max_jobs_per_uid(self):
        c, d = self.client(), self.client()
        op, other = self.slow_op(c, 100), self.slow_op(d, 100)
        ids = [c.start_submit(op) for _ in range(3)]
        c.stats()  # what c sent has been read before d's is
        more = [d.start_submit(other) for _ in range(2)]
        for session in (c, d):
            session.stats()  # sessions are not served in the order in which they send; now all five are in flight
        why = self.refused("BUSY", d.submit, other)
        self.assertIn("max-jobs-per-uid", why.message)
        self.refused("BUSY", c.submit, op)
        for i in ids:
            c.wait(i)
        for i in more:
            d.wait(i)
        c.submit(op)


class ManyMaps(harness.DaemonTest):
    """One process has 65530 mappings at most (vm.max_map_count): users must not take them all."""

    settings = {"max_buffers": 65536, "max_buffers_per_uid": 1 << 20}

    def import_until_refused(self, c):
        """(how many were accepted, the first refusal)"""
        fd = wire.memfd(4096)
        accepted = 0
        try:
            while True:
                ids = [c.start_import(fd, 4096)[0] for _ in range(100)]
                replies = [c.wait_any(i) for i in ids]
                accepted += sum(r["status"] == 0 for r in replies)
                refused = [r for r in replies if r["status"]]
                if refused:
                    return accepted, refused[0]
        finally:
            os.close(fd)

    def test_buffers_of_all_users(self):
        with open("/proc/sys/vm/max_map_count", encoding="ascii") as f:
            limit = int(f.read())
        if harness.QUICK or limit > 100000:
            self.skipTest(f"{limit} mappings are too many to try here")
        limit = min(limit, resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)[0])
        accepted, refusal = self.import_until_refused(self.client())
        most = limit // 2  # of all users; one leaves as many as it has
        self.assertEqual((accepted, wire.STATUS_NAME[refusal["status"]]), ((most + 1) // 2, "QUOTA"))
        self.assertIn("vm.max_map_count", refusal["message"])
        self.control.ping()

    def test_buffers_of_one_user(self):
        self.daemon.reload(max_buffers_per_uid=150)
        try:
            accepted, refusal = self.import_until_refused(self.client())
            self.assertEqual((accepted, wire.STATUS_NAME[refusal["status"]]), (150, "QUOTA"))
            self.assertIn("max-buffers-per-uid", refusal["message"])
        finally:
            self.daemon.reload(max_buffers_per_uid=1 << 20)


if __name__ == "__main__":
    harness.main()
