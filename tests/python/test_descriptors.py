"""Programs that close descriptors that they do not know, and those that were started without standard ones."""
import asyncio
import os
import subprocess
import sys
import unittest

import numpy as np

from case import PythonTest

CLOSED_STDIO = """
import os, sys
closed = [int(n) for n in sys.argv[1].split(",")]
for n in closed:
    os.close(n)
import numpy as np
import kops
a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
c = kops.connect()
x, y = c.asarray(a), c.empty((64, 64))
for n in closed:
    try:
        os.write(n, b"a line that nobody is to read\\n")  # as printf() would
    except OSError:
        pass
c.matmul(x, x, out=y)
right = np.array_equal(x, a) and np.array_equal(y, a @ a)
os._exit(0 if right else 1)
"""


class Descriptors(PythonTest):
    leaks_checked = False  # the sockets of each test are closed by numbers

    def check(self, x, y, z):
        """x and y are unchanged, and products right: of arrays of before and of new ones."""
        want = [a.copy() for a in (x, y)]
        self.kops.matmul(x, y, out=z)
        np.testing.assert_array_equal(x, want[0])
        np.testing.assert_array_equal(y, want[1])
        np.testing.assert_array_equal(z, want[0] @ want[1])
        np.testing.assert_array_equal(self.kops.add(z, x), z + x)

    def integers(self, n=40):
        return self.kops.asarray(self.rng.integers(-4, 5, (n, n)).astype(np.float32))

    def in_a_child(self, action):
        """That has a client of its own, and whose descriptors are no others' business."""
        pid = os.fork()
        if pid == 0:
            try:
                self.setUp()
                action()
                os._exit(0)
            except BaseException as e:  # pylint: disable=broad-except
                print("the child:", repr(e), file=sys.stderr, flush=True)
                os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def close_all(self, reuse):
        x, y, z = (self.integers() for _ in range(3))
        self.check(x, y, z)
        for _ in range(3):
            os.closerange(3, 1024)
            mine = []
            for _ in range(16 if reuse else 0):
                read, write = os.pipe2(os.O_NONBLOCK)
                mine += [read]
                self.assertLess(write, 1024)
            self.check(x, y, z)
            for read in mine:
                with self.assertRaises(BlockingIOError):
                    os.read(read, 1)

    def test_arrays_made_in_an_event_loop(self):
        async def make():
            return [self.integers() for _ in range(3)]

        def action():
            x, y, z = asyncio.run(make())
            os.closerange(3, 1024)
            self.check(x, y, z)
        self.in_a_child(action)

    def test_all_are_closed(self):
        self.in_a_child(lambda: self.close_all(False))

    def test_all_are_closed_and_reused(self):
        self.in_a_child(lambda: self.close_all(True))

    def close_in_a_loop(self, reuse):
        """A loop is not told of a descriptor that the program closed."""
        async def main():
            job = self.kops.job()
            x, y = self.integers(1000), self.kops.empty((1000, 1000))
            for _ in range(10):
                job.matmul(x, x, out=y)
            job.submit()
            waiting = asyncio.ensure_future(wait(job))
            await asyncio.sleep(0.02)
            os.close(self.kops._session.watch.fd)
            read, _ = os.pipe() if reuse else (-1, -1)
            await asyncio.wait_for(waiting, 60)
            np.testing.assert_array_equal(y, np.asarray(x) @ x)
            if reuse:
                os.set_blocking(read, False)
                with self.assertRaises(BlockingIOError):
                    os.read(read, 1)

        async def wait(job):
            await job

        asyncio.run(main())

    def test_in_an_event_loop(self):
        for reuse in False, True:
            self.in_a_child(lambda: self.close_in_a_loop(reuse))

    def test_without_standard_ones(self):
        env = {**os.environ, "KOPS_SOCKET": self.daemon.socket}
        for closed in ("0", "1", "2", "0,1,2"):
            done = subprocess.run([sys.executable, "-c", CLOSED_STDIO, closed], env=env, timeout=600, check=False)
            self.assertEqual(done.returncode, 0, f"without {closed}")


if __name__ == "__main__":
    unittest.main()
