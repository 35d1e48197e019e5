"""Published buffers by libkops: from publishing to attaching, and over restarts of kopsd."""
import ctypes
import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness  # noqa: E402
from support.libkops import F32, N, Handle, View, load_library  # noqa: E402

RESIDENT = 1
SHAPE, NOT_FOUND, EXISTS, LOST, READONLY, STATE, INVALID, RANGE = -4, -7, -8, -17, -22, -34, -2, -3
EVERYBODY = 2
UID = os.geteuid()


class PublishOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("access", ctypes.c_int), ("group", ctypes.c_uint32), ("keep", ctypes.c_bool),
                ("reserved", ctypes.c_uint8 * 3), ("dtype", ctypes.c_int), ("rank", ctypes.c_uint32),
                ("shape", ctypes.c_uint64 * 8)]


class OpShape(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("rank", ctypes.c_uint32), ("extents", ctypes.c_uint64 * 8)]


class BufferInfo(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("uid", ctypes.c_uint32), ("name", ctypes.c_char_p), ("bytes", ctypes.c_uint64),
                ("device", ctypes.c_char_p), ("shape", OpShape), ("access", ctypes.c_int), ("group", ctypes.c_uint32),
                ("keep", ctypes.c_bool), ("age_us", ctypes.c_uint64), ("attached", ctypes.c_uint64), ("pid", ctypes.c_uint32)]


def library():
    lib = load_library()
    pointer = ctypes.c_void_p
    for name, result, arguments in [
            ("kops_publish", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.POINTER(PublishOptions)]),
            ("kops_published", ctypes.c_char_p, [pointer]),
            ("kops_unpublish", ctypes.c_int, [pointer, ctypes.c_uint32, ctypes.c_char_p]),
            ("kops_attach", ctypes.c_int, [pointer, ctypes.c_uint32, ctypes.c_char_p, ctypes.POINTER(pointer)]),
            ("kops_attached_view", View, [pointer]),
            ("kops_size", ctypes.c_uint64, [pointer]),
            ("kops_list_buffers", ctypes.c_int, [pointer, ctypes.POINTER(pointer)]),
            ("kops_list_count", ctypes.c_size_t, [pointer]),
            ("kops_list_buffer", ctypes.POINTER(BufferInfo), [pointer, ctypes.c_size_t]),
            ("kops_list_free", None, [pointer])]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def options(dtype=0, shape=(), **members):
    o = PublishOptions(ctypes.sizeof(PublishOptions), dtype=dtype, rank=len(shape), **members)
    o.shape[:len(shape)] = shape
    return o


