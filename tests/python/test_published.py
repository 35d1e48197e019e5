"""Published arrays: one copy that many processes use, in shared memory and on devices."""
import gc
import os
import unittest

import numpy as np

import kops
from case import PythonTest, harness

DTYPES = ["float16", "float32", "float64", "int32", "complex64", "complex128"]


class Published(PythonTest):
    def setUp(self):
        super().setUp()
        self.other = kops.connect(self.daemon.socket, name="other")

    def tearDown(self):
        self.other.close()
        del self.other
        super().tearDown()

    def test_shared_arrays(self):
        for dtype in DTYPES:
            x = self.numbers((3, 5)).astype(dtype)
            mine = self.kops.publish(x, "x")
            theirs = self.other.attach("x")
            for array, client in ((mine, self.kops), (theirs, self.other)):
                self.assertEqual((array.shape, array.dtype, array.flags.writeable), (x.shape, x.dtype, False))
                np.testing.assert_array_equal(array, x)
                self.assertTrue(client.owns(array))
            self.kops.unpublish("x")
        del mine, theirs, array
        gc.collect()

    def test_ops_use_them_where_they_are(self):
        x = self.numbers((8, 8))
        mine = self.kops.publish(np.asfortranarray(x), "x")
        theirs = self.other.attach("x")
        self.near(self.other.matmul(theirs, theirs.T), x.astype(float) @ x.T, 8)
        self.assertEqual(self.other.receipt.copied_bytes, 0)
        self.fails(kops.Error, "", self.other.add, x, x, out=theirs)
        self.near(self.kops.add(mine, mine), 2 * x.astype(float))

    def test_device_arrays(self):
        x = self.numbers((6, 4))
        for value, device in ((x, "cpu"), (self.kops.device_array((6, 4), device="cpu").upload(x), None)):
            mine = self.kops.publish(value, "d", device=device)
            self.assertEqual(mine is value, device is None)
            theirs = self.other.attach("d")
            self.assertIsInstance(theirs, kops.DeviceArray)
            self.assertEqual((theirs.shape, theirs.dtype, theirs.device), ((6, 4), np.float32, "cpu"))
            np.testing.assert_array_equal(theirs.download(), x)
            self.near((theirs @ theirs.T).download(), x.astype(float) @ x.T, 8)
            self.fails(kops.ArgumentError, "attached", theirs.upload, x)
            self.fails(kops.ArgumentError, "published", mine.upload, x)
            self.kops.unpublish("d")
        part = self.kops.device_array((6, 4), device="cpu").upload(x)[1:3]
        self.assertIsNot(self.kops.publish(part, "part"), part)
        np.testing.assert_array_equal(self.other.attach("part").download(), x[1:3])

    def test_it_lives_for_as_long_as_anybody_has_it(self):
        x = self.numbers((3, 3))
        mine = self.kops.publish(x, "x", keep=True)
        theirs = self.other.attach("x")
        del mine
        self.kops.close()
        np.testing.assert_array_equal(theirs, x)
        self.assertEqual([(b.name, b.shape, b.dtype, b.keep, b.attached, b.access) for b in self.other.buffers()],
                         [("x", (3, 3), "f32", True, 1, 0)])
        self.other.unpublish("x", os.geteuid())
        self.assertEqual(self.other.buffers(), [])
        np.testing.assert_array_equal(theirs, x)

    def test_restarts(self):
        x = self.numbers((3, 3))
        mine, theirs = self.kops.publish(x, "x"), self.other.attach("x")
        on_device, lost = self.kops.publish(x, "d", device="cpu"), self.other.attach("d")
        self.control.close()
        self.daemon.kill_and_start()
        type(self).control = self.daemon.connect(name="control")
        self.before = self.holdings()
        self.kops.ping()
        self.near(self.other.add(theirs, theirs), 2 * x.astype(float))
        self.fails(kops.LostError, "", lost.download)
        on_device.device  # it is there, without content
        again = self.kops.publish(x, "d", device="cpu")
        np.testing.assert_array_equal(lost.download(), x)
        del mine, again

    def test_refusals(self):
        x = self.numbers((3, 3))
        self.fails(kops.ArgumentError, "a name has", self.kops.publish, x, "a b")
        self.fails(kops.ArgumentError, "exclude", self.kops.publish, x, "a", everybody=True, group=0)
        self.fails(kops.ArgumentError, "no group", self.kops.publish, x, "a", group="no such group")
        self.fails(kops.ArgumentError, "no user", self.kops.attach, "a", "no such user")
        self.fails(kops.Error, "published no buffer", self.kops.attach, "a")
        self.fails(kops.ShapeError, "axes", self.kops.publish, np.float32(1), "a")
        self.fails(kops.DtypeError, "int64", self.kops.publish, np.arange(3), "a")
        mine = self.kops.publish(x, "a")
        self.fails(kops.Error, "another", self.kops.publish, x, "a")
        with self.daemon.connect() as c:
            c.publish(c.resident(64, "cpu"), "untold")
            self.fails(kops.DtypeError, "without a type", self.kops.attach, "untold")
        del mine


if __name__ == "__main__":
    harness.main()
