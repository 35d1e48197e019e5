"""The own test suites of NumPy and SciPy, every product by kopsd: of their latest wheels, and of the system's packages."""
import os
import subprocess
import sys
import tempfile
import unittest

import case


class Suites(case.BlasTest):
    leaks_checked = False

    def run_suite(self, python, name, **settings):
        out, calls = self.run_program(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--pyargs",
                                      name, seconds=1500, LD_PRELOAD=case.LIBRARY, **settings)
        print(name, out.splitlines()[-1], calls)
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 100)


class Wheels(Suites):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.python = os.path.join(folder.name, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", folder.name], check=True)
        if subprocess.run([cls.python, "-m", "pip", "install", "-q", "numpy", "scipy", "pytest", "hypothesis",
                           "pooch"]).returncode != 0:
            raise unittest.SkipTest("pip reaches no index")

    def test_numpy(self):
        self.run_suite(self.python, "numpy.linalg")

    def test_scipy(self):
        self.run_suite(self.python, "scipy.linalg")


class Packages(Suites):
    """Of Debian, whose NumPy calls libblas.so.3 and liblapack.so.3. kopsd sees their large memory."""

    PYTHON = "/usr/bin/python3"

    def check(self, name):
        needs = f"import pytest, hypothesis, {name}.tests"
        if subprocess.run([self.PYTHON, "-c", needs], capture_output=True).returncode != 0:
            self.skipTest(f"{self.PYTHON} lacks pytest, hypothesis or the tests of {name}")
        self.run_suite(self.PYTHON, name, KOPS_BLAS_ALLOC="1")

    def test_numpy(self):
        self.check("numpy.linalg")

    def test_scipy(self):
        self.check("scipy.linalg")


if __name__ == "__main__":
    unittest.main()
