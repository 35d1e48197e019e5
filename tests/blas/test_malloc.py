"""KOPS_BLAS_ALLOC=1: programs whose large memory kopsd sees. They are right, and nothing is copied."""
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import case
import test_programs
from support import harness

MALLOC = os.environ.get("KOPS_TEST_MALLOC", "")
ON = {"LD_PRELOAD": case.LIBRARY, "KOPS_BLAS_ALLOC": "1"}
SIDE = 520
MATRIX_KIB = SIDE * SIDE * 8 / 1024

NUMPY = """
import gc, multiprocessing, numpy as np, os, subprocess, sys
n = 600
a, b = (np.arange(n * n, dtype="f").reshape(n, n) % m for m in (7, 5))
exact = (a.astype("i8").T[:40] @ b.astype("i8")).astype("f")  # integers know no BLAS
def check(x, y):
    assert np.array_equal((x.T @ y)[:40], exact)
for i in range(4):
    check(a, b)
square = a @ a.T
assert np.array_equal(square, square.T)
out = np.empty((n, n), "f")
np.matmul(a, b, out=out[:, ::1])
wide = np.zeros((n, 2 * n), "f")
wide[:, :n] = a.T
assert np.array_equal((wide[:, :n] @ b)[:40], exact)
assert not np.zeros((1000, 1000)).any()  # calloc() of memory that was used before
view = wide[:, n:]
assert not view.any()
np.matmul(a.T, b, out=view)
assert np.array_equal(view[:40], exact) and np.array_equal(wide[:, :n], a.T)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.starmap(check, [(a, b)] * 4)
a += 1; a -= 1
check(a, b)
child = os.fork()
if child == 0:
    a[:] = 0
    assert not (a.T @ b).any()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\\n"
assert os.system("exit 2") == 2 << 8
check(a, b)
a, b = a.copy(), b.copy()
check(a, b)
print("right")
"""

R = """
n <- 400; a <- matrix((0:(n*n-1)) %% 7, n); b <- matrix((0:(n*n-1)) %% 5, n)
for (i in 1:4) { c <- a %*% b; stopifnot(sum(a[3,] * b[,5]) == c[3,5], sum(c) == sum(colSums(a) * rowSums(b))) }
cat("right\\n")
"""

OCTAVE = """
n = 400; a = reshape(mod(0:n*n-1, 7), n, n); b = reshape(mod(0:n*n-1, 5), n, n);
for i = 1:4, c = a * b; assert(c(3, 5), sum(a(3, :) .* b(:, 5)')); assert(sum(c(:)), sum(sum(a) * sum(b, 2))); end
puts("right\\n");
"""


class Case(case.BlasTest):
    def run_all(self, *command, seconds=600, **settings):
        """Right. What it printed, its calls, and KiB that were copied and used in place."""
        done = subprocess.run(command, env=self.environment(**{**ON, **settings}), capture_output=True, text=True,
                              timeout=seconds)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout, case.report(done.stderr), *case.moved(done.stderr)


