"""What a client that is clumsy, or worse, must not do to others; and what must outlive a stop of the daemon."""
import mmap
import os
import signal
import subprocess
import time
import unittest

from support import harness, wire
from support.harness import eventually
from support.wire import F64, view

PATTERN = b"\x5a\xa5" * 2048


class LentMemory(unittest.TestCase):
    """A client that has not given lent memory back still holds its content: it may come again with it."""

    def setUp(self):
        self.daemon = harness.Daemon(pool_cache="64M").start()
        self.addCleanup(self.daemon.remove)

    def lend_and_fill(self, c):
        r, buffer = c.start_alloc(len(PATTERN))
        (fd,) = c.wait(r)["fds"]
        self.addCleanup(os.close, fd)
        os.pwrite(fd, PATTERN, 0)
        return buffer, fd

    def test_a_stop_leaves_its_content(self):
        with self.daemon.connect() as c:
            _, fd = self.lend_and_fill(c)
            self.assertEqual(self.daemon.stop(), 0)
            self.assertEqual(os.pread(fd, len(PATTERN), 0), PATTERN)

    def test_the_end_of_a_session_leaves_its_content(self):
        c = self.daemon.connect()
        _, fd = self.lend_and_fill(c)
        c.close()
        with self.daemon.connect() as again:
            self.assertTrue(eventually(lambda: again.stats()["sessions"] == 1))
            time.sleep(0.1)
            self.assertEqual(os.pread(fd, len(PATTERN), 0), PATTERN)
            self.assertEqual(again.stats()["mapped_bytes"], 65536, "what somebody has counts")
            # It is that very memory, not more of it, when its user comes again with it.
            buffer = again.import_fd(fd, len(PATTERN))
            self.assertEqual(again.stats()["mapped_bytes"], 65536)
            again.submit(wire.copy(view(buffer, [64], dtype=F64), view(buffer, [64], dtype=F64, offset=2048)))
            self.assertEqual(os.pread(fd, len(PATTERN), 0), PATTERN)

    def test_kept_memory_counts_until_nobody_has_it(self):
        """Allocating, keeping the descriptor and hanging up, again and again, does not get round the limit."""
        daemon = harness.Daemon(max_mapped_per_uid="64M").start()
        self.addCleanup(daemon.remove)
        kept = []
        for _ in range(4):
            with daemon.connect() as c:
                kept.append(c.wait(c.start_alloc(16 << 20)[0])["fds"][0])
        with daemon.connect() as c:
            self.assertEqual(c.stats()["mapped_bytes"], 64 << 20)
            with self.assertRaises(wire.Refused) as caught:
                c.wait(c.start_alloc(1 << 20)[0])
            self.assertEqual(caught.exception.name, "QUOTA")
            mapping = mmap.mmap(kept[0], 16 << 20)
            for fd in kept[:2]:
                os.close(fd)
            # The second is free at once, the first still mapped.
            c.lend(16 << 20)
            with self.assertRaises(wire.Refused):
                c.wait(c.start_alloc(1 << 20)[0])
            mapping.close()
            c.lend(16 << 20)
        for fd in kept[2:]:
            os.close(fd)
        with daemon.connect() as c:
            self.assertTrue(eventually(lambda: c.stats()["mapped_bytes"] == 0))
            self.assertTrue(eventually(lambda: c.stats()["pool_bytes"] == 0))

    def test_what_was_given_back_is_kept_for_the_user(self):
        with self.daemon.connect() as c:
            buffer, fd = self.lend_and_fill(c)
            c.drop(buffer)
            self.assertTrue(eventually(lambda: os.pread(fd, len(PATTERN), 0) == bytes(len(PATTERN))))
            self.assertGreater(c.stats()["pool_bytes"], 0)


    def test_what_is_given_back_in_the_last_breath_is_kept_too(self):
        """The kernel reports a client that closed with replies unread as an error, ahead of what it had sent."""
        c = self.daemon.connect()
        buffers = [self.lend_and_fill(c)[0] for _ in range(3)]
        c.start("stats", {})
        time.sleep(0.1)  # its reply stays unread
        self.daemon.signal(signal.SIGSTOP)
        for b in buffers:
            c.start("drop", {"buffer": b})
        c.close()
        self.daemon.signal(signal.SIGCONT)
        with self.daemon.connect() as control:
            self.assertTrue(eventually(lambda: control.stats()["sessions"] == 1))
            self.assertEqual(control.stats()["pool_bytes"], 3 * 65536)

    def test_closing_a_handle_gives_lent_memory_back(self):
        """So that the next command of the same user finds it warm."""
        path = os.path.join(self.daemon.folder, "x.bin")
        with open(path, "wb") as f:
            f.write(harness.floats([0.5] * 1024))
        with self.daemon.connect() as control:
            for _ in range(3):
                subprocess.run([harness.KOPS_CLIENT, "--socket", self.daemon.socket, "softmax", "-n", "32", path, "-o",
                                path + ".out"], check=True, capture_output=True)
                self.assertTrue(eventually(lambda: control.stats()["sessions"] == 1))
                self.assertTrue(eventually(lambda: control.stats()["buffers"] == 0))
                self.assertEqual(control.stats()["pool_bytes"], 2 * 65536)


