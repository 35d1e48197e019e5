"""fork() and multiprocessing: children never touch their parent's session, and compute by clients of their own."""
import ast
import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import traceback
import unittest

import numpy as np

import kops
from case import PythonTest, eventually

inherited = None


def in_child(send):
    """What a forked child sees of the parent's client and array, and whether its own work."""
    client, array, device_array = inherited
    seen = []
    for action in (lambda: client.matmul(array, array), lambda: client.empty(3), device_array.download,
                   lambda: kops.asarray(array), lambda: kops.copy(device_array)):
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


def read_inherited(i):
    return float(inherited[i].sum()), float(kops.matmul(inherited, inherited)[i, 0])


def refuse(_):
    return inherited.ping()


def link(path):
    try:
        return os.readlink(path)
    except OSError:  # of the listing itself
        return ""


class Processes(PythonTest):
    leaks_checked = False  # the default client of this process stays

    def setUp(self):
        super().setUp()
        os.environ["KOPS_SOCKET"] = self.daemon.socket

    def test_a_forked_child(self):
        global inherited
        inherited = (self.kops, self.shared((5, 5)), self.kops.device_array((5, 5)))
        kops.asarray(np.ones((1500, 1500), np.float32))  # the parent's default client is there, and threads for copies
        receive, send = multiprocessing.Pipe(False)
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(send,))
        child.start()
        self.assertTrue(receive.poll(30))
        *sentences, elements, total = receive.recv()
        child.join(30)
        self.assertEqual((child.exitcode, elements, total), (0, 1500 * 1500, 125))
        for sentence, words in zip(sentences, ["which forked"] * 3 + ["no error", "belongs to another client"]):
            self.assertIn(words, sentence)
        a = inherited[1]
        inherited = None
        self.near(self.kops.matmul(a, a), a.astype(np.float64) @ a, 5)

    def test_pools(self):
        x = self.shared((20, 20))
        for method in "fork", "forkserver", "spawn":
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                for y in pool.map(square, [x] * 6):
                    self.near(y, x.astype(np.float64) @ x, 20)

    def test_pools_that_use_a_global_array(self):
        global inherited
        inherited = x = self.shared((20, 20))
        exact = x.astype(np.float64) @ x
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for i, (total, element) in enumerate(pool.map_async(read_inherited, range(20)).get(60)):
                self.assertEqual(total, float(x[i].sum()))
                self.assertAlmostEqual(element, exact[i, 0], 4)
        inherited = self.kops
        with multiprocessing.get_context("fork").Pool(2) as pool:
            self.fails(kops.StateError, "which forked", pool.map_async(refuse, range(4)).get, 60)
        inherited = None

    @contextlib.contextmanager
    def child(self, look):
        """A forked child, which calls look() whenever it is asked. Gives a function that asks, and returns what look() did:
        something to be printed."""
        ask, answer = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(ask[1])
                while os.read(ask[0], 1):
                    os.write(answer[1], repr(look()).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)

        os.close(answer[1])

        def asks():
            os.write(ask[1], b"?")
            return ast.literal_eval(os.read(answer[0], 1000).decode() or "'it died'")

        try:
            yield asks
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            for fd in *ask, answer[0]:
                os.close(fd)

    def test_a_child_reads_and_writes_what_it_inherited(self):
        x = self.shared((300, 300))
        with self.kops.memory():
            y = np.ones((50, 50), np.float32)
        before = float(x.sum())

        def look():
            total = float(x.sum())
            product = kops.add(y, 49, out=y)  # into the child's own pages
            z = y[:20].copy()
            z.resize((100, 100), refcheck=False)
            x.fill(7)
            return total, float(product[0, 0]), float(x[1, 1]), float(kops.add(x, 1.0)[2, 2]), float(z.sum())

        with self.child(look) as ask:
            self.assertEqual(ask(), (before, 50.0, 7.0, 8.0, 50.0 * 1000))
            self.assertEqual(float(x.sum()), before)
            self.assertEqual(float(y.sum()), 2500)
            x[0, 0] += 1
            self.near(self.kops.matmul(x, x), x.astype(np.float64) @ x, 300)

    def test_a_grandchild(self):
        x = self.shared((100, 100))
        before = float(x.sum())

        def look():
            receive, send = os.pipe()
            if os.fork() == 0:
                os.write(send, str(float(x.sum())).encode())
                os._exit(0)
            os.wait()
            return float(os.read(receive, 100))

        with self.child(look) as ask:
            self.assertEqual(ask(), before)

    def test_memory_of_arrays_that_are_gone_in_the_parent_only(self):
        """A child still sees what they held. Once it has ended, others get the memory."""
        self.use_and_lose(lambda: None)

    def test_a_child_that_closes_descriptors_that_it_does_not_know(self):
        def close():
            for name in os.listdir("/proc/self/fd"):
                if "memfd" in link("/proc/self/fd/" + name):
                    os.close(int(name))
        self.use_and_lose(close)

    def test_a_parent_that_closes_descriptors_that_it_does_not_know(self):
        """It cannot tell when children end, so they are taken to be there for ever."""
        code = ("import os, kops, numpy as np; x = kops.zeros((300, 300)); s = kops.default_client()._session\n"
                "pid = os.fork()\n"
                "if pid == 0: os._exit(int(x.sum()))\n"
                "assert os.waitpid(pid, 0)[1] == 0\n"
                "fd = kops._children.children.file[0]; os.dup2(0, fd)\n"
                "del x; y = kops.zeros((300, 300)); print(len(s.pool.lingering), y.sum())")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
        self.assertEqual((done.stdout, done.stderr), ("1 0.0\n", ""))

    def test_a_child_that_executes_a_program_looks_at_nothing(self):
        x = self.shared((300, 300))
        pid = os.fork()
        if pid == 0:
            os.execvp("sleep", ["sleep", "600"])
        try:
            del x
            self.assertTrue(eventually(lambda: not kops._children.children.may_look()))
            self.kops.empty(5 << 20)
            self.assertEqual(len(self.kops._session.pool.lingering), 0)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def use_and_lose(self, first):
        sizes = (8, 8), (300, 300), (1100, 1000)
        arrays = [self.kops.asarray(np.full(shape, 3, np.float32)) for shape in sizes for _ in range(3)]

        def look():
            first()
            return [float(x.sum()) for x in arrays]

        expected = [float(x.sum()) for x in arrays]
        with self.child(look) as ask:
            self.assertEqual(ask(), expected)
            pool = self.kops._session.pool
            for _ in range(3):
                arrays.clear()
                arrays += [self.kops.asarray(np.full(shape, 4, np.float32)) for shape in sizes for _ in range(3)]
                self.kops._session.pool.trim(0)
            self.assertEqual(ask(), expected)
            self.assertGreater(len(pool.lingering), 0)
        self.kops.empty(5 << 20)
        self.assertEqual(len(pool.lingering), 0)

    def test_memory_that_is_used_again_after_children_have_ended(self):
        pool, buffers = self.kops._session.pool, set()
        for i in range(12):
            arrays = [self.kops.asarray(np.full((60, 60), k, np.float32)) for k in range(20)]
            buffers.add(len(pool.ranges[1]))
            with self.child(lambda: [float(x[0, 0]) for x in arrays]) as ask:
                self.assertEqual(ask(), list(range(20)))
                more = [self.kops.asarray(np.full((60, 60), k, np.float32)) for k in range(5)]
                del more[3]
                if i % 2:
                    arrays.clear()
                    more.clear()
            again = [self.kops.asarray(np.full((60, 60), -k, np.float32)) for k in range(30)]
            self.kops._session.pool.trim(0)
            for x, k in [*zip(again, range(0, -30, -1)), *zip(arrays, range(20)), *zip(more, (0, 1, 2, 4))]:
                self.assertTrue((x == k).all())
            self.assertEqual(sum(slab.live for slab in pool.ranges[1]), pool.live)
            self.assertFalse([slab for slab in [*pool.idle, *pool.lingering] if slab.live])
        self.assertLess(max(buffers), 12)

    def test_a_default_client_that_was_closed_has_a_successor(self):
        closed = kops.default_client()
        closed.close()
        self.assertEqual(float(kops.add(np.ones(1, np.float32), 1.0)[0]), 2.0)
        closed.close()
        self.assertIs(kops.default_client(), kops.default_client())
        self.fails(kops.StateError, "closed", closed.ping)

    def test_what_the_module_shows(self):
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "client", "kops.h"), encoding="utf-8") as f:
            version = re.findall(r"^#define KOPS_VERSION_[A-Z]+ (\d+)$", f.read(), re.MULTILINE)
        self.assertEqual(kops.__version__, ".".join(version))
        self.assertLessEqual(set(kops.__all__), set(dir(kops)))
        self.assertFalse({"np", "threading", "Any", "annotations", "ArrayLike"} & set(dir(kops)))
        self.assertRaises(AttributeError, lambda: kops.nothing)
        for name in dir(kops):
            getattr(kops, name)

    def test_without_stdio(self):
        """Descriptors 0 to 2 are free, and what is printed goes there."""
        code = ("import asyncio, os, kops\n"
                "client = kops.connect()\n"
                "os.closerange(0, 3)\n"
                "async def main():\n"
                "    x, y = client.zeros((300, 300)), client.zeros((3, 3))\n"
                "    async with client.job() as j: z = j.add(x, 1.0)\n"
                "    return x, y, z\n"
                "x, y, z = asyncio.run(main())\n"
                "pid = os.fork()\n"
                "if pid == 0: os._exit(int(x.sum()))\n"
                "assert os.waitpid(pid, 0)[1] == 0\n"
                "for fd in range(3):\n"
                "    try: os.write(fd, b'printed' * 1000)\n"
                "    except OSError: pass\n"
                "assert not x.any() and not y.any() and (z == 1).all()\n"
                "assert all('memfd' not in os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)"
                " if os.path.exists(f'/proc/self/fd/{fd}'))\n"
                "client.ping(); os._exit(77)\n")
        self.assertEqual(subprocess.run([sys.executable, "-c", code], timeout=600).returncode, 77)

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