class Allocating(Case):
    """The functions alone, for a program that never calls BLAS."""

    def test_all_functions(self):
        for alloc in ("1", "0"):  # what they promise is what the C library's do
            for what in ("threads", "children"):
                with self.subTest(what, alloc=alloc):
                    self.assertEqual(self.run_all(MALLOC, what, KOPS_BLAS_ALLOC=alloc)[0], "")

    def test_few_descriptors(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (24, limit[1]))
            done = subprocess.run([MALLOC, "threads"], env=self.environment(**ON), capture_output=True, text=True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_no_descriptor_without_large_memory(self):
        code = "import os; print(os.open('/dev/null', os.O_RDONLY), os.listdir('/proc/self/fd'))"
        self.assertEqual(self.run_all(sys.executable, "-S", "-c", code), self.run_all(sys.executable, "-S", "-c", code, KOPS_BLAS_ALLOC=""))

    def test_memory_is_shared_only_if_asked(self):
        code = ("import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.malloc(5 << 20)\n"
                "print(sum('memfd:malloc' in line for line in open('/proc/self/maps')))")
        for value, expected in (("1", True), ("0", False), ("", False)):
            out = self.run_all(sys.executable, "-c", code, KOPS_BLAS_ALLOC=value)[0]
            self.assertEqual(int(out) > 0, expected)
        # Under a limit on data a child of fork() might not get its copy.
        out = self.run_all("sh", "-c", 'ulimit -d 4000000; exec "$@"', "", sys.executable, "-c", code)[0]
        self.assertEqual(out, "0\n")


class InPlace(Case):
    def test_nothing_is_copied(self):
        out, calls, copied, in_place = self.run_all(MALLOC, "products", "5")
        self.assertEqual((out, calls), ("", {"cblas_dgemm": {"kopsd": 6}}))
        # With beta = 1 the result is copied to kopsd and back.
        self.assertEqual((copied, in_place), (math.ceil(2 * MATRIX_KIB), math.ceil((5 * 3 + 2) * MATRIX_KIB)))
        _, _, copied, in_place = self.run_all(MALLOC, "products", "5", KOPS_BLAS_ALLOC="")
        self.assertEqual((copied, in_place), (math.ceil((5 * 3 + 4) * MATRIX_KIB), 0))

    def test_forks(self):
        """What a fork made private is copied from then on."""
        for what in ("fork", "forks-beside"):
            with self.subTest(what):
                out, calls, copied, in_place = self.run_all(MALLOC, what)
                self.assertEqual((out, set(calls["cblas_dgemm"])), ("", {"kopsd"}))
                self.assertGreater(min(copied, in_place), 4 * MATRIX_KIB)

    def test_routines(self):
        """With all their checks of bytes that must stay."""
        routines = os.environ.get("KOPS_TEST_ROUTINES", "")
        out, calls, copied, in_place = self.run_all(routines, "large", "6", LD_PRELOAD="")
        self.assertEqual(out, "")
        self.assertGreater(in_place, 0)
        out, calls, *_ = self.run_all(routines, "calls", "30", LD_PRELOAD="")
        self.assertEqual(out, "")

    @unittest.skipUnless(test_programs.has_numpy(), "no NumPy")
    def test_numpy(self):
        out, calls, copied, in_place = self.run_all(sys.executable, "-c", NUMPY)
        self.assertEqual(out, "right\n")
        self.assertGreater(in_place, 5 * copied / 4)

    @unittest.skipUnless(test_programs.has_numpy(), "no NumPy")
    def test_numpy_copies_nothing(self):
        code = ("import numpy as np; a, b = np.ones((2, 700, 700), 'f'); a, b = a.copy(), b.copy()\n"
                "for i in range(5): c = a @ b\n"
                "assert (c == 700).all()")
        _, calls, copied, in_place = self.run_all(sys.executable, "-c", code)
        self.assertEqual(copied, 0)
        self.assertEqual(in_place, math.ceil(5 * 3 * 700 * 700 * 4 / 1024))

    @unittest.skipUnless(shutil.which("Rscript"), "no R")
    def test_r(self):
        out, _, _, in_place = self.run_all("Rscript", "-e", R)
        self.assertIn("right", out)
        self.assertGreater(in_place, 0)

    @unittest.skipUnless(shutil.which("octave-cli"), "no Octave")
    def test_octave(self):
        out, _, _, in_place = self.run_all("octave-cli", "--eval", OCTAVE)
        self.assertIn("right", out)
        self.assertGreater(in_place, 0)

    def test_memory_goes_back(self):
        """kopsd keeps nothing of what the program gave back, though it calls no BLAS any more."""
        program = subprocess.Popen([MALLOC, "give-back"], env=self.environment(**ON), bufsize=0, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(program.stdout.read(1), b".")
        self.assertEqual(self.holdings()["buffers"], 3)
        program.stdin.write(b".")
        self.assertEqual(program.stdout.read(1), b".")
        harness.eventually(lambda: self.holdings()["buffers"] == 0)
        self.assertEqual(self.holdings()["mapped_bytes"], 0)
        program.stdin.write(b".")
        out, err = program.communicate(timeout=600)
        self.assertEqual((program.returncode, out), (0, b""), err)


class Refused(Case):
    settings = {"max-mapped-per-uid": "3M"}

    def test_kopsd_takes_no_more_memory(self):
        out, calls, copied, in_place = self.run_all(MALLOC, "products", "6")
        self.assertEqual(out, "")
        self.assertEqual(calls["cblas_dgemm"]["kopsd"], 0)

    def test_kopsd_away(self):
        out, calls, copied, in_place = self.run_all(MALLOC, "products", "6", KOPS_SOCKET="/nonexistent")
        self.assertEqual((out, calls, copied, in_place), ("", {"cblas_dgemm": {"kopsd": 0, "kopsd away": 7}}, 0, 0))


class Deaths(Case):
    leaks_checked = False

    def act(self, what, *signals):
        return self.run_acts([MALLOC, what], *signals, **ON)

    def test_left_by_a_signal(self):
        """kopsd writes a result that nobody waits for any more. The program does not see it."""
        self.act("jump", signal.SIGSTOP, signal.SIGCONT)

    def test_too_late(self):
        calls = self.act("slow", signal.SIGSTOP, signal.SIGCONT)
        self.assertEqual(calls, {"cblas_dgemm": {"kopsd": 1, "job failed": 1}})

    def test_it_dies(self):
        for _ in range(4):
            program = subprocess.Popen([MALLOC, "loop"], env=self.environment(**ON), bufsize=0, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(program.stdout.read(1), b".")
            program.stdin.write(b".")
            time.sleep(random.uniform(0.02, 0.3))
            self.daemon.process.kill()
            self.daemon.wait()
            os.truncate(self.daemon.log_path, 0)
            self.daemon.start()
            self.assertEqual(program.stdout.read(1), b".")
            program.stdin.write(b".")
            out, err = program.communicate(timeout=600)
            self.assertEqual((program.returncode, out), (0, b""), err)
        self.control.close()
        type(self).control = self.daemon.connect(name="control")


if __name__ == "__main__":
    unittest.main()