class Planned(harness.DaemonTest):
    settings = {"max_run_time": "1s"}

    def test_a_slow_kernel_is_planned_as_slow(self):
        c = self.client()
        a, y = c.import_new(4096), c.import_new(4 << 20)

        def product(kernel):
            return wire.gemm(view(a, [1024, 1024], [0, 0]), view(a, [1024, 1024], [0, 0]), view(y, [1024, 1024]),
                             kernel=kernel)

        c.submit(product("openblas"))
        self.assertIn("max-run-time", self.refused("QUOTA", c.submit, product("reference")).message)


class Jobs(harness.DaemonTest):
    settings = {"drain_timeout": "200ms"}

    def product(self, c, kernel=""):
        """Extents cost nothing where strides are 0."""
        a, y = c.import_new(4096), c.import_new(4096)
        k = 1 << 50
        return wire.gemm(view(a, [16, k], [0, 0]), view(a, [k, 16], [0, 0]), view(y, [16, 16]), kernel=kernel)

    def endless(self, c):
        """Ops that take hours, or years."""
        return self.product(c, "reference"), wire.long_sum(c.import_new(4096), c.import_new(4096), 1 << 50)

    def test_equal_terms_are_one(self):
        """OpenBLAS would go through K: its kernel does not, and its plan says so."""
        c = self.client()
        c.submit(self.product(c, "openblas"))

    def test_a_job_without_end_is_refused(self):
        c = self.client()
        for op in self.endless(c):
            why = self.refused("QUOTA", c.submit, op)
            self.assertRegex(why.message, "max-run-time|max-hold")
        many = [self.slow_op(c, 1)] * 8
        c.submit(many)
        with self.daemon.connect() as other:
            other.sock.settimeout(harness.PATIENCE_S)
            self.assertEqual(other.stats()["devices"][0]["queued"], 0)
            other.submit(self.slow_op(other, 1))

    def test_a_job_beyond_both_limits_of_time_is_told_the_last(self):
        """It is beyond max-hold too, but a larger one would not help."""
        c = self.client()
        b = c.import_new(4096)
        sums = wire.reduce(view(b, [1, (1 << 63) - 1], [0, 0]), view(b, [1], offset=64))
        for kernel in ("", "reference"):
            why = self.refused("QUOTA", c.submit, {"kernel": kernel, **sums})
            self.assertRegex(why.message, r"^the job's estimated run time of .* exceeds the limit of .* "
                                          r"\(max-run-time\); split the job$")

    def test_a_job_that_is_not_representable_is_refused(self):
        """The f64 workspace of these operands is 2^33 - 8 bytes modulo 2^64."""
        c = self.client()
        m, k = (1 << 30) + 1, (1 << 31) - 1
        buffers = []
        for elements in (m, k):
            fd = wire.memfd(8 * elements)  # sparse
            buffers.append(c.import_fd(fd, 8 * elements))
            os.close(fd)
        y, a = buffers
        with self.assertRaises(wire.Refused):
            c.submit(wire.gemm(view(a, [m, k], [0, 1], F64), view(a, [k, 1], [0, 0], F64), view(y, [m, 1], dtype=F64)))
        c.ping()


class Unread(harness.DaemonTest):
    settings = {"max_unread_per_uid": "64K"}

    def test_unread_receipts_are_bounded(self):
        """Receipts of 64 ops for hundreds of jobs, of which none is read: the session ends, others go on."""
        c = self.client()
        a = c.import_new(4096)
        ops = [wire.add(*[view(a, [4])] * 3)] * 64
        rounds = 250
        for _ in range(2):  # until all are in flight: with those that end before, neither side would go on
            c.start_submit(self.slow_op(c, 2000 if harness.QUICK else 500))
        try:
            for _ in range(rounds):
                c.start_submit(ops)
        except wire.Ended:
            pass  # already, where the slow jobs were over early
        self.assertTrue(eventually(lambda: self.control.stats()["sessions"] == 1))
        replies = 0
        with self.assertRaises(wire.Ended):
            while True:
                c.receive()
                replies += 1
        self.assertLess(replies, rounds)
        again = self.client()
        again.submit([wire.copy(view(again.import_new(64), [1]), view(again.import_new(64), [1]))])


class Sentences(harness.DaemonTest):
    def test_replies_are_text_whatever_the_request_held(self):
        """A name cut in the midst of a character must not make the reply one that clients cannot decode."""
        c = self.client()
        a = c.import_new(64)
        for shift in range(4):
            name = "x" * shift + "\U0001f600" * 40
            op = wire.add(*[view(a, [4])] * 3)
            self.assertIn("no device", self.refused("DEVICE", c.submit, op, device=name).message)
            pinned = wire.gemm(*[view(a, [1, 1], offset=4 * i) for i in range(3)], kernel=name)
            self.assertIn("no kernel", self.refused("UNSUPPORTED", c.submit, pinned).message)


if __name__ == "__main__":
    harness.main()
