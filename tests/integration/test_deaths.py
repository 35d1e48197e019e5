"""libkops against the real daemon that is killed: what is sent again, how often, and how it gives up."""
import threading
import time
import unittest

import numpy as np

from support import harness
from support.libkops import CONNECT, INTERRUPTED, N, Handle, load_library


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_restart has their part")
class Deaths(unittest.TestCase):
    def setUp(self):
        self.daemon = harness.Daemon()
        self.addCleanup(self.daemon.remove)
        self.daemon.start()
        self.lib = load_library()

    def open(self, timeout_ms=0):
        handle = Handle(self.lib, self.daemon.socket, timeout_ms)
        self.addCleanup(handle.close)
        return handle

    def long_job(self, handle, seconds):
        """A job that takes about so long."""
        terms = 1 << 10
        while True:
            start = time.monotonic()
            self.assertEqual(handle.run(handle.job(terms)), 0, handle.error())
            took = time.monotonic() - start
            if took > 0.05:
                return handle.job(int(terms * seconds / took))
            terms *= 4

    def start_running(self, handle, job):
        """A thread that runs the job; its result comes to self.status."""
        def run():
            self.status = handle.run(job)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def kill_at_work(self):
        """Kills the daemon once a job runs, and starts the next."""
        with_job = self.daemon.connect()
        self.assertTrue(harness.eventually(with_job.any_running))
        with_job.close()
        self.daemon.kill_and_start()

    def test_three_deaths_in_a_row_are_the_end_of_a_job(self):
        handle = self.open()
        thread = self.start_running(handle, self.long_job(handle, 3))
        for _ in range(3):
            self.kill_at_work()
        thread.join()
        self.assertEqual(self.status, INTERRUPTED)
        self.assertIn("three times while this job was running", handle.error())
        self.assertEqual(handle.products(np.random.default_rng(harness.SEED), 20), 0)  # the handle lives on

    def test_two_deaths_are_not(self):
        handle = self.open()
        handle.matrix(0)[:] = np.arange(N * N).reshape(N, N)
        thread = self.start_running(handle, self.long_job(handle, 1.5))
        for _ in range(2):
            self.kill_at_work()
        thread.join()
        self.assertEqual(self.status, 0)
        np.testing.assert_array_equal(handle.matrix(1), handle.matrix(0))

    def test_a_daemon_that_stays_away(self):
        handle = self.open(timeout_ms=700)
        self.daemon.stop()
        start = time.monotonic()
        self.assertEqual(handle.multiply(), CONNECT)
        self.assertTrue(0.5 < time.monotonic() - start < 25)  # without the timeout it would be 30
        self.assertRegex(handle.error(), rf"^cannot reach kopsd at {self.daemon.socket}: tried \d+ times in 0.7 s, "
                         r"the last time: no such file; is kopsd running\? \(systemctl status kopsd.socket\)$")


if __name__ == "__main__":
    harness.main()