@unittest.skipIf(harness.QUICK, "a sanitizer's library cannot be loaded into Python")
class Published(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lib = library()

    def handle(self):
        h = Handle(self.lib, self.daemon.socket)
        self.addCleanup(h.close)
        return h

    def tearDown(self):
        self.doCleanups()  # before holdings are compared
        super().tearDown()

    def resident(self, h):
        """A RESIDENT copy of the first matrix."""
        b = ctypes.c_void_p()
        self.assertEqual(self.lib.kops_alloc(h.k, N * N * 4, RESIDENT, b"cpu", ctypes.byref(b)), 0, h.error())
        self.assertEqual(self.copy(h, h.buffers[0], b), 0, h.error())
        return b

    def copy(self, h, x, y):
        return self.lib.kops_copy(h.k, *(self.lib.kops_matrix(b, 0, F32, N, N, 0) for b in (x, y)))

    def publish(self, h, b, name=b"m/w", **how):
        return self.lib.kops_publish(b, name, options(**how))

    def attach(self, h, name=b"m/w"):
        b = ctypes.c_void_p()
        status = self.lib.kops_attach(h.k, UID, name, ctypes.byref(b))
        return b if status == 0 else status

    def read(self, h, b):
        h.matrix(1)[:] = np.nan
        self.assertEqual(self.copy(h, b, h.buffers[1]), 0, h.error())
        return h.matrix(1)

    def restart(self):
        self.control.close()
        self.daemon.kill_and_start()
        type(self).control = self.daemon.connect(name="control")

    def pair(self, seed, kind):
        publisher, user = self.handle(), self.handle()
        numbers = np.random.default_rng(seed).uniform(-1, 1, (N, N)).astype(np.float32)
        publisher.matrix(0)[:] = numbers
        buffer = self.resident(publisher) if kind == RESIDENT else publisher.buffers[0]
        self.assertEqual(self.publish(publisher, buffer, dtype=F32, shape=[N, N]), 0, publisher.error())
        self.assertEqual(self.lib.kops_published(buffer), b"m/w")
        return publisher, user, buffer, numbers

    def shared(self, b):
        return np.ctypeslib.as_array(ctypes.cast(self.lib.kops_data(b), ctypes.POINTER(ctypes.c_float)), (N, N))

    def test_use(self):
        for kind in (RESIDENT, 0):
            publisher, user, buffer, numbers = self.pair(kind, kind)
            b = self.attach(user)
            view = self.lib.kops_attached_view(b)
            self.assertEqual((view.buffer, view.dtype, view.rank, list(view.shape)[:2], self.lib.kops_size(b)),
                             (b.value, F32, 2, [N, N], N * N * 4))
            np.testing.assert_array_equal(self.read(user, b), numbers)
            self.assertEqual(self.copy(user, user.buffers[0], b), READONLY)
            self.assertEqual(self.copy(publisher, publisher.buffers[1], buffer), READONLY)
            if kind == RESIDENT:
                self.assertIsNone(self.lib.kops_data(b))
            else:
                np.testing.assert_array_equal(self.shared(b), numbers)
            self.assertEqual(self.lib.kops_unpublish(user.k, UID, b"m/w"), 0, user.error())
            self.assertEqual(self.attach(user), NOT_FOUND)
            self.lib.kops_free(b)
            publisher.close()
            user.close()

    def test_refusals(self):
        h = self.handle()
        x, y = h.buffers[:2]
        self.assertEqual(self.publish(h, x, b"a b"), INVALID)
        self.assertIn("a name has 1 to 255", h.error())
        self.assertEqual(self.publish(h, x, b"a", shape=[1] * 5), SHAPE)
        self.assertEqual(self.publish(h, x, b"a", dtype=F32, shape=[N, N + 1]), RANGE)
        self.assertEqual(self.lib.kops_publish(x, b"a", PublishOptions(ctypes.sizeof(PublishOptions), reserved=(1, 0, 0))), INVALID)
        self.assertIsNone(self.lib.kops_published(x))
        self.assertEqual(self.lib.kops_publish(x, b"a", None), 0)
        self.assertEqual(self.publish(h, x, b"b"), STATE)
        self.assertEqual(self.publish(h, y, b"a"), EXISTS)
        self.assertEqual(self.publish(h, self.attach(h, b"a"), b"c"), INVALID)
        self.assertEqual(self.attach(h, b"\xff"), INVALID)
        self.assertEqual(self.lib.kops_unpublish(h.k, UID, b"b"), NOT_FOUND)
        self.assertEqual(self.lib.kops_unpublish(h.k, UID, b"a"), 0)
        self.assertIsNone(self.lib.kops_published(x))

    def test_list(self):
        h = self.handle()
        self.assertEqual(self.publish(h, h.buffers[0], dtype=F32, shape=[N, 2], access=EVERYBODY), 0)
        resident = self.resident(h)
        self.assertEqual(self.publish(h, resident, b"r"), 0)
        self.attach(h)
        made = ctypes.c_void_p()
        self.assertEqual(self.lib.kops_list_buffers(h.k, ctypes.byref(made)), 0, h.error())
        self.assertEqual(self.lib.kops_list_count(made), 2)
        first, second = (self.lib.kops_list_buffer(made, i).contents for i in range(2))
        self.assertEqual((first.name, first.device, first.access, first.attached, first.shape.rank), (b"r", b"cpu", 0, 0, 0))
        self.assertEqual((second.name, second.device, second.access, second.attached, second.shape.rank,
                          list(second.shape.extents)[:2], second.uid, second.pid, second.bytes, second.keep),
                         (b"m/w", b"", EVERYBODY, 1, 2, [N, 2], UID, os.getpid(), N * N * 4, False))
        self.lib.kops_list_free(made)

    def test_shared_buffers_come_back_by_themselves(self):
        publisher, user, buffer, numbers = self.pair(1, 0)
        b = self.attach(user)
        address = self.lib.kops_data(b)
        self.restart()
        self.assertEqual(self.copy(user, b, user.buffers[1]), LOST, user.error())
        self.assertEqual(self.lib.kops_ping(publisher.k), 0)
        self.assertEqual(self.lib.kops_published(buffer), b"m/w")
        np.testing.assert_array_equal(self.read(user, b), numbers)
        self.assertEqual(self.lib.kops_data(b), address)
        np.testing.assert_array_equal(self.shared(b), numbers)

    def test_resident_buffers_are_lost_until_they_are_filled(self):
        publisher, user, buffer, numbers = self.pair(2, RESIDENT)
        b = self.attach(user)
        self.restart()
        for h in (publisher, user):
            self.assertEqual(self.lib.kops_ping(h.k), 0)
        self.assertIsNone(self.lib.kops_published(buffer))
        for _ in range(2):
            self.assertEqual(self.copy(user, b, user.buffers[1]), LOST, user.error())
            self.assertIn("published no buffer", user.error())
        self.assertEqual(self.publish(publisher, buffer), LOST)
        self.assertEqual(self.copy(publisher, publisher.buffers[0], buffer), 0)
        self.assertEqual(self.publish(publisher, buffer), 0, publisher.error())
        np.testing.assert_array_equal(self.read(user, b), numbers)

    def test_another_publishes_it_after_the_restart(self):
        """What was mapped becomes the new content, at its address. Another size is told."""
        publisher, user, buffer, _ = self.pair(3, 0)
        b = self.attach(user)
        address = self.lib.kops_data(b)
        publisher.close()
        self.restart()
        loader = self.handle()
        numbers = np.random.default_rng(4).uniform(-1, 1, (N, N)).astype(np.float32)
        loader.matrix(0)[:] = numbers
        self.assertEqual(self.publish(loader, loader.buffers[0]), 0)
        np.testing.assert_array_equal(self.read(user, b), numbers)
        self.assertEqual(self.lib.kops_data(b), address)
        np.testing.assert_array_equal(self.shared(b), numbers)
        loader.close()
        self.restart()
        other = self.handle()
        larger = ctypes.c_void_p()
        self.assertEqual(self.lib.kops_alloc(other.k, 2 * N * N * 4, 0, None, ctypes.byref(larger)), 0)
        self.assertEqual(self.publish(other, larger), 0)
        self.assertEqual(self.copy(user, b, user.buffers[1]), LOST)
        self.assertIn("attach it again", user.error())

    def test_a_job_that_repeats(self):
        publisher, user, _, numbers = self.pair(5, 0)
        b = self.attach(user)
        for round_ in range(3):
            for _ in range(5):
                np.testing.assert_array_equal(self.read(user, b), numbers)
            if round_ < 2:
                self.restart()
                self.assertEqual(self.lib.kops_ping(publisher.k), 0)


if __name__ == "__main__":
    harness.main()
