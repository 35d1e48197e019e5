"""libkops under Python's multiprocessing and fork(), against the real daemon: the children never touch the parent's
session, and compute through handles of their own.
"""
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import unittest

import numpy as np

import harness

LIBKOPS = os.environ.get("KOPS_TEST_LIBKOPS", "")
N = 48
STATE, CONNECT = -34, -32


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("socket", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint32)]


def load_library():
    lib = ctypes.CDLL(LIBKOPS)
    pointer, u64, f32, i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float, ctypes.c_int
    for name, result, arguments in [
            ("kops_open", i32, [ctypes.POINTER(pointer), ctypes.POINTER(Options), ctypes.c_char_p, ctypes.c_size_t]),
            ("kops_close", None, [pointer]),
            ("kops_error", ctypes.c_char_p, [pointer]),
            ("kops_ping", i32, [pointer]),
            ("kops_alloc", i32, [pointer, u64, ctypes.c_uint, ctypes.c_char_p, ctypes.POINTER(pointer)]),
            ("kops_free", None, [pointer]),
            ("kops_data", pointer, [pointer]),
            ("kops_sgemm", i32, [pointer, i32, i32, u64, u64, u64, f32, pointer, u64, pointer, u64, f32, pointer, u64]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Handle:
    """A handle with three matrices of N × N floats."""

    def __init__(self, lib, socket):
        self.lib = lib
        self.k = ctypes.c_void_p()
        why = ctypes.create_string_buffer(512)
        options = Options(ctypes.sizeof(Options), socket.encode(), b"test_fork", 0)
        if lib.kops_open(ctypes.byref(self.k), ctypes.byref(options), why, 512) < 0:
            raise OSError(why.value.decode())
        self.buffers = [self.alloc() for _ in range(3)]

    def alloc(self):
        buffer = ctypes.c_void_p()
        if self.lib.kops_alloc(self.k, N * N * 4, 0, None, ctypes.byref(buffer)) < 0:
            raise OSError(self.error())
        return buffer

    def matrix(self, i):
        floats = ctypes.cast(self.lib.kops_data(self.buffers[i]), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(floats, (N, N))

    def multiply(self):
        a, b, c = self.buffers
        return self.lib.kops_sgemm(self.k, 0, 0, N, N, N, 1, a, N, b, N, 0, c, N)

    def error(self):
        return self.lib.kops_error(self.k).decode()

    def products(self, rng, n):
        """How many of n products are wrong."""
        wrong = 0
        for _ in range(n):
            a, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in range(2))
            self.matrix(0)[:], self.matrix(1)[:], self.matrix(2)[:] = a, b, np.nan
            if self.multiply() != 0:
                raise OSError(self.error())
            wrong += not np.array_equal(self.matrix(2), a @ b)  # small integers: exact
        return wrong

    def close(self):
        self.lib.kops_close(self.k)
        self.k = None


inherited = None  # the parent's handle, as multiprocessing's children find it


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

    def test_freeing_in_a_child_leaves_the_buffer(self):
        self.assert_ended_well(self.fork(lambda: self.lib.kops_free(self.handle.buffers[0])))
        self.assertEqual(self.handle.products(self.rng, 5), 0)

    def test_old_addresses_fault_in_a_child(self):
        a = self.handle.matrix(0)
        pid = self.fork(lambda: a.__setitem__((0, 0), 1))
        self.assertEqual(os.waitpid(pid, 0)[1] & 0x7f, signal.SIGSEGV)

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


if __name__ == "__main__":
    harness.main()
