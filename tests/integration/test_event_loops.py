"""Event loops: what kops.h says does not wait returns at once, with kopsd stuck or gone, and the work goes on afterwards."""
import ctypes
import fcntl
import os
import resource
import select
import signal
import time
import unittest

import numpy as np

from support import harness, libkops
from support.libkops import F32, N, BufferCallback, Options

PROMPT_S = 0.5  # of a call that slept; the shortest wait in libkops is 1 s, the usual one TIMEOUT_MS
TIMEOUT_MS = 60_000
BYTES = N * N * 4
SHARED, RESIDENT = 0, 1
MORE_THAN_A_SOCKET_HOLDS = 600

def sleeps_so_far():
    """How often this thread gave up its CPU, to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


lib = None if harness.QUICK else libkops.load_library()


class Loop:
    """A handle that nobody waits for. `slowest`: the longest call so far that slept, and which it was."""

    def __init__(self, socket):
        self.slowest = 0, ""
        self.ended = {}
        self.callback = BufferCallback(lambda item, status, _: self.ended.update({item: status}))
        self.k = self.open(socket)

    def open(self, socket):
        k = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), socket.encode(), b"loop", TIMEOUT_MS)
        self.check(self.call("kops_open_start", ctypes.byref(k), ctypes.byref(options), None, 0))
        return k

    def call(self, name, *args):
        begin, sleeps = time.monotonic(), sleeps_so_far()
        result = getattr(lib, name)(*args)
        if sleeps_so_far() > sleeps:  # a busy machine makes others take long, too
            self.slowest = max(self.slowest, (time.monotonic() - begin, name))
        return result

    def check(self, status):
        if status < 0:
            raise AssertionError(f"{status}: {lib.kops_error(self.k)}")

    def alloc(self, flags):
        buffer = ctypes.c_void_p()
        self.check(self.call("kops_alloc_start", self.k, BYTES, flags, None, self.callback, None, ctypes.byref(buffer)))
        return buffer

    def import_(self, values):
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        os.pwrite(fd, values.tobytes(), 0)
        buffer = ctypes.c_void_p()
        self.check(self.call("kops_import_start", self.k, fd, BYTES, 0, self.callback, None, ctypes.byref(buffer)))
        os.close(fd)
        return buffer

    def job(self, x, y):
        """y = x."""
        job = ctypes.c_void_p()
        self.check(self.call("kops_job_new", self.k, None, ctypes.byref(job)))
        views = [lib.kops_matrix(b, 0, F32, N, N, 0) for b in (x, y)]
        self.check(self.call("kops_job_copy", job, *views, None))
        self.check(self.call("kops_submit", job, self.callback, None))
        return job

    def turn(self, seconds=0.0):
        fd, events = self.call("kops_fd", self.k), self.call("kops_events", self.k)
        timeout_ms = self.call("kops_timeout", self.k)
        poll = select.poll()
        if fd >= 0:
            poll.register(fd, events)
        poll.poll(min(seconds * 1000, timeout_ms if timeout_ms >= 0 else seconds * 1000))
        self.check(self.call("kops_process", self.k))

    def turn_until(self, *items):
        end = time.monotonic() + TIMEOUT_MS / 1000
        while any(item.value not in self.ended for item in items) and time.monotonic() < end:
            self.turn(0.1)
        return [self.ended.get(item.value) for item in items]

    def floats(self, buffer):
        address = ctypes.cast(lib.kops_data(buffer), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, (N, N))

    def close(self):
        self.call("kops_close", self.k)


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_started has their part")
class Prompt(unittest.TestCase):
    def setUp(self):
        self.daemon = harness.Daemon()
        self.addCleanup(self.daemon.remove)
        self.daemon.start()
        self.values = np.random.default_rng(harness.SEED).normal(size=(N, N)).astype(np.float32)

    def begin(self):
        """A loop at work, then all that can be called."""
        self.loop = loop = Loop(self.daemon.socket)
        x, y = loop.import_(self.values), loop.alloc(SHARED)
        self.assertEqual(loop.turn_until(loop.job(x, y), y), [0, 0])
        return loop, x

    def work(self, loop, x):
        """Everything that a loop calls; what has to be done in the end."""
        y, there, again = loop.alloc(SHARED), loop.alloc(RESIDENT), loop.import_(self.values)
        jobs = [loop.job(x, there), loop.job(there, y), loop.job(again, there)]
        cancelled = loop.job(again, there)
        loop.check(loop.call("kops_cancel", cancelled))
        abandoned = loop.job(x, loop.alloc(RESIDENT))
        loop.call("kops_job_free", abandoned)
        for _ in range(MORE_THAN_A_SOCKET_HOLDS):
            loop.call("kops_free", loop.alloc(RESIDENT))
        for _ in range(20):
            loop.turn(0.005)
        return y, [y, there, again, *jobs, cancelled]

    def assert_done(self, loop, y, items):
        statuses = loop.turn_until(*items)
        self.assertEqual(statuses[:-1], [0] * (len(items) - 1), lib.kops_error(loop.k))
        self.assertTrue(np.array_equal(loop.floats(y), self.values))
        loop.close()
        self.assertLess(loop.slowest[0], PROMPT_S, loop.slowest[1])

    def test_with_kopsd_stuck(self):
        loop, x = self.begin()
        self.daemon.signal(signal.SIGSTOP)
        try:
            y, items = self.work(loop, x)
            other = loop.open(self.daemon.socket)
            loop.call("kops_process", other)
            loop.call("kops_close", other)
        finally:
            self.daemon.signal(signal.SIGCONT)
        self.assert_done(loop, y, items)

    def test_with_kopsd_gone(self):
        loop, x = self.begin()
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()
        y, items = self.work(loop, x)
        os.unlink(self.daemon.log_path)
        self.daemon.start()
        self.assert_done(loop, y, items)

    def test_with_kopsd_gone_from_the_middle(self):
        """Its requests are in flight, and it dies before it answers."""
        loop, x = self.begin()
        self.daemon.signal(signal.SIGSTOP)
        y, items = self.work(loop, x)
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()
        loop.turn()
        os.unlink(self.daemon.log_path)
        self.daemon.start()
        self.assert_done(loop, y, items)


if __name__ == "__main__":
    harness.main()
