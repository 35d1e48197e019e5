"""What a client that is clumsy, or worse, must not do to others; and what must outlive a stop of the daemon."""
import os
import signal
import time
import unittest

import harness
import wire
from harness import eventually
from wire import F64, view

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
            self.assertTrue(eventually(lambda: again.stats()["pool_bytes"] == 0))
            self.assertEqual(os.pread(fd, len(PATTERN), 0), PATTERN)

    def test_what_was_given_back_is_kept_for_the_user(self):
        with self.daemon.connect() as c:
            buffer, fd = self.lend_and_fill(c)
            c.drop(buffer)
            self.assertTrue(eventually(lambda: os.pread(fd, len(PATTERN), 0) == bytes(len(PATTERN))))
            self.assertGreater(c.stats()["pool_bytes"], 0)


if __name__ == "__main__":
    harness.main()
