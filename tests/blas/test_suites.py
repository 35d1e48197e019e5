"""The own test suites of NumPy and SciPy, in an environment with their latest wheels, every product by kopsd."""
import os
import subprocess
import sys
import tempfile
import unittest

import case



class Suites(case.BlasTest):
    leaks_checked = False

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

    def run_suite(self, name, *options):
        out, calls = self.run_program(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow",
                                      *options, "--pyargs", name, seconds=1500, LD_PRELOAD=case.LIBRARY)
        print(name, out.splitlines()[-1], calls)
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 100)

    def test_numpy(self):
        self.run_suite("numpy.linalg")

    def test_scipy(self):
        self.run_suite("scipy.linalg")


if __name__ == "__main__":
    unittest.main()
