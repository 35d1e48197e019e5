"""Programs that know nothing of kops, with the BLAS library preloaded or in place of theirs."""
import os
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


if __name__ == "__main__":
    unittest.main()
