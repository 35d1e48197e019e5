"""fork() and multiprocessing: children never touch their parent's session, and compute by clients of their own."""
import multiprocessing
import os
import subprocess
import sys
import unittest

import numpy as np

import kops
from case import PythonTest

inherited = None


def in_child(send):
    """What a forked child sees of the parent's client and array, and whether its own work."""
    client, array = inherited
    seen = []
    for action in (lambda: client.matmul(array, array), lambda: client.empty(3), lambda: kops.asarray(array)):
        try:
            action()
            seen.append("no error")
        except kops.StateError as e:
            seen.append(str(e))
    large = np.ones((1500, 1500), np.float32)  # by threads, which the child has to start anew
    seen.append(float(kops.asarray(large).sum()))
    own = kops.asarray(np.ones((5, 5), np.float32))
    seen.append(float(kops.matmul(own, own).sum()))
    send.send(seen)


def square(x):
    return kops.matmul(x, x)


class Processes(PythonTest):
    leaks_checked = False  # the default client of this process stays

    def setUp(self):
        super().setUp()
        os.environ["KOPS_SOCKET"] = self.daemon.socket

    def test_a_forked_child(self):
        global inherited
        inherited = (self.kops, self.shared((5, 5)))
        kops.asarray(np.ones((1500, 1500), np.float32))  # the parent's default client is there, and threads for copies
        receive, send = multiprocessing.Pipe(False)
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(send,))
        child.start()
        self.assertTrue(receive.poll(30))
        *sentences, elements, total = receive.recv()
        child.join(30)
        self.assertEqual((child.exitcode, elements, total), (0, 1500 * 1500, 125))
        for sentence in sentences:
            self.assertIn("which forked", sentence)
        a = inherited[1]
        inherited = None
        self.near(self.kops.matmul(a, a), a.astype(np.float64) @ a, 5)

    def test_pools(self):
        x = self.shared((20, 20))
        for method in "fork", "spawn":
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                for y in pool.map(square, [x] * 6):
                    self.near(y, x.astype(np.float64) @ x, 20)

    def test_a_default_client_that_was_closed_has_a_successor(self):
        closed = kops.default_client()
        closed.close()
        self.assertEqual(float(kops.add(np.ones(1, np.float32), 1.0)[0]), 2.0)
        closed.close()
        self.assertIs(kops.default_client(), kops.default_client())
        self.fails(kops.StateError, "closed", closed.ping)

    def test_module(self):
        done = subprocess.run([sys.executable, "-m", "kops"], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cpu", done.stdout)
        for words, code in (["--help"], 0), (["surplus"], 2):
            done = subprocess.run([sys.executable, "-m", "kops", *words], capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn("Usage: python -m kops", done.stdout if code == 0 else done.stderr)
        env = {**os.environ, "KOPS_SOCKET": "/no/such/socket"}
        done = subprocess.run([sys.executable, "-m", "kops"], capture_output=True, text=True, timeout=600, env=env)
        self.assertEqual(done.returncode, 1)
        self.assertIn("kops: ", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_in_development_mode(self):
        """Where memory that was freed loses its content."""
        subclass = "import kops, numpy; x = kops.asarray(numpy.eye(2)).view(numpy.recarray); print(kops.owns(x), (x @ x).sum())"
        done = subprocess.run([sys.executable, "-X", "dev", "-c", subclass], capture_output=True, text=True, timeout=600)
        self.assertEqual((done.stdout, done.stderr), ("True 2.0\n", ""))


if __name__ == "__main__":
    unittest.main()
