"""libkops under Python's multiprocessing and fork(), against the real daemon: the children never touch the parent's
session, and compute through handles of their own.
"""
import multiprocessing
import os
import signal
import subprocess
import sys
import unittest

import numpy as np

from support import harness
from support.libkops import STATE, Handle, load_library

inherited = None  # the parent's handle, as multiprocessing's children find it


def has_ring():
    """Whether this process has a ring mapped."""
    with open("/proc/self/maps", encoding="ascii") as f:
        return "memfd:kops-ring" in f.read()


def work(seed):
    """In a child: (codes on the inherited handle, its sentence, wrong products on a handle of its own)."""
    codes = {inherited.multiply() for _ in range(50)} | {inherited.lib.kops_ping(inherited.k)}
    if inherited.lib.kops_data(inherited.buffers[0]):
        codes.add(0)
    own = Handle(inherited.lib, os.environ["KOPS_SOCKET"])
    wrong = own.products(np.random.default_rng(seed), harness.count(100, 20))
    own.close()
    return codes, inherited.error(), wrong


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_fork has their part")
class Fork(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lib = load_library()
        os.environ["KOPS_SOCKET"] = cls.daemon.socket

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(self.random.randrange(1 << 31))
        self.handle = Handle(self.lib, self.daemon.socket)
        self.addCleanup(lambda: self.handle.k and self.handle.close())

    def tearDown(self):
        if self.handle.k:
            self.handle.close()
        super().tearDown()

    def sentence(self):
        return f"this handle belongs to process {os.getpid()}, which forked; open one of your own with kops_open()"

    def test_multiprocessing(self):
        global inherited
        inherited = self.handle
        with multiprocessing.get_context("fork").Pool(4) as pool:
            results = pool.map_async(work, range(8), chunksize=1)
            wrong = self.handle.products(self.rng, 300)  # meanwhile
            for codes, sentence, childs_wrong in results.get(120):
                self.assertEqual(codes, {STATE})
                self.assertEqual(sentence, self.sentence())
                self.assertEqual(childs_wrong, 0)
        self.assertEqual(wrong, 0)

    def fork(self, child):
        """The pid of a child that runs child() and ends."""
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(0)
            except BaseException as e:  # pylint: disable=broad-except
                print("the child:", repr(e), file=sys.stderr, flush=True)
                os._exit(1)
        return pid

    def assert_ended_well(self, pid):
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_closing_in_a_child_leaves_the_session(self):
        sessions = self.control.stats()["sessions"]
        for _ in range(20):
            self.assert_ended_well(self.fork(self.handle.close))
            self.assertEqual(self.handle.products(self.rng, 5), 0)
        self.assertEqual(self.control.stats()["sessions"], sessions)

    def test_closing_in_a_child_leaves_the_childs_own_files(self):
        """Which have the numbers that the handle's copies had."""
        def child():
            os.closerange(3, 1024)
            mine = [os.pipe2(os.O_NONBLOCK) for _ in range(16)]
            self.handle.close()
            for read, write in mine:
                os.write(write, b"x")
                assert os.read(read, 1) == b"x"
        self.assert_ended_well(self.fork(child))
        self.assertEqual(self.handle.products(self.rng, 5), 0)

    def test_freeing_in_a_child_leaves_the_buffer(self):
        self.assert_ended_well(self.fork(lambda: self.lib.kops_free(self.handle.buffers[0])))
        self.assertEqual(self.handle.products(self.rng, 5), 0)

    def test_old_addresses_fault_in_a_child(self):
        a = self.handle.matrix(0)
        pid = self.fork(lambda: a.__setitem__((0, 0), 1))
        self.assertEqual(os.waitpid(pid, 0)[1] & 0x7f, signal.SIGSEGV)

    def test_a_ring_is_not_the_childs(self):
        job = self.handle.job(1)
        self.assertEqual(self.lib.kops_job_prepare(job), 0)
        self.assertEqual({self.handle.run(job) for _ in range(5)}, {0})
        self.assertTrue(has_ring())

        def child():
            assert not has_ring()
            assert {self.handle.run(job) for _ in range(5)} == {STATE}
            assert self.lib.kops_job_prepare(job) == STATE
            self.lib.kops_job_free(job)
            self.handle.close()
        for _ in range(5):
            self.assert_ended_well(self.fork(child))
            self.assertEqual({self.handle.run(job) for _ in range(5)}, {0})
        self.lib.kops_job_free(job)

    def test_several_handles(self):
        handles = [self.handle] + [Handle(self.lib, self.daemon.socket) for _ in range(3)]

        def child():
            assert [h.multiply() for h in handles] == [STATE] * 4
            own = Handle(self.lib, self.daemon.socket)
            assert own.products(np.random.default_rng(1), 5) == 0
            for h in handles[::2]:
                h.close()
            assert own.products(np.random.default_rng(2), 5) == 0
            assert handles[1].multiply() == STATE
            own.close()
        self.assert_ended_well(self.fork(child))
        for h in handles:
            self.assertEqual(h.products(self.rng, 5), 0)
        for h in handles[1:]:
            h.close()

    def test_closing_ends_the_session_though_a_child_lives(self):
        sessions = self.control.stats()["sessions"]
        pid = self.fork(signal.pause)
        self.handle.close()
        gone = harness.eventually(lambda: self.control.stats()["sessions"] == sessions - 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertTrue(gone)

    def test_programs_inherit_no_descriptors(self):
        # close_fds=False: vfork() or fork(), then exec(), with every descriptor that is not close-on-exec.
        names = subprocess.run(["sh", "-c", "readlink /proc/self/fd/*"], close_fds=False, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, check=False).stdout.decode()
        self.assertNotIn("memfd", names)
        self.assertNotIn("socket", names)
        self.assertEqual(self.handle.products(self.rng, 20), 0)


@unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers; unit.test_client_fds has their part")
class Descriptors(harness.DaemonTest):
    """A program that closes its descriptors again and again: what kopsd holds for it."""

    def lose_all(self, times):
        """In a child: right products after each loss. Then it waits to be killed."""
        handle = Handle(load_library(), self.daemon.socket)
        rng = np.random.default_rng(harness.SEED)
        for _ in range(times):
            os.closerange(3, 1024)
            assert handle.products(rng, 2) == 0
        os.kill(os.getpid(), signal.SIGSTOP)

    def start(self, times):
        pid = os.fork()
        if pid == 0:
            try:
                self.lose_all(times)
            except BaseException as e:  # pylint: disable=broad-except
                print("the child:", repr(e), file=sys.stderr, flush=True)
            os._exit(1)
        return pid

    def assert_held(self, sessions, buffers, mapped_bytes):
        def held():
            stats = self.control.stats()
            return stats["sessions"] == sessions and stats["buffers"] == buffers and stats["mapped_bytes"] <= mapped_bytes
        self.assertTrue(harness.eventually(held), self.control.stats())

    def test_nothing_is_left_of_lost_sessions(self):
        for times in (1, 40):
            pid = self.start(times)
            self.assertTrue(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]))
            self.assert_held(2, 3, 128 << 10)  # three matrices of 9 KiB, and a ring
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.assert_held(1, 0, 0)


if __name__ == "__main__":
    harness.main()
