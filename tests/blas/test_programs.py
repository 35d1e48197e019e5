"""Programs that know nothing of kops, with the BLAS library preloaded or in place of theirs."""
import os
import re
import shutil
import subprocess
import sys
import unittest

import case

LIBBLAS = os.environ.get("KOPS_TEST_LIBBLAS", "")
PRELOAD = {"LD_PRELOAD": case.LIBRARY}
IN_PLACE = {"LD_LIBRARY_PATH": os.path.dirname(LIBBLAS)}

NUMPY = """
import numpy as np
rng = np.random.default_rng(1)
for dtype in "fd":
    a, b = rng.standard_normal((90, 130)).astype(dtype), rng.standard_normal((130, 70)).astype(dtype)
    exact = np.array([[sum(float(x) * float(y) for x, y in zip(row, column)) for column in b.T] for row in a[:5]])
    assert np.allclose((a @ b)[:5], exact, atol=1e-4 if dtype == "f" else 1e-12)
    assert np.array_equal((b.T @ a.T).T.shape, (90, 70))
    square = a @ a.T
    assert np.array_equal(square, square.T) and np.allclose(square, a @ a.T.copy(), atol=1e-4)
    z = a.astype("D" if dtype == "d" else "F")
    assert np.allclose(z @ z.conj().T, square, atol=1e-4)
x = rng.standard_normal((80, 80))
assert np.allclose(np.linalg.solve(x, x @ x), x) and np.allclose(np.linalg.inv(x) @ x, np.eye(80))
stack = rng.standard_normal((3, 40, 50))
assert np.allclose(stack @ stack.transpose(0, 2, 1), np.einsum("bij,bkj->bik", stack, stack))
assert (np.zeros((0, 4)) @ np.zeros((4, 3))).shape == (0, 3) and not (np.zeros((2, 0)) @ np.zeros((0, 3))).any()
print("right")
"""

R = """
set.seed(1); a <- matrix(rnorm(90*130), 90); b <- matrix(rnorm(130*70), 130)
exact <- sapply(1:70, function(j) sapply(1:90, function(i) sum(a[i,] * b[,j])))
stopifnot(max(abs(a %*% b - exact)) < 1e-12, max(abs(crossprod(a) - t(a) %*% a)) < 1e-12)
x <- crossprod(matrix(rnorm(6400), 80)); stopifnot(max(abs(chol2inv(chol(x)) %*% x - diag(80))) < 1e-6)
cat("right\\n")
"""

OCTAVE = """
a = randn(90, 130); b = randn(130, 70); exact = zeros(90, 70);
for j = 1:70, exact(:, j) = sum(a .* b(:, j)', 2); end
assert(a * b, exact, 1e-11); assert(single(a) * single(b), single(exact), single(1e-3));
s = a * a'; assert(issymmetric(s)); x = randn(80); assert(inv(x) * x, eye(80), 1e-8); assert(x * (x \\ x), x, 1e-8);
puts("right\\n");
"""


def has_numpy():
    return subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode == 0


class Programs(case.BlasTest):
    def check(self, names, *command, **settings):
        """Right, and at least one of the names was computed by kopsd."""
        out, calls = self.run_program(*command, **settings)
        self.assertIn("right", out)
        self.assertGreater(sum(calls.get(name, {}).get("kopsd", 0) for name in names), 0, calls)
        self.assertEqual({why for c in calls.values() for why in c} - {"kopsd", "invalid or empty", "handles taken"},
                         set(), calls)

    @unittest.skipUnless(has_numpy(), "no NumPy")
    def test_numpy(self):
        names = ["cblas_dgemm", "scipy_cblas_dgemm64_"]
        for settings in (PRELOAD, IN_PLACE, {**PRELOAD, **IN_PLACE}):
            with self.subTest(settings):
                self.check(names, sys.executable, "-c", NUMPY, **settings)

    @unittest.skipUnless(shutil.which("Rscript"), "no R")
    def test_r(self):
        # Its wrapper puts the system's folder before LD_LIBRARY_PATH.
        self.check(["dgemm_"], "Rscript", "-e", R, **PRELOAD)

    @unittest.skipUnless(shutil.which("octave-cli"), "no Octave")
    def test_octave(self):
        for settings in (PRELOAD, IN_PLACE):
            with self.subTest(settings):
                self.check(["dgemm_"], "octave-cli", "--eval", OCTAVE, **settings)


class Reports(case.BlasTest):
    """What KOPS_BLAS_VERBOSE says."""

    def test_parts_are_not_counted(self):
        """Nor ends of the recursion as invalid."""
        code = ("import ctypes; at = lambda n: ctypes.byref(ctypes.c_int(n)); one = ctypes.c_double(1)\n"
                "a, b = ((ctypes.c_double * 10000)(*[1.0] * 10000) for _ in range(2))\n"
                "ctypes.CDLL(None).dtrsm_(b'L', b'U', b'N', b'U', at(100), at(100), ctypes.byref(one), a, at(100), b, "
                "at(100), *[ctypes.c_size_t(1)] * 4)")
        _, calls = self.run_program(sys.executable, "-c", code, LD_PRELOAD=case.LIBRARY)
        self.assertEqual(calls, {"dtrsm_": {"kopsd": 1}})
        env = self.environment(LD_PRELOAD=case.LIBRARY, KOPS_BLAS_VERBOSE="2")
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
        self.assertGreater(len(re.findall(r"]:   part: dgemm_ \d+ x 100 x \d+: kopsd, ", done.stderr)), 10)
        self.assertNotIn("invalid", done.stderr)

    def test_workers_that_end_without_a_word(self):
        """multiprocessing's leave by _exit(), or are killed."""
        code = ("import ctypes, multiprocessing, os, signal, sys\n"
                "def work(i):\n"
                "    at = lambda n: ctypes.byref(ctypes.c_int(n)); one = ctypes.c_double(1)\n"
                "    a, b, c = ((ctypes.c_double * 64)(*[1.0] * 64) for _ in range(3))\n"
                "    ctypes.CDLL(None).dgemm_(b'N', b'N', at(8), at(8), at(8), ctypes.byref(one), a, at(8), b, at(8), "
                "ctypes.byref(one), c, at(8), ctypes.c_size_t(1), ctypes.c_size_t(1))\n"
                "    return os.getpid()\n"
                "context = multiprocessing.get_context('fork')\n"
                "with context.Pool(3) as pool: pids = set(pool.map(work, range(30), 1))\n"
                "with context.Pool(1, maxtasksperchild=2) as pool: pids |= set(pool.map(work, range(10), 1))\n"
                "child = os.fork()\n"
                "if child == 0: work(0); os.kill(os.getpid(), signal.SIGKILL)\n"
                "os.waitpid(child, 0); work(0); print(*pids | {child, os.getpid()})")
        env = self.environment(LD_PRELOAD=case.LIBRARY)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {int(pid) for pid in re.findall(r"kops-blas\[(\d+)\]", done.stderr)}
        self.assertEqual(found, {int(pid) for pid in done.stdout.split()}, done.stderr)
        self.assertEqual(sum(case.report(done.stderr)["dgemm_"].values()), 30 + 10 + 1 + 1)


if __name__ == "__main__":
    unittest.main()
